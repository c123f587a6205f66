import PenstockWire
import Testing

@testable import PenstockCall
@testable import PenstockLaws

/// Tests of the words about whom or what a call waits for, and of the notes in its trace.
@Suite struct HolderTests {
  private func words(_ bench: CallBench) -> String {
    let call = bench.call!
    let words = call.words(for: call.holder(call.standings))
    return withExtendedLifetime(words) { text(words.view) }
  }

  private func deadline(_ bench: CallBench) -> String {
    let status = bench.call.statusOfDeadline()
    return withExtendedLifetime(status) { text(status.message) }
  }

  @Test(
    arguments: [
      (0, "0"), (999_999, "0"), (1_000_000, "1"), (99_000_000, "99"), (100_000_000, "100"),
      (999_999_999, "999"), (1_000_000_000, "1,000"), (1_001_000_000, "1,001"), (1_020_000_000, "1,020"),
      (10_010_000_000, "10,010"), (999_999_000_000, "999,999"), (1_000_000_000_000, "1,000,000"),
      (1_203_040_000_000, "1,203,040"),
    ] as [(UInt64, String)])
  func millisecondsHaveCommas(nanoseconds: UInt64, shown: String) {
    let bench = CallBench(.unary, hops: 2)
    bench.hooks[1].on[.start] = { hop in
      #expect(hop.takeTicket() != 0)
      return Verdict.pause.rawValue
    }
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    bench.loop.now += nanoseconds
    #expect(words(bench) == "paused in `hop1` for \(shown) ms")
    #expect(deadline(bench) == "deadline exceeded: paused in `hop1` for \(shown) ms")
  }

  @Test func aCallWaitsForItself() {
    let bench = CallBench(.bidi, hops: 1)
    #expect(words(bench) == "about to go on")
    #expect(deadline(bench) == "deadline exceeded before the request was sent")
    bench.open()
    #expect(words(bench) == "waiting for the caller to ask for a message")
    #expect(deadline(bench) == "deadline exceeded: waiting for the caller to ask for a message")
    bench.perform(.demand(1))
    // The server of this bench says nothing about itself.
    #expect(words(bench) == "")
    #expect(deadline(bench) == "deadline exceeded")
    bench.call.inboundStatus(Status(.ok))
    #expect(words(bench) == "")
  }

  @Test func aCallWaitsForItsHops() {
    let bench = CallBench(.bidi, hops: 2)
    var running: [String] = []
    bench.hooks[0].on[.start] = { [unowned bench] _ in
      running.append(words(bench))
      return 0
    }
    bench.hooks[1].on[.send] = { hop in
      #expect(hop.takeTicket() != 0)
      return Verdict.hold.rawValue
    }
    bench.open(1)
    #expect(running == ["in the callback of `hop0` about start"])
    bench.perform(.send(CallBench.message(1)))
    bench.loop.now += 2_000_000
    #expect(words(bench) == "held in `hop1` for 2 ms")
    let taken = CallBench(.bidi, hops: 2)
    taken.hooks[1].on[.start] = { _ in Verdict.take.rawValue }
    taken.open(1)
    #expect(words(taken) == "taken by `hop1`, which has not answered")
  }

  /// The event that has waited longest is the one that holds the call.
  @Test func theOldestOfTheEventsThatWait() {
    for first in 0..<2 {
      let bench = CallBench(.bidi, hops: 2)
      for index in 0..<2 {
        let kind: EventKind = index == 0 ? .receive : .send
        bench.hooks[index].on[kind] = { hop in
          #expect(hop.takeTicket() != 0)
          return Verdict.pause.rawValue
        }
      }
      bench.open(1)
      bench.below.headers(bench.call)
      for step in 0..<2 {
        if (first + step) % 2 == 0 {
          bench.below.message(bench.call, CallBench.message(1))
        } else {
          bench.perform(.send(CallBench.message(1)))
        }
        bench.loop.now += 1_000_000
      }
      #expect(words(bench) == "paused in `hop\(first)` for 2 ms")
      let standings = bench.call.standings
      #expect(standings.map { $0.hop } == [0, 1] && standings.map { $0.lane } == [.inbound, .outbound])
      #expect(
        standings.map { $0.event } == [.receive, .send] && standings.allSatisfy { $0.state == .paused })
      #expect(standings.allSatisfy { $0.waiting == 0 && $0.attempt == 1 && $0.level == .bytes })
    }
  }

  // MARK: - Retries and the trace

  private final class Notes: CallTrace {
    var all: [TraceNote] = []

    func note(_ note: TraceNote) { all.append(note) }

    func take() -> [String] {
      defer { all = [] }
      return all.map { note in
        "\(note.what) \(note.hop) \(note.event.name) \(note.detail) at \(note.time)"
          + (note.took > 0 ? " took \(note.took)" : "") + (note.verdict.map { " = \($0)" } ?? "")
      }
    }
  }

  @Test(arguments: ["busy", ""]) func aRetryWaitsForItsTime(message: String) {
    let notes = Notes()
    let bench = CallBench(.unary, hops: 0, trace: notes)
    bench.loop.now = 7_000_000
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    bench.below.refuse(bench.call, with(message) { Status(.unavailable, $0) }, byPolicy: true)
    let retries = notes.all.filter { $0.what == .retries }
    #expect(retries.map { $0.detail } == [1_000_000] && retries.allSatisfy { $0.event == .status })
    let rest = " ms to send the request again after UNAVAILABLE" + (message.isEmpty ? "" : ": busy")
    #expect(words(bench) == "waiting 1" + rest)
    bench.loop.now += 1
    #expect(words(bench) == "waiting 0" + rest)
    bench.loop.now += 2_000_000
    #expect(words(bench) == "waiting 0" + rest)
    #expect(deadline(bench) == "deadline exceeded: waiting 0" + rest)
  }

  /// Messages that the caller asks for while a retry waits are asked for in the next attempt.
  @Test(arguments: [0, 1]) func demandWhileARetryWaits(hops: Int) {
    let bench = CallBench(.bidi, hops: hops, signals: false)
    bench.open(1)
    bench.below.refuse(bench.call, Status(.unavailable), byPolicy: true)
    _ = bench.take()
    bench.perform(.demand(2))
    #expect(bench.take() == [])
    bench.loop.now += 1_000_000
    for input in bench.loop.takeDueInputs() { bench.perform(input) }
    #expect(bench.take().contains("server start"))
    for left in [2, 1, 0] {
      #expect(bench.call.wantsMessage)
      bench.below.message(bench.call, CallBench.message(1))
      #expect(bench.take().contains("caller message 1"))
      #expect(bench.call.wantsMessage == (left > 0))
    }
  }

  @Test func aTraceNotesEachEvent() {
    let notes = Notes()
    let bench = CallBench(.bidi, hops: 1, trace: notes)
    bench.loop.now = 100
    bench.hooks[0].on[.start] = { [unowned bench] _ in
      bench.loop.now += 30
      return 0
    }
    bench.open(2)
    let start = notes.take()
    #expect(start.contains("callback 0 start 0 at 100 took 30 = 0"))
    #expect(start.first == "caller -1 start 0 at 100")
    #expect(start.contains("transport -1 start 0 at 130"))
    bench.perform(.send(CallBench.message(3)))
    #expect(
      notes.take() == [
        "caller -1 send 0 at 130", "callback 0 send 0 at 130 = 0", "transport -1 send 0 at 130",
      ])
    bench.perform(.sentFromBelow(1))
    #expect(notes.take() == ["transport -1 sent 1 at 130", "callback 0 sent 0 at 130"])
    bench.perform(.demand(3))
    #expect(notes.take() == ["caller -1 demand 3 at 130", "callback 0 demand 0 at 130"])
    bench.perform(.halfClose)
    #expect(
      notes.take() == [
        "caller -1 half_close 0 at 130", "callback 0 half_close 0 at 130 = 0",
        "transport -1 half_close 0 at 130",
      ])
    bench.below.headers(bench.call)
    #expect(notes.take().first == "transport -1 headers 0 at 130")
    bench.below.message(bench.call, CallBench.message(1))
    #expect(notes.take().first == "transport -1 receive 0 at 130")
    bench.below.status(bench.call, Status(.aborted))
    let end = notes.take()
    #expect(end.first == "transport -1 status 10 at 130")
    #expect(end.contains("callback 0 status 0 at 130 = 0") && end.contains("ended -1 status 10 at 130"))
  }

  @Test func aTraceNotesTheEndByTheProgram() {
    let notes = Notes()
    let bench = CallBench(.bidi, hops: 1, trace: notes)
    bench.open()
    _ = notes.take()
    bench.perform(.endLocally(Status(.cancelled, "enough")))
    let end = notes.take()
    #expect(end.first == "endedLocally -1 status 1 at 1000")
    #expect(end.contains("ended -1 status 1 at 1000"))
  }

  // MARK: - Times

  private final class Times: CallbackTimes {
    var now: UInt64 = 0
    var reports: [UInt64] = []

    override func clock() -> UInt64 { now }
    override func report(_ slow: Slow) {
      #expect(slow.call == 5 && slow.event == .send && slow.interceptor == 7)
      reports.append(slow.nanoseconds)
    }
  }

  @Test func aCallbackIsSlowFromTheLimitOn() {
    let times = Times(limit: 100)
    let request = Request(
      kind: .unary, path: ("/a/b" as StaticString).bytes, metadata: Metadata(), deadline: nil)!
    let loop = FakeLoop()
    let call = Call(
      id: 5, request: request, chain: nil,
      origin: CallOrigin(target: buffer("t\0"), defaultAuthority: buffer("a\0"), loop: loop, times: times),
      attachment: loop, trace: nil)
    times.now = 300
    #expect(call.callbackBegins == 0)
    times.isOn.store(true, ordering: .relaxed)
    #expect(call.callbackBegins == 300)
    // A callback that began at 0 was not timed, and one that began later than now has taken no time.
    for began in [0, 199, 200, 201, 300, 301, 500] as [UInt64] { call.callbackEnded(began, .send, of: 7) }
    #expect(times.reports == [101, 100])
  }

  @Test func waitsAreCountedByTheirReason() {
    let waits = CallWaits()
    func all(_ end: UInt64) -> [UInt64] {
      [Lack.nothing, .name, .connection, .slot, .endpoint].map { waits.waited(for: $0, until: end) }
    }
    #expect(all(100) == [0, 0, 0, 0, 0])
    waits.waits(for: .name, now: 100)
    #expect(all(99) == [0, 0, 0, 0, 0] && all(100) == [0, 0, 0, 0, 0] && all(103) == [0, 3, 0, 0, 0])
    waits.waits(for: .connection, now: 110)
    #expect(all(130) == [0, 10, 20, 0, 0])
    waits.waits(for: .slot, now: 140)
    #expect(all(145) == [0, 10, 30, 5, 0])
    waits.waits(for: .endpoint, now: 150)
    #expect(all(151) == [0, 10, 30, 10, 11])
    waits.waits(for: .name, now: 160)
    waits.waits(for: .nothing, now: 165)
    #expect(all(1000) == [0, 15, 30, 20, 20])
    // A time that lies before the last one counts nothing.
    waits.waits(for: .name, now: 170)
    waits.waits(for: .nothing, now: 169)
    #expect(all(1000) == [0, 15, 30, 20, 20])
  }

  @Test func theReplayBudgetLendsWhatIsLeft() {
    let budget = ReplayBudget(ofCall: 10, ofAll: 25)
    #expect(!budget.takeWhole(11) && budget.left == 25)
    #expect(budget.takeWhole(10) && budget.left == 15)
    #expect(!budget.take(16) && budget.left == 15)
    #expect(budget.take(15) && budget.left == 0)
    #expect(!budget.take(1) && budget.take(0) && !budget.takeWhole(1))
    budget.giveBack(5)
    #expect(budget.left == 5 && !budget.takeWhole(6) && budget.takeWhole(5))
  }
}
