import Synchronization

/// Runs an interceptor's callbacks elsewhere than on the driving thread.
///
/// Nothing here has a thread: the executors themselves stand in the transport.
public protocol Executor: AnyObject {
  /// Any thread. True: `job` runs exactly once, on any thread, perhaps before this returns. False: it was not taken,
  /// and does not run.
  func submit(_ job: ExecutorJob) -> Bool

  /// The calling thread is the only one that runs this executor's jobs: while it waits, none runs.
  var isOnThisThread: Bool { get }
}

/// Work for an executor. A subclass carries what it needs and overrides `run`.
open class ExecutorJob {
  /// Used by the executor's queue, while it has the job.
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
