/// One pass over the addresses of a name ("Happy Eyeballs", RFC 8305 section 5; gRFC A61). The next attempt
/// to connect begins a short time after the last one began, or at once when that one has failed. Attempts run
/// in parallel, and the first connection that succeeds is used. No I/O, no clock.
///
/// ```
/// begin --> connect(0) --delay or failure--> connect(1) ... --every one has failed--> exhausted
/// ```
public struct ConnectPass: Equatable {
  /// The time between the beginnings of two attempts, in nanoseconds ("Connection Attempt Delay").
  public static let delay: UInt64 = 250_000_000

  /// The indices of the addresses that were not tried in this pass yet, the next one last.
  private var untried: [Int] = []
  private var hasFailed: [Bool]
  private var missing: Int

  /// Begins a pass over endpoints in these states. Only endpoints that are idle are tried; an endpoint in
  /// TRANSIENT_FAILURE counts as failed.
  public init(_ states: [Connectivity]) {
    hasFailed = []
    missing = states.count
    for index in states.indices.reversed() where states[index] == .idle { untried.append(index) }
    for state in states {
      let failed = state == .transientFailure
      hasFailed.append(failed)
      if failed { missing -= 1 }
    }
  }

  public var count: Int { hasFailed.count }
  /// Whether each address has failed at least once.
  public var isExhausted: Bool { missing == 0 }
  /// Whether an address is left that was not tried in this pass.
  public var hasMore: Bool { !untried.isEmpty }

  /// The index of the address to be tried now; nil: all were tried.
  public mutating func next() -> Int? { untried.popLast() }

  public mutating func failed(_ index: Int) {
    guard index < hasFailed.count, !hasFailed[index] else { return }
    hasFailed[index] = true
    missing -= 1
  }
}
