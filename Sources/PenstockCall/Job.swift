import PenstockWire
import Synchronization

/// One callback of a hop that runs on an executor: its event, and its requests. It keeps all it needs,
/// for the call may end, or go on without the event, while it runs.
public final class Job: ExecutorJob {
  enum Work {
    case callback(HopCallback)
    case destroy
    /// Nothing runs on this lane any more: how the call ended, and `destroy`, follow on the other.
    case lastOfLane(Job?, then: Job)
  }

  public let hop: Hop
  public let kind: EventKind
  let event: Event
  private let work: Work
  private let registration: Registration
  private unowned(unsafe) let queue: JobQueue
  /// The call waits for the answer.
  let isAwaited: Bool
  /// The next of this lane; written by the producer before it counts it.
  fileprivate var following: Job?

  /// The start that on_start changes: a copy, which the call takes over with the verdict. In on_status the recorded start.
  var start: Request?
  // The call's values as they were when the event came.
  let path: ByteBuffer
  let authority: ByteBuffer?
  let deadline: UInt64?
  let settings: CallSettings

  /// In on_status: the answer as it was when the status came.
  var canRestart = Outcome.state
  public internal(set) var count = 0
  var ticket: UInt64 = 0
  var finishRequest: Status?
  var injected: [Event] = []
  private(set) var answer: Int32 = 0

  @inline(never) @_optimize(size)
  init(_ hop: Hop, _ event: Event, _ kind: EventKind, _ work: Work, _ queue: JobQueue, isAwaited: Bool) {
    self.hop = hop
    self.event = event
    self.kind = kind
    self.work = work
    self.queue = queue
    self.isAwaited = isAwaited
    registration = hop.registration
    path = hop.call.request.path
    authority = hop.call.request.authority
    deadline = hop.call.request.deadline
    settings = hop.call.request.settings
    if isAwaited { hop.call.withLoop { $0.shareTickets(of: hop.call) } }
    // The executor is the user's, and may run it at once.
    hop.call.watch.hasRun = true
  }

  public override func run() {
    perform()
    queue.goOn(after: self)
  }

  /// `destroy`, and before it the callback that tells of the end: nothing of the hop runs any more on its other lane.
  @inline(never) @_optimize(size)
  func goLast(behind ending: Job?) {
    if let ending { queue.appendOrPerform(ending) }
    queue.appendOrPerform(self)
  }

  /// Runs the job without an executor, on the calling thread.
  @inline(never) @_optimize(size)
  func perform() {
    if case .lastOfLane(let ending, let last) = work {
      // Not as a callback that runs: an executor may run the last one in `submit`.
      queue.close()
      last.goLast(behind: ending)
      return
    }
    queue.begin(self, on: hop.call.withLoop { $0.thread })
    switch work {
    case .callback(let callback):
      answer =
        hop.call.trace == nil
        ? callback(hop.handle, hop.state) : hop.runTraced(kind) { callback(hop.handle, hop.state) }
    case .destroy:
      registration.callbacks.pointee.destroy?(hop.handle, hop.state)
      if hop.call.trace != nil { hop.call.note(.callback, hop, .destroy) }
    case .lastOfLane: break
    }
    queue.end()
    if case .destroy = work { queue.close() }
    if isAwaited { hop.call.submit(.ran(self)) }
  }
}

/// The callbacks of one hop that run on one executor: in order, one at a time. The driving thread appends; each,
/// when it has run, submits the next.
final class JobQueue {
  let executor: any Executor
  /// Used by the producer only.
  private var last: Job?
  private var isLost = false
  /// The job that tells of the call's end: it goes with `destroy`, behind the jobs of either lane (law 2).
  var ending: Job?
  /// How many have been appended and have not run.
  private let count = Atomic<Int>(0)
  /// The thread on which one runs; only that thread looks at `running`.
  private let runner = Atomic<UInt>(0)
  private var running: Job?

  init(_ executor: any Executor) { self.executor = executor }

  /// False: the executor has not taken it, and takes none any more.
  @inline(never) @_optimize(size)
  func append(_ job: Job) -> Bool {
    if isLost { return false }
    last?.following = job
    last = job
    guard count.wrappingAdd(1, ordering: .acquiringAndReleasing).oldValue == 0 else { return true }
    if executor.submit(job) { return true }
    isLost = true
    return false
  }

  /// Where the executor is lost, jobs that have to run are run here: nothing else of the lane runs then.
  func appendOrPerform(_ job: Job) { if !append(job) { job.perform() } }

  @inline(never) @_optimize(size)
  fileprivate func goOn(after job: Job) {
    var done = job
    while count.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue > 0 {
      guard let next = done.following else { return }
      done.following = nil
      if executor.submit(next) { return }
      // Law 7; but this thread is the executor's still, so the rest runs here.
      next.hop.call.submit(.executorLost(next.hop))
      next.perform()
      done = next
    }
  }

  fileprivate func begin(_ job: Job, on thread: UInt) {
    running = job
    runner.store(thread, ordering: .releasing)
  }

  fileprivate func end() {
    runner.store(0, ordering: .releasing)
    running = nil
  }

  /// Nothing is appended any more. The newest job keeps the hop, and that the queue.
  fileprivate func close() { last = nil }

  /// The job that runs on `thread`, which is the calling one.
  func job(on thread: UInt) -> Job? { runner.load(ordering: .acquiring) == thread ? running : nil }
}
