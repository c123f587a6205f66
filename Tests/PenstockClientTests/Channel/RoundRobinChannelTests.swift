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

/// Tests of a channel with round_robin, in a simulated world whose clock advances only when the loop sleeps.
@Suite(.timeLimit(.minutes(15))) struct RoundRobinChannelTests {
  static let second = SimulationTests.second

  let world = World()
  let names = ReconnectTests.Answers()
  let rest = ReconnectTests()

  /// Servers that count their calls, by port.
  final class Counts {
    var calls: [UInt16: Int] = [:]
    var sockets: [UInt16: SimulatedSocket] = [:]
  }

  let counts = Counts()

  func serve(_ ports: UInt16...) {
    for port in ports {
      world.servers[port] = { [counts] said, socket in
        if !socket.hasBegun { counts.sockets[port] = socket }
        let before = socket.answered
        SimulationTests.echo(said, socket)
        let more = socket.answered - before
        if more > 0 { counts.calls[port, default: 0] += more }
      }
    }
  }

  func client(_ policy: BalancerConfig.Policy = .roundRobin) throws -> TestClient {
    world.resolver = names
    return try rest.client("names.test", world) {
      $0.service.balancing.policy = policy
    }
  }

  func call(_ client: TestClient, _ times: Int) {
    counts.calls = [:]
    for _ in 0..<times { #expect(rest.call(client).message == [7]) }
  }

  @Test func eachGetsItsShare() throws {
    serve(1, 2, 3)
    names.answer = ReconnectTests.addresses(1, 2, 3)
    let client = try client()
    #expect(rest.call(client).message == [7])
    rest.pass(Self.second, client, world)
    #expect(world.connects == 3 && client.channel.connectivity == .ready)
    call(client, 30)
    #expect(counts.calls == [1: 10, 2: 10, 3: 10])
  }

  /// A server stops and comes back. While it is away, it gets no calls and the channel tries to connect with
  /// back-off. Afterwards it gets its share of the calls again.
  @Test func aServerGoesAndComesBack() throws {
    serve(1, 2)
    names.answer = ReconnectTests.addresses(1, 2)
    let client = try client()
    #expect(rest.call(client).message == [7])
    rest.pass(Self.second, client, world)
    call(client, 2)
    world.servers[2] = nil
    counts.sockets[2]?.end()
    rest.pass(Self.second / 10, client, world)
    call(client, 10)
    #expect(counts.calls == [1: 10])
    serve(2)
    rest.pass(2 * Self.second, client, world)
    call(client, 10)
    #expect(counts.calls == [1: 5, 2: 5])
  }

  /// When the addresses change, the channel connects to the new ones and leaves the old ones. An address in
  /// both lists keeps its connection.
  @Test func theAddressesChange() throws {
    serve(1, 2, 3)
    names.answer = ReconnectTests.addresses(1, 2)
    let client = try client()
    #expect(rest.call(client).message == [7])
    rest.pass(Self.second, client, world)
    names.give(ReconnectTests.addresses(2, 3))
    rest.pass(Self.second, client, world)
    #expect(world.connects == 3)
    call(client, 10)
    #expect(counts.calls == [2: 5, 3: 5])
  }

  @Test func allServersAreGone() throws {
    names.answer = ReconnectTests.addresses(1, 2)
    let client = try client()
    let words = rest.call(client).words
    #expect(
      words.hasPrefix(
        "could not connect to names.test: 10.0.0.1:1: Connection refused; 10.0.0.1:2: Connection refused; next attempt in "
      ))
    #expect(client.channel.connectivity == .transientFailure && world.connects == 2)
    serve(2)
    #expect(rest.call(client, waits: true).message == [7])
    call(client, 4)
    #expect(counts.calls == [2: 4])
  }

  @Test func itRests() throws {
    serve(1, 2)
    names.answer = ReconnectTests.addresses(1, 2)
    world.resolver = names
    let client = try rest.client("names.test", world) {
      $0.service.balancing.policy = .roundRobin
      $0.idleTimeout = 5 * Self.second
    }
    #expect(rest.call(client).message == [7])
    rest.pass(20 * Self.second, client, world)
    #expect(client.channel.connectivity == .idle)
    #expect(rest.call(client).message == [7])
  }

  // MARK: Outliers

  /// Outlier detection: a server that answers each call with UNAVAILABLE gets no calls for some time, and
  /// then gets its share again.
  @Test func aServerThatFailsIsLeftOut() throws {
    serve(1, 2)
    world.servers[3] = { said, socket in
      SimulationTests.answer(said, socket) { stream, _ in
        Frame.head(stream).encoded + Frame.trailers(stream, "14").encoded
      }
    }
    names.answer = ReconnectTests.addresses(1, 2, 3)
    world.resolver = names
    let client = try rest.client("names.test", world) {
      $0.service.balancing.policy = .roundRobin
      var outliers = OutlierDetection()
      outliers.failurePercentage = .init()
      outliers.failurePercentage?.leastEndpoints = 2
      outliers.failurePercentage?.leastCalls = 5
      $0.service.balancing.outliers = outliers
    }
    func codes(_ count: Int) -> [StatusCode] { (0..<count).map { _ in rest.call(client).code } }
    _ = rest.call(client)
    rest.pass(Self.second, client, world)
    #expect(codes(30).filter { $0 == .unavailable }.count == 10)
    rest.pass(10 * Self.second, client, world)
    #expect(codes(30).filter { $0 == .unavailable }.isEmpty)
    #expect(world.connects == 3)
    // After 30 s the server gets calls again. It fails them, and is then ejected for twice as long.
    rest.pass(40 * Self.second, client, world)
    #expect(codes(30).filter { $0 == .unavailable }.count == 10)
    rest.pass(10 * Self.second, client, world)
    #expect(codes(30).filter { $0 == .unavailable }.isEmpty)
    rest.pass(40 * Self.second, client, world)
    #expect(codes(30).filter { $0 == .unavailable }.isEmpty)
  }

  /// Requests that the server has certainly not processed (REFUSED_STREAM, a GOAWAY below the stream) do not count for
  /// outlier detection: the server refuses the first stream of each call, and is not left out.
  @Test(arguments: [false, true]) func aServerThatRefusesIsNotLeftOut(_ goesAway: Bool) throws {
    let count = Box(0)
    world.servers[1] = { said, socket in
      SimulationTests.answer(said, socket) { stream, _ in
        count.value += 1
        if count.value % 2 == 0 {
          return Frame.head(stream).encoded + Frame.data(stream, [0, 0, 0, 0, 1, 7]).encoded
            + Frame.trailers(stream).encoded
        }
        return (goesAway ? Frame.goAway(max(stream - 2, 0)) : Frame.reset(stream, 7)).encoded
      }
    }
    names.answer = ReconnectTests.addresses(1)
    world.resolver = names
    let client = try rest.client("names.test", world) {
      $0.service.balancing.policy = .roundRobin
      var outliers = OutlierDetection()
      outliers.failurePercentage = .init()
      outliers.failurePercentage?.threshold = 10
      outliers.failurePercentage?.leastEndpoints = 1
      outliers.failurePercentage?.leastCalls = 1
      outliers.mostEjected = 100
      $0.service.balancing.outliers = outliers
    }
    for _ in 0..<5 {
      for _ in 0..<10 { #expect(rest.call(client).code == .ok) }
      rest.pass(11 * Self.second, client, world)
    }
    #expect(count.value == 100)
  }

  /// When all servers fail, they stay in TRANSIENT_FAILURE while the channel tries them again, even if it
  /// also looks the name up again.
  @Test func failuresStay() throws {
    world.servers[1] = { _, _ in }
    world.servers[2] = { _, _ in }
    names.answer = ReconnectTests.addresses(1, 2)
    world.resolver = names
    let client = try rest.client("names.test", world) {
      $0.service.balancing.policy = .roundRobin
      $0.connectTimeout = 20 * Self.second
    }
    #expect(rest.call(client).code == .unavailable)
    for _ in 0..<20 {
      rest.pass(7 * Self.second, client, world)
      names.give(ReconnectTests.addresses(1, 2))
      let before = world.time
      #expect(rest.call(client).code == .unavailable)
      #expect(world.time == before)
    }
  }

  /// Even the only server may be ejected, if the configuration permits 100 %. The calls' error text then
  /// gives the reason for the ejection.
  @Test func allServersAreLeftOut() throws {
    world.servers[1] = { _, socket in
      if !socket.hasBegun { socket.answer(Frame.settings().encoded) }
      socket.hasBegun = true
    }
    names.answer = ReconnectTests.addresses(1)
    world.resolver = names
    let client = try rest.client("names.test", world) {
      $0.service.balancing.policy = .roundRobin
      var outliers = OutlierDetection()
      outliers.failurePercentage = .init()
      outliers.failurePercentage?.leastEndpoints = 1
      outliers.failurePercentage?.leastCalls = 1
      outliers.mostEjected = 100
      $0.service.balancing.outliers = outliers
    }
    // The server never answers, so the calls end at their deadlines, which count as failures of the server.
    #expect(rest.call(client, deadline: Self.second).code == .deadlineExceeded)
    rest.pass(10 * Self.second, client, world)
    let answer = rest.call(client, deadline: Self.second)
    #expect(answer.code == .unavailable)
    #expect(
      answer.words == "could not connect to names.test: 10.0.0.1:1: its calls have failed (outlier detection)"
    )
    rest.pass(40 * Self.second, client, world)
    #expect(rest.call(client, deadline: Self.second).code == .deadlineExceeded)
  }

  /// pick_first with shuffleAddressList: several clients must not all choose the first address.
  @Test func addressesAreShuffled() throws {
    serve(1, 2, 3, 4)
    names.answer = ReconnectTests.addresses(1, 2, 3, 4)
    var random = SystemRandomNumberGenerator()
    world.randoms = { random.next() }
    for _ in 0..<100 {
      let client = try client(.pickFirst(shuffles: true))
      #expect(rest.call(client).message == [7])
    }
    #expect(counts.calls.count == 4, "\(counts.calls)")
  }
}
