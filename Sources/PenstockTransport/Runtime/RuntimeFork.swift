import CSystem
import Synchronization

/// The part of a runtime in a fork of the process: see `Fork`.
extension Runtime {
  // MARK: The list of this process's runtimes

  private static var first: Unmanaged<Runtime>? {
    get { UnsafeRawPointer(bitPattern: Process.slot(Process.runtimesSlot).pointee).map { .fromOpaque($0) } }
    set { Process.slot(Process.runtimesSlot).pointee = newValue.map { UInt(bitPattern: $0.toOpaque()) } ?? 0 }
  }

  /// The list keeps a runtime until it has ended.
  @inline(never) @_optimize(size)
  func enlist() {
    let me = Unmanaged.passRetained(self)
    Process.withRuntimes {
      nextRuntime = Runtime.first
      nextRuntime?.takeUnretainedValue().previousRuntime = me
      Runtime.first = me
    }
  }

  @inline(never) @_optimize(size)
  func delist() {
    let isListed = Process.withRuntimes { () -> Bool in
      let isFirst = Runtime.first?.toOpaque() == Unmanaged.passUnretained(self).toOpaque()
      guard isFirst || previousRuntime != nil else { return false }
      if let previousRuntime {
        previousRuntime.takeUnretainedValue().nextRuntime = nextRuntime
      } else {
        Runtime.first = nextRuntime
      }
      nextRuntime?.takeUnretainedValue().previousRuntime = previousRuntime
      nextRuntime = nil
      previousRuntime = nil
      return true
    }
    if isListed { Unmanaged.passUnretained(self).release() }
  }

  @inline(never) @_optimize(size)
  static func all() -> [Runtime] {
    Process.withRuntimes {
      var found: [Runtime] = []
      var next = first
      while let runtime = next?.takeUnretainedValue() {
        found.append(runtime)
        next = runtime.nextRuntime
      }
      return found
    }
  }

  // MARK: In the parent

  /// How long the thread that waits for the driver to stop sleeps, in nanoseconds, before it looks at the role again.
  private static let look: UInt64 = 1_000_000

  /// Waits until the driver has stopped between two turns, or takes the role if no thread has it. False: the deadline
  /// came first.
  @inline(never) @_optimize(size)
  func holdStill(until deadline: UInt64) -> Bool {
    while true {
      lock.lock()
      var isStill = phase == .ended || stillness.load(ordering: .relaxed) == 2
      if !isStill, driver == .none {
        takeRole()
        isHeld = true
        isStill = true
        stillness.store(0, ordering: .sequentiallyConsistent)
      }
      let time = Runtime.monotonicNow()
      let isLate = time >= deadline
      if !isStill { stillness.store(isLate ? 0 : 1, ordering: .sequentiallyConsistent) }
      lock.unlock()
      if isStill || isLate { return isStill }
      ending.store(true, ordering: .sequentiallyConsistent)
      sendToLook()
      Futex.wait(stillness, while: 1, until: min(deadline, time + Runtime.look))
    }
  }

  /// On the driving thread, between two turns: waits until the process has forked.
  @inline(never) @_optimize(size)
  func standStill() {
    lock.lock()
    let isWanted = stillness.load(ordering: .relaxed) == 1
    if isWanted { stillness.store(2, ordering: .sequentiallyConsistent) }
    lock.unlock()
    guard isWanted else { return }
    Futex.wake(stillness, .max)
    while stillness.load(ordering: .sequentiallyConsistent) == 2 {
      Futex.wait(stillness, while: 2, until: nil)
    }
    refreshNow()
  }

  /// Lets the runtime go on, in the parent after a fork, or if the process does not fork after all.
  @inline(never) @_optimize(size)
  func goOn() {
    if isHeld {
      isHeld = false
      return leave()
    }
    lock.lock()
    stillness.store(0, ordering: .sequentiallyConsistent)
    lock.unlock()
    Futex.wake(stillness, .max)
  }

  // MARK: In the child

  /// Makes this runtime the child's. There is no other thread, and nobody has a lock. Nothing is told to anybody, as a
  /// callback might do anything: the first driver ends what has come from the parent. The caller makes all runtimes the
  /// child's before `goOnInChild` starts a thread for any of them.
  @inline(never) @_optimize(size)
  func becomeChild() {
    isHeld = false
    endDriving()
    driverThread.store(0, ordering: .relaxed)
    stillness.store(0, ordering: .relaxed)
    yieldWanted.store(false, ordering: .relaxed)
    let isOver = phase == .ended
    let hadThread = threadState == .joinable
    threadState = .none
    driver = .none
    turnover &+= 1
    crowd = 0
    ownWanted = false
    ownLooksAt = .max
    joiners = 0
    let parked = waiters
    waiters = []
    withExtendedLifetime(parked) {}
    if isOver {
      // Objects that the thread which took the runtime apart has not released yet are never released.
      ownExited.set()
      return endCell.set()
    }
    ownExited.reset()
    var calls = InheritedCalls()
    for hook in hooks { hook.becomeChild(&calls) }
    lookups.drop()
    poller.renew(host: options.mode == .host)
    let inherited = inbox.inherit(self, &calls)
    pending.store(UInt64(calls.all) * Runtime.call, ordering: .relaxed)
    background.store(calls.inBackground, ordering: .relaxed)
    let hasWork = calls.all > 0 || !inherited.isEmpty || phase != .running || !turnEnds.isEmpty
    ending.store(phase != .running || handles.load(ordering: .relaxed) == 0, ordering: .relaxed)
    _ = inbox.push(inherited)
    now = clock
    freeSince = now
    if hasLostDescriptors { descriptorsLost() }
    // From here on whoever brings work wakes the thread, which is started then, or the host program.
    asleep.store(1, ordering: .relaxed)
    if options.mode == .host {
      poller.setTimer(timers.earliest)
      ownWanted = true
    } else {
      lacksThread.store(true, ordering: .relaxed)
      ownWanted = hasWork || hasLostDescriptors || ending.load(ordering: .relaxed) || timers.earliest != nil
    }
    // The reference that the parent's thread had, which this process does not have.
    if hadThread { Unmanaged.passUnretained(self).release() }
  }

  /// Starts what `becomeChild` has left to do, once every runtime is the child's: a thread may run callbacks now, which
  /// may use any of them.
  @inline(never) @_optimize(size)
  func goOnInChild() {
    // A callback of another runtime, whose thread runs already, may have brought work.
    lock.lock()
    let hasWork = ownWanted
    ownWanted = false
    lock.unlock()
    if hasWork { wake() }
  }

  /// Ends what has come from the parent, on the driving thread, before anything of the child's own begins.
  @inline(never) @_optimize(size)
  func endInherited() {
    let known = hooks
    for hook in known { hook.endInherited() }
  }
}
