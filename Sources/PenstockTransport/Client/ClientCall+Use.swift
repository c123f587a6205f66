import CSystem
import PenstockCall
import PenstockWire
import Synchronization

/// The functions that users call, on any thread.
extension ClientCall {
  public var ended: Reply? { lock.withLock { reply } }

  /// Cancels the call. After this function has returned, no message is delivered any more, except one that
  /// another thread is about to deliver. A call that has ended keeps its status and its reply.
  public func cancel(_ reason: ByteView) {
    // The end is submitted before the unread messages are dropped: a thread that then finds no more messages gets the
    // status of this cancel, and not that of another end.
    if ended == nil { call.submit(.endLocally(Status(.cancelled, reason))) }
    let dropped = lock.withLock { () -> ShortQueue<Message> in
      discards.store(true, ordering: .releasing)
      hasAnswered = true
      return takeUnread()
    }
    // Released after the lock, because an object's finalizer is user code.
    withExtendedLifetime(dropped) {}
  }

  var isDiscarding: Bool { discards.load(ordering: .acquiring) }

  /// Takes the unread messages, under the lock.
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

  /// Clamps a demand, so that many demands can be added up in an Int without overflow.
  static func clamped(_ count: UInt64) -> Int { Int(min(count, 1 << 40)) }

  public func halfClose() -> Outcome {
    lock.lock()
    let outcome: Outcome = reply != nil ? .gone : isHalfClosed ? .already : .ok
    isHalfClosed = true
    lock.unlock()
    if outcome == .ok { call.submit(.halfClose) }
    return outcome
  }

  /// Queues a copy of `bytes` if there is room.
  public func trySend(_ bytes: ByteView) -> Outcome {
    if call.codec != nil { return .state }
    // Checks for room first, so that no copy is made in vain. A call with only one request message always has room
    // for it.
    if !kind.sendsOne || bytes.count > maxSendBytes {
      let checked = lock.withLock { checkSend(bytes.count) }
      guard checked == .ok else { return checked }
    }
    guard let message = ByteBuffer(copying: bytes) else { return .noMemory }
    return queue(message)
  }

  /// Queues the message if there is room; otherwise the caller keeps it.
  public func trySend(_ message: Message) -> Outcome { queue(message) }

  private func queue(_ message: consuming Message) -> Outcome {
    lock.lock()
    let outcome = queueLocked(message)
    lock.unlock()
    return outcome
  }

  /// Queues a message if there is room. The lock is held, so that messages of several threads leave in the order in
  /// which they were counted.
  func queueLocked(_ message: consuming Message) -> Outcome {
    let count = message.count
    let outcome = checkSend(count)
    if outcome == .ok {
      let cost = count + ClientCall.messageOverhead
      if !kind.sendsOne {
        sizesInFlight.append(cost)
        bytesInFlight += cost
      }
      sentMessages += 1
      call.submit(.send(consume message))
    }
    return outcome
  }

  /// How many bytes of the send buffer each message takes in addition to its content: about the memory that
  /// is allocated for it. So the number of empty messages is bounded, too.
  private static let messageOverhead = 256
  /// The size of the send buffer of a client stream whose options set none. It has room for nine messages of
  /// 64 KiB. That is more than half of a window of 1 MiB, and a peer that has received half a window gives
  /// new credit at once. With room for only three messages, the peer would sleep in between, and the sender
  /// would have to wake it: the rate is then 0.85 times this one.
  private static let bytesAhead = 640 << 10
  /// From this many messages in flight on, a client stream's send buffer has only its usual size. To queue
  /// more small messages takes longer than the loop stays free for their sender (`linger_us`), so the
  /// runtime's own thread would take the loop in between: with up to 1,024 messages of 256 bytes the rate is
  /// 0.65 times this one.
  private static let messagesAhead = 16

  /// The size of the send buffer at present.
  private var sendBuffer: Int {
    sendsAhead && sizesInFlight.count < ClientCall.messagesAhead ? ClientCall.bytesAhead : sendBufferBytes
  }

  private func checkSend(_ count: Int) -> Outcome {
    if reply != nil { return .gone }
    if isHalfClosed || (kind.sendsOne && sentMessages == 1) { return .state }
    if count > maxSendBytes { return .tooLarge }
    if bytesInFlight > 0, bytesInFlight + count + ClientCall.messageOverhead > sendBuffer {
      return .wouldBlock
    }
    return .ok
  }

  public func send(_ bytes: ByteView) -> Outcome {
    if call.codec != nil { return .state }
    // A message that is too large is refused before it is copied.
    guard bytes.count <= maxSendBytes else { return lock.withLock { checkSend(bytes.count) } }
    guard let message = ByteBuffer(copying: bytes) else { return .noMemory }
    return send(message)
  }

  public func send(_ message: Message) -> Outcome {
    var found: AnyObject? = message
    return wait(for: .room, &found)
  }

  /// Half-closes a unary or server stream call whose only request message was sent. Called when a blocking
  /// caller begins to wait for the answer, so that the caller need not half-close.
  private func closeWhenSaid() {
    guard kind.sendsOne else { return }
    lock.lock()
    let closes = sentMessages == 1 && !isHalfClosed && reply == nil
    if closes { isHalfClosed = true }
    lock.unlock()
    if closes { call.submit(.halfClose) }
  }

  /// Blocking style: waits for the next message. `.end`: no message will come any more.
  public func receive() -> (Outcome, Message?) {
    guard !isCallbackStyle else { return (.state, nil) }
    closeWhenSaid()
    var found: AnyObject?
    let outcome = wait(for: .message, &found)
    return (outcome, found.map { unsafeDowncast($0, to: Message.self) })
  }

  func takeMessage() -> Message? {
    guard kind.receivesOne else { return received.popFirst() }
    // The message stays in its place, because the reply gets it, too.
    let message = hasAnswered ? nil : answer ?? reply?.message
    hasAnswered = message != nil || hasAnswered
    return message
  }

  public func waitHeaders() -> (Outcome, Metadata?) {
    guard !isCallbackStyle else { return (.state, nil) }
    closeWhenSaid()
    var found: AnyObject?
    let outcome = wait(for: .headers, &found)
    return (outcome, found.map { unsafeDowncast($0, to: Metadata.self) })
  }

  public func waitStatus() -> (Outcome, Reply?) {
    guard !isCallbackStyle else { return (.state, nil) }
    closeWhenSaid()
    return waitForEnd()
  }

  /// Blocking style: half-closes, discards the unread messages, waits for the end.
  public func finish() -> (Outcome, Reply?) {
    guard !isCallbackStyle else { return (.state, nil) }
    if isOnDrivingThread { return ended.map { (.ok, $0) } ?? (.wouldDeadlock, nil) }
    lock.lock()
    let closes = !isHalfClosed && reply == nil
    isHalfClosed = true
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

  public func waitForEnd() -> (Outcome, Reply?) { waitForEnd(interruptible: isInterruptible) }

  private func waitForEnd(interruptible: Bool) -> (Outcome, Reply?) {
    var found: AnyObject?
    let outcome = wait(for: .end, interruptible: interruptible, &found)
    return (outcome, found.map { unsafeDowncast($0, to: Reply.self) })
  }

  /// Runs a unary call from start to end, after `make`. The end of an interruptible wait, by a signal or because its
  /// slice (`Runtime.interruptibleSlice`) is over, cancels the call, unless the options' `onInterrupted` says to go on.
  /// `message` is taken over; the caller gets one reference to the reply.
  public func unary(_ message: Unmanaged<Message>, _ options: CallOptions?) -> (Outcome, Unmanaged<Reply>?) {
    unaryThread = UInt(cs_thread_self())
    // While a call with hops ends, other threads may reach it through the hops.
    let hasHops = call.chain != nil
    if !hasHops, call.codec == nil, call.request.settings.credentials == nil { call.manner = .brief }
    let waiter = CallWaiter(.end)
    waiters.add(waiter)
    let request = message.takeRetainedValue()
    prepare(options?.isCancelled == true ? nil : request)
    options?.began(self)
    defer { options?.ended(self) }
    var nothing: AnyObject?
    var outcome = wait(with: waiter, isInterruptible, opens: true, &nothing)
    while true {
      if outcome == .wouldDeadlock {
        cancel(("its executor's only thread waits for it" as StaticString).bytes)
      }
      guard outcome == .interrupted else {
        guard outcome == .ok else { return (outcome, nil) }
        // The call has ended. If it had no hops, this thread is the only one that has it.
        return (outcome, (hasHops ? ended : reply.take()).map { .passRetained($0) })
      }
      guard let asked = options?.onInterrupted, asked.callback(asked.userData.pointer) == 0 else {
        cancel(("interrupted" as StaticString).bytes)
        _ = waitForEnd(interruptible: false)
        return (.interrupted, nil)
      }
      outcome = wait(for: .end, &nothing)
    }
  }

  /// A value that the call and its hops share.
  public func value(_ key: ByteView) -> UnsafeMutableRawPointer? { call.knownValues?.get(key) }

  public func setValue(_ key: ByteView, _ value: UserData?) -> Outcome {
    let values = call.values
    // If the values were made after the end, the reply gets them here.
    ended?.adopt(values)
    return values.set(key, value) ? .ok : .noMemory
  }
}
