import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockLink
import PenstockTransport

/// A runtime as its user sees it: one event loop or several, and the interceptors of all its channels.
///
/// Each loop has its own driver, timers and calls. This object has the parts that the loops share: the count
/// of users, the registered interceptors, and the worker threads.
public final class ClientRuntime: RegistrationOwner, @unchecked Sendable {
  public enum Made {
    case made(ClientRuntime)
    case failed(errno: Int32, what: StaticString)
  }

  static let processSlot = 1

  public let generation: UInt64
  /// The first loop. Each loop has a reference to the next one.
  let loop: RuntimeLoop
  /// The first loop's runtime. In host mode it is the only one.
  public var runtime: Runtime { loop.runtime }
  private let isShared: Bool
  /// The number of the user's handles, plus the number of channels. Guarded by the lock of the process's page
  /// if this is the default runtime (`isShared`), otherwise by `lock`.
  private var users = 1
  /// The number of the user's handles, plus the number of channels with handles. At 0 nobody can change the
  /// registrations any more.
  private let reach = Atomic<Int>(1)
  private let lock = Lock()
  private var registry = Registry(.runtime)
  /// Whether the runtime accepts no registrations any more. Under the lock.
  private var isOver = false
  /// The interceptors and cached chains of each channel of this runtime.
  private var caches: [ChannelChains] = []
  /// A copy of the registry's generation. A call compares it without the lock with the generation of its
  /// cached chains.
  let registryGeneration = Atomic<UInt64>(0)
  let workers: WorkerPool

  private init(_ loop: RuntimeLoop, isShared: Bool) {
    self.loop = loop
    self.isShared = isShared
    generation = loop.runtime.generation
    workers = WorkerPool(loop)
    super.init()
    loop.begin(.passUnretained(workers))
  }

  public static func make(_ options: Runtime.Options) -> Made { make(options, Platform()) }

  static func make(_ options: Runtime.Options, _ platform: Platform, isShared: Bool = false) -> Made {
    var made: RuntimeLoop?
    var left = options.loops
    repeat {
      let watch = CallWatch()
      switch Runtime.make(options, watch, platform) {
      case .made(let runtime): made = RuntimeLoop(runtime, watch, next: made)
      case .failed(let errno, let what):
        made?.releaseHandles()
        return .failed(errno: errno, what: what)
      }
      left -= 1
    } while left > 0
    return made.map { .made(ClientRuntime($0, isShared: isShared)) } ?? .failed(errno: 0, what: "no loop")
  }

  /// Returns the default runtime, and adds one to its number of users.
  public static func shared() -> Made {
    // `old` is released outside of the lock, because the release may run a user's finalizer.
    var old: Unmanaged<ClientRuntime>?
    defer { old?.release() }
    return Process.withLock { () -> Made in
      let slot = Process.slot(processSlot)
      if let raw = UnsafeRawPointer(bitPattern: slot.pointee) {
        let known = Unmanaged<ClientRuntime>.fromOpaque(raw).takeUnretainedValue()
        if !known.isClosed {
          known.users += 1
          known.reach.wrappingAdd(1, ordering: .relaxed)
          return .made(known)
        }
        // The default runtime was shut down. Its present users keep it, and new users get a new runtime.
        slot.pointee = 0
        old = Unmanaged.passUnretained(known)
      }
      let made = make(Runtime.Options(), Platform(), isShared: true)
      if case .made(let fresh) = made {
        slot.pointee = UInt(bitPattern: Unmanaged.passRetained(fresh).toOpaque())
      }
      return made
    }
  }

  /// Whether the runtime was shut down, or all its loops have lost their descriptors.
  public var isClosed: Bool { loop.areAllClosed }

  /// Whether the calling thread drives a loop of this runtime. Such a thread must not wait for a call on any
  /// loop of the runtime, because the callbacks of two loops could then wait for each other.
  @inline(__always)
  public var isDriving: Bool { DrivingThread.isCurrent() && loop.isOneDriven }

  /// Chooses the loop for a new channel, and adds the channel to that loop's count.
  public func loopForChannel() -> RuntimeLoop { lock.withLock { loop.withFewestChannels() } }

  public func addUser() {
    reach.wrappingAdd(1, ordering: .relaxed)
    if isShared { Process.withLock { users += 1 } } else { lock.withLock { users += 1 } }
  }

  /// Subtracts one from the number of users, the channels and handles that need the runtime. When no user is
  /// left, the loops end by themselves. Never blocks.
  public func removeUser() {
    isOutOfReach()
    removeHolder()
  }

  /// Subtracts one from `reach`. Called when a handle of the runtime, or the last handle of a channel, was
  /// released. A channel without handles is still in `users` until it is freed.
  func isOutOfReach() {
    guard reach.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0,
      !Process.isForked(generation)
    else { return }
    for entry in entries { Registrations.handlesReleased(entry.registration) }
  }

  func removeHolder() {
    if Process.isForked(generation) {
      // In a forked child no lock is taken, because a thread that exists only in the parent may hold it.
      users -= 1
      if users == 0 { loop.releaseHandles() }
      return
    }
    var slotHeldUs = false
    let isLast: Bool
    if isShared {
      isLast = Process.withLock { () -> Bool in
        users -= 1
        guard users == 0 else { return false }
        let slot = Process.slot(ClientRuntime.processSlot)
        if slot.pointee == UInt(bitPattern: Unmanaged.passUnretained(self).toOpaque()) {
          slot.pointee = 0
          slotHeldUs = true
        }
        return true
      }
    } else {
      isLast = lock.withLock { () -> Bool in
        users -= 1
        return users == 0
      }
    }
    guard isLast else { return }
    forgetInterceptors()
    workers.close()
    loop.releaseHandles()
    if slotHeldUs { Unmanaged.passUnretained(self).release() }
  }

  public func shutdown(timeoutMilliseconds: Int64) -> Runtime.ShutdownResult {
    if isDriving || Worker.current?.runs(workers) == true { return .wouldDeadlock }
    let deadline = Runtime.deadline(after: timeoutMilliseconds, from: Platform.systemClock())
    var result = loop.shutdown(timeoutMilliseconds: timeoutMilliseconds)
    // `.already`: an earlier shutdown may have timed out, after which the loops ended by themselves.
    if result == .ok || result == .already, !Process.isForked(generation) {
      forgetInterceptors()
      // The shutdown has also closed the channels, so their interceptors are removed.
      for cache in lock.withLock({ caches }) { cache.removeAll() }
    }
    if result == .ok || (result == .already && workers.hasThreads) {
      result = workers.join(until: deadline) ? .ok : .timedOut
    }
    return result
  }

  private func forgetInterceptors() {
    let gone = change { () -> [Registry.Entry] in
      isOver = true
      return registry.removeAll()
    }
    for entry in gone { Registrations.removed(entry.registration) }
    for cache in lock.withLock({ caches }) { cache.invalidate() }
    withExtendedLifetime(gone) {}
  }

  // MARK: - Interceptors

  public func add(_ registration: Registration, priority: Int32) -> Outcome {
    if isClosed { return .closed }
    return change { () -> Bool in
      if !isOver { registry.add(registration, priority: priority) }
      return !isOver
    } ? .ok : .closed
  }

  public override func make(_ change: RegistrationChange, of id: UInt64) -> Bool {
    let (isHere, gone) = self.change { registry.make(change, of: id) }
    if let gone {
      Registrations.removed(gone.registration)
      // The channels drop their cached chains, which contain the removed interceptor.
      for cache in lock.withLock({ caches }) { cache.invalidate() }
    }
    return isHere
  }

  /// The registered interceptors of this runtime, sorted by priority.
  public var entries: [Registry.Entry] { merged(with: Registry(), newestFirst: false).entries }

  private func change<R>(_ body: () -> R) -> R {
    lock.withLock {
      let result = body()
      registryGeneration.store(registry.generation, ordering: .releasing)
      return result
    }
  }

  /// Returns the registrations of this runtime and of `other`, in the order of the hops in a chain, and the
  /// generation of this runtime's registry.
  func merged(with other: Registry, newestFirst: Bool) -> (entries: [Registry.Entry], generation: UInt64) {
    lock.withLock {
      (
        Registry.merged(
          registry.ordered(newestFirst: newestFirst), other.ordered(newestFirst: newestFirst),
          newestFirst: newestFirst), registry.generation
      )
    }
  }

  /// The channels of this runtime that have not been freed.
  var channels: [(loop: RuntimeLoop, channel: Channel)] { lock.withLock { caches.map { $0.place } } }

  func join(_ cache: ChannelChains) { lock.withLock { caches.append(cache) } }

  func forget(_ cache: ChannelChains) { lock.withLock { caches.drop(cache) } }
}
