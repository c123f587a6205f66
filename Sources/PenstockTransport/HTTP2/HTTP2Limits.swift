import CSystem

/// The limits that a client announces and keeps to.
struct HTTP2Limits {
  /// How much of one stream's body may be under way or unread.
  var streamWindow = 1 << 20
  /// Like it for the whole connection, at most (see `ConnectionWindow`); bytes that are unread do not count here (see
  /// `HTTP2Session`).
  var connectionWindow = 4 << 20
  var maxHeaderList = 16384
  /// How many bytes `collect` gathers before the rest waits; of messages that stay where they are twice as many.
  var outputSize = 256 << 10
}

/// The surroundings that a session can read, such as the clock.
class SessionTimes {
  /// Nanoseconds, from any beginning.
  var now: UInt64 { cs_monotonic() }
  /// The round trip in nanoseconds; 0: not known.
  var roundTrip: UInt64 { 0 }
}
