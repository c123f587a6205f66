import CPenstockSystem
import Synchronization

extension Runtime {
  /// The number of items that run before the driver polls the descriptors again.
  private static let batch = 512
  /// The number of items that run before the connections write the output of those items. So if a hundred
  /// calls are posted at once, the peer works on the first calls while the last ones are made. This raises
  /// the rate of calls by a factor of 1.6.
  private static let stride = 32

  /// Whether there are items to run or turn-end handlers to call, so that the driver must not sleep.
  public var hasLeftovers: Bool { !inbox.isEmpty || !turnEnds.isEmpty }

  /// Whether items have been posted that the driver has not taken off the inbox's stack yet.
  public var hasPosted: Bool { inbox.hasPushed }

  /// Runs the posted items, the items that those items post, and then the turn-end handlers. Called at the
  /// end of each turn, and when a thread begins to drive. So if the program starts a call and closes the
  /// channel at once, the channel closes before the call's answer is read. Items that the handlers post, and
  /// handlers that they register, wait for the next turn.
  public func settle() {
    var budget = Runtime.batch
    while budget > 0, inbox.pop({ $0.run() }) {
      work &+= 1
      budget -= 1
      if budget % Runtime.stride == 0 {
        refreshNow()
        endTurn()
      }
    }
    endTurn()
  }

  private func endTurn() {
    if turnEnds.isEmpty { return }
    swap(&turnEnds, &turnEndsRunning)
    var i = 0
    while i < turnEndsRunning.count {
      // The list `turnEndsRunning` holds a reference, so the call below needs no reference counting.
      Unmanaged.passUnretained(turnEndsRunning[i])._withUnsafeGuaranteedRef { $0.turnEnded() }
      i += 1
    }
    work &+= UInt64(i)
    while !turnEndsRunning.isEmpty { turnEndsRunning.removeLast() }
  }

  /// Waits for events and timers, at most until `limit`, and dispatches them. Does not wait if there are
  /// items to run (`hasLeftovers`). False: a signal ended the wait.
  ///
  /// The protocol for sleeping: the driver sets `asleep` *before* it last checks the state that other threads
  /// may change (the inbox, `cell`, `yieldWanted`, `ending`). A thread that changes this state does so
  /// *before* it reads `asleep`. All these accesses are sequentially consistent, so at least one of the two
  /// threads sees the change of the other. Either the driver does not sleep, or the other thread signals the
  /// wake descriptor, and epoll_wait sees the signal even if it starts later. The signalling thread takes
  /// `asleep` by exchange, so there is one signal per sleep.
  public func turn(until limit: UInt64?, cell: WaitCell?) -> Bool {
    var milliseconds: Int32 = 0
    var count: Int32 = 0
    if !hasLeftovers {
      milliseconds = sleepTime(limit)
      if milliseconds != 0, spent != nil { spent = nil }
      if milliseconds != 0, options.spinMicroseconds > 0, let cell {
        count = spin(cell, limit)
        // A timer may have become due during `spin`.
        milliseconds = count != 0 ? 0 : sleepTime(limit)
      }
      if milliseconds != 0 {
        asleep.store(1, ordering: .sequentiallyConsistent)
        if inbox.hasPushed || (cell?.isSet ?? false)
          || yieldWanted.load(ordering: .sequentiallyConsistent)
          || (ending.load(ordering: .sequentiallyConsistent) && mayEnd)
        {
          milliseconds = 0
        }
      }
    }
    if count == 0 { count = poller.wait(milliseconds: milliseconds) }
    asleep.store(0, ordering: .relaxed)
    if count == 0, milliseconds == Runtime.longestSleep { poller.checkWake() }
    if hasLostDescriptors { descriptorsLost() }
    now = clock
    polledAt = now

    var i: Int32 = 0
    while i < count {
      if let (handler, bits) = poller.event(i) {
        if i > 0 { refreshNow() }
        handler.ready(bits)
        work &+= 1
      }
      i += 1
    }
    fireTimers()
    return count != -EINTR
  }

  /// Polls for events without sleeping, for at most `spinMicroseconds`. Returns the number of events, or
  /// -errno. 0: the time is over, a timer is due, or state other than descriptors needs the driver.
  private func spin(_ cell: WaitCell, _ limit: UInt64?) -> Int32 {
    var until = clock &+ UInt64(options.spinMicroseconds) * 1000
    until = min(until, limit ?? .max, timers.earliest ?? .max)
    while true {
      let count = poller.wait(milliseconds: 0)
      if count != 0 || inbox.hasPushed || cell.isSet || yieldWanted.load(ordering: .relaxed)
        || ending.load(ordering: .relaxed)
      {
        return count
      }
      if clock >= until { return 0 }
    }
  }

  private func fireTimers() {
    // The budget is needed because a timer may arm itself for a time in the past. Such a timer fires again in
    // the next turn.
    var budget = timers.count
    while budget > 0, let timer = timers.popDue(now) {
      timer.fire()
      work &+= 1
      budget -= 1
    }
  }

  /// The longest sleep in milliseconds. After a sleep the loop checks whether its descriptors still exist. If
  /// other code has closed them, no event can wake the loop.
  private static let longestSleep: UInt64 = 5000

  /// The time in milliseconds for which epoll_wait should sleep: until `limit` or the earliest timer, and at
  /// most `longestSleep`. It is rounded up, so that the timer is due when the thread wakes.
  private func sleepTime(_ limit: UInt64?) -> Int32 {
    var at = limit ?? .max
    if let first = timers.earliest, first < at { at = first }
    if at == .max { return Int32(Runtime.longestSleep) }
    let time = clock
    if at <= time { return 0 }
    return Int32(min((at - time - 1) / 1_000_000 + 1, Runtime.longestSleep))
  }

  /// Calls `dropped` of each queued item, and releases the item. Called only when the runtime has ended. No
  /// thread drives then, so the lock guards the inbox.
  func dropInbox() {
    while true {
      lock.lock()
      let isEmpty = !inbox.pop {
        lock.unlock()
        $0.dropped(closing)
      }
      if isEmpty { return lock.unlock() }
    }
  }
}
