import CPenstockSystem
import Synchronization

/// The functions of a runtime that `Fork` uses when the process forks.
extension Runtime {
  // MARK: The list of this process's runtimes

  private static var first: Unmanaged<Runtime>? {
    get { UnsafeRawPointer(bitPattern: Process.slot(Process.runtimesSlot).pointee).map { .fromOpaque($0) } }
    set { Process.slot(Process.runtimesSlot).pointee = newValue.map { UInt(bitPattern: $0.toOpaque()) } ?? 0 }
  }

  /// Adds the runtime to the list of this process's runtimes. The list holds a reference until the runtime
  /// has ended.
  func enlist() {
    let me = Unmanaged.passRetained(self)
    Process.withRuntimes {
      nextRuntime = Runtime.first
      nextRuntime?.takeUnretainedValue().previousRuntime = me
      Runtime.first = me
    }
  }

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

  public static func all() -> [Runtime] {
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

  /// The time in ns after which `holdStill`, which waits for the driver to stop, checks again whether any
  /// thread drives.
  private static let look: UInt64 = 1_000_000

  /// Waits until the driver has stopped between two turns. If no thread drives, the calling thread becomes
  /// the driver. False: the driver had not stopped at the deadline.
  func holdStill(until deadline: UInt64) -> Bool {
    while true {
      lock.lock()
      var isStill = phase == .ended || stillness.load(ordering: .relaxed) == 2
      if !isStill, role.take(for: .fork) {
        takeRole()
        isStill = true
        stillness.store(0, ordering: .sequentiallyConsistent)
      }
      let time = Platform.systemClock()
      let isLate = time >= deadline
      if !isStill { stillness.store(isLate ? 0 : 1, ordering: .sequentiallyConsistent) }
      lock.unlock()
      if isStill || isLate { return isStill }
      ending.store(true, ordering: .sequentiallyConsistent)
      sendToLook()
      Futex.wait(stillness, while: 1, until: min(deadline, time + Runtime.look))
    }
  }

  /// Called on the driving thread between two turns: if a fork is being prepared, waits until the process has
  /// forked.
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

  /// Lets the driver continue. Called in the parent after a fork, or if the preparation of the fork has
  /// failed.
  public func goOn() {
    lock.lock()
    if role.holder == .held {
      lock.unlock()
      return leave()
    }
    stillness.store(0, ordering: .sequentiallyConsistent)
    lock.unlock()
    Futex.wake(stillness, .max)
  }

  // MARK: In the child

  /// Prepares this runtime for use in the child. No other thread exists, and no lock is held. This function
  /// calls no callback, because a callback might use a runtime that is not prepared yet. Instead, the first
  /// thread that drives ends the work that was inherited from the parent (`endInherited`). The caller
  /// prepares all runtimes before `goOnInChild` starts a thread for any of them.
  public func becomeChild() {
    endDriving()
    driverThread.store(0, ordering: .relaxed)
    stillness.store(0, ordering: .relaxed)
    yieldWanted.store(false, ordering: .relaxed)
    let isOver = phase == .ended
    let hadThread = threadState == .joinable
    threadState = .none
    role.inherit(at: clock, wanted: false)
    joiners = 0
    let parked = waiters
    waiters = []
    withExtendedLifetime(parked) {}
    if isOver {
      // A thread of the parent was releasing the runtime's objects (`takeApart`). That thread does not exist
      // in the child, so the remaining objects are never released.
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
    if hasLostDescriptors { descriptorsLost() }
    // From here on, posting an item wakes the host program, or the runtime's own thread, which is started
    // then.
    asleep.store(1, ordering: .relaxed)
    if options.mode == .host {
      poller.setTimer(timers.earliest)
      role.inherit(at: now, wanted: true)
    } else {
      lacksThread.store(true, ordering: .relaxed)
      role.inherit(
        at: now,
        wanted: hasWork || hasLostDescriptors || ending.load(ordering: .relaxed) || timers.earliest != nil)
    }
    // Releases the reference to this runtime that its own thread held in the parent. That thread does not
    // exist in this process.
    if hadThread { Unmanaged.passUnretained(self).release() }
  }

  /// Wakes a thread for the work that `becomeChild` has left. Called when `becomeChild` has run for every
  /// runtime: the woken thread may run callbacks, and they may use any runtime.
  func goOnInChild() {
    // The lock is needed, because another runtime's thread may already run a callback that posts work to this
    // runtime.
    lock.lock()
    let hasWork = role.resume()
    lock.unlock()
    if hasWork { wake() }
  }

  /// Ends the work that was inherited from the parent. Called on the driving thread, before any item that was
  /// posted in the child.
  public func endInherited() {
    let known = hooks
    for hook in known { hook.endInherited() }
  }
}
