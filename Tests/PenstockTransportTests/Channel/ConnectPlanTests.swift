import PenstockWire
import Testing

@testable import PenstockTransport

@Suite struct ConnectPlanTests {
  let second: UInt64 = 1_000_000_000

  @Test func sharesTheTime() {
    var plan = ConnectPlan(now: 0, timeout: 9 * second)
    #expect(plan.resolved(3, now: 0) == .connect(index: 0, until: 3 * second))
    #expect(plan.failed(bytes("a"), bytes("x"), now: 1 * second) == .connect(index: 1, until: 5 * second))
    #expect(plan.failed(bytes("b"), bytes("y"), now: 5 * second) == .connect(index: 2, until: 9 * second))
    #expect(plan.failed(bytes("c"), bytes("z"), now: 9 * second) == .exhausted)
    #expect(text(plan.words(bytes("n"))) == "could not connect to n: a: x; b: y; c: z")
  }

  @Test func theDeadlineEndsIt() {
    var plan = ConnectPlan(now: 5, timeout: 10)
    #expect(plan.resolved(2, now: 6) == .connect(index: 0, until: 10))
    #expect(plan.failed(bytes("a"), bytes("x"), now: 15) == .exhausted)
    #expect(
      text(plan.words(bytes("n")))
        == "could not connect to n: a: x; the connect timeout left no time for the rest")
  }

  @Test func manyAddressesMakeAShortText() {
    var plan = ConnectPlan(now: 0, timeout: .max)
    _ = plan.resolved(100, now: 0)
    for _ in 0..<100 { _ = plan.failed(bytes("a"), bytes("x"), now: 0) }
    #expect(text(plan.words(bytes("n")))?.hasSuffix("; a: x; and 92 more") == true)
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
    #expect(plan.failed(bytes(address), bytes("x: y"), now: 1) == .exhausted)
    let told = isSame ? "x: y" : "\(address): x: y"
    #expect(text(plan.words(bytes(name))) == "could not connect to \(name): \(told)")
  }

  @Test func nothingToTry() {
    var plan = ConnectPlan(now: 0, timeout: 10)
    #expect(plan.resolved(0, now: 0) == .exhausted)
  }
}
