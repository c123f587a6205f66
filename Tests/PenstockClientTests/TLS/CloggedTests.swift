import CPenstockSystem
import Glibc
import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockTestSupport
import PenstockTestCertificates
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// A server causes the client to send TLS messages while the socket is full, so these messages wait. If more
/// than 256 KiB wait, the client must stop reading from the server until the server reads.
@Suite(.timeLimit(.minutes(15))) struct CloggedTests {
  /// A TLS server that the test's thread runs. It reads only when the test calls `read`.
  final class Server {
    private let listener: Int32
    private var descriptor: Int32 = -1
    let engine: TLSEngine
    private(set) var isShaken = false
    /// The decrypted bytes that were received, and the number of all received bytes.
    private(set) var input: [UInt8] = []
    private(set) var received = 0
    let name = "penstock-clogged-\(getpid())-\(Platform.systemClock())"

    init(_ engine: TLSEngine) {
      self.engine = engine
      listener = cs_stream_socket(AF_UNIX)
      var address = sockaddr_un()
      address.sun_family = sa_family_t(AF_UNIX)
      withUnsafeMutableBytes(of: &address.sun_path) { $0.dropFirst().copyBytes(from: name.utf8) }
      let size = socklen_t(MemoryLayout<sa_family_t>.size + 1 + name.utf8.count)
      let bound = withUnsafeBytes(of: &address) {
        bind(listener, $0.baseAddress!.assumingMemoryBound(to: sockaddr.self), size)
      }
      precondition(bound == 0 && listen(listener, 1) == 0)
    }

    deinit {
      close(descriptor)
      close(listener)
    }

    func accept() { descriptor = Glibc.accept(listener, nil, nil) }

    func say(_ frames: Frame...) {
      let bytes = frames.flatMap { $0.encoded }
      #expect(bytes.withUnsafeBytes { engine.write($0) })
    }

    /// Writes as many bytes as the socket accepts. False: some bytes are left.
    func write() -> Bool {
      while !engine.output.isEmpty {
        let view = engine.output.view
        let n = send(descriptor, view.baseAddress, view.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
        if n <= 0 { return false }
        engine.output.consume(n)
      }
      return true
    }

    /// Reads all that has arrived.
    func read() {
      var place = [UInt8](repeating: 0, count: 65536)
      while true {
        let n = recv(descriptor, &place, place.count, Int32(MSG_DONTWAIT))
        if n <= 0 { break }
        received += n
        _ = place.withUnsafeBytes { engine.input.append(ByteView(rebasing: $0[..<n])) }
        if !isShaken { isShaken = engine.handshake() == .done }
        while isShaken, case .bytes(let n) = place.withUnsafeMutableBytes({ engine.read(into: $0) }) {
          input += place[..<n]
        }
      }
    }

    /// Removes and returns the next whole frame of the received bytes; nil: there is none.
    func next() -> Frame? {
      if input.starts(with: Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)) { input.removeFirst(24) }
      guard input.count >= 9 else { return nil }
      let size = Int(input[0]) << 16 | Int(input[1]) << 8 | Int(input[2])
      guard input.count >= 9 + size else { return nil }
      let frame = Frame(
        type: input[3], flags: input[4], stream: Int32(input[8]), payload: Array(input[9..<(9 + size)]))
      input.removeFirst(9 + size)
      return frame
    }
  }

  @Test func whoDoesNotReadIsNotReadEither() throws {
    let context = try #require(serverTLS())
    let server = Server(try #require(TLSEngine.make(context, host: nil)))
    let client = try #require(
      TestClient("unix-abstract:" + server.name, mode: .host) { $0.tls = Certificates.shared.client() })
    let told = Told()
    // The call is not bidi, because with bidi calls the connection's window would be too narrow for so many
    // messages.
    let call = client.make("/a.B/C", .serverStream, told: told)
    call.open()
    #expect(call.demand(1 << 40) == .ok)
    client.settle()
    server.accept()
    var id: Int32?
    var hasBegun = false
    while id == nil, told.code == nil {
      server.read()
      if server.isShaken, !hasBegun {
        server.say(.settings([(4, 0x7FFF_FFFF)]), .windowUpdate(0, 0x7000_0000))
        hasBegun = true
      }
      _ = server.write()
      client.settle()
      while let frame = server.next() {
        if frame.type == 1 { id = frame.stream }
        if frame.type == 4, frame.flags == 0 { server.say(.settingsAck) }
      }
    }
    let stream = try #require(id)
    server.say(.head(stream))
    #expect(server.write())
    client.settle()

    // The call's upload fills the socket. Less than 256 KiB of TLS messages wait after it.
    let upload = 1 << 20
    #expect(call.trySend(buffer([UInt8](repeating: 1, count: upload))) == .ok)
    client.settle()

    // The server sends key updates, each of which asks for a key update in return. It also sends messages of
    // the call, so that the key updates do not count as an attack.
    var updates = 0
    var messages = 0
    while server.write(), updates < 20_000 {
      for _ in 0..<10 { server.engine.updateKeys() }
      let few = [Frame](repeating: .message(stream, []), count: 300)
      #expect(few.flatMap { $0.encoded }.withUnsafeBytes { server.engine.write($0) })
      messages += few.count
      updates += 10
      _ = server.write()
      client.settle()
    }
    // The client has read until 256 KiB of its answers waited, which are a few thousand answers of 27 bytes.
    // Then it has stopped reading.
    #expect(updates > 4000 && updates < 20_000)
    #expect(told.messages.count < messages && told.code == nil)

    // When the server reads, the upload and the messages continue.
    var got = 0
    while got < upload + 5 || told.messages.count < messages {
      server.read()
      while let frame = server.next() { if frame.type == 0 { got += frame.payload.count } }
      _ = server.write()
      client.settle()
      if told.code != nil { break }
    }
    #expect(got == upload + 5 && told.messages == [Int](repeating: 0, count: messages))
    server.say(.trailers(stream))
    #expect(server.write())
    client.settle()
    #expect(told.code == .ok)
  }
}
