import PenstockWire
import Testing

@testable import PenstockCall

/// RESTART: the hops below are destroyed, and everything that has left the hop is sent again.
@Suite struct RestartTests {
  /// Makes a call with three hops, of which hop 1 may RESTART, and does so after UNAVAILABLE.
  private func bench(_ kind: CallKind = .bidi, replayBytes: Int = 100, maxRestarts: Int = 1) -> CallBench {
    let bench = CallBench(kind, hops: 3, replayBytes: [0, replayBytes, 0], maxRestarts: maxRestarts)
    bench.hooks[1].on[.status] = { hop in hop.status?.code == .unavailable ? 5 : 0 }
    return bench
  }

  private func fail(_ bench: CallBench) { bench.perform(.statusFromBelow(Status(.unavailable))) }

  @Test func theRequestIsSentAgain() {
    let bench = bench(.unary)
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    _ = bench.take()
    fail(bench)
    #expect(
      bench.take() == [
        "2 on_status", "1 on_status", "2 destroy", "1 on_sent 1", "0 on_sent 1", "caller sent 1",
        "2 on_start", "2 on_demand 2",
        "server start", "pull", "2 on_send", "server message 3", "2 on_half_close", "server half-close",
      ])
    #expect(bench.call.stats.attempts == 2)
    // The message was reported before the RESTART. So its second `sent` stops at the hop that has restarted.
    bench.perform(.sentFromBelow(1))
    #expect(bench.take() == ["2 on_sent 1"])
    bench.perform(.messageFromBelow(CallBench.message(4)))
    bench.perform(.statusFromBelow(Status(.ok)))
    #expect(
      bench.take() == [
        "2 on_receive", "1 on_receive", "0 on_receive", "caller message 4", "2 on_status", "1 on_status",
        "0 on_status",
        "0 destroy", "1 destroy", "2 destroy", "caller status 0",
      ])
  }

  @Test func onlySoOften() {
    let bench = bench(maxRestarts: 2)
    bench.open(1)
    fail(bench)
    fail(bench)
    #expect(bench.status == nil)
    #expect(bench.call.stats.attempts == 3)
    bench.log = []
    fail(bench)
    #expect(bench.status?.code == .unavailable)
    #expect(bench.take().first == "2 on_status")
  }

  @Test func notWithoutARecording() {
    for replayBytes in [0, 4] {
      let bench = bench(replayBytes: replayBytes)
      bench.open(1)
      bench.perform(.send(CallBench.message(5)))
      var answer: Outcome?
      bench.hooks[1].on[.status] = { hop in
        answer = hop.canRestart
        return 5
      }
      fail(bench)
      #expect(answer == (replayBytes == 0 ? .state : .tooLarge))
      #expect(bench.status?.code == .unavailable)
    }
  }

  @Test func notAfterSomethingHasGoneUp() {
    let bench = bench()
    bench.open(1)
    bench.perform(.headersFromBelow(Metadata()))
    fail(bench)
    #expect(bench.status?.code == .unavailable)
  }

  /// After its hop is destroyed a cut has nothing any more, whoever asks.
  @Test func aCutAfterDestroy() throws {
    let bench = bench()
    bench.open(1)
    bench.perform(.send(CallBench.message(5)))
    let cut = try #require(bench.call.hops[1].cut)
    #expect(cut.failure == nil && cut.start != nil && cut.message(at: 0)?.count == 5)
    var message = CallBench.message(6)
    #expect(cut.exchangeMessage(at: 0, with: &message) == .ok && message.count == 5)
    bench.perform(.endLocally(Status(.cancelled)))
    #expect(bench.log.contains("1 destroy"))
    #expect(cut.failure == .gone && cut.start == nil && cut.below == nil && cut.message(at: 0) == nil)
    #expect(cut.exchangeMessage(at: 0, with: &message) == .notFound && message.count == 5)
    // Later events are not recorded either.
    #expect(cut.passes(.send(CallBench.message(1)), isOwn: false) && cut.message(at: 0) == nil)
  }

  @Test func heldHeadersAndMessagesAreForgotten() {
    let bench = bench()
    bench.hooks[1].on[.headers] = { _ in 2 }
    bench.hooks[1].on[.receive] = { _ in 2 }
    bench.open(1)
    bench.perform(.headersFromBelow(Metadata()))
    bench.perform(.messageFromBelow(CallBench.message(1)))
    bench.perform(.messageFromBelow(CallBench.message(1)))
    bench.log = []
    fail(bench)
    #expect(
      bench.take() == [
        "2 on_status", "1 on_status", "2 destroy", "2 on_start", "2 on_demand 1", "server start", "pull",
      ])
    #expect(bench.call.demandBelow == 1)
    bench.perform(.endLocally(Status(.cancelled)))
    #expect(bench.status?.code == .cancelled)
  }

  @Test func editedInOnStatus() {
    let bench = bench()
    bench.hooks[1].on[.status] = { hop in
      _ = hop.requestMetadata?.add(("token" as StaticString).bytes, ("new" as StaticString).bytes)
      return hop.editStart { $0.setPath(("/c/d" as StaticString).bytes) ? .ok : .noMemory } == .ok ? 5 : 0
    }
    // A change that a hop below makes to the request is not in the recorded request.
    bench.hooks[2].on[.start] = { hop in
      _ = hop.metadata?.add(("below" as StaticString).bytes, ("x" as StaticString).bytes)
      return 0
    }
    bench.open()
    fail(bench)
    let request = bench.call.request
    #expect(bytesEqual(request.pathView, ("/c/d" as StaticString).bytes))
    #expect(request.metadata.count == 2)
    #expect(request.metadata.index(of: ("token" as StaticString).bytes) == 0)
  }

  /// Hop 0 returns HOLD for the first message, and later drops it. Then the messages behind it leave, and hop
  /// 1 fails at the first of them, so hop 0 restarts. A message that had not left by then is sent after the
  /// other one, and is reported as sent when the transport has taken it.
  @Test func whatStandsBehindTheMessageThatFailedIsToldOnce() {
    let bench = CallBench(hops: 2, replayBytes: [100])
    var ticket: UInt64 = 0
    bench.hooks[0].on[.send] = { hop in
      guard ticket == 0 else { return 0 }
      ticket = hop.takeTicket()
      return 2
    }
    bench.hooks[0].on[.status] = { hop in hop.status?.code == .internal ? 5 : 0 }
    var fails = true
    bench.hooks[1].on[.send] = { _ in
      defer { fails = false }
      return fails ? 77 : 0
    }
    bench.open()
    for size in 1...3 { bench.perform(.send(CallBench.message(size))) }
    #expect(bench.take() == ["0 on_send", "caller sent 1", "0 on_send", "0 on_send"])
    bench.perform(.resolve(ticket, .verdict(.drop)))
    #expect(
      bench.take() == [
        "1 on_send", "reset", "0 on_status", "1 destroy", "0 on_sent 1", "caller sent 1",
        "1 on_start", "server start", "1 on_send", "server message 2", "1 on_send", "server message 3",
      ])
    bench.perform(.sentFromBelow(2))
    #expect(bench.take() == ["1 on_sent 2", "0 on_sent 1", "caller sent 1"])
  }

  @Test func byTicketWhileTheCallerGoesOn() {
    let bench = bench()
    var ticket: UInt64 = 0
    bench.hooks[1].on[.status] = { hop in
      ticket = hop.takeTicket()
      return 1
    }
    bench.open()
    bench.perform(.send(CallBench.message(1)))
    fail(bench)
    bench.perform(.send(CallBench.message(2)))
    bench.log = []
    bench.perform(.resolve(ticket, .verdict(.restart)))
    bench.perform(.halfClose)
    #expect(
      bench.take() == [
        "2 destroy", "2 on_start", "server start", "2 on_send", "server message 1", "2 on_send",
        "server message 2",
        "0 on_half_close", "1 on_half_close", "2 on_half_close", "server half-close",
      ])
  }

  @Test func cancelledInBetween() {
    let bench = bench()
    bench.hooks[2].on[.start] = { hop in
      if hop.attempt == 2 { hop.call.submit(.endLocally(Status(.cancelled))) }
      return hop.attempt == 2 && hop.takeTicket() != 0 ? 1 : 0
    }
    bench.open()
    fail(bench)
    bench.call.runPosted()
    #expect(bench.status?.code == .cancelled)
    #expect(bench.log.filter { $0 == "2 destroy" }.count == 2)
    #expect(bench.log.filter { $0 == "1 destroy" }.count == 1)
  }

  @Test func aHopBelowThatEndsItAtOnce() {
    let bench = bench(maxRestarts: 3)
    bench.hooks[2].on[.start] = { hop in
      _ = hop.finish(Status(.unavailable))
      return 0
    }
    bench.perform(.open(demand: 1, message: nil))
    #expect(bench.status?.code == .unavailable)
    #expect(bench.log.filter { $0 == "2 destroy" }.count == 4)
    #expect(bench.log.filter { $0 == "1 on_status" }.count == 4)
  }
}
