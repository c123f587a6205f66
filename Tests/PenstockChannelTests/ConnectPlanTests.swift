import PenstockWire
import Testing

@testable import PenstockChannel

@Suite struct ConnectPlanTests {
  let second: UInt64 = 1_000_000_000

  @Test func sharesTheTime() {
    var plan = ConnectPlan(now: 0, timeout: 9 * second)
    #expect(plan.resolved(3, now: 0) == .connect(index: 0, until: 3 * second))
    #expect(plan.failed(now: 1 * second) == .connect(index: 1, until: 5 * second))
    #expect(plan.failed(now: 5 * second) == .connect(index: 2, until: 9 * second))
    #expect(plan.failed(now: 9 * second) == .exhausted)
    var report = ConnectReport()
    report.failed(bytes("a"), bytes("x"))
    report.failed(bytes("b"), bytes("y"))
    report.failed(bytes("c"), bytes("z"))
    #expect(text(report.words(bytes("n"), plan)) == "could not connect to n: a: x; b: y; c: z")
  }

  @Test func theDeadlineEndsIt() {
    var plan = ConnectPlan(now: 5, timeout: 10)
    #expect(plan.resolved(2, now: 6) == .connect(index: 0, until: 10))
    #expect(plan.failed(now: 15) == .exhausted)
    var report = ConnectReport()
    report.failed(bytes("a"), bytes("x"))
    #expect(
      text(report.words(bytes("n"), plan))
        == "could not connect to n: a: x; the connect timeout left no time for the rest")
  }

  @Test func manyAddressesMakeAShortText() {
    var plan = ConnectPlan(now: 0, timeout: .max)
    _ = plan.resolved(100, now: 0)
    var report = ConnectReport()
    for _ in 0..<100 {
      report.failed(bytes("a"), bytes("x"))
      _ = plan.failed(now: 0)
    }
    #expect(text(report.words(bytes("n"), plan))?.hasSuffix("; a: x; and 92 more") == true)
  }

  @Test(arguments: [
    ("127.0.0.1:1", "127.0.0.1:1", true), ("ipv4:127.0.0.1:1", "127.0.0.1:1", true),
    ("[::1]:1", "[::1]:1", true),
    ("unix:/a", "unix:/a", true), ("unix:///a", "unix:/a", true),
    ("unix-abstract:a", "unix-abstract:a", true),
    ("localhost:1", "127.0.0.1:1", false), ("127.0.0.1", "127.0.0.1:443", false),
  ])
  func anAddressIsNamedOnce(_ name: String, _ address: String, _ isSame: Bool) {
    var plan = ConnectPlan(now: 0, timeout: 10)
    _ = plan.resolved(1, now: 0)
    #expect(plan.failed(now: 1) == .exhausted)
    var report = ConnectReport()
    report.failed(bytes(address), bytes("x: y"))
    let told = isSame ? "x: y" : "\(address): x: y"
    #expect(text(report.words(bytes(name), plan)) == "could not connect to \(name): \(told)")
  }

  @Test func nothingToTry() {
    var plan = ConnectPlan(now: 0, timeout: 10)
    #expect(plan.resolved(0, now: 0) == .exhausted)
  }
}
