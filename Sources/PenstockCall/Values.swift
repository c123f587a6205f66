import PenstockWire
import Synchronization

/// Values that the hops of a call and its caller share, by key. The reply keeps them after the call.
///
/// The values are released when the last user has called `letGo`, and not with the last reference to this
/// object: a value may refer to a hop, which refers to its call, which refers to this object.
///
/// Callbacks on executors may use the values on several threads at once; `CallLoop.newValues` makes a
/// subclass with a lock for that.
open class CallValues {
  private struct Slot {
    let key: ByteBuffer
    var value: UserData
  }

  /// How long the call has waited for each `Lack`. The times are in this object because the reply keeps it
  /// and few calls have one.
  public final let waits = CallWaits()
  private final var slots: [Slot] = []
  /// The number of users: the caller of the call, and everyone who has called `hold`. A user is removed by
  /// `letGo`.
  private final let users = Atomic<Int>(1)

  public init() {}

  /// Locks the values: every use is between `lock` and `unlock`. User code runs only while they are unlocked.
  /// By default there is no lock: one thread uses the values.
  open func lock() {}
  /// Undoes `lock`; by default there is nothing to undo.
  open func unlock() {}

  /// Adds a user, until `letGo`. Any thread.
  public final func hold() { users.wrappingAdd(1, ordering: .relaxed) }

  /// Removes a user; when the last is removed, the values are released. Any thread.
  public final func letGo() {
    guard users.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0 else { return }
    lock()
    let rest = slots
    slots = []
    unlock()
    withExtendedLifetime(rest) {}
  }

  public final func get(_ key: ByteView) -> UnsafeMutableRawPointer? {
    lock()
    defer { unlock() }
    for slot in slots where bytesEqual(slot.key.view, key) { return slot.value.pointer }
    return nil
  }

  /// Sets a value; nil removes it. Returns false if there is no memory; `value` is released also in that
  /// case.
  public final func set(_ key: ByteView, _ value: UserData?) -> Bool {
    // The old value is released when the lock is free again, because its finalizer may use these values.
    var old: UserData?
    lock()
    let index = slots.firstIndex { bytesEqual($0.key.view, key) }
    var isDone = true
    if let index {
      old = slots[index].value
      if let value { slots[index].value = value } else { _ = slots.remove(at: index) }
    } else if let value {
      if let copied = ByteBuffer(copying: key) {
        slots.append(Slot(key: copied, value: value))
      } else {
        isDone = false
      }
    }
    unlock()
    withExtendedLifetime(old) {}
    return isDone
  }
}
