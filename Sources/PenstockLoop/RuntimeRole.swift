import CPenstockSystem
import PenstockWire
import Synchronization

/// A thread that waits in a blocking function and is parked while another thread drives.
final class Waiter: @unchecked Sendable {
  let cell: WaitCell
  /// The thread that waits. If the role of driver is given to it, it must drive, or pass the role on.
  let thread: UInt64
  let mayDrive: Bool

  init(_ cell: WaitCell, _ thread: UInt64, mayDrive: Bool) {
    self.cell = cell
    self.thread = thread
    self.mayDrive = mayDrive
  }
}

/// The threads around the role of the driver: `DriverRole` decides who drives, under `lock`; the functions here
/// carry out the decisions. A thread changes `role` under the lock, and wakes another one after it has left the
/// lock.
extension Runtime {
  /// The time in ns after which an interruptible wait returns even without a signal. A signal that comes just
  /// before the thread sleeps does not end the sleep, so the sleep is kept short.
  static let interruptibleSlice: UInt64 = 250_000_000
  /// The longest time in ns for which blocking functions may drive the loop without polling the descriptors.
  static let pollSlack: UInt64 = 1_000_000

  /// Blocks until `cell` is set, or until `deadline` (monotonic ns). The calling thread drives the loop while
  /// it waits, if no other thread drives and the options and `allowed` permit it. `.closed`: the runtime has
  /// ended, and `cell` was not set.
  public func wait(
    for cell: WaitCell, deadline: UInt64?, interruptible: Bool, mayDrive allowed: Bool = true
  ) -> WaitResult {
    if cell.isSet { return .ready }
    if Process.isForked(generation) { return .closed }
    if isDriving { return .wouldDeadlock }
    let mayDrive = allowed && (options.mode == .host || options.callerDrives)
    let terms = Terms(deadline, interruptible, at: clock)

    let thread = cs_thread_self()
    var waiter: Waiter?
    var stop: WaitResult?
    lock.lock()
    role.waitBegins()
    while true {
      switch seek(thread, waiter, mayDrive: mayDrive, isDone: stop != nil || cell.isSet) {
      case .drive:
        remove(waiter)
        takeRole(for: cell)
        lock.unlock()
        now = clock
        return drive(until: cell, terms, stop)
      case .done, .over:
        if cell.isSet { stop = .ready } else if role.holder == .over { stop = .closed }
        remove(waiter)
        lock.unlock()
        return stop ?? .closed
      case .park(let asks):
        if waiter == nil { waiter = park(thread, on: cell, mayDrive: mayDrive) }
        if asks {
          yieldWanted.store(true, ordering: .sequentiallyConsistent)
          wakeLocked()
        }
      }
      let seen = cell.word.load(ordering: .sequentiallyConsistent)
      lock.unlock()
      let woken = cell.park(seen, until: terms.limit)
      stop = cell.isSet ? .ready : terms.verdict(after: woken, at: clock)
      lock.lock()
    }
  }

  /// Asks whether the calling thread, `thread`, drives now or has to park. `waiter`: it has parked before. The
  /// caller holds `lock`.
  private func seek(_ thread: UInt64, _ waiter: Waiter?, mayDrive: Bool, isDone: Bool) -> DriverRole.Seek {
    role.seek(
      thread, mayDrive: mayDrive, isDone: isDone, newAmong: waiter == nil ? waiters.count + 1 : nil,
      background: background.load(ordering: .relaxed) != 0)
  }

  /// Adds the calling thread, `thread`, to the list of the threads that are parked. The caller holds `lock`.
  private func park(_ thread: UInt64, on cell: WaitCell, mayDrive: Bool) -> Waiter {
    let waiter = Waiter(cell, thread, mayDrive: mayDrive)
    waiters.append(waiter)
    return waiter
  }

  /// Starts the work of `item`, and waits for `cell`, which that work sets. The item has not been posted, and
  /// its owner keeps it. If the calling thread becomes the driver at once, it runs the item itself, after the
  /// items that were posted before. This saves 120 instructions and three atomic operations. `time`: the time
  /// that the caller has just read from the clock.
  public func wait(for cell: WaitCell, after item: InboxItem, at time: UInt64, interruptible: Bool)
    -> WaitResult
  {
    if options.mode == .host || options.callerDrives {
      lock.lock()
      if role.take(for: .item) {
        takeRole(for: cell)
        lock.unlock()
        // Another thread may have driven, and set `now` to a later time, since `time` was read.
        now = max(lastNow, time)
        if inbox.isEmpty { item.run() } else { _ = inbox.push(item) }
        return drive(until: cell, Terms(nil, interruptible, at: clock), nil)
      }
      lock.unlock()
    }
    post(item)
    return wait(for: cell, deadline: nil, interruptible: interruptible)
  }

  /// The times at which a wait ends even if its cell is not set: the deadline and, for an interruptible wait,
  /// the end of `interruptibleSlice`.
  struct Terms {
    let deadline: UInt64?
    let slice: UInt64?
    var limit: UInt64? {
      guard let slice else { return deadline }
      guard let deadline else { return slice }
      return min(slice, deadline)
    }

    init(_ deadline: UInt64?, _ interruptible: Bool, at now: @autoclosure () -> UInt64) {
      self.deadline = deadline
      slice = interruptible ? now() &+ Runtime.interruptibleSlice : nil
    }

    func verdict(at now: UInt64) -> WaitResult? {
      if let deadline, now >= deadline { return .timedOut }
      if let slice, now >= slice { return .interrupted }
      return nil
    }

    func verdict(after woken: Futex.Wake, at now: @autoclosure () -> UInt64) -> WaitResult? {
      switch woken {
      case .woken: return nil
      case .interrupted: return slice == nil ? nil : .interrupted
      case .timedOut: return verdict(at: now())
      }
    }
  }

  /// Makes the calling thread, to which `role` has just given the role, the driver. The caller holds `lock`.
  func takeRole() {
    beginDriving()
    asleep.store(0, ordering: .relaxed)
  }

  /// Makes the calling thread, to which `role` has just given the role, the driver while it waits for `cell`.
  private func takeRole(for cell: WaitCell) {
    takeRole()
    // A cell may hold a reference to the runtime that its waiter drives. `endCell` must hold none, because
    // the runtime owns `endCell`.
    let isOwn = ObjectIdentifier(cell) == ObjectIdentifier(endCell)
    cell.beginDriving(isOwn ? nil : .passUnretained(self))
    // This thread sees the events itself, so the outer descriptor, which the host program polls, need not
    // become readable.
    poller.attach(false)
  }

  /// Drives the loop until `cell` is set. `stop`: a result to return without driving; nil: none. The caller
  /// has set `now`.
  private func drive(until cell: WaitCell, _ terms: Terms, _ stop: WaitResult?) -> WaitResult {
    var result = stop
    while result == nil {
      settle()
      if cell.isSet {
        result = .ready
      } else if endIfDone() {
        cell.endDriving()
        return cell.isSet ? .ready : .closed
      } else if let verdict = terms.verdict(at: now) {
        result = verdict
      } else if !turn(until: terms.limit, cell: cell), terms.slice != nil {
        result = .interrupted
      }
    }
    cell.endDriving()
    // A wait whose cell is set at once does not poll the descriptors. After `pollSlack` without a poll this
    // thread polls them, so that many such waits in a row can't starve the descriptors.
    if now &- polledAt > Runtime.pollSlack { _ = turn(until: now, cell: nil) }
    leave()
    return result ?? .ready
  }

  /// Ends the calling thread's role of driver. Gives the role to a parked waiter, or frees it. The constant
  /// `next` keeps the waiter's cell alive until the waiter is woken.
  public func leave() {
    if endIfDone(abandoned: true) { return }
    lock.lock()
    endDriving()
    let next = role.mayGive ? nextWaiter() : nil
    let then = role.leave(to: next?.thread, at: now, hurries: next == nil && hurries, timer: timers.earliest)
    if then == .tellHost { tellHost() }
    lock.unlock()
    switch then {
    case .wakeNext: next?.cell.wakeToLook()
    case .wakeOwn: wakeOwn()
    case .tellHost, .nothing: break
    }
  }

  /// Whether there is work that does not wait for the linger. The caller holds `lock`.
  private var hurries: Bool {
    phase != .running || hasLeftovers || background.load(ordering: .sequentiallyConsistent) > 0
      || ending.load(ordering: .sequentiallyConsistent)
  }

  /// Host mode: no thread drives from now on, until the host program finds the outer descriptor readable. The
  /// caller holds `lock`.
  private func tellHost() {
    poller.attach(true)
    poller.setTimer(timers.earliest)
    // From here on the host program may sleep in a poll of the outer descriptor, so a thread that posts has
    // to signal the wake descriptor.
    asleep.store(1, ordering: .sequentiallyConsistent)
    poller.takeKick()
    // If the poller's descriptors are lost, its timer is lost too, and would not wake the host program. So
    // the outer descriptor becomes readable now.
    if hasLeftovers || hasLostDescriptors { wakeLocked() }
  }

  /// Removes from the list and returns the first waiter that may drive and whose cell is not set; nil: there
  /// is no such waiter. The caller holds `lock`.
  private func nextWaiter() -> Waiter? {
    var i = 0
    while i < waiters.count {
      let waiter = waiters[i]
      if waiter.mayDrive && !waiter.cell.isSet {
        waiters.drop(waiter)
        return waiter
      }
      i += 1
    }
    return nil
  }

  /// Removes a waiter from the list. The caller holds `lock`, and a reference to the waiter.
  private func remove(_ waiter: Waiter?) {
    if let waiter { waiters.drop(waiter) }
  }

  /// If no thread drives, makes the calling thread the driver for a moment and runs `body`, which calls no
  /// user code. False: `body` was not run, because another thread drives or the runtime has ended.
  public func inspect(_ body: () -> Void) -> Bool {
    lock.lock()
    guard role.take(for: .inspection) else {
      lock.unlock()
      return false
    }
    takeRole()
    lock.unlock()
    body()
    leave()
    return true
  }

  // MARK: The own thread

  /// Starts the runtime's own thread. Returns nil, or errno.
  public func startThread() -> Int32? {
    var id: UInt64 = 0
    lock.lock()
    threadState = .joinable
    let failure = OwnThread.start(self, &id, detached: false) { argument in
      guard let argument else { return nil }
      let me = Unmanaged<Runtime>.fromOpaque(argument)
      me.takeUnretainedValue().ownMain()
      me.release()
      return nil
    }
    thread = id
    var next: Waiter?
    if failure == 0 {
      role.ownStarts(at: clock)
    } else {
      threadState = .none
      // From now on each post calls `wakeOwn`, which tries again. Until the lock is released no other thread can
      // take the role and leave it to an own thread that does not exist.
      lacksThread.store(true, ordering: .relaxed)
      asleep.store(1, ordering: .sequentiallyConsistent)
      next = role.isFree ? nextWaiter() : nil
      role.ownFails(to: next?.thread)
    }
    lock.unlock()
    next?.cell.wakeToLook()
    return failure == 0 ? nil : -failure
  }

  private func ownMain() {
    cs_thread_name("penstock")
    loop: while true {
      lock.lock()
      switch role.look(at: clock, timer: role.isFree ? timers.earliest : nil) {
      case .drive:
        beginDriving()
        lock.unlock()
        driveAsOwn()
      case .sleep(let until):
        let seen = ownWord.load(ordering: .sequentiallyConsistent)
        lock.unlock()
        Futex.wait(ownWord, while: seen, until: until)
      case .exit:
        break loop
      }
    }
    // Only a thread in `shutdown` joins the runtime's own thread. If no thread is in `shutdown`, the own
    // thread detaches itself.
    if joiners == 0 {
      threadState = .detached
      cs_thread_detach(cs_thread_self())
    }
    ownExited.set()
    lock.unlock()
  }

  private func driveAsOwn() {
    now = clock
    while true {
      settle()
      if endIfDone() { return }
      if yieldWanted.load(ordering: .sequentiallyConsistent), handOver() { return }
      _ = turn(until: nil, cell: nil)
    }
  }

  /// Called by the runtime's own thread: gives the role of driver to a waiter that may drive. False: no such
  /// waiter exists, or there is a crowd.
  private func handOver() -> Bool {
    lock.lock()
    yieldWanted.store(false, ordering: .sequentiallyConsistent)
    let next = role.mayGive ? nextWaiter() : nil
    let isGiven = role.handOver(to: next?.thread)
    if isGiven { endDriving() }
    lock.unlock()
    next?.cell.wakeToLook()
    return isGiven
  }

  // MARK: Host mode

  /// Host mode: runs one turn of the loop. The turn waits up to `timeoutMilliseconds` (negative: until there
  /// is work) and does the work that is ready. `.timedOut`: another thread drove during the whole timeout.
  public func poll(timeoutMilliseconds: Int64) -> PollResult {
    if options.mode != .host { return .notHost }
    if Process.isForked(generation) { return .closed }
    if isDriving { return .busy }
    let deadline = Runtime.deadline(after: timeoutMilliseconds, from: clock)

    let thread = cs_thread_self()
    var waiter: Waiter?
    var stop: PollResult?
    lock.lock()
    loop: while true {
      switch seek(thread, waiter, mayDrive: true, isDone: stop != nil) {
      case .drive:
        break loop
      case .done, .over:
        let isOver = role.holder == .over
        remove(waiter)
        lock.unlock()
        return isOver ? .closed : stop ?? .closed
      case .park:
        if timeoutMilliseconds == 0 {
          lock.unlock()
          return .busy
        }
        let parked = waiter ?? park(thread, on: WaitCell(), mayDrive: true)
        waiter = parked
        let seen = parked.cell.word.load(ordering: .sequentiallyConsistent)
        lock.unlock()
        switch parked.cell.park(seen, until: deadline) {
        case .woken: break
        case .interrupted: stop = .interrupted
        case .timedOut: stop = .timedOut
        }
        lock.lock()
      }
    }
    remove(waiter)
    takeRole()
    lock.unlock()
    if let stop {
      leave()
      return stop
    }
    return pollAsDriver(deadline)
  }

  private func pollAsDriver(_ deadline: UInt64?) -> PollResult {
    now = clock
    let before = work
    settle()
    if endIfDone() { return .closed }
    while true {
      // If `settle` has already done work, this turn does not sleep.
      let calm = turn(until: work == before ? deadline : now, cell: nil)
      settle()
      if endIfDone() { return .closed }
      if !calm {
        leave()
        return .interrupted
      }
      if work != before { break }
      if let deadline, now >= deadline { break }
    }
    leave()
    return .ok
  }

  /// The time (monotonic ns) that is `milliseconds` after `now`. nil, which means no limit, if `milliseconds`
  /// is negative or the sum would overflow.
  public static func deadline(after milliseconds: Int64, from now: UInt64) -> UInt64? {
    guard milliseconds >= 0 else { return nil }
    let (span, overflow) = UInt64(milliseconds).multipliedReportingOverflow(by: 1_000_000)
    if overflow { return nil }
    let (at, past) = now.addingReportingOverflow(span)
    return past || at == .max ? nil : at
  }
}
