import PenstockCall
import PenstockWire
import Synchronization

/// A call as its user sees it: in blocking style what arrives is queued here for the threads that wait; in
/// callback style it is handed on at once.
public final class ClientCall: CallAbove, @unchecked Sendable {
  public let call: Call
  public let channel: ClientChannel
  /// The channel's, which is kept.
  private let driver: Unmanaged<Runtime>
  private var runtime: Runtime { driver.takeUnretainedValue() }
  public let generation: UInt64
  public var kind: CallKind { call.request.kind }
  let createdAt: UInt64
  private var isCallbackStyle: Bool { callbacks != nil }

  // The driving thread's.
  var nextLive: Unmanaged<ClientCall>?
  var previousLive: Unmanaged<ClientCall>?
  /// nil in blocking style.
  private let callbacks: CallCallbacks.Table?
  /// Of the callbacks, until the end.
  private var userData: UserData?
  /// For SideCalls.swift.
  var family = Family()

  // Under the lock.
  private let lock = Lock()
  private var waiters = CallWaiters()
  /// Executors without which the call does not end.
  private var needed: [any Executor] = []
  private var received = ShortQueue<Message>()
  /// The one message of a kind that has one, until the reply has it.
  private var answer: Message?
  private var demanded = 0
  /// Until the reply has them.
  private var headers: Metadata?
  private var reply: Reply?
  /// Not of the one message of a kind that has one.
  private var sizesInFlight = ShortQueue<Int>()
  private var bytesInFlight = 0
  private var sentMessages = 0
  /// The channels that hops have redirected the call to; kept until the end.
  private var guests: [ClientChannel] = []
  /// Made and waited for by `unary`: nobody else has the call, or asks for anything before the end.
  private var isWhole = false
  private let sendBufferBytes: Int
  private let sendsAhead: Bool
  private let maxSendBytes: Int
  private var discards = false
  private var isHalfClosed = false
  /// `answer` has been received.
  private var hasAnswered = false
  let isInterruptible: Bool

  /// Users' handles; with the last one a call in blocking style that has not ended is cancelled.
  private let handles = Atomic<Int>(1)

  /// A message costs this much of the send buffer beyond its bytes, so that empty ones are bounded too: about what is
  /// allocated for it.
  private static let messageOverhead = 256
  /// Nine messages of 64 KiB go up at a time: more than half a window of 1 MiB, for which a peer gives credit at once. A
  /// peer that gets three sleeps in between, and to wake it is work of the sender (0.85 of the rate).
  private static let bytesAhead = 640 << 10
  /// But no more small ones: to queue them takes longer than the loop stays free for their sender (`linger_us`), and its
  /// own thread would come between (1,024 of 256 bytes: 0.65 of the rate).
  private static let messagesAhead = 16
  /// How many messages of a stream wait for a blocking `receive` that have not been asked for.
  private static let readAhead = 64

  /// One reference, which is the caller's.
  public static func make(
    _ channel: ClientChannel, _ path: ByteView, _ kind: CallKind, _ options: CallOptions?,
    _ callbacks: consuming CallCallbacks?
  ) -> (Outcome, Unmanaged<ClientCall>?) {
    var (found, named) = find(path, channel)
    guard let named = named.take() else { return (found, nil) }
    let line = channel.chains.chain(path, kind, of: channel.runtime, with: options?.interceptors)
    return make(channel, named, kind, options, consume callbacks, line)
  }

  /// The path of a call on the channel; nil: there can't be one.
  static func find(_ path: ByteView, _ channel: ClientChannel) -> (Outcome, ByteBuffer?) {
    channel.isClosed ? (.closed, nil) : channel.paths.find(path)
  }

  static func make(
    _ channel: ClientChannel, _ named: consuming ByteBuffer, _ kind: CallKind, _ options: CallOptions?,
    _ callbacks: consuming CallCallbacks?, _ line: Chain?
  ) -> (Outcome, Unmanaged<ClientCall>?) {
    let metadata = Metadata()
    if let given = options?.metadata, !metadata.append(contentsOf: given) { return (.noMemory, nil) }
    let now = Runtime.monotonicNow()
    var deadline: UInt64?
    if let wanted = options?.hasDeadline == true ? options?.deadline : channel.defaults.deadline {
      let (time, overflow) = now.addingReportingOverflow(wanted)
      deadline = overflow ? nil : time
    }
    let request = Request(
      kind: kind, terminated: consume named, metadata: consume metadata, deadline: deadline)
    request.settings = options?.settings(channel.defaults) ?? channel.defaults.settings
    if let authority = options?.authority, !request.setAuthority(authority.view) { return (.noMemory, nil) }
    let events = options?.traceEvents ?? channel.defaults.traceEvents
    let call = Call(
      id: Process.nextID(), request: consume request, chain: line,
      origin: channel.origin, attachment: CallItem(.passUnretained(channel.runtime.workers)),
      trace: events > 0 ? TraceLog(line, events) : nil)
    call.measures.createdAt.set(now)
    call.codec = options?.codec ?? channel.codec
    return (.ok, .passRetained(ClientCall(call, channel, options, consume callbacks)))
  }

  /// Inlined: so it takes over the references of `make`.
  @inline(__always)
  private init(
    _ call: Call, _ channel: borrowing ClientChannel, _ options: CallOptions?,
    _ callbacks: consuming CallCallbacks?
  ) {
    let given = consume callbacks
    self.channel = copy channel
    driver = .passUnretained(channel.runtime.runtime)
    self.callbacks = given?.table
    createdAt = call.measures.createdAt.value
    generation = channel.generation
    isInterruptible = options?.isInterruptible ?? false
    sendBufferBytes = options?.sendBufferBytes ?? CallOptions.sendBuffer
    sendsAhead = call.request.kind == .clientStream && options?.sendBufferBytes == nil
    maxSendBytes = call.request.settings.maxSendBytes
    call.isAboveToldSent = !call.request.kind.sendsOne || given?.table.onSent != nil
    userData = given?.userData
    self.call = call
    super.init()
    let me = Unmanaged.passUnretained(self)
    borrow(self.call) { call in call.withItem { $0.attach(me) } }
  }

  deinit { letValuesGo() }

  @inline(never)
  private func letValuesGo() { call.knownValues?.letGo() }

  /// Any thread, once. The message of a unary call goes with it.
  public func open(_ message: consuming Message?) {
    // Counted until the end, on the driving thread: a runtime does not end over it, and a shutdown waits for
    // it.
    driver._withUnsafeGuaranteedRef { runtime in
      runtime.beginCall()
      if isCallbackStyle { runtime.beginBackground() }
    }
    call.attach(above: self)
    call.withItem { $0.isFirstRun = true }
    if message != nil { isHalfClosed = true }
    call.begin(.open(demand: kind.receivesOne ? 2 : 0, message: consume message))
  }

  func firstRun() {
    borrow(channel.runtime.live) { $0.add(self) }
    call.attach(below: channel.transport.newAttempt())
    if channel.isClosed || family.parent != nil { beginWithOthers() }
  }

  @inline(never) @_optimize(size)
  private func beginWithOthers() {
    // The call may end here, and let it go.
    let kept = Unmanaged.passRetained(self)
    defer { kept.release() }
    if channel.isClosed {
      call.perform(
        .endLocally(Status(.cancelled, channel.runtime.isClosed ? "runtime shut down" : "channel closed")))
    }
    joinFamily()
  }

  // MARK: - Redirect

  /// Any thread. False: the call has ended.
  func keep(_ guest: ClientChannel) -> Bool {
    lock.withLock {
      if reply == nil { guests.append(guest) }
      return reply == nil
    }
  }

  // MARK: - Handles

  /// The borrowed handle that callbacks get.
  var handle: OpaquePointer { OpaquePointer(Unmanaged.passUnretained(self).toOpaque()) }

  /// True: there was none (a callback may retain a handle that has gone), and the reference has to be taken
  /// again.
  public func retainHandle() -> Bool { handles.wrappingAdd(1, ordering: .relaxed).oldValue == 0 }

  /// True: that was the last, and the reference that handles stand for is to be released.
  public func releaseHandle() -> Bool {
    guard handles.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0 else { return false }
    if !isCallbackStyle, !Process.isForked(generation) { cancel(("released" as StaticString).bytes) }
    return true
  }

  // MARK: - What the call tells, on the driving thread

  public override func callHeaders(_ headers: Metadata) {
    // Nobody waits for them, or looks at them before the end.
    if isWhole || isCallbackStyle {
      self.headers = headers
    } else {
      lock.lock()
      self.headers = headers
      unlock(andWake: .headers)
    }
    if let callbacks, let told = callbacks.onHeaders {
      call.watch.begin(call.id, .headers)
      told(handle, OpaquePointer(Unmanaged.passUnretained(headers).toOpaque()), callbacks.pointer)
      call.watch.end()
    }
  }

  public override func callMessage(_ message: Message) {
    if isWhole || isCallbackStyle {
      if kind.receivesOne { answer = message }
    } else {
      lock.lock()
      if demanded > 0 { demanded -= 1 }
      if kind.receivesOne {
        answer = message
      } else if !discards {
        received.append(message)
      }
      unlock(andWake: .message)
    }
    if let callbacks, let told = callbacks.onMessage {
      call.watch.begin(call.id, .receive)
      told(handle, OpaquePointer(Unmanaged.passUnretained(message).toOpaque()), callbacks.pointer)
      call.watch.end()
    }
  }

  /// Some small messages are taken before they are waited for, so that a thread that receives one after the other
  /// drives one turn for many.
  public override func callOffersMessage() {
    guard !isCallbackStyle, !kind.receivesOne else { return }
    lock.lock()
    let takes = demanded == 0 && !discards && received.count < ClientCall.readAhead
    if takes { demanded = 1 }
    lock.unlock()
    if takes { call.perform(.demand(1)) }
  }

  public override func callSent(_ count: Int) {
    lock.lock()
    if kind.sendsOne {
      bytesInFlight = 0
    } else {
      for _ in 0..<count { bytesInFlight -= sizesInFlight.popFirst() ?? 0 }
    }
    unlock(andWake: .room)
    if let callbacks, let sent = callbacks.onSent {
      call.watch.begin(call.id, .sent)
      sent(handle, UInt64(count), callbacks.pointer)
      call.watch.end()
    }
  }

  public override func callDiscardsMessages() {
    let dropped = lock.withLock { () -> (ShortQueue<Message>, Message?) in
      let all = received
      received = ShortQueue()
      return (all, answer.take())
    }
    withExtendedLifetime(dropped) {}
  }

  public override func callNeeds(_ executor: any Executor) {
    lock.lock()
    let isNew = !needed.contains { $0 === executor }
    guard isNew else { return lock.unlock() }
    needed.append(executor)
    // Who waits on its thread waits in vain.
    unlock(andWake: .end)
  }

  public override func callStatus(_ status: Status) {
    borrow(channel.runtime.live) { $0.remove(self) }
    leaveFamily()
    var visited: [ClientChannel] = []
    lock.lock()
    if !guests.isEmpty { swap(&visited, &guests) }
    let ended = Reply(status, generation, call)
    swap(&ended.headers, &headers)
    swap(&ended.message, &answer)
    let handed = OpaquePointer(Unmanaged.passUnretained(ended).toOpaque())
    reply = consume ended
    unlock(andWake: .end)
    withExtendedLifetime(visited) {}
    if let callbacks {
      call.watch.begin(call.id, .status)
      // The call keeps it.
      callbacks.onReply?(handle, handed, callbacks.pointer)
      if userData != nil { userData = nil }
      call.watch.end()
    }
    driver._withUnsafeGuaranteedRef { runtime in
      if isCallbackStyle { runtime.endBackground() }
      runtime.endCall()
    }
  }

  // MARK: - What users ask for, on any thread

  public var ended: Reply? { lock.withLock { reply } }

  public func cancel(_ reason: ByteView) {
    if ended != nil { return }
    call.submit(.endLocally(Status(.cancelled, reason)))
  }

  public func demand(_ count: UInt64) -> Outcome {
    guard isCallbackStyle else { return .state }
    guard ended == nil else { return .gone }
    if !kind.receivesOne { call.submit(.demand(ClientCall.clamped(count))) }
    return .ok
  }

  /// Demand is counted in an Int, many times over without overflow.
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
    // Not copied in vain; the one message of a kind that sends one has room.
    if !kind.sendsOne || bytes.count > maxSendBytes {
      let checked = lock.withLock { checkSend(bytes.count) }
      guard checked == .ok else { return checked }
    }
    guard let message = ByteBuffer(copying: bytes) else { return .noMemory }
    return queue(message)
  }

  /// Queues the message if there is room; else it is the caller's to keep.
  public func trySend(_ message: Message) -> Outcome { queue(message) }

  private func queue(_ message: consuming Message) -> Outcome {
    lock.lock()
    let outcome = queueLocked(message)
    lock.unlock()
    return outcome
  }

  /// Within the lock, so that messages of several threads keep the order in which they were counted.
  private func queueLocked(_ message: consuming Message) -> Outcome {
    let count = message.count
    let outcome = checkSend(count)
    if outcome == .ok {
      let cost = count + ClientCall.messageOverhead
      if !kind.sendsOne { sizesInFlight.append(cost) }
      bytesInFlight += cost
      sentMessages += 1
      call.submit(.send(consume message))
    }
    return outcome
  }

  /// Of what there is room for now.
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
    // What is too large is not copied.
    guard bytes.count <= maxSendBytes else { return lock.withLock { checkSend(bytes.count) } }
    guard let message = ByteBuffer(copying: bytes) else { return .noMemory }
    return send(message)
  }

  public func send(_ message: Message) -> Outcome {
    var found: AnyObject? = message
    return wait(for: .room, &found)
  }

  /// A kind with one request message has said all once that is sent: whoever waits for the answer need not
  /// say so.
  private func closeWhenSaid() {
    guard kind.sendsOne else { return }
    lock.lock()
    let closes = sentMessages == 1 && !isHalfClosed && reply == nil
    if closes { isHalfClosed = true }
    lock.unlock()
    if closes { call.submit(.halfClose) }
  }

  /// Blocking style: the next message, or `.end`.
  public func receive() -> (Outcome, Message?) {
    guard !isCallbackStyle else { return (.state, nil) }
    closeWhenSaid()
    var found: AnyObject?
    let outcome = wait(for: .message, &found)
    return (outcome, found.map { unsafeDowncast($0, to: Message.self) })
  }

  private func takeMessage() -> Message? {
    guard kind.receivesOne else { return received.popFirst() }
    // It stays for the reply.
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

  /// Blocking style: half-closes, discards what is unread, waits for the end.
  public func finish() -> (Outcome, Reply?) {
    guard !isCallbackStyle else { return (.state, nil) }
    if isOnDrivingThread { return ended.map { (.ok, $0) } ?? (.wouldDeadlock, nil) }
    lock.lock()
    let closes = !isHalfClosed && reply == nil
    isHalfClosed = true
    let begins = !discards && !kind.receivesOne && reply == nil
    discards = discards || !kind.receivesOne
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

  /// A unary call, whole, after `make`. A signal that is not to be ignored cancels it.
  /// `message` is taken over; the reply is one reference.
  public func unary(_ message: Unmanaged<Message>, _ options: CallOptions?) -> (Outcome, Unmanaged<Reply>?) {
    isWhole = true
    // Hops lead other threads to a call as it ends.
    let isShared = call.chain != nil
    call.isBrief = !isShared && call.codec == nil && call.request.settings.credentials == nil
    let waiter = CallWaiter(.end)
    waiters.add(waiter)
    open(message.takeRetainedValue())
    var nothing: AnyObject?
    var outcome = wait(with: waiter, isInterruptible, &nothing)
    while true {
      if outcome == .wouldDeadlock {
        cancel(("waited for on the thread of its executor" as StaticString).bytes)
      }
      guard outcome == .interrupted else {
        guard outcome == .ok else { return (outcome, nil) }
        // It has ended: if nobody else had it, only this thread has it.
        return (outcome, (isShared ? ended : reply.take()).map { .passRetained($0) })
      }
      guard let asked = options?.onInterrupted, asked.callback(asked.userData.pointer) == 0 else {
        cancel(("interrupted" as StaticString).bytes)
        _ = waitForEnd(interruptible: false)
        return (.interrupted, nil)
      }
      outcome = wait(for: .end, &nothing)
    }
  }

  /// What the call's hops share, too.
  public func value(_ key: ByteView) -> UnsafeMutableRawPointer? { call.knownValues?.get(key) }

  public func setValue(_ key: ByteView, _ value: UserData?) -> Outcome {
    let values = call.values
    // Made after the end, they are the reply's all the same.
    ended?.adopt(values)
    return values.set(key, value) ? .ok : .noMemory
  }

  // MARK: - Waiting

  private var isOnDrivingThread: Bool { runtime.isDriving }

  /// nil: it is to be waited for. Under the lock. `found` is the message that is to be sent, or becomes what has come: a
  /// message, headers, or the reply.
  private func look(for awaited: Awaited, _ found: inout AnyObject?) -> Outcome? {
    switch awaited {
    case .room:
      guard let found else { return .ok }
      let outcome = queueLocked(unsafeDowncast(found, to: Message.self))
      return outcome == .wouldBlock ? nil : outcome
    case .message:
      found = takeMessage()
      if found != nil { return .ok }
      if reply != nil || discards { return .end }
      if demanded == 0, !kind.receivesOne {
        demanded = 1
        call.submit(.demand(1))
      }
      return nil
    case .headers:
      found = headers ?? reply?.headers
      return found != nil ? .ok : reply != nil ? .end : nil
    case .end:
      if !isWhole { found = reply }
      return reply != nil ? .ok : nil
    }
  }

  /// Until there is an outcome. It is looked for again after whatever the call tells of what is awaited.
  private func wait(for awaited: Awaited, interruptible: Bool? = nil, _ found: inout AnyObject?) -> Outcome {
    lock.lock()
    var outcome = look(for: awaited, &found)
    if outcome == nil, isOnDrivingThread { outcome = .wouldDeadlock }
    if outcome == nil, needsThisThread { outcome = .wouldDeadlock }
    if let outcome {
      lock.unlock()
      return outcome
    }
    let waiter = CallWaiter(awaited)
    waiters.add(waiter)
    lock.unlock()
    return wait(with: waiter, interruptible ?? isInterruptible, &found)
  }

  /// The same, by a waiter that is among the call's, and is taken out.
  private func wait(with waiter: CallWaiter, _ interruptible: Bool, _ found: inout AnyObject?) -> Outcome {
    // A worker runs what the call's synchronous interceptors have to do, and does not do the host program's work.
    let attendant = call.withItem { $0.attend(waiter) }
    defer { if let attendant { channel.runtime.workers.leave(call.item, attendant) } }
    while true {
      if let attendant { channel.runtime.workers.serve(call.item, attendant) }
      let result = driver._withUnsafeGuaranteedRef { runtime in
        runtime.wait(
          for: waiter, deadline: nil, interruptible: interruptible,
          mayDrive: attendant == nil || runtime.options.mode == .thread)
      }
      // Set at the end alone, and nobody else has the call.
      if isWhole, result == .ready, attendant == nil, !call.mayBeSeen { return .ok }
      lock.lock()
      var outcome = look(for: waiter.awaited, &found)
      if outcome == nil {
        switch result {
        case .ready, .timedOut: outcome = needsThisThread ? .wouldDeadlock : nil
        case .interrupted: outcome = .interrupted
        case .wouldDeadlock: outcome = .wouldDeadlock
        case .closed: outcome = .closed
        }
      }
      if outcome != nil {
        waiters.remove(waiter)
      } else {
        waiter.reset()
        waiters.renew(waiter)
      }
      lock.unlock()
      if let outcome { return outcome }
    }
  }

  /// While this thread waits, a hop's callbacks can't run, and so the call can't end. Under the lock.
  private var needsThisThread: Bool { !needed.isEmpty && needed.contains { $0.isOnThisThread } }

  /// With the lock held.
  private func unlock(andWake news: Awaited) {
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
