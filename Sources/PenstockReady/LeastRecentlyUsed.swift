import PenstockTransport
import PenstockWire
import PenstockClient

/// A map from keys of bytes to values, whose number and size are limited: the least recently used values are
/// dropped first. Not thread-safe.
struct LeastRecentlyUsed<Value> {
  private struct Slot {
    var hash: UInt64 = 0
    var key: ByteBuffer?
    var value: Value?
    var bytes = 0
    /// The indices of the slots that were used just after and just before this one; -1: none.
    var newer = -1
    var older = -1
  }

  private let maxEntries: Int
  private let maxBytes: Int
  private let seed: UInt64
  private var slots: [Slot] = []
  private var free: [Int] = []
  private var slotByHash: [UInt64: Int] = [:]
  private var newest = -1
  private var oldest = -1
  private(set) var bytes = 0

  /// `seed` is random, so that nobody can choose keys with equal hashes on purpose.
  init(maxEntries: Int, maxBytes: Int, seed: UInt64) {
    self.maxEntries = maxEntries
    self.maxBytes = maxBytes
    self.seed = seed
  }

  mutating func find(_ key: ByteView) -> Value? {
    let hash = self.hash(key)
    guard let slot = slotByHash[hash], let known = slots[slot].key, bytesEqual(known.view, key) else {
      return nil
    }
    unlink(slot)
    link(slot)
    return slots[slot].value
  }

  /// Stores `value`, unless it alone is larger than `maxBytes`. `bytes` is the size of the value and its key.
  /// Values that are dropped to make room are added to `gone`, so that the caller can release them after it
  /// has unlocked its lock.
  mutating func insert(_ key: ByteBuffer, _ value: Value, bytes: Int, gone: inout [Value]) {
    guard bytes <= maxBytes, maxEntries > 0 else { return }
    let hash = self.hash(key.view)
    if let slot = slotByHash[hash] { remove(slot, &gone) }
    while slotByHash.count >= maxEntries || self.bytes + bytes > maxBytes, oldest >= 0 {
      remove(oldest, &gone)
    }
    let slot = free.popLast() ?? slots.count
    if slot == slots.count { slots.append(Slot()) }
    slots[slot] = Slot(hash: hash, key: key, value: value, bytes: bytes)
    slotByHash[hash] = slot
    self.bytes += bytes
    link(slot)
  }

  mutating func remove(_ key: ByteView, gone: inout [Value]) {
    guard let slot = slotByHash[hash(key)], let known = slots[slot].key, bytesEqual(known.view, key) else {
      return
    }
    remove(slot, &gone)
  }

  private mutating func remove(_ slot: Int, _ gone: inout [Value]) {
    unlink(slot)
    if let value = slots[slot].value { gone.append(value) }
    slotByHash[slots[slot].hash] = nil
    bytes -= slots[slot].bytes
    slots[slot] = Slot()
    free.append(slot)
  }

  private mutating func link(_ slot: Int) {
    slots[slot].older = newest
    slots[slot].newer = -1
    if newest >= 0 { slots[newest].newer = slot }
    newest = slot
    if oldest < 0 { oldest = slot }
  }

  private mutating func unlink(_ slot: Int) {
    let (newer, older) = (slots[slot].newer, slots[slot].older)
    if newer >= 0 { slots[newer].older = older } else { newest = older }
    if older >= 0 { slots[older].newer = newer } else { oldest = newer }
  }

  /// The hash of a key: FNV-1a, beginning with `seed`.
  private func hash(_ key: ByteView) -> UInt64 {
    var hash = 0xcbf2_9ce4_8422_2325 ^ seed
    for byte in key { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return hash
  }
}
