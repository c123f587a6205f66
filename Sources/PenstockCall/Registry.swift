import PenstockWire

/// The interceptors registered in one scope (a runtime, a channel, or the options of calls), sorted: higher
/// priority first, then in the order of registration. The owner of a registry guards it with a lock. Calls
/// read lists that were made under that lock. Removed registrations are released after the lock is unlocked,
/// because that may run user code.
public struct Registry {
  /// Where an interceptor is registered. JSON lists show the scope as "place".
  public enum Scope: Sendable { case runtime, channel, call }

  /// One interceptor in a registry. An entry is immutable: a change replaces it, so that lists of entries can
  /// be shared and copied cheaply.
  public final class Entry {
    public let registration: Registration
    public let priority: Int32
    /// Orders entries of equal priority. The number is unique in the process, and an entry that replaces this
    /// one keeps it.
    let sequence: UInt64
    public let filter: CallFilter
    public let scope: Scope

    init(
      _ registration: Registration, priority: Int32, sequence: UInt64, filter: CallFilter, scope: Scope
    ) {
      self.registration = registration
      self.priority = priority
      self.sequence = sequence
      self.filter = filter
      self.scope = scope
    }

    /// Whether calls of this method and kind get a hop for this interceptor.
    public func wants(_ path: ByteView, _ kind: CallKind) -> Bool {
      filter.matches(path, kind) && registration.hasHops
    }
  }

  public let scope: Scope
  public private(set) var entries: [Entry] = []
  /// A number that changes with every change of the registry.
  public private(set) var generation: UInt64 = 0

  public init(_ scope: Scope = .channel) { self.scope = scope }

  public mutating func add(_ registration: Registration, priority: Int32) {
    insert(
      Entry(
        registration, priority: priority, sequence: registration.id, filter: registration.filter,
        scope: scope))
    generation &+= 1
  }

  public mutating func remove(_ id: UInt64) -> Entry? {
    guard let index = index(of: id) else { return nil }
    generation &+= 1
    return entries.remove(at: index)
  }

  public mutating func setPriority(_ id: UInt64, _ priority: Int32) -> Bool {
    guard let index = index(of: id) else { return false }
    let old = entries.remove(at: index)
    insert(
      Entry(
        old.registration, priority: priority, sequence: old.sequence, filter: old.filter, scope: scope))
    generation &+= 1
    return true
  }

  public mutating func setFilter(_ id: UInt64, _ filter: CallFilter) -> Bool {
    guard let index = index(of: id) else { return false }
    let old = entries[index]
    entries[index] = Entry(
      old.registration, priority: old.priority, sequence: old.sequence, filter: filter, scope: scope)
    generation &+= 1
    return true
  }

  /// Replaces the registration numbered `id` by another, and the entry's filter by that of the new
  /// registration. Returns the old entry; nil: there is no registration with this number.
  public mutating func replace(_ id: UInt64, by registration: Registration) -> Entry? {
    guard let index = index(of: id) else { return nil }
    let old = entries[index]
    entries[index] = Entry(
      registration, priority: old.priority, sequence: old.sequence, filter: registration.filter, scope: scope)
    generation &+= 1
    return old
  }

  public mutating func removeAll() -> [Entry] {
    let all = entries
    entries = []
    generation &+= 1
    return all
  }

  private func index(of id: UInt64) -> Int? { entries.firstIndex { $0.registration.id == id } }

  private mutating func insert(_ entry: Entry) {
    var low = 0
    var high = entries.count
    while low < high {
      let middle = (low + high) / 2
      if Registry.precedes(entry, entries[middle], newestFirst: false) {
        high = middle
      } else {
        low = middle + 1
      }
    }
    entries.put(entry, at: low)
  }

  // MARK: - Order

  /// The entries in chain order, from the top; `newestFirst` reverses the order among equal priorities.
  public func ordered(newestFirst: Bool) -> [Entry] {
    guard newestFirst else { return entries }
    var turned = entries
    var start = 0
    while start < turned.count {
      var end = start + 1
      while end < turned.count, turned[end].priority == turned[start].priority { end += 1 }
      for offset in 0..<(end - start) / 2 { turned.swapAt(start + offset, end - 1 - offset) }
      start = end
    }
    return turned
  }

  /// Merges two lists of entries into chain order. The result shares its storage with neither list, so it may
  /// be read after both registries are unlocked.
  public static func merged(_ first: [Entry], _ second: [Entry], newestFirst: Bool) -> [Entry] {
    var all: [Entry] = []
    all.reserveCapacity(first.count + second.count)
    var next = 0
    for entry in first {
      while next < second.count, precedes(second[next], entry, newestFirst: newestFirst) {
        all.append(second[next])
        next += 1
      }
      all.append(entry)
    }
    while next < second.count {
      all.append(second[next])
      next += 1
    }
    return all
  }

  static func precedes(_ a: Entry, _ b: Entry, newestFirst: Bool) -> Bool {
    if a.priority != b.priority { return a.priority > b.priority }
    return newestFirst ? a.sequence > b.sequence : a.sequence < b.sequence
  }
}
