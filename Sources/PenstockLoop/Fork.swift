import PenstockWire
import CPenstockSystem
import Synchronization

/// Lets a forked child take over its parent's runtimes, if the host program asks for it. The thread that
/// forks calls `prepare` before the fork. After the fork it calls `parent` in the parent and `child` in the
/// child.
///
/// `prepare` stops the process at a point where every object is in a consistent state. First it waits until
/// no other thread has prepared a fork. Then it stops the driving thread of each runtime between two turns of
/// the event loop. Then it blocks all locks of the library (Sources/CPenstockEmbedded/gate.c). The child then has the
/// parent's objects, and none of the parent's threads. The child takes the parent's generation
/// (`Process.generation`), so that the parent's handles are valid in it. It opens descriptors and starts
/// threads of its own, and ends the calls that were under way.
///
/// If `prepare` is called in a callback, or does not succeed within a second, nothing is stopped, and the
/// parent's handles are not valid in the child.
public enum Fork {
  private final class Plan {
    let thread = cs_thread_self()
    let generation = Process.generation
    var runtimes: [Runtime] = []
    var saved: Process.Saved?
    /// The number of calls of `prepare` without a call of `parent` or `child` so far. It may be 2, because
    /// the host program and a language binding may both call these functions.
    var depth = 1

    func has(_ runtime: Runtime) -> Bool { runtimes.contains { $0 === runtime } }
  }

  private static let patience: UInt64 = 1_000_000_000
  /// The address of the plan of the thread that has prepared a fork. The field owns one reference to the
  /// plan. 0: no fork is prepared.
  private static let plan = Atomic<UInt>(0)

  /// The plan, if the calling thread has prepared the fork; otherwise nil.
  private static var mine: Plan? {
    guard let raw = UnsafeRawPointer(bitPattern: plan.load(ordering: .acquiring)) else { return nil }
    let found = Unmanaged<Plan>.fromOpaque(raw).takeUnretainedValue()
    return found.thread == cs_thread_self() ? found : nil
  }

  public static func prepare() {
    if let mine, !Process.isForked(mine.generation) {
      mine.depth += 1
      return
    }
    if DrivingThread.isCurrent() || CallbackThread.isCurrent { return }
    let deadline = Platform.systemClock() + patience
    let made = Plan()
    let reference = Unmanaged.passRetained(made)
    guard claim(reference, until: deadline) else { return reference.release() }
    while made.saved == nil {
      for runtime in Runtime.all() where !made.has(runtime) {
        guard runtime.holdStill(until: deadline) else { return giveUp(made) }
        made.runtimes.append(runtime)
      }
      guard let saved = Process.stop(until: deadline) else { return giveUp(made) }
      if Runtime.all().allSatisfy(made.has) {
        made.saved = saved
      } else {
        // Another thread made a runtime before `Process.stop` blocked the locks, so that runtime must be
        // stopped, too.
        Process.goOn()
      }
    }
  }

  /// Stores `made` as the plan. False: another thread's fork was prepared, and was not over at the deadline.
  private static func claim(_ made: Unmanaged<Plan>, until deadline: UInt64) -> Bool {
    while true {
      let known = plan.load(ordering: .acquiring)
      // If the plan has another generation, a fork without `child` has happened, and this process is the
      // child. A plan of the parent is void here.
      let isOver =
        UnsafeRawPointer(bitPattern: known).map {
          Process.isForked(Unmanaged<Plan>.fromOpaque($0).takeUnretainedValue().generation)
        } ?? true
      if isOver,
        plan.compareExchange(
          expected: known, desired: UInt(bitPattern: made.toOpaque()), ordering: .acquiringAndReleasing
        ).exchanged
      {
        return true
      }
      if Platform.systemClock() >= deadline { return false }
      cs_sleep_milliseconds(1)
    }
  }

  private static func giveUp(_ plan: Plan) {
    for runtime in plan.runtimes { runtime.goOn() }
    end(plan)
  }

  private static func end(_ over: Plan) {
    plan.store(0, ordering: .releasing)
    Unmanaged.passUnretained(over).release()
  }

  public static func parent() {
    guard let mine else { return }
    mine.depth -= 1
    guard mine.depth == 0 else { return }
    Process.goOn()
    giveUp(mine)
  }

  /// `forget`: lets go of what a layer above keeps of the parent's threads, which do not exist here. It takes no lock.
  public static func child(forgetting forget: () -> Void) {
    guard let mine, let saved = mine.saved else { return }
    if Process.goOnAsChild(saved, forgetting: forget) {
      for runtime in mine.runtimes { runtime.becomeChild() }
      for runtime in mine.runtimes { runtime.goOnInChild() }
    }
    end(mine)
  }
}
