import PenstockCall
import PenstockChannel
import PenstockWire
import Testing

/// gRFC A6: which failed requests are sent again, and when.
@Suite struct MethodRetryTests {
  static let millisecond: UInt64 = 1_000_000

  func policy(_ attempts: Int, _ codes: [StatusCode] = [.unavailable]) -> MethodRetry {
    var policy = MethodRetry()
    policy.attempts = attempts
    policy.backoff.initial = 100 * Self.millisecond
    policy.backoff.most = 300 * Self.millisecond
    policy.backoff.multiplier = 2
    for code in codes { policy.codes.insert(code) }
    return policy
  }

  /// The waits before all further attempts, in milliseconds, and at last nil.
  func waits(_ policy: MethodRetry, _ pushbacks: [Pushback] = [], random: UInt64 = 1 << 63) -> [UInt64?] {
    var count = RetryCount()
    var found: [UInt64?] = []
    repeat {
      let pushback = found.count < pushbacks.count ? pushbacks[found.count] : .none
      found.append(
        policy.wait(after: .unavailable, pushback, &count, random: random).map { $0 / Self.millisecond })
    } while found.last != .some(nil) && found.count < 10
    return found
  }

  @Test func waitsGrowToTheMost() {
    #expect(waits(policy(5)) == [100, 200, 300, 300, nil])
    #expect(waits(policy(2)) == [100, nil])
  }

  /// Each wait is longer or shorter by up to a fifth.
  @Test func waitsVary() {
    #expect(waits(policy(3), random: 0) == [80, 160, nil])
    #expect(waits(policy(3), random: .max).map { $0 ?? 0 } == [120, 240, 0])
  }

  @Test func onlyTheListedCodes() {
    for number in Int32(0)...16 {
      guard let code = StatusCode(rawValue: number) else { continue }
      var count = RetryCount()
      let wait = policy(3, [.aborted, .unavailable]).wait(after: code, .none, &count, random: 1 << 63)
      let isListed = code == .aborted || code == .unavailable
      #expect((wait != nil) == isListed)
      #expect(count.previous == (isListed ? 1 : 0))
    }
  }

  /// After the server has said when to try again, the back-off begins anew.
  @Test func pushbackTakesTheBackOffsPlace() {
    #expect(waits(policy(5), [.none, .after(0), .none]) == [100, 0, 100, 200, nil])
    #expect(waits(policy(5), [.none, .after(7_000_000), .after(9_000_000)]) == [100, 7, 9, 100, nil])
    #expect(waits(policy(5), [.none, .never]) == [100, nil])
  }

  @Test func anEndedPolicyCountsNoFurtherAttempt() {
    var count = RetryCount()
    #expect(policy(2).wait(after: .unavailable, .none, &count, random: 0) != nil)
    let before = count
    #expect(policy(2).wait(after: .unavailable, .none, &count, random: 0) == nil)
    #expect(policy(3).wait(after: .unavailable, .never, &count, random: 0) == nil)
    #expect(count == before)
  }

  // MARK: - The server's word

  func pushback(_ values: String...) -> Pushback {
    let fields = Metadata()
    _ = fields.add(("x" as StaticString).bytes, ("7" as StaticString).bytes)
    for value in values {
      var value = value
      value.withUTF8 { _ = fields.add(Pushback.name, ByteView($0)) }
    }
    return Pushback(fields)
  }

  @Test func pushbackIsRead() {
    #expect(pushback() == .none)
    #expect(pushback("0") == .after(0))
    #expect(pushback("25") == .after(25_000_000))
    #expect(pushback("2147483647") == .after(2_147_483_647_000_000))
    for value in ["", "-1", "+1", "1.5", " 1", "x", "2147483648", "9999999999", "99999999999999999999999"] {
      #expect(pushback(value) == .never, "\(value)")
    }
    #expect(pushback("1", "2") == .never)
  }

  // MARK: - Throttling

  func throttle(_ most: Int, _ ratio: Int) -> RetryThrottle {
    var settings = RetryThrottle.Settings()
    settings.most = most
    settings.ratio = ratio
    return RetryThrottle(settings)
  }

  /// With half of the tokens left, requests are not sent again; successes bring tokens back.
  @Test func halfOfTheTokensAreNeeded() {
    var throttle = throttle(10_000, 100)
    for _ in 0..<4 { throttle.failed() }
    #expect(throttle.tokens == 6000)
    #expect(throttle.allowsRetries)
    throttle.failed()
    #expect(throttle.tokens == 5000)
    #expect(!throttle.allowsRetries)
    throttle.succeeded()
    #expect(throttle.allowsRetries)
    for _ in 0..<100 { throttle.succeeded() }
    #expect(throttle.tokens == 10_000)
    for _ in 0..<11 { throttle.failed() }
    #expect(throttle.tokens == 0)
  }

  @Test func newSettingsKeepThePartThatIsLeft() {
    var throttle = throttle(10_000, 100)
    for _ in 0..<4 { throttle.failed() }
    var settings = RetryThrottle.Settings()
    settings.most = 100_000
    settings.ratio = 1
    throttle.become(settings)
    #expect(throttle.tokens == 60_000)
    #expect(throttle.settings == settings)
  }
}
