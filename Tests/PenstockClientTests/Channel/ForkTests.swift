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

/// Tests of a channel in a forked child. They need no real fork: they call the functions of the forked child
/// in their own process. That is possible because the runtime is host-driven and no thread drives it then.
@Suite(.timeLimit(.minutes(15))) struct ForkTests {
  private static let second = SimulationTests.second
  private static let millisecond: UInt64 = 1_000_000

  private let world = World()
  private let helper = ReconnectTests()

  /// The server's connections, and the number of bytes that it has received on each.
  private final class Log {
    var sockets: [SimulatedSocket] = []
    var bytes: [Int] = []

    func server(_ answer: @escaping World.Server) -> World.Server {
      { said, socket in
        if !self.sockets.contains(where: { $0 === socket }) {
          self.sockets.append(socket)
          self.bytes.append(0)
        }
        self.bytes[self.sockets.firstIndex { $0 === socket }!] += said.count
        answer(said, socket)
      }
    }
  }

  /// Runs several turns of the loop, for all work that is due now.
  private func settle(_ client: TestClient) {
    for _ in 0..<10 { client.turn() }
  }

  private func fork(_ client: TestClient) {
    client.runtime.runtime.becomeChild()
    client.runtime.runtime.goOnInChild()
  }

  @Test func aCallUnderWayEndsAndTheNextOneConnects() throws {
    let log = Log()
    // The server sends its SETTINGS, but answers no request.
    world.servers[80] = log.server { said, socket in
      if !socket.hasBegun { SimulationTests.echo(Array(said.prefix(24)), socket) }
    }
    let client = try helper.client("ipv4:10.0.0.1:80", world)
    let call = client.make("/a.B/C", .unary) { $0.deadline = 3600 * Self.second }
    call.open(buffer([1]))
    helper.pass(Self.second, client, world)
    #expect(call.ended == nil && log.bytes.count == 1)
    let said = log.bytes[0]
    fork(client)
    // The call ends only when a thread drives the loop.
    #expect(call.ended == nil && client.channel.connectivity == .idle)
    settle(client)
    #expect(call.ended != nil)
    let answer = Answer(try #require(call.finish().1))
    #expect(answer.code == .cancelled)
    #expect(answer.words == "the process was forked: the call is its parent's")
    #expect(world.connects == 1)
    world.servers[80] = log.server(SimulationTests.echo)
    #expect(helper.call(client).message == [7])
    #expect(world.connects == 2 && log.bytes[0] == said)
    // Later calls in the child use the child's new connection.
    #expect(helper.call(client).message == [7] && world.connects == 2)
  }

  @Test func aCallThatHasNotBegunEndsToo() throws {
    world.servers[80] = SimulationTests.echo
    let client = try helper.client("ipv4:10.0.0.1:80", world)
    #expect(helper.call(client).message == [7])
    let call = client.make("/a.B/C", .unary)
    call.open(buffer([1]))
    fork(client)
    settle(client)
    #expect(Answer(try #require(call.finish().1)).code == .cancelled)
    #expect(helper.call(client).message == [7] && world.connects == 2)
  }

  /// The parent waits for a back-off delay after a failure. The child connects at once, and does not run the
  /// parent's timers.
  @Test func itConnectsAtOnceWhereTheParentWaits() throws {
    let client = try helper.client("ipv4:10.0.0.1:80", world)
    let call = client.make("/a.B/C", .unary) {
      $0.waitsForReady = true
      $0.deadline = 3600 * Self.second
    }
    call.open(buffer([1]))
    helper.pass(20 * Self.second, client, world)
    let before = world.connects
    #expect(before == 6 && client.channel.connectivity == .transientFailure)
    fork(client)
    helper.pass(100 * Self.second, client, world)
    #expect(world.connects == before && client.channel.connectivity == .idle)
    #expect(Answer(try #require(call.finish().1)).code == .cancelled)
    world.servers[80] = SimulationTests.echo
    let time = world.time
    #expect(helper.call(client).message == [7])
    #expect(world.connects == before + 1 && world.time == time)
  }

  @Test func aConnectionThatIsBeingMadeIsGivenUp() throws {
    world.servers[80] = { _, _ in }
    let client = try helper.client("ipv4:10.0.0.1:80", world)
    #expect(client.channel.connect() == .ok)
    settle(client)
    #expect(client.channel.connectivity == .connecting && world.connects == 1)
    fork(client)
    #expect(client.channel.connectivity == .idle)
    helper.pass(100 * Self.second, client, world)
    #expect(client.channel.connectivity == .idle && world.connects == 1)
    world.servers[80] = SimulationTests.echo
    #expect(helper.call(client).message == [7] && world.connects == 2)
  }

  /// In the parent, the channel has a connection, but no call was made on it.
  @Test func aChannelThatConnectedWithoutACall() throws {
    world.servers[80] = SimulationTests.echo
    let client = try helper.client("ipv4:10.0.0.1:80", world)
    #expect(client.channel.connect() == .ok)
    helper.pass(Self.millisecond, client, world)
    #expect(client.channel.connectivity == .ready)
    fork(client)
    settle(client)
    #expect(client.channel.connectivity == .idle && world.connects == 1)
    #expect(client.channel.connect() == .ok)
    helper.pass(Self.millisecond, client, world)
    #expect(client.channel.connectivity == .ready && world.connects == 2)
  }

  // MARK: Names

  /// The addresses that the parent has looked up serve the child's first call, while the child's own look-up
  /// is under way.
  @Test func theParentsAddressesServeUntilTheNameIsLookedUp() throws {
    let names = ReconnectTests.Answers()
    names.answer = ReconnectTests.addresses(1)
    world.resolver = names
    world.servers[1] = SimulationTests.echo
    let client = try helper.client("names.test", world)
    #expect(helper.call(client).message == [7] && names.asked == 1)
    names.answer = nil
    fork(client)
    // The child begins its look-up at once. The parent would have waited 30 s between two look-ups.
    #expect(helper.call(client).message == [7])
    #expect(names.asked == 2 && world.connects == 2)
    world.servers[2] = SimulationTests.echo
    names.give(ReconnectTests.addresses(2))
    #expect(helper.call(client).message == [7] && world.connects == 3)
  }

  @Test func aLookUpUnderWayIsMadeAgain() throws {
    let names = ReconnectTests.Answers()
    world.resolver = names
    world.servers[1] = SimulationTests.echo
    let client = try helper.client("names.test", world)
    let call = client.make("/a.B/C", .unary)
    call.open(buffer([1]))
    settle(client)
    #expect(names.asked == 1 && client.channel.connectivity == .connecting)
    fork(client)
    // The time limit of the parent's look-up must have no effect in the child.
    helper.pass(60 * Self.second, client, world)
    #expect(Answer(try #require(call.finish().1)).code == .cancelled)
    #expect(names.asked == 1 && client.channel.connectivity == .idle)
    names.answer = ReconnectTests.addresses(1)
    #expect(helper.call(client).message == [7] && names.asked == 2)
  }

  // MARK: Timers

  @Test func theIdleTimeoutBeginsAnew() throws {
    world.servers[80] = SimulationTests.echo
    let client = try helper.client("ipv4:10.0.0.1:80", world) { $0.idleTimeout = 60 * Self.second }
    #expect(helper.call(client).message == [7])
    helper.pass(50 * Self.second, client, world)
    fork(client)
    #expect(helper.call(client).message == [7] && world.connects == 2)
    helper.pass(50 * Self.second, client, world)
    #expect(client.channel.connectivity == .ready)
    helper.pass(20 * Self.second, client, world)
    #expect(client.channel.connectivity == .idle && world.connects == 2)
  }

  /// In the child the keepalive timer of the parent's connection must neither ping that connection nor
  /// declare it dead.
  @Test func keepaliveIsThatOfTheChildsConnection() throws {
    let log = Log()
    world.servers[80] = log.server(SimulationTests.echo)
    let client = try helper.client("ipv4:10.0.0.1:80", world) {
      $0.keepaliveTime = 10 * Self.second
      $0.keepaliveWithoutCalls = true
    }
    #expect(helper.call(client).message == [7])
    helper.pass(5 * Self.second, client, world)
    let said = log.bytes[0]
    fork(client)
    helper.pass(100 * Self.second, client, world)
    #expect(log.bytes == [said] && client.channel.connectivity == .idle)
    #expect(helper.call(client).message == [7] && world.connects == 2)
    let begun = log.bytes[1]
    helper.pass(11 * Self.second, client, world)
    #expect(log.bytes[0] == said && log.bytes[1] == begun + 17)
  }

  // MARK: Several servers

  @Test func callsAreSpreadAsInTheParent() throws {
    let servers = RoundRobinChannelTests()
    servers.serve(1, 2, 3)
    servers.names.answer = ReconnectTests.addresses(1, 2, 3)
    let client = try servers.client()
    servers.call(client, 1)
    helper.pass(Self.second, client, servers.world)
    #expect(servers.world.connects == 3)
    fork(client)
    #expect(client.channel.connectivity == .idle)
    servers.call(client, 1)
    helper.pass(Self.second, client, servers.world)
    #expect(servers.world.connects == 6 && client.channel.connectivity == .ready)
    servers.call(client, 30)
    #expect(servers.counts.calls == [1: 10, 2: 10, 3: 10])
  }

  // MARK: The end

  @Test func itClosesAsEver() throws {
    world.servers[80] = SimulationTests.echo
    let client = try helper.client("ipv4:10.0.0.1:80", world)
    #expect(helper.call(client).message == [7])
    fork(client)
    #expect(client.channel.close() == .ok)
    settle(client)
    #expect(client.channel.connectivity == .shutdown && world.connects == 1)
    #expect(client.runtime.shutdown(timeoutMilliseconds: 10_000) == .ok)
  }

  @Test func severalTimes() throws {
    world.servers[80] = SimulationTests.echo
    let client = try helper.client("ipv4:10.0.0.1:80", world)
    for count in 1...5 {
      #expect(helper.call(client).message == [7] && world.connects == count)
      fork(client)
      // A second fork must work even if no thread has driven the loop since the first fork.
      fork(client)
    }
  }
}
