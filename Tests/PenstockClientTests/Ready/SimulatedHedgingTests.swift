import PenstockCall
import PenstockChannel
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockReady

private let second = SimulationTests.second

/// Tests of hedging in a simulated world: when the attempts of a call are sent, and how they end.
@Suite(.timeLimit(.minutes(15))) struct SimulatedHedgingTests {
  /// How the server answers an attempt: so many seconds after it has come, with this status.
  struct Reply {
    let after: UInt64
    var status = "0"
    var pushback: String?
  }

  final class Setting {
    let hedging: Hedging
    let ready: SimulatedReadyTests.Setting
    private let began: UInt64
    /// The seconds at which the attempts have come to the server.
    private(set) var arrivals: [UInt64] = []

    /// `replies`: for each attempt in its turn; nil: there is no answer.
    init(_ replies: [Reply?], _ change: (inout Hedging.Options) -> Void = { _ in }) throws {
      var options = Hedging.Options()
      options.attempts = 4
      options.delay = 10 * second
      change(&options)
      hedging = Hedging(options, other: nil)
      ready = try SimulatedReadyTests.Setting(hedging)
      let world = ready.world
      began = world.time
      world.servers[80] = { [unowned self, unowned world] said, socket in
        SimulationTests.answer(said, socket) { stream, payload in
          let number = arrivals.count
          arrivals.append((world.time - began) / second)
          guard number < replies.count, let reply = replies[number] else { return [] }
          world.after(reply.after * second) { socket.answer(Self.bytes(of: reply, stream, payload)) }
          return []
        }
      }
    }

    private static func bytes(of reply: Reply, _ stream: Int32, _ payload: [UInt8]) -> [UInt8] {
      let end =
        [("grpc-status", reply.status)] + (reply.pushback.map { [("grpc-retry-pushback-ms", $0)] } ?? [])
      if reply.status != "0" {
        let head = [(":status", "200"), ("content-type", "application/grpc")]
        return Frame.headers(stream, head + end, end: true).encoded
      }
      return Frame.head(stream).encoded + Frame.data(stream, payload).encoded + Frame.trailers(stream).encoded
    }

    /// Makes a call; gives its code, and the second at which it has ended.
    func call() -> (StatusCode, UInt64) {
      let code = ready.call()
      return (code, (ready.world.time - began) / second)
    }

    /// The counts of calls, of attempts that were sent, of hedges and of hedges that have won, and those of hedges that were
    /// held back.
    var hedges: [UInt64] {
      let counts = hedging.state.counts
      return [counts.calls, counts.sent, counts.hedges, counts.hedgesWon, counts.throttled, counts.refused]
    }

    /// The attempts that have won, failed or been cancelled, and those that are open.
    var counts: [UInt64] {
      let counts = hedging.state.counts
      return [counts.won, counts.failed, counts.cancelled, counts.open]
    }
  }

  @Test func anAttemptFollowsAfterEachDelayUntilOneIsAnswered() throws {
    let setting = try Setting([nil, nil, Reply(after: 1)])
    #expect(setting.call() == (.ok, 21))
    #expect(setting.arrivals == [0, 10, 20])
    #expect(setting.counts == [1, 0, 2, 0])
    #expect(setting.hedges == [1, 3, 2, 1, 0, 0])
  }

  @Test func anAttemptFollowsAFailureAtOnce() throws {
    let setting = try Setting([nil, Reply(after: 1, status: "14"), nil, Reply(after: 2)])
    #expect(setting.call() == (.ok, 23))
    // The delay counts from the latest attempt.
    #expect(setting.arrivals == [0, 10, 11, 21])
    #expect(setting.counts == [1, 1, 2, 0])
  }

  @Test func theServerNamesTheTimeOfTheNextAttempt() throws {
    let setting = try Setting([nil, Reply(after: 1, status: "14", pushback: "5000"), Reply(after: 1)])
    #expect(setting.call() == (.ok, 17))
    #expect(setting.arrivals == [0, 10, 16])
    #expect(setting.counts == [1, 1, 1, 0])
  }

  @Test(arguments: ["-1", "soon", "99999999999"])
  func openAttemptsGoOnWhereTheServerWantsNoFurtherOne(pushback: String) throws {
    let setting = try Setting([Reply(after: 60), Reply(after: 1, status: "14", pushback: pushback)])
    #expect(setting.call() == (.ok, 60))
    #expect(setting.arrivals == [0, 10])
    #expect(setting.counts == [1, 1, 0, 0])
    #expect(setting.hedges == [1, 2, 1, 0, 0, 1])
  }

  @Test func anAttemptThatIsOpenMayWinAfterTheLastOneHasFailed() throws {
    let setting = try Setting([Reply(after: 30), Reply(after: 1, status: "14")]) { $0.attempts = 2 }
    #expect(setting.call() == (.ok, 30))
    #expect(setting.arrivals == [0, 10])
    #expect(setting.counts == [1, 1, 0, 0])
  }

  @Test func anOldAnswerEndsTheCallAlsoWithAFatalCode() throws {
    let setting = try Setting([Reply(after: 12, status: "5"), nil])
    #expect(setting.call() == (.notFound, 12))
    #expect(setting.counts == [1, 0, 1, 0])
    #expect(setting.hedges == [1, 2, 1, 0, 0, 0])
  }

  @Test func theDeadlineEndsAllAttempts() throws {
    let setting = try Setting([nil, nil, nil, nil])
    #expect(setting.call() == (.deadlineExceeded, 3600))
    #expect(setting.arrivals == [0, 10, 20, 30])
    #expect(setting.counts == [0, 0, 4, 0])
    #expect(setting.hedges == [1, 4, 3, 0, 0, 0])
  }

  @Test func theThrottleLetsTheFirstAttemptOfEachCallPass() throws {
    let setting = try Setting([
      Reply(after: 0, status: "14"), nil, Reply(after: 0), nil, Reply(after: 0),
    ]) { options in
      options.throttle = .init()
      options.throttle?.most = 2_000
      options.throttle?.ratio = 1_000
    }
    // One token of two is left.
    #expect(setting.call() == (.unavailable, 0))
    #expect(setting.call() == (.deadlineExceeded, 3600))
    #expect(setting.hedging.state.counts.throttled == 2)
    // A success brings the token back.
    #expect(setting.call() == (.ok, 3600))
    #expect(setting.call() == (.ok, 3610))
    #expect(setting.counts == [2, 1, 2, 0])
    #expect(setting.hedges == [4, 5, 1, 1, 2, 0])
  }
}
