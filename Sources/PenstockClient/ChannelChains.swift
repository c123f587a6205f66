import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockTransport

/// The interceptors of one channel, and the chains for its calls. A chain consists of interceptors of the
/// channel and of its runtime.
final class ChannelChains: RegistrationOwner, @unchecked Sendable {
  private let lock = Lock()
  private var registry = Registry(.channel)
  private var cache = ChainCache()
  private var isOver = false
  /// If neither the channel nor the runtime has an interceptor: the generation of the runtime's registry when
  /// this was found. While that generation is current, a call needs no lock. Otherwise UInt64.max.
  private let noneAt = Atomic<UInt64>(.max)
  let newestFirst: Bool
  private let times: CallbackTimes
  /// The channel, and the loop on which it runs. The reference to the channel is not counted, because the
  /// channel's listeners refer to this object.
  private let transport: Unmanaged<Channel>
  private let loop: RuntimeLoop
  /// Both, for a caller that keeps the runtime from forgetting the channel (`ClientRuntime.forget`).
  var place: (loop: RuntimeLoop, channel: Channel) { (loop, transport.takeUnretainedValue()) }

  init(newestFirst: Bool, _ times: CallbackTimes, of transport: Channel, on loop: RuntimeLoop) {
    self.newestFirst = newestFirst
    self.times = times
    self.transport = .passUnretained(transport)
    self.loop = loop
  }

  /// Returns the chain for a new call. `own`: the interceptors of the call's options. nil: no interceptor's
  /// filter matches the call.
  func chain(_ path: ByteView, _ kind: CallKind, of runtime: ClientRuntime, with own: OwnInterceptors?)
    -> Chain?
  {
    let shared = chain(path, kind, of: runtime)
    guard let own = own?.entries(path, kind, newestFirst: newestFirst), !own.isEmpty else { return shared }
    guard let shared else { return Chain(own) }
    return Chain(Registry.merged(shared.sources, own, newestFirst: newestFirst))
  }

  private func chain(_ path: ByteView, _ kind: CallKind, of runtime: ClientRuntime) -> Chain? {
    let seen = runtime.registryGeneration.load(ordering: .acquiring)
    if noneAt.load(ordering: .acquiring) == seen { return nil }
    lock.lock()
    guard cache.isCurrent(registry.generation, seen) else { return newChain(path, kind, of: runtime) }
    let chain = cache.chain(path, kind)
    lock.unlock()
    return chain
  }

  /// Called with the lock held when a registry has changed. Makes the chains anew, returns the chain for a
  /// call, and releases the lock.
  private func newChain(_ path: ByteView, _ kind: CallKind, of runtime: ClientRuntime) -> Chain? {
    let (all, generation) = runtime.merged(with: registry, newestFirst: newestFirst)
    let merged = all.filter { $0.registration.hasHops }
    let isTimed = times.limit > 0 && all.contains { $0.registration.onConnection != nil }
    times.isOn.store(isTimed, ordering: .relaxed)
    let remains = cache.rebuild(merged, registry.generation, generation)
    if merged.isEmpty { noneAt.store(generation, ordering: .releasing) }
    let chain = cache.chain(path, kind)
    lock.unlock()
    withExtendedLifetime(remains) {}
    return chain
  }

  /// Returns the chain for a side call, that is, a call that the hop at `index` of `parent` makes. It has the
  /// channel's and the runtime's interceptors whose place is below that hop, never the hop's own interceptor.
  /// It also has `own`, the interceptors of the new call's options.
  func sideChain(
    _ path: ByteView, _ kind: CallKind, of runtime: ClientRuntime, below index: Int, in parent: Chain,
    with own: OwnInterceptors?
  ) -> Chain? {
    guard index < parent.entries.count else { return nil }
    let shared = merged(with: runtime).filter { $0.wants(path, kind) }
    let own = own?.entries(path, kind, newestFirst: newestFirst) ?? []
    let side = Chain(
      Registry.merged(shared, own, newestFirst: newestFirst), below: parent.entries[index],
      newestFirst: newestFirst)
    return side.entries.isEmpty ? nil : side
  }

  /// Drops the cached chains, so that the next call gets a new chain.
  func invalidate() {
    let remains = lock.withLock { cache.invalidate() }
    withExtendedLifetime(remains) {}
  }

  /// Registers an interceptor. False: the channel is closed and accepts no registrations any more.
  func add(_ registration: Registration, priority: Int32) -> Bool {
    lock.withLock {
      if !isOver { registry.add(registration, priority: priority) }
      noneAt.store(.max, ordering: .releasing)
      return !isOver
    }
  }

  override func make(_ change: RegistrationChange, of id: UInt64) -> Bool {
    let (isHere, gone, remains) = lock.withLock { () -> (Bool, Registry.Entry?, ChainCache.Remains?) in
      let (isHere, gone) = registry.make(change, of: id)
      return (isHere, gone, gone == nil ? nil : cache.invalidate())
    }
    if let gone { Registrations.removed(gone.registration) }
    return withExtendedLifetime(remains) { isHere }
  }

  /// Removes all registrations. Afterwards the channel accepts no new registrations.
  func removeAll() {
    let (gone, remains) = lock.withLock { () -> ([Registry.Entry], ChainCache.Remains) in
      isOver = true
      return (registry.removeAll(), cache.invalidate())
    }
    for entry in gone { Registrations.removed(entry.registration) }
    withExtendedLifetime((gone, remains)) {}
  }

  /// Notes that the user has released the last handle of the channel. Its registrations then end with its
  /// last call.
  func handlesReleased() {
    for entry in lock.withLock({ registry.entries }) { Registrations.handlesReleased(entry.registration) }
  }

  /// The registrations of the runtime and of the channel, sorted by priority.
  func merged(with runtime: ClientRuntime) -> [Registry.Entry] {
    lock.withLock { runtime.merged(with: registry, newestFirst: newestFirst).entries }
  }
}

/// The interceptors of a `CallOptions` object. A call with these options has these interceptors in addition
/// to those of its channel.
public final class OwnInterceptors: RegistrationOwner, @unchecked Sendable {
  private let lock = Lock()
  private var registry = Registry(.call)
  private let hasAny = Atomic<Bool>(false)

  public func add(_ registration: Registration, priority: Int32) {
    lock.withLock { registry.add(registration, priority: priority) }
    hasAny.store(true, ordering: .releasing)
  }

  public override func make(_ change: RegistrationChange, of id: UInt64) -> Bool {
    let (isHere, gone) = lock.withLock { registry.make(change, of: id) }
    if let gone { Registrations.removed(gone.registration) }
    return isHere
  }

  /// Removes the registrations, because the options are released.
  func removeAll() {
    let gone = lock.withLock { registry.removeAll() }
    for entry in gone { Registrations.removed(entry.registration) }
  }

  func entries(_ path: ByteView, _ kind: CallKind, newestFirst: Bool) -> [Registry.Entry] {
    guard hasAny.load(ordering: .acquiring) else { return [] }
    return lock.withLock {
      registry.ordered(newestFirst: newestFirst).filter { $0.wants(path, kind) }
    }
  }
}
