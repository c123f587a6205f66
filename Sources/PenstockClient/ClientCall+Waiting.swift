import PenstockCall
import Synchronization
import PenstockLoop
import PenstockLink
import PenstockTransport

/// How a thread waits for a change of a call in a blocking function.
extension ClientCall {
  /// Whether the calling thread drives one of the runtime's loops, for example in a callback. Such a thread
  /// must not wait.
  var isOnDrivingThread: Bool { DrivingThread.isCurrent() && drivesALoop }

  private var drivesALoop: Bool { channel.runtime.loop.isOneDriven }

  /// Checks, under the lock, whether the wait for `awaited` is over. nil: the thread has to wait. `.room`:
  /// `found` is the message to send, and is queued if the buffer has room. `.message`: `found` may be a batch that
  /// takes messages. Otherwise `found` is set to the awaited object: a message, the headers, or the reply.
  private func look(for awaited: Awaited, _ found: inout AnyObject?) -> Outcome? {
    switch awaited {
    case .room:
      guard let found else { return .ok }
      let outcome = queueLocked(unsafeDowncast(found, to: Message.self))
      return outcome == .wouldBlock ? nil : outcome
    case .message:
      if let outcome = take(&found) { return outcome }
      if reply != nil || isDiscarding { return .end }
      if demanded == 0, !kind.receivesOne {
        demanded = 1
        call.submit(.demand(1))
      }
      return nil
    case .headers:
      found = headers ?? reply?.headers
      return found != nil ? .ok : reply != nil ? .end : nil
    case .end:
      if !hasNoHandle { found = reply }
      return reply != nil ? .ok : nil
    }
  }

  /// Waits until `look` returns an outcome, or until `deadline` (monotonic ns). This function calls `look` at the
  /// beginning, and again after each wake-up.
  func wait(
    for awaited: Awaited, deadline: UInt64? = nil, interruptible: Bool? = nil, _ found: inout AnyObject?
  ) -> Outcome {
    lock.lock()
    var outcome = look(for: awaited, &found)
    if outcome == nil, let deadline, driver._withUnsafeGuaranteedRef({ $0.clock }) >= deadline {
      outcome = .timedOut
    }
    if outcome == nil, isOnDrivingThread { outcome = .wouldDeadlock }
    var interruptible = interruptible ?? isInterruptible
    if outcome == nil, let care { outcome = mind(care, awaited, &interruptible) }
    if let outcome {
      lock.unlock()
      return outcome
    }
    let waiter = CallWaiter(awaited)
    waiters.add(waiter)
    lock.unlock()
    return wait(with: waiter, deadline: deadline, interruptible, &found)
  }

  /// Waits with a waiter that is in the call's list of waiters, and removes the waiter from the list at the
  /// end. `opens`: this function also opens the call, for which the caller has called `prepare`.
  func wait(
    with waiter: CallWaiter, deadline: UInt64? = nil, _ interruptible: Bool, opens: Bool = false,
    _ found: inout AnyObject?
  ) -> Outcome {
    var opens = opens
    var interruptible = interruptible
    // A worker that waits also runs the functions of the call's synchronous interceptors; one of a pool does not
    // drive a host-driven loop. If the call has no hops and the runtime is not host-driven, a worker waits like
    // any other thread.
    let isSimple = !call.wasMadeWithHops && driver._withUnsafeGuaranteedRef { $0.options.mode == .thread }
    var attendant = isSimple ? nil : call.withItem { $0.attend(waiter) }
    // Whether this thread has stopped waiting before the call has ended: workers run the functions then, because
    // nobody knows whether a thread will wait again.
    var gaveUp = false
    defer {
      if let attendant { channel.runtime.workers.detach(call.item, attendant) }
      if gaveUp, !isSimple { endServing() }
    }
    while true {
      if !isSimple, attendant == nil { attendant = serveAsWaiter(waiter) }
      if opens, attendant != nil {
        opens = false
        driver._withUnsafeGuaranteedRef { runtime in call.withItem { _ = runtime.post($0) } }
      }
      if let attendant { channel.runtime.workers.serve(call.item, attendant) }
      let result = driver._withUnsafeGuaranteedRef { runtime in
        if opens {
          opens = false
          return call.withItem {
            runtime.wait(for: waiter, after: $0, at: createdAt, interruptible: interruptible)
          }
        }
        return runtime.wait(
          for: waiter, deadline: deadline, interruptible: interruptible,
          mayDrive: attendant?.worker.isCallers != false || runtime.options.mode == .thread)
      }
      // The waiter was set, so the call has ended. No other thread can reach the call, so no lock is needed.
      if hasNoHandle, result == .ready, attendant == nil, !call.wasMadeWithHops { return .ok }
      lock.lock()
      var outcome = look(for: waiter.awaited, &found)
      if outcome == nil {
        switch result {
        case .ready: outcome = nil
        case .timedOut: outcome = .timedOut
        case .interrupted: outcome = care?.takesTurns == true && !isInterruptible ? nil : .interrupted
        case .wouldDeadlock: outcome = .wouldDeadlock
        case .closed: outcome = .closed
        }
        if outcome == nil, let care { outcome = mind(care, waiter.awaited, &interruptible) }
      }
      if outcome != nil {
        waiters.remove(waiter)
        let isBrokenOff = outcome == .interrupted || outcome == .timedOut || outcome == .wouldDeadlock
        gaveUp = !hasNoHandle && isBrokenOff
      } else {
        waiter.reset()
        waiters.renew(waiter)
      }
      lock.unlock()
      if let outcome { return outcome }
    }
  }

  /// From now on the functions of the call's synchronous interceptors run on the calling thread, which has made the
  /// call and waits for it, unless it is in a callback.
  func beginServing() {
    if Worker.mayServe { call.item.functions.store(.waiter, ordering: .sequentiallyConsistent) }
  }

  /// If a function is ready for a waiting thread, registers the calling thread to run it. If the calling thread
  /// can't run functions, workers run them instead.
  private func serveAsWaiter(_ waiter: CallWaiter) -> Attendant? {
    guard call.item.functions.load(ordering: .sequentiallyConsistent) == .waiterIsWanted else { return nil }
    if Worker.mayServe { return channel.runtime.workers.attendAsWaiter(call.item, waiter) }
    endServing()
    return nil
  }

  /// From now on workers run the functions of the call's synchronous interceptors.
  private func endServing() {
    if call.item.functions.load(ordering: .sequentiallyConsistent) == .workers { return }
    channel.runtime.workers.takeOver(call.item)
  }

  /// Makes the threads that wait for the call look at it.
  func wakeWaiters() {
    lock.lock()
    unlock(andWake: .end)
  }

  /// Checks, under the lock, whether the calling thread may continue to wait. nil: it may. If this function
  /// sets `interruptible`, the wait ends after `Runtime.interruptibleSlice`, and this function is called
  /// again.
  private func mind(_ care: WaitCare, _ awaited: Awaited, _ interruptible: inout Bool) -> Outcome? {
    if care.needsThisThread { return .wouldDeadlock }
    guard care.takesTurns, !isHalfClosed, awaited == .message || awaited == .headers else { return nil }
    if care.expectsHalfClose(
      sent: sentMessages, inFlight: bytesInFlight, now: driver._withUnsafeGuaranteedRef { $0.clock })
    {
      interruptible = true
    } else {
      call.submit(.awaited)
    }
    return nil
  }

  /// Releases the lock, and wakes the threads that wait for the change `news`.
  func unlock(andWake news: Awaited) {
    guard waiters.isAwaited(news) else { return lock.unlock() }
    let (one, isOwn, more) = waiters.awaiting(news)
    lock.unlock()
    if let one {
      one._withUnsafeGuaranteedRef { $0.set() }
      if !isOwn { one.release() }
    }
    if !more.isEmpty { for waiter in more { waiter.set() } }
  }
}
