import PenstockWire
import Testing

@testable import PenstockCall
@testable import PenstockLaws

/// An executor that runs its jobs when the test says so. `thread` is the number of the thread on which the
/// jobs seem to run.
final class PlayedExecutor: Executor {
  let loop: FakeLoop
  let thread: UInt
  var jobs: [ExecutorJob] = []
  var refuses = false
  var isImmediate = false
  var isOnThisThread: Bool { false }

  init(_ loop: FakeLoop, _ thread: UInt) {
    self.loop = loop
    self.thread = thread
  }

  func submit(_ job: ExecutorJob) -> Bool {
    if refuses { return false }
    if isImmediate { job.runOnce() } else { jobs.append(job) }
    return true
  }

  /// Runs one job. Returns false if there is none.
  func runOne() -> Bool {
    guard !jobs.isEmpty else { return false }
    let job = jobs.removeFirst()
    (loop.thread, loop.isDriving) = (thread, false)
    job.runOnce()
    (loop.thread, loop.isDriving) = (1, true)
    return true
  }
}

/// Hops whose callbacks run on executors.
@Suite struct ExecutorTests {
  private func bench(
    _ kind: CallKind = .bidi, hops: Int = 1, apart: Bool = false
  ) -> (CallBench, PlayedExecutor, PlayedExecutor) {
    let loop = FakeLoop()
    let out = PlayedExecutor(loop, 2)
    let inbound = apart ? PlayedExecutor(loop, 3) : out
    return (CallBench(kind, hops: hops, loop: loop, executors: (out, inbound)), out, inbound)
  }

  private func run(_ bench: CallBench, _ executors: PlayedExecutor...) {
    var isBusy = true
    while isBusy {
      isBusy = false
      for executor in executors where executor.runOne() { isBusy = true }
      if bench.loop.isPosted {
        bench.loop.isPosted = false
        bench.call.runPosted()
        isBusy = true
      }
    }
  }

  @Test func eventsWaitForTheirCallback() {
    let (bench, out, _) = bench()
    bench.perform(.open(demand: 1, message: nil))
    #expect(bench.take() == [])
    bench.perform(.send(CallBench.message(1)))
    bench.perform(.halfClose)
    #expect(out.jobs.count == 1)
    run(bench, out)
    #expect(
      bench.take() == [
        "0 on_start", "server start", "0 on_demand 1", "pull", "0 on_send", "server message 1",
        "0 on_half_close",
        "server half-close",
      ])
    bench.perform(.headersFromBelow(Metadata()))
    bench.perform(.messageFromBelow(CallBench.message(2)))
    bench.perform(.statusFromBelow(Status(.ok)))
    #expect(bench.take() == ["caller sent 1"])
    run(bench, out)
    #expect(
      bench.take() == [
        "0 on_headers", "caller headers", "0 on_sent 1", "0 on_receive", "caller message 2", "0 on_status",
        "caller status 0",
        "0 destroy",
      ])
  }

  @Test func theVerdictsCount() {
    let (bench, out, _) = bench()
    var ticket: UInt64 = 0
    bench.hooks[0].on[.send] = { hop in
      switch hop.message?.count {
      case 1: return 3
      case 2:
        ticket = hop.takeTicket()
        return 1
      case 3: return 2
      default:
        _ = hop.injectOutbound(CallBench.message(9))
        return hop.setMessage(ByteBuffer(copying: ("abc" as StaticString).bytes)!) == .ok ? 0 : 99
      }
    }
    bench.open()
    run(bench, out)
    bench.log = []
    for size in 1...4 { bench.perform(.send(CallBench.message(size))) }
    run(bench, out)
    #expect(bench.take() == ["0 on_send", "caller sent 1", "0 on_send"])
    bench.perform(.resolve(ticket, .verdict(.next)))
    run(bench, out)
    #expect(
      bench.take() == [
        "server message 2", "0 on_send", "caller sent 1", "0 on_send", "server message 3", "server message 9",
        "server message 3",
      ])
  }

  /// A message that a callback injects needs demand, which it reserves. If the callback then returns RESTART, the
  /// message is dropped, and the demand counts again.
  @Test(arguments: [0, 1, 2]) func anInjectedMessageBeforeARestart(_ demand: Int) {
    let (bench, out, inbound) = bench(apart: true)
    var isFirst = true
    bench.hooks[0].on[.status] = { hop in
      _ = hop.injectInbound(CallBench.message(3))
      defer { isFirst = false }
      return isFirst ? 5 : 0
    }
    bench.perform(.open(demand: demand, message: nil))
    run(bench, out, inbound)
    bench.perform(.statusFromBelow(Status(.unavailable)))
    run(bench, out, inbound)
    #expect(bench.call.demandBelow == demand)
    #expect(bench.call.hops[0].owed == demand && bench.call.hops[0].reserved == 0)
    #expect(!bench.take().contains("caller message 3"))
    bench.perform(.statusFromBelow(Status(.unavailable)))
    run(bench, out, inbound)
    #expect(bench.take().filter { $0 == "caller message 3" }.count == min(demand, 1))
    #expect(bench.status?.code == .unavailable)
  }

  @Test func aCancelDoesNotWaitForABusyExecutor() {
    let (bench, out, _) = bench(hops: 2)
    bench.perform(.open(demand: 0, message: nil))
    bench.perform(.endLocally(Status(.cancelled)))
    #expect(bench.take() == ["discard", "caller status 1"])
    run(bench, out)
    #expect(bench.take() == ["0 on_start", "0 on_status", "0 destroy"])
  }

  @Test func destroyIsLastOnBothExecutors() {
    let (bench, out, inbound) = bench(apart: true)
    bench.perform(.open(demand: 0, message: nil))
    bench.perform(.endLocally(Status(.cancelled)))
    while inbound.runOne() {}
    #expect(bench.take() == ["discard", "caller status 1"])
    run(bench, out, inbound)
    #expect(bench.take() == ["0 on_start", "0 on_status", "0 destroy"])
  }

  /// Law 2: the callbacks for the call's end (on_status or on_cancel, then destroy) are the hop's last, on
  /// either of its two executors.
  @Test(arguments: [false, true]) func theEndIsToldBehindBothLanes(takes: Bool) {
    let (bench, out, inbound) = bench(apart: true)
    bench.hooks[0].on[.start] = { _ in takes ? 4 : 0 }
    bench.perform(.open(demand: 1, message: nil))
    if takes { run(bench, out, inbound) }
    bench.perform(.send(CallBench.message(1)))
    bench.log = []
    bench.perform(.endLocally(Status(.cancelled)))
    while inbound.runOne() {}
    #expect(bench.take() == ["discard", "caller status 1"])
    run(bench, out, inbound)
    #expect(
      bench.take() == [
        takes ? "0 on_send" : "0 on_start", takes ? "0 on_cancel" : "0 on_status", "0 destroy",
      ])
  }

  @Test func aRefusedJobIsLawSeven() {
    let (bench, out, _) = bench()
    bench.perform(.open(demand: 0, message: nil))
    run(bench, out)
    bench.log = []
    out.refuses = true
    bench.perform(.send(CallBench.message(1)))
    #expect(bench.take() == ["reset", "0 on_cancel", "0 destroy", "caller status 13"])
    #expect(
      bench.status.map { String(decoding: $0.message, as: UTF8.self) }
        == "interceptor 'hop0' lost its executor")
  }

  /// A message that the hop has injected before comes to the caller before the end.
  @Test func anInjectedMessageComesBeforeTheLossOfTheExecutor() {
    let (bench, out, inbound) = bench(apart: true)
    bench.hooks[0].on[.send] = { hop in
      _ = hop.injectInbound(CallBench.message(3))
      inbound.refuses = true
      out.refuses = true
      return 0
    }
    bench.perform(.open(demand: 1, message: nil))
    run(bench, out, inbound)
    bench.perform(.send(CallBench.message(1)))
    bench.perform(.send(CallBench.message(2)))
    run(bench, out, inbound)
    #expect(bench.take().filter { $0.hasPrefix("caller") } == ["caller message 3", "caller status 13"])
  }

  @Test func aJobRefusedWhileOthersWaitIsLawSevenToo() {
    let (bench, out, _) = bench()
    bench.open()
    run(bench, out)
    bench.perform(.demand(1))
    bench.perform(.send(CallBench.message(1)))
    bench.log = []
    out.refuses = true
    run(bench, out)
    #expect(bench.take().last == "caller status 13")
    run(bench, out)
    #expect(bench.log.filter { $0 == "0 destroy" }.count <= 1)
  }

  @Test func anImmediateExecutorWorksToo() {
    let (bench, out, _) = bench(.unary)
    out.isImmediate = true
    bench.perform(.open(demand: 2, message: CallBench.message(1)))
    run(bench, out)
    bench.perform(.messageFromBelow(CallBench.message(2)))
    bench.perform(.statusFromBelow(Status(.ok)))
    run(bench, out)
    #expect(bench.status?.code == .ok)
    #expect(bench.log.last == "caller status 0" || bench.log.last == "0 destroy")
  }

  @Test func restartByAnExecutor() {
    let (bench, out, _) = bench(hops: 2)
    bench.hooks[0].on[.status] = { hop in
      _ = hop.requestMetadata?.add(("a" as StaticString).bytes, ("b" as StaticString).bytes)
      return hop.status?.code == .unavailable ? 5 : 0
    }
    bench.perform(.open(demand: 0, message: nil))
    run(bench, out)
    bench.perform(.statusFromBelow(Status(.unavailable)))
    run(bench, out)
    #expect(bench.call.stats.attempts == 2)
    #expect(bench.call.request.metadata.count == 1)
    bench.perform(.statusFromBelow(Status(.ok)))
    run(bench, out)
    #expect(bench.status?.code == .ok)
    #expect(bench.log.filter { $0 == "1 destroy" }.count == 2)
    #expect(bench.log.filter { $0 == "0 destroy" }.count == 1)
  }

  /// Hop 0 delivers a message upward, and in the same step hop 1 ends the call. So the status goes to the
  /// executor before the message has left hop 0. But when on_status runs, the caller has the message, so the
  /// call can't be sent again.
  @Test func noRestartBehindAMessageThatTheHopHasPutIn() {
    let loop = FakeLoop()
    let inbound = PlayedExecutor(loop, 2)
    let bench = CallBench(hops: 2, replayBytes: [100], loop: loop, executors: (nil, inbound), signals: false)
    bench.hooks[0].on[.send] = { $0.injectInbound(CallBench.message(7)) == .ok ? 0 : 77 }
    bench.hooks[1].on[.send] = { $0.finish(Status(.unavailable)) == .ok ? 0 : 77 }
    var answer: Outcome?
    bench.hooks[0].on[.status] = { hop in
      answer = hop.canRestart
      return 5
    }
    bench.open(1)
    bench.perform(.send(CallBench.message(1)))
    #expect(bench.take().contains("caller message 7"))
    run(bench, inbound)
    #expect(answer == .state)
    #expect(bench.take().first == "0 on_status")
    #expect(bench.status?.code == .unavailable)
    #expect(bench.call.stats.attempts == 1)
  }

  /// One executor runs its jobs while `submit` runs, so destroy runs inside the last job of the other lane.
  @Test func destroyIsTheEventBehindTheOtherLane() {
    let (bench, out, inbound) = bench(apart: true)
    inbound.isImmediate = true
    var seen: [EventKind] = []
    bench.hooks[0].on[.destroy] = {
      seen.append($0.currentEvent)
      return 0
    }
    bench.perform(.open(demand: 0, message: nil))
    run(bench, out)
    bench.perform(.endLocally(Status(.cancelled)))
    run(bench, out)
    #expect(seen == [.destroy])
  }
}
