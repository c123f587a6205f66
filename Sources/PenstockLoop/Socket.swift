import CPenstockSystem
import PenstockNames
import PenstockWire

/// The socket of a connection. It owns the descriptor. Only this class makes, reads, writes and closes
/// sockets.
public class Socket {
  public private(set) final var descriptor: Int32

  public enum Opened {
    /// A socket. With `connecting` the caller waits until the socket is writable, and then checks
    /// `connectError`.
    case socket(Socket, connecting: Bool)
    /// The errno of the failure.
    case failed(Int32)
    /// The reason in words why the settings can't hold.
    case refused(ByteBuffer)
  }

  public enum Moved: Equatable {
    case bytes(Int)
    /// The socket's send buffer is full, or no received bytes are waiting.
    case wouldBlock
    /// The peer has closed its side, and sends no more bytes.
    case end
    case failed(Int32)
  }

  private final let identity: UInt64

  public init(_ descriptor: Int32) {
    self.descriptor = descriptor
    identity = cs_socket_identity(descriptor)
  }

  /// Takes over a descriptor of the program, of which `fault` knows no fault.
  public convenience init(connected descriptor: Int32) {
    self.init(descriptor)
    cs_close_on_exec(descriptor)
    if localAddress?.isUnix == false { _ = cs_no_delay(descriptor) }
  }

  /// The reason in words why `descriptor` is no connected stream socket; nil: it is one.
  public static func fault(of descriptor: Int32) -> ByteBuffer? {
    let words: StaticString
    switch cs_stream_fault(descriptor) {
    case 0: return nil
    case EBADF: words = " is not open"
    case ENOTSOCK: words = " is not a socket"
    case EPROTOTYPE: words = " is not a stream socket"
    case ENOTCONN: words = " is a socket that is not connected"
    case let code: return ByteBuffer().say("descriptor ").say(Int(descriptor)).say(": ").say(errno: code)
    }
    return ByteBuffer().say("descriptor ").say(Int(descriptor)).say(words)
  }

  /// Whether the descriptor still belongs to this socket. False: other code in the program has closed the
  /// descriptor, and its number may belong to another file by now.
  private final var isOurs: Bool { descriptor >= 0 && cs_socket_identity(descriptor) == identity }

  deinit { close() }

  public static func connect(to address: SocketAddress, _ settings: SocketSettings = SocketSettings())
    -> Opened
  {
    let descriptor = cs_stream_socket(address.family)
    if descriptor < 0 { return .failed(-descriptor) }
    let socket = Socket(descriptor)
    // The kernel need not collect small writes (TCP_NODELAY), because the library collects frames itself.
    if !address.isUnix { _ = cs_no_delay(descriptor) }
    if let words = settings.apply(to: descriptor, for: address) { return .refused(words) }
    let code = address.withRaw { cs_connect(descriptor, $0, $1) }
    if code == 0 { return .socket(socket, connecting: false) }
    if code == -EINPROGRESS || code == -EINTR { return .socket(socket, connecting: true) }
    return .failed(-code)
  }

  /// The errno with which the connect has failed; 0: it has succeeded. Valid once the socket is writable.
  public var connectError: Int32 { cs_socket_error(descriptor) }

  /// The round-trip time in nanoseconds; 0: not known.
  public var roundTrip: UInt64 { UInt64(cs_round_trip(descriptor)) * 1000 }

  /// Makes the kernel end the connection if sent bytes are not acknowledged within `time`, in nanoseconds (gRFC A18).
  public func limitUnacknowledged(_ time: UInt64) {
    _ = cs_user_timeout(descriptor, Int32(clamping: max(time / 1_000_000, 1)))
  }

  /// Makes the kernel look whether the peer is still there when the connection has been silent for `idle` nanoseconds,
  /// and end the connection if there is no answer within `timeout`.
  public func keepAlive(idle: UInt64, timeout: UInt64) {
    cs_keep_alive(
      descriptor, Int32(clamping: max(idle / 1_000_000_000, 1)),
      Int32(clamping: max(timeout / 1_000_000_000, 1)))
  }

  /// Whether nothing has come, and the peer has not ended the connection.
  public var isQuiet: Bool { cs_peek(descriptor) == -Int64(EAGAIN) }

  public var localAddress: SocketAddress? {
    var storage = sockaddr_storage()
    var length = UInt32(MemoryLayout<sockaddr_storage>.size)
    guard cs_local_name(descriptor, &storage, &length) == 0 else { return nil }
    return SocketAddress(&storage, length: length)
  }

  public func receive(into space: UnsafeMutableRawBufferPointer) -> Moved {
    while true {
      let n = Int(cs_recv(descriptor, space.baseAddress, space.count))
      if n > 0 { return .bytes(n) }
      if n == 0 { return .end }
      if n != -Int(EINTR) { return Socket.outcome(n) }
    }
  }

  /// Receives bytes into the `count` spaces of `vectors`, and fills one after the other.
  public func receive(_ vectors: UnsafeMutablePointer<iovec>, _ count: Int) -> Moved {
    while true {
      let n = Int(cs_recvv(descriptor, vectors, count))
      if n > 0 { return .bytes(n) }
      if n == 0 { return .end }
      if n != -Int(EINTR) { return Socket.outcome(n) }
    }
  }

  /// Receives bytes into `space`, and the bytes after them into `rest`.
  public final func receive(
    into space: UnsafeMutableRawBufferPointer, then rest: UnsafeMutableRawBufferPointer
  )
    -> Moved
  {
    withUnsafeTemporaryAllocation(of: iovec.self, capacity: 2) { vectors in
      vectors[0] = iovec(iov_base: space.baseAddress, iov_len: space.count)
      vectors[1] = iovec(iov_base: rest.baseAddress, iov_len: rest.count)
      return vectors.baseAddress.map { receive($0, 2) } ?? .wouldBlock
    }
  }

  public func send(_ bytes: ByteView) -> Moved {
    while true {
      let n = Int(cs_send(descriptor, bytes.baseAddress, bytes.count))
      if n >= 0 { return .bytes(n) }
      if n == -Int(EINTR) { continue }
      return Socket.outcome(n)
    }
  }

  public func send(_ queue: SendQueue) -> Moved {
    while true {
      let n = queue.send(to: descriptor)
      if n >= 0 { return .bytes(n) }
      if n == -Int(EINTR) { continue }
      return Socket.outcome(n)
    }
  }

  private static func outcome(_ n: Int) -> Moved {
    if n == -Int(EAGAIN) { return .wouldBlock }
    return .failed(Int32(truncatingIfNeeded: -n))
  }

  /// Ends the connection for every process that has a copy of the descriptor, such as a forked child.
  public func shutdown() {
    if isOurs { _ = cs_shutdown(descriptor) }
  }

  public func close() {
    if isOurs { cs_close(descriptor) }
    descriptor = -1
  }
}
