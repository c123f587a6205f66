import PenstockWire
import Synchronization

/// Values that hops and the caller share on purpose, by key. The reply keeps them after the call.
///
/// They are let go with the last of those who may ask for them, not with the last reference: a value may refer to a hop,
/// which refers to its call, which refers to this.
public final class CallValues {
  private struct Slot {
    let key: ByteBuffer
    var value: UserData
  }

  private var slots: [Slot] = []
  private let users = Atomic<Int>(0)

  public init() {}

  /// Any thread. Pairs with `letGo`.
  public func hold() { users.wrappingAdd(1, ordering: .relaxed) }

  /// Any thread. Nobody else uses the values when the last of them goes.
  public func letGo() {
    guard users.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0 else { return }
    let rest = slots
    slots = []
    withExtendedLifetime(rest) {}
  }

  public func get(_ key: ByteView) -> UnsafeMutableRawPointer? {
    for slot in slots where bytesEqual(slot.key.view, key) { return slot.value.pointer }
    return nil
  }

  /// nil removes. False: no memory; `value` is let go all the same.
  public func set(_ key: ByteView, _ value: UserData?) -> Bool {
    let place = slots.firstIndex { bytesEqual($0.key.view, key) }
    guard let value else {
      // Out of the array before its finalizer runs, which may come back here.
      if let place { _ = slots.remove(at: place) }
      return true
    }
    if let place {
      let old = slots[place].value
      slots[place].value = value
      withExtendedLifetime(old) {}
      return true
    }
    guard let copied = ByteBuffer(copying: key) else { return false }
    slots.append(Slot(key: copied, value: value))
    return true
  }
}
