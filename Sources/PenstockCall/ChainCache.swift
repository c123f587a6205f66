import PenstockWire

/// The chains of a channel by method; each is made once. The size of the cache is limited, and a change of
/// the registries empties it. So a thousand interceptors that do not want a method cost its calls one
/// look-up.
public struct ChainCache {
  private final class Slot {
    let path: ByteBuffer
    let kind: CallKind
    let hash: UInt64
    let chain: Chain?

    init(_ path: ByteBuffer, _ kind: CallKind, _ hash: UInt64, _ chain: Chain?) {
      self.path = path
      self.kind = kind
      self.hash = hash
      self.chain = chain
    }
  }

  /// The largest number of slots, a power of two. If more than three quarters of this number would be taken,
  /// the table is emptied.
  private static let limit = 2048

  private var merged: [Registry.Entry] = []
  private var isFiltered = false
  private var everything: Chain?
  /// A hash table with open addressing: empty until a method is first looked up, and always at least a
  /// quarter free.
  private var slots: [Slot?] = []
  private var count = 0
  private var generations: (UInt64, UInt64) = (UInt64.max, UInt64.max)

  public init() {}

  public func isCurrent(_ first: UInt64, _ second: UInt64) -> Bool { generations == (first, second) }

  /// The former contents of a cache. The code that gets them releases them after it has unlocked the lock
  /// that guards the cache.
  public struct Remains {
    private let merged: [Registry.Entry]
    private let everything: Chain?
    private let slots: [Slot?]

    fileprivate init(_ cache: ChainCache) {
      merged = cache.merged
      everything = cache.everything
      slots = cache.slots
    }
  }

  /// Empties the cache. From now on chains are made from `entries`, which are in chain order. `first` and
  /// `second` are the generations of the two registries.
  public mutating func rebuild(_ entries: [Registry.Entry], _ first: UInt64, _ second: UInt64) -> Remains {
    let remains = Remains(self)
    merged = entries
    slots = []
    count = 0
    generations = (first, second)
    isFiltered = !entries.allSatisfy { $0.filter.matchesEverything }
    everything = entries.isEmpty || isFiltered ? nil : Chain(entries)
    return remains
  }

  /// Empties the cache and forgets the entries, so that a removed interceptor is not kept until the next
  /// call.
  public mutating func invalidate() -> Remains { rebuild([], UInt64.max, UInt64.max) }

  /// The chain for calls of a method; nil: no interceptor wants them.
  @inline(__always)
  public mutating func chain(_ path: ByteView, _ kind: CallKind) -> Chain? {
    isFiltered ? filtered(path, kind) : everything
  }

  private mutating func filtered(_ path: ByteView, _ kind: CallKind) -> Chain? {
    let hash = ChainCache.hash(path, kind)
    if let slot = slot(path, kind, hash) { return slot.chain }
    let matching = merged.filter { $0.filter.matches(path, kind) }
    let chain = matching.isEmpty ? nil : Chain(matching)
    if let copied = ByteBuffer(copying: path) { keep(Slot(copied, kind, hash, chain)) }
    return chain
  }

  private func slot(_ path: ByteView, _ kind: CallKind, _ hash: UInt64) -> Slot? {
    guard !slots.isEmpty else { return nil }
    var index = Int(truncatingIfNeeded: hash) & (slots.count - 1)
    while let slot = slots[index] {
      if slot.hash == hash, slot.kind == kind, bytesEqual(slot.path.view, path) { return slot }
      index = (index + 1) & (slots.count - 1)
    }
    return nil
  }

  /// Stores a slot. If the table is too full, it is first doubled, or emptied at the largest size. A chain
  /// that is released here releases no interceptor, because `merged` keeps all interceptors.
  private mutating func keep(_ slot: Slot) {
    if (count + 1) * 4 > slots.count * 3 {
      let old = slots
      let size = old.isEmpty ? 16 : old.count * 2
      count = 0
      if size > ChainCache.limit {
        slots = [Slot?](repeating: nil, count: 16)
      } else {
        slots = [Slot?](repeating: nil, count: size)
        for case .some(let kept) in old { put(kept) }
      }
    }
    put(slot)
  }

  private mutating func put(_ slot: Slot) {
    var index = Int(truncatingIfNeeded: slot.hash) & (slots.count - 1)
    while slots[index] != nil { index = (index + 1) & (slots.count - 1) }
    slots[index] = slot
    count += 1
  }

  /// A hash of the method's path and kind (FNV-1a).
  private static func hash(_ path: ByteView, _ kind: CallKind) -> UInt64 {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325 ^ UInt64(kind.rawValue)
    for byte in path { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return hash ^ hash >> 32
  }
}
