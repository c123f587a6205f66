import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockTransport

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
  /// The channels of the loops that have answered; nil: no loop has answered.
  public var channels: [ChannelView]?
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
    if channels != nil || others.channels != nil { channels = (channels ?? []) + (others.channels ?? []) }
  }
}

extension ClientRuntime {
  /// Returns a snapshot of the runtime. Any thread. A thread that drives a loop reads that loop's state at
  /// once. For all other loops together it waits at most `nanoseconds`; a loop that has not answered by then
  /// is missing in the snapshot.
  public func view(within nanoseconds: UInt64) -> RuntimeView {
    loop.view(within: nanoseconds / UInt64(runtime.options.loops), channels)
  }
}

extension RuntimeLoop {
  /// Returns a snapshot of this loop and of all later ones. Waits at most `nanoseconds` for each of them.
  fileprivate func view(within nanoseconds: UInt64, _ channels: [(loop: RuntimeLoop, channel: Channel)])
    -> RuntimeView
  {
    // A loop that has ended has no calls, so it is not asked.
    let found =
      runtime.ended.load(ordering: .acquiring)
      ? LoopView()
      : look(within: nanoseconds, at: .all(channels.filter { $0.loop === self }.map { $0.channel }))
    let running = watch.running()
    let name = running.flatMap { Registrations.name(of: $0.interceptor) }
    var view = RuntimeView(
      isComplete: found != nil, calls: found?.calls, channels: found?.channels, running: running,
      interceptor: name, turnTime: runtime.lastNow, now: runtime.clock)
    if let next { view.add(next.view(within: nanoseconds, channels)) }
    return view
  }

  /// Copies the state of `what`, on the driving thread, or on this thread if no thread drives. Returns nil if
  /// the loop has not answered within `nanoseconds`.
  func look(within nanoseconds: UInt64, at what: LoopSubject) -> LoopView? {
    if runtime.isDriving { return live.view(of: what) }
    var found: LoopView?
    // If no thread drives, this thread copies the state itself. Otherwise a request asks the driving thread
    // to do so.
    if runtime.inspect({ found = live.view(of: what) }) { return found }
    let request = LoopRequest(what)
    let (sum, overflow) = Platform.systemClock().addingReportingOverflow(nanoseconds)
    let deadline = overflow ? UInt64.max : sum
    guard runtime.post(LoopRequestItem(request, live)) else { return nil }
    while true {
      if let answer = request.answer { return answer }
      let now = Platform.systemClock()
      if now >= deadline { return nil }
      let seen = request.cell.word.load(ordering: .sequentiallyConsistent)
      _ = request.cell.park(seen, until: min(deadline, now + 5_000_000))
      if request.answer == nil, runtime.inspect({ found = live.view(of: what) }) { return found }
    }
  }
}

/// The copy that `RuntimeLoop.look` makes.
enum LoopSubject {
  case call(ClientCall)
  case channel(Channel)
  /// All calls, and these channels.
  case all([Channel])
}

/// A copy of the state of a loop's calls and channels.
struct LoopView {
  var calls: [CallView] = []
  var channels: [ChannelView] = []
}

extension LiveCalls {
  fileprivate func view(of what: LoopSubject) -> LoopView {
    switch what {
    case .call(let call): LoopView(calls: [CallView(call.call)])
    case .channel(let channel): LoopView(channels: [channel.view])
    case .all(let channels):
      LoopView(calls: all.map { CallView($0.call) }, channels: channels.map { $0.view })
    }
  }
}

extension ClientCall {
  /// The `ClientCall` to which `hop` belongs; nil: the call has ended. Any thread that has the hop.
  public static func of(_ hop: Hop) -> ClientCall? { hop.call.item.live(hop.call)?.owner }

  /// The present state of the call; nil: the call has ended, or the loop has not answered within
  /// `nanoseconds`.
  public func view(within nanoseconds: UInt64) -> CallView? {
    ended == nil ? channel.loop.look(within: nanoseconds, at: .call(self))?.calls.first : nil
  }

  /// The facts about the call, with the method's path at the time when the call was made. Any thread.
  public var record: CallRecord { CallRecord(call, call.request.firstPath, createdAt) }
}

/// A request that asks the driving thread to copy the state of calls and channels, and the answer.
private final class LoopRequest: @unchecked Sendable {
  let cell = WaitCell()
  private let what: LoopSubject
  private let lock = Lock()
  private var found: LoopView?

  init(_ what: LoopSubject) { self.what = what }

  var answer: LoopView? { lock.withLock { found } }

  func ask(_ live: LiveCalls) {
    let answer = live.view(of: what)
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
