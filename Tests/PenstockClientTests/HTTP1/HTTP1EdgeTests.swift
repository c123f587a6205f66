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

/// Rare moments in the life of a pool and of its connections.
@Suite(.timeLimit(.minutes(15))) struct HTTP1EdgeTests {
  static let second = SimulationTests.second
  static let millisecond: UInt64 = 1_000_000

  let pool = HTTP1PoolTests()
  var world: World { pool.world }

  /// Connections that fail together are one failure: the next attempt comes soon.
  @Test func connectionsThatFailTogetherCountOnce() throws {
    var isIll = true
    let log = pool.log
    world.servers[80] = pool.serve { request, socket in
      if log.requests == 1 {
        world.after(60 * Self.second) { socket.answer(HTTP1PoolTests.answer(request.messages)) }
      } else if isIll {
        socket.end()
      } else {
        socket.answer(HTTP1PoolTests.answer(request.messages))
      }
    }
    let client = try pool.client()
    let first = pool.begin(1, client)
    pool.pass(Self.second, client)
    let lost = pool.begin(20, client)
    pool.pass(Self.second / 2, client)
    #expect(lost.allSatisfy { $0.0.code == .unavailable } && world.connects == 21)
    isIll = false
    let next = pool.begin(1, client)
    pool.pass(5 * Self.second, client)
    #expect(next[0].0.code == .ok && first[0].0.code == nil)
    pool.pass(60 * Self.second, client)
    #expect(first[0].0.code == .ok)
  }

  /// Bytes that come before any byte of the request has left are no answer to it.
  @Test func bytesBeforeTheRequestHasLeft() throws {
    world.servers[80] = pool.echo()
    let client = try pool.client()
    #expect(pool.call(client).message == [7])
    pool.log.sockets[0].lastWords = Array("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n".utf8)
    let answer = pool.call(client)
    #expect(answer.code == .ok && answer.message == [7], "\(answer.words)")
    #expect(world.connects == 2 && pool.log.requests == 2)
  }

  /// The server ends connections that have had no request for long. This is no failure, so the next calls need not wait.
  @Test func connectionsWithoutARequest() throws {
    var takes: UInt64 = 0
    let (log, world) = (pool.log, world)
    world.servers[80] = pool.serve { request, socket in
      world.after(takes) { socket.answer(HTTP1PoolTests.answer(request.messages)) }
    }
    let client = try pool.client { $0.http1IdleTimeout = 3600 * Self.second }
    // The first connection answers all calls before the others are made.
    takes = Self.second / 2
    let first = pool.begin(1, client)
    pool.pass(Self.millisecond, client)
    takes = 0
    world.delay = Self.second
    let calls = pool.begin(9, client)
    pool.pass(Self.millisecond, client)
    world.delay = 0
    pool.pass(60 * Self.second, client)
    #expect((first + calls).allSatisfy { $0.0.code == .ok })
    let unused = world.sockets.values.filter { !$0.hasBegun }
    #expect(world.connects == 10 && log.sockets.count == 1 && unused.count == 9)
    for socket in unused { socket.end() }
    pool.pass(Self.millisecond, client)
    takes = 5 * Self.second
    let next = pool.begin(10, client)
    pool.pass(11 * Self.second / 2, client)
    #expect(next.allSatisfy { $0.0.code == .ok })
  }

  /// How many milliseconds the call has waited until now, or until its end.
  private func waited(_ call: ClientCall, for lack: Lack) -> UInt64 {
    let ended = call.call.measures.endedAt.value
    let end = ended == 0 ? world.time : ended
    return (call.call.knownValues?.waits.waited(for: lack, until: end) ?? 0) / Self.millisecond
  }

  /// A call waits until a further connection is made. The time counts as a wait for a connection, however the wait
  /// ends.
  @Test func theWaitForAFurtherConnection() throws {
    world.servers[80] = pool.echo(after: 100 * Self.second)
    let client = try pool.client()
    let first = pool.begin(1, client)[0].1
    pool.pass(Self.second, client)
    world.delay = 4 * Self.second
    let calls = pool.begin(2, client)
    let (served, cancelled) = (calls[0].1, calls[1].1)
    pool.pass(Self.second, client)
    for call in [served, cancelled] {
      #expect(lacksConnection(call) && waited(call, for: .connection) == 1000)
    }
    #expect(!lacksConnection(first) && waited(first, for: .connection) == 0)
    cancelled.cancel(bytes("enough").view)
    pool.pass(Self.second, client)
    #expect(!lacksConnection(cancelled) && waited(cancelled, for: .connection) == 1000)
    pool.pass(4 * Self.second, client)
    #expect(!lacksConnection(served) && waited(served, for: .connection) == 4000)
    #expect(waited(served, for: .slot) == 0)
  }

  private func lacksConnection(_ call: ClientCall) -> Bool {
    if case .connection = CallView(call.call).holder { true } else { false }
  }

  /// The server closes the only connection, which had no request yet. The channel stays READY, and the next call
  /// makes a new connection.
  @Test func aConnectionWithoutARequest() throws {
    world.servers[80] = pool.echo()
    let client = try pool.client()
    #expect(client.channel.connect() == .ok)
    pool.pass(60 * Self.second, client)
    #expect(client.channel.connectivity == .ready && world.connects == 1)
    world.sockets.values.first?.end()
    pool.pass(Self.millisecond, client)
    #expect(client.channel.connectivity == .ready)
    #expect(pool.call(client).message == [7])
    #expect(world.connects == 2)
  }

  /// A server that is asked for its health and says that it serves, and that echoes each call.
  private var healthy: World.Server {
    pool.serve { request, socket in
      guard request.messages[0].first == 0x0A else {
        return socket.answer(HTTP1PoolTests.answer(request.messages))
      }
      let line = String(decoding: LineFraming.line([8, 1]), as: UTF8.self)
      socket.answer(Array("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n\(line)\r\n".utf8))
    }
  }

  /// A health check has a connection for itself, and is no call.
  @Test func aHealthCheckLeavesRoomForCalls() throws {
    world.servers[80] = healthy
    let client = try pool.client {
      $0.service.balancing.policy = .roundRobin
      $0.service.healthService = bytes("shop.Orders")
      $0.http1Connections = 1
      $0.silence = 30 * Self.second
    }
    let listener = SilenceTests.Listener(world)
    client.channel.transport.core.listeners = listener
    let calls = pool.begin(3, client, deadline: 60 * Self.second)
    pool.pass(100 * Self.second, client)
    #expect(calls.allSatisfy { $0.0.code == .ok } && world.connects == 2)
    #expect(listener.times.isEmpty)
  }

  /// Only the connection of a health check is left, and no other connection can be made. The calls do not wait for
  /// ever, because that connection never becomes free.
  @Test func onlyTheHealthCheckHasAConnection() throws {
    world.servers[80] = healthy
    let client = try pool.client {
      $0.service.balancing.policy = .roundRobin
      $0.service.healthService = bytes("shop.Orders")
    }
    #expect(client.channel.connect() == .ok)
    pool.pass(Self.second, client)
    #expect(client.channel.connectivity == .ready && world.connects == 1)
    world.servers[80] = nil
    let calls = pool.begin(3, client)
    pool.pass(Self.second, client)
    #expect(calls.allSatisfy { $0.0.code == .unavailable })
    // The channel recovers when the server is back.
    world.servers[80] = healthy
    pool.pass(10 * Self.second, client)
    #expect(pool.call(client).message == [7])
  }

  /// A stream leaves before its request was made, and the pool is not wanted any more: its connection closes.
  @Test func aStreamLeavesADrainingPool() throws {
    world.servers[80] = pool.echo()
    let client = try pool.client()
    #expect(pool.call(client).message == [7])
    let core = client.channel.transport.core
    let subchannel = core.endpoints[0]
    guard case .socket(let socket, _) = world.connect(to: subchannel.address, SocketSettings()),
      let other = HTTP1Pool.make(Link(socket, copies: false, core.runtime), bytes("peer"), core, subchannel)
    else { return #expect(Bool(false)) }
    other.begin()
    final class Nobody: StreamOwner {
      override func streamChanged(_ stream: TransportStream) {}
    }
    let stream = other.newStream(Nobody(), sending: PieceQueue())
    stream.open()
    other.drain()
    stream.leave(.cancelled)
    client.turn()
    #expect(world.sockets[socket.descriptor] == nil || world.sockets.values.count { !$0.isClosed } == 1)
  }

  /// A further connection, too, is tried at once when the program wants it.
  @Test func theBackOffIsReset() throws {
    world.servers[80] = pool.echo(after: 500 * Self.second)
    let client = try pool.client()
    _ = pool.begin(1, client)
    pool.pass(Self.second, client)
    let server = world.servers.removeValue(forKey: 80)
    _ = pool.begin(1, client)
    pool.pass(100 * Self.second, client)
    world.servers[80] = server
    let before = world.connects
    client.channel.transport.resetBackoff()
    pool.pass(Self.millisecond, client)
    #expect(before > 3 && world.connects == before + 1)
  }

  final class Listener: NewsListeners {
    var ready: [ConnectionFacts?] = []
    override var isAnybody: Bool { true }
    override func tell(_ news: ConnectionNews) { if news.kind == .ready { ready.append(news.connection) } }
  }

  /// Listeners learn the same about each connection.
  @Test func eachConnectionIsTold() throws {
    world.servers[80] = pool.echo(after: Self.second)
    let client = try pool.client()
    let listener = Listener()
    client.channel.transport.core.listeners = listener
    _ = pool.begin(3, client)
    pool.pass(5 * Self.second, client)
    #expect(listener.ready.count == 3 && listener.ready.allSatisfy { $0 != nil })
  }

  /// The client's own TLS messages leave while an answer is received, though there is nothing else to send.
  @Test func keyUpdatesAreAnswered() throws {
    let context = try #require(serverTLS { $0.http = .http1 })
    let server = CloggedTests.Server(try #require(TLSEngine.make(context, host: nil)))
    let client = try #require(
      http1Client("unix-abstract:" + server.name, mode: .host, tls: Certificates.shared.client()))
    let told = Told()
    let call = client.make("/a.B/C", .serverStream, told: told)
    call.open(buffer([7]))
    #expect(call.demand(1 << 40) == .ok)
    client.settle()
    server.accept()
    while server.input.isEmpty, told.code == nil {
      server.read()
      _ = server.write()
      client.settle()
    }
    func say(_ text: String) {
      #expect(Array(text.utf8).withUnsafeBytes { server.engine.write($0) })
      _ = server.write()
      client.settle()
    }
    say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    server.read()
    let before = server.received
    for count in 1...10 {
      server.engine.updateKeys()
      say("3\r\n07\n\r\n")
      #expect(told.messages.count == count)
      server.read()
    }
    // An answer has at least 22 bytes. The first one may still be on its way.
    #expect(server.received >= before + 9 * 22)
    say("4\r\n! 0\n\r\n0\r\n\r\n")
    #expect(told.code == .ok)
  }
}
