import PenstockTransport
import PenstockWire

/// Values by byte key, bounded in number and size: the least recently used go first. Not for several threads.
struct LeastRecentlyUsed<Value> {
  private struct Slot {
    var hash: UInt64 = 0
    var key: ByteBuffer?
    var value: Value?
    var bytes = 0
    /// Neighbours in the order of use; -1: none.
    var newer = -1
    var older = -1
  }

  private let maxEntries: Int
  private let maxBytes: Int
  private let seed: UInt64
  private var slots: [Slot] = []
  private var free: [Int] = []
  private var places: [UInt64: Int] = [:]
  private var newest = -1
  private var oldest = -1
  private(set) var bytes = 0

  /// `seed` keeps a caller from choosing keys that collide.
  init(maxEntries: Int, maxBytes: Int, seed: UInt64) {
    self.maxEntries = maxEntries
    self.maxBytes = maxBytes
    self.seed = seed
  }

  mutating func find(_ key: ByteView) -> Value? {
    let hash = self.hash(key)
    guard let place = places[hash], let known = slots[place].key, bytesEqual(known.view, key) else {
      return nil
    }
    unlink(place)
    link(place)
    return slots[place].value
  }

  /// Keeps `value`, unless it alone is over the bound; `bytes` is its size with the key. An entry that gives way to it is
  /// added to `gone`, to be released outside of a lock.
  mutating func insert(_ key: ByteBuffer, _ value: Value, bytes: Int, gone: inout [Value]) {
    guard bytes <= maxBytes, maxEntries > 0 else { return }
    let hash = self.hash(key.view)
    if let place = places[hash] { remove(place, &gone) }
    while places.count >= maxEntries || self.bytes + bytes > maxBytes, oldest >= 0 { remove(oldest, &gone) }
    let place = free.popLast() ?? slots.count
    if place == slots.count { slots.append(Slot()) }
    slots[place] = Slot(hash: hash, key: key, value: value, bytes: bytes)
    places[hash] = place
    self.bytes += bytes
    link(place)
  }

  mutating func remove(_ key: ByteView, gone: inout [Value]) {
    guard let place = places[hash(key)], let known = slots[place].key, bytesEqual(known.view, key) else {
      return
    }
    remove(place, &gone)
  }

  private mutating func remove(_ place: Int, _ gone: inout [Value]) {
    unlink(place)
    if let value = slots[place].value { gone.append(value) }
    places[slots[place].hash] = nil
    bytes -= slots[place].bytes
    slots[place] = Slot()
    free.append(place)
  }

  private mutating func link(_ place: Int) {
    slots[place].older = newest
    slots[place].newer = -1
    if newest >= 0 { slots[newest].newer = place }
    newest = place
    if oldest < 0 { oldest = place }
  }

  private mutating func unlink(_ place: Int) {
    let (newer, older) = (slots[place].newer, slots[place].older)
    if newer >= 0 { slots[newer].older = older } else { newest = older }
    if older >= 0 { slots[older].newer = newer } else { oldest = newer }
  }

  /// FNV-1a.
  private func hash(_ key: ByteView) -> UInt64 {
    var hash = 0xcbf2_9ce4_8422_2325 ^ seed
    for byte in key { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return hash
  }
}
