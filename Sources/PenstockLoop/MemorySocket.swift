import CPenstockSystem
import PenstockNames
import PenstockWire

/// A socket without a descriptor: the host program carries the bytes between it and the peer, as it likes. A
/// `MemoryPoller` tells the loop of it. Driving thread only.
public final class MemorySocket: Socket {
  /// The bytes from the peer that the connection has not received yet.
  public let arrived = ByteBuffer()
  /// The bytes that the connection has sent, and that the host has not taken yet.
  public let sent = ByteBuffer()
  /// Whether no bytes follow those in `arrived`.
  public var hasEnded = false
  /// Whether the connection has closed the socket.
  public private(set) var isClosed = false

  /// The most bytes that wait for the host.
  public static let room = 256 << 10

  public init() { super.init(-1) }

  /// The events that a descriptor would have.
  var events: UInt32 {
    if isClosed { return 0 }
    return (arrived.isEmpty && !hasEnded ? 0 : CS_EPOLLIN) | (hasEnded ? CS_EPOLLRDHUP : 0)
      | (sent.count < MemorySocket.room ? CS_EPOLLOUT : 0)
  }

  public override var isQuiet: Bool { arrived.isEmpty && !hasEnded }
  public override var localAddress: SocketAddress? { nil }
  public override var roundTrip: UInt64 { 0 }
  public override func limitUnacknowledged(_ time: UInt64) {}
  public override func keepAlive(idle: UInt64, timeout: UInt64) {}

  public override func receive(into space: UnsafeMutableRawBufferPointer) -> Moved {
    if arrived.isEmpty { return hasEnded ? .end : .wouldBlock }
    let part = ByteView(rebasing: arrived.view.prefix(space.count))
    space.copyMemory(from: part)
    arrived.consume(part.count)
    return .bytes(part.count)
  }

  public override func receive(_ vectors: UnsafeMutablePointer<iovec>, _ count: Int) -> Moved {
    if arrived.isEmpty { return hasEnded ? .end : .wouldBlock }
    var total = 0
    for index in 0..<count where !arrived.isEmpty {
      let one = vectors[index]
      let space = UnsafeMutableRawBufferPointer(start: one.iov_base, count: one.iov_len)
      if case .bytes(let n) = receive(into: space) { total += n }
    }
    return .bytes(total)
  }

  public override func send(_ bytes: ByteView) -> Moved {
    let part = ByteView(rebasing: bytes.prefix(MemorySocket.room - min(sent.count, MemorySocket.room)))
    if part.isEmpty, !bytes.isEmpty { return .wouldBlock }
    return sent.append(part) ? .bytes(part.count) : .failed(ENOMEM)
  }

  public override func send(_ queue: SendQueue) -> Moved {
    let room = MemorySocket.room - min(sent.count, MemorySocket.room)
    if room == 0, !queue.isEmpty { return .wouldBlock }
    return queue.move(room, into: sent).map { .bytes($0) } ?? .failed(ENOMEM)
  }

  public override func shutdown() {}
  public override func close() { isClosed = true }
}

/// The poller of a loop whose only socket is in memory. It has no descriptor, so it never waits, and no other thread can
/// wake it.
public final class MemoryPoller: Poller {
  private let socket: MemorySocket
  private var handler: (any ReadyHandler)?
  private var wanted: UInt32 = 0
  private var found: UInt32 = 0

  public init(_ socket: MemorySocket) {
    self.socket = socket
    super.init()
  }

  /// Whether the next turn has events to dispatch.
  public var hasEvents: Bool { handler != nil && socket.events & wanted != 0 }

  override func watch(_ fd: Int32, _ bits: UInt32, _ handler: any ReadyHandler) -> Bool {
    guard self.handler == nil else { return false }
    self.handler = handler
    wanted = bits
    return true
  }

  override func rewatch(_ fd: Int32, _ bits: UInt32) { wanted = bits }

  override func hand(_ fd: Int32, to handler: any ReadyHandler) {
    if self.handler != nil { self.handler = handler }
  }

  override func unwatch(_ fd: Int32) -> (any ReadyHandler)? { handler.take() }
  override func unwatchAny() -> (any ReadyHandler)? { handler.take() }

  override func wait(milliseconds: Int32) -> Int32 {
    found = handler == nil ? 0 : socket.events & wanted
    return found == 0 ? 0 : 1
  }

  override func event(_ i: Int32) -> (handler: any ReadyHandler, bits: UInt32)? {
    handler.map { ($0, found) }
  }

  /// In a forked child the socket is as much a copy as all memory, and goes on.
  override func renew(host: Bool) {}
}
