import CPenstockSystem
import Synchronization

/// The end of a runtime. A runtime ends by itself when the last user handle was released and the last call
/// has ended, or by `shutdown`. The thread that drives at that moment releases the runtime's objects
/// (`takeApart`); the runtime's own thread then exits.
extension Runtime {
  /// Returns the default runtime, with a handle for the caller. The runtime is made at the first use, and
  /// made again after it was shut down or has ended.
  public static func shared() -> Made {
    var old: Unmanaged<Runtime>?
    let made = Process.withLock { () -> Made in
      let slot = Process.slot(Process.defaultRuntimeSlot)
      if let raw = UnsafeRawPointer(bitPattern: slot.pointee) {
        let known = Unmanaged<Runtime>.fromOpaque(raw)
        let runtime = known.takeUnretainedValue()
        if runtime.retainIfRunning() { return .made(runtime) }
        old = known
        slot.pointee = 0
      }
      let fresh = make(Options())
      if case .made(let runtime) = fresh {
        slot.pointee = UInt(bitPattern: Unmanaged.passRetained(runtime).toOpaque())
      }
      return fresh
    }
    old?.release()
    return made
  }

  private func retainIfRunning() -> Bool {
    lock.lock()
    defer { lock.unlock() }
    guard phase == .running else { return false }
    handles.add(1, ordering: .relaxed)
    return true
  }

  /// If this is the default runtime, empties its slot in the process's page, and releases the slot's
  /// reference.
  private func forgetShared() {
    let me = Unmanaged.passUnretained(self)
    let mine = Process.withLock { () -> Bool in
      let slot = Process.slot(Process.defaultRuntimeSlot)
      guard slot.pointee == UInt(bitPattern: me.toOpaque()) else { return false }
      slot.pointee = 0
      return true
    }
    if mine { me.release() }
  }

  // MARK: Handles, calls, pending work

  public func retainHandle() { handles.add(1, ordering: .relaxed) }

  /// Releases a user's handle. Never blocks. In a forked child the release of the last handle closes the
  /// child's descriptors and touches nothing else.
  public func releaseHandle() {
    guard handles.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 else { return }
    if Process.isForked(generation) {
      poller.close()
      poller.closeOuter()
      return
    }
    if !hasCalls { requestEnd() }
  }

  /// The amount that one call adds to `pending`: 1 in each half.
  public static let call: UInt64 = 1 << 32 | 1

  /// Counts a call. Until `endCall` the call keeps the runtime from ending by itself, and a shutdown waits
  /// for it.
  public func beginCall() { pending.wrappingAdd(Runtime.call, ordering: .relaxed) }

  public func endCall() {
    let left = pending.wrappingSubtract(Runtime.call, ordering: .sequentiallyConsistent).newValue
    pendingEnded(left)
    if left >> 32 == 0, handles.load(ordering: .sequentiallyConsistent) == 0, !Process.isForked(generation) {
      requestEnd()
    }
  }

  /// Counts work other than a call, such as a lookup or a running user function. A shutdown waits for it
  /// until `endPending`.
  public func beginPending() { pending.wrappingAdd(1, ordering: .relaxed) }

  public func endPending() {
    pendingEnded(pending.wrappingSubtract(1, ordering: .sequentiallyConsistent).newValue)
  }

  private func pendingEnded(_ left: UInt64) {
    if UInt32(truncatingIfNeeded: left) == 0, ending.load(ordering: .sequentiallyConsistent) { sendToLook() }
  }

  private var hasCalls: Bool { pending.load(ordering: .sequentiallyConsistent) >> 32 != 0 }
  var hasPending: Bool { UInt32(truncatingIfNeeded: pending.load(ordering: .sequentiallyConsistent)) != 0 }

  private func requestEnd() {
    ending.store(true, ordering: .sequentiallyConsistent)
    if isDriving { return }
    if options.mode == .host {
      // The last handle was released, so no thread polls. This thread ends the runtime, unless another thread
      // drives it now.
      lock.lock()
      let free = role.isFree && phase == .running && isAbandoned
      if free { markEnded() }
      lock.unlock()
      if free {
        takeApart()
        return
      }
    }
    sendToLook()
  }

  /// Makes the driver check whether the runtime has to end or to stand still for a fork. If no thread drives,
  /// wakes the runtime's own thread, which then drives and checks.
  func sendToLook() {
    lock.lock()
    let call = role.call()
    if call == .wakeLoop { wakeLocked() }
    lock.unlock()
    if call == .wakeOwn { wakeOwn() }
  }

  private var isAbandoned: Bool {
    handles.load(ordering: .sequentiallyConsistent) == 0 && !hasCalls
  }

  // MARK: The end

  /// Whether `endIfDone` might have something to do. If so, the driver must call it before it sleeps.
  var mayEnd: Bool {
    isAbandoned || !hooks.isEmpty || !hasPending || stillness.load(ordering: .relaxed) != 0
  }

  /// Called on the driving thread between turns. Runs the hooks of a shutdown, and ends the runtime when no
  /// work is left. True: the runtime has ended, and the calling thread does not drive any more.
  ///
  /// `abandoned`: the caller is about to stop driving. If a host-driven runtime then has neither a handle nor
  /// a call, no thread will poll it again, so the items that are still queued are dropped.
  func endIfDone(abandoned: Bool = false) -> Bool {
    if !ending.load(ordering: .sequentiallyConsistent) { return false }
    if stillness.load(ordering: .sequentiallyConsistent) != 0 { standStill() }
    lock.lock()
    let isShutdown = phase == .shuttingDown
    lock.unlock()
    while isShutdown && !hooks.isEmpty {
      let due = hooks
      hooks = []
      for hook in due { hook.runtimeShutdown(closing) }
      // The items that the hooks have posted run now, because after a shutdown with a timeout of 0 no thread
      // may run a further turn.
      settle()
    }
    let last = abandoned && options.mode == .host
    if hasLeftovers && !(last && isAbandoned) { return false }

    lock.lock()
    let done = isAbandoned || (phase == .shuttingDown && !hasPending)
    // `isAbandoned` is checked under the lock, because `shared` gives a handle to another thread under the
    // same lock.
    if !done {
      if phase == .running { ending.store(false, ordering: .sequentiallyConsistent) }
      // Another thread may have released the last handle and set `ending` to true just before the store
      // above. The store has overwritten that value, so `isAbandoned` is checked again.
      let again = isAbandoned
      if again { ending.store(true, ordering: .sequentiallyConsistent) }
      lock.unlock()
      return false
    }
    markEnded()
    lock.unlock()
    takeApart()
    return true
  }

  /// Marks the runtime as ended, so that no thread drives it again. The caller holds `lock`.
  private func markEnded() {
    phase = .ended
    role.end()
    endDriving()
    DrivingThread.over(self)
    ended.store(true, ordering: .sequentiallyConsistent)
  }

  /// Releases all that the runtime holds. Called after `markEnded`, on the same thread. No lock is held,
  /// because a release may run user code, which then finds that the runtime has ended.
  private func takeApart() {
    dropInbox()
    spent = nil
    while timers.popAny() != nil {}
    while poller.unwatchAny() != nil {}
    while !turnEnds.isEmpty { turnEnds.removeLast().dropped() }
    // The list is emptied before its objects are released, because user code that runs during a release may use
    // the list again.
    let oldHooks = hooks
    hooks = []
    lookups.drop()
    // From here on no thread calls `kick`: `wake` checks `phase` under the lock first.
    poller.close()
    if handles.load(ordering: .sequentiallyConsistent) == 0 { poller.closeOuter() }
    forgetShared()
    delist()

    lock.lock()
    let parked = waiters
    waiters = []
    lock.unlock()
    endCell.set()
    for waiter in parked { waiter.cell.wakeToLook() }
    wakeOwn()
    withExtendedLifetime(oldHooks) {}
  }

  // MARK: Shutdown

  /// The reason why the runtime ends the calls under way. Valid once `closed` is set.
  public var closing: Closing { hasLostDescriptors ? .descriptorsLost : .shutDown }

  /// Whether the loop's descriptors are lost: see `Poller.isLost`.
  public var hasLostDescriptors: Bool { poller.isLost.load(ordering: .relaxed) }

  /// Called when the driver finds that a descriptor of the loop is closed, or that the descriptor's number
  /// belongs to another file. The loop can't wait for events any more, so the runtime shuts down.
  public func descriptorsLost() {
    closed.store(true, ordering: .releasing)
    lock.lock()
    // The lock is held, because other threads use the poller's wake descriptor under it.
    poller.forget()
    if phase == .running { phase = .shuttingDown }
    lock.unlock()
    ending.store(true, ordering: .sequentiallyConsistent)
  }

  /// Registers a hook, which is called once at shutdown, unless it is removed before. Called on the driving
  /// thread.
  public func onShutdown(_ hook: any ShutdownHook) { hooks.append(hook) }

  public func removeShutdownHook(_ hook: any ShutdownHook) {
    var i = 0
    while i < hooks.count {
      if hooks[i] === hook {
        _ = hooks.remove(at: i)
        return
      }
      i += 1
    }
  }

  /// Runs the shutdown hooks, waits until no work is pending, ends the runtime and joins its own thread.
  /// `.timedOut`: the runtime has not ended yet. It will end when all pending work has ended, and `shutdown`
  /// may be called again. A negative timeout means without limit. `meanwhile` runs on the calling thread
  /// after the shutdown has begun and before the wait.
  public func shutdown(timeoutMilliseconds: Int64, meanwhile: () -> Void = {}) -> ShutdownResult {
    if Process.isForked(generation) { return .already }
    if isDriving { return .wouldDeadlock }
    let deadline = Runtime.deadline(after: timeoutMilliseconds, from: clock)

    lock.lock()
    if phase == .ended && threadState != .joinable {
      lock.unlock()
      meanwhile()
      return .already
    }
    if phase == .running { phase = .shuttingDown }
    joiners += 1
    lock.unlock()
    ending.store(true, ordering: .sequentiallyConsistent)
    sendToLook()
    meanwhile()

    var result = ShutdownResult.ok
    switch wait(for: endCell, deadline: deadline, interruptible: false) {
    case .ready, .interrupted: break
    // The runtime has ended, but another thread still releases its objects. That thread then sets `endCell`.
    case .closed: if !parkOnly(endCell, deadline) { result = .timedOut }
    case .timedOut: result = .timedOut
    case .wouldDeadlock: result = .wouldDeadlock
    }
    if result == .ok, options.mode == .thread, !parkOnly(ownExited, deadline) { result = .timedOut }

    lock.lock()
    joiners -= 1
    let joins = threadState == .joinable && ownExited.isSet && joiners == 0
    if joins { threadState = .joined }
    lock.unlock()
    // The runtime's own thread has already set `ownExited`, as its last step, so the join takes a short time.
    if joins { cs_thread_join(thread) }
    return result
  }

  private func parkOnly(_ cell: WaitCell, _ deadline: UInt64?) -> Bool {
    while !cell.isSet {
      let seen = cell.word.load(ordering: .sequentiallyConsistent)
      if cell.park(seen, until: deadline) == .timedOut { return cell.isSet }
    }
    return true
  }
}
