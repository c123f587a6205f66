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

    convenience init(_ interceptor: ReadyInterceptor) throws { try self.init { _ in interceptor } }

    /// `make`: makes the interceptor once there is a runtime.
    init(_ make: (TestClient) throws -> ReadyInterceptor) throws {
      world.servers[80] = SimulationTests.echo
      client = try SimulationTests().client("ipv4:10.0.0.1:80", world)
      let interceptor = try make(client)
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

    /// Makes a call; gives its code and its message.
    func answer() -> (StatusCode, String) {
      let answer = client.unary("/a.B/C", [1]) { $0.deadline = SimulatedReadyTests.hour }
      return (answer.code, answer.words)
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
    /// The number of the request for which there is no token; 0: there always is one.
    var failsAt = 0
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

  /// A token of an hour whose source says when it is asked for, and what it answers.
  private func token(_ source: Source, refreshEarly: UInt64) -> BearerToken {
    let data = UserData(Unmanaged.passUnretained(source).toOpaque(), nil)
    var options = BearerToken.Options()
    options.header = bytes("authorization")
    options.prefix = bytes("Bearer ")
    options.refreshEarly = refreshEarly
    options.allowsCleartext = true
    return BearerToken(
      options,
      { request, _, pointer in
        let source = Unmanaged<Source>.fromOpaque(pointer!).takeUnretainedValue()
        source.asked += 1
        let text = bytes("token")
        let outcome = withExtendedLifetime(text) {
          source.asked == source.failsAt
            ? TokenRequests.fail(request, Status(.unavailable, "no token"))
            : TokenRequests.complete(request, text.view, lifetime: SimulatedReadyTests.hour)
        }
        must(outcome == .ok, "the answer is \(outcome)")
      }, data)
  }

  @Test func aTokenIsUsedUntilItsLastMoment() throws {
    let source = Source()
    let setting = try Setting(token(source, refreshEarly: 0))
    #expect(setting.call() == .ok && source.asked == 1)
    setting.pass(Self.hour - 1)
    #expect(setting.call() == .ok && source.asked == 1)
    setting.pass(1)
    #expect(setting.call() == .ok && source.asked == 2)
    withExtendedLifetime(source) {}
  }

  @Test func aTokenIsRenewedAtHalfOfItsLifeAtTheEarliest() throws {
    let source = Source()
    let setting = try Setting(token(source, refreshEarly: 2 * Self.hour))
    #expect(setting.call() == .ok && source.asked == 1)
    setting.pass(1800 * Self.second - 1)
    #expect(setting.call() == .ok && source.asked == 1)
    setting.pass(1)
    #expect(setting.call() == .ok && source.asked == 2)
    withExtendedLifetime(source) {}
  }

  @Test func aRenewalThatFailsIsTriedAgainAfterASecond() throws {
    let source = Source()
    source.failsAt = 2
    let setting = try Setting(token(source, refreshEarly: 600 * Self.second))
    #expect(setting.call() == .ok && source.asked == 1)
    setting.pass(3000 * Self.second)
    #expect(setting.call() == .ok && source.asked == 2)
    setting.pass(Self.second - 1)
    #expect(setting.call() == .ok && source.asked == 2)
    setting.pass(1)
    #expect(setting.call() == .ok && source.asked == 3)
    #expect(setting.call() == .ok && source.asked == 3)
    withExtendedLifetime(source) {}
  }

  @Test func theRateLimitRefusesAWaitThatIsTooLong() throws {
    var options = RateLimit.Options()
    options.interval = 600 * Self.second
    options.burst = 3
    options.maxWait = 100 * Self.second
    let setting = try Setting(RateLimit(options))
    let began = setting.world.time
    for _ in 0..<3 { #expect(setting.call() == .ok && setting.world.time == began) }
    let (code, words) = setting.answer()
    #expect(code == .resourceExhausted && words == "rate limit: the wait would be over max_wait_ms")
    setting.pass(500 * Self.second - 1)
    #expect(setting.call() == .resourceExhausted)
    setting.pass(1)
    // The wait is as long as it may be.
    #expect(setting.call() == .ok && setting.world.time - began == 600 * Self.second)
    // A time without calls fills the bucket up to its burst, and no further.
    setting.pass(100 * 600 * Self.second)
    for _ in 0..<3 { #expect(setting.call() == .ok) }
    #expect(setting.call() == .resourceExhausted)
  }

  @Test func theRateLimitRefusesCallsThatWouldWait() throws {
    var options = RateLimit.Options()
    options.interval = 10 * Self.second
    options.maxWait = Self.hour
    options.maxWaiting = 0
    options.code = .unavailable
    let setting = try Setting(RateLimit(options))
    #expect(setting.call() == .ok)
    let (code, words) = setting.answer()
    #expect(code == .unavailable && words == "rate limit: too many calls wait already")
    setting.pass(10 * Self.second - 1)
    #expect(setting.call() == .unavailable)
    setting.pass(1)
    #expect(setting.call() == .ok)
  }

  @Test func aFaultIsInjectedAfterItsDelay() throws {
    for (delay, abort) in [(false, false), (false, true), (true, false), (true, true)] {
      var options = FaultInjection.Options()
      if delay { options.delay = 5 * Self.second }
      options.delayChance = Chance(percent: 100)
      if abort { options.abort = Status(.aborted, "fault") }
      options.abortChance = Chance(percent: 100)
      let setting = try Setting(FaultInjection(options))
      let began = setting.world.time
      let (code, words) = setting.answer()
      #expect(code == (abort ? .aborted : .ok) && words == (abort ? "fault" : ""))
      #expect(setting.world.time - began == (delay ? 5 * Self.second : 0))
      #expect(setting.answered == (abort ? 0 : 1))
    }
    let setting = try Setting(FaultInjection(FaultInjection.Options()))
    #expect(setting.call() == .ok)
  }

  @Test func aCacheKeepsAsManyBytesAsItMay() throws {
    func answered(_ maxBytes: Int) throws -> Int {
      var options = ResponseCache.Options()
      options.maxBytes = maxBytes
      let setting = try Setting(ResponseCache(options))
      setting.world.servers[80] = { said, socket in
        SimulationTests.answer(said, socket) { stream, payload in
          Frame.head(stream, [("a", "b")]).encoded + Frame.data(stream, payload).encoded
            + Frame.trailers(stream, "0", [("c", "d")]).encoded
        }
      }
      for _ in 0..<2 { #expect(setting.call() == .ok) }
      return setting.answered
    }
    let least = try #require((1...1000).first { bytes in (try? answered(bytes)) == 1 })
    // The key has 15 bytes: "1" and "7:" before the path and its NUL, "1" and "0:" for the encoding, a mark for the
    // metadata, and the message. The response has a message of one byte, and two header fields of 34 bytes each.
    #expect(least == 15 + 1 + 34 + 34)
    #expect(try answered(least - 1) == 2)
  }
}
