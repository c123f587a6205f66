import CPenstockSystem
import Synchronization

/// A flag that a blocking function waits for. A thread, usually the driver, sets it when the awaited event
/// has happened.
///
/// The cell is one word. Bit 0: the flag is set. Bit 1: a thread may sleep on the word. Bit 2: a thread waits
/// for the flag by driving a runtime. The other bits count nudges. A nudge wakes the sleeping thread although
/// the flag is not set, because that thread was given the role of driver or has to check other state.
open class WaitCell: @unchecked Sendable {
  public static let set: UInt32 = 1
  static let parked: UInt32 = 2
  static let driving: UInt32 = 4
  static let nudge: UInt32 = 8

  public final let word = Atomic<UInt32>(0)
  /// The runtime that a waiter drove. It is written once, under that runtime's lock. It is read only after
  /// bit 2 of the word was seen.
  private final var runtime: Unmanaged<Runtime>?
  /// Whether the cell holds a reference to `runtime`.
  private final let retainsRuntime: Bool

  /// Makes a cell. Without `retainsRuntime` the cell holds no reference to the runtime that its waiter drives,
  /// so the thread that sets the cell has to hold one.
  public init(retainsRuntime: Bool = true) { self.retainsRuntime = retainsRuntime }

  deinit { if retainsRuntime { runtime?.release() } }

  public final var isSet: Bool { word.load(ordering: .sequentiallyConsistent) & WaitCell.set != 0 }

  /// Sets the cell and wakes the threads that wait for it. In the usual case the driver sets the cell that it
  /// waits for itself; this takes no system call.
  public final func set() {
    var seen = word.load(ordering: .relaxed)
    while true {
      if seen & WaitCell.set != 0 { return }
      let (exchanged, original) = word.compareExchange(
        expected: seen, desired: (seen | WaitCell.set) & ~WaitCell.parked, ordering: .sequentiallyConsistent)
      if exchanged { break }
      seen = original
    }
    if seen & WaitCell.parked != 0 { Futex.wake(word, .max) }
    if seen & WaitCell.driving != 0 { runtime?._withUnsafeGuaranteedRef { if !$0.isDriving { $0.wake() } } }
  }

  /// Sets the cell without an atomic read-modify-write. Called on the driving thread, if no other thread
  /// waits for the cell. Other threads can then change the word only by a nudge, which wakes a waiter without
  /// setting the cell. The store may overwrite such a nudge: nobody waits for it any more.
  public final func setUnshared() {
    word.store(word.load(ordering: .relaxed) | WaitCell.set, ordering: .relaxed)
  }

  /// Clears the flag for the next wait. After a reset, and before the next wait, the caller must check the
  /// awaited condition itself, because the flag no longer shows an event from before the reset.
  public final func reset() {
    word.bitwiseAnd(~WaitCell.set, ordering: .sequentiallyConsistent)
  }

  /// Notes that the thread that waits for the cell begins to drive `runtime`. The caller holds that runtime's
  /// lock. nil: only the driver itself sets the cell, so no other thread has to wake it.
  final func beginDriving(_ runtime: Unmanaged<Runtime>?) {
    if self.runtime == nil { self.runtime = retainsRuntime ? runtime?.retain() : runtime }
    word.bitwiseOr(WaitCell.driving, ordering: .sequentiallyConsistent)
  }

  final func endDriving() {
    word.bitwiseAnd(~WaitCell.driving, ordering: .sequentiallyConsistent)
  }

  final func wakeToLook() {
    word.wrappingAdd(WaitCell.nudge, ordering: .sequentiallyConsistent)
    Futex.wake(word, .max)
  }

  /// Sleeps until the cell is set or nudged, or until `limit` (monotonic ns). `seen`: the word as the caller
  /// last read it. If the word has changed since then, this function does not sleep.
  public final func park(_ seen: UInt32, until limit: UInt64?) -> Futex.Wake {
    if seen & WaitCell.set != 0 { return .woken }
    var value = seen
    if seen & WaitCell.parked == 0 {
      value = seen | WaitCell.parked
      if !word.compareExchange(expected: seen, desired: value, ordering: .sequentiallyConsistent).exchanged {
        return .woken
      }
    }
    return Futex.wait(word, while: value, until: limit)
  }
}
