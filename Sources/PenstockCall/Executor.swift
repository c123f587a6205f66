import CMemory
import Synchronization

/// Runs an interceptor's callbacks elsewhere than on the driving thread.
///
/// This file has no threads: the executors themselves are in PenstockTransport.
public protocol Executor: AnyObject {
  /// Submits a job, on any thread. True: `job` runs exactly once, on any thread, perhaps before `submit`
  /// returns. False: the executor did not take the job, and does not run it.
  func submit(_ job: ExecutorJob) -> Bool

  /// Whether only the calling thread runs this executor's jobs, so that no job runs while the thread waits.
  var isOnThisThread: Bool { get }
}

/// Work for an executor. A subclass carries what it needs and overrides `run`.
open class ExecutorJob {
  /// The next job of the executor's queue, while this job is in the queue.
  public final var next: ExecutorJob?
  private final let ran = Atomic<Bool>(false)

  public init() {}

  /// Does the job's work. Called once, on the thread on which the executor runs the job, while no lock is held.
  open func run() {}

  /// Runs the job, unless it has run already. An executor calls this function.
  public final func runOnce() {
    guard !ran.exchange(true, ordering: .acquiringAndReleasing) else { return }
    cm_callback(1)
    run()
    cm_callback(-1)
  }

  /// Whether the job has begun to run: an executor that refuses a job must not have run it.
  public final var hasRun: Bool { ran.load(ordering: .acquiring) }
}
