import PenstockCall
import PenstockWire
import Synchronization

/// The interceptors of one channel, and the chains that are made of them and the runtime's.
final class ChannelChains: @unchecked Sendable {
  private let lock = Lock()
  private var registry = Registry()
  private var cache = ChainCache()
  private let newestFirst: Bool

  init(newestFirst: Bool) { self.newestFirst = newestFirst }

  /// The chain of a call that is created now; nil: no interceptor wants it.
  func chain(_ path: ByteView, _ kind: CallKind, of runtime: ClientRuntime) -> Chain? {
    let seen = runtime.registryGeneration.load(ordering: .acquiring)
    lock.lock()
    if cache.isCurrent(registry.generation, seen) {
      defer { lock.unlock() }
      return cache.chain(path, kind)
    }
    let (entries, generation) = runtime.snapshot()
    let merged = Registry.merged(entries, registry.entries, newestFirst: newestFirst)
    let remains = cache.rebuild(merged, registry.generation, generation)
    let chain = cache.chain(path, kind)
    lock.unlock()
    withExtendedLifetime(remains) {}
    return chain
  }

  /// The chain of a call that a hop makes: what a call on the channel has now, from below the hop's place on,
  /// and never the hop's own interceptor. `parent` is the chain that has the hop, at `index`.
  func sideChain(
    _ path: ByteView, _ kind: CallKind, of runtime: ClientRuntime, below index: Int, in parent: Chain
  ) -> Chain? {
    let all = Chain(merged(with: runtime).map { $0.registration }).entries
    let line = parent.entries
    guard index < line.count else { return nil }
    func place(_ entry: Chain.Entry) -> Int? {
      all.firstIndex { $0.registration === entry.registration && $0.level == entry.level }
    }
    var first = 0
    if let found = place(line[index]) {
      first = found + 1
    } else if let below = line[(index + 1)...].first(where: { place($0) != nil }) {
      // The hop's interceptor has been removed: its neighbours tell where it was.
      first = place(below) ?? 0
    } else if let above = line[..<index].last(where: { place($0) != nil }) {
      first = (place(above) ?? -1) + 1
    }
    let own = line[index].registration
    let wanted = all[first...].filter { $0.registration !== own && $0.registration.matches(path, kind) }
    return wanted.isEmpty ? nil : Chain(of: wanted)
  }

  /// Lets go of what is kept for the next call.
  func invalidate() {
    let remains = lock.withLock { cache.invalidate() }
    withExtendedLifetime(remains) {}
  }

  func add(_ registration: Registration, priority: Int32) {
    lock.withLock { registry.add(registration, priority: priority) }
  }

  func remove(_ id: UInt64) -> Bool {
    let removed = lock.withLock { registry.remove(id) }
    guard removed != nil else { return false }
    invalidate()
    return true
  }

  func setPriority(_ id: UInt64, _ priority: Int32) -> Bool {
    lock.withLock { registry.setPriority(id, priority) }
  }

  func removeAll() {
    let gone = lock.withLock { registry.removeAll() }
    invalidate()
    withExtendedLifetime(gone) {}
  }

  var entries: [Registry.Entry] { lock.withLock { registry.entries } }

  /// Both registries in chain order.
  func merged(with runtime: ClientRuntime) -> [Registry.Entry] {
    let theirs = runtime.entries
    return lock.withLock { Registry.merged(theirs, registry.entries, newestFirst: newestFirst) }
  }
}
