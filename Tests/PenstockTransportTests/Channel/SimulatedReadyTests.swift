import PenstockCall
import PenstockChannel
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockClient
@testable import PenstockLoop
@testable import PenstockReady
@testable import PenstockTransport

/// Tests of ready-made interceptors in a simulated world: their times are the world's, so hours pass in no time.
@Suite(.timeLimit(.minutes(15))) struct SimulatedReadyTests {
  static let second = SimulationTests.second
  static let hour = 3600 * second

  final class Setting {
    let world = World()
    let client: TestClient

    init(_ interceptor: ReadyInterceptor) throws {
      world.servers[80] = SimulationTests.echo
      client = try SimulationTests().client("ipv4:10.0.0.1:80", world)
      interceptor.retainForTable()
      let data = UserData(interceptor.toOpaque(), ReadyInterceptor.finalize)
      let name = terminated(bytes("ready"))
      let id = Registrations.begin(data, name, of: client.channel.registrations)
      let registration = Registration(
        id: id, name: name, filter: CallFilter().methods, kinds: interceptor.kinds, holdBytes: 65536,
        userData: data,
        callbacks: interceptor.callbacks, replayBytes: interceptor.replayBytes)
      try #require(client.channel.add(registration, priority: 0) == .ok)
    }

    var answered: Int { world.sockets.values.reduce(0) { $0 + $1.answered } }

    func call() -> StatusCode {
      client.unary("/a.B/C", [1]) { $0.deadline = SimulatedReadyTests.hour }.code
    }

    /// Lets simulated time pass, in which nothing else happens.
    func pass(_ time: UInt64) { while world.goOn(atMost: time) {} }
  }

  @Test func aCachedResponseLivesByTheWorldsClock() throws {
    var options = ResponseCache.Options()
    options.timeToLive = Self.hour
    let setting = try Setting(ResponseCache(options))
    #expect(setting.call() == .ok && setting.answered == 1)
    setting.pass(Self.hour - Self.second)
    #expect(setting.call() == .ok && setting.answered == 1)
    setting.pass(Self.second)
    #expect(setting.call() == .ok && setting.answered == 2)
  }

  @Test func aCallWaitsForItsTurnByTheWorldsClock() throws {
    var options = RateLimit.Options()
    options.interval = 600 * Self.second
    options.maxWait = 1200 * Self.second
    let setting = try Setting(RateLimit(options))
    let began = setting.world.time
    #expect(setting.call() == .ok)
    #expect(setting.world.time == began)
    #expect(setting.call() == .ok)
    #expect(setting.world.time - began == 600 * Self.second)
    setting.pass(600 * Self.second)
    #expect(setting.call() == .ok)
    #expect(setting.world.time - began == 1200 * Self.second)
  }

  /// Answers each request for a token at once, with one that lives for an hour.
  final class Source {
    var asked = 0
  }

  @Test func aTokenIsRefreshedByTheWorldsClock() throws {
    let source = Source()
    let data = UserData(Unmanaged.passUnretained(source).toOpaque(), nil)
    var options = BearerToken.Options()
    options.header = bytes("authorization")
    options.prefix = bytes("Bearer ")
    options.refreshEarly = 600 * Self.second
    options.allowsCleartext = true
    let token = BearerToken(
      options,
      { request, _, pointer in
        Unmanaged<Source>.fromOpaque(pointer!).takeUnretainedValue().asked += 1
        let text = bytes("token")
        let outcome = withExtendedLifetime(text) {
          TokenRequests.complete(request, text.view, lifetime: SimulatedReadyTests.hour)
        }
        must(outcome == .ok, "the answer is \(outcome)")
      }, data)
    let setting = try Setting(token)
    #expect(setting.call() == .ok && source.asked == 1)
    // A token is renewed ten minutes before its hour is over.
    setting.pass(3000 * Self.second - 1)
    #expect(setting.call() == .ok && source.asked == 1)
    setting.pass(1)
    #expect(setting.call() == .ok && source.asked == 2)
    // The old token is over, and so is the one that replaced it.
    setting.pass(2 * Self.hour)
    #expect(setting.call() == .ok && source.asked == 3)
    withExtendedLifetime(source) {}
  }
}
