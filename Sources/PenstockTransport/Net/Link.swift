import CSystem
import PenstockCall
import PenstockChannel
import PenstockWire

/// The lower half of one connection, which sends and receives bytes and knows nothing of HTTP: the socket,
/// the TLS engine once a connect step has set it (`put`), and the bytes that wait to be sent. A connector
/// owns the link first, then the connection that the connector makes.
final class Link {
  let socket: Socket
  private(set) var engine: TLSEngine?
  /// The bytes to be sent or, with TLS, to become records.
  let out: SendQueue
  private let runtime: Runtime
  /// Received bytes that were not used yet, as long as the link has no TLS.
  private let plain = ByteBuffer()
  private var watchesOutput = false
  private var ignoresInput = false

  /// Makes a link. `copies`: the connection will use TLS, which needs the bytes to send in one piece.
  init(_ socket: Socket, copies: Bool, _ runtime: Runtime) {
    self.socket = socket
    self.runtime = runtime
    out = SendQueue(copies: copies)
    confine(self)
  }

  /// Received bytes that were not used yet; with TLS they have to be decrypted.
  var input: ByteBuffer { engine?.input ?? plain }

  /// Makes the link use TLS from now on. Bytes that have already come become the engine's first input; bytes
  /// that still wait to be sent leave before the engine's records. False: no memory.
  @inline(never) @_optimize(size)
  func put(_ engine: TLSEngine) -> Bool {
    guard engine.input.append(plain.view), engine.output.append(out.bytes.view) else { return false }
    plain.removeAll(keepingCapacity: false)
    out.removeAll()
    self.engine = engine
    return true
  }

  // MARK: Sending

  /// Whether nothing waits to be sent: the kernel has taken all bytes.
  var isSent: Bool { out.isEmpty && (engine.map { $0.output.isEmpty } ?? true) }

  /// Whether more bytes of records wait than calls can cause. TLS itself has then written the excess, in
  /// answer to the peer; so the peer has to read before more is read from it.
  var isClogged: Bool { engine.map { $0.output.count > Limits.waitingRecordBytes } ?? false }

  /// Makes TLS records of the next bytes of `out`, at most `most` of them. False: TLS has failed.
  func makeRecords(_ engine: TLSEngine, _ most: Int) -> Bool {
    let part = min(out.bytes.count, most)
    guard part == 0 || engine.write(ByteView(rebasing: out.bytes.view[..<part])) else { return false }
    out.consume(part)
    return true
  }

  /// Sends the waiting bytes; with TLS, records of at most `most` bytes at once.
  func send(_ most: Int) -> Socket.Moved {
    guard let engine else { return socket.send(out) }
    while true {
      let outcome = socket.send(engine.output.view)
      guard case .bytes(let n) = outcome else { return outcome }
      engine.output.consume(n)
      if !engine.output.isEmpty || out.isEmpty || !makeRecords(engine, most) { return outcome }
    }
  }

  /// Sends the waiting bytes once, as far as the kernel takes them.
  @inline(never) @_optimize(size)
  func flush() {
    if !isSent { _ = send(.max) }
  }

  /// Sets whether the loop reports room to send. While the link is clogged, the loop reports no bytes to
  /// read.
  func watchOutput(_ on: Bool) {
    let isClogged = on && isClogged
    guard on != watchesOutput || isClogged != ignoresInput else { return }
    watchesOutput = on
    ignoresInput = isClogged
    runtime.rewatch(socket.descriptor, (isClogged ? 0 : CS_EPOLLIN) | (on ? CS_EPOLLOUT : 0))
  }

  // MARK: The end

  @inline(never) @_optimize(size)
  func close() {
    runtime.unwatch(socket.descriptor)
    // A forked child may have the descriptor too, so only a shutdown ends the connection.
    socket.shutdown()
    socket.close()
    out.removeAll()
  }

  /// The text about a connection that failed with the errno `code`. `during`: the step under way, such as " during
  /// the TLS handshake".
  @inline(never) @_optimize(size)
  static func lost(_ code: Int32, _ during: StaticString) -> ByteBuffer {
    let text = ByteBuffer().say("the connection failed").say(during).say(": ").say(errno: code)
    // These two errors come only if the descriptor is not this socket any more.
    if code == EBADF || code == ENOTSOCK { text.say(": something in the program closed its descriptors") }
    return text
  }

  @inline(never) @_optimize(size)
  static func ended(_ during: StaticString) -> ByteBuffer {
    ByteBuffer().say("connection closed by peer").say(during)
  }
}
