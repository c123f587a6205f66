import PenstockCall

/// An executor that keeps its jobs until `runOne`, and runs them on a thread that the test only pretends to have. If
/// its plan says inline, it runs each job at once, on the thread that submits it.
final class FakeExecutor: Executor {
  let thread: UInt
  private let plan: ExecutorPlan
  /// The loop of the call that submits a job.
  private let loop: (Job) -> FakeLoop?
  private var jobs: [ExecutorJob] = []
  private var submitted = 0
  var onRefusal: (Job) -> Void = { _ in }

  init(_ plan: ExecutorPlan, thread: UInt, loop: @escaping (Job) -> FakeLoop?) {
    self.plan = plan
    self.thread = thread
    self.loop = loop
  }

  /// The executors that an interceptor is registered with, outbound and inbound. If `create` is to choose the planned
  /// ones, the registration has them the other way round, so that the choice shows.
  static func registered(_ plan: HopPlan, _ all: [FakeExecutor]) -> (FakeExecutor?, FakeExecutor?) {
    guard let own = plan.executors else { return (nil, nil) }
    let numbers = own.inCreate ? (own.inbound, own.outbound) : (own.outbound, own.inbound)
    return (numbers.0.map { all[$0] }, numbers.1.map { all[$0] })
  }

  var isOnThisThread: Bool { false }
  var isIdle: Bool { jobs.isEmpty }

  func submit(_ job: ExecutorJob) -> Bool {
    submitted += 1
    if plan.refusesFrom > 0, submitted >= plan.refusesFrom, submitted - plan.refusesFrom < plan.refusals {
      onRefusal(hopJob(job))
      return false
    }
    if plan.isInline { job.runOnce() } else { jobs.append(job) }
    return true
  }

  func runOne() {
    guard !jobs.isEmpty else { return }
    let job = plan.newestFirst ? jobs.removeLast() : jobs.removeFirst()
    guard let loop = loop(hopJob(job)) else { return }
    let before = (loop.thread, loop.isDriving)
    (loop.thread, loop.isDriving) = (thread, false)
    job.runOnce()
    (loop.thread, loop.isDriving) = before
  }

  /// The cast is safe, as calls submit only a `Job`; Embedded Swift has no conditional casts.
  private func hopJob(_ job: ExecutorJob) -> Job { unsafeDowncast(job, to: Job.self) }

  func drop() { jobs = [] }
}
