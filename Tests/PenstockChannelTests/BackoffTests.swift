import PenstockChannel
import Testing

/// "gRPC Connection Backoff Protocol": the first wait is 1 s, each further wait is 1.6 times as long, up to
/// 120 s, and each varies by a fifth, the first one too.
@Suite struct BackoffTests {
  static let second: UInt64 = 1_000_000_000

  /// The waits between attempts that fail at once, in seconds.
  func waits(
    _ count: Int, random: UInt64, _ policy: Backoff.Policy = Backoff.Policy(), from first: Backoff = Backoff()
  ) -> [Double] {
    var backoff = first
    var now: UInt64 = 5 * Self.second
    return (0..<count).map { _ in
      let next = backoff.begin(policy, now: now, random: random)
      defer { now = next }
      return Double(next - now) / 1e9
    }
  }

  func close(_ one: [Double], _ other: [Double]) -> Bool {
    one.count == other.count && zip(one, other).allSatisfy { abs($0 - $1) < 1e-6 * $1 }
  }

  @Test func asSpecified() {
    let bare: [Double] = [
      1, 1.6, 2.56, 4.096, 6.5536, 10.48576, 16.777216, 26.8435456, 42.94967296, 68.719476736,
    ]
    #expect(close(waits(12, random: 1 << 63), bare + [109.9511627776, 120]))
    #expect(close(waits(10, random: 0), bare.map { $0 * 0.8 }))
    #expect(close(waits(10, random: .max), bare.map { $0 * 1.2 }))
    #expect(waits(40, random: 1 << 63).last == 120)
  }

  /// After a connection that was of use the first waits are short: 50 ms, and twice as long each time, up to the first of
  /// the specification.
  @Test func afterAConnectionOfUse() {
    let bare = [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1.6, 2.56]
    #expect(close(waits(8, random: 1 << 63, from: .afterUse), bare))
    #expect(close(waits(8, random: 0, from: .afterUse), bare.map { $0 * 0.8 }))
    var policy = Backoff.Policy()
    policy.initial = 40_000_000
    policy.most = 20_000_000
    policy.jitter = 0
    let asked = waits(4, random: 3, policy, from: .afterUse)
    #expect(close(asked, [0.01, 0.02, 0.02, 0.02]))
    policy.initial = 3_000_000
    #expect(close(waits(3, random: 3, policy, from: .afterUse), [0.003, 0.0048, 0.00768]))
  }

  /// A hundred clients that a server has lost at the same time come back at a hundred times.
  @Test func firstWaitsAreSpread() {
    let waits = (0..<100).map { self.waits(1, random: UInt64($0) * (.max / 99))[0] }
    #expect(close([waits.min() ?? 0, waits.max() ?? 0], [0.8, 1.2]))
    #expect(Set(waits).count == 100)
  }

  /// An attempt beside a connection in use has the same wait as the attempt before it, and varies likewise.
  @Test func besideAConnection() {
    var backoff = Backoff()
    let policy = Backoff.Policy()
    #expect(backoff.begin(policy, now: 0, random: 1 << 63) == Self.second)
    #expect(backoff.begin(beside: 0, policy, random: 0) == 800_000_000)
    #expect(backoff.begin(beside: 0, policy, random: .max) > 1_199_999_000)
    #expect(backoff.attempts == 1)
  }

  @Test func asAsked() {
    var policy = Backoff.Policy()
    policy.initial = 10_000_000
    policy.most = 25_000_000
    policy.multiplier = 2
    policy.jitter = 0
    #expect(close(waits(4, random: 3, policy), [0.010, 0.020, 0.025, 0.025]))
    policy.initial = 50_000_000
    #expect(close(waits(2, random: 3, policy), [0.025, 0.025]))
  }

  @Test func neverPastTheEndOfTime() {
    var backoff = Backoff()
    for _ in 0..<3 { #expect(backoff.begin(Backoff.Policy(), now: .max - 5, random: .max) == .max) }
    #expect(backoff.attempts == 3)
  }
}
