import PenstockCall
import PenstockWire
import Synchronization

/// A call as it stands.
public struct CallView {
  public let record: CallRecord
  /// Monotonic nanoseconds; nil: no deadline.
  public let deadline: UInt64?
  public let attempts: UInt64
  public let standings: [Standing]
  public let holder: Holder

  /// The driving thread.
  init(_ call: Call) {
    record = CallRecord(call)
    deadline = call.request.deadline
    attempts = call.measures.attempts.value
    standings = call.standings
    holder = call.holder(standings)
  }
}

/// A snapshot of a runtime, for diagnosing hangs.
public struct RuntimeView {
  /// The latest first; nil: the loop has not answered in time.
  public var calls: [CallView]?
  public var running: CallWatch.Running?
  /// Followed by a NUL; nil: that is a callback of the call's own.
  public var interceptor: ByteBuffer?
  /// When the turn began in which that runs.
  public var turnTime: UInt64
  public var now: UInt64
}

extension ClientRuntime {
  /// Any thread: on the driving thread at once, elsewhere within `nanoseconds`, even if the loop does not answer.
  @inline(never) @_optimize(size)
  public func view(within nanoseconds: UInt64) -> RuntimeView {
    // Where the loop has ended, there are none.
    let calls =
      runtime.ended.load(ordering: .acquiring)
      ? [] : look(within: nanoseconds) { live in live.all.map { CallView($0.call) } }
    let running = watch.running()
    let name = running.flatMap { Registrations.name(of: $0.interceptor) }
    return RuntimeView(
      calls: calls, running: running, interceptor: name, turnTime: runtime.lastNow,
      now: Runtime.monotonicNow())
  }

  /// Any thread, in the same way: one call; nil: no answer in time.
  func view(of call: ClientCall, within nanoseconds: UInt64) -> CallView? {
    look(within: nanoseconds) { _ in [CallView(call.call)] }?.first
  }

  /// Runs `body` where it may look at calls.
  @inline(never) @_optimize(size)
  private func look(within nanoseconds: UInt64, _ body: @escaping (LiveCalls) -> [CallView]) -> [CallView]? {
    if runtime.isDriving { return body(live) }
    var found: [CallView]?
    // This thread may look as soon as nobody drives; while another thread drives, that one is asked.
    if runtime.inspect({ found = body(live) }) { return found }
    let question = Question { body($0) }
    let (sum, overflow) = Runtime.monotonicNow().addingReportingOverflow(nanoseconds)
    let deadline = overflow ? UInt64.max : sum
    guard runtime.post(Asking(question, live)) else { return nil }
    while true {
      if let answer = question.answer { return answer }
      let now = Runtime.monotonicNow()
      if now >= deadline { return nil }
      let seen = question.cell.word.load(ordering: .sequentiallyConsistent)
      _ = question.cell.park(seen, until: min(deadline, now + 5_000_000))
      if question.answer == nil, runtime.inspect({ found = body(live) }) { return found }
    }
  }
}

extension ClientCall {
  /// Any thread that has the hop; nil once the call has ended.
  public static func of(_ hop: Hop) -> ClientCall? { hop.call.item.live(hop.call)?.owner }

  /// Where it stands; nil: it has ended, or the loop has not answered in time.
  public func view(within nanoseconds: UInt64) -> CallView? {
    ended == nil ? channel.runtime.view(of: self, within: nanoseconds) : nil
  }

  /// Any thread: with the method that it was made for.
  public var record: CallRecord { CallRecord(call, call.request.firstPath, createdAt) }
}

/// The question to the driving thread, and its answer.
private final class Question: @unchecked Sendable {
  let cell = WaitCell()
  private let body: (LiveCalls) -> [CallView]
  private let lock = Lock()
  private var found: [CallView]?

  init(_ body: @escaping (LiveCalls) -> [CallView]) { self.body = body }

  var answer: [CallView]? { lock.withLock { found } }

  func ask(_ live: LiveCalls) {
    let answer = body(live)
    lock.withLock { found = answer }
    cell.set()
  }
}

private final class Asking: InboxItem {
  private let question: Question
  private let live: LiveCalls

  init(_ question: Question, _ live: LiveCalls) {
    self.question = question
    self.live = live
  }

  override func run() { question.ask(live) }
}
