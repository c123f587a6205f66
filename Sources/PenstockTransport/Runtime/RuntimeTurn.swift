import CSystem
import Synchronization

extension Runtime {
  /// How many items run before the driver looks at the descriptors again.
  private static let batch = 512
  /// How many items run before the connections write the items' output. So if a hundred calls are posted at
  /// once, the peer works on the first of them while the last ones are made; this gives 1.6 times the rate.
  private static let stride = 32

  /// Whether there are items to run or turn-end handlers to call, so that the driver must not sleep.
  var hasLeftovers: Bool { !inbox.isEmpty || !turnEnds.isEmpty }

  /// Whether items have been posted that `settle` has not taken yet.
  var hasPosted: Bool { inbox.hasPushed }

  /// Runs the posted items, the items that those post, and then the turn-end handlers. Called at the end of
  /// each turn, and when a thread begins to drive. So a channel that the program closes right after it has
  /// started a call is closed before the call's answer is read. Items that the handlers post, and handlers
  /// that they register, wait for the next turn.
  func settle() {
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
      // The list keeps the handler, so no reference is counted.
      Unmanaged.passUnretained(turnEndsRunning[i])._withUnsafeGuaranteedRef { $0.turnEnded() }
      i += 1
    }
    work &+= UInt64(i)
    while !turnEndsRunning.isEmpty { turnEndsRunning.removeLast() }
  }

  /// Waits for events and deadlines, at most until `limit`, and dispatches them; without waiting if there are
  /// leftovers. False: a signal ended the wait.
  ///
  /// The sleeper's protocol: `asleep` is set *before* the last look at the state that others may change (the inbox, `cell`,
  /// `yieldWanted`, `ending`); a thread that changes one of them does so *before* it looks at `asleep`. All of it is
  /// sequentially consistent, so at least one of the two sees the other: either there is no sleep, or there is a
  /// signal, which epoll_wait sees whenever it starts. `asleep` is taken by exchange: one signal per sleep.
  func turn(until limit: UInt64?, cell: WaitCell?) -> Bool {
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

  /// Looks for events without sleeping, for at most `spin_us`. Returns the number of events, or -errno. 0: the time
  /// is over, a timer is due, or the driver has to look at something else than descriptors.
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
    // A timer that arms itself for a time that has passed fires again next turn.
    var budget = timers.count
    while budget > 0, let timer = timers.popDue(now) {
      timer.fire()
      work &+= 1
      budget -= 1
    }
  }

  /// The longest sleep in milliseconds. After it the loop looks whether its descriptors still exist: if other code
  /// has closed them, nothing else wakes it.
  private static let longestSleep: UInt64 = 5000

  /// How long epoll_wait has to sleep, in milliseconds: until `limit` or the earliest timer, rounded up so that the
  /// timer is due on waking; at most `longestSleep`.
  private func sleepTime(_ limit: UInt64?) -> Int32 {
    var at = limit ?? .max
    if let first = timers.earliest, first < at { at = first }
    if at == .max { return Int32(Runtime.longestSleep) }
    let time = clock
    if at <= time { return 0 }
    return Int32(min((at - time - 1) / 1_000_000 + 1, Runtime.longestSleep))
  }

  /// Calls `dropped` of each item that is queued and has not run, and releases the item. Called only when the
  /// runtime has ended: then no thread has the role, so the lock guards the inbox.
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
