import PenstockWire
import Testing

@testable import PenstockCall
@testable import PenstockLaws

/// Tests each input in each phase of a call.
@Suite struct CallTableTests {
  enum Phase: CaseIterable {
    /// Not opened.
    case created
    /// The call's start waits at the hop, which has paused it.
    case paused
    case started
    /// The server's status waits at the hop, which has paused it.
    case closing
    case ended
  }

  private func bench(_ phase: Phase) -> CallBench {
    let bench = CallBench()
    let pause: (Hop) -> Int32 = { hop in hop.takeTicket() == 0 ? -1 : 1 }
    switch phase {
    case .created: break
    case .paused:
      bench.hooks[0].on[.start] = pause
      bench.open()
    case .started: bench.open()
    case .closing:
      bench.hooks[0].on[.status] = pause
      bench.open()
      bench.perform(.statusFromBelow(Status(.notFound)))
    case .ended:
      bench.open()
      bench.perform(.statusFromBelow(Status(.notFound)))
    }
    bench.log = []
    return bench
  }

  private func expect(_ step: (CallBench) -> Call.Input, _ expected: [Phase: [String]]) {
    for phase in Phase.allCases {
      let bench = bench(phase)
      bench.perform(step(bench))
      #expect(bench.take() == expected[phase] ?? [], "\(phase)")
      // After any input the call can be ended, and ends only once.
      bench.perform(.endLocally(Status(.cancelled)))
      bench.perform(.endLocally(Status(.cancelled)))
      #expect(
        bench.take().filter { $0.hasPrefix("caller status") }.count
          == (bench.wasEnded(phase, expected) ? 0 : 1))
      #expect(bench.status != nil)
    }
  }

  @Test func open() {
    expect(
      { _ in .open(demand: 2, message: CallBench.message(3)) },
      [
        .created: [
          "0 on_start", "0 on_demand 2", "server start", "pull", "0 on_send", "server message 3",
          "0 on_half_close", "server half-close",
        ]
      ])
  }

  @Test func send() {
    expect(
      { _ in .send(CallBench.message(3)) },
      [
        .created: [],
        .started: ["0 on_send", "server message 3"],
        // The server has ended the call; still the sender of a message must not wait for ever.
        .closing: ["0 on_send", "0 on_sent 1", "caller sent 1"],
      ])
  }

  @Test func halfClose() {
    expect(
      { _ in .halfClose },
      [
        .started: ["0 on_half_close", "server half-close"], .closing: ["0 on_half_close"],
      ])
  }

  @Test func demand() {
    expect({ _ in .demand(2) }, [.started: ["0 on_demand 2", "pull"], .closing: ["0 on_demand 2"]])
    expect({ _ in .demand(0) }, [:])
    expect({ _ in .demand(-1) }, [:])
  }

  @Test func endLocally() {
    let status = ["discard", "0 on_status", "0 destroy", "caller status 1"]
    expect(
      { _ in .endLocally(Status(.cancelled)) },
      [
        .created: ["discard", "caller status 1"],
        .paused: status,
        .started: ["reset"] + status,
        .closing: ["discard", "0 on_cancel", "0 destroy", "caller status 1"],
      ])
  }

  @Test func headersFromBelow() {
    expect({ _ in .headersFromBelow(Metadata()) }, [.started: ["0 on_headers", "caller headers"]])
  }

  @Test func messageFromBelow() {
    // The caller has not asked for a message, so the message waits after the hop's callback.
    expect({ _ in .messageFromBelow(CallBench.message(3)) }, [.started: ["0 on_receive"]])
  }

  @Test func statusFromBelow() {
    expect(
      { _ in .statusFromBelow(Status(.aborted)) },
      [
        .started: ["0 on_status", "0 destroy", "caller status 10"]
      ])
  }

  @Test func sentFromBelow() {
    // If the transport reports more messages as sent than are in flight, all of those count as sent.
    expect({ _ in .sentFromBelow(1) }, [:])
    let bench = bench(.started)
    bench.perform(.send(CallBench.message(1)))
    bench.log = []
    bench.perform(.sentFromBelow(7))
    #expect(bench.take() == ["0 on_sent 1", "caller sent 1"])
  }

  @Test func resolve() {
    expect(
      { _ in .resolve(1, .verdict(.next)) },
      [
        .paused: ["server start"], .closing: ["0 destroy", "caller status 5"],
      ])
    expect({ _ in .resolve(9, .verdict(.next)) }, [:])
    expect(
      { _ in .resolve(1, .finish(Status(.aborted))) },
      [
        .paused: ["0 destroy", "caller status 10"], .closing: ["0 destroy", "caller status 10"],
      ])
    // A ticket for a start may be resolved with TAKE. A status does not allow TAKE, which counts as NEXT
    // there.
    expect(
      { _ in .resolve(1, .verdict(.take)) },
      [
        .paused: [], .closing: ["0 destroy", "caller status 5"],
      ])
  }
}

extension CallBench {
  /// Whether the tested input has ended the call, according to the expected log.
  func wasEnded(_ phase: CallTableTests.Phase, _ expected: [CallTableTests.Phase: [String]]) -> Bool {
    phase == .ended || (expected[phase] ?? []).contains { $0.hasPrefix("caller status") }
  }
}

/// Cases that the random scenarios of the laws do not reach, and faults that these scenarios have found.
@Suite struct CallTests {
  @Test func aCallWithoutHops() {
    let bench = CallBench(.unary, hops: 0)
    bench.perform(.open(demand: 2, message: CallBench.message(1)))
    #expect(bench.take() == ["server start", "pull", "server message 1", "server half-close"])
    bench.call.inboundHeaders(Metadata())
    bench.call.inboundMessage(CallBench.message(4))
    bench.call.transportSent(1)
    bench.call.inboundStatus(Status(.ok))
    #expect(bench.take() == ["caller headers", "caller message 4", "caller sent 1", "caller status 0"])
    #expect(!bench.call.wantsMessage)
  }

  @Test func aMessageOverTheLimitEndsTheCall() {
    let bench = CallBench(maxSendBytes: 4)
    bench.open()
    bench.perform(.send(CallBench.message(4)))
    #expect(bench.take() == ["0 on_send", "server message 4"])
    bench.perform(.send(CallBench.message(5)))
    #expect(bench.status?.code == .resourceExhausted)
  }

  @Test func whatWaitsIsShownWhenAPauseEndsBeforeAnOlderHold() {
    let bench = CallBench()
    var verdicts: [Int32] = [2, 1]
    bench.hooks[0].on[.send] = { hop in
      guard !verdicts.isEmpty else { return 0 }
      _ = hop.takeTicket()
      return verdicts.removeFirst()
    }
    bench.open()
    for size in 1...4 { bench.perform(.send(CallBench.message(size))) }
    #expect(bench.take() == ["0 on_send", "caller sent 1", "0 on_send"])
    bench.perform(.resolve(2, .verdict(.next)))
    #expect(bench.take() == ["0 on_send", "0 on_send"])
    bench.perform(.resolve(1, .verdict(.next)))
    #expect(bench.take() == (1...4).map { "server message \($0)" })
  }

  @Test func aFinishInASignalShowsNothingMore() {
    let bench = CallBench(hops: 2)
    bench.hooks[0].on[.demand] = { hop in
      #expect(hop.finish(Status(.aborted)) == .ok)
      return 0
    }
    bench.open()
    bench.perform(.demand(1))
    #expect(
      bench.take() == ["0 on_demand 1", "reset", "1 on_cancel", "1 destroy", "0 destroy", "caller status 10"])
  }

  /// If the call dropped the queued events by a recursion, the stack would overflow here.
  @Test func aLongQueueIsDroppedOneByOne() {
    let bench = CallBench()
    var isFirst = true
    bench.hooks[0].on[.send] = { hop in
      guard isFirst else { return 3 }
      isFirst = false
      _ = hop.takeTicket()
      return 1
    }
    bench.open()
    for _ in 0..<100_000 { bench.perform(.send(Message())) }
    bench.log = []
    bench.perform(.resolve(1, .verdict(.next)))
    #expect(bench.take().filter { $0 == "caller sent 1" }.count == 99_999)
  }

  @Test func demandOfAnyNumberDoesNotWrap() {
    let bench = CallBench()
    bench.hooks[0].on[.demand] = { hop in
      _ = hop.setSignalCount(Int.max)
      return 0
    }
    bench.open()
    for _ in 0..<3 { bench.perform(.demand(Int.max)) }
    #expect(bench.call.wantsMessage)
    bench.call.inboundMessage(CallBench.message(1))
    #expect(bench.take().contains("caller message 1"))
  }

  @Test func theAnswerOfAHopThatTakesKeepsItsOrder() {
    let bench = CallBench(.unary)
    bench.hooks[0].on[.start] = { hop in
      #expect(hop.deliverHeaders(Metadata()) == .ok)
      return 4
    }
    bench.hooks[0].on[.send] = { hop in
      #expect(hop.deliverHeaders(Metadata()) == .already)
      #expect(hop.injectInbound(CallBench.message(7)) == .ok)
      #expect(hop.deliverStatus(Status(.ok)) == .ok)
      #expect(hop.deliverStatus(Status(.ok)) == .already)
      #expect(hop.injectInbound(CallBench.message(7)) == .state)
      return 0
    }
    bench.perform(.open(demand: 2, message: CallBench.message(1)))
    bench.call.runPosted()
    #expect(
      bench.take() == [
        "0 on_start", "0 on_demand 2", "0 on_send", "caller sent 1", "0 on_half_close", "caller headers",
        "caller message 7", "0 destroy", "caller status 0",
      ])
  }

  @Test func whatIsDeliveredWhileStartIsPausedCountsWithTake() {
    for verdict in [Verdict.take, .next] {
      let bench = CallBench()
      bench.hooks[0].on[.start] = { hop in
        #expect(hop.takeTicket() == 1)
        #expect(hop.deliverHeaders(Metadata()) == .ok)
        #expect(hop.deliverStatus(Status(.aborted)) == .ok)
        return 1
      }
      bench.open(1)
      bench.call.runPosted()
      #expect(bench.take() == [])
      bench.perform(.resolve(1, .verdict(verdict)))
      #expect(
        bench.take()
          == (verdict == .take
            ? ["0 on_demand 1", "caller headers", "0 destroy", "caller status 10"]
            : ["0 on_demand 1", "server start", "pull"]))
      #expect(bench.hooks[0].on.count == 1)
    }
  }

  @Test func aHopMayCollectMessagesAndSendOne() {
    let bench = CallBench()
    var seen = 0
    bench.hooks[0].on[.receive] = { hop in
      seen += 1
      guard seen == 2 else { return hop.takeTicket() == 0 ? -1 : 2 }
      #expect(hop.injectInbound(CallBench.message(9)) == .ok)
      return 3
    }
    bench.open(1)
    bench.call.inboundMessage(CallBench.message(1))
    bench.call.inboundMessage(CallBench.message(2))
    bench.perform(.resolve(1, .verdict(.drop)))
    #expect(bench.take().filter { $0.hasPrefix("caller message") } == ["caller message 9"])
  }

  /// A later call gets the hops of an earlier call in their initial state, whatever happened to them in the
  /// earlier call. It does not get a hop whose handle a user has retained.
  @Test(arguments: [true, false], [true, false]) func hopsServeOneCallAfterAnother(signals: Bool, keeps: Bool)
  {
    let bench = CallBench(hops: 4, signals: signals)
    let chain = bench.call.chain
    var seen: [[ObjectIdentifier]] = []
    var kept: Hop?
    func whole() -> [String] {
      seen.append([])
      bench.perform(.open(demand: 1, message: nil))
      bench.perform(.send(CallBench.message(3)))
      bench.perform(.halfClose)
      bench.perform(.sentFromBelow(1))
      bench.call.inboundHeaders(Metadata())
      bench.call.inboundMessage(CallBench.message(2))
      bench.perform(.demand(1))
      bench.call.inboundStatus(Status(.notFound))
      return bench.take()
    }
    for hook in bench.hooks {
      hook.on[.start] = { hop in (seen[seen.count - 1].append(ObjectIdentifier(hop)), 0).1 }
    }
    let first = whole()
    bench.begin(.bidi, chain)
    // In the second call hop 0 injects a message, and its handle may be kept. Hop 1 returns HOLD, hop 2
    // returns DROP, and hop 3 returns TAKE and answers.
    bench.hooks[0].on[.send] = { hop in
      if keeps {
        hop.becomeShared()
        kept = hop
      }
      #expect(hop.injectOutbound(CallBench.message(7)) == .ok)
      return 0
    }
    bench.hooks[1].on[.send] = { hop in hop.takeTicket() == 0 ? -1 : 2 }
    bench.hooks[2].on[.receive] = { _ in 3 }
    bench.hooks[3].on[.start] = { hop in (seen[seen.count - 1].append(ObjectIdentifier(hop)), 4).1 }
    bench.hooks[3].on[.send] = { hop in
      _ = hop.deliverHeaders(Metadata())
      _ = hop.injectInbound(CallBench.message(5))
      return Int32(hop.deliverStatus(Status(.aborted)).rawValue)
    }
    _ = whole()
    bench.perform(.resolve(1, .verdict(.next)))
    bench.call.runPosted()
    bench.perform(.endLocally(Status(.cancelled)))
    _ = bench.take()
    #expect(kept?.hasEnded == (keeps ? true : nil))
    for hook in bench.hooks { hook.on = [.start: hook.on[.start]!] }
    bench.hooks[3].on[.start] = bench.hooks[2].on[.start]
    for _ in 0..<2 {
      bench.begin(.bidi, chain)
      #expect(whole() == first)
    }
    #expect(seen[0] == seen[1] && seen[2] == seen[3])
    #expect((seen[1] == seen[2]) == !keeps)
    #expect(!seen[2].contains { $0 == kept.map { ObjectIdentifier($0) } })
    #expect(kept == nil || kept?.hasEnded == true)
  }

  @Test func aCallThatIsNeverOpenedIsFreed() {
    weak var call: Call?
    do {
      let bench = CallBench()
      call = bench.call
      bench.call.submit(.demand(1))
    }
    #expect(call == nil)
  }

  @Test func whatIsPostedAfterTheEndIsFreedToo() {
    weak var call: Call?
    do {
      let bench = CallBench()
      call = bench.call
      bench.open()
      bench.perform(.endLocally(Status(.cancelled)))
      bench.call.submit(.send(Message()))
      bench.call.submit(.demand(1))
    }
    #expect(call == nil)
  }

  @Test func valuesAreReplacedAndFinalizedOnce() {
    final class Counter { var count = 0 }
    let counter = Counter()
    func value() -> UserData {
      UserData(Unmanaged.passUnretained(counter).toOpaque()) {
        Unmanaged<Counter>.fromOpaque($0!).takeUnretainedValue().count += 1
      }
    }
    do {
      let values = CallValues()
      #expect(with("a") { values.set($0, value()) })
      #expect(with("b") { values.set($0, value()) })
      #expect(with("a") { values.set($0, value()) })
      #expect(counter.count == 1)
      #expect(with("b") { values.get($0) } != nil)
      #expect(with("b") { values.set($0, nil) })
      #expect(counter.count == 2)
      #expect(with("b") { values.get($0) } == nil)
      #expect(with("c") { values.set($0, nil) })
    }
    #expect(counter.count == 3)
  }
}
