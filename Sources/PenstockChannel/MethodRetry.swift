import PenstockCall
import PenstockWire

/// The retry policy of a method (gRFC A6, "Retry Policy"): after which statuses a request is sent again, how often, and
/// after which waits. No I/O, no clock, no source of random numbers.
public struct MethodRetry: Equatable, Sendable {
  /// The most attempts of a call that a policy may ask for, with the first one (gRFC A6, "Maximum Number of Retries").
  public static let mostAttempts = 5

  /// The most attempts, with the first one.
  public var attempts = 2
  public var backoff = Backoff.Policy()
  public var codes = StatusCodes()

  public init() {}

  /// How long to wait, in nanoseconds, before a request that has ended with `code` is sent again; nil: it is not sent
  /// again. `count` is what has come before, and then includes the further attempt.
  ///
  /// | the server's push-back | the wait | the wait after the next failure |
  /// |---|---|---|
  /// | none | as the back-off has it | the next longer one |
  /// | a time | that time | the back-off's first |
  /// | "don't", or not to be understood | the request is not sent again | |
  public func wait(
    after code: StatusCode, _ pushback: Pushback, _ count: inout RetryCount, random: UInt64
  ) -> UInt64? {
    guard codes.contains(code), Int(count.previous) + 1 < attempts else { return nil }
    let wait: UInt64
    switch pushback {
    case .none:
      wait = backoff.wait(Int(count.sincePushback), random: random)
      count.sincePushback += 1
    case .after(let time):
      wait = time
      count.sincePushback = 0
    case .never: return nil
    }
    count.previous += 1
    return wait
  }
}

/// Holds retries back while most requests to a server fail (gRFC A6, "Throttling Retry Attempts and Hedged RPCs"). It has
/// `most` tokens at first; a failure takes one, a success brings a part of one back, and with half of them or fewer no
/// request is sent again. Numbers are in thousandths of a token.
public struct RetryThrottle: Equatable, Sendable {
  public struct Settings: Equatable, Sendable {
    public var most = 0
    public var ratio = 0

    public init() {}
  }

  public private(set) var settings: Settings
  public private(set) var tokens: Int

  public init(_ settings: Settings) {
    self.settings = settings
    tokens = settings.most
  }

  public var allowsRetries: Bool { tokens > settings.most / 2 }

  public mutating func succeeded() { tokens = min(tokens + settings.ratio, settings.most) }
  public mutating func failed() { tokens = max(tokens - 1000, 0) }

  /// Takes new settings over. The part of the tokens that is left stays the same.
  public mutating func become(_ fresh: Settings) {
    tokens = tokens * fresh.most / max(settings.most, 1)
    settings = fresh
  }
}
