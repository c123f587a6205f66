import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop

/// A copy of a call's state at one moment.
public struct CallView {
  public let record: CallRecord
  /// The deadline in monotonic ns; nil: the call has no deadline.
  public let deadline: UInt64?
  public let attempts: UInt64
  /// The connection of the last attempt.
  public let connection: ConnectionFacts?
  public let standings: [Standing]
  public let holder: Holder
  /// The holder in words, such as "waiting for a connection to ...".
  public let holderWords: ByteBuffer

  /// Copies the state of `call`. Called on the driving thread.
  init(_ call: Call) {
    record = CallRecord(call)
    deadline = call.request.deadline
    attempts = call.measures.attempts.value
    connection = call.connection
    standings = call.standings
    holder = call.holder(standings)
    holderWords = call.words(for: holder)
  }
}

/// A snapshot of a runtime, for diagnosing hangs.
public struct RuntimeView {
  /// Whether every loop of the runtime has answered within the time limit. If not, `calls` is incomplete.
  public var isComplete: Bool
  /// The calls of the loops that have answered, loop by loop, the most recent call of each loop first; nil:
  /// no loop has answered.
  public var calls: [CallView]?
  /// A callback that runs now. If a loop has not answered, it is the callback of the first such loop;
  /// otherwise it is a callback of any loop. nil: no callback runs.
  public var running: CallWatch.Running?
  /// The name of the interceptor whose callback runs, followed by a NUL; nil: no callback runs, or the
  /// running callback belongs to the call itself.
  public var interceptor: ByteBuffer?
  /// The monotonic time in ns that the loop last read from the clock. A running callback began about then.
  public var turnTime: UInt64
  public var now: UInt64

  /// Adds the calls and the running callback of further loops.
  fileprivate mutating func add(_ others: RuntimeView) {
    if running == nil || isComplete && !others.isComplete {
      running = others.running
      interceptor = others.interceptor
      turnTime = others.turnTime
    }
    isComplete = isComplete && others.isComplete
    var all = calls ?? []
    for call in others.calls ?? [] { all.append(call) }
    if calls != nil || others.calls != nil { calls = all }
  }
}

extension ClientRuntime {
  /// Returns a snapshot of the runtime. Any thread. A thread that drives a loop reads that loop's state at
  /// once. For all other loops together it waits at most `nanoseconds`; a loop that has not answered by then
  /// is missing in the snapshot.
  public func view(within nanoseconds: UInt64) -> RuntimeView {
    loop.view(within: nanoseconds / UInt64(runtime.options.loops))
  }
}

extension RuntimeLoop {
  /// Returns a snapshot of this loop and of all later ones. Waits at most `nanoseconds` for each of them.
  fileprivate func view(within nanoseconds: UInt64) -> RuntimeView {
    // A loop that has ended has no calls, so it is not asked.
    let calls =
      runtime.ended.load(ordering: .acquiring)
      ? [] : look(within: nanoseconds, at: nil)
    let running = watch.running()
    let name = running.flatMap { Registrations.name(of: $0.interceptor) }
    var view = RuntimeView(
      isComplete: calls != nil, calls: calls, running: running, interceptor: name, turnTime: runtime.lastNow,
      now: runtime.clock)
    if let next { view.add(next.view(within: nanoseconds)) }
    return view
  }

  /// Copies the state of `call` (nil: of all calls), on the driving thread, or on this thread if no thread
  /// drives. Returns nil if the loop has not answered within `nanoseconds`.
  func look(within nanoseconds: UInt64, at call: ClientCall?) -> [CallView]? {
    if runtime.isDriving { return live.views(of: call) }
    var found: [CallView]?
    // If no thread drives, this thread copies the state itself. Otherwise a request asks the driving thread
    // to do so.
    if runtime.inspect({ found = live.views(of: call) }) { return found }
    let request = LoopRequest(call)
    let (sum, overflow) = Platform.systemClock().addingReportingOverflow(nanoseconds)
    let deadline = overflow ? UInt64.max : sum
    guard runtime.post(LoopRequestItem(request, live)) else { return nil }
    while true {
      if let answer = request.answer { return answer }
      let now = Platform.systemClock()
      if now >= deadline { return nil }
      let seen = request.cell.word.load(ordering: .sequentiallyConsistent)
      _ = request.cell.park(seen, until: min(deadline, now + 5_000_000))
      if request.answer == nil, runtime.inspect({ found = live.views(of: call) }) { return found }
    }
  }
}

extension LiveCalls {
  fileprivate func views(of call: ClientCall?) -> [CallView] {
    call.map { [CallView($0.call)] } ?? all.map { CallView($0.call) }
  }
}

extension ClientCall {
  /// The `ClientCall` to which `hop` belongs; nil: the call has ended. Any thread that has the hop.
  public static func of(_ hop: Hop) -> ClientCall? { hop.call.item.live(hop.call)?.owner }

  /// The present state of the call; nil: the call has ended, or the loop has not answered within
  /// `nanoseconds`.
  public func view(within nanoseconds: UInt64) -> CallView? {
    ended == nil ? channel.loop.look(within: nanoseconds, at: self)?.first : nil
  }

  /// The facts about the call, with the method's path at the time when the call was made. Any thread.
  public var record: CallRecord { CallRecord(call, call.request.firstPath, createdAt) }
}

/// A request that asks the driving thread to copy the state of calls, and the answer.
private final class LoopRequest: @unchecked Sendable {
  let cell = WaitCell()
  private let call: ClientCall?
  private let lock = Lock()
  private var found: [CallView]?

  init(_ call: ClientCall?) { self.call = call }

  var answer: [CallView]? { lock.withLock { found } }

  func ask(_ live: LiveCalls) {
    let answer = live.views(of: call)
    lock.withLock { found = answer }
    cell.set()
  }
}

private final class LoopRequestItem: InboxItem {
  private let request: LoopRequest
  private let live: LiveCalls

  init(_ request: LoopRequest, _ live: LiveCalls) {
    self.request = request
    self.live = live
  }

  override func run() { request.ask(live) }
}
