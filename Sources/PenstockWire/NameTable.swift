internal import CPenstockMemory

/// A set of names, each with a value. It takes little more memory than the bytes of the names; none is in a Swift array,
/// because a program chooses their number, and the memory for them may be lacking.
public final class NameTable {
  public enum Added: Equatable, Sendable {
    case added
    case already
    case noMemory
  }

  private struct Entry {
    /// Where the bytes of the name end; those of the next name begin there.
    let end: UInt32
    let value: UInt32
  }

  private let bytes = ByteBuffer()
  public private(set) var count = 0
  private var entries: UnsafeMutablePointer<Entry>?
  /// An open hash table, whose size is a power of two, and twice the room for entries: the index of an entry, and 1 more.
  /// 0: the slot is free.
  private var slots: UnsafeMutablePointer<UInt32>?
  private var size = 0

  public init() {}

  deinit {
    cm_free(entries)
    cm_free(slots)
  }

  public func add(_ name: ByteView, _ value: UInt32 = 0) -> Added {
    if 2 * count >= size, !grow() { return .noMemory }
    guard let slots, let entries else { return .noMemory }
    let slot = slot(of: name, slots, size)
    if slots[slot] != 0 { return .already }
    guard let end = UInt32(exactly: bytes.count + name.count), bytes.append(name) else { return .noMemory }
    (entries + count).initialize(to: Entry(end: end, value: value))
    count += 1
    slots[slot] = UInt32(count)
    return .added
  }

  /// The value of the name; nil: it was not added.
  public func value(of name: ByteView) -> UInt32? {
    guard let slots, let entries else { return nil }
    let found = slots[slot(of: name, slots, size)]
    return found == 0 ? nil : entries[Int(found) - 1].value
  }

  private func name(_ index: Int) -> ByteView {
    guard let entries else { return ByteView(start: nil, count: 0) }
    let start = index == 0 ? 0 : Int(entries[index - 1].end)
    return ByteView(rebasing: bytes.view[start..<Int(entries[index].end)])
  }

  /// The slot that has the name, or the free one where it belongs.
  private func slot(of name: ByteView, _ slots: UnsafeMutablePointer<UInt32>, _ size: Int) -> Int {
    var hasher = Hasher()
    hasher.combine(bytes: name)
    var slot = hasher.finalize() & (size - 1)
    while slots[slot] != 0, !bytesEqual(self.name(Int(slots[slot]) - 1), name) {
      slot = (slot + 1) & (size - 1)
    }
    return slot
  }

  /// Doubles the room. False: no memory; nothing has changed.
  private func grow() -> Bool {
    let larger = max(8, 2 * size)
    guard let freshSlots = room(for: larger, UInt32.self) else { return false }
    guard let freshEntries = room(for: larger / 2, Entry.self) else {
      cm_free(freshSlots)
      return false
    }
    freshSlots.initialize(repeating: 0, count: larger)
    if let entries { freshEntries.initialize(from: entries, count: count) }
    cm_free(entries)
    cm_free(slots)
    entries = freshEntries
    slots = freshSlots
    size = larger
    for index in 0..<count { freshSlots[slot(of: name(index), freshSlots, larger)] = UInt32(index + 1) }
    return true
  }

  private func room<T>(for count: Int, _: T.Type) -> UnsafeMutablePointer<T>? {
    let (bytes, isTooMuch) = count.multipliedReportingOverflow(by: MemoryLayout<T>.stride)
    return isTooMuch ? nil : cm_alloc(bytes)?.bindMemory(to: T.self, capacity: count)
  }
}
