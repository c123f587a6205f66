import CSystem

/// The limits that a client announces and keeps to.
struct HTTP2Limits {
  /// How many bytes of one stream's body may be under way or unread.
  var streamWindow = 1 << 20
  /// How many bytes may be under way on the whole connection, at most (see `ConnectionWindow`); unread bytes do not
  /// count here (see `HTTP2Session`).
  var connectionWindow = 4 << 20
  /// How large windows may grow; 0: not at all (see `WindowGrowth`).
  var mostWindow = 0
  var maxHeaderList = 16384
  /// How many bytes `collect` gathers before the rest has to wait; twice as many if messages are not copied.
  var outputSize = 256 << 10
}

/// The clock of a session, and the round-trip time of its connection.
class SessionTimes {
  /// The time in nanoseconds, counted from an arbitrary start.
  var now: UInt64 { cs_monotonic() }
  /// The round-trip time in nanoseconds; 0: not known.
  var roundTrip: UInt64 { 0 }
}
