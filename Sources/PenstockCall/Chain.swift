import Synchronization

/// The level of an interceptor: above the codec, where messages are the caller's objects, or below it, where
/// messages are bytes. The raw values are those of the ABI.
public enum Level: UInt32, Sendable {
  case bytes = 0
  case object = 1
  /// Both levels. Only a registration has this value: it becomes two hops, one at each level.
  case both = 2
}

/// The interceptors of a call, taken from the registries. They are fixed when the call is created, and all
/// calls of a method share the chain. From the top: the hops at the object level, the codec, the hops per
/// call at the bytes level, the hops per attempt. Within each group the hops are in the order in which they
/// were given.
public final class Chain {
  /// A registration and the place at which it becomes a hop.
  public struct Entry {
    public let registration: Registration
    /// The hop's level, never `both`.
    public let level: Level
    public let isPerAttempt: Bool
    /// The registration's entry in its registry when the chain was made; nil if the chain was not made from a
    /// registry.
    let source: Registry.Entry?

    /// Whether the hop may answer RESTART, so that its events have to be recorded.
    var records: Bool { registration.records(at: level) }

    /// Whether the hop is per attempt and has on_pick.
    var looksAtPicks: Bool { isPerAttempt && registration.callbacks.pointee.onPick != nil }

    /// The rank of the hop's group in the chain: 0 object level, 1 bytes level, 2 per attempt.
    var levelRank: Int { level == .object ? 0 : isPerAttempt ? 2 : 1 }
  }

  public let entries: [Entry]
  /// The codec stands between the hops `codecIndex - 1` and `codecIndex`.
  public let codecIndex: Int
  /// The index of the first hop per attempt. The hops from this index on are made anew with each attempt.
  let cutAt: Int
  /// The registry entries from which the chain was made, in order of priority. For a call with interceptors
  /// of its own, those are merged into these entries.
  public let sources: [Registry.Entry]
  /// The registrations whose counters include the chain's calls. A registration is here once, even if it has
  /// several hops.
  private let counting: [Registration]
  /// For each element of `counting`: the link by which that registration lists this chain.
  private let links: UnsafeMutablePointer<ChainLink>
  let stock: Stock

  /// Makes a chain from registry entries in order of priority, as `Registry.merged` returns them.
  public init(_ sources: [Registry.Entry]) {
    self.sources = sources
    counting = sources.map { $0.registration }
    entries = Chain.entries(counting, sources)
    codecIndex = Chain.codecIndex(entries)
    cutAt = Chain.cutIndex(entries)
    stock = Stock(entries)
    links = .allocate(capacity: counting.count)
    enroll()
  }

  public init(_ registrations: [Registration]) {
    sources = []
    counting = registrations
    entries = Chain.entries(registrations, nil)
    codecIndex = Chain.codecIndex(entries)
    cutAt = Chain.cutIndex(entries)
    stock = Stock(entries)
    links = .allocate(capacity: counting.count)
    enroll()
  }

  /// Makes the chain for a call that `hop` itself makes: the entries of `sources` that stand below `hop`,
  /// which may belong to another chain. The interceptor of `hop` is left out, and so is an interceptor that
  /// has replaced it. All entries that are registered for a single call are kept.
  public convenience init(_ sources: [Registry.Entry], below hop: Entry, newestFirst: Bool) {
    let entries = Chain.entries(sources.map { $0.registration }, sources).filter { entry in
      guard let own = hop.source, let source = entry.source, source.scope != .call else { return true }
      if source.sequence == own.sequence { return false }
      return entry.levelRank != hop.levelRank
        ? entry.levelRank > hop.levelRank : Registry.precedes(own, source, newestFirst: newestFirst)
    }
    self.init(entries, sources)
  }

  /// Makes the chain for a call that the hop at `index` of a call with the chain `parent` makes in its place: the
  /// entries of `parent` below that hop.
  public convenience init(_ parent: Chain, below index: Int) {
    self.init(Array(parent.entries.dropFirst(index + 1)), parent.sources)
  }

  /// Makes a chain with these entries, which were made from some of `sources`.
  private init(_ entries: [Entry], _ sources: [Registry.Entry]) {
    self.entries = entries
    // Keeps only the sources from which an entry was made.
    self.sources = sources.filter { source in entries.contains { $0.source === source } }
    codecIndex = Chain.codecIndex(entries)
    cutAt = Chain.cutIndex(entries)
    var counting: [Registration] = []
    for entry in entries where !counting.contains(where: { $0 === entry.registration }) {
      counting.append(entry.registration)
    }
    self.counting = counting
    stock = Stock(entries)
    links = .allocate(capacity: counting.count)
    enroll()
  }

  deinit {
    // `remove` comes first, because it reads `callsEnded` with acquiring order: afterwards this thread sees
    // `stock` as the calls have left it.
    for index in counting.indices { counting[index].remove(links + index, of: self) }
    stock.close()
    links.deallocate()
  }

  /// Adds the chain to the lists of its registrations, so that they count its calls. Done before the first
  /// call.
  private func enroll() {
    for index in counting.indices {
      (links + index).initialize(to: ChainLink(chain: .passUnretained(self)))
      counting[index].add(links + index)
    }
  }

  private static func entries(_ registrations: [Registration], _ sources: [Registry.Entry]?) -> [Entry] {
    var entries: [Entry] = []
    entries.reserveCapacity(registrations.count)
    for (index, registration) in registrations.enumerated() where registration.level != .bytes {
      entries.append(
        Entry(registration: registration, level: .object, isPerAttempt: false, source: sources?[index]))
    }
    for isPerAttempt in [false, true] {
      for (index, registration) in registrations.enumerated()
      where registration.level != .object && registration.isPerAttempt == isPerAttempt {
        entries.append(
          Entry(
            registration: registration, level: .bytes, isPerAttempt: isPerAttempt, source: sources?[index]))
      }
    }
    return entries
  }

  private static func codecIndex(_ entries: [Entry]) -> Int {
    entries.firstIndex { $0.level == .bytes } ?? entries.count
  }

  private static func cutIndex(_ entries: [Entry]) -> Int {
    entries.firstIndex { $0.isPerAttempt } ?? entries.count
  }

  // How many calls have used the chain, and how many of them have ended. They are counted here and not in
  // each registration: an atomic addition for each hop was a third of the cost of a hop.
  private let begun = Atomic<UInt64>(0)
  private let over = Atomic<UInt64>(0)
  private let dropped = Atomic<UInt64>(0)
  /// Counts a call that begins to use the chain, until `callEnded` or `callDropped`. Any thread.
  func callBegan() { begun.wrappingAdd(1, ordering: .relaxed) }
  /// Counts a call that has ended. Only the driving thread calls this function, so no atomic addition is
  /// needed.
  func callEnded() { over.store(over.load(ordering: .relaxed) &+ 1, ordering: .releasing) }
  /// Counts a call that is released without having ended. Any thread.
  func callDropped() { dropped.wrappingAdd(1, ordering: .releasing) }
  var callsBegun: UInt64 { begun.load(ordering: .relaxed) }
  var callsEnded: UInt64 { over.load(ordering: .acquiring) &+ dropped.load(ordering: .acquiring) }
}
