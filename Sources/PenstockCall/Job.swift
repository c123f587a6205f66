import PenstockWire
import Synchronization

/// One callback of a hop that runs on an executor: its event, and the actions that it asks for. It keeps
/// everything that the callback needs, because the call may end, or go on without the event, while the
/// callback runs.
public final class Job: ExecutorJob {
  enum Work {
    case callback(HopCallback)
    case destroy
    /// The last job of this lane. When it has run, the callback for the call's end, if there is one, and
    /// `destroy` run on the other lane.
    case lastOfLane(Job?, then: Job)
  }

  public let hop: Hop
  public let kind: EventKind
  let event: Event
  private let work: Work
  private let registration: Registration
  private unowned(unsafe) let queue: JobQueue
  /// Whether the job tells the call (`Call.ran`) when its callback has returned.
  let isAwaited: Bool
  /// The next job of this lane. The thread that appends that job writes this reference before it counts the
  /// job.
  fileprivate var following: Job?

  /// In on_start: a copy of the start, which the callback may change; the call uses the copy from the
  /// callback's verdict on. In on_status: the recorded start, which a RESTART sends.
  var start: Request?
  // Copies of further parts of the call's request, made when the event came, because the driving thread may
  // change the request while the callback runs.
  let path: ByteBuffer
  let labels: RequestLabels?
  let deadline: UInt64?
  let settings: CallSettings
  let route: CallRoute?
  /// Kept, because the job may run after the call's end.
  private let context: UserData?

  /// For on_status: whether a RESTART was possible when the status came.
  var canRestart = Outcome.state
  public internal(set) var count = 0
  var ticket: UInt64 = 0
  var finishRequest: Status?
  var injected: [Event] = []
  private(set) var answer: Int32 = 0

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
    context = hop.call.context
    if isAwaited { hop.call.withLoop { $0.shareTickets(of: hop.call) } }
    // `submit` is the user's code, and may take long.
    hop.call.watch.isStale = true
  }

  public override func run() {
    perform()
    queue.goOn(after: self)
  }

  /// Gives the hop's last callbacks to the executor: `ending`, the callback for the call's end, if there is
  /// one, and then this job, which is `destroy`. Called when no callback of the hop runs in its other lane any
  /// more.
  func goLast(behind ending: Job?) {
    if let ending { queue.appendOrPerform(ending) }
    queue.appendOrPerform(self)
  }

  /// Runs the job on the calling thread, without the executor.
  func perform() {
    if case .lastOfLane(let ending, let last) = work {
      // `running` is not set for this job, because the executor may run the hop's last job while `submit`
      // still runs.
      queue.close()
      last.goLast(behind: ending)
      return
    }
    queue.begin(self, on: hop.call.withLoop { $0.thread })
    let began = hop.call.callbackBegins
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
    hop.call.callbackEnded(began, kind, of: registration.id)
    queue.end()
    if case .destroy = work { queue.close() }
    if isAwaited { hop.call.submit(.ran(self)) }
  }
}

/// The queues of one hop's callbacks. The object is never changed, only replaced, because other threads that
/// have the hop may read it while `create` chooses executors.
final class HopQueues {
  let outbound: JobQueue?
  let inbound: JobQueue?
  /// The queues that these have replaced: another thread may still use them.
  private let former: HopQueues?

  init(_ outbound: (any Executor)?, _ inbound: (any Executor)?, after former: HopQueues?) {
    self.outbound = outbound.map { JobQueue($0) }
    self.inbound = outbound === inbound ? self.outbound : inbound.map { JobQueue($0) }
    self.former = former
  }
}

/// The callbacks of one hop that run on one executor, of one lane or of both: in order, one at a time. The
/// driving thread appends jobs; each job submits the next one when it has run.
final class JobQueue {
  let executor: any Executor
  /// The newest job. Used only by the thread that appends jobs, and by `close` at the end.
  private var last: Job?
  private var isLost = false
  /// The job of the callback for the call's end (on_status or on_cancel). It is appended together with
  /// `destroy`, behind the jobs of both lanes (law 2).
  var ending: Job?
  /// The number of jobs that were appended and have not finished.
  private let count = Atomic<Int>(0)
  /// The number of the thread on which a job runs now; only that thread reads `running`.
  private let runner = Atomic<UInt>(0)
  private var running: Job?

  init(_ executor: any Executor) { self.executor = executor }

  /// Appends a job. Returns false if the executor has refused it; the queue then takes no more jobs.
  func append(_ job: Job) -> Bool {
    if isLost { return false }
    last?.following = job
    last = job
    guard count.wrappingAdd(1, ordering: .acquiringAndReleasing).oldValue == 0 else { return true }
    if executor.submit(job) { return true }
    isLost = true
    return false
  }

  /// Appends a job. If the executor has refused one, runs the job on the calling thread, because no other job
  /// of the lane runs then.
  func appendOrPerform(_ job: Job) { if !append(job) { job.perform() } }

  fileprivate func goOn(after job: Job) {
    var done = job
    while count.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue > 0 {
      guard let next = done.following else { return }
      done.following = nil
      if executor.submit(next) { return }
      // The executor has refused a job, so the call ends (law 7). This thread belongs to the executor, so it
      // runs the remaining jobs itself.
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

  /// Closes the queue; no job is appended any more. Releases the newest job, because it refers to the hop,
  /// which refers to this queue.
  fileprivate func close() { last = nil }

  /// The job that runs now, if it runs on the calling thread, whose number is `thread`; otherwise nil.
  func job(on thread: UInt) -> Job? { runner.load(ordering: .acquiring) == thread ? running : nil }
}
