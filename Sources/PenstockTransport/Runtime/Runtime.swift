import CSystem
import PenstockCall
import PenstockWire
import Synchronization

/// A handler for the end of a turn: `turnEnded` is called on the driving thread, once for each call of
/// `atTurnEnd`.
open class TurnEndHandler {
  public init() {}

  open func turnEnded() {}
}

/// A hook that is called on the driving thread, once, when the runtime shuts down. The hook ends all work of
/// its owner. Work that can't end at once is counted with `beginPending`, and the shutdown waits for it.
///
/// In a forked child that takes over the parent's runtime, two more functions are called. First `becomeChild`
/// releases the state that only the parent can use; it must call no user code. Then `endInherited`, on the
/// driving thread, ends the work that was inherited from the parent.
public protocol ShutdownHook: AnyObject {
  func runtimeShutdown(_ why: Closing)
  func becomeChild(_ calls: inout InheritedCalls)
  func endInherited()
}

extension ShutdownHook {
  public func becomeChild(_ calls: inout InheritedCalls) {}
  public func endInherited() {}
}

/// The reason why a channel or a runtime ends its calls.
public enum Closing {
  case channelClosed, shutDown, descriptorsLost, forked

  /// The status of calls that end for this reason; each call gets a new object.
  @inline(never) @_optimize(size)
  var status: Status {
    switch self {
    case .channelClosed: Status(.cancelled, "channel closed")
    case .shutDown: Status(.cancelled, "runtime shut down")
    case .forked: Status(.cancelled, "the process was forked: the call is its parent's")
    case .descriptorsLost:
      Status(.unavailable, "the runtime's loop can't go on: something in the program closed its descriptors")
    }
  }
}

/// An event loop, and the rules for which thread runs it.
///
/// One thread at a time is the *driver*: the runtime's own thread, a thread that waits in a blocking function, or one
/// in `poll`. The role changes hands under `lock`; all that is marked "driver's" belongs to the thread in the role, and
/// needs no lock. The loop runs user code on the driver only, and never under a lock.
///
/// - RuntimeTurn.swift: one turn of the loop.
/// - RuntimeRole.swift: which thread drives.
/// - RuntimeEnd.swift: handles, shutdown and the end.
///
/// `@unchecked Sendable`: all mutable state is atomic, under `lock`, or the driver's.
public final class Runtime: @unchecked Sendable {
  public enum Mode: Equatable, Sendable { case thread, host }

  public struct Options: Sendable {
    public var mode = Mode.thread
    /// Thread mode: whether a thread that waits in a blocking function may run the loop itself.
    public var callerDrives = true
    /// How many loops a user's runtime has. Each is a `Runtime` with these options.
    public var loops: UInt16 = 1
    /// How long the loop may stay without a driver before the own thread takes it back.
    public var lingerMicroseconds: UInt32 = 200
    /// How long a waiting thread that drives polls for events before it sleeps.
    public var spinMicroseconds: UInt32 = 0
    /// How many threads may run the functions of synchronous interceptors.
    public var maxWorkers: UInt32 = 4
    public init() {}
  }

  public enum Made {
    case made(Runtime)
    case failed(errno: Int32, what: StaticString)
  }

  public enum WaitResult: Equatable, Sendable { case ready, timedOut, interrupted, wouldDeadlock, closed }
  public enum PollResult: Equatable, Sendable { case ok, busy, timedOut, interrupted, closed, notHost }
  public enum ShutdownResult: Equatable, Sendable { case ok, timedOut, wouldDeadlock, already }

  /// The generation of the process that made this runtime. A user of a handle checks it by `Process.isForked`
  /// before using anything else here.
  public let generation: UInt64
  public let options: Options

  // MARK: Any thread

  let inbox = Inbox()
  /// Whether the loop sleeps: 1 means that no thread looks at the inbox until the wake descriptor is signalled. See
  /// `turn`.
  let asleep = Atomic<UInt32>(0)
  /// The driving thread; 0 while the role is free or being handed over.
  let driverThread = Atomic<UInt64>(0)
  /// Whether the own thread should give the role to a waiting thread.
  let yieldWanted = Atomic<Bool>(false)
  /// Whether the driver should stop between two turns: to end the runtime if nothing is left to do, or to stand still while
  /// the process forks.
  let ending = Atomic<Bool>(false)
  let ended = Atomic<Bool>(false)
  /// Whether a shutdown has begun, or the loop can't go on: nothing new is accepted then.
  public let closed = Atomic<Bool>(false)
  /// `handles`: the number of user handles. `pending`: its lower half counts the work that a shutdown waits
  /// for, calls included; its upper half counts the calls, which also keep the loop alive. `background`: a
  /// count of the work that no thread waits for in a blocking function, so that the own thread has to drive
  /// it.
  let handles = Atomic<Int>(1)
  let pending = Atomic<UInt64>(0)
  let background = Atomic<Int>(0)

  // MARK: Under `lock`

  enum Phase: Equatable { case running, shuttingDown, ended }
  enum Driver: Equatable { case none, own, caller }

  let lock = Lock()
  var phase = Phase.running
  var driver = Driver.none
  /// The number of times that the driver has changed.
  var turnover: UInt32 = 0
  /// The time (monotonic ns) when the role became free.
  var freeSince: UInt64 = 0
  var waiters: [Waiter] = []
  /// How many waits have to begin before the own thread gives the role away again; 0: it does so at once. The
  /// number is set while many threads wait at the same time: see RuntimeRole.swift.
  var crowd: UInt32 = 0
  /// Whether the own thread is to take the free role at once.
  var ownWanted = false
  /// The time at which the sleeping own thread looks at the role by itself; .max: never, because the thread
  /// that frees the role wakes the own thread; 0: the own thread is awake.
  var ownLooksAt: UInt64 = 0
  var joiners = 0
  var thread: pthread_t = 0
  enum ThreadState: Equatable { case none, joinable, detached, joined }
  var threadState = ThreadState.none

  /// Whether the runtime came from the parent of this process and has no own thread yet: the thread is started when it
  /// is first needed.
  let lacksThread = Atomic<Bool>(false)
  /// 0: no fork is prepared. 1: the driver has to stop between two turns, because the process is about to
  /// fork. 2: the driver has stopped. Written under `lock`.
  let stillness = Atomic<UInt32>(0)
  /// Whether the thread that forks has taken the role, because no thread had it.
  var isHeld = false
  /// The links of the list of this process's runtimes, under the lock of that list (`Process.withRuntimes`).
  var nextRuntime: Unmanaged<Runtime>?
  var previousRuntime: Unmanaged<Runtime>?

  /// Changed to wake the own thread, so that it looks at the role again.
  let ownWord = Atomic<UInt32>(0)
  let ownExited = WaitCell()
  let endCell = WaitCell()

  // MARK: The driver's

  let platform: Platform
  let poller: Poller
  var timers = TimerHeap()
  var turnEnds: [TurnEndHandler] = []
  var turnEndsRunning: [TurnEndHandler] = []
  var hooks: [any ShutdownHook] = []
  /// Monotonic time in ns, as last read. It is read once per turn, again before each further descriptor of the turn,
  /// and after code that took long: see "Time" in docs/architecture.md.
  public internal(set) var now: UInt64 {
    get {
      if watch.hasRun { refreshNow() }
      return lastNow
    }
    set {
      turnTime.store(newValue, ordering: .relaxed)
      watch.hasRun = false
    }
  }
  private let turnTime = Atomic<UInt64>(0)
  /// The time that was last read from the clock. Any thread.
  var lastNow: UInt64 { turnTime.load(ordering: .relaxed) }
  /// Shows other threads which callback runs.
  let watch = CallWatch()
  /// The time when the descriptors were last polled.
  var polledAt: UInt64 = 0
  /// The number of items, events, timers and turn-end handlers that have run so far.
  var work: UInt64 = 0
  /// The object that `keepUntilRest` keeps.
  var spent: AnyObject?
  /// Lookups under way and waiting; see Lookup.swift.
  let lookups = LookupQueue()

  public static func make(_ options: Options) -> Made { make(options, Platform()) }

  static func make(_ options: Options, _ platform: Platform) -> Made {
    let runtime = Runtime(options, platform)
    if let (code, what) = runtime.poller.failure { return .failed(errno: code, what: what) }
    if options.mode == .thread, let code = runtime.startThread() {
      return .failed(errno: code, what: "pthread_create")
    }
    runtime.enlist()
    return .made(runtime)
  }

  private init(_ options: Options, _ platform: Platform) {
    generation = Process.generation
    self.options = options
    self.platform = platform
    poller = platform.makePoller(host: options.mode == .host)
    if options.mode == .host { asleep.store(1, ordering: .relaxed) }
  }

  deinit {
    while inbox.pop({ _ in }) {}
  }

  /// The system's monotonic clock, for code without a runtime, and for threads that are parked.
  public static func monotonicNow() -> UInt64 { cs_monotonic() }

  /// The runtime's clock, read now.
  @inline(__always)
  var clock: UInt64 { platform.clock() }

  /// The time `nanoseconds` from now; `.max` if the sum would overflow.
  @inline(never) @_optimize(size)
  func time(after nanoseconds: UInt64) -> UInt64 {
    let (time, overflow) = clock.addingReportingOverflow(nanoseconds)
    return overflow ? .max : time
  }

  /// Nanoseconds since 1970 by the system's clock.
  public static func wallClock() -> UInt64 { cs_wall_clock() }

  /// Called on the thread that takes the role.
  @inline(__always)
  func beginDriving() {
    driverThread.store(cs_thread_self(), ordering: .relaxed)
    DrivingThread.begin(self)
  }

  /// Called on the driving thread, which gives the role up. Does nothing on another thread.
  func endDriving() {
    guard isDriving else { return }
    driverThread.store(0, ordering: .relaxed)
    DrivingThread.end(self)
  }

  /// Whether the calling thread is the driver now.
  public var isDriving: Bool { driverThread.load(ordering: .relaxed) == cs_thread_self() }

  // MARK: For the driver

  /// Watches a descriptor. False: the system refused, or it is watched already.
  public func watch(_ fd: Int32, _ events: UInt32, _ handler: any ReadyHandler) -> Bool {
    poller.watch(fd, events, handler)
  }

  public func rewatch(_ fd: Int32, _ events: UInt32) { poller.rewatch(fd, events) }

  /// Makes `handler` the receiver of the events of `fd` from now on.
  func hand(_ fd: Int32, to handler: any ReadyHandler) { poller.hand(fd, to: handler) }

  /// Stops watching a descriptor; called before it is closed. No event of it is dispatched after this.
  public func unwatch(_ fd: Int32) { _ = poller.unwatch(fd) }

  /// Arms `timer` for the monotonic time `at`, or moves it there.
  public func arm(_ timer: Timer, at: UInt64) {
    if ended.load(ordering: .relaxed) { return }
    timers.arm(timer, at: at)
  }

  public func disarm(_ timer: Timer) { _ = timers.disarm(timer) }

  public func atTurnEnd(_ handler: TurnEndHandler) { turnEnds.append(handler) }

  /// Keeps `object`, which is not needed any more, until the loop is about to sleep: its memory is then freed
  /// while the peer works, and not between an answer and the thread that waits for it. False: `object` is not
  /// kept. In host mode no object is kept, because the host program would have to poll for its release.
  public func keepUntilRest(_ object: AnyObject) -> Bool {
    guard spent == nil, options.mode == .thread, !ended.load(ordering: .relaxed) else { return false }
    spent = object
    return true
  }

  /// Reads the clock again. Called after code that took long, and when `now` has to be exact.
  public func refreshNow() { now = clock }

  /// Sets `now` to `time`, which has just been read from the clock, unless `now` is later already.
  func advance(to time: UInt64) { if time > lastNow { turnTime.store(time, ordering: .relaxed) } }

  // MARK: For any thread

  /// Runs `item` on the driving thread, after all that was posted before. False: the runtime has ended, and the item
  /// will not run. (An item that is posted while the runtime ends may be dropped, too.)
  @discardableResult
  public func post(_ item: InboxItem) -> Bool {
    if !inbox.push(item) { return true }
    if ended.load(ordering: .sequentiallyConsistent) {
      // The thread that ended the runtime may have emptied the inbox before the push, and does not come back to it.
      // So this thread empties it, perhaps at the same time as other threads that post.
      dropInbox()
      return false
    }
    wake()
    return true
  }

  /// Makes a sleeping driver, or the host program, look at the inbox.
  func wake() {
    guard asleep.load(ordering: .sequentiallyConsistent) != 0,
      asleep.exchange(0, ordering: .sequentiallyConsistent) != 0
    else { return }
    lock.lock()
    // The lock is held, because the end of the runtime closes the descriptor, whose number may then belong to
    // another file.
    if phase != .ended { poller.kick() }
    lock.unlock()
    if lacksThread.load(ordering: .relaxed) { wakeOwn() }
  }

  /// Makes a sleeping driver, or the host program, look at the inbox. The caller holds `lock`.
  func wakeLocked() {
    if asleep.exchange(0, ordering: .sequentiallyConsistent) != 0, phase != .ended { poller.kick() }
  }

  /// Counts work that no thread waits for in a blocking function, such as a call in callback style. Until
  /// `endBackground`, the own thread takes the loop back as soon as a caller leaves it, instead of after the
  /// linger.
  public func beginBackground() {
    background.add(1, ordering: .sequentiallyConsistent)
    guard options.mode == .thread else { return }
    lock.lock()
    let idle = driver == .none && phase != .ended
    if idle { ownWanted = true }
    lock.unlock()
    if idle { wakeOwn() }
  }

  public func endBackground() { background.subtract(1, ordering: .sequentiallyConsistent) }

  func wakeOwn() {
    if lacksThread.load(ordering: .relaxed), lacksThread.exchange(false, ordering: .relaxed),
      startThread() != nil
    {
      // The thread could not be started. The next call of `wakeOwn` tries again.
      lacksThread.store(true, ordering: .relaxed)
      asleep.store(1, ordering: .sequentiallyConsistent)
      if ended.load(ordering: .relaxed) { ownExited.set() }
    }
    ownWord.wrappingAdd(1, ordering: .sequentiallyConsistent)
    Futex.wake(ownWord, 1)
  }

  /// Host mode: a descriptor that is readable whenever a poll would do work. Thread mode: -1.
  public var pollableFD: Int32 { poller.outer }
}
