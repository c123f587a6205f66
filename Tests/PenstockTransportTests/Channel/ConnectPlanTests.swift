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

  @Test func nothingToTry() {
    var plan = ConnectPlan(now: 0, timeout: 10)
    #expect(plan.resolved(0, now: 0) == .exhausted)
  }
}
