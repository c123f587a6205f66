import CSystem
import Synchronization

/// A flag that a blocking function waits for. It is set when the awaited event has happened: on any thread,
/// normally by the driver.
///
/// The cell is one word. Bit 0: the flag is set. Bit 1: a thread may sleep on the word. Bit 2: a thread waits
/// for the flag by driving a runtime. The other bits count nudges: a nudge wakes the sleeper, although the
/// flag is not set, to look for another change (it was given the role of driver).
public class WaitCell: @unchecked Sendable {
  static let set: UInt32 = 1
  static let parked: UInt32 = 2
  static let driving: UInt32 = 4
  static let nudge: UInt32 = 8

  final let word = Atomic<UInt32>(0)
  /// The runtime that a waiter drove. Written under that runtime's lock, once; read only after bit 2 was seen.
  private final var runtime: Unmanaged<Runtime>?
  /// Whether `runtime` is a counted reference.
  private final let keepsRuntime: Bool

  /// Makes a cell. Without `keepsRuntime` the thread that sets the cell has to hold a reference to the
  /// runtime.
  public init(keepsRuntime: Bool = true) { self.keepsRuntime = keepsRuntime }

  deinit { if keepsRuntime { runtime?.release() } }

  public final var isSet: Bool { word.load(ordering: .sequentiallyConsistent) & WaitCell.set != 0 }

  /// Sets the cell and wakes the threads that wait for it. In the usual case (the driver sets the cell that it waits
  /// for itself) there is no system call.
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

  /// Sets the cell without an atomic operation. Called on the driving thread, if no other thread waits for
  /// the cell. Then other threads write to the word at most a late nudge, which may be lost.
  final func setUnshared() { word.store(word.load(ordering: .relaxed) | WaitCell.set, ordering: .relaxed) }

  /// Clears the flag for the next wait. After a reset, and before the next wait, look at the condition itself,
  /// because the reset forgets what has happened before it.
  public final func reset() {
    word.bitwiseAnd(~WaitCell.set, ordering: .sequentiallyConsistent)
  }

  /// Notes that the thread that waits for the cell begins to drive `runtime`. The caller holds that runtime's
  /// lock. nil: only the driver itself sets the cell, so no runtime has to be woken.
  final func beginDriving(_ runtime: Unmanaged<Runtime>?) {
    if self.runtime == nil { self.runtime = keepsRuntime ? runtime?.retain() : runtime }
    word.bitwiseOr(WaitCell.driving, ordering: .sequentiallyConsistent)
  }

  final func endDriving() {
    word.bitwiseAnd(~WaitCell.driving, ordering: .sequentiallyConsistent)
  }

  final func wakeToLook() {
    word.wrappingAdd(WaitCell.nudge, ordering: .sequentiallyConsistent)
    Futex.wake(word, .max)
  }

  /// Sleeps until the cell is set or nudged, or until `limit`. `seen`: the word as the caller last read it.
  /// If the word has changed since, this function does not sleep.
  final func park(_ seen: UInt32, until limit: UInt64?) -> Futex.Wake {
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
