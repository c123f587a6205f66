import PenstockLaws
import PenstockWire
import Testing

@testable import PenstockCall

/// A neighbour of a call that lacks a function stops the tests, and does not do nothing silently.
@Suite struct OverrideTests {
  /// A call of each function, and the words with which it must stop.
  static let lacking: [(name: String, call: @Sendable () -> Void)] = [
    ("start(_:)", { CallBelow().start(CallBench().call) }),
    ("send(_:)", { CallBelow().send(Message()) }),
    ("halfClose()", { CallBelow().halfClose() }),
    ("pull()", { CallBelow().pull() }),
    ("another(isRepeat:)", { _ = CallBelow().another(isRepeat: true) }),
    (
      "waitToRetry(after:of:_:)",
      {
        var count = RetryCount()
        _ = CallBelow().waitToRetry(after: Status(.unavailable), of: CallBench().call, &count)
      }
    ),
    ("reset()", { CallBelow().reset() }),
    ("callHeaders(_:)", { CallAbove().callHeaders(Metadata()) }),
    ("callMessage(_:)", { CallAbove().callMessage(Message()) }),
    ("callSent(_:)", { CallAbove().callSent(1) }),
    ("callStatus(_:)", { CallAbove().callStatus(Status(.ok)) }),
    ("callDiscardsMessages()", { CallAbove().callDiscardsMessages() }),
    ("now", { _ = CallLoop().now }),
    ("now", { _ = CallLoop().clock }),
    ("setDeadline(_:_:)", { CallLoop().setDeadline(CallBench().call, 1) }),
    ("resume(_:of:at:)", { CallLoop().resume(1, of: CallBench().call, at: 1) }),
    ("perform(_:of:at:)", { CallLoop().perform(.demand(1), of: CallBench().call, at: 1) }),
    ("issueTicket(_:of:start:)", { atStart { _ = CallLoop().issueTicket(.start, of: $0, start: nil) } }),
    ("spendTicket(_:of:)", { CallLoop().spendTicket(1, of: CallBench().call) }),
    ("loseTicket(_:of:)", { CallLoop().loseTicket(1, of: CallBench().call) }),
    ("closeTickets(of:)", { CallLoop().closeTickets(of: CallBench().call) }),
    ("post(_:)", { CallLoop().post(CallBench().call) }),
    ("isDriving", { _ = CallLoop().isDriving }),
    ("thread", { _ = CallLoop().thread }),
    ("clock()", { _ = CallbackTimes(limit: 1).clock() }),
    (
      "report(_:)",
      {
        CallbackTimes(limit: 1).report(
          CallbackTimes.Slow(call: 1, path: ByteBuffer(), interceptor: 0, event: .start, nanoseconds: 1))
      }
    ),
    ("run()", { ExecutorJob().runOnce() }),
    ("event", { atStart { _ = BoundHop($0).event } }),
    ("newBelow()", { _ = CallRoute(target: ByteBuffer(), authority: ByteBuffer()).newBelow() }),
    ("certificateCount", { _ = facts.certificateCount }),
    ("certificates()", { _ = facts.certificates() }),
  ]

  private static var facts: SecurityFacts {
    SecurityFacts(version: ByteBuffer(), cipher: ByteBuffer(), alpn: ByteBuffer())
  }

  /// Calls `body` in `on_start` of a hop.
  private static func atStart(_ body: @escaping (Hop) -> Void) {
    let bench = CallBench()
    bench.hooks[0].on[.start] = { hop in
      body(hop)
      return 0
    }
    bench.open()
  }

  @Test(arguments: lacking.indices) func stops(_ index: Int) async {
    let ended = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) { [index] in
      OverrideTests.lacking[index].call()
    }
    let words = String(decoding: ended?.standardErrorContent ?? [], as: UTF8.self)
    #expect(words.contains(": \(OverrideTests.lacking[index].name) is not overridden"))
  }
}
