/// The decision about an attempt for which no endpoint was found, although some endpoints are ready. No I/O,
/// no clock.
public enum NoChoice: Equatable, Sendable {
  /// The attempt is tried again when the endpoints change, or a slot comes free.
  case wait
  case failsUnmet
  case failsRefused(Int)

  /// `full`: some endpoint suits the attempt, but has no free slot now. `refused`: the number of endpoints
  /// that hops have refused. `mayComeUp`: some endpoint that is not ready may become ready, and may then suit
  /// the attempt.
  public static func decide(full: Bool, refused: Int, mayComeUp: Bool) -> NoChoice {
    if full || mayComeUp { return .wait }
    return refused > 0 ? .failsRefused(refused) : .failsUnmet
  }

  /// Whether an endpoint in this state may become ready soon. `waits`: the attempt waits until there is a connection.
  public static func mayComeUp(_ state: Connectivity, waits: Bool) -> Bool {
    switch state {
    case .idle, .connecting: true
    case .transientFailure: waits
    case .ready, .shutdown: false
    }
  }
}
