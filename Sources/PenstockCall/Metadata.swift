import CPenstockMemory
import PenstockWire

/// An ordered multimap of header names to values; both are bytes ("Custom-Metadata", gRPC over HTTP/2).
///
/// All names and values are in one block of memory, each followed by a NUL. An entry has the offset and size
/// of its name and of its value. Values of "-bin" names are kept decoded. Names and values are not checked
/// here: the callers check what comes from a user or a peer, by `HeaderRules`.
public final class Metadata {
  private struct Entry {
    var name: Int
    var nameCount: Int
    var value: Int
    var valueCount: Int
  }

  private var arena: UnsafeMutableRawPointer?
  private var arenaSize = 0
  private(set) var arenaCapacity = 0
  private var entries: UnsafeMutablePointer<Entry>?
  private var capacity = 0
  /// How many bytes of the arena (the block of names and values) belong to removed entries.
  private var garbage = 0
  public private(set) var count = 0
  /// Whether users may not change the metadata: for example that of a reply, or of an event that has left the
  /// hop.
  public var isReadOnly = false

  public init() {}

  private init(isReadOnly: Bool) { self.isReadOnly = isReadOnly }

  /// A shared object that is always empty, used where there is no metadata.
  public nonisolated(unsafe) static let none = Metadata(isReadOnly: true)

  /// Makes the metadata read-only. `none` is so already, and is not written, because all threads share it.
  func seal() { if !isReadOnly { isReadOnly = true } }

  deinit {
    cm_free(arena)
    cm_free(entries)
  }

  /// The size as RFC 9113 section 6.5.2 counts a header list: the bytes of all names and values, and 32 per
  /// entry. An entry's two NULs are in `arenaSize` already, so 30 are added.
  public var listSize: Int { arenaSize - garbage + count * 30 }

  public func name(at index: Int) -> ByteView {
    guard index >= 0, index < count, let entries, let arena else { return ByteView(start: nil, count: 0) }
    return ByteView(start: arena + entries[index].name, count: entries[index].nameCount)
  }

  public func value(at index: Int) -> ByteView {
    guard index >= 0, index < count, let entries, let arena else { return ByteView(start: nil, count: 0) }
    return ByteView(start: arena + entries[index].value, count: entries[index].valueCount)
  }

  /// The index of the `occurrence`-th entry with this name, counted from 0.
  public func index(of name: ByteView, occurrence: Int = 0) -> Int? {
    guard occurrence >= 0 else { return nil }
    var left = occurrence
    for index in 0..<count where bytesEqual(self.name(at: index), name) {
      if left == 0 { return index }
      left -= 1
    }
    return nil
  }

  /// Adds an entry at the end. `name` and `value` may point into this metadata.
  public func add(_ name: ByteView, _ value: ByteView) -> Outcome {
    guard count < capacity || grow() else { return .noMemory }
    let needed = name.count + value.count + 2
    // The old storage is freed only after the copy, because `name` and `value` may point into it.
    var old: UnsafeMutableRawPointer?
    if needed > arenaCapacity - arenaSize {
      let size = arenaSize + needed
      let roomy = max(size, arenaCapacity * 2, 64)
      let larger = cm_alloc(roomy)
      guard let fresh = larger ?? cm_alloc(size) else { return .noMemory }
      if let arena { memcpy(fresh, arena, arenaSize) }
      old = arena
      arena = fresh
      arenaCapacity = larger == nil ? size : roomy
    }
    append(name, value)
    if let old { cm_free(old) }
    return .ok
  }

  /// Replaces all values of `name` by `value`.
  public func set(_ name: ByteView, _ value: ByteView) -> Outcome {
    let before = count
    guard add(name, value) == .ok else { return .noMemory }
    removeAll(self.name(at: count - 1), before: before)
    return .ok
  }

  public func remove(_ name: ByteView) -> Outcome {
    let before = count
    removeAll(name, before: count)
    if count == before { return .notFound }
    if count == 0 { clear() }
    return .ok
  }

  public func clear() {
    arenaSize = 0
    count = 0
    garbage = 0
  }

  /// A copy; nil: no memory.
  public func copy() -> Metadata? {
    let other = Metadata()
    guard other.append(contentsOf: self) else { return nil }
    return other
  }

  /// Appends all entries of `other`. Returns false if there is no memory; some entries may have been added
  /// then.
  public func append(contentsOf other: Metadata) -> Bool {
    for index in 0..<other.count where add(other.name(at: index), other.value(at: index)) != .ok {
      return false
    }
    return true
  }

  /// Replaces all entries by those of `other`, which is empty afterwards. This cannot fail.
  public func replace(with other: Metadata) {
    clear()
    swap(&arena, &other.arena)
    swap(&arenaSize, &other.arenaSize)
    swap(&arenaCapacity, &other.arenaCapacity)
    swap(&entries, &other.entries)
    swap(&capacity, &other.capacity)
    swap(&count, &other.count)
    swap(&garbage, &other.garbage)
  }

  /// Appends an entry, for which there is room already.
  private func append(_ name: ByteView, _ value: ByteView) {
    guard let entries, let arena else { return }
    let entry = Entry(
      name: arenaSize, nameCount: name.count, value: arenaSize + name.count + 1, valueCount: value.count)
    write(name, arena + entry.name)
    write(value, arena + entry.value)
    arenaSize += name.count + value.count + 2
    entries[count] = entry
    count += 1
  }

  @inline(__always)
  private func write(_ bytes: ByteView, _ to: UnsafeMutableRawPointer) {
    if let start = bytes.baseAddress { memcpy(to, start, bytes.count) }
    to.storeBytes(of: 0, toByteOffset: bytes.count, as: UInt8.self)
  }

  private func removeAll(_ name: ByteView, before limit: Int) {
    guard let entries else { return }
    var kept = 0
    for index in 0..<count {
      if index < limit, bytesEqual(self.name(at: index), name) {
        garbage += entries[index].nameCount + entries[index].valueCount + 2
      } else {
        entries[kept] = entries[index]
        kept += 1
      }
    }
    count = kept
    compactIfWorthwhile()
  }

  /// Moves the live entries together if removed ones take much of the memory. Live entries are in the arena
  /// in their order, so each can be moved down in turn.
  private func compactIfWorthwhile() {
    guard garbage > 4096, garbage > arenaSize / 2, let entries, let arena else { return }
    arenaSize = 0
    for index in 0..<count {
      let entry = entries[index]
      let size = entry.nameCount + entry.valueCount + 2
      memmove(arena + arenaSize, arena + entry.name, size)
      entries[index].name = arenaSize
      entries[index].value = arenaSize + entry.nameCount + 1
      arenaSize += size
    }
    garbage = 0
  }

  private func grow() -> Bool {
    let wanted = capacity == 0 ? 8 : capacity * 2
    let (size, overflow) = wanted.multipliedReportingOverflow(by: MemoryLayout<Entry>.stride)
    guard !overflow, let memory = cm_realloc(entries, size) else { return false }
    entries = memory.assumingMemoryBound(to: Entry.self)
    capacity = wanted
    return true
  }
}
