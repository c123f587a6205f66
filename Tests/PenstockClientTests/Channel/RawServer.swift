import PenstockTestSupport
import Glibc
import PenstockWire

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// A peer that follows a script exactly. The first connection runs the first script, and so on; the last
/// script also serves all later connections. The peer sends bytes and frames on a thread of its own.
final class RawServer: @unchecked Sendable {
  typealias Script = @Sendable (Peer) -> Void

  let port: UInt16
  private let listener: Int32
  private let scripts: [Script]
  private let tls: TLSContext?
  private var thread = pthread_t()
  private let lock = Lock()
  private var accepted = 0
  private var problems: [String] = []

  var target: String { "127.0.0.1:\(port)" }
  /// The number of connections that the server has accepted.
  var connections: Int { lock.withLock { accepted } }
  /// The texts of all expectations in scripts that have failed.
  var complaints: [String] { lock.withLock { problems } }

  init(tls: TLSContext? = nil, _ scripts: Script...) {
    self.tls = tls
    self.scripts = scripts
    listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let listener = self.listener
    withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { raw in
        precondition(bind(listener, raw, size) == 0 && listen(listener, 16) == 0)
        precondition(getsockname(listener, raw, &size) == 0)
      }
    }
    port = UInt16(bigEndian: address.sin_port)
    let me = Unmanaged.passRetained(self).toOpaque()
    pthread_create(
      &thread, nil,
      { argument in
        Unmanaged<RawServer>.fromOpaque(argument!).takeRetainedValue().run()
        return nil
      }, me)
  }

  /// Stops accepting connections. Scripts that are running continue until their connection ends.
  func stop() {
    shutdown(listener, Int32(SHUT_RDWR))
    pthread_join(thread, nil)
    close(listener)
  }

  private func run() {
    while true {
      let descriptor = accept(listener, nil, nil)
      if descriptor < 0 { return }
      let index = lock.withLock { () -> Int in
        accepted += 1
        return accepted - 1
      }
      let job = Job(Peer(descriptor, tls, self), scripts[min(index, scripts.count - 1)])
      var thread = pthread_t()
      pthread_create(
        &thread, nil,
        { argument in
          let job = Unmanaged<Job>.fromOpaque(argument!).takeRetainedValue()
          job.script(job.peer)
          job.peer.close()
          return nil
        }, Unmanaged.passRetained(job).toOpaque())
      pthread_detach(thread)
    }
  }

  private final class Job {
    let peer: Peer
    let script: Script
    init(_ peer: Peer, _ script: @escaping Script) {
      self.peer = peer
      self.script = script
    }
  }

  func complain(_ words: String) { lock.withLock { problems.append(words) } }
}

/// The server's end of one connection of a `RawServer`. Its functions block.
final class Peer: @unchecked Sendable {
  private var descriptor: Int32
  private let engine: TLSEngine?
  private let server: RawServer
  private var input: [UInt8] = []
  private var isShaken = false

  init(_ descriptor: Int32, _ tls: TLSContext?, _ server: RawServer) {
    self.descriptor = descriptor
    self.server = server
    engine = tls.flatMap { TLSEngine.make($0, host: nil) }
  }

  func close() {
    if descriptor >= 0 { Glibc.close(descriptor) }
    descriptor = -1
  }

  /// Ends the connection at once. Later actions of the script have no effect.
  func shutdown() { Glibc.shutdown(descriptor, Int32(SHUT_RDWR)) }

  /// Ends the connection now, by a reset.
  func reset() {
    var linger = Glibc.linger(l_onoff: 1, l_linger: 0)
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<Glibc.linger>.size))
    close()
  }

  func send(_ bytes: [UInt8]) {
    if let engine {
      if !shake() { return }
      _ = bytes.withUnsafeBytes { engine.write($0) }
      flush(engine)
    } else {
      raw(bytes)
    }
  }

  func send(_ text: String) { send(Array(text.utf8)) }
  func send(_ frames: Frame...) { send(frames.flatMap { $0.encoded }) }

  /// Sends a text without TLS, before the handshake.
  func sendPlain(_ text: String) { raw(Array(text.utf8)) }

  /// Reads one line without TLS, before the handshake, and no byte after the line. Returns the line without
  /// its end; nil: the connection ended before the end of the line.
  func readPlainLine() -> String? {
    var line: [UInt8] = []
    var byte: UInt8 = 0
    while recv(descriptor, &byte, 1, 0) == 1 {
      if byte == 0x0A { return String(decoding: line, as: UTF8.self) }
      line.append(byte)
    }
    return nil
  }

  private func raw(_ bytes: [UInt8]) {
    var rest = bytes[...]
    while !rest.isEmpty {
      let n = rest.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
      if n <= 0 { return }
      rest = rest.dropFirst(n)
    }
  }

  private func flush(_ engine: TLSEngine) {
    raw([UInt8](engine.output.view))
    engine.output.consume(engine.output.count)
  }

  private func shake() -> Bool {
    guard let engine else { return true }
    while !isShaken {
      let progress = engine.handshake()
      flush(engine)
      if progress == .done { isShaken = true }
      if progress == .failed { return false }
      if progress == .needsMore, !receive() { return false }
    }
    return true
  }

  /// Receives bytes, and waits for them if necessary. False: the connection has ended.
  private func receive() -> Bool {
    var place = [UInt8](repeating: 0, count: 65536)
    let n = place.withUnsafeMutableBytes { recv(descriptor, $0.baseAddress, $0.count, 0) }
    if n <= 0 { return false }
    if let engine {
      _ = place.withUnsafeBytes { engine.input.append(ByteView(rebasing: $0[..<n])) }
      if !isShaken { return true }
      drain(engine)
    } else {
      input += place[..<n]
    }
    return true
  }

  private func drain(_ engine: TLSEngine) {
    var place = [UInt8](repeating: 0, count: 65536)
    while case .bytes(let n) = place.withUnsafeMutableBytes({ engine.read(into: $0) }) {
      input += place[..<n]
    }
  }

  /// Reads `count` bytes. nil: the connection ended before that.
  func read(_ count: Int) -> [UInt8]? {
    if !shake() { return nil }
    if let engine { drain(engine) }
    while input.count < count {
      if !receive() { return nil }
    }
    let bytes = Array(input[..<count])
    input.removeFirst(count)
    return bytes
  }

  func readFrame() -> Frame? {
    guard let head = read(9) else { return nil }
    let size = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
    guard let payload = read(size) else { return nil }
    let id = head[5...].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
    return Frame(type: head[3], flags: head[4], stream: Int32(bitPattern: id), payload: payload)
  }

  /// Returns the next frame of `type`. Skips all frames before it, and acknowledges SETTINGS among them.
  func frame(_ type: UInt8) -> Frame? {
    while let frame = readFrame() {
      if frame.type == 4, frame.flags == 0 { send(.settingsAck) }
      if frame.type == type { return frame }
    }
    server.complain("no frame of type \(type) came")
    return nil
  }

  /// Reads the client's preface, and sends the server's SETTINGS.
  func begin(_ settings: [(UInt16, UInt32)] = []) {
    guard read(24) == Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8) else {
      server.complain("no preface")
      return shutdown()
    }
    send(.settings(settings))
  }

  /// Waits for the next request, and returns the number of its stream.
  func request() -> Int32 { frame(1)?.stream ?? -1 }

  /// Whether the kernel's buffers are full, because the client does not read.
  var isFull: Bool {
    var one = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
    return poll(&one, 1, 0) == 0
  }

  /// Waits until `count` bytes can be read.
  func waitForUnread(_ count: Int32) {
    var size = count
    setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &size, socklen_t(MemoryLayout<Int32>.size))
    var one = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    _ = poll(&one, 1, -1)
    size = 1
    setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &size, socklen_t(MemoryLayout<Int32>.size))
  }

  /// Waits until the client closes the connection.
  func waitForEnd() {
    while readFrame() != nil {}
  }

  func expect(_ condition: Bool, _ words: String) {
    if !condition { server.complain(words) }
  }
}
