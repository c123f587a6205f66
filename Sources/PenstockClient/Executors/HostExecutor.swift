public import PenstockCall
import Synchronization
import PenstockLoop
import PenstockWire

/// The object of a penstock_executor handle.
open class HostExecutor: Executor {
  /// The generation of the process that made the executor. The executor's threads do not exist in a forked
  /// child, unless the child has taken over its parent's handles (see `Fork`).
  public final let generation = Process.generation

  init() {}

  public final var isForked: Bool { Process.isForked(generation) }

  open func submit(_ job: ExecutorJob) -> Bool { mustOverride(false) }

  /// False by default: the executor's threads are not known.
  open var isOnThisThread: Bool { false }

  /// Called with the user's promise that the executor still runs jobs in a forked child. False, as by
  /// default: the promise is ignored, because an executor of this class needs none.
  open func survivesFork() -> Bool { false }
}

/// A user's executor: a function that takes jobs.
public final class UserExecutor: HostExecutor {
  public typealias Job = @convention(c) (UnsafeMutableRawPointer?) -> Void
  public typealias Submit =
    @convention(c) (Job?, UnsafeMutableRawPointer?, UnsafeMutableRawPointer?) -> Int32

  private let function: Submit
  private let userData: UserData
  private let forks = Process.forks
  private let survives = Atomic<Bool>(false)

  public override func survivesFork() -> Bool {
    survives.store(true, ordering: .relaxed)
    return true
  }

  public init(_ function: @escaping Submit, _ userData: UserData) {
    self.function = function
    self.userData = userData
    super.init()
  }

  public override func submit(_ job: ExecutorJob) -> Bool {
    // In a forked child the executor's thread may not exist, so without the user's promise the job is
    // refused.
    guard forks == Process.forks || survives.load(ordering: .relaxed) else { return false }
    // `UserExecutor.run` releases this reference when it runs the job.
    let reference = Unmanaged.passRetained(job)
    let refused = function({ UserExecutor.run($0) }, reference.toOpaque(), userData.pointer) != 0
    guard refused, !job.hasRun else { return true }
    reference.release()
    return false
  }

  private static func run(_ argument: UnsafeMutableRawPointer?) {
    guard let argument else { return }
    Unmanaged<ExecutorJob>.fromOpaque(argument).takeRetainedValue().runOnce()
  }
}
