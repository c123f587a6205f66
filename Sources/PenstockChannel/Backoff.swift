/// Decides how long to wait between attempts to connect to one endpoint ("gRPC Connection Backoff Protocol").
/// If an attempt fails, the next one begins at the time that `begin` has returned, or at once if that time
/// has passed. No I/O, no clock, no source of random numbers.
public struct Backoff: Equatable, Sendable {
  /// The settings of a channel; times are in nanoseconds.
  public struct Policy: Equatable, Sendable {
    public var initial: UInt64 = 1_000_000_000
    public var most: UInt64 = 120_000_000_000
    public var multiplier = 1.6
    /// The fraction by which each wait but the first may be longer or shorter.
    public var jitter = 0.2

    public init() {}
  }

  /// How many attempts this back-off has counted; a new back-off begins with 0.
  public private(set) var attempts = 0
  /// The last wait, without its jitter.
  private var wait: UInt64 = 0

  public init() {}

  /// An attempt begins now. Returns the earliest time of the next attempt, if this one fails. `random`: a
  /// random number, uniformly distributed.
  public mutating func begin(_ policy: Policy, now: UInt64, random: UInt64) -> UInt64 {
    attempts &+= 1
    guard attempts > 1 else {
      wait = min(policy.initial, policy.most)
      return Time.after(wait, now)
    }
    wait = Backoff.scale(wait, by: policy.multiplier, most: policy.most)
    // A random number from -1 to 1.
    let deviation = Double(random >> 11) / Double(UInt64(1) << 52) - 1
    return Time.after(Backoff.scale(wait, by: 1 + policy.jitter * deviation, most: .max), now)
  }

  /// Another attempt begins now, beside a connection that an earlier attempt has made: the wait stays as long
  /// as it is.
  public func begin(beside now: UInt64) -> UInt64 { Time.after(wait, now) }

  private static func scale(_ time: UInt64, by factor: Double, most: UInt64) -> UInt64 {
    let scaled = Double(time) * factor
    return scaled < Double(most) ? UInt64(max(scaled, 0)) : most
  }
}

/// Sums of times; a sum that would overflow is the latest time instead.
public enum Time {
  public static func after(_ duration: UInt64, _ now: UInt64) -> UInt64 {
    let (sum, overflow) = now.addingReportingOverflow(duration)
    return overflow ? .max : sum
  }
}
