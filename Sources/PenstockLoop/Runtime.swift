import CPenstockSystem
import PenstockWire
import Synchronization

/// A handler that runs at the end of a turn of the event loop. `turnEnded` is called on the driving thread,
/// once for each call of `atTurnEnd`.
open class TurnEndHandler {
  public init() {}

  open func turnEnded() { mustOverride(()) }
  /// Called instead of `turnEnded` if the runtime has ended: releases what the handler keeps for the turn's end; nothing
  /// by default.
  open func dropped() {}
}

/// A hook that is called on the driving thread, once, when the runtime shuts down. The hook ends all work of
/// the object that has registered it. Work that can't end at once is counted with `beginPending`, and the
/// shutdown waits for that work.
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
}

/// An event loop, and the rules for which thread runs it.
///
/// One thread at a time has the role of the *driver*: the runtime's own thread, a thread that waits in a
/// blocking function, or a thread in `poll`. The role moves from one thread to another under `lock`. State
/// that is marked "driver's" is used only by the thread that has the role, and needs no lock. The loop runs
/// user code on the driver only, and never under a lock.
///
/// - RuntimeTurn.swift: one turn of the loop.
/// - DriverRole.swift: the decisions about which thread drives; RuntimeRole.swift: the threads around them.
/// - RuntimeEnd.swift: handles, shutdown and the end.
///
/// `@unchecked Sendable`: all mutable state is atomic, under `lock`, or the driver's.
public final class Runtime: @unchecked Sendable {
  public enum Mode: Equatable, Sendable { case thread, host }

  public struct Options: Sendable {
    public var mode = Mode.thread
    /// Thread mode: whether a thread that waits in a blocking function may run the loop itself.
    public var callerDrives = true
    /// The number of event loops in the runtime that a user makes. Each loop is a `Runtime` with these
    /// options.
    public var loops: UInt16 = 1
    /// How long the loop may stay without a driver before the runtime's own thread drives it again.
    public var lingerMicroseconds: UInt32 = 200
    /// How long a blocking function that drives the loop polls for events before it sleeps.
    public var spinMicroseconds: UInt32 = 0
    /// The most threads that may run the functions of synchronous interceptors.
    public var maxWorkers: UInt32 = 32
    public init() {}
  }

  public enum Made {
    case made(Runtime)
    case failed(errno: Int32, what: StaticString)
  }

  public enum WaitResult: Equatable, Sendable { case ready, timedOut, interrupted, wouldDeadlock, closed }
  public enum PollResult: Equatable, Sendable { case ok, busy, timedOut, interrupted, closed, notHost }
  public enum ShutdownResult: Equatable, Sendable { case ok, timedOut, wouldDeadlock, already }

  /// The generation of the process that made this runtime. A function that gets the runtime from a handle
  /// first calls `Process.isForked` with it, and uses no other field if the result is true.
  public let generation: UInt64
  public let options: Options

  // MARK: Any thread

  let inbox = Inbox()
  /// 1: the loop sleeps, so a thread that posts an item has to signal the wake descriptor. 0: the driver
  /// checks the inbox without a signal. See `turn`.
  let asleep = Atomic<UInt32>(0)
  /// The id of the driving thread; 0: no thread has the role of driver, or the role is being handed over.
  let driverThread = Atomic<UInt64>(0)
  /// Whether the runtime's own thread, which drives, was asked to give up the role (`DriverRole.Holder.own`).
  /// Written under `lock`, with the role.
  let yieldWanted = Atomic<Bool>(false)
  /// Whether the driver should call `endIfDone` between two turns: to end the runtime if no work is left, or
  /// to stand still while the process forks.
  let ending = Atomic<Bool>(false)
  public let ended = Atomic<Bool>(false)
  /// Whether a shutdown has begun, or the loop has lost its descriptors. The runtime then accepts no new
  /// calls.
  public let closed = Atomic<Bool>(false)
  /// `handles`: the number of handles that the user has. `pending`: its lower half counts all work that a
  /// shutdown waits for, calls included; its upper half counts the calls, which also keep the runtime from
  /// ending by itself. `background`: the amount of work that no thread waits for in a blocking function, so
  /// that the runtime's own thread has to drive the loop.
  let handles = Atomic<Int>(1)
  let pending = Atomic<UInt64>(0)
  let background = Atomic<Int>(0)

  // MARK: Under `lock`

  enum Phase: Equatable { case running, shuttingDown, ended }

  let lock = Lock()
  var phase = Phase.running
  var role: DriverRole
  /// The threads that are parked in a blocking function, and have not been given the role of driver.
  var waiters: [Waiter] = []
  var joiners = 0
  var thread: UInt64 = 0
  enum ThreadState: Equatable { case none, joinable, detached, joined }
  var threadState = ThreadState.none

  /// Whether the runtime was inherited from the parent of this process and has no own thread yet. The thread
  /// is started when it is first needed.
  let lacksThread = Atomic<Bool>(false)
  /// 0: no fork is prepared. 1: the driver has to stop between two turns, because the process is about to
  /// fork. 2: the driver has stopped. Written under `lock`.
  let stillness = Atomic<UInt32>(0)
  /// The links of the list of this process's runtimes, under the lock of that list (`Process.withRuntimes`).
  var nextRuntime: Unmanaged<Runtime>?
  var previousRuntime: Unmanaged<Runtime>?

  /// A word on which the runtime's own thread sleeps. A change of the word wakes the thread, which then
  /// checks whether it should drive.
  let ownWord = Atomic<UInt32>(0)
  let ownExited = WaitCell()
  let endCell = WaitCell()

  // MARK: The driver's

  public let platform: Platform
  let poller: Poller
  var timers = TimerHeap()
  var turnEnds: [TurnEndHandler] = []
  var turnEndsRunning: [TurnEndHandler] = []
  var hooks: [any ShutdownHook] = []
  /// The monotonic time in ns that was last read from the clock. The clock is read once per turn, again
  /// before each further descriptor of the turn, and after code that may have taken long: see "Time" in
  /// docs/architecture.md.
  public internal(set) var now: UInt64 {
    get {
      if mark.isStale { refreshNow() }
      return lastNow
    }
    set {
      turnTime.store(newValue, ordering: .relaxed)
      mark.isStale = false
    }
  }
  private let turnTime = Atomic<UInt64>(0)
  /// The monotonic time in ns that was last read from the clock; does not read the clock. Any thread.
  public var lastNow: UInt64 { turnTime.load(ordering: .relaxed) }
  /// Says whether user code, which may take long, has run since the clock was last read.
  public let mark: ClockMark
  /// The time (monotonic ns) when the driver last polled the descriptors for events.
  public internal(set) var polledAt: UInt64 = 0
  /// The total number of items, events, timers and turn-end handlers that have run.
  var work: UInt64 = 0
  /// The object that `releaseAtRest` has stored, to be released before the loop sleeps.
  var spent: AnyObject?
  /// Lookups under way and waiting; see Lookup.swift.
  let lookups = LookupQueue()

  public static func make(
    _ options: Options, _ mark: ClockMark = ClockMark(), _ platform: Platform = Platform()
  ) -> Made {
    let runtime = Runtime(options, mark, platform)
    if let (code, what) = runtime.poller.failure { return .failed(errno: code, what: what) }
    if options.mode == .thread, let code = runtime.startThread() {
      return .failed(errno: code, what: "pthread_create")
    }
    runtime.enlist()
    return .made(runtime)
  }

  private init(_ options: Options, _ mark: ClockMark, _ platform: Platform) {
    self.mark = mark
    generation = Process.generation
    self.options = options
    self.platform = platform
    role = DriverRole(
      DriverRole.Limits(linger: UInt64(options.lingerMicroseconds) * 1000),
      hasOwnThread: options.mode == .thread)
    poller = platform.makePoller(host: options.mode == .host)
    if options.mode == .host { asleep.store(1, ordering: .relaxed) }
  }

  deinit {
    while inbox.pop({ _ in }) {}
  }

  /// The runtime's clock, read now.
  @inline(__always)
  public var clock: UInt64 { platform.clock() }

  /// The time `nanoseconds` from now; `.max` if the sum would overflow.
  public func time(after nanoseconds: UInt64) -> UInt64 {
    let (time, overflow) = clock.addingReportingOverflow(nanoseconds)
    return overflow ? .max : time
  }

  /// Marks the calling thread as the driver.
  @inline(__always)
  func beginDriving() {
    driverThread.store(cs_thread_self(), ordering: .relaxed)
    DrivingThread.begin(self)
  }

  /// Marks that the calling thread no longer drives. Does nothing if the calling thread is not the driver.
  func endDriving() {
    guard isDriving else { return }
    driverThread.store(0, ordering: .relaxed)
    DrivingThread.end(self)
  }

  /// Whether the calling thread is the driver now.
  public var isDriving: Bool { driverThread.load(ordering: .relaxed) == cs_thread_self() }

  // MARK: For the driver

  /// Watches a descriptor. False: epoll refused the descriptor, or the descriptor is watched already.
  public func watch(_ fd: Int32, _ events: UInt32, _ handler: any ReadyHandler) -> Bool {
    poller.watch(fd, events, handler)
  }

  public func rewatch(_ fd: Int32, _ events: UInt32) { poller.rewatch(fd, events) }

  /// Replaces the handler of the watched descriptor `fd`: from now on its events go to `handler`.
  public func hand(_ fd: Int32, to handler: any ReadyHandler) { poller.hand(fd, to: handler) }

  /// Stops watching a descriptor. Call it before closing the descriptor. No event of the descriptor is
  /// dispatched afterwards.
  public func unwatch(_ fd: Int32) { _ = poller.unwatch(fd) }

  /// Arms `timer` for the monotonic time `at` (ns). A timer that is armed already is moved to `at`.
  public func arm(_ timer: Timer, at: UInt64) {
    if ended.load(ordering: .relaxed) { return }
    timers.arm(timer, at: at)
  }

  /// The time (monotonic ns) of the earliest timer; nil: no timer is armed.
  public var nextTimer: UInt64? { timers.earliest }

  public func disarm(_ timer: Timer) { _ = timers.disarm(timer) }

  public func atTurnEnd(_ handler: TurnEndHandler) { turnEnds.append(handler) }

  /// Keeps `object`, which is not needed any more, until the loop is about to sleep. So its memory is freed
  /// while the program waits for the peer, and not between the arrival of an answer and the wake-up of the
  /// thread that waits for the answer. False: `object` is not kept. In host mode no object is kept, because
  /// the host program would have to poll once more to release it.
  public func releaseAtRest(_ object: AnyObject) -> Bool {
    guard spent == nil, options.mode == .thread, !ended.load(ordering: .relaxed) else { return false }
    spent = object
    return true
  }

  /// Reads the clock again. Called after code that may have taken long, and before a use of `now` that has to
  /// be exact.
  public func refreshNow() { now = clock }

  /// Sets `now` to `time`, which the caller has just read from the clock, unless `now` is later than `time`.
  public func advance(to time: UInt64) { if time > lastNow { turnTime.store(time, ordering: .relaxed) } }

  // MARK: For any thread

  /// Runs `item` on the driving thread, after all that was posted before. False: the runtime has ended, and the item
  /// will not run. (An item that is posted while the runtime ends may be dropped, too.)
  @discardableResult
  public func post(_ item: InboxItem) -> Bool {
    if !inbox.push(item) { return true }
    if ended.load(ordering: .sequentiallyConsistent) {
      // The thread that ended the runtime may have emptied the inbox before this push, and does not check the
      // inbox again. So this thread drops the items. Other threads that post may do so at the same time.
      dropInbox()
      return false
    }
    wake()
    return true
  }

  /// Makes a sleeping driver check the inbox. In host mode, makes the outer descriptor readable if no thread
  /// drives.
  func wake() {
    guard asleep.load(ordering: .sequentiallyConsistent) != 0,
      asleep.exchange(0, ordering: .sequentiallyConsistent) != 0
    else { return }
    lock.lock()
    // The end of the runtime closes the wake descriptor under the lock. Without the lock, `kick` could write
    // to another file with the descriptor's number.
    if phase != .ended { poller.kick() }
    lock.unlock()
    if lacksThread.load(ordering: .relaxed) { wakeOwn() }
  }

  /// Makes a sleeping driver check the inbox. In host mode, makes the outer descriptor readable if no thread
  /// drives. The caller holds `lock`.
  func wakeLocked() {
    if asleep.exchange(0, ordering: .sequentiallyConsistent) != 0, phase != .ended { poller.kick() }
  }

  /// Counts work that no thread waits for in a blocking function, such as a call in callback style. Until
  /// `endBackground`, the runtime's own thread takes over the loop at once when a blocking function leaves
  /// it, and not after the linger (`lingerMicroseconds`).
  public func beginBackground() {
    background.add(1, ordering: .sequentiallyConsistent)
    guard options.mode == .thread else { return }
    lock.lock()
    let isIdle = role.call() == .wakeOwn
    lock.unlock()
    if isIdle { wakeOwn() }
  }

  public func endBackground() { background.subtract(1, ordering: .sequentiallyConsistent) }

  func wakeOwn() {
    if lacksThread.load(ordering: .relaxed), lacksThread.exchange(false, ordering: .relaxed),
      startThread() != nil
    {
      // The thread could not be started. The next call of `wakeOwn` tries again.
      if ended.load(ordering: .relaxed) { ownExited.set() }
    }
    ownWord.wrappingAdd(1, ordering: .sequentiallyConsistent)
    Futex.wake(ownWord, 1)
  }

  /// Host mode: a descriptor that is readable whenever `poll` would find work to do. Thread mode: -1.
  public var pollableFD: Int32 { poller.outer }
}
