import CPenstockSystem
import PenstockChannel
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink

/// The listening socket. Each accepted connection becomes a `Doorman`, which finds out the HTTP version, or a
/// `Player` if there is a script.
final class Listener: Source {
  enum Opened {
    case open(Listener)
    case failed(ByteBuffer)
  }

  private let loop: Loop
  private let options: Options
  private let script: Script?
  private let tls: TLSContext?
  private var connections = 0
  /// The address, in the form of a client's target; empty before the socket is bound.
  private let address = ByteBuffer()
  private var port = 0
  private var path: ByteBuffer?
  private let free = CallPool()

  private init(_ loop: Loop, _ options: Options, _ script: Script?, _ tls: TLSContext?) {
    self.loop = loop
    self.options = options
    self.script = script
    self.tls = tls
  }

  static func open(_ loop: Loop, _ options: Options, _ script: Script?) -> Opened {
    var context: TLSContext?
    if options.usesTLS {
      switch makeTLS(options) {
      case .failed(let failure):
        return .failed(Text("TLS: ").put(failure.field).put(": ").put(failure.text.view))
      case .made(let made): context = made
      }
    }
    let listener = Listener(loop, options, script, context)
    if let failure = listener.bind(options.listen) {
      cs_close(listener.fd)
      return .failed(failure)
    }
    return .open(listener)
  }

  private static func makeTLS(_ options: Options) -> Made<TLSContext> {
    var tls = TLSOptions()
    if let path = file(options.certificate) { tls.certificateChain = .file(path) }
    if let path = file(options.key) { tls.privateKey = .file(path) }
    if let path = file(options.clientCA) {
      tls.roots = .file(path)
      tls.requiresClientCertificate = true
    }
    tls.http = options.http
    return TLSContext.make(role: .server, options: tls)
  }

  private static func file(_ path: ByteView?) -> ByteBuffer? { path.flatMap { ByteBuffer(copying: $0) } }

  // MARK: Binding

  private func bind(_ text: ByteView) -> ByteBuffer? {
    var storage = sockaddr_storage()
    var length: UInt32
    if hasPrefix(text, "unix:") {
      let path = part(text, 5, text.count)
      length = cs_address_unix(&storage, path.baseAddress, path.count)
      self.path = ByteBuffer(copying: path)
    } else {
      guard let (host, number) = Listener.hostAndPort(text), let start = host.view.baseAddress else {
        return wrong(text)
      }
      length = cs_address_literal(&storage, start.assumingMemoryBound(to: CChar.self), number)
    }
    if length == 0 { return wrong(text) }
    fd = cs_stream_socket(Int32(storage.ss_family))
    if fd < 0 { return refused("socket", fd) }
    _ = cs_reuse_address(fd)
    var result = cs_bind(fd, &storage, length)
    if result < 0 { return refused("bind", result) }
    result = cs_listen(fd, 4096)
    if result < 0 { return refused("listen", result) }
    guard loop.watch(self, CS_EPOLLIN) else { return refused("epoll", EPERM) }
    if let path {
      address.put("unix:").put(path.view)
      return nil
    }
    length = UInt32(MemoryLayout<sockaddr_storage>.size)
    result = cs_local_name(fd, &storage, &length)
    if result < 0 { return refused("getsockname", result) }
    port = Int(cs_address_port(&storage))
    let isSix = Int32(storage.ss_family) == AF_INET6
    if isSix { address.put("[") }
    withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { space in
      guard let base = space.baseAddress?.assumingMemoryBound(to: CChar.self) else { return }
      cs_address_text(&storage, base, 64)
      address.put(cString(base))
    }
    address.put(isSix ? "]:" : ":").put(port)
    return nil
  }

  private func wrong(_ text: ByteView) -> ByteBuffer {
    Text("not an address to listen on (host:port with a numeric host, or unix:/path): ").put(text)
  }

  private func refused(_ what: StaticString, _ code: Int32) -> ByteBuffer {
    Text(what).put(": ").put(errno: code)
  }

  /// Splits "host:port" into its parts. The host has a NUL at its end.
  private static func hostAndPort(_ text: ByteView) -> (ByteBuffer, UInt16)? {
    guard let colon = text.lastIndex(of: 0x3A),
      let port = decimal(part(text, colon + 1, text.count), limit: 65535)
    else { return nil }
    var host = part(text, 0, colon)
    if host.first == 0x5B, host.last == 0x5D { host = part(host, 1, host.count - 1) }
    let copy = bytesEqual(host, "localhost") ? Text("127.0.0.1") : Text().put(host)
    return copy.append(byte: 0) ? (copy, UInt16(truncatingIfNeeded: port)) : nil
  }

  /// Writes a line of JSON with the address to stdout.
  func announce() {
    let line = Console.out.line
    line.put("{\"address\":").put(json: address.view)
    if path == nil { line.put(",\"port\":").put(port) }
    line.put(",\"tls\":").put(tls == nil ? "false" : "true")
    line.put(",\"mode\":").put(script == nil ? "\"server\"" : "\"script\"")
    line.put(",\"pid\":").put(Int(getpid())).put("}\n")
    Console.out.flush()
  }

  func close() {
    loop.forget(self)
    cs_close(fd)
    fd = -1
    if let path, path.append(byte: 0), let start = path.view.baseAddress {
      _ = unlink(start.assumingMemoryBound(to: CChar.self))
    }
    path = nil
  }

  // MARK: Accepting

  override func ready(_ bits: UInt32) {
    while fd >= 0 {
      let client = cs_accept(fd)
      if client == -EINTR || client == -ECONNABORTED { continue }
      if client < 0 { return }
      if path == nil { _ = cs_no_delay(client) }
      connections += 1
      var engine: TLSEngine?
      if let tls {
        guard let made = TLSEngine.make(tls, host: nil) else {
          cs_close(client)
          continue
        }
        engine = made
      }
      let link = Link(client, engine)
      if let section = script?.section(for: connections), !section.serves {
        Player(loop, link, section, options, number: connections).start()
      } else {
        Doorman(loop, link, options, free, number: connections).start()
      }
    }
  }
}
