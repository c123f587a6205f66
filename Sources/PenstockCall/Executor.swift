import Synchronization

/// Runs an interceptor's callbacks elsewhere than on the driving thread.
///
/// This file has no threads: the executors themselves are in PenstockTransport.
public protocol Executor: AnyObject {
  /// Submits a job, on any thread. True: `job` runs exactly once, on any thread, perhaps before this returns. False:
  /// the executor did not take it, and does not run it.
  func submit(_ job: ExecutorJob) -> Bool

  /// Whether the calling thread is the only one that runs this executor's jobs, so that none runs while it waits.
  var isOnThisThread: Bool { get }
}

/// Work for an executor. A subclass carries what it needs and overrides `run`.
open class ExecutorJob {
  /// The next job of the executor's queue, while that has this job.
  public final var next: ExecutorJob?
  private final let ran = Atomic<Bool>(false)

  public init() {}

  /// Runs the job: once, on the executor's thread, without locks.
  open func run() {}

  /// The function that an executor calls.
  public final func runOnce() {
    if !ran.exchange(true, ordering: .acquiringAndReleasing) { run() }
  }

  /// Whether it has begun to run: an executor that did not take a job must not have run it.
  public final var hasRun: Bool { ran.load(ordering: .acquiring) }
}
