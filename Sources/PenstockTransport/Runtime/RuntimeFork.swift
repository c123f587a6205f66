import CSystem
import Synchronization

/// The functions of a runtime that `Fork` uses when the process forks.
extension Runtime {
  // MARK: The list of this process's runtimes

  private static var first: Unmanaged<Runtime>? {
    get { UnsafeRawPointer(bitPattern: Process.slot(Process.runtimesSlot).pointee).map { .fromOpaque($0) } }
    set { Process.slot(Process.runtimesSlot).pointee = newValue.map { UInt(bitPattern: $0.toOpaque()) } ?? 0 }
  }

  /// Adds the runtime to the list of this process's runtimes, which keeps it until it has ended.
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

  /// Makes this runtime the child's. No other thread exists, and no lock is held. No callback runs here,
  /// because it might do anything: the first driver ends the work that was inherited from the parent
  /// (`endInherited`). The caller makes all runtimes the child's before `goOnInChild` starts a thread for any
  /// of them.
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
      // A thread of the parent took the runtime apart. It does not exist here, so the objects that it had not
      // released yet are never released.
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
    // From here on a post wakes the host program, or the own thread, which is started at that time.
    asleep.store(1, ordering: .relaxed)
    if options.mode == .host {
      poller.setTimer(timers.earliest)
      ownWanted = true
    } else {
      lacksThread.store(true, ordering: .relaxed)
      ownWanted = hasWork || hasLostDescriptors || ending.load(ordering: .relaxed) || timers.earliest != nil
    }
    // Releases the reference that belongs to the own thread of the parent, which does not exist in this
    // process.
    if hadThread { Unmanaged.passUnretained(self).release() }
  }

  /// Starts the work that `becomeChild` has left. Called when every runtime is the child's, because a thread
  /// may now run callbacks, which may use any runtime.
  @inline(never) @_optimize(size)
  func goOnInChild() {
    // The lock is needed: another runtime's thread may run already, and a callback on it may post work to
    // this runtime.
    lock.lock()
    let hasWork = ownWanted
    ownWanted = false
    lock.unlock()
    if hasWork { wake() }
  }

  /// Ends the work that was inherited from the parent. Called on the driving thread, before it runs any item
  /// of the child.
  @inline(never) @_optimize(size)
  func endInherited() {
    let known = hooks
    for hook in known { hook.endInherited() }
  }
}
