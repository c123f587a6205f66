import CSystem
import PenstockCall
import PenstockWire
import Synchronization

/// A call as its user sees it: in blocking style messages that arrive are queued here for the threads that wait; in
/// callback style it is handed on at once.
public final class ClientCall: CallAbove, @unchecked Sendable {
  public let call: Call
  public let channel: ClientChannel
  /// The channel's, which is kept.
  let driver: Unmanaged<Runtime>
  var runtime: Runtime { driver.takeUnretainedValue() }
  public let generation: UInt64
  public var kind: CallKind { call.request.kind }
  let createdAt: UInt64
  var isCallbackStyle: Bool { callbacks != nil }

  // The driving thread's.
  var nextLive: Unmanaged<ClientCall>?
  var previousLive: Unmanaged<ClientCall>?
  /// nil in blocking style.
  private let callbacks: CallCallbacks.Table?
  /// The user data of the callbacks, until the end.
  private var userData: UserData?
  /// Used by SideCalls.swift.
  var family = Family()

  // Under the lock.
  let lock = Lock()
  var waiters = CallWaiters()
  /// Executors without which the call does not end.
  var needed: [any Executor] = []
  var received = ShortQueue<Message>()
  /// The message of a unary call, until its first run.
  private var question: Message?
  /// The one message of a kind that has one, until the reply has it.
  var answer: Message?
  var demanded = 0
  /// The response's headers, until the reply has them.
  var headers: Metadata?
  var reply: Reply?
  /// The sizes of messages in flight, without the one message of a kind that has one.
  var sizesInFlight = ShortQueue<Int>()
  /// Their bytes, with the overhead of each; without the one message of a kind that has one.
  var bytesInFlight = 0
  var sentMessages = 0
  /// The channels that hops have redirected the call to; kept until the end.
  private var guests: [ClientChannel] = []
  /// The thread that has made the call by `unary` and waits for it: nobody else has it, or asks for anything before the
  /// end, but that its options' `cancel` submits the end. 0: none.
  var wholeThread: UInt = 0
  var isWhole: Bool { wholeThread != 0 }
  let sendBufferBytes: Int
  let sendsAhead: Bool
  let maxSendBytes: Int
  /// No message is delivered any more. Set under the lock; callback style looks without.
  let discards = Atomic<Bool>(false)
  var isHalfClosed = false
  /// Whether `answer` has been received.
  var hasAnswered = false
  let isInterruptible: Bool

  /// Users' handles; with the last one a call in blocking style that has not ended is cancelled.
  private let handles = Atomic<Int>(1)

  /// How many messages of a stream wait for a blocking `receive` that have not been asked for.
  private static let readAhead = 64

  /// Makes a call, with one reference, which is the caller's.
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
    let metadata = line == nil && options?.metadata.count ?? 0 == 0 ? Metadata.none : Metadata()
    if let given = options?.metadata, !metadata.append(contentsOf: given) { return (.noMemory, nil) }
    let now = channel.runtime.runtime.clock
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
    if call.request.kind.sendsOne, given?.table.onSent == nil { call.manner = .untold }
    userData = given?.userData
    self.call = call
    super.init()
    let me = Unmanaged.passUnretained(self)
    borrow(self.call) { call in call.withItem { $0.attach(me) } }
  }

  deinit { letValuesGo() }

  @inline(never)
  private func letValuesGo() { call.knownValues?.letGo() }

  /// Any thread, once.
  public func open() {
    prepare(nil)
    driver._withUnsafeGuaranteedRef { runtime in call.withItem { _ = runtime.post($0) } }
  }

  /// The steps before the first run, which `driver` is to be given. The message of a unary call goes with it.
  func prepare(_ message: consuming Message?) {
    // Counted until the end, on the driving thread: a runtime does not end over it, and a shutdown waits for
    // it.
    driver._withUnsafeGuaranteedRef { runtime in
      runtime.beginCall()
      if isCallbackStyle { runtime.beginBackground() }
    }
    call.attach(above: self)
    if message != nil { isHalfClosed = true }
    question = consume message
    call.awaitOpen()
    call.withItem { $0.awaitFirstRun(call) }
  }

  /// The call may end here, and let it go.
  func firstRun() {
    driver._withUnsafeGuaranteedRef { $0.advance(to: createdAt) }
    borrow(channel.runtime.live) { $0.add(self) }
    call.attach(below: channel.transport.newAttempt())
    if channel.isClosed || family.parent != nil, !beginsWithOthers() { return }
    // Its options were cancelled before it began: the input that ends it is there.
    if isWhole, question == nil { return }
    borrow(call) { $0.open(question.take()) }
  }

  @inline(never) @_optimize(size)
  private func beginsWithOthers() -> Bool {
    let kept = Unmanaged.passRetained(self)
    defer { kept.release() }
    if channel.isClosed {
      let closing = channel.runtime.isClosed ? channel.runtime.runtime.closing : .channelClosed
      call.perform(.endLocally(closing.status))
    }
    joinFamily()
    return !call.isEnded
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

  // MARK: - News from the call, on the driving thread

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
      } else if !isDiscarding {
        received.append(message)
      }
      unlock(andWake: .message)
    }
    if let callbacks, let told = callbacks.onMessage, !isDiscarding {
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
    let takes = demanded == 0 && !isDiscarding && received.count < ClientCall.readAhead
    if takes { demanded = 1 }
    lock.unlock()
    if takes { call.perform(.demand(1)) }
  }

  public override func callSent(_ count: Int) {
    lock.lock()
    for _ in 0..<count { bytesInFlight -= sizesInFlight.popFirst() ?? 0 }
    unlock(andWake: .room)
    if let callbacks, let sent = callbacks.onSent {
      call.watch.begin(call.id, .sent)
      sent(handle, UInt64(count), callbacks.pointer)
      call.watch.end()
    }
  }

  public override func callDiscardsMessages() {
    let dropped = lock.withLock { (takeUnread(), answer.take()) }
    withExtendedLifetime(dropped) {}
  }

  public override func callNeeds(_ executor: any Executor) {
    lock.lock()
    let isNew = !needed.contains { $0 === executor }
    guard isNew else { return lock.unlock() }
    needed.append(executor)
    // A waiter on that executor's own thread waits in vain.
    unlock(andWake: .end)
  }

  public override func callStatus(_ status: Status) {
    borrow(channel.runtime.live) { $0.remove(self) }
    leaveFamily()
    // A unary call whose thread drives: nobody else has it.
    let isAlone = isWhole && !call.mayBeSeen && wholeThread == UInt(cs_thread_self())
    var visited: [ClientChannel] = []
    if !isAlone { lock.lock() }
    if !guests.isEmpty { swap(&visited, &guests) }
    // Within the lock: a value that another thread sets is in the reply that this makes, or comes to it afterwards.
    let ended = Reply(status, generation, call)
    swap(&ended.headers, &headers)
    swap(&ended.message, &answer)
    let handed = OpaquePointer(Unmanaged.passUnretained(ended).toOpaque())
    reply = consume ended
    if isAlone { waiters.setAlone() } else { unlock(andWake: .end) }
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
}
