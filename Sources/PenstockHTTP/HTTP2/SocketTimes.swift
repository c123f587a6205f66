import PenstockLoop

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
