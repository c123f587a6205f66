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

/// Tests of the moments when a channel connects, waits, and gives up, in a simulated world whose clock
/// advances only when the loop sleeps.
@Suite(.timeLimit(.minutes(15))) struct ReconnectTests {
  static let second: UInt64 = 1_000_000_000
  static let millisecond: UInt64 = 1_000_000

  /// A resolver whose answers the test gives with `give`, or sets with `answer`.
  final class Answers: Resolver {
    private var completion: (any ResolverCompletion)?
    private(set) var asked = 0
    /// The answer that each look-up gets at once; nil: a look-up waits until the test calls `give`.
    var answer: ResolverOutcome?

    override func start(_ completion: any ResolverCompletion) {
      asked += 1
      self.completion = completion
      if let answer { give(answer) }
    }

    func give(_ outcome: ResolverOutcome) { completion?.resolved(outcome) }
  }

  static func addresses(_ ports: UInt16...) -> ResolverOutcome {
    .addresses(
      ports.map { port in
        let host = bytes("10.0.0.1")
        return SocketAddress(literal: host.view, port: port)!
      })
  }

  func client(
    _ target: String, _ world: World, _ change: @escaping (inout ChannelOptions) -> Void = { _ in }
  ) throws -> TestClient {
    try #require(
      TestClient(target, mode: .host, platform: world) { runtime in
        var options = ChannelOptions()
        options.tls = nil
        change(&options)
        let name = bytes(target)
        guard
          case .made(let made) = Channel.make(
            runtime: runtime, target: name.view, options: options, resolver: world.resolver)
        else { return nil }
        return made
      })
  }

  func call(_ client: TestClient, waits: Bool = false, deadline: UInt64 = 3600 * second) -> Answer {
    client.unary("/a.B/C", [7]) {
      $0.waitsForReady = waits
      $0.deadline = deadline
    }
  }

  /// Runs the loop until `nanoseconds` of simulated time have passed.
  func pass(_ nanoseconds: UInt64, _ client: TestClient, _ world: World) {
    let until = world.time + nanoseconds
    while world.time < until {
      _ = client.runtime.runtime.poll(
        timeoutMilliseconds: Int64(max((until - world.time) / Self.millisecond, 1)))
    }
  }

  // MARK: Addresses

  /// RFC 8305 section 5: the channel tries the next address in parallel after 250 ms, or at once if the
  /// attempt to the address before it has failed.
  @Test func aSilentAddressCostsAQuarterOfASecond() throws {
    let world = World()
    world.servers[1] = { _, _ in }
    world.servers[2] = { _, socket in socket.end() }
    world.servers[4] = SimulationTests.echo
    let client = try client("ipv4:10.0.0.1:1,10.0.0.1:2,10.0.0.1:3,10.0.0.1:4", world)
    let before = world.time
    #expect(call(client).message == [7])
    #expect(world.connects == 4)
    #expect(world.time - before == 250 * Self.millisecond)
    // The channel has given up the attempt to the silent address, so only one connection exists.
    #expect(call(client).message == [7])
    #expect(world.connects == 4)
  }

  @Test func onlySilentAddresses() throws {
    let world = World()
    world.servers[1] = { _, _ in }
    let client = try client("ipv4:10.0.0.1:1,10.0.0.2:1", world) { $0.connectTimeout = 2 * Self.second }
    let before = world.time
    let answer = call(client)
    #expect(
      answer.words == "could not connect to ipv4:10.0.0.1:1,10.0.0.2:1: "
        + "10.0.0.1:1: connect timeout: the peer does not answer with HTTP/2; "
        + "10.0.0.2:1: connect timeout: the peer does not answer with HTTP/2; next attempt in 0 ms")
    #expect(world.time - before == 2250 * Self.millisecond)
  }

  @Test func familiesInTurn() throws {
    func endpoint(_ text: String) throws -> Endpoint {
      let host = bytes(text)
      return Endpoint(try #require(SocketAddress(literal: host.view, port: 1)))
    }
    let list = try ["::1", "::2", "::3", "1.1.1.1", "1.1.1.2"].map(endpoint)
    let texts = Endpoint.interleaved(list).map { String(decoding: $0.address.text(), as: UTF8.self) }
    #expect(texts == ["[::1]:1", "1.1.1.1:1", "[::2]:1", "1.1.1.2:1", "[::3]:1"])
    #expect(Endpoint.interleaved([]).isEmpty)
    #expect(list[0].address == (try endpoint("::1")).address && list[0].address != list[1].address)
  }

  // MARK: Back-off

  @Test func attemptsAreFurtherAndFurtherApart() throws {
    let world = World()
    let client = try client("ipv4:10.0.0.1:80", world)
    let answer = call(client, waits: true, deadline: 100 * Self.second)
    #expect(answer.code == .deadlineExceeded)
    // The channel attempts to connect at 0, 1, 2.6, 5.16, 9.26, 15.8, 26.3, 43.1 and 69.9 s.
    #expect(world.connects == 9)
  }

  @Test func callsDoNotConnectWhereItWaits() throws {
    let world = World()
    let client = try client("ipv4:10.0.0.1:80", world)
    let before = world.time
    let first = "could not connect to ipv4:10.0.0.1:80: Connection refused; next attempt in "
    for _ in 0..<1000 { #expect(call(client).words == first + "1000 ms") }
    #expect(world.connects == 1 && world.time == before)
    pass(600 * Self.millisecond, client, world)
    #expect(call(client).words == first + "400 ms")
    pass(500 * Self.millisecond, client, world)
    #expect(world.connects == 2)
    #expect(
      call(client).words
        == "could not connect to ipv4:10.0.0.1:80: Connection refused; failed 2 times; next attempt in 1500 ms"
    )
    #expect(call(client).code == .unavailable)
  }

  @Test func aCallWaitsForTheServer() throws {
    let world = World()
    let client = try client("ipv4:10.0.0.1:80", world)
    world.after(10 * Self.second) { world.servers[80] = SimulationTests.echo }
    let before = world.time
    let answer = call(client, waits: true)
    #expect(answer.message == [7])
    // The sixth attempt succeeds, 15.81 s after the first attempt.
    #expect((15_809...15_811).contains((world.time - before) / Self.millisecond))
    #expect(world.connects == 6)
  }

  @Test func waitsAreAsAsked() throws {
    let world = World()
    let client = try client("ipv4:10.0.0.1:80", world) {
      $0.backoff.initial = 10 * Self.millisecond
      $0.backoff.most = 20 * Self.millisecond
      $0.backoff.multiplier = 2
    }
    _ = call(client, waits: true, deadline: 100 * Self.millisecond)
    // The channel attempts to connect at 0, 10, 30, 50, 70 and 90 ms.
    #expect(world.connects == 6)
  }

  // MARK: A connection that goes

  @Test func aLostConnectionIsMadeAgainAtOnce() throws {
    let world = World()
    var sockets: [SimulatedSocket] = []
    world.servers[80] = { said, socket in
      if !socket.hasBegun { sockets.append(socket) }
      SimulationTests.echo(said, socket)
    }
    let client = try client("ipv4:10.0.0.1:80", world)
    #expect(call(client).message == [7])
    sockets[0].end()
    pass(Self.millisecond, client, world)
    #expect(world.connects == 2)
    // No call has used the second connection. So the channel makes no new connection when the second
    // connection ends; the next call makes it.
    sockets[1].end()
    pass(Self.second, client, world)
    #expect(world.connects == 2)
    #expect(call(client).message == [7])
    #expect(world.connects == 3)
  }

  /// A server that ends and is back 140 ms later is found at the next attempt, 150 ms after the end.
  @Test func aRestartedServerIsFoundSoon() throws {
    let world = World()
    var socket: SimulatedSocket?
    world.servers[80] = {
      socket = $1
      SimulationTests.echo($0, $1)
    }
    let client = try client("ipv4:10.0.0.1:80", world)
    #expect(call(client).message == [7])
    let before = world.time
    world.servers[80] = nil
    world.after(140 * Self.millisecond) { world.servers[80] = SimulationTests.echo }
    socket?.end()
    pass(Self.millisecond, client, world)
    #expect(client.channel.connectivity == .transientFailure && world.connects == 2)
    #expect(call(client, waits: true).message == [7])
    #expect((149...152).contains((world.time - before) / Self.millisecond))
    // The channel has connected at 0, 50 and 150 ms.
    #expect(world.connects == 4)
  }

  @Test func itRestsWithoutCalls() throws {
    let world = World()
    world.servers[80] = SimulationTests.echo
    let client = try client("ipv4:10.0.0.1:80", world) { $0.idleTimeout = 60 * Self.second }
    #expect(call(client).message == [7])
    pass(50 * Self.second, client, world)
    #expect(call(client).message == [7])
    pass(50 * Self.second, client, world)
    #expect(client.channel.connectivity == .ready && world.connects == 1)
    pass(20 * Self.second, client, world)
    #expect(client.channel.connectivity == .idle)
    #expect(call(client).message == [7] && world.connects == 2)
  }

  /// The channel looks the name up again for each new connection. So it finds new servers while the old
  /// servers still run.
  @Test func anOldConnectionIsReplaced() throws {
    let world = World()
    let names = Answers()
    names.answer = Self.addresses(1)
    world.resolver = names
    world.servers[1] = SimulationTests.echo
    world.servers[2] = SimulationTests.echo
    let client = try client("names.test", world) { $0.maxConnectionAge = 100 * Self.second }
    #expect(call(client).message == [7])
    let running = client.make("/a.B/C", .bidi) { $0.deadline = 3600 * Self.second }
    running.open(buffer([7]))
    names.answer = Self.addresses(2, 1)
    // The age limit has jitter, so the connection is replaced at some time between 90 s and 110 s.
    pass(80 * Self.second, client, world)
    #expect(world.connects == 1)
    pass(35 * Self.second, client, world)
    #expect(call(client).message == [7])
    #expect(world.connects == 2 && names.asked == 2)
    // The call on the old connection must continue.
    #expect(!running.call.isEnded)
    running.cancel(bytes("no").view)
  }

  // MARK: Names

  @Test func anAddressThatIsNotThereAnyMoreIsLeft() throws {
    let world = World()
    let names = Answers()
    names.answer = Self.addresses(1, 2)
    world.resolver = names
    world.servers[1] = SimulationTests.echo
    world.servers[2] = SimulationTests.echo
    let client = try client("names.test", world)
    #expect(call(client).message == [7] && world.connects == 1)
    names.give(Self.addresses(3, 1))
    pass(Self.millisecond, client, world)
    #expect(call(client).message == [7] && world.connects == 1)
    names.give(Self.addresses(2))
    pass(Self.millisecond, client, world)
    #expect(call(client).message == [7] && world.connects == 2)
  }

  @Test func aNameIsLookedUpAgainAfterAFailure() throws {
    let world = World()
    let names = Answers()
    names.answer = .failed(Array("no such name".utf8))
    world.resolver = names
    world.servers[1] = SimulationTests.echo
    let client = try client("names.test", world)
    #expect(call(client).words == "the name of names.test does not resolve: no such name")
    #expect(call(client).code == .unavailable)
    #expect(names.asked == 1)
    world.after(3 * Self.second) { names.answer = Self.addresses(1) }
    #expect(call(client, waits: true).message == [7])
    // The channel looks the name up at 0, 1, 2.6 and 5.16 s.
    #expect(names.asked == 4)
  }

  @Test func aNameKeepsItsLastGoodAddresses() throws {
    let world = World()
    let names = Answers()
    names.answer = Self.addresses(1)
    world.resolver = names
    var socket: SimulatedSocket?
    world.servers[1] = {
      socket = $1
      SimulationTests.echo($0, $1)
    }
    let client = try client("names.test", world)
    #expect(call(client).message == [7])
    names.answer = .failed(Array("gone".utf8))
    pass(40 * Self.second, client, world)
    socket?.end()
    pass(Self.second, client, world)
    #expect(names.asked >= 2)
    #expect(call(client).message == [7] && world.connects == 2)
  }

  @Test func lookUpsAreNotMoreOftenThanAllowed() throws {
    let world = World()
    let names = Answers()
    names.answer = Self.addresses(1)
    world.resolver = names
    let client = try client("names.test", world)
    _ = call(client, waits: true, deadline: 100 * Self.second)
    // Nine attempts to connect fail. Each failure asks for a look-up, but look-ups are at least 30 s apart.
    #expect(names.asked == 4)
  }

  @Test func onAnInterval() throws {
    let world = World()
    let names = Answers()
    names.answer = Self.addresses(1)
    world.resolver = names
    world.servers[1] = SimulationTests.echo
    let client = try client("names.test", world) { $0.resolving.interval = 60 * Self.second }
    #expect(call(client).message == [7])
    pass(200 * Self.second, client, world)
    #expect(names.asked == 4 && world.connects == 1)
  }

  /// A look-up that the channel needs in order to connect begins before the end of a long minimum interval.
  @Test func beforeTheInterval() throws {
    let world = World()
    let names = Answers()
    names.answer = Self.addresses(1)
    world.resolver = names
    world.servers[2] = SimulationTests.echo
    let client = try client("names.test", world) { $0.resolving.interval = 3600 * Self.second }
    #expect(call(client).code == .unavailable)
    names.answer = Self.addresses(2)
    #expect(call(client, waits: true, deadline: 60 * Self.second).message == [7])
  }

  // MARK: Connections without use

  static let settings: [UInt8] = [0, 0, 0, 4, 0, 0, 0, 0, 0]
  static let goAway: [UInt8] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]

  /// A simulated world with one server. The server calls `greet` for each connection, and does nothing else.
  func leaving(_ greet: @escaping (SimulatedSocket) -> Void) -> World {
    let world = World()
    world.delay = Self.millisecond
    world.servers[80] = { _, socket in
      if socket.hasBegun { return }
      socket.hasBegun = true
      greet(socket)
    }
    return world
  }

  /// A server sends GOAWAY at the beginning of each connection. The channel waits for back-off delays between
  /// its attempts, as after failures.
  @Test func aServerThatLeavesAtOnceIsNotAskedWithoutPause() throws {
    let world = leaving { $0.answer(Self.settings + Self.goAway) }
    let client = try client("ipv4:10.0.0.1:80", world)
    let answer = call(client, waits: true, deadline: 2 * Self.second)
    #expect(answer.code == .deadlineExceeded)
    #expect(world.connects < 10)
  }

  /// A server permits no streams (MAX_CONCURRENT_STREAMS 0), and ends each connection.
  @Test func aServerThatAllowsNoStreamsIsNotAskedWithoutPause() throws {
    let world = leaving {
      $0.answer([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0])
      $0.end()
    }
    let client = try client("ipv4:10.0.0.1:80", world)
    let answer = call(client, waits: true, deadline: 2 * Self.second)
    #expect(answer.code == .deadlineExceeded)
    #expect(world.connects < 10)
  }

  /// The servers at two addresses send GOAWAY at once. Each address has its own back-off delay, even if the
  /// other address connects during that delay.
  @Test func twoAddressesThatLeaveAtOnceAreNotAskedWithoutPause() throws {
    let world = leaving { $0.answer(Self.settings + Self.goAway) }
    let client = try client("ipv4:10.0.0.1:80,10.0.0.2:80", world)
    #expect(call(client).code == .unavailable)
    #expect(world.connects == 4)
    #expect(call(client, waits: true, deadline: 2 * Self.second).code == .deadlineExceeded)
    #expect(world.connects < 10)
  }

  @Test func aLostConnectionDoesNotWaitForTheName() throws {
    let world = World()
    let names = Answers()
    names.answer = Self.addresses(1)
    world.resolver = names
    var socket: SimulatedSocket?
    world.servers[1] = {
      socket = $1
      SimulationTests.echo($0, $1)
    }
    let client = try client("names.test", world)
    #expect(call(client).message == [7])
    pass(40 * Self.second, client, world)
    // From now on the resolver stays silent: it gives neither addresses nor an error.
    names.answer = nil
    socket?.end()
    pass(Self.millisecond, client, world)
    let before = world.time
    #expect(call(client).message == [7])
    #expect(world.time - before < Self.second)
  }

  /// A look-up has failed, and the channel has become IDLE. The next call looks the name up at once, without
  /// the back-off delay.
  @Test func aRestedChannelLooksUpItsNameAtOnce() throws {
    let world = World()
    let names = Answers()
    names.answer = .failed(Array("no such name".utf8))
    world.resolver = names
    world.servers[1] = SimulationTests.echo
    let client = try client("names.test", world) {
      $0.backoff.initial = 60 * Self.second
      $0.idleTimeout = 5 * Self.second
    }
    #expect(call(client).code == .unavailable)
    pass(10 * Self.second, client, world)
    #expect(client.channel.connectivity == .idle)
    names.answer = Self.addresses(1)
    let before = world.time
    #expect(call(client).message == [7])
    #expect(world.time - before < Self.second)
  }

  @Test func newAddressesInTheMiddleOfAPass() throws {
    let world = World()
    let names = Answers()
    names.answer = Self.addresses(1, 2)
    world.resolver = names
    world.servers[1] = { _, _ in }
    world.servers[2] = { _, _ in }
    world.servers[3] = SimulationTests.echo
    let client = try client("names.test", world) { $0.connectTimeout = 2 * Self.second }
    world.after(100 * Self.millisecond) { names.give(Self.addresses(3, 2, 1)) }
    #expect(call(client).message == [7])
    // While a channel fails to connect, it gets a new address that works, and uses it at once.
    let other = World()
    let more = Answers()
    more.answer = Self.addresses(9)
    other.resolver = more
    other.servers[3] = SimulationTests.echo
    let second = try self.client("names.test", other)
    #expect(call(second).code == .unavailable)
    more.give(Self.addresses(9, 3))
    pass(Self.millisecond, second, other)
    #expect(call(second).message == [7])
  }

  @Test(
    arguments: [
      (0, 0), (1, 1), (99, 99), (100, 100), (101, 110), (990, 990), (991, 1000), (1000, 1000), (1001, 1100),
      (1005, 1100),
      (12_345, 13_000),
    ] as [(UInt64, UInt64)])
  func theWaitHasTwoDigits(_ exact: UInt64, _ shown: UInt64) {
    #expect(ConnectReport.wait(5 + exact * 1_000_000, 5) == shown)
    #expect(ConnectReport.wait(5, 6) == 0)
  }
}
