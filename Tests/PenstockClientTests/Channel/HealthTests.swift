import Foundation
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

/// Tests of health checks by the client (gRFC A17), in a simulated world whose clock advances only when the
/// loop sleeps.
@Suite(.timeLimit(.minutes(15))) struct HealthTests {
  static let second = SimulationTests.second

  let world = World()
  let names = ReconnectTests.Answers()
  let rest = ReconnectTests()

  /// A server whose health service reports the health that the test sets. It echoes the messages of all other
  /// calls, and counts these calls.
  final class Server {
    let world: World
    /// The health that the service reports at the beginning of each health stream; nil: it reports none.
    var health: UInt8?
    /// The status with which the server ends each health stream; nil: it ends none.
    var ends: String?
    var calls = 0
    /// The times at which the health streams began.
    var watches: [UInt64] = []
    /// The name of the service in the last health check.
    var service = ""
    /// The server's MAX_CONCURRENT_STREAMS.
    var limit: UInt32 = 100
    /// Whether the server leaves calls without an answer.
    var holds = false
    private(set) var socket: SimulatedSocket?
    var stream: Int32 = 0

    init(_ health: UInt8?, _ world: World) {
      self.world = world
      self.health = health
    }

    func hear(_ said: [UInt8], _ socket: SimulatedSocket) {
      SimulationTests.answer(said, socket, settings: [(3, limit)]) { stream, payload in
        // In these tests a call's message has one byte. A health check's message is longer, because it
        // contains the service's name.
        guard payload.count > 6 else {
          calls += 1
          if holds { return [] }
          return Frame.head(stream).encoded + Frame.data(stream, payload).encoded
            + Frame.trailers(stream).encoded
        }
        service = String(decoding: payload[7...], as: UTF8.self)
        watches.append(world.time)
        (self.socket, self.stream) = (socket, stream)
        var bytes: [UInt8] = []
        if let health { bytes += Frame.head(stream).encoded + Frame.message(stream, [8, health]).encoded }
        if let ends {
          let only = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", ends)]
          bytes += (health == nil ? .headers(stream, only, end: true) : Frame.trailers(stream, ends)).encoded
        }
        return bytes
      }
    }

    func say(_ health: UInt8) {
      self.health = health
      socket?.answer(Frame.message(stream, [8, health]).encoded)
    }

    func send(_ frame: Frame) { socket?.answer(frame.encoded) }
    func end(_ status: String) { send(.trailers(stream, status)) }
  }

  func server(_ port: UInt16, _ health: UInt8?) -> Server {
    let server = Server(health, world)
    world.servers[port] = server.hear
    return server
  }

  func client(
    _ ports: UInt16..., policy: BalancerConfig.Policy = .roundRobin,
    options: @escaping (inout ChannelOptions) -> Void = { _ in }
  ) throws -> TestClient {
    names.answer = .addresses(ports.map { address($0) })
    world.resolver = names
    return try rest.client("names.test", world) {
      $0.service.balancing.policy = policy
      $0.service.healthService = bytes("shop.Orders")
      options(&$0)
    }
  }

  func address(_ port: UInt16) -> SocketAddress {
    let host = bytes("10.0.0.1")
    return SocketAddress(literal: host.view, port: port)!
  }

  func call(_ client: TestClient, _ times: Int, _ servers: Server...) -> [Int] {
    for server in servers { server.calls = 0 }
    for _ in 0..<times { #expect(rest.call(client).message == [7]) }
    return servers.map { $0.calls }
  }

  func pass(_ seconds: Double, _ client: TestClient) {
    rest.pass(UInt64(seconds * Double(Self.second)), client, world)
  }

  static let serving: UInt8 = 1

  @Test(arguments: [0, 2, 3, 77] as [UInt8])
  func onlyServersThatServeGetCalls(_ other: UInt8) throws {
    let (one, two) = (server(1, Self.serving), server(2, other))
    let client = try client(1, 2)
    #expect(call(client, 10, one, two) == [10, 0])
    #expect(one.service == "shop.Orders" && two.service == "shop.Orders")
    pass(1, client)
    #expect(client.channel.connectivity == .ready)
    two.say(Self.serving)
    pass(0.1, client)
    #expect(call(client, 10, one, two) == [5, 5])
    one.say(other)
    pass(0.1, client)
    #expect(call(client, 10, one, two) == [0, 10])
    one.say(Self.serving)
    pass(0.1, client)
    #expect(call(client, 10, one, two) == [5, 5])
    #expect(world.connects == 2 && one.watches.count == 1 && two.watches.count == 1)
  }

  /// The health checks use the RPC protocol of the channel, as its calls do.
  @Test(arguments: [RPCProtocol.grpc, .grpcWeb, .grpcWebText, .connect])
  func overEachProtocol(_ rpc: RPCProtocol) throws {
    final class State { var socket: SimulatedSocket? }
    let state = State()
    let types = ["application/grpc", "application/grpc-web+proto", "application/grpc-web-text+proto"]
    func framed(_ message: [UInt8]) -> [UInt8] {
      rpc == .grpcWebText ? Array(Data(frame(0, message)).base64EncodedString().utf8) : frame(0, message)
    }
    func answer(_ stream: Int32, _ type: String, _ body: [UInt8], end: Bool = false) -> [UInt8] {
      Frame.headers(stream, [(":status", "200"), ("content-type", type)]).encoded
        + Frame.data(stream, body, end: end).encoded
    }
    world.servers[1] = { said, socket in
      SimulationTests.answer(said, socket) { stream, _ in
        if stream == 1 {
          state.socket = socket
          let type = rpc == .connect ? "application/connect+proto" : types[Int(rpc.rawValue)]
          return answer(stream, type, framed([8, Self.serving]))
        }
        switch rpc {
        case .grpc:
          return Frame.head(stream).encoded + Frame.message(stream, [7]).encoded
            + Frame.trailers(stream).encoded
        case .grpcWeb:
          return answer(stream, types[1], framed([7]) + frame(0x80, "grpc-status: 0\r\n"), end: true)
        case .grpcWebText:
          let trailers = Data(frame(0x80, "grpc-status: 0\r\n")).base64EncodedString()
          return answer(stream, types[2], framed([7]) + Array(trailers.utf8), end: true)
        case .connect: return answer(stream, "application/proto", [7], end: true)
        }
      }
    }
    let client = try client(1) {
      $0.rpc = rpc
      $0.http = .http2
    }
    #expect(rest.call(client).message == [7])
    #expect(client.channel.connectivity == .ready)
    state.socket?.answer(Frame.data(1, framed([8, 2])).encoded)
    pass(0.1, client)
    #expect(rest.call(client).words.hasSuffix("the server says that it does not serve (health check)"))
    // Without a health service a server counts as serving.
    let ends: [UInt8]
    switch rpc {
    case .grpc: ends = Frame.trailers(1, "12").encoded
    case .grpcWeb: ends = Frame.data(1, frame(0x80, "grpc-status: 12\r\n"), end: true).encoded
    case .grpcWebText:
      let trailers = Data(frame(0x80, "grpc-status: 12\r\n")).base64EncodedString()
      ends = Frame.data(1, Array(trailers.utf8), end: true).encoded
    case .connect:
      ends = Frame.data(1, frame(2, "{\"error\": {\"code\": \"unimplemented\"}}"), end: true).encoded
    }
    state.socket?.answer(ends)
    pass(0.1, client)
    #expect(rest.call(client).message == [7])
  }

  /// The channel sends the first call only after the health service has answered for the first time.
  @Test func callsWaitForTheFirstAnswer() throws {
    let server = server(1, nil)
    let client = try client(1)
    world.after(5 * Self.second) {
      #expect(server.calls == 0 && client.channel.connectivity == .connecting)
      server.send(.head(1))
      server.say(Self.serving)
    }
    #expect(rest.call(client).message == [7])
    #expect(server.calls == 1 && client.channel.connectivity == .ready)
  }

  @Test func noServerServes() throws {
    let (one, two) = (server(1, 2), server(2, 3))
    let client = try client(1, 2)
    let answer = rest.call(client)
    #expect(answer.code == .unavailable && client.channel.connectivity == .transientFailure)
    #expect(
      answer.words
        == "could not connect to names.test: 10.0.0.1:1: the server says that it does not serve (health check); "
        + "10.0.0.1:2: the server says that it does not know the service (health check)")
    // The resolver gives the same addresses again. This must not make the servers ready.
    names.give(names.answer!)
    #expect(rest.call(client).code == .unavailable)
    world.after(3 * Self.second) { two.say(Self.serving) }
    #expect(rest.call(client, waits: true).message == [7])
    #expect(one.calls == 0 && two.calls == 1)
    #expect(world.connects == 2)
  }

  /// A message without a status means UNKNOWN (0), whatever the message before it has said.
  @Test func anEmptyAnswerIsUnknown() throws {
    let server = server(1, Self.serving)
    let client = try client(1)
    #expect(call(client, 1, server) == [1])
    server.send(.message(server.stream, []))
    pass(1, client)
    #expect(client.channel.connectivity == .transientFailure)
    server.say(Self.serving)
    pass(1, client)
    #expect(call(client, 1, server) == [1])
  }

  /// A server without a health service counts as serving. The client does not ask it again on the same
  /// connection.
  @Test func unimplemented() throws {
    let server = server(1, nil)
    server.ends = "12"
    let client = try client(1)
    #expect(call(client, 3, server) == [3])
    pass(1000, client)
    #expect(server.watches.count == 1 && client.channel.connectivity == .ready)
    server.socket?.end()
    pass(1, client)
    #expect(call(client, 3, server) == [3])
    #expect(server.watches.count == 2)
  }

  @Test func theHealthServiceFails() throws {
    let server = server(1, nil)
    server.ends = "14"
    let client = try client(1)
    let began = world.time
    let answer = rest.call(client)
    #expect(answer.code == .unavailable)
    #expect(answer.words.hasPrefix("could not connect to names.test: 10.0.0.1:1: its health check ended: "))
    pass(10, client)
    // The first back-off delay is 1 s. Each later delay is 1.6 times as long as the delay before it.
    #expect(server.watches.map { ($0 - began) / 1_000_000 } == [0, 1000, 2600, 5160, 9256])
    #expect(client.channel.connectivity == .transientFailure)
    server.ends = nil
    server.health = Self.serving
    pass(10, client)
    #expect(call(client, 2, server) == [2])
    #expect(world.connects == 1)
  }

  /// `resetBackoff` ends the back-off delay between two health streams.
  @Test func theWaitCanBeEnded() throws {
    let server = server(1, nil)
    server.ends = "14"
    let client = try client(1) { $0.backoff.initial = 100 * Self.second }
    #expect(rest.call(client).code == .unavailable)
    server.ends = nil
    server.health = Self.serving
    client.channel.transport.resetBackoff()
    #expect(rest.call(client, waits: true, deadline: Self.second).message == [7])
  }

  /// When a health stream ends that has reported a health, the next stream begins at once. When several
  /// streams end in a row, a back-off delay comes before each next stream.
  @Test func theStreamEndsAgainAndAgain() throws {
    let server = server(1, Self.serving)
    let client = try client(1)
    #expect(call(client, 1, server) == [1])
    pass(100, client)
    server.end("0")
    let began = world.time
    pass(0.1, client)
    #expect(server.watches.count == 2 && client.channel.connectivity == .ready)
    server.ends = "0"
    server.end("0")
    pass(20, client)
    // The third stream begins as soon as the second has ended, and each later stream after a back-off delay.
    #expect(
      server.watches.dropFirst().map { ($0 - began) / 1_000_000 } == [0, 100, 1700, 4260, 8356, 14910])
  }

  @Test func onlyTheBalancersThatUseAllAddressesAsk() throws {
    let server = server(1, 2)
    let client = try client(1, policy: .pickFirst(shuffles: false))
    #expect(call(client, 3, server) == [3])
    #expect(server.watches.isEmpty)
  }

  @Test func itCanBeSwitchedOff() throws {
    let server = server(1, 2)
    let client = try client(1) { $0.checksHealth = false }
    #expect(call(client, 3, server) == [3])
    #expect(server.watches.isEmpty)
  }

  /// A new service config from the resolver starts and stops health checks on existing connections.
  @Test func theServiceConfigChanges() throws {
    let server = server(1, 2)
    let client = try client(1)
    #expect(rest.call(client).code == .unavailable)
    let endpoints = [Endpoint(address(1))]
    func give(_ service: String?) {
      let config = ServiceConfig()
      config.balancing.policy = .roundRobin
      config.healthService = service.map { bytes($0) }
      names.give(.endpoints(endpoints, config))
      pass(0.1, client)
    }
    give(nil)
    #expect(call(client, 3, server) == [3])
    give("other")
    #expect(rest.call(client).code == .unavailable && server.service == "other")
    server.health = Self.serving
    give("third")
    #expect(call(client, 3, server) == [3])
    #expect(server.watches.count == 3)
    give("third")
    #expect(server.watches.count == 3 && world.connects == 1)
  }

  /// A health stream does not keep the channel from becoming IDLE, and ends with its connection.
  @Test func theChannelRests() throws {
    let server = server(1, Self.serving)
    let client = try client(1) { $0.idleTimeout = 5 * Self.second }
    #expect(call(client, 1, server) == [1])
    pass(6, client)
    #expect(client.channel.connectivity == .idle)
    pass(100, client)
    #expect(world.connects == 1 && server.watches.count == 1)
    #expect(call(client, 1, server) == [1])
    #expect(world.connects == 2 && server.watches.count == 2)
  }

  /// After a GOAWAY the old connection closes although its health stream is still open. A new health stream
  /// begins on the new connection.
  @Test func theConnectionDrains() throws {
    let server = server(1, Self.serving)
    let client = try client(1)
    #expect(call(client, 1, server) == [1])
    let first = try #require(server.socket)
    server.send(.goAway(Int32.max))
    pass(1, client)
    #expect(first.isClosed && world.connects == 2 && server.watches.count == 2)
    #expect(call(client, 1, server) == [1])
  }

  /// The connection with the health stream ends, and the other connection can open no more streams. The
  /// health stream then begins on a third connection, so that calls continue.
  @Test(arguments: [true, false])
  func theConnectionThatIsLeftIsFull(_ dies: Bool) throws {
    let server = server(1, Self.serving)
    server.limit = 2
    server.holds = true
    let client = try client(1) { $0.service.connectionsPerSubchannel = 2 }
    let told = (0..<3).map { _ in Told() }
    for one in told {
      let call = client.make("/a.B/C", .unary, told: one) { $0.deadline = 3600 * Self.second }
      call.open(buffer([7]))
    }
    pass(5, client)
    #expect(server.calls == 3 && world.connects == 2)
    if dies { server.socket?.end() } else { server.send(.goAway(Int32.max)) }
    pass(1, client)
    server.holds = false
    #expect(rest.call(client, deadline: 60 * Self.second).message == [7])
    #expect(world.connects == 3 && server.watches.count == 2)
  }

  /// The connection is lost before the first health answer, while the server does not serve, or while it
  /// serves. In each case the channel makes a new connection.
  @Test(arguments: [nil, 2, serving])
  func theConnectionIsLost(_ health: UInt8?) throws {
    let server = server(1, health)
    let client = try client(1)
    _ = client.channel.connect()
    pass(100, client)
    #expect(server.watches.count == 1)
    server.health = Self.serving
    server.socket?.end()
    pass(1, client)
    #expect(world.connects == 2)
    #expect(call(client, 2, server) == [2])
  }

  /// A server answers health checks, and then ends each connection. The channel must wait between two
  /// connections to it.
  @Test func anAnswerToAHealthCheckIsNoCalls() throws {
    let server = server(1, Self.serving)
    world.servers[1] = { said, socket in
      server.hear(said, socket)
      if server.socket === socket { socket.end() }
    }
    let client = try client(1)
    _ = client.channel.connect()
    pass(100, client)
    #expect(world.connects < 15, "\(world.connects)")
  }

  /// The health of many servers changes at random. A call must never go to a server that has reported that it
  /// does not serve.
  @Test func theirHealthFlaps() throws {
    var random = SystemRandomNumberGenerator()
    let seed = random.next()
    var dice = SplitMix(state: seed)
    let servers = (1...5).map { server($0, UInt8(1 + $0 % 2)) }
    let client = try client(1, 2, 3, 4, 5)
    _ = client.channel.connect()
    pass(1, client)
    for round in 0..<300 {
      let chosen = servers[Int(dice.next() % 5)]
      switch dice.next() % 8 {
      case 0: chosen.end("14")
      case 1: chosen.socket?.end()
      case 2: chosen.send(.goAway(Int32.max))
      default: chosen.say(UInt8(dice.next() % 4))
      }
      pass(Double(dice.next() % 20) / 10 + 0.01, client)
      for server in servers { server.calls = 0 }
      for _ in 0..<5 { _ = rest.call(client) }
      for server in servers where server.health != Self.serving {
        #expect(server.calls == 0, "seed \(seed), round \(round)")
      }
    }
    for server in servers { server.say(Self.serving) }
    pass(200, client)
    for server in servers { server.calls = 0 }
    for _ in 0..<50 { #expect(rest.call(client).message == [7], "seed \(seed)") }
    #expect(servers.map { $0.calls } == [10, 10, 10, 10, 10], "seed \(seed)")
  }
}
