/// Decides what happens to an attempt when some endpoints are ready, but it may use none of them. No I/O, no
/// clock.
public enum NoChoice: Equatable, Sendable {
  /// The attempt waits. It is tried again when the endpoints change, or a connection can take a further call.
  case wait
  case failsUnmet
  case failsRefused(Int)

  /// `full`: an endpoint suits the attempt, but its connection can take no further call now. `refused`: how
  /// many endpoints hops have refused. `mayComeUp`: an endpoint that is not ready may become ready, and may
  /// then suit the attempt.
  public static func decide(full: Bool, refused: Int, mayComeUp: Bool) -> NoChoice {
    if full || mayComeUp { return .wait }
    return refused > 0 ? .failsRefused(refused) : .failsUnmet
  }

  /// Whether an endpoint in this state may become ready soon enough for the attempt. `waits`: the attempt's
  /// call waits for a connection, however long that takes.
  public static func mayComeUp(_ state: Connectivity, waits: Bool) -> Bool {
    switch state {
    case .idle, .connecting: true
    case .transientFailure: waits
    case .ready, .shutdown: false
    }
  }
}
