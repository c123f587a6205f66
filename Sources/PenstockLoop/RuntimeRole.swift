import CSystem
import PenstockWire
import Synchronization

/// A thread that waits in a blocking function and is parked while another thread drives.
final class Waiter: @unchecked Sendable {
  let cell: WaitCell
  let mayDrive: Bool
  /// Whether another thread has given the role of driver to this waiter. The waiter's thread must then drive,
  /// or pass the role on. Under the runtime's lock.
  var isDriver = false

  init(_ cell: WaitCell, mayDrive: Bool) {
    self.cell = cell
    self.mayDrive = mayDrive
  }
}

/// The role of the driver, that is, of the thread that runs the event loop.
///
/// A thread that waits in a blocking function takes the role if the role is free. If the runtime's own thread
/// has the role, the waiter asks for it. If another waiter has it, the thread parks, and is woken when its
/// cell is set or when it gets the role. A driver that leaves gives the role to a parked waiter, or frees the
/// role if no waiter is parked. In thread mode the own thread then takes the free role: at once if there is
/// work that no caller waits for, otherwise when the role has been free for the linger
/// (`lingerMicroseconds`).
///
/// A tight loop of blocking calls must not wake the own thread in each call. So the own thread sleeps for a
/// time and then checks by itself whether the role is free. When one driver keeps the role for long, the own
/// thread sleeps without a limit, and that driver wakes it when it leaves. A driver that leaves also wakes
/// the own thread if a timer is due before the own thread's next check.
///
/// A waiter that was woken only to drive goes on waiting, because its call has not ended. When it then sleeps
/// in the loop, other threads have to wake it to send their next calls. So if many threads wait at once (a
/// crowd), the own thread gets the role and keeps it. The end of a call then seldom wakes any thread except
/// the one that waits for the call.
///
/// A thread parks only if another thread drives, or if the own thread will take the role. The own thread
/// takes it because it was told to (`ownWanted`) and woken, or because it checks the role by itself after the
/// linger. A thread that leaves the role while others wait gives it to a waiter or to the own thread.
extension Runtime {
  /// The time in ns after which an interruptible wait returns even without a signal. A signal that comes just
  /// before the thread sleeps does not end the sleep, so the sleep is kept short.
  static let interruptibleSlice: UInt64 = 250_000_000
  /// The longest time for which the runtime's own thread sleeps while blocking calls drive the loop in turns,
  /// in units of the linger. With 16 the own thread wakes about once in a hundred calls. With a larger
  /// number, the last send or cancel of a thread that does not wait may be delayed for longer.
  static let longestLook: UInt64 = 16
  /// A crowd is a time when many threads wait in blocking functions. It begins when `crowdSize` threads are
  /// parked. It ends when `crowdLasts` waits have begun while fewer threads were parked.
  static let crowdSize = 4
  static let crowdLasts: UInt32 = 64
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

    var waiter: Waiter?
    var stop: WaitResult?
    lock.lock()
    if crowd != 0 { crowd -= 1 }
    while true {
      if let waiter, waiter.isDriver {
        takeRole(for: cell)
        lock.unlock()
        now = clock
        return drive(until: cell, terms, stop)
      }
      if cell.isSet { stop = .ready } else if phase == .ended { stop = .closed }
      if let stop {
        remove(waiter)
        lock.unlock()
        return stop
      }
      if driver == .none && mayDrive && !(ownWanted && crowd != 0) {
        remove(waiter)
        takeRole(for: cell)
        lock.unlock()
        now = clock
        return drive(until: cell, terms, nil)
      }
      let parked = waiter ?? Waiter(cell, mayDrive: mayDrive)
      if waiter == nil {
        waiters.append(parked)
        waiter = parked
        if waiters.count >= Runtime.crowdSize && options.mode == .thread { crowd = Runtime.crowdLasts }
      }
      // This thread asks the runtime's own thread for the role of driver. It does not ask during a crowd or
      // while there is background work, because the own thread would then take the role back at once.
      if driver == .own && mayDrive && crowd == 0 && background.load(ordering: .relaxed) == 0 {
        yieldWanted.store(true, ordering: .sequentiallyConsistent)
        wakeLocked()
      }
      let seen = cell.word.load(ordering: .sequentiallyConsistent)
      lock.unlock()
      let woken = cell.park(seen, until: terms.limit)
      stop = cell.isSet ? .ready : terms.verdict(after: woken)
      lock.lock()
    }
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
      if driver == .none, phase != .ended, crowd == 0 {
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

    func verdict(after woken: Futex.Wake) -> WaitResult? {
      switch woken {
      case .woken: return nil
      case .interrupted: return slice == nil ? nil : .interrupted
      case .timedOut: return verdict(at: Runtime.monotonicNow())
      }
    }
  }

  /// Makes the calling thread the driver. The caller holds `lock`. No thread drives, or the role was given to
  /// the calling thread.
  func takeRole() {
    driver = .caller
    turnover &+= 1
    ownWanted = false
    beginDriving()
    asleep.store(0, ordering: .relaxed)
  }

  /// Makes the calling thread the driver while it waits for `cell`.
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

  /// Ends the calling thread's role of driver. Gives the role to a parked waiter. If no waiter is parked, or
  /// there is a crowd, frees the role. The constant `next` keeps the waiter's cell alive until the waiter is
  /// woken.
  public func leave() {
    if endIfDone(abandoned: true) { return }
    lock.lock()
    endDriving()
    if crowd == 0, let next = nextWaiter() {
      turnover &+= 1
      next.isDriver = true
      lock.unlock()
      next.cell.wakeToLook()
      return
    }
    driver = .none
    turnover &+= 1
    freeSince = now
    if options.mode == .host {
      poller.attach(true)
      poller.setTimer(timers.earliest)
      // From here on the host program may sleep in a poll of the outer descriptor, so a thread that posts has
      // to signal the wake descriptor.
      asleep.store(1, ordering: .sequentiallyConsistent)
      poller.takeKick()
      // If the poller's descriptors are lost, its timer is lost too, and would not wake the host program. So
      // the outer descriptor becomes readable now.
      if hasLeftovers || hasLostDescriptors { wakeLocked() }
      lock.unlock()
      return
    }
    let now =
      crowd != 0 || options.lingerMicroseconds == 0 || phase != .running || hasLeftovers
      || background.load(ordering: .sequentiallyConsistent) > 0
      || ending.load(ordering: .sequentiallyConsistent)
    if now { ownWanted = true }
    let wakes = now || ownLooksAt == .max || timers.earliest ?? .max < ownLooksAt
    if wakes { ownLooksAt = 0 }
    lock.unlock()
    if wakes { wakeOwn() }
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
    guard driver == .none, phase != .ended else {
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
    threadState = .joinable
    var id: pthread_t = 0
    lock.lock()
    // `freeSince` is now, as if a driver had just left. So the runtime's own thread waits for the linger
    // before it drives. A program that begins with a blocking call then drives the loop itself, and wakes no
    // thread.
    freeSince = clock
    let failure = OwnThread.start(self, &id, detached: false) { argument in
      guard let argument else { return nil }
      let me = Unmanaged<Runtime>.fromOpaque(argument)
      me.takeUnretainedValue().ownMain()
      me.release()
      return nil
    }
    thread = id
    if failure != 0 { threadState = .none }
    lock.unlock()
    return failure == 0 ? nil : -failure
  }

  private func ownMain() {
    cs_thread_name("penstock")
    let linger = UInt64(options.lingerMicroseconds) * 1000
    let shortest = max(linger, 50_000)
    var look = shortest
    var seenTurnover: UInt32 = 0
    var looks = 0
    while true {
      lock.lock()
      if phase == .ended { break }
      let time = clock
      // If no thread drives and a timer is due, the runtime's own thread drives at once, and does not wait
      // for the linger.
      let due = driver == .none ? timers.earliest ?? .max : .max
      if driver == .none && (ownWanted || time >= freeSince &+ linger || time >= due) {
        driver = .own
        turnover &+= 1
        ownWanted = false
        ownLooksAt = 0
        beginDriving()
        lock.unlock()
        driveAsOwn()
        look = shortest
        continue
      }
      // While blocking calls follow one another, the runtime's own thread doubles its sleep between two
      // checks of whether any thread drives. Checks after each linger would take processor time from the
      // calls.
      let isBusy = turnover != seenTurnover
      seenTurnover = turnover
      look = isBusy ? min(look * 2, shortest * Runtime.longestLook) : shortest
      looks = isBusy || driver == .none ? 0 : looks + 1
      var until: UInt64? = time &+ look
      if driver == .none {
        until = min(due, max(freeSince &+ linger, isBusy ? time &+ look : 0))
      } else if looks >= 20 || linger == 0 {
        until = nil
      }
      ownLooksAt = until ?? .max
      let seen = ownWord.load(ordering: .sequentiallyConsistent)
      lock.unlock()
      Futex.wait(ownWord, while: seen, until: until)
    }
    // Only a thread in `shutdown` joins the runtime's own thread. If no thread is in `shutdown`, the own
    // thread detaches itself.
    if joiners == 0 {
      threadState = .detached
      pthread_detach(pthread_self())
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
    guard crowd == 0, let next = nextWaiter() else {
      lock.unlock()
      return false
    }
    endDriving()
    driver = .caller
    turnover &+= 1
    next.isDriver = true
    lock.unlock()
    next.cell.wakeToLook()
    return true
  }

  // MARK: Host mode

  /// Host mode: runs one turn of the loop. The turn waits up to `timeoutMilliseconds` (negative: until there
  /// is work) and does the work that is ready. `.timedOut`: another thread drove during the whole timeout.
  public func poll(timeoutMilliseconds: Int64) -> PollResult {
    if options.mode != .host { return .notHost }
    if Process.isForked(generation) { return .closed }
    if isDriving { return .busy }
    let deadline = Runtime.deadline(after: timeoutMilliseconds, from: clock)

    var waiter: Waiter?
    var stop: PollResult?
    lock.lock()
    while true {
      if let waiter, waiter.isDriver { break }
      if phase == .ended { stop = .closed }
      if driver == .none || stop != nil {
        remove(waiter)
        break
      }
      if timeoutMilliseconds == 0 {
        lock.unlock()
        return .busy
      }
      let parked = waiter ?? Waiter(WaitCell(), mayDrive: true)
      if waiter == nil {
        waiters.append(parked)
        waiter = parked
      }
      let seen = parked.cell.word.load(ordering: .sequentiallyConsistent)
      lock.unlock()
      switch parked.cell.park(seen, until: deadline) {
      case .woken: break
      case .interrupted: stop = .interrupted
      case .timedOut: stop = .timedOut
      }
      lock.lock()
    }
    if let stop {
      let mustPassOn = waiter?.isDriver ?? false
      if mustPassOn { takeRole() }
      lock.unlock()
      if mustPassOn { leave() }
      return stop
    }
    takeRole()
    lock.unlock()
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
