import PenstockCall

/// Runs its jobs when it is told to, on a thread that the test plays; or at once, on the thread that brings them.
final class FakeExecutor: Executor {
  let thread: UInt
  private let plan: ExecutorPlan
  private let loop: FakeLoop
  private var jobs: [ExecutorJob] = []
  private var submitted = 0
  var onRefusal: (Visit) -> Void = { _ in }

  init(_ plan: ExecutorPlan, _ loop: FakeLoop, thread: UInt) {
    self.plan = plan
    self.loop = loop
    self.thread = thread
  }

  var isOnThisThread: Bool { false }
  var isIdle: Bool { jobs.isEmpty }

  func submit(_ job: ExecutorJob) -> Bool {
    submitted += 1
    if plan.refusesFrom > 0, submitted >= plan.refusesFrom, submitted - plan.refusesFrom < plan.refusals {
      // Calls bring nothing else; Embedded Swift has no conditional casts.
      onRefusal(unsafeDowncast(job, to: Visit.self))
      return false
    }
    if plan.isInline { job.runOnce() } else { jobs.append(job) }
    return true
  }

  func runOne() {
    guard !jobs.isEmpty else { return }
    let job = plan.newestFirst ? jobs.removeLast() : jobs.removeFirst()
    let before = (loop.thread, loop.isDriving)
    (loop.thread, loop.isDriving) = (thread, false)
    job.runOnce()
    (loop.thread, loop.isDriving) = before
  }

  func drop() { jobs = [] }
}
