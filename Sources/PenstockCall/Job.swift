import PenstockWire
import Synchronization

/// One callback of a hop that runs on an executor: its event, and the actions that it asks for. The job keeps
/// all that the callback needs, because the call may end, or go on without the event, while the callback
/// runs.
public final class Job: ExecutorJob {
  enum Work {
    case callback(HopCallback)
    case destroy
    /// The last job of this lane: the callback for the call's end, and `destroy`, follow on the other lane.
    case lastOfLane(Job?, then: Job)
  }

  public let hop: Hop
  public let kind: EventKind
  let event: Event
  private let work: Work
  private let registration: Registration
  private unowned(unsafe) let queue: JobQueue
  /// Whether the call is told (`Call.ran`) when the job has run.
  let isAwaited: Bool
  /// The next job of this lane. The thread that appends the next job writes this, before it counts that job.
  fileprivate var following: Job?

  /// In on_start a copy of the start, which the callback may change and the call takes over with the verdict; in
  /// on_status the recorded start.
  var start: Request?
  // The rest of the call's request as it was when the event came, because the driving thread may change the request
  // while the callback runs.
  let path: ByteBuffer
  let labels: RequestLabels?
  let deadline: UInt64?
  let settings: CallSettings
  let route: CallRoute?

  /// Whether a RESTART was possible when the status came; for on_status.
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
    labels = hop.call.request.labels
    deadline = hop.call.request.deadline
    settings = hop.call.request.settings
    route = hop.call.request.route
    if isAwaited { hop.call.withLoop { $0.shareTickets(of: hop.call) } }
    // The executor is the user's code, and may run for long when it gets the job.
    hop.call.watch.hasRun = true
  }

  public override func run() {
    perform()
    queue.goOn(after: self)
  }

  /// Runs `destroy`, and before it the callback that tells of the end. Called when no callback of the hop runs on its
  /// other lane any more.
  @inline(never) @_optimize(size)
  func goLast(behind ending: Job?) {
    if let ending { queue.appendOrPerform(ending) }
    queue.appendOrPerform(self)
  }

  /// Runs the job without an executor, on the calling thread.
  @inline(never) @_optimize(size)
  func perform() {
    if case .lastOfLane(let ending, let last) = work {
      // The queue does not note this job as running, because the executor may run the last job within
      // `submit`.
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

/// The queues of one hop. The object is never changed, only replaced, because other threads that have the hop may look
/// at it while `create` chooses executors.
final class HopQueues {
  let outbound: JobQueue?
  let inbound: JobQueue?
  /// The queues that these replace: other threads may still look at them.
  private let former: HopQueues?

  @inline(never) @_optimize(size)
  init(_ outbound: (any Executor)?, _ inbound: (any Executor)?, after former: HopQueues?) {
    self.outbound = outbound.map { JobQueue($0) }
    self.inbound = outbound === inbound ? self.outbound : inbound.map { JobQueue($0) }
    self.former = former
  }
}

/// The callbacks of one hop that run on one executor: in order, one at a time. The driving thread appends jobs; each
/// job, when it has run, submits the next.
final class JobQueue {
  let executor: any Executor
  /// Used only by the thread that appends jobs, and at the very end by `close`.
  private var last: Job?
  private var isLost = false
  /// The job of the callback for the call's end. It goes with `destroy`, behind the jobs of both lanes (law
  /// 2).
  var ending: Job?
  /// The number of jobs that were appended and have not run.
  private let count = Atomic<Int>(0)
  /// The thread on which a job runs; only that thread looks at `running`.
  private let runner = Atomic<UInt>(0)
  private var running: Job?

  init(_ executor: any Executor) { self.executor = executor }

  /// Appends a job. False: the executor has refused it, and takes none any more.
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

  /// Appends a job, or runs it here if the executor is lost: no other job of the lane runs then.
  func appendOrPerform(_ job: Job) { if !append(job) { job.perform() } }

  @inline(never) @_optimize(size)
  fileprivate func goOn(after job: Job) {
    var done = job
    while count.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue > 0 {
      guard let next = done.following else { return }
      done.following = nil
      if executor.submit(next) { return }
      // The executor has refused a job, so the call ends (law 7). This thread is the executor's: it runs the
      // other jobs.
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

  /// Closes the queue: no job is appended any more. Releases the newest job, which keeps the hop, which keeps
  /// the queue.
  fileprivate func close() { last = nil }

  /// The job that runs on the calling thread, `thread`.
  func job(on thread: UInt) -> Job? { runner.load(ordering: .acquiring) == thread ? running : nil }
}
