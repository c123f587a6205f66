import PenstockLoop

/// The clock of a session, and the round-trip time of its connection.
class SessionTimes {
  /// The time in nanoseconds, counted from an arbitrary start. By default it stands still.
  var now: UInt64 { 0 }
  /// A uniformly distributed random number; always 0 by default.
  var random: UInt64 { 0 }
  /// The round-trip time in nanoseconds; 0, as by default: not known.
  var roundTrip: UInt64 { 0 }
}

/// The clock of the platform, and the round-trip time of a socket.
final class SocketTimes: SessionTimes {
  private let socket: Socket
  private let platform: Platform

  init(_ socket: Socket, _ platform: Platform) {
    self.socket = socket
    self.platform = platform
  }

  override var now: UInt64 { platform.clock() }
  override var random: UInt64 { platform.random() }
  override var roundTrip: UInt64 { socket.roundTrip }
}
