import PenstockWire

/// The interceptors registered in one place (a runtime, a channel): an immutable list in registration order,
/// replaced by a new one with each change (copy on write). Whoever owns a registry guards it with a lock;
/// calls read snapshots.
public struct Registry {
  public struct Entry {
    public let registration: Registration
    public var priority: Int32
  }

  public private(set) var entries: [Entry] = []
  /// Changes with every change of the registry.
  public private(set) var generation: UInt64 = 0

  public init() {}

  public mutating func add(_ registration: Registration, priority: Int32) {
    entries.append(Entry(registration: registration, priority: priority))
    generation &+= 1
  }

  /// The removed one: to be released outside the lock.
  public mutating func remove(_ id: UInt64) -> Registration? {
    guard let index = entries.firstIndex(where: { $0.registration.id == id }) else { return nil }
    let removed = entries.remove(at: index).registration
    generation &+= 1
    return removed
  }

  public mutating func setPriority(_ id: UInt64, _ priority: Int32) -> Bool {
    guard let index = entries.firstIndex(where: { $0.registration.id == id }) else { return false }
    entries[index].priority = priority
    generation &+= 1
    return true
  }

  /// Empties it; what comes back is to be released outside the lock.
  public mutating func removeAll() -> [Entry] {
    let all = entries
    entries = []
    generation &+= 1
    return all
  }

  /// The merged order of several registries: higher priority first; ties by registration sequence.
  public static func merged(_ first: [Entry], _ second: [Entry], newestFirst: Bool) -> [Entry] {
    var all = first
    all.append(contentsOf: second)
    // Insertion sort: lists are short and nearly ordered, and it keeps the binary small.
    var index = 1
    while index < all.count {
      var place = index
      while place > 0, precedes(all[place], all[place - 1], newestFirst: newestFirst) {
        all.swapAt(place, place - 1)
        place -= 1
      }
      index += 1
    }
    return all
  }

  private static func precedes(_ a: Entry, _ b: Entry, newestFirst: Bool) -> Bool {
    if a.priority != b.priority { return a.priority > b.priority }
    return newestFirst ? a.registration.id > b.registration.id : a.registration.id < b.registration.id
  }
}

/// Chains by method, resolved once each: bounded, and emptied with every change of the registries it was made
/// from.
public struct ChainCache {
  private struct Slot {
    let path: ByteBuffer
    let kind: CallKind
    let hash: UInt64
    let chain: Chain?
  }

  private static let limit = 64

  private var merged: [Registry.Entry] = []
  private var isFiltered = false
  private var everything: Chain?
  private var slots: [Slot] = []
  private var nextVictim = 0
  private var generations: (UInt64, UInt64) = (UInt64.max, UInt64.max)

  public init() {}

  public func isCurrent(_ first: UInt64, _ second: UInt64) -> Bool { generations == (first, second) }

  /// What the cache held before, to be released outside the lock.
  public struct Remains {
    let merged: [Registry.Entry]
    let everything: Chain?
    let chains: [Chain?]
  }

  /// Starts anew from `entries`, in chain order.
  public mutating func rebuild(_ entries: [Registry.Entry], _ first: UInt64, _ second: UInt64) -> Remains {
    let remains = Remains(merged: merged, everything: everything, chains: slots.map { $0.chain })
    merged = entries
    slots = []
    nextVictim = 0
    generations = (first, second)
    isFiltered = !entries.allSatisfy { $0.registration.matchesEverything }
    everything = entries.isEmpty ? nil : Chain(entries.map { $0.registration })
    return remains
  }

  /// Forgets everything, so that a removed interceptor is not kept until the next call.
  public mutating func invalidate() -> Remains { rebuild([], UInt64.max, UInt64.max) }

  /// nil: no interceptor wants this method.
  public mutating func chain(_ path: ByteView, _ kind: CallKind) -> Chain? {
    guard isFiltered else { return everything }
    let hash = ChainCache.hash(path, kind)
    for slot in slots where slot.hash == hash && slot.kind == kind && bytesEqual(slot.path.view, path) {
      return slot.chain
    }
    let matching = merged.filter { $0.registration.matches(path, kind) }.map { $0.registration }
    let chain = matching.isEmpty ? nil : Chain(matching)
    guard let copied = ByteBuffer(copying: path) else { return chain }
    let slot = Slot(path: copied, kind: kind, hash: hash, chain: chain)
    if slots.count < ChainCache.limit {
      slots.append(slot)
    } else {
      slots[nextVictim] = slot
      nextVictim = (nextVictim + 1) % ChainCache.limit
    }
    return chain
  }

  /// FNV-1a.
  private static func hash(_ path: ByteView, _ kind: CallKind) -> UInt64 {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325 ^ UInt64(kind.rawValue)
    for byte in path { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return hash
  }
}
