import PenstockWire
import Testing

@testable import PenstockCall

/// Tests the cut above the attempt (the record from which the library repeats a request). If the server has
/// certainly not processed a request, the request is sent again, once, with new hops per attempt.
@Suite struct AgainTests {
  private func refuse(_ bench: CallBench, _ how: Repeat = .unprocessed) {
    let status = Status(.unavailable, "refused")
    status.canRepeat = how
    bench.call.inboundStatus(status)
  }

  private func words(_ bench: CallBench) -> String {
    String(decoding: bench.status?.message ?? ByteView(start: nil, count: 0), as: UTF8.self)
  }

  @Test func withoutHopsNothingIsSeenOfIt() {
    let bench = CallBench(.unary, hops: 0)
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    #expect(bench.take() == ["server start", "pull", "server message 3", "server half-close"])
    refuse(bench)
    #expect(
      bench.take() == ["caller sent 1", "server start", "pull", "server message 3", "server half-close"])
    #expect(bench.call.stats.attempts == 2)
    #expect(bench.call.request.isTransparentRetry && bench.call.request.previousAttempts == 0)
    // `sent` was reported for the first attempt's message, so it is not reported again.
    bench.perform(.sentFromBelow(1))
    #expect(bench.take() == [])
    refuse(bench)
    #expect(bench.take() == ["caller status 14"])
  }

  @Test func aHopPerAttemptIsMadeForEach() {
    let bench = CallBench(.unary, hops: 2, perAttempt: [1])
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    _ = bench.take()
    refuse(bench)
    #expect(
      bench.take() == [
        "1 on_status", "1 destroy", "0 on_sent 1", "caller sent 1", "1 on_start", "1 on_demand 2",
        "server start", "pull", "1 on_send", "server message 3", "1 on_half_close", "server half-close",
      ])
    bench.perform(.sentFromBelow(1))
    #expect(bench.take() == ["1 on_sent 1"])
    bench.call.inboundStatus(Status(.ok))
    #expect(
      bench.take() == ["1 on_status", "0 on_status", "0 destroy", "1 destroy", "caller status 12"])
  }

  /// All hops are in the run (the hops that count together). The cut above the attempt is above all of them,
  /// between two of them, or below all, depending on which hops are per attempt.
  @Test(arguments: [[0, 1, 2], [1, 2], [2], []]) func hopsInTheRun(_ perAttempt: [Int]) {
    let bench = CallBench(.bidi, hops: 3, perAttempt: perAttempt, signals: false)
    bench.open(1)
    bench.perform(.send(CallBench.message(4)))
    _ = bench.take()
    refuse(bench)
    let below = perAttempt.map(String.init)
    #expect(
      bench.take() == below.reversed().map { "\($0) on_status" } + below.map { "\($0) destroy" }
        + ["caller sent 1"] + below.map { "\($0) on_start" } + ["server start", "pull"]
        + below.map { "\($0) on_send" } + ["server message 4"])
    bench.perform(.halfClose)
    #expect(bench.take() == ["0", "1", "2"].map { "\($0) on_half_close" } + ["server half-close"])
  }

  /// Each attempt gets the request as it was when it passed the cut above the attempt. The changes that a hop
  /// of an earlier attempt has made are not in it.
  @Test func eachAttemptHasTheRequestAsItPassed() {
    let bench = CallBench(.unary, hops: 1, perAttempt: [0])
    let name: StaticString = "attempt"
    var seen: [Int] = []
    bench.hooks[0].on[.start] = { hop in
      seen.append(hop.metadata!.count)
      #expect(hop.metadata!.add(name.bytes, name.bytes) == .ok)
      return 0
    }
    bench.hooks[0].on[.send] = { hop in
      seen.append(hop.message!.count)
      #expect(hop.setMessage(ByteBuffer(copying: name.bytes)!) == .ok)
      return 0
    }
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    refuse(bench)
    #expect(seen == [0, 3, 0, 3])
    #expect(bench.call.request.metadata.count == 1)
  }

  @Test func notAfterHeaders() {
    let bench = CallBench(.unary, hops: 0)
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    bench.call.inboundHeaders(Metadata())
    refuse(bench)
    #expect(bench.status?.code == .unavailable)
    #expect(bench.call.stats.attempts == 1)
  }

  /// The request is not sent again after a hop per attempt has delivered a message upward.
  @Test func notAfterAHopBelowHasDelivered() {
    let bench = CallBench(.bidi, hops: 2, perAttempt: [1])
    bench.open(2)
    bench.hooks[1].on[.send] = { hop in
      #expect(hop.injectInbound(CallBench.message(1)) == .ok)
      return 0
    }
    bench.perform(.send(CallBench.message(4)))
    refuse(bench)
    #expect(bench.status?.code == .unavailable)
  }

  @Test(arguments: [1 << 20, (1 << 20) + 1]) func upToOneMebibyte(_ size: Int) {
    for perAttempt in [[], [0]] {
      for whole in [true, false] {
        let bench = CallBench(whole ? .unary : .bidi, hops: perAttempt.count, perAttempt: perAttempt)
        bench.perform(.open(demand: 2, message: whole ? CallBench.message(size) : nil))
        if !whole { bench.perform(.send(CallBench.message(size))) }
        refuse(bench)
        #expect(bench.call.stats.attempts == (size == 1 << 20 ? 2 : 1))
        #expect((bench.status == nil) == (size == 1 << 20))
      }
    }
  }

  /// After a RESTART the library may repeat the request once more: so it sends the request again once before
  /// the RESTART and once after it, which makes four attempts.
  @Test func aRestartMayBeRefusedAgain() {
    let bench = CallBench(.unary, hops: 1, replayBytes: [100])
    bench.hooks[0].on[.status] = { _ in 5 }
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    for _ in 0..<4 { refuse(bench) }
    #expect(bench.call.stats.attempts == 4)
    #expect(bench.status?.code == .unavailable)
  }

  /// A message waits behind events that are to be sent again, when a hop above ends the call. `sent` is told
  /// for that message too, because its sender must not wait for ever.
  @Test func whatWaitsIsTold() {
    let bench = CallBench(.bidi, hops: 3, perAttempt: [2])
    bench.open(1)
    bench.perform(.send(CallBench.message(4)))
    bench.perform(.sentFromBelow(1))
    bench.hooks[2].on[.status] = { _ in
      bench.perform(.send(CallBench.message(5)))
      bench.perform(.send(CallBench.message(6)))
      return 0
    }
    bench.hooks[1].on[.send] = { hop in
      if hop.message?.count == 6 { #expect(hop.finish(Status(.aborted)) == .ok) }
      return 0
    }
    bench.hooks[0].on[.status] = { hop in hop.takeTicket() == 0 ? 0 : 1 }
    _ = bench.take()
    refuse(bench)
    #expect(
      bench.take() == [
        "2 on_status", "2 destroy", "0 on_send", "1 on_send", "0 on_send", "1 on_send", "0 on_status",
        "0 on_sent 1", "caller sent 1", "0 on_sent 1", "caller sent 1",
      ])
  }

  /// The callback of hop 0 takes hop 1 out of the run (the hops that count together). The record for a
  /// further attempt gets the message only once, after hop 1 has changed it.
  @Test func aMessageIsKeptOnceWhereTheRunBreaks() {
    let bench = CallBench(.bidi, hops: 3, perAttempt: [2], signals: false)
    var kept: Hop?
    bench.hooks[1].on[.start] = { hop in
      hop.lend()
      kept = hop
      return 0
    }
    bench.open(1)
    bench.hooks[0].on[.send] = { _ in
      _ = kept?.injectInbound(CallBench.message(1))
      return 0
    }
    bench.hooks[1].on[.send] = { hop in
      #expect(hop.setMessage(ByteBuffer(copying: ("changed" as StaticString).bytes)!) == .ok)
      return 0
    }
    bench.perform(.send(CallBench.message(4)))
    _ = bench.take()
    refuse(bench)
    let log = bench.take()
    #expect(log.filter { $0.hasPrefix("server message") } == ["server message 7"])
    #expect(log.filter { $0.hasPrefix("caller sent") } == ["caller sent 1"])
    kept = nil
  }

  @Test func emptyMessagesTakeRoom() {
    let bench = CallBench(.clientStream, hops: 0)
    bench.open(1)
    for number in 1...5_000 {
      bench.perform(.send(CallBench.message(0)))
      bench.call.transportSent(1)
      bench.log = []
      #expect(bench.call.bottomCut?.entries.count ?? 0 == (number <= 4096 ? number : 0))
    }
    refuse(bench)
    #expect(bench.status?.code == .unavailable)
  }

  /// A status that a hop has changed does not make the library send the request again.
  @Test func notWhatAHopHasChanged() {
    let bench = CallBench(.unary, hops: 1, perAttempt: [0])
    bench.hooks[0].on[.status] = { hop in
      hop.status?.setCode(.permissionDenied)
      return 0
    }
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    refuse(bench)
    #expect(bench.status?.code == .permissionDenied)
  }

  @Test func aTraceHasIt() {
    final class Notes: CallTrace {
      var all: [TraceNote] = []
      func note(_ note: TraceNote) { all.append(note) }
    }
    let notes = Notes()
    let bench = CallBench(.unary, hops: 1, perAttempt: [0], trace: notes)
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    refuse(bench)
    let restarted = notes.all.filter { $0.what == .restarted }
    #expect(restarted.count == 1 && restarted.first?.hop == -1 && restarted.first?.detail == 1)
    #expect(notes.all.filter { $0.what == .transport && $0.event == .start }.count == 2)
  }

  /// A request that the server refuses (REFUSED_STREAM) is sent again ten times, each time with new hops per
  /// attempt. These times do not count for the one attempt after another end.
  @Test func refusedTenTimes() {
    let bench = CallBench(.unary, hops: 2, perAttempt: [1])
    bench.perform(.open(demand: 2, message: CallBench.message(3)))
    for number in 1...10 {
      _ = bench.take()
      refuse(bench, .refused)
      #expect(bench.status == nil && bench.call.stats.attempts == UInt32(number + 1))
      #expect(bench.take().starts(with: ["1 on_status", "1 destroy"]))
    }
    refuse(bench)
    #expect(bench.status == nil && bench.call.stats.attempts == 12)
    refuse(bench, .refused)
    #expect(bench.status?.code == .unavailable && bench.call.stats.attempts == 12)
    #expect(words(bench) == "refused, and ten times more when the request was sent again")
  }

  /// The status says why a request is not sent again.
  @Test func saysWhyNotAgain() {
    let large = CallBench(.unary, hops: 0)
    large.perform(.open(demand: 2, message: CallBench.message((1 << 20) + 1)))
    refuse(large, .refused)
    #expect(large.call.stats.attempts == 1)
    #expect(
      words(large)
        == "refused; the request is not sent again, because its messages are over replay_bytes or "
        + "channel_replay_bytes, or more than 4096")

    let answered = CallBench(.bidi, hops: 2, perAttempt: [1])
    answered.open(2)
    answered.hooks[1].on[.send] = { hop in
      #expect(hop.injectInbound(CallBench.message(1)) == .ok)
      return 0
    }
    answered.perform(.send(CallBench.message(4)))
    refuse(answered, .refused)
    #expect(
      words(answered)
        == "refused; the request is not sent again, because a hop per attempt has answered already")

    let changed = CallBench(.unary, hops: 2, perAttempt: [1])
    changed.hooks[1].on[.status] = { hop in
      hop.status?.setCode(.aborted)
      return 0
    }
    changed.perform(.open(demand: 2, message: CallBench.message(3)))
    refuse(changed, .refused)
    #expect(changed.status?.code == .aborted && words(changed) == "refused")
  }

  @Test func policies() {
    let policy = RetryPolicy.transparent
    #expect(policy.ended(.unprocessed, after: 0, refusals: 0) == .again)
    #expect(policy.ended(.unprocessed, after: 1, refusals: 0) == .pass)
    #expect(policy.ended(.unprocessed, after: 3, refusals: 3) == .again)
    #expect(policy.ended(.unprocessed, after: 4, refusals: 3) == .pass)
    #expect(policy.ended(.passedOver, after: 0, refusals: 0) == .again)
    #expect(policy.ended(.passedOver, after: 100, refusals: 10) == .again)
    #expect(policy.ended(.refused, after: 0, refusals: 0) == .again)
    #expect(policy.ended(.refused, after: 100, refusals: 9) == .again)
    #expect(policy.ended(.refused, after: 10, refusals: 10) == .pass)
    #expect(policy.ended(.no, after: 0, refusals: 0) == .pass)
  }
}
