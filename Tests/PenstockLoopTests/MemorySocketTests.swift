import PenstockWire
import Testing

@testable import PenstockLoop

/// A socket whose bytes the host program carries.
@Suite struct MemorySocketTests {
  private func queue(_ bytes: UnsafeRawBufferPointer) -> SendQueue {
    let queue = SendQueue(copies: true)
    #expect(queue.append(bytes))
    return queue
  }

  /// As many bytes are taken as have room, and none when there is no room; nothing to send is no obstacle.
  @Test(arguments: [false, true])
  func sends(_ fromQueue: Bool) {
    let socket = MemorySocket()
    let bytes = (0..<MemorySocket.room + 9).map { UInt8($0 % 251) }
    func send(_ part: Range<Int>) -> Socket.Moved {
      bytes.withUnsafeBytes {
        let view = ByteView(rebasing: $0[part])
        return fromQueue ? socket.send(queue(view)) : socket.send(view)
      }
    }
    #expect(send(0..<0) == .bytes(0) && send(0..<4) == .bytes(4))
    #expect(send(4..<bytes.count) == .bytes(MemorySocket.room - 4))
    #expect(send(MemorySocket.room..<bytes.count) == .wouldBlock && send(0..<0) == .bytes(0))
    #expect(Array(socket.sent.view) == Array(bytes[..<MemorySocket.room]))
    socket.sent.consume(5)
    #expect(send(MemorySocket.room..<bytes.count) == .bytes(5) && send(0..<1) == .wouldBlock)
    #expect(Array(socket.sent.view) == Array(bytes[5..<MemorySocket.room + 5]))
  }

  @Test func receives() {
    let socket = MemorySocket()
    var space = [UInt8](repeating: 0, count: 4)
    func receive() -> Socket.Moved { space.withUnsafeMutableBytes { socket.receive(into: $0) } }
    #expect(receive() == .wouldBlock && socket.isQuiet)
    let five: [UInt8] = [1, 2, 3, 4, 5]
    #expect(five.withUnsafeBytes { socket.arrived.append($0) })
    #expect(!socket.isQuiet && receive() == .bytes(4) && space == [1, 2, 3, 4])
    socket.hasEnded = true
    #expect(receive() == .bytes(1) && space == [5, 2, 3, 4])
    #expect(receive() == .end && !socket.isQuiet)
  }
}
