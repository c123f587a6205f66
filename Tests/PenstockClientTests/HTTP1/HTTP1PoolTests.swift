import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// Tests of the connection pool in a simulation, whose clock advances only while the loop sleeps.
@Suite(.timeLimit(.minutes(15))) struct HTTP1PoolTests {
  static let second = SimulationTests.second
  static let millisecond: UInt64 = 1_000_000

  let world = World()
  let rest = ReconnectTests()
  let log = Log()

  /// Records what the servers receive.
  final class Log {
    /// The sockets, in the order of their first requests.
    var sockets: [SimulatedSocket] = []
    var requests = 0
    /// `busy`: the number of requests that are being answered. `most`: the highest value of `busy` so far.
    var busy = 0
    var most = 0

    /// The results of calls in callback style. They are stored here, because they must outlive the calls.
    var told: [Told] = []

    var open: Int { sockets.count { !$0.isClosed } }
    var closed: [Bool] { sockets.map { $0.isClosed } }
  }

  /// Removes a whole request from the front of `bytes`, and returns it. nil: the request is not complete.
  static func take(_ bytes: inout [UInt8]) -> Request1? {
    let end = Array("\r\n\r\n".utf8)
    guard let head = bytes.firstRange(of: end) else { return nil }
    let lines = String(decoding: bytes[..<head.lowerBound], as: UTF8.self).split(separator: "\r\n").map {
      String($0)
    }
    var request = Request1(lines: lines)
    let body = bytes[head.upperBound...]
    if let length = request.value("content-length") {
      guard body.count >= Int(length)! else { return nil }
      request.body = Array(body.prefix(Int(length)!))
      bytes = Array(body.dropFirst(Int(length)!))
    } else {
      guard let last = body.firstRange(of: Array("0\r\n\r\n".utf8)) else { return nil }
      bytes = Array(body[last.upperBound...])
    }
    return request
  }

  static func answer(_ messages: [[UInt8]], _ fields: String = "") -> [UInt8] {
    let body = messages.flatMap { LineFraming.line($0) } + Peer.okLine
    return Array("HTTP/1.1 200 OK\r\n\(fields)Content-Length: \(body.count)\r\n\r\n".utf8) + body
  }

  /// Makes a server that calls `reply` for each request.
  func serve(_ reply: @escaping (Request1, SimulatedSocket) -> Void) -> World.Server {
    let log = log
    return { said, socket in
      if !socket.hasBegun { log.sockets.append(socket) }
      socket.hasBegun = true
      socket.rest += said
      while let request = Self.take(&socket.rest) {
        log.requests += 1
        reply(request, socket)
      }
    }
  }

  /// Makes a server that echoes each request after `time` nanoseconds.
  func echo(after time: UInt64 = 0) -> World.Server {
    let (log, world) = (log, world)
    return serve { request, socket in
      log.busy += 1
      log.most = max(log.most, log.busy)
      world.after(time) {
        log.busy -= 1
        socket.answer(Self.answer(request.messages))
      }
    }
  }

  func client(_ change: @escaping (inout ChannelOptions) -> Void = { _ in }) throws -> TestClient {
    try #require(http1Client("ipv4:10.0.0.1:80", mode: .host, platform: world, change))
  }

  /// Begins unary calls in callback style.
  func begin(_ count: Int, _ client: TestClient, deadline: UInt64 = 3600 * second) -> [(Told, ClientCall)] {
    (0..<count).map { _ in
      let told = Told()
      log.told.append(told)
      let call = client.make("/a.B/C", .unary, told: told) { $0.deadline = deadline }
      call.open(buffer([7]))
      return (told, call)
    }
  }

  func pass(_ time: UInt64, _ client: TestClient) { rest.pass(time, client, world) }

  func call(_ client: TestClient) -> Answer { rest.call(client) }

  // MARK: How many, and which

  @Test func callsInTurnUseOneConnection() throws {
    world.servers[80] = echo(after: Self.millisecond)
    let client = try client()
    for _ in 0..<20 { #expect(call(client).message == [7]) }
    #expect(world.connects == 1 && log.requests == 20)
  }

  @Test(arguments: [1, 2, 100])
  func callsAtOnceUseAsManyAsThereMayBe(_ most: Int) throws {
    world.delay = Self.millisecond
    world.servers[80] = echo(after: 10 * Self.millisecond)
    let client = try client {
      $0.http1Connections = most
      $0.http1IdleTimeout = 3600 * Self.second
    }
    for round in 1...2 {
      let calls = begin(300, client)
      pass(100 * Self.second / UInt64(most), client)
      #expect(calls.allSatisfy { $0.0.code == .ok && $0.0.messages == [1] })
      #expect(world.connects == most && log.most == most && log.requests == 300 * round)
    }
  }

  /// The next call uses the connection that was used last. So the other connections stay idle, and close.
  @Test func theOthersBecomeIdle() throws {
    world.servers[80] = echo(after: Self.millisecond)
    let client = try client { $0.http1IdleTimeout = 90 * Self.second }
    _ = begin(3, client)
    pass(Self.second, client)
    #expect(world.connects == 3 && log.open == 3)
    for _ in 0..<20 {
      #expect(call(client).message == [7])
      pass(10 * Self.second, client)
    }
    #expect(world.connects == 3 && log.open == 1)
    pass(100 * Self.second, client)
    #expect(log.open == 0)
    // The channel stays ready without connections, and makes one for the next call.
    #expect(client.channel.connectivity == .ready)
    #expect(call(client).message == [7])
    #expect(world.connects == 4)
  }

  @Test func theServerClosesIdleConnections() throws {
    world.servers[80] = echo(after: Self.millisecond)
    let client = try client()
    for count in 1...5 {
      _ = begin(3, client)
      pass(Self.second, client)
      #expect(world.connects == 3 * count && log.requests == 3 * count)
      for socket in log.sockets { socket.end() }
      pass(Self.millisecond, client)
      #expect(log.open == 0 && client.channel.connectivity == .ready)
    }
  }

  /// Wherever it is among the idle connections, another one takes its place.
  @Test(arguments: 0..<4)
  func theServerClosesOneIdleConnection(_ which: Int) throws {
    world.servers[80] = echo(after: Self.millisecond)
    let client = try client { $0.http1Connections = 4 }
    _ = begin(4, client)
    pass(Self.second, client)
    log.sockets[which].end()
    pass(Self.millisecond, client)
    #expect(log.open == 3)
    for round in 1...2 {
      log.most = 0
      _ = begin(4, client)
      pass(Self.second, client)
      #expect(log.most == 4 && world.connects == 5 && log.requests == 4 + 4 * round && log.open == 4)
    }
  }

  @Test func unaskedBytesCloseAnIdleConnection() throws {
    world.servers[80] = echo()
    let client = try client()
    #expect(call(client).message == [7])
    log.sockets[0].answer(Array("HTTP/1.1 408 Request Timeout\r\n\r\n".utf8))
    pass(Self.millisecond, client)
    #expect(log.closed == [true])
    #expect(call(client).message == [7])
    #expect(world.connects == 2)
  }

  // MARK: Failures

  @Test func noServer() throws {
    let client = try client()
    let answer = call(client)
    #expect(answer.code == .unavailable)
    #expect(answer.cause == "could not connect to ipv4:10.0.0.1:80: Connection refused")
  }

  /// The server refuses further connections. The calls wait for the existing connections, and back-off delays
  /// separate the attempts to connect.
  @Test func furtherConnectionsAreRefused() throws {
    world.servers[80] = echo(after: Self.second)
    let client = try client()
    _ = begin(1, client)
    pass(Self.second / 2, client)
    let server = world.servers.removeValue(forKey: 80)
    let calls = begin(20, client)
    pass(18 * Self.second, client)
    #expect(log.most == 1 && (2...8).contains(world.connects))
    world.servers[80] = server
    pass(20 * Self.second, client)
    #expect(calls.allSatisfy { $0.0.code == .ok })
  }

  /// All connections are lost and no new ones can be made. The calls fail with UNAVAILABLE, and the channel
  /// recovers when the server is back.
  @Test func theServerGoesAway() throws {
    world.servers[80] = echo()
    let client = try client()
    #expect(call(client).message == [7])
    let server = world.servers.removeValue(forKey: 80)
    log.sockets[0].end()
    pass(Self.millisecond, client)
    #expect(call(client).code == .unavailable)
    #expect(client.channel.connectivity == .transientFailure)
    world.servers[80] = server
    pass(10 * Self.second, client)
    #expect(call(client).message == [7])
  }

  /// The server ends the connection after each request. Back-off delays separate the attempts to connect.
  @Test func aServerThatEndsEachConnection() throws {
    world.servers[80] = serve { _, socket in socket.end() }
    let client = try client()
    for _ in 0..<100 {
      #expect(call(client).code == .unavailable)
      pass(100 * Self.millisecond, client)
    }
    #expect(world.connects < 12)
  }

  /// A further connection is not established within the connect timeout.
  @Test func aConnectionThatIsNotMade() throws {
    world.servers[80] = echo(after: 60 * Self.second)
    let client = try client { $0.connectTimeout = 5 * Self.second }
    let first = begin(1, client)
    pass(Self.second, client)
    world.delay = 3600 * Self.second
    let second = begin(1, client)
    pass(30 * Self.second, client)
    #expect((3...6).contains(world.connects))
    #expect(first[0].0.code == nil && second[0].0.code == nil)
    world.delay = 0
    pass(200 * Self.second, client)
    #expect(first[0].0.code == .ok && second[0].0.code == .ok)
  }

  // MARK: Cancelled calls

  @Test func callsThatEndInTheQueue() throws {
    world.servers[80] = echo(after: Self.second)
    let client = try client { $0.http1Connections = 2 }
    let calls = begin(50, client, deadline: 100 * Self.second)
    pass(Self.second / 2, client)
    for (_, call) in calls[2..<40] { call.cancel(bytes("enough").view) }
    pass(10 * Self.second, client)
    #expect(calls[..<2].allSatisfy { $0.0.code == .ok } && calls[40...].allSatisfy { $0.0.code == .ok })
    #expect(calls[2..<40].allSatisfy { $0.0.code == .cancelled })
    #expect(log.requests == 12 && world.connects == 2)
  }

  @Test func aDeadlineCostsItsConnection() throws {
    world.servers[80] = echo(after: 10 * Self.second)
    let client = try client { $0.http1Connections = 1 }
    let calls = begin(3, client, deadline: 5 * Self.second)
    pass(20 * Self.second, client)
    #expect(calls.allSatisfy { $0.0.code == .deadlineExceeded })
    #expect(log.closed == [true] && log.requests == 1)
  }

  // MARK: Age, and the end

  /// At their greatest age, connections finish their calls and close.
  @Test func theConnectionsAreOld() throws {
    world.servers[80] = echo(after: 40 * Self.second)
    let client = try client { $0.maxConnectionAge = 60 * Self.second }
    let early = begin(3, client)
    pass(50 * Self.second, client)
    #expect(early.allSatisfy { $0.0.code == .ok })
    let late = begin(3, client)
    pass(15 * Self.second, client)
    // The pool has reached its greatest age. Its calls continue, and the next calls get a new pool.
    let next = begin(2, client)
    pass(45 * Self.second, client)
    #expect((late + next).allSatisfy { $0.0.code == .ok })
    #expect(world.connects == 5)
    #expect(log.closed[..<3].allSatisfy { $0 })
  }

  @Test func theChannelBecomesIdle() throws {
    world.servers[80] = echo()
    let client = try client { $0.idleTimeout = 60 * Self.second }
    #expect(call(client).message == [7])
    pass(70 * Self.second, client)
    #expect(client.channel.connectivity == .idle && log.closed == [true])
    #expect(call(client).message == [7])
    #expect(world.connects == 2)
  }

  @Test func theChannelCloses() throws {
    world.servers[80] = echo(after: 10 * Self.second)
    let client = try client { $0.http1Connections = 5 }
    let calls = begin(20, client)
    pass(Self.second, client)
    #expect(client.channel.close() == .ok)
    pass(Self.second, client)
    #expect(calls.allSatisfy { $0.0.code == .cancelled })
    #expect(log.open == 0 && log.requests == 5)
  }

  @Test func aForkedChild() throws {
    world.servers[80] = echo(after: 10 * Self.second)
    let client = try client { $0.http1Connections = 5 }
    let calls = begin(20, client)
    pass(Self.second, client)
    client.runtime.runtime.becomeChild()
    client.runtime.runtime.goOnInChild()
    for _ in 0..<10 { client.turn() }
    #expect(calls.allSatisfy { $0.0.code == .cancelled })
    let requests = log.requests
    #expect(call(client).message == [7])
    #expect(world.connects == 6 && log.requests == requests + 1)
  }

  // MARK: Silence

  @Test func silenceIsTold() throws {
    world.servers[80] = serve { _, _ in }
    let client = try client { $0.silence = 30 * Self.second }
    let listener = SilenceTests.Listener(world)
    client.channel.transport.core.listeners = listener
    let began = world.time
    _ = begin(1, client, deadline: 100 * Self.second)
    pass(200 * Self.second, client)
    #expect(listener.times.map { ($0 &- began) / Self.second } == [30, 60, 90])
  }

  /// HTTP/1.1 has no pings. Keepalive only sets options of the socket.
  @Test func keepalive() throws {
    world.servers[80] = echo()
    let client = try client { $0.keepaliveTime = 10 * Self.second }
    #expect(call(client).message == [7])
    #expect(log.sockets[0].mostUnacknowledged == 20 * Self.second)
    pass(80 * Self.second, client)
    #expect(log.closed == [false])
  }

  // MARK: Random worlds

  /// Servers react to each request in a random way, on a loop that the host program drives. Every call ends.
  /// When the servers work again, the next call succeeds.
  @Test(arguments: 0..<12)
  func randomServers(_ seed: Int) throws {
    var random = SplitMix(state: UInt64(seed))
    world.delay = random.next() % 3 * Self.millisecond
    var isIll = true
    let whole = Self.answer([[7]])
    world.servers[80] = serve { request, socket in
      guard isIll else { return socket.answer(Self.answer(request.messages)) }
      switch random.next() % 12 {
      case 0: socket.end()
      case 1: socket.answer(Array(whole.prefix(Int(random.next() % UInt64(whole.count)))))
      case 2:
        socket.answer(Array(whole.prefix(Int(random.next() % UInt64(whole.count)))))
        socket.end()
      case 3: socket.answer(whole + Array("HTTP/1.1".utf8))
      case 4: socket.answer(Self.answer([[7]], "Connection: close\r\n"))
      case 5:
        socket.answer(whole)
        socket.end()
      case 6: socket.answer(Array("garbage\r\n".utf8))
      case 7:
        socket.answer(
          Array("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n".utf8))
      case 8: for _ in 0..<40 { socket.answer(Array("HTTP/1.1 100 Continue\r\n\r\n".utf8)) }
      default: socket.answer(whole)
      }
    }
    let client = try client {
      $0.http1Connections = 100
      $0.backoff.initial = Self.millisecond
    }
    var all: [(Told, ClientCall)] = []
    for _ in 0..<4 {
      all += begin(100, client, deadline: 2 * Self.second)
      pass(random.next() % 100 * Self.millisecond, client)
    }
    pass(5 * Self.second, client)
    #expect(all.allSatisfy { $0.0.code != nil })
    #expect(all.contains { $0.0.code == .ok })
    isIll = false
    pass(60 * Self.second, client)
    for _ in 0..<10 { #expect(call(client).message == [7]) }
    #expect(log.open <= 100)
    #expect(client.channel.close() == .ok)
    pass(Self.second, client)
    #expect(log.open == 0)
  }
}
