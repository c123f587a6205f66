import PenstockCall

/// An executor that keeps its jobs until `runOne`. `thread` is the number of the thread on which the jobs
/// seem to run. If the plan says inline, a job runs at once, on the thread that submits it.
final class FakeExecutor: Executor {
  let thread: UInt
  private let plan: ExecutorPlan
  /// Finds the loop of the call that a job belongs to.
  private let loop: (Job) -> FakeLoop?
  private var jobs: [ExecutorJob] = []
  private var submitted = 0
  var onRefusal: (Job) -> Void = { _ in }

  init(_ plan: ExecutorPlan, thread: UInt, loop: @escaping (Job) -> FakeLoop?) {
    self.plan = plan
    self.thread = thread
    self.loop = loop
  }

  /// The executors with which an interceptor is registered, outbound and inbound. If `create` is to choose
  /// the planned executors, the registration has them the other way round, so that a test sees whether the
  /// choice has worked.
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

  /// The cast is safe, because calls submit only objects of class `Job`. Embedded Swift has no conditional
  /// casts.
  private func hopJob(_ job: ExecutorJob) -> Job { unsafeDowncast(job, to: Job.self) }

  func drop() { jobs = [] }
}
