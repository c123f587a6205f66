import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockClient
@testable import PenstockTransport

/// Tests of the connection event `silent`, in a channel without keepalive and a simulated world whose clock
/// advances only when the loop sleeps.
@Suite(.timeLimit(.minutes(15))) struct SilenceTests {
  static let second = SimulationTests.second

  let world = World()
  let rest = ReconnectTests()

  final class Listener: NewsListeners {
    let world: World
    /// The times at which silence was reported.
    var times: [UInt64] = []

    init(_ world: World) { self.world = world }

    override var isAnybody: Bool { true }
    override func tell(_ news: ConnectionNews) { if news.kind == .silent { times.append(world.time) } }
  }

  /// Time without calls does not count as silence. Silence is reported only when a call has waited for the
  /// whole time.
  @Test func idleTimeDoesNotCount() throws {
    var answers = true
    world.servers[1] = { said, socket in
      SimulationTests.answer(said, socket) { stream, payload in
        guard answers else { return [] }
        return Frame.head(stream).encoded + Frame.data(stream, payload).encoded
          + Frame.trailers(stream).encoded
      }
    }
    let client = try rest.client("ipv4:10.0.0.1:1", world) { $0.silence = 30 * Self.second }
    let listener = Listener(world)
    client.channel.transport.core.listeners = listener
    for _ in 0..<5 {
      #expect(rest.call(client).message == [7])
      rest.pass(1000 * Self.second, client, world)
    }
    #expect(listener.times.isEmpty)
    answers = false
    let began = world.time
    #expect(rest.call(client, deadline: 100 * Self.second).code == .deadlineExceeded)
    #expect(listener.times.map { ($0 &- began) / Self.second } == [30, 60, 90])
  }
  /// A health check has a stream for the whole life of the connection, but does not count as a call.
  @Test func aHealthCheckIsNoCall() throws {
    let health = HealthTests()
    let server = health.server(1, HealthTests.serving)
    let client = try health.client(1) { $0.silence = 30 * Self.second }
    let listener = Listener(health.world)
    client.channel.transport.core.listeners = listener
    for _ in 0..<3 {
      #expect(health.call(client, 1, server) == [1])
      health.pass(1000, client)
    }
    #expect(listener.times.isEmpty && health.world.connects == 1)
    server.holds = true
    let began = health.world.time
    #expect(rest.call(client, deadline: 70 * Self.second).code == .deadlineExceeded)
    #expect(listener.times.map { ($0 &- began) / Self.second } == [30, 60])
  }
}
