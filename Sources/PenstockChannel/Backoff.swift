/// Decides how long to wait between attempts to connect to one endpoint ("gRPC Connection Backoff Protocol").
/// `begin` returns the time at which the next attempt may begin if the present one fails; if that time has
/// passed when it fails, the next one begins at once. No I/O, no clock, no source of random numbers.
public struct Backoff: Equatable, Sendable {
  /// The back-off settings of a channel; times are in nanoseconds.
  public struct Policy: Equatable, Sendable {
    public var initial: UInt64 = 1_000_000_000
    public var most: UInt64 = 120_000_000_000
    public var multiplier = 1.6
    /// The fraction by which each wait may be longer or shorter: clients that a server has lost at the same time
    /// do not come back at the same time.
    public var jitter = 0.2

    public init() {}

    /// The wait that follows `count` shorter ones, in nanoseconds. `random` is a uniformly distributed random number.
    public func wait(_ count: Int, random: UInt64) -> UInt64 {
      var wait = min(initial, most)
      for _ in 0..<count { wait = Backoff.scale(wait, by: multiplier, most: most) }
      return spread(wait, random: random)
    }

    /// `wait`, made longer or shorter by `jitter`.
    func spread(_ wait: UInt64, random: UInt64) -> UInt64 {
      // A number from -1 to 1, made from the random number.
      let deviation = Double(random >> 11) / Double(UInt64(1) << 52) - 1
      return Backoff.scale(wait, by: 1 + jitter * deviation, most: .max)
    }
  }

  /// How many attempts were begun with this back-off.
  public private(set) var attempts = 0
  /// The present wait in nanoseconds, without its jitter.
  private var wait: UInt64 = 0
  /// Whether the first wait is `early` times as short as the policy's, as are those that follow until they reach it.
  private var isEarly = false
  private static let early: UInt64 = 20
  /// The shortest first wait in nanoseconds, unless the policy's is shorter: a server is not back sooner.
  private static let leastEarly: UInt64 = 10_000_000

  public init() {}

  /// The back-off after a connection that was of use. A server that is restarted is back soon, so the waits begin
  /// with a twentieth of the policy's first wait, though with 10 ms at least, and double until they have reached it.
  public static var afterUse: Backoff {
    var made = Backoff()
    made.isEarly = true
    return made
  }

  /// Notes that an attempt begins now. Returns the earliest time of the next attempt, in case this one fails.
  /// `random` is a uniformly distributed random number.
  public mutating func begin(_ policy: Policy, now: UInt64, random: UInt64) -> UInt64 {
    let first = min(policy.initial, policy.most)
    if attempts == 0 {
      wait = isEarly ? max(first / Backoff.early, min(first, Backoff.leastEarly)) : first
    } else if isEarly, wait < first {
      wait = Backoff.scale(wait, by: 2, most: first)
    } else {
      wait = Backoff.scale(wait, by: policy.multiplier, most: policy.most)
    }
    attempts &+= 1
    return begin(beside: now, policy, random: random)
  }

  /// Notes that an attempt begins now, while a connection of an earlier attempt is still in use: the wait
  /// does not become longer. Returns the earliest time of the next attempt.
  public func begin(beside now: UInt64, _ policy: Policy, random: UInt64) -> UInt64 {
    Time.after(policy.spread(wait, random: random), now)
  }

  fileprivate static func scale(_ time: UInt64, by factor: Double, most: UInt64) -> UInt64 {
    let scaled = Double(time) * factor
    return scaled < Double(most) ? UInt64(max(scaled, 0)) : most
  }
}

/// Sums of times; instead of a sum that would overflow, the latest possible time.
public enum Time {
  public static func after(_ duration: UInt64, _ now: UInt64) -> UInt64 {
    let (sum, overflow) = now.addingReportingOverflow(duration)
    return overflow ? .max : sum
  }
}
