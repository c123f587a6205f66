/// The limits that a client announces to its peer, and those that it observes itself.
public struct HTTP2Limits {
  /// The most bytes of one stream's body that may be on the network or unread.
  public var streamWindow = 1 << 20
  /// The most bytes that may be on the network for the whole connection (see `ConnectionWindow`). Unread
  /// bytes do not count here (see `HTTP2Session`).
  public var connectionWindow = 4 << 20
  /// The size in bytes up to which windows may grow; 0: windows do not grow (see `WindowGrowth`).
  public var mostWindow = 0
  public var maxHeaderList = 16384
  /// The number of bytes that one `collect` gathers; frames beyond it wait. The number is doubled if messages
  /// are not copied.
  var outputSize = 256 << 10

  public init() {}
}

/// The clock of a session, and the round-trip time of its connection.
class SessionTimes {
  /// The time in nanoseconds, counted from an arbitrary start. By default it stands still.
  var now: UInt64 { 0 }
  /// A uniformly distributed random number; always 0 by default.
  var random: UInt64 { 0 }
  /// The round-trip time in nanoseconds; 0, as by default: not known.
  var roundTrip: UInt64 { 0 }
}
