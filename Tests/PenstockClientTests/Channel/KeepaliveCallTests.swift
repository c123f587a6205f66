import Glibc
import PenstockCall
import PenstockWire
import PenstockTestSupport
import PenstockTestCertificates
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// A server in a simulated world. It answers PINGs while `answersPings` is true. It answers a call when the
/// test calls `answer`.
private final class PingedServer {
  let world = World()
  var answersPings = true
  var limit: UInt32 = 100
  private(set) var sockets: [SimulatedSocket] = []
  /// The times at which PINGs arrived.
  private(set) var pings: [UInt64] = []
  /// The names of the HEADERS and PING frames that the server has received, in order.
  private(set) var frames: [String] = []
  private(set) var requests: [(socket: SimulatedSocket, stream: Int32)] = []

  init() { world.servers[80] = { [unowned self] said, socket in take(said, socket) } }

  private func take(_ said: [UInt8], _ socket: SimulatedSocket) {
    socket.rest += said
    if !socket.hasBegun {
      guard socket.rest.count >= 24 else { return }
      socket.rest.removeFirst(24)
      socket.hasBegun = true
      socket.answer(Frame.settings([(3, limit)]).encoded)
      sockets.append(socket)
    }
    while socket.rest.count >= 9 {
      let size = socket.rest[..<3].reduce(0) { $0 << 8 | Int($1) }
      guard socket.rest.count >= 9 + size else { return }
      let stream = socket.rest[5..<9].reduce(Int32(0)) { $0 << 8 | Int32($1) }
      let payload = Array(socket.rest[9..<(9 + size)])
      switch (socket.rest[3], socket.rest[4]) {
      case (1, _):
        requests.append((socket, stream))
        frames.append("HEADERS")
      case (6, 0):
        pings.append(world.time)
        frames.append("PING")
        if answersPings { socket.answer(Frame(type: 6, flags: 1, stream: 0, payload: payload).encoded) }
      default: break
      }
      socket.rest.removeFirst(9 + size)
    }
  }

  /// Answers the most recent request.
  func answer() {
    guard let (socket, id) = requests.last else { return }
    socket.answer([Frame.head(id), .message(id, [9]), .trailers(id)].flatMap { $0.encoded })
  }

  func say(_ frame: Frame) { sockets.last?.answer(frame.encoded) }
}

/// Tests of keepalive with a whole client and a server that may stop answering, in simulated time.
@Suite(.timeLimit(.minutes(15))) struct KeepaliveCallTests {
  private let server = PingedServer()
  private var world: World { server.world }

  private static let second = SimulationTests.second

  private func client(every: UInt64? = 10, timeout: UInt64 = 20, withoutCalls: Bool = false) throws
    -> TestClient
  {
    try #require(
      TestClient("ipv4:10.0.0.1:80", mode: .host, platform: world) { runtime in
        var options = ChannelOptions()
        options.tls = nil
        options.keepaliveTime = every.map { $0 * Self.second }
        options.keepaliveTimeout = timeout * Self.second
        options.keepaliveWithoutCalls = withoutCalls
        // Connections without calls stay open.
        options.idleTimeout = 0
        let name = bytes("ipv4:10.0.0.1:80")
        guard case .made(let made) = Channel.make(runtime: runtime, target: name.view, options: options)
        else { return nil }
        return made
      })
  }

  /// Runs the loop until `seconds` of simulated time have passed.
  private func pass(_ seconds: UInt64, _ client: TestClient) {
    let end = world.time + seconds * Self.second
    while world.time < end {
      _ = client.runtime.runtime.poll(timeoutMilliseconds: Int64((end - world.time + 999_999) / 1_000_000))
    }
  }

  /// Begins a call without a deadline, and runs the loop until the server has the request.
  private func begin(_ client: TestClient) -> ClientCall {
    let call = client.make("/a.B/C", .unary) { $0.hasDeadline = false }
    call.open(buffer([1]))
    settle(client)
    return call
  }

  /// Runs the loop for all work that is due now. At most 10 ms of simulated time pass.
  private func settle(_ client: TestClient) {
    for _ in 0..<10 { _ = client.runtime.runtime.poll(timeoutMilliseconds: 1) }
  }

  private func answer(_ call: ClientCall) throws -> Answer { Answer(try #require(call.finish().1)) }

  private func complete(_ client: TestClient) throws {
    let count = server.requests.count
    let call = begin(client)
    #expect(server.requests.count == count + 1)
    server.answer()
    let answer = try answer(call)
    #expect(answer.code == .ok && answer.message == [9])
  }

  @Test func aServerThatFallsSilentIsFound() throws {
    let client = try client()
    try complete(client)
    #expect(server.sockets[0].mostUnacknowledged == 20 * Self.second)
    server.answersPings = false
    let call = begin(client)
    let began = world.time
    pass(29, client)
    #expect(call.ended == nil && server.pings.count == 1)
    pass(2, client)
    #expect(call.ended != nil && server.pings.count == 1)
    let answer = try answer(call)
    #expect(answer.code == .unavailable)
    #expect(
      answer.words
        == "no answer to a keepalive ping from 10.0.0.1:80 within 20000 ms; nothing has come from there for 30000 ms"
    )
    #expect(answer.silent == 30 * Self.second)
    #expect(answer.reply.stats.endedAt - began <= 30 * Self.second)
    // The library must not retry the call by itself, because the server may have processed it.
    #expect(answer.reply.stats.attempts == 1)
    server.answersPings = true
    try complete(client)
    #expect(world.connects == 2)
  }

  @Test func aServerThatAnswersPingsIsKept() throws {
    let client = try client()
    let call = begin(client)
    pass(3600, client)
    #expect(call.ended == nil && server.pings.count >= 355 && server.pings.count <= 360)
    for (one, next) in zip(server.pings, server.pings.dropFirst()) { #expect(next - one >= 10 * Self.second) }
    server.answer()
    #expect(try answer(call).code == .ok)
    #expect(world.connects == 1)
  }

  /// Any received bytes show that the server is alive, so no PING is sent.
  @Test func otherBytesSpareThePings() throws {
    let client = try client()
    let call = begin(client)
    for _ in 0..<100 {
      pass(9, client)
      server.say(.windowUpdate(0, 1))
    }
    #expect(server.pings == [] && call.ended == nil)
    server.answersPings = false
    pass(12, client)
    #expect(server.pings.count == 1)
    // The server does not answer the PING, but sends other bytes, so the connection does not count as dead.
    for _ in 0..<10 {
      pass(9, client)
      server.say(.windowUpdate(0, 1))
    }
    #expect(server.pings.count == 1 && call.ended == nil)
    pass(31, client)
    #expect(try answer(call).code == .unavailable)
  }

  /// Without calls no PING is sent. When a call begins after a long time, the client sends a PING at once,
  /// before the request.
  @Test func noPingsWithoutCalls() throws {
    let client = try client()
    try complete(client)
    pass(3600, client)
    #expect(server.pings == [])
    try complete(client)
    #expect(server.frames == ["HEADERS", "PING", "HEADERS"])
    server.answersPings = false
    pass(3600, client)
    #expect(server.pings.count == 1 && world.connects == 1)
    let before = world.time
    let lost = begin(client)
    #expect(try answer(lost).code == .unavailable)
    #expect(world.time - before <= 21 * Self.second)
  }

  /// A connection dies while it has no calls. The channel detects this, and the next call uses another
  /// connection and succeeds.
  @Test func pingsWithoutCalls() throws {
    let client = try client(withoutCalls: true)
    try complete(client)
    pass(101, client)
    #expect(server.pings.count == 10)
    server.answersPings = false
    pass(31, client)
    server.answersPings = true
    try complete(client)
    #expect(world.connects == 2)
  }

  @Test func offByDefault() throws {
    let client = try client(every: nil)
    let call = begin(client)
    pass(7200, client)
    #expect(server.pings == [] && call.ended == nil && server.sockets[0].mostUnacknowledged == nil)
    // A snapshot of the call shows how long the connection has been silent.
    let view = try #require(call.view(within: 0))
    let silence = world.time - (try #require(view.connection)).heardAt.value
    #expect(silence >= 7199 * Self.second && silence <= 7201 * Self.second)
    server.answer()
    let answer = try answer(call)
    #expect(answer.code == .ok)
    #expect(answer.silent < Self.second)
  }

  /// After a GOAWAY with "too_many_pings" the channel doubles its keepalive time, also for its later
  /// connections.
  @Test func tooManyPings() throws {
    let client = try client()
    for (round, words) in ["too_many_pings", "too_many_pings", "too many pings"].enumerated() {
      let call = begin(client)
      let count = server.pings.count
      let expected: UInt64 = [10, 20, 40][round]
      pass(expected - 1, client)
      #expect(server.pings.count == count)
      pass(2, client)
      #expect(server.pings.count == count + 1)
      server.say(.goAway(server.requests.last!.stream, 11, words))
      server.sockets.last!.end()
      let answer = try answer(call)
      #expect(answer.code == .unavailable)
      #expect(
        answer.words
          == "connection closed by peer, after the server sent GOAWAY (ENHANCE_YOUR_CALM: \(words))")
    }
    let call = begin(client)
    let count = server.pings.count
    pass(39, client)
    #expect(server.pings.count == count)
    pass(2, client)
    #expect(server.pings.count == count + 1)
    server.answer()
    #expect(try answer(call).code == .ok)
    #expect(world.connects == 4)
  }

  /// A draining connection is still pinged while it has calls.
  @Test func aDrainingConnectionDies() throws {
    let client = try client()
    let old = begin(client)
    server.say(.goAway(Int32.max))
    settle(client)
    let new = begin(client)
    #expect(world.connects == 2)
    server.answersPings = false
    pass(31, client)
    #expect(try answer(old).code == .unavailable)
    #expect(try answer(new).code == .unavailable)
    #expect(server.pings.count == 2)
  }

  /// A call that waits for a free stream was not sent. When the connection dies, the call uses another
  /// connection.
  @Test func aCallThatWaitsForAPlaceGoesOn() throws {
    server.limit = 1
    let client = try client()
    let first = begin(client)
    let second = begin(client)
    #expect(server.requests.count == 1)
    server.answersPings = false
    pass(31, client)
    #expect(try answer(first).code == .unavailable)
    server.answersPings = true
    settle(client)
    #expect(server.requests.count == 2 && world.connects == 2)
    server.answer()
    let answer = try answer(second)
    #expect(answer.code == .ok && answer.reply.stats.attempts == 1)
  }

  /// Bytes may wait in the kernel while no thread polls. The client reads them before it declares the
  /// connection dead.
  @Test func aProgramThatDoesNotPoll() throws {
    let client = try client()
    let call = begin(client)
    pass(11, client)
    #expect(server.pings.count == 1)
    while world.goOn(atMost: 3600 * Self.second) {}
    server.say(.windowUpdate(0, 1))
    _ = world.goOn(atMost: 0)
    for _ in 0..<5 { client.turn() }
    #expect(call.ended == nil)
    server.answer()
    #expect(try answer(call).code == .ok)
  }
}

/// Tests of keepalive over real sockets.
@Suite(.timeLimit(.minutes(15))) struct KeepaliveSocketTests {
  static let millisecond: UInt64 = 1_000_000

  private func client(_ server: RawServer, tls: Bool = false) throws -> TestClient {
    try #require(
      TestClient(server.target) { options in
        options.keepaliveTime = 100 * Self.millisecond
        options.keepaliveTimeout = 200 * Self.millisecond
        if tls { options.tls = Certificates.shared.client() }
      })
  }

  /// The server continues to read, but sends nothing more, not even answers to PINGs.
  @Test(arguments: [false, true])
  func aServerThatFallsSilent(_ overTLS: Bool) throws {
    let server = RawServer(
      tls: overTLS ? serverTLS() : nil,
      { peer in
        peer.begin()
        _ = peer.request()
        peer.expect(peer.frame(6)?.flags == 0, "no PING")
        peer.waitForEnd()
      }, { $0.waitForEnd() })
    defer { server.stop() }
    let client = try client(server, tls: overTLS)
    let answer = client.unary("/a.B/C", [1])
    #expect(answer.code == .unavailable)
    #expect(answer.words.hasPrefix("no answer to a keepalive ping from \(server.target) within 200 ms"))
    #expect(answer.silent >= 300 * Self.millisecond)
    #expect(server.complaints == [])
  }

  /// The client's PING has to wait, because a message before it is larger than the socket's buffer and the
  /// server does not read.
  @Test func aServerThatStopsReading() throws {
    let gone = Gate()
    let server = RawServer(
      { peer in
        peer.begin()
        peer.send(.windowUpdate(0, 1 << 30), .settings([(4, 1 << 30)]))
        _ = peer.request()
        gone.wait()
      }, { $0.waitForEnd() })
    defer { server.stop() }
    let client = try client(server)
    let answer = client.unary("/a.B/C", [UInt8](repeating: 1, count: 64 << 20))
    gone.open()
    #expect(answer.code == .unavailable)
    // The kernel uses an equal timeout (TCP_USER_TIMEOUT), and may end the connection before the keepalive
    // timer does.
    #expect(
      answer.words.hasPrefix("no answer to a keepalive ping")
        || answer.words == "the connection failed: Connection timed out", "\(answer.words)")
  }

  @Test(arguments: [false, true])
  func aServerThatAnswersPings(_ overTLS: Bool) throws {
    let server = RawServer(tls: overTLS ? serverTLS() : nil) { peer in
      peer.begin()
      let id = peer.request()
      for _ in 0..<5 {
        guard var ping = peer.frame(6) else { return }
        ping.flags = 1
        peer.send(ping)
      }
      peer.send(.head(id), .message(id, [9]), .trailers(id))
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try client(server, tls: overTLS)
    let answer = client.unary("/a.B/C", [1])
    #expect(answer.code == .ok && answer.message == [9])
    #expect(server.complaints == [])
  }

  /// gRFC A18: the keepalive timeout is also the socket's TCP_USER_TIMEOUT.
  @Test func theKernelHasTheTimeout() throws {
    let server = RawServer { peer in
      peer.begin()
      let id = peer.request()
      peer.send(.head(id), .message(id, [9]), .trailers(id))
      peer.waitForEnd()
    }
    defer { server.stop() }
    for (timeout, expected) in [(5_000, 5_000), (nil, 0)] as [(UInt64?, UInt32)] {
      let client = try #require(
        TestClient(server.target) { options in
          guard let timeout else { return }
          options.keepaliveTime = 60_000 * Self.millisecond
          options.keepaliveTimeout = timeout * Self.millisecond
        })
      #expect(client.unary("/a.B/C", [1]).code == .ok)
      #expect(userTimeouts(of: server.port).contains(expected))
    }
  }

  /// Returns the TCP_USER_TIMEOUT of each socket of this process that is connected to `port`.
  private func userTimeouts(of port: UInt16) -> [UInt32] {
    (0..<Int32(1024)).compactMap { descriptor -> UInt32? in
      var address = sockaddr_in()
      var size = socklen_t(MemoryLayout<sockaddr_in>.size)
      let found = withUnsafeMutablePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getpeername(descriptor, $0, &size) == 0 }
      }
      guard found, address.sin_family == sa_family_t(AF_INET), UInt16(bigEndian: address.sin_port) == port
      else { return nil }
      var value: UInt32 = 0
      var length = socklen_t(MemoryLayout<UInt32>.size)
      guard getsockopt(descriptor, Int32(IPPROTO_TCP), TCP_USER_TIMEOUT, &value, &length) == 0 else {
        return nil
      }
      return value
    }
  }
}

extension Answer {
  /// The time in nanoseconds from the last received byte on the call's connection to the end of the call.
  fileprivate var silent: UInt64 {
    reply.stats.endedAt - (reply.stats.connection?.heardAt.value ?? reply.stats.endedAt)
  }
}

/// Makes a thread wait until another thread opens the gate.
private final class Gate: @unchecked Sendable {
  private var ends: [Int32] = [0, 0]

  init() { precondition(pipe(&ends) == 0) }
  deinit { ends.forEach { close($0) } }

  func open() {
    var byte: UInt8 = 1
    _ = write(ends[1], &byte, 1)
  }

  func wait() {
    var byte: UInt8 = 0
    _ = read(ends[0], &byte, 1)
  }
}
