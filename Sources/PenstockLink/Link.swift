import CPenstockSystem
import PenstockCall
import PenstockWire
import PenstockLoop

/// A place among the connections that there may be, which a link takes until it is closed.
open class LinkPlace {
  public init() {}
  /// Called when the link's connection is ready, if it takes part in a race for a connection.
  open func isReady() { mustOverride(()) }
  open func giveBack() { mustOverride(()) }
}

/// The lower half of one connection, which sends and receives bytes and knows nothing of HTTP. It has the
/// socket, the bytes that wait to be sent and, once a connect step has called `put`, the TLS engine. The
/// owner is the connector at first, and later the connection that the connector makes.
public final class Link {
  public let socket: Socket
  public private(set) var engine: TLSEngine?
  /// The bytes that wait to be sent. With TLS they have to become TLS records first.
  public let out: SendQueue
  /// How many bytes the socket has sent, and how many the link's owner has received from it.
  public private(set) var sentBytes: UInt64 = 0
  public var receivedBytes: UInt64 = 0
  /// The link's place; nil: the number of connections has no limit.
  public var place: LinkPlace?
  private let runtime: Runtime
  /// Received bytes that were not used yet. Only a link without TLS uses this buffer.
  private let plain = ByteBuffer()
  private var watchesOutput = false
  private var ignoresInput = false
  /// The events by which the loop tells of input.
  private var inputEvents = CS_EPOLLIN

  /// Makes a link. `copies`: the connection will use TLS, which needs the bytes that it encrypts in one piece
  /// of memory.
  public init(_ socket: Socket, copies: Bool, _ runtime: Runtime) {
    self.socket = socket
    self.runtime = runtime
    out = SendQueue(copies: copies)
    confine(self)
  }

  /// Received bytes that were not used yet. With TLS they are still encrypted.
  public var input: ByteBuffer { engine?.input ?? plain }

  /// Makes the link use TLS from now on. Bytes that were received before become the first input of the
  /// engine. Bytes that still wait to be sent are sent in clear text before the engine's records. False: no
  /// memory.
  public func put(_ engine: TLSEngine) -> Bool {
    guard engine.input.append(plain.view), engine.output.append(out.bytes.view) else { return false }
    plain.removeAll(keepingCapacity: false)
    out.removeAll()
    self.engine = engine
    return true
  }

  // MARK: Sending

  /// Whether all bytes were sent, that is, the kernel has accepted them.
  public var isSent: Bool { out.isEmpty && (engine.map { $0.output.isEmpty } ?? true) }

  /// Whether more bytes of records wait than calls can cause. The excess comes from TLS messages that answer
  /// the peer's own messages. So nothing is received from the peer until it has read some of these bytes.
  public var isClogged: Bool { engine.map { $0.output.count > Limits.waitingRecordBytes } ?? false }

  /// Makes TLS records of the next bytes of `out`, at most `most` bytes. False: TLS has failed.
  public func makeRecords(_ engine: TLSEngine, _ most: Int) -> Bool {
    let part = min(out.bytes.count, most)
    guard part == 0 || engine.write(ByteView(rebasing: out.bytes.view[..<part])) else { return false }
    out.consume(part)
    return true
  }

  /// Sends the waiting bytes. With TLS, makes records of at most `most` bytes at a time.
  public func send(_ most: Int) -> Socket.Moved {
    guard let engine else {
      let outcome = socket.send(out)
      if case .bytes(let n) = outcome { sentBytes &+= UInt64(n) }
      return outcome
    }
    while true {
      let outcome = socket.send(engine.output.view)
      guard case .bytes(let n) = outcome else { return outcome }
      engine.output.consume(n)
      sentBytes &+= UInt64(n)
      if !engine.output.isEmpty || out.isEmpty || !makeRecords(engine, most) { return outcome }
    }
  }

  /// Tries once to send the waiting bytes. The bytes that the kernel does not accept stay in the link.
  public func flush() {
    if !isSent { _ = send(.max) }
  }

  /// Sets whether the loop reports that the socket can take more bytes. If the link is clogged, the loop does
  /// not report bytes to read.
  public func watchOutput(_ on: Bool) {
    watch(input: !on || !isClogged, output: on)
  }

  /// Makes the loop tell, or not, when there are bytes to receive, and when there is room to send.
  public func watch(input: Bool, output: Bool) {
    guard output != watchesOutput || input == ignoresInput else { return }
    watchesOutput = output
    ignoresInput = !input
    rewatch()
  }

  private func rewatch() {
    runtime.rewatch(
      socket.descriptor, (ignoresInput ? 0 : inputEvents) | (watchesOutput ? CS_EPOLLOUT : 0))
  }

  /// Makes the loop tell `handler` of the descriptor's events from here on, and of the peer's end with the bytes before
  /// it.
  public func hand(to handler: any ReadyHandler) {
    runtime.hand(socket.descriptor, to: handler)
    inputEvents = CS_EPOLLIN | CS_EPOLLRDHUP
    rewatch()
  }

  /// Makes the loop tell nothing: an end of the connection can't be left out of the events.
  public func unwatch() { runtime.unwatch(socket.descriptor) }

  // MARK: The end

  public func close() {
    runtime.unwatch(socket.descriptor)
    // A forked child may have a copy of the descriptor, so closing it here would not end the connection.
    socket.shutdown()
    socket.close()
    out.removeAll()
    place.take()?.giveBack()
  }

  /// The error text for a connection that failed with the errno `code`. `during`: the step in which it
  /// failed, such as " during the TLS handshake".
  public static func lost(_ code: Int32, _ during: StaticString) -> ByteBuffer {
    let text = ByteBuffer().say("the connection failed").say(during).say(": ").say(errno: code)
    // These two errors occur only if the descriptor no longer belongs to this socket.
    if code == EBADF || code == ENOTSOCK { text.say(": something in the program closed its descriptors") }
    return text
  }

  public static func ended(_ during: StaticString) -> ByteBuffer {
    ByteBuffer().say("connection closed by peer").say(during)
  }
}
