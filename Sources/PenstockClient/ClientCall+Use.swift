import CPenstockMemory
import CPenstockSystem
import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockLink
import PenstockTransport

/// The functions of a call that its user calls, on any thread.
extension ClientCall {
  public var ended: Reply? { lock.withLock { reply } }

  /// Cancels the call. After this function has returned, no more messages are delivered, except a message
  /// that another thread is just delivering. If the call has ended already, its status and its reply stay
  /// unchanged.
  public func cancel(_ reason: ByteView) {
    // The end is submitted before the unread messages are dropped. So a thread that receives no message
    // because of this drop gets the status of this cancel, and not the status of another end.
    if ended == nil { call.submit(.endLocally(Status(.cancelled, reason))) }
    let dropped = lock.withLock { () -> ShortQueue<Message> in
      discards.store(true, ordering: .releasing)
      hasAnswered = true
      return takeUnread()
    }
    // The messages are released after the lock, because a release may run a user's finalizer.
    withExtendedLifetime(dropped) {}
  }

  var isDiscarding: Bool { discards.load(ordering: .acquiring) }

  /// Removes and returns the unread messages. The caller holds the lock.
  func takeUnread() -> ShortQueue<Message> {
    let all = received
    received = ShortQueue()
    return all
  }

  public func demand(_ count: UInt64) -> Outcome {
    guard isCallbackStyle else { return .state }
    guard ended == nil else { return .gone }
    if !kind.receivesOne { call.submit(.demand(ClientCall.clamped(count))) }
    return .ok
  }

  /// Limits a demand (a number of messages), so that the sum of many demands fits in an Int.
  static func clamped(_ count: UInt64) -> Int { Int(min(count, 1 << 40)) }

  public func halfClose() -> Outcome {
    lock.lock()
    let outcome: Outcome = reply != nil ? .gone : isHalfClosed ? .already : .ok
    isHalfClosed = true
    lock.unlock()
    if outcome == .ok { call.submit(.halfClose) }
    return outcome
  }

  /// Queues a copy of `bytes` if the send buffer has room. Does not wait.
  public func trySend(_ bytes: ByteView) -> Outcome {
    if call.codec != nil { return .state }
    // The room is checked before the copy, so that no copy is wasted. A call with only one request message
    // always has room for it.
    if !kind.sendsOne || bytes.count > maxSendBytes {
      let checked = lock.withLock { checkSend(bytes.count) }
      guard checked == .ok else { return checked }
    }
    guard let message = ByteBuffer(copying: bytes) else { return .noMemory }
    return queue(message)
  }

  /// Queues the message if the send buffer has room. Otherwise the message stays the caller's. Does not wait.
  public func trySend(_ message: Message) -> Outcome { queue(message) }

  private func queue(_ message: consuming Message) -> Outcome {
    lock.lock()
    let outcome = queueLocked(message)
    lock.unlock()
    return outcome
  }

  /// Queues a message if the send buffer has room. The caller holds the lock, so that the messages of several
  /// threads are sent in the order in which they were added to `sizesInFlight`.
  func queueLocked(_ message: consuming Message) -> Outcome {
    let count = message.count
    let outcome = checkSend(count)
    if outcome == .ok {
      let cost = count + ClientCall.messageOverhead
      if !kind.sendsOne {
        sizesInFlight.append(cost)
        bytesInFlight += cost
        channel.sendBudget?.take(cost)
      }
      sentMessages += 1
      call.submit(.send(consume message))
    }
    return outcome
  }

  /// The bytes of the send buffer that each message takes in addition to its content: about the memory that
  /// is allocated for it. The overhead also limits the number of empty messages.
  private static let messageOverhead = 256
  /// The size in bytes of the send buffer of a client stream whose options set none. It has room for nine
  /// messages of 64 KiB. That is more than half of a flow-control window of 1 MiB, and a peer that has
  /// received half a window sends a WINDOW_UPDATE at once. With room for only three messages, the peer would
  /// sleep between two messages and the sender would have to wake it. The rate of messages is then 0.85 times
  /// the present rate.
  private static let bytesAhead = 640 << 10
  /// With this number of messages in flight or more, a client stream's send buffer has only its usual size.
  /// To queue more small messages takes longer than the time for which the loop stays free for their sender
  /// (`linger_us`), so the runtime's own thread would take over the loop. With up to 1,024 messages of 256
  /// bytes in flight the rate is 0.65 times the present rate.
  private static let messagesAhead = 16

  /// The size of the send buffer in bytes at present.
  private var sendBuffer: Int {
    sendsAhead && sizesInFlight.count < ClientCall.messagesAhead ? ClientCall.bytesAhead : sendBufferBytes
  }

  private func checkSend(_ count: Int) -> Outcome {
    if reply != nil { return .gone }
    if isHalfClosed || (kind.sendsOne && sentMessages == 1) { return .state }
    if count > maxSendBytes { return .tooLarge }
    if cm_is_low() != 0 { return .noMemory }
    guard bytesInFlight > 0 else { return .ok }
    let cost = count + ClientCall.messageOverhead
    if bytesInFlight + cost > sendBuffer || channel.sendBudget?.hasRoom(cost) == false { return .wouldBlock }
    return .ok
  }

  public func send(_ bytes: ByteView) -> Outcome {
    if call.codec != nil { return .state }
    // A message that is too large is refused here, before it is copied.
    guard bytes.count <= maxSendBytes else { return lock.withLock { checkSend(bytes.count) } }
    guard let message = ByteBuffer(copying: bytes) else { return .noMemory }
    return send(message)
  }

  public func send(_ message: Message) -> Outcome {
    var found: AnyObject? = message
    return wait(for: .room, &found)
  }

  /// Half-closes a unary or server stream call whose only request message was sent. Called when a thread
  /// begins to wait for the response in a blocking function, so that the user need not half-close.
  func closeWhenSaid() {
    guard kind.sendsOne else { return }
    lock.lock()
    let closes = sentMessages == 1 && !isHalfClosed && reply == nil
    if closes { closeByWaiting() }
    lock.unlock()
    if closes { call.submit(.halfClose) }
  }

  /// Notes that the calling thread, which begins to wait for the response, half-closes the call. So the functions of
  /// synchronous interceptors run on this thread. The caller holds the lock.
  private func closeByWaiting() {
    if kind.sendsOne, call.wasMadeWithHops { beginServing() }
    isHalfClosed = true
  }

  /// Whether a thread that waits for the response is still to half-close the call. Any thread.
  var closesByWaiting: Bool {
    guard kind.sendsOne, !isCallbackStyle else { return false }
    return lock.withLock { !isHalfClosed }
  }

  public func waitHeaders() -> (Outcome, Metadata?) {
    guard !isCallbackStyle else { return (.state, nil) }
    closeWhenSaid()
    var found: AnyObject?
    let outcome = wait(for: .headers, &found)
    return (outcome, found.map { unsafeDowncast($0, to: Metadata.self) })
  }

  /// Waits for the end, for up to `timeoutMilliseconds` (-1: without limit).
  public func waitStatus(timeoutMilliseconds: Int64) -> (Outcome, Reply?) {
    guard !isCallbackStyle else { return (.state, nil) }
    closeWhenSaid()
    let now = driver._withUnsafeGuaranteedRef { $0.clock }
    return waitForEnd(
      until: Runtime.deadline(after: timeoutMilliseconds, from: now), interruptible: isInterruptible)
  }

  /// Blocking style: half-closes the call, discards the unread messages, and waits for the end of the call.
  public func finish() -> (Outcome, Reply?) {
    guard !isCallbackStyle else { return (.state, nil) }
    if isOnDrivingThread { return ended.map { (.ok, $0) } ?? (.wouldDeadlock, nil) }
    lock.lock()
    let closes = !isHalfClosed && reply == nil
    if closes { closeByWaiting() }
    let begins = !isDiscarding && !kind.receivesOne && reply == nil
    if !kind.receivesOne { discards.store(true, ordering: .releasing) }
    lock.unlock()
    if closes { call.submit(.halfClose) }
    if begins {
      callDiscardsMessages()
      call.submit(.demand(1 << 40))
    }
    return waitForEnd()
  }

  public func waitForEnd() -> (Outcome, Reply?) { waitForEnd(until: nil, interruptible: isInterruptible) }

  private func waitForEnd(until deadline: UInt64?, interruptible: Bool) -> (Outcome, Reply?) {
    var found: AnyObject?
    let outcome = wait(for: .end, deadline: deadline, interruptible: interruptible, &found)
    return (outcome, found.map { unsafeDowncast($0, to: Reply.self) })
  }

  /// Runs a unary call from its start to its end, after `make`. An interruptible wait ends by a signal or
  /// after `Runtime.interruptibleSlice`; then the call is cancelled, unless the options' `onInterrupted`
  /// returns 0. `message` is taken over; the caller gets one reference to the reply.
  public func unary(_ message: Unmanaged<Message>, _ options: CallOptions?) -> (Outcome, Unmanaged<Reply>?) {
    unaryThread = UInt(cs_thread_self())
    // Other threads may still use a call with hops through these hops while the call ends.
    let hasHops = call.chain != nil
    if hasHops {
      beginServing()
    } else if call.codec == nil, call.request.settings.credentials == nil {
      call.manner = .brief
    }
    let waiter = CallWaiter(.end)
    waiters.add(waiter)
    let request = message.takeRetainedValue()
    prepare(request)
    var nothing: AnyObject?
    var outcome = wait(with: waiter, isInterruptible, opens: true, &nothing)
    while true {
      if outcome == .wouldDeadlock {
        cancel(("its executor's only thread waits for it" as StaticString).bytes)
      }
      guard outcome == .interrupted else {
        guard outcome == .ok else { return (outcome, nil) }
        if let interruption, interruption.hasEnded { return (.interrupted, nil) }
        // The call has ended. Without hops, no other thread can reach the call, so no lock is needed.
        return (outcome, (hasHops ? ended : reply.take()).map { .passRetained($0) })
      }
      guard goesOn(options?.onInterrupted) else {
        // The hops of a call learn of its end before this function returns, unless the program, asked once more, still
        // wants to leave. Without hops this thread does not wait for long. The loop may be stuck in a callback of
        // another call.
        let asked = hasHops ? options?.onInterrupted : nil
        while waitForEnd(until: nil, interruptible: !hasHops || asked != nil).0 == .interrupted, let asked,
          asked.callback(asked.userData.pointer) == 0
        {}
        return (.interrupted, nil)
      }
      outcome = wait(for: .end, &nothing)
    }
  }

  /// Called when an interruption has ended a wait of the thread that has made the call by `unary`. False: the call
  /// was cancelled for it.
  func goesOn(_ asked: CallOptions.OnInterrupted?) -> Bool {
    if let asked, asked.callback(asked.userData.pointer) == 0 { return true }
    cancel(("interrupted" as StaticString).bytes)
    return false
  }

  /// Reads a value that the call and its hops share.
  public func value(_ key: ByteView) -> UnsafeMutableRawPointer? { call.knownValues?.get(key) }

  public func setValue(_ key: ByteView, _ value: UserData?) -> Outcome {
    let values = call.values
    // If the call had no values when it ended, its reply gets the new `values` here.
    ended?.adopt(values)
    return values.set(key, value) ? .ok : .noMemory
  }
}
