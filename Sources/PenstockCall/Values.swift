import PenstockWire

/// Values that hops and the caller share on purpose, by key. The reply keeps them after the call.
public final class CallValues {
  private struct Slot {
    let key: ByteBuffer
    var value: UserData
  }

  private var slots: [Slot] = []

  public init() {}

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
