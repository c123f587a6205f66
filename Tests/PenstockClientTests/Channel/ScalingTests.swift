import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockNames

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// Tests of several connections to one address (gRFC A105), in a simulated world whose clock advances only
/// when the loop sleeps.
@Suite(.timeLimit(.minutes(15))) struct ScalingTests {
  static let second = SimulationTests.second

  let world = World()
  let rest = ReconnectTests()

  /// The `Told` objects of all calls. They must live until the client ends, because the client writes to
  /// them.
  final class Kept { var all: [Told] = [] }
  let kept = Kept()

  /// A server that permits `limit` concurrent calls on each connection, and answers them when the test calls
  /// `answer`.
  final class Server {
    /// The server's MAX_CONCURRENT_STREAMS.
    let limit: UInt32
    /// The connections on which the server has received calls, oldest first.
    private(set) var sockets: [SimulatedSocket] = []
    private(set) var held: [(socket: SimulatedSocket, stream: Int32, payload: [UInt8])] = []

    init(_ limit: UInt32) { self.limit = limit }

    func hear(_ said: [UInt8], _ socket: SimulatedSocket) {
      SimulationTests.answer(said, socket, settings: [(3, limit)]) { stream, payload in
        if !sockets.contains(where: { $0 === socket }) { sockets.append(socket) }
        held.append((socket, stream, payload))
        #expect(calls(on: socket) <= limit)
        return []
      }
    }

    func calls(on socket: SimulatedSocket) -> Int { held.filter { $0.socket === socket }.count }
    var spread: [Int] { sockets.map { calls(on: $0) } }

    func answer(_ index: Int = 0) {
      let one = held.remove(at: index)
      one.socket.answer(
        Frame.head(one.stream).encoded + Frame.data(one.stream, one.payload).encoded
          + Frame.trailers(one.stream).encoded)
    }

    func forget(_ socket: SimulatedSocket) { held.removeAll { $0.socket === socket } }
  }

  func server(_ limit: UInt32, port: UInt16 = 1) -> Server {
    let server = Server(limit)
    world.servers[port] = server.hear
    return server
  }

  func client(
    _ target: String = "ipv4:10.0.0.1:1", connections: Int,
    options: @escaping (inout ChannelOptions) -> Void = { _ in }
  ) throws -> TestClient {
    try rest.client(target, world) {
      $0.service.connectionsPerSubchannel = connections
      options(&$0)
    }
  }

  /// Begins `count` calls. Each call lasts until the server answers.
  func begin(_ count: Int, _ client: TestClient) -> [Told] {
    (0..<count).map { _ in
      let told = Told()
      kept.all.append(told)
      let call = client.make("/a.B/C", .unary, told: told) { $0.deadline = 3600 * Self.second }
      call.open(buffer([7]))
      return told
    }
  }

  func pass(_ seconds: Double, _ client: TestClient) {
    rest.pass(UInt64(seconds * Double(Self.second)), client, world)
  }

  func codes(_ calls: [Told]) -> [StatusCode?] { calls.map { $0.code } }

  @Test(arguments: [1, 3, 7, 10, 49, 50, 51] as [UInt32])
  func asManyConnectionsAsCallsNeed(_ limit: UInt32) throws {
    let server = server(limit)
    let client = try client(connections: 10)
    let calls = begin(50, client)
    pass(0.1, client)
    let needed = min((50 + Int(limit) - 1) / Int(limit), 10)
    let held = min(50, needed * Int(limit))
    #expect(world.connects == needed && server.held.count == held)
    // Older connections have at least as many calls as newer ones.
    #expect(server.spread == server.spread.sorted(by: >))
    #expect(server.spread.dropLast().allSatisfy { $0 == Int(limit) })
    while !server.held.isEmpty {
      server.answer(Int(world.time % UInt64(server.held.count)))
      pass(0.01, client)
    }
    #expect(codes(calls).allSatisfy { $0 == .ok })
    #expect(world.connects == needed && client.channel.connectivity == .ready)
  }

  @Test func oneConnectionUnlessTheServiceConfigWantsMore() throws {
    let server = server(2)
    let client = try client(connections: 1)
    let calls = begin(5, client)
    pass(100, client)
    #expect(world.connects == 1 && server.held.count == 2)
    for _ in 0..<5 {
      server.answer()
      pass(0.1, client)
    }
    #expect(codes(calls) == [.ok, .ok, .ok, .ok, .ok] && world.connects == 1)
  }

  @Test func theChannelLimitsTheServiceConfig() throws {
    let server = server(2)
    let client = try client(connections: 1000) { $0.mostConnections = 3 }
    _ = begin(50, client)
    pass(100, client)
    #expect(world.connects == 3 && server.spread == [2, 2, 2])
  }

  @Test func theOldestConnectionIsTheFirst() throws {
    let server = server(2)
    let client = try client(connections: 3)
    _ = begin(6, client)
    pass(0.1, client)
    #expect(server.spread == [2, 2, 2])
    for index in [5, 3, 1] { server.answer(index) }
    pass(0.1, client)
    #expect(server.spread == [1, 1, 1])
    _ = begin(2, client)
    pass(0.1, client)
    #expect(server.spread == [2, 2, 1] && world.connects == 3)
  }

  /// If a further connection can't be made, the calls wait for free streams on the other connections, and the
  /// channel tries again with back-off.
  @Test func aFurtherConnectionFails() throws {
    let server = server(1)
    let client = try client(connections: 5)
    let first = begin(1, client)
    pass(0.1, client)
    world.servers[1] = nil
    let began = world.connects
    pass(10, client)
    let calls = begin(2, client)
    pass(0.1, client)
    #expect(world.connects == began + 1 && client.channel.connectivity == .ready)
    // The channel tries again after 1, 2.6, 5.16 and 9.256 s.
    pass(9.5, client)
    #expect(world.connects == began + 5)
    #expect(codes(first + calls) == [nil, nil, nil])
    server.answer()
    pass(0.1, client)
    #expect(codes(first + calls) == [.ok, nil, nil] && server.held.count == 1)
    world.servers[1] = server.hear
    pass(10, client)
    #expect(server.held.count == 2)
    server.answer()
    server.answer()
    pass(0.1, client)
    #expect(codes(first + calls) == [.ok, .ok, .ok])
  }

  @Test func oneConnectionDies() throws {
    let server = server(2)
    let client = try client(connections: 3)
    let calls = begin(6, client)
    pass(0.1, client)
    for (index, left) in [(1, [2, 2]), (0, [2])] {
      let socket = server.sockets[index]
      socket.end()
      pass(0.1, client)
      server.forget(socket)
      #expect(server.spread.filter { $0 > 0 } == left && client.channel.connectivity == .ready)
    }
    #expect(codes(calls) == [.unavailable, .unavailable, .unavailable, .unavailable, nil, nil])
    // Further calls make the channel connect again.
    let more = begin(4, client)
    pass(0.1, client)
    #expect(world.connects == 5 && server.held.count == 6)
    while !server.held.isEmpty { server.answer() }
    pass(0.1, client)
    #expect(codes(more) == [.ok, .ok, .ok, .ok])
  }

  /// Calls wait for free streams when a connection dies. They get a new connection at once.
  @Test func aConnectionDiesWhileCallsWait() throws {
    let server = server(1)
    let client = try client(connections: 2)
    let calls = begin(3, client)
    pass(5, client)
    #expect(server.spread == [1, 1])
    server.sockets[1].end()
    server.forget(server.sockets[1])
    pass(0.1, client)
    #expect(server.spread == [1, 0, 1] && world.connects == 3)
    #expect(codes(calls) == [nil, .unavailable, nil])
  }

  @Test(arguments: [0, 1])
  func oneConnectionDrains(_ index: Int) throws {
    let server = server(2)
    let client = try client(connections: 2)
    let calls = begin(4, client)
    pass(0.1, client)
    server.sockets[index].answer(Frame.goAway(Int32.max).encoded)
    pass(0.1, client)
    let more = begin(2, client)
    pass(0.1, client)
    // The draining connection keeps its calls, and does not count towards the limit on connections.
    #expect(server.spread == [2, 2, 2] && world.connects == 3 && client.channel.connectivity == .ready)
    while !server.held.isEmpty { server.answer() }
    pass(0.1, client)
    #expect(codes(calls + more).allSatisfy { $0 == .ok })
    #expect(
      server.sockets.map { $0.isClosed } == (index == 0 ? [true, false, false] : [false, true, false]))
  }

  /// A draining connection has not processed a call. The call gets another connection, although the present
  /// ones are full.
  @Test(arguments: [0, 1], [BalancerConfig.Policy.pickFirst(shuffles: false), .roundRobin])
  func aCallOfADrainingConnectionGoesOn(_ index: Int, _ policy: BalancerConfig.Policy) throws {
    let server = server(1)
    let client = try client(connections: 2) { $0.service.balancing.policy = policy }
    let calls = begin(2, client)
    pass(5, client)
    #expect(server.spread == [1, 1])
    server.sockets[index].answer(Frame.goAway(0).encoded)
    server.forget(server.sockets[index])
    pass(0.1, client)
    #expect(server.held.count == 2 && world.connects == 3)
    while !server.held.isEmpty { server.answer() }
    pass(0.1, client)
    #expect(codes(calls) == [.ok, .ok])
  }

  /// A server ends each connection as soon as it has calls. The channel must wait between two connections.
  @Test(arguments: [Frame.goAway(0), nil])
  func allConnectionsAreUseless(_ last: Frame?) throws {
    world.servers[1] = { said, socket in
      SimulationTests.answer(said, socket, settings: [(3, 1)]) { _, _ in
        world.after(Self.second / 20) {
          if let last { socket.answer(last.encoded) } else { socket.end() }
        }
        return []
      }
    }
    let client = try client("ipv4:10.0.0.1:1", connections: 10) { $0.service.balancing.policy = .roundRobin }
    for _ in 0..<1000 {
      _ = begin(5, client)
      pass(0.1, client)
    }
    #expect(world.connects <= 60, "\(world.connects)")
  }

  /// The only connection dies while another one is being made. The channel goes to CONNECTING, and waiting
  /// calls use the new connection.
  @Test func theLastConnectionDiesMeanwhile() throws {
    let server = server(1)
    let client = try client(connections: 2)
    let first = begin(1, client)
    pass(0.1, client)
    var silent: SimulatedSocket?
    var said: [UInt8] = []
    world.servers[1] = { bytes, socket in
      silent = socket
      said += bytes
    }
    let calls = begin(1, client)
    pass(0.1, client)
    #expect(world.connects == 2 && client.channel.connectivity == .ready)
    server.sockets[0].end()
    server.forget(server.sockets[0])
    pass(0.1, client)
    #expect(codes(first) == [.unavailable] && codes(calls) == [nil])
    #expect(client.channel.connectivity == .connecting && world.connects == 2)
    world.servers[1] = server.hear
    server.hear(said, try #require(silent))
    said = []
    pass(0.1, client)
    #expect(client.channel.connectivity == .ready && world.connects == 2)
  }

  /// The only connection dies during the back-off delay after another attempt has failed. The channel goes to
  /// TRANSIENT_FAILURE.
  @Test func theLastConnectionDiesInTheWait() throws {
    let server = server(1)
    let client = try client(connections: 2) { $0.backoff.initial = 5 * Self.second }
    let first = begin(1, client)
    pass(0.1, client)
    world.servers[1] = nil
    let calls = begin(1, client)
    pass(0.1, client)
    server.sockets[0].end()
    pass(0.1, client)
    #expect(codes(first + calls) == [.unavailable, .unavailable])
    #expect(client.channel.connectivity == .transientFailure)
    world.servers[1] = server.hear
    pass(10, client)
    #expect(client.channel.connectivity == .ready)
  }

  /// A server ends each further connection at once. The channel must wait between two attempts.
  @Test func furtherConnectionsAreUseless() throws {
    let server = server(1)
    let client = try client(connections: 5)
    let first = begin(1, client)
    pass(10, client)
    world.servers[1] = { said, socket in
      if !socket.hasBegun { socket.answer(Frame.settings([(3, 1)]).encoded) }
      socket.hasBegun = true
      socket.answer(Frame.goAway(0).encoded)
    }
    let before = world.connects
    for _ in 0..<100 {
      _ = begin(3, client)
      pass(1, client)
    }
    let more = world.connects - before
    #expect(more >= 3 && more <= 20, "\(more)")
    #expect(codes(first) == [nil] && client.channel.connectivity == .ready)
    server.answer()
    pass(0.1, client)
    #expect(codes(first) == [.ok])
  }

  @Test func oldConnectionsAreReplaced() throws {
    let server = server(1)
    let client = try client(connections: 2) { $0.maxConnectionAge = 100 * Self.second }
    let calls = begin(2, client)
    pass(200, client)
    let more = begin(2, client)
    pass(0.1, client)
    #expect(server.spread == [1, 1, 1, 1])
    while !server.held.isEmpty { server.answer() }
    pass(0.1, client)
    #expect(codes(calls + more) == [.ok, .ok, .ok, .ok])
    #expect(server.sockets.prefix(2).allSatisfy { $0.isClosed })
  }

  @Test func allConnectionsRest() throws {
    let server = server(1)
    let client = try client(connections: 3) { $0.idleTimeout = 5 * Self.second }
    let calls = begin(3, client)
    pass(0.1, client)
    while !server.held.isEmpty { server.answer() }
    pass(20, client)
    #expect(codes(calls) == [.ok, .ok, .ok] && client.channel.connectivity == .idle)
    #expect(server.sockets.count == 3 && server.sockets.allSatisfy { $0.isClosed })
  }

  /// With round_robin a call goes to an address whose connection has a free stream. A further connection is
  /// made only if no address has a free stream.
  @Test func severalAddresses() throws {
    let (one, two) = (server(2, port: 1), server(2, port: 2))
    let client = try client("ipv4:10.0.0.1:1,10.0.0.1:2", connections: 2) {
      $0.service.balancing.policy = .roundRobin
    }
    _ = client.channel.connect()
    pass(0.1, client)
    let calls = begin(4, client)
    pass(0.1, client)
    #expect(one.spread == [2] && two.spread == [2] && world.connects == 2)
    let more = begin(6, client)
    pass(0.1, client)
    #expect(one.spread == [2, 2] && two.spread == [2, 2] && world.connects == 4)
    pass(100, client)
    #expect(world.connects == 4)
    while !one.held.isEmpty || !two.held.isEmpty {
      for server in [one, two] where !server.held.isEmpty { server.answer() }
      pass(0.01, client)
    }
    #expect(codes(calls + more).allSatisfy { $0 == .ok })
  }

  /// A new service config permits more connections. Waiting calls then get a further connection at once.
  @Test func theServiceConfigChanges() throws {
    let server = server(1)
    let names = ReconnectTests.Answers()
    world.resolver = names
    names.answer = ReconnectTests.addresses(1)
    let client = try client("names.test", connections: 1)
    _ = begin(3, client)
    pass(1, client)
    #expect(server.spread == [1])
    let host = bytes("10.0.0.1")
    let config = ServiceConfig()
    config.connectionsPerSubchannel = 3
    names.give(.endpoints([Endpoint(try #require(SocketAddress(literal: host.view, port: 1)))], config))
    pass(0.1, client)
    #expect(server.spread == [1, 1, 1])
    // If a new service config permits fewer connections, the present connections stay.
    config.connectionsPerSubchannel = 1
    pass(10, client)
    #expect(server.spread == [1, 1, 1])
  }
}
