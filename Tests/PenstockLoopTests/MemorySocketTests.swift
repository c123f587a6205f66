import CPenstockSystem
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

  /// Several spaces are filled one after the other, the last one perhaps not to its end.
  @Test func receivesIntoSeveralSpaces() {
    let socket = MemorySocket()
    var (one, two) = ([UInt8](repeating: 0, count: 2), [UInt8](repeating: 0, count: 4))
    func receive() -> Socket.Moved {
      one.withUnsafeMutableBytes { first in
        two.withUnsafeMutableBytes { second in
          var vectors = [
            iovec(iov_base: first.baseAddress, iov_len: 2), iovec(iov_base: second.baseAddress, iov_len: 4),
          ]
          return socket.receive(&vectors, 2)
        }
      }
    }
    #expect(receive() == .wouldBlock)
    let ten: [UInt8] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    #expect(ten.withUnsafeBytes { socket.arrived.append($0) })
    #expect(receive() == .bytes(6) && one == [1, 2] && two == [3, 4, 5, 6])
    #expect(receive() == .bytes(4) && one == [7, 8] && two == [9, 10, 5, 6])
    #expect(receive() == .wouldBlock)
    socket.hasEnded = true
    #expect(receive() == .end)
  }

  private final class Handler: ReadyHandler {
    func ready(_ events: UInt32) {}
  }

  /// The only socket has one handler, and is told of as a descriptor would be.
  @Test func poller() {
    let socket = MemorySocket()
    let poller = MemoryPoller(socket)
    let (first, second) = (Handler(), Handler())
    func event() -> (any ReadyHandler)? { poller.wait(milliseconds: 0) == 1 ? poller.event(0)?.handler : nil }
    poller.hand(-1, to: first)
    #expect(!poller.hasEvents && event() == nil && poller.event(0) == nil && poller.unwatch(-1) == nil)
    #expect(poller.watch(-1, CS_EPOLLIN, first) && !poller.watch(-1, CS_EPOLLOUT, second))
    #expect(!poller.hasEvents && event() == nil)
    #expect(socket.arrived.append(byte: 1) && poller.hasEvents && event() === first)
    #expect(poller.event(0)?.bits == CS_EPOLLIN)
    poller.hand(-1, to: second)
    #expect(event() === second)
    poller.rewatch(-1, CS_EPOLLOUT)
    #expect(event() === second && poller.event(0)?.bits == CS_EPOLLOUT)
    poller.rewatch(-1, CS_EPOLLIN | CS_EPOLLOUT | CS_EPOLLRDHUP)
    socket.hasEnded = true
    #expect(event() === second && poller.event(0)?.bits == CS_EPOLLIN | CS_EPOLLOUT | CS_EPOLLRDHUP)
    socket.arrived.consume(1)
    #expect(event() === second && poller.event(0)?.bits == CS_EPOLLIN | CS_EPOLLOUT | CS_EPOLLRDHUP)
    let full = [UInt8](repeating: 0, count: MemorySocket.room)
    #expect(full.withUnsafeBytes { socket.send($0) } == .bytes(full.count))
    #expect(event() === second && poller.event(0)?.bits == CS_EPOLLIN | CS_EPOLLRDHUP)
    socket.close()
    #expect(!poller.hasEvents && event() == nil && socket.isClosed)
    #expect(poller.unwatchAny() === second && poller.unwatchAny() == nil && !poller.hasEvents)
    #expect(poller.watch(-1, CS_EPOLLIN, first) && poller.unwatch(-1) === first)
  }
}
