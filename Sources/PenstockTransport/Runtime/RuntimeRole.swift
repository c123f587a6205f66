import CSystem
import PenstockWire
import Synchronization

/// A thread that is parked while another drives.
final class Waiter: @unchecked Sendable {
  let cell: WaitCell
  let mayDrive: Bool
  /// Whether the waiter was given the role: its thread then must take the role, or pass it on. Under the runtime's
  /// lock.
  var isDriver = false

  init(_ cell: WaitCell, mayDrive: Bool) {
    self.cell = cell
    self.mayDrive = mayDrive
  }
}

/// The role of the driver.
///
/// A waiting thread takes the role if the role is free. If the own thread has the role, the waiter asks for
/// it. If another caller has it, the waiter parks, and is woken when its cell is set or when it gets the
/// role. A driver that leaves gives the role to a parked waiter, or leaves it free if there is none. In
/// thread mode the own thread then takes the free role: at once if there is work that no caller waits for,
/// otherwise when the role has been free for the linger (`lingerMicroseconds`).
///
/// A tight loop of blocking calls must not wake the own thread in each call. So the own thread looks at the role by
/// itself, after timed sleeps. When one driver stays for long the own thread sleeps without a limit, and that driver
/// wakes it when it leaves; a driver that leaves behind a timer that is due before the next look wakes it, too.
///
/// A waiter that is woken only to drive goes on waiting, because its call has not ended. When it then sleeps
/// in the loop, other threads have to wake it to send their next calls. So if many threads wait at once (a
/// crowd), the own thread gets the role and keeps it: the end of a call then seldom wakes a thread other than
/// the one that waits for the call.
///
/// A thread parks only if another thread drives, or if the own thread will take the role: either it was told
/// to (`ownWanted`) and woken, or it looks at the role by itself after the linger. A thread that leaves the
/// role while others wait gives it to a waiter or to the own thread.
extension Runtime {
  /// The time in ns after which an interruptible wait returns by itself, because a signal may have come just
  /// before the thread slept.
  static let interruptibleSlice: UInt64 = 250_000_000
  /// How many lingers the own thread sleeps at most before it looks at the role again, while callers take
  /// turns at driving. With 8 it wakes in one call of fifty. A larger number may delay a last send or cancel
  /// from a thread that does not wait.
  static let longestLook: UInt64 = 16
  /// A crowd begins when `crowdSize` threads are parked. It ends when `crowdLasts` waits have begun while
  /// fewer threads were parked.
  static let crowdSize = 4
  static let crowdLasts: UInt32 = 64
  /// The longest time in ns for which callers may drive without looking at the descriptors.
  static let pollSlack: UInt64 = 1_000_000

  /// Blocks until `cell` is set, or until `deadline` (monotonic ns). Meanwhile this thread drives the loop, if the
  /// options and `mayDrive` allow it. `.closed`: the runtime has ended, and `cell` was not set.
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
      // The own thread is asked for the role, unless there is a crowd, or work in the background, for which it would
      // take the role back at once.
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

  /// Starts `item`, and waits for `cell`, which is set by the work that `item` begins. The item has not been
  /// posted, and its owner keeps it. If this thread takes the role at once, it runs the item itself, after
  /// the items that were posted before: this saves 120 instructions and three atomic operations. `time`: a
  /// time just read from the clock.
  func wait(for cell: WaitCell, after item: InboxItem, at time: UInt64, interruptible: Bool) -> WaitResult {
    if options.mode == .host || options.callerDrives {
      lock.lock()
      if driver == .none, phase != .ended, crowd == 0 {
        takeRole(for: cell)
        lock.unlock()
        // Another thread may have driven since `time` was read.
        now = max(lastNow, time)
        if inbox.isEmpty { item.run() } else { _ = inbox.push(item) }
        return drive(until: cell, Terms(nil, interruptible, at: clock), nil)
      }
      lock.unlock()
    }
    post(item)
    return wait(for: cell, deadline: nil, interruptible: interruptible)
  }

  /// The times at which a wait ends in any case: its deadline and, if it is interruptible, the end of a slice.
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

  /// Takes the role. `lock` is held, and the role is free or assigned to the caller.
  func takeRole() {
    driver = .caller
    turnover &+= 1
    ownWanted = false
    beginDriving()
    asleep.store(0, ordering: .relaxed)
  }

  /// Takes the role in order to wait for `cell`.
  private func takeRole(for cell: WaitCell) {
    takeRole()
    // A cell may keep the runtime that its waiter drives. `endCell` must not, because the runtime owns it.
    let isOwn = ObjectIdentifier(cell) == ObjectIdentifier(endCell)
    cell.beginDriving(isOwn ? nil : .passUnretained(self))
    // While this thread drives, the host program's descriptor need not become readable.
    poller.attach(false)
  }

  /// Drives until `cell` is set. `stop`: the reason to leave at once. The caller has set `now`.
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
    // A wait that ends at once does not look at the descriptors. After `pollSlack` without a look this thread
    // looks, so that many such waits in a row can't starve the descriptors.
    if now &- polledAt > Runtime.pollSlack { _ = turn(until: now, cell: nil) }
    leave()
    return result ?? .ready
  }

  /// Leaves the role: gives it to a parked waiter or, if there is none or there is a crowd, frees it. The constant
  /// `next` keeps the waiter's cell while it is woken.
  func leave() {
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
      // From here on the host program may sleep on the outer descriptor, so a post has to signal the wake
      // descriptor.
      asleep.store(1, ordering: .sequentiallyConsistent)
      poller.takeKick()
      // If the descriptors are lost, so is the timer that would make the host program look.
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

  /// Takes the first waiter off the list that may drive and whose cell is not set; nil: there is none. The
  /// caller holds `lock`.
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

  /// Takes a waiter off the list, with `lock` held. The caller has a reference to it.
  private func remove(_ waiter: Waiter?) {
    if let waiter { waiters.drop(waiter) }
  }

  /// Runs `body`, which calls no user code, as the driver, if no other thread drives. False: another thread does, or
  /// the runtime has ended.
  func inspect(_ body: () -> Void) -> Bool {
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

  /// Starts the own thread. Returns nil, or errno.
  @inline(never) @_optimize(size)
  func startThread() -> Int32? {
    threadState = .joinable
    var id: pthread_t = 0
    lock.lock()
    // The role counts as free from now on, as if a driver had just left it: so the own thread waits for the linger
    // before it takes the role. A program that begins with a blocking call then drives the loop itself, and wakes no
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
      // The own thread takes a free role at once when a timer is due, and does not wait for the linger.
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
      // While calls follow one another, the own thread looks less and less often: a look after each linger would take
      // processor time from them.
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
    // Only a thread in `shutdown` joins the own thread. If none is there, the own thread detaches itself.
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

  /// Gives the role to a waiter that may drive. False: there is none, or there is a crowd.
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

  /// Runs one turn: waits up to `timeoutMilliseconds` (negative: until there is work) and does the work that
  /// is ready. `.timedOut`: another thread drove during the whole timeout.
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

  /// The time `milliseconds` after `now`, as a deadline. nil, which means no limit, if `milliseconds` is
  /// negative or the sum would overflow.
  static func deadline(after milliseconds: Int64, from now: UInt64) -> UInt64? {
    guard milliseconds >= 0 else { return nil }
    let (span, overflow) = UInt64(milliseconds).multipliedReportingOverflow(by: 1_000_000)
    if overflow { return nil }
    let (at, past) = now.addingReportingOverflow(span)
    return past || at == .max ? nil : at
  }
}
