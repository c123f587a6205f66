import PenstockWire
import Synchronization

/// Runs the callbacks of an interceptor on a thread other than the driving thread.
///
/// This module makes no threads: the executors themselves are in PenstockClient/Executors.
public protocol Executor: AnyObject {
  /// Submits a job, on any thread. True: `job` runs exactly once, on any thread, perhaps before `submit`
  /// returns. False: the executor did not take the job, and does not run it.
  func submit(_ job: ExecutorJob) -> Bool

  /// Whether the calling thread is the only one that runs this executor's jobs; then no job runs while the
  /// thread waits.
  var isOnThisThread: Bool { get }
}

/// One piece of work for an executor. Subclasses add the data that the work needs, and override `run`.
open class ExecutorJob {
  /// The next job in the executor's queue, while this job is in that queue.
  public final var next: ExecutorJob?
  private final let ran = Atomic<Bool>(false)

  public init() {}

  /// Does the job's work. Called once, on the thread on which the executor runs the job, while no lock is held.
  open func run() { mustOverride(()) }

  /// Runs the job, unless it has run already. An executor calls this function.
  public final func runOnce() {
    guard !ran.exchange(true, ordering: .acquiringAndReleasing) else { return }
    CallbackThread.begin()
    run()
    CallbackThread.end()
  }

  /// Whether the job has begun to run: an executor that refuses a job must not have run it.
  public final var hasRun: Bool { ran.load(ordering: .acquiring) }
}
