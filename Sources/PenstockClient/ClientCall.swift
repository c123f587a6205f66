import CPenstockMemory
import CPenstockSystem
import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockLink
import PenstockTransport

/// A call as its user sees it. In blocking style, `received` queues the messages that arrive until a thread
/// receives them. In callback style, each message goes to the callback at once.
public final class ClientCall: CallAbove, @unchecked Sendable {
  public let call: Call
  public let channel: ClientChannel
  /// The runtime of the channel's loop. The reference is not counted, because `channel` holds the loop.
  let driver: Unmanaged<Runtime>
  var runtime: Runtime { driver.takeUnretainedValue() }
  public let generation: UInt64
  public var kind: CallKind { call.request.kind }
  let createdAt: UInt64
  var isCallbackStyle: Bool { callbacks != nil }

  // The links of the loop's list of live calls. Only the driving thread uses them.
  var nextLive: Unmanaged<ClientCall>?
  var previousLive: Unmanaged<ClientCall>?
  /// Whether the user takes the messages of a call in callback style, instead of being handed them.
  var queuesMessages: Bool { callbacks?.onReadable != nil }
  /// The user's callbacks; nil in blocking style.
  private let callbacks: CallCallbacks.Table?
  /// The user data of the callbacks. It is released when the call ends.
  private var userData: UserData?
  /// The scope that can cancel the call, and the call's place in the list of that scope, which the scope's lock guards.
  private let scope: CancelScope?
  var placeInScope: Int?
  /// Whether the scope was cancelled before the call began.
  private var beginsCancelled = false
  /// The links to the call's parent and to its side calls, which its hops make (SideCalls.swift).
  var sideLinks = SideCallLinks()

  // The lock, and the fields that it guards.
  let lock = Lock()
  var waiters = CallWaiters()
  /// The conditions that a waiting thread has to check; nil: there are none.
  var care: WaitCare?
  var received = ShortQueue<Message>()
  /// The request message of `unary`, until `firstRun` sends it.
  private var firstMessage: Message?
  /// The response message of a call that has exactly one, until the call ends and the reply takes it over.
  var answer: Message?
  var demanded = 0
  /// The response's headers, until the call ends and the reply takes them over.
  var headers: Metadata?
  var reply: Reply?
  /// The bytes of the send buffer that each message in flight takes, oldest message first: the message's size
  /// and an overhead. The only message of a unary or server stream call is not in the list.
  var sizesInFlight = ShortQueue<Int>()
  /// The sum of `sizesInFlight`.
  var bytesInFlight = 0
  var sentMessages = 0
  /// The channels that hops have redirected the call to. The call holds them until its end.
  private var redirectChannels: [ClientChannel] = []
  /// The id of the thread that has made the call by `unary` and waits for its end; 0: the call was not made
  /// by `unary`.
  var unaryThread: UInt = 0
  /// Whether the call was made by `unary`, so that the user has no handle of it. Before the end, other
  /// threads can reach such a call in two ways only: its scope submits an end, and a hop gives
  /// access to the call, if the call was made with hops (`Call.wasMadeWithHops`).
  var hasNoHandle: Bool { unaryThread != 0 }
  /// How functions of synchronous interceptors are interrupted on a thread that waits for the call. nil: the call has no
  /// hops, or is not interruptible.
  let interruption: FunctionInterruption?
  let sendBufferBytes: Int
  let sendsAhead: Bool
  let maxSendBytes: Int
  /// Whether messages that arrive are dropped instead of delivered. Set under the lock; callback style reads
  /// it without the lock.
  let discards = Atomic<Bool>(false)
  var isHalfClosed = false
  /// Whether the user has received `answer`, or can't receive it any more because the call was cancelled.
  var hasAnswered = false
  let isInterruptible: Bool

  /// The number of handles that the user has. When the last handle is released, a call in blocking style that
  /// has not ended is cancelled.
  private let handles = Atomic<Int>(1)

  /// The most messages of a stream that the call takes from the transport before a blocking `receive` asks
  /// for them.
  private static let readAhead = 64

  /// Makes a call. The caller owns the one reference to it.
  public static func make(
    _ channel: ClientChannel, _ path: ByteView, _ kind: CallKind, _ options: CallOptions?,
    _ callbacks: consuming CallCallbacks?
  ) -> (Outcome, Unmanaged<ClientCall>?) {
    var (found, named) = find(path, channel)
    guard let named = named.take() else { return (found, nil) }
    let line = channel.chains.chain(path, kind, of: channel.runtime, with: options?.interceptors)
    return make(channel, named, kind, options, consume callbacks, line)
  }

  /// Checks the path of a new call, and returns the channel's shared copy of the path. nil: no call can be
  /// made; the outcome is the reason.
  /// `mayDrain`: a channel that waits for its last calls counts as open, because the call is a part of one of them.
  static func find(_ path: ByteView, _ channel: ClientChannel, mayDrain: Bool = false) -> (
    Outcome, ByteBuffer?
  ) {
    guard mayDrain ? !channel.isClosed : channel.isOpen else { return (.closed, nil) }
    return cm_is_low() == 0 ? channel.paths.find(path) : (.noMemory, nil)
  }

  static func make(
    _ channel: ClientChannel, _ named: consuming ByteBuffer, _ kind: CallKind, _ options: CallOptions?,
    _ callbacks: consuming CallCallbacks?, _ line: Chain?
  ) -> (Outcome, Unmanaged<ClientCall>?) {
    let metadata = line == nil && options?.metadata.count ?? 0 == 0 ? Metadata.none : Metadata()
    if let given = options?.metadata, !metadata.append(contentsOf: given) { return (.noMemory, nil) }
    let now = channel.loop.runtime.clock
    var deadline: UInt64?
    if let wanted = options?.hasDeadline == true ? options?.deadline : channel.defaults.deadline {
      let (time, overflow) = now.addingReportingOverflow(wanted)
      deadline = overflow ? nil : time
    }
    let request = Request(
      kind: kind, terminated: consume named, metadata: consume metadata, deadline: deadline)
    request.settings = options?.settings(channel.defaults) ?? channel.defaults.settings
    if channel.methods.isInUse {
      channel.methods.apply(to: request, waitsForReady: options?.waitsForReady, now: now)
    }
    if let authority = options?.authority, !request.setAuthority(authority.view) { return (.noMemory, nil) }
    if let labels = options?.labels { request.takeLabels(of: labels) }
    let events = options?.traceEvents ?? channel.defaults.traceEvents
    let call = Call(
      id: Process.nextID(), request: consume request, chain: line,
      origin: channel.origin, attachment: CallItem(.passUnretained(channel.runtime.workers)),
      trace: events > 0 ? TraceLog(line, events) : nil)
    call.measures.createdAt.set(now)
    if let context = options?.context { call.give(context) }
    let codec = options?.codec
    if codec != nil || channel.formsCalls { channel.form(call, codec) }
    return (.ok, .passRetained(ClientCall(call, channel, options, consume callbacks)))
  }

  /// Inlined, so that the references that `make` holds move into the object without reference counting.
  @inline(__always)
  private init(
    _ call: Call, _ channel: borrowing ClientChannel, _ options: CallOptions?,
    _ callbacks: consuming CallCallbacks?
  ) {
    cm_call_begins()
    let given = consume callbacks
    self.channel = copy channel
    driver = .passUnretained(channel.loop.runtime)
    self.callbacks = given?.table
    createdAt = call.measures.createdAt.value
    generation = channel.generation
    isInterruptible = options?.isInterruptible ?? false
    interruption =
      isInterruptible && call.wasMadeWithHops ? FunctionInterruption(options?.onInterrupted) : nil
    sendBufferBytes = options?.sendBufferBytes ?? CallOptions.sendBuffer
    sendsAhead = call.request.kind == .clientStream && options?.sendBufferBytes == nil
    maxSendBytes = call.request.settings.maxSendBytes
    if call.request.kind.sendsOne, given?.table.onSent == nil { call.manner = .untold }
    userData = given?.userData
    scope = options?.scope
    self.call = call
    super.init()
    let me = Unmanaged.passUnretained(self)
    borrow(self.call) { call in call.withItem { $0.attach(me) } }
  }

  deinit {
    cm_call_ends()
    // A call of the parent has not ended in a forked child.
    scope?.ended(self)
    letValuesGo()
  }

  private func letValuesGo() { call.knownValues?.letGo() }

  /// Opens the call: posts its first run to the loop. Any thread, once.
  public func open() {
    prepare(nil)
    driver._withUnsafeGuaranteedRef { runtime in call.withItem { _ = runtime.post($0) } }
  }

  /// Opens a side call with its whole request. The size of the message is checked below the last hop, by the settings
  /// of that request. nil: there is no message.
  public func open(saying message: consuming Message?) {
    guard let message else {
      open()
      _ = halfClose()
      return
    }
    sentMessages = 1
    prepare(message)
    driver._withUnsafeGuaranteedRef { runtime in call.withItem { _ = runtime.post($0) } }
  }

  /// Prepares `firstRun`. The caller then posts the call's item to `driver`. `message`: the request message
  /// of `unary`, which `firstRun` sends and then half-closes the call; nil: the call was not made by `unary`.
  func prepare(_ message: consuming Message?) {
    // The runtime counts the call from here until its end. A runtime with a counted call does not end by
    // itself, and a shutdown waits for the call.
    driver._withUnsafeGuaranteedRef { runtime in
      runtime.beginCall()
      if isCallbackStyle { runtime.beginBackground() }
    }
    call.attach(above: self)
    if message != nil { isHalfClosed = true }
    firstMessage = consume message
    call.awaitOpen()
    call.withItem { $0.awaitFirstRun(call) }
    if let scope { beginsCancelled = !scope.began(self) }
  }

  /// The first step of the call, on the driving thread. The call may end and be freed within this function.
  func firstRun() {
    driver._withUnsafeGuaranteedRef { $0.advance(to: createdAt) }
    borrow(channel.loop.live) { $0.add(self) }
    call.attach(below: channel.transport.newAttempt())
    if cm_is_low() != 0 { return endForLackOfMemory() }
    if channel.isClosed || sideLinks.parent != nil, !beginsWithOthers() { return }
    // The call is not opened. The input that ends it, which its scope has submitted, runs next.
    if beginsCancelled { return }
    borrow(call) { $0.open(firstMessage.take()) }
  }

  /// Ends a call that has not begun: thousands of calls that begin would use up the memory that the others need to end.
  private func endForLackOfMemory() {
    let retained = Unmanaged.passRetained(self)
    defer { retained.release() }
    call.perform(.endLocally(Status(.resourceExhausted, "no memory to begin the call")))
  }

  private func beginsWithOthers() -> Bool {
    let retained = Unmanaged.passRetained(self)
    defer { retained.release() }
    if channel.isClosed {
      let closing = channel.loop.isClosed ? channel.loop.runtime.closing : .channelClosed
      call.perform(.endLocally(closing.status))
    }
    attachToParent()
    return !call.isEnded
  }

  // MARK: - Redirect

  /// Keeps a channel alive that the call was redirected to, until the call ends. Any thread. False: the call
  /// has ended already.
  func retainChannel(_ other: ClientChannel) -> Bool {
    lock.withLock {
      if reply == nil { redirectChannels.append(other) }
      return reply == nil
    }
  }

  // MARK: - Handles

  /// The handle that callbacks get. It is borrowed: valid during the callback only, unless the callback
  /// retains it.
  var handle: OpaquePointer { OpaquePointer(Unmanaged.passUnretained(self).toOpaque()) }

  /// Adds one to the number of handles. True: the number was 0. This happens if a callback retains its handle
  /// after the user has released the last one. The caller then has to retain the call again, because all
  /// handles share one reference.
  public func retainHandle() -> Bool { handles.wrappingAdd(1, ordering: .relaxed).oldValue == 0 }

  /// Subtracts one from the number of handles. True: it was the last handle, and the caller has to release
  /// the reference that all handles share.
  public func releaseHandle() -> Bool {
    guard handles.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0 else { return false }
    if !isCallbackStyle, !Process.isForked(generation) { cancel(("released" as StaticString).bytes) }
    return true
  }

  // MARK: - News from the call, on the driving thread

  public override func callHeaders(_ headers: Metadata) {
    // In callback style, or without a handle, no other thread reads the headers before the end, so no lock is
    // needed.
    if hasNoHandle || isCallbackStyle {
      self.headers = headers
    } else {
      lock.lock()
      self.headers = headers
      unlock(andWake: .headers)
    }
    if let callbacks, let told = callbacks.onHeaders {
      call.watch.begin(call.id, .headers)
      let began = call.callbackBegins
      told(handle, OpaquePointer(Unmanaged.passUnretained(headers).toOpaque()), callbacks.pointer)
      call.watch.end()
      call.callbackEnded(began, .headers)
    }
  }

  public override func callMessage(_ message: Message) {
    if queuesMessages { return queueMessage(message) }
    if hasNoHandle || isCallbackStyle {
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
      let began = call.callbackBegins
      told(handle, OpaquePointer(Unmanaged.passUnretained(message).toOpaque()), callbacks.pointer)
      call.watch.end()
      call.callbackEnded(began, .receive)
    }
  }

  /// Callback style with `onReadable`: queues the message, and tells the user if it is the only one there.
  private func queueMessage(_ message: Message) {
    lock.lock()
    let tells = !isDiscarding && received.count == 0
    if kind.receivesOne {
      answer = message
    } else if !isDiscarding {
      received.append(message)
    }
    lock.unlock()
    if tells, let callbacks, let told = callbacks.onReadable {
      call.watch.begin(call.id, .receive)
      let began = call.callbackBegins
      told(handle, callbacks.pointer)
      call.watch.end()
      call.callbackEnded(began, .receive)
    }
  }

  /// Takes up to `readAhead` messages before a thread asks for them. So a thread that receives many messages
  /// in a row needs only one turn of the loop for all of them.
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
    var sent = 0
    for _ in 0..<count { sent += sizesInFlight.popFirst() ?? 0 }
    bytesInFlight -= sent
    channel.sendBudget?.giveBack(sent)
    unlock(andWake: .room)
    if let callbacks, let sent = callbacks.onSent {
      call.watch.begin(call.id, .sent)
      let began = call.callbackBegins
      sent(handle, UInt64(count), callbacks.pointer)
      call.watch.end()
      call.callbackEnded(began, .sent)
    }
  }

  public override func callDiscardsMessages() {
    let dropped = lock.withLock { (takeUnread(), answer.take()) }
    withExtendedLifetime(dropped) {}
  }

  public override func callNeeds(_ executor: any Executor) {
    lock.lock()
    guard takesCare().note(executor) else { return lock.unlock() }
    // Wakes all waiters. A waiting thread of this executor must return, because the call can't end before the
    // executor has run its callback (`needsThisThread`).
    unlock(andWake: .end)
  }

  /// Under the lock.
  private func takesCare() -> WaitCare {
    if let care { return care }
    let made = WaitCare()
    care = made
    return made
  }

  public override func callTakesTurns() {
    lock.lock()
    let care = takesCare()
    care.takesTurns = true
    guard !isHalfClosed, !care.isPromised else {
      // Wakes all waiters. From now on they check how long no message has been sent.
      return unlock(andWake: .end)
    }
    let isAwaited = waiters.isAwaited(.message) || waiters.isAwaited(.headers)
    lock.unlock()
    // This comes behind the inputs that were posted before, such as a message at which a hop half-closes the call.
    if isAwaited { call.submit(.awaited) }
  }

  public override func callTakesEarlyMessage() -> Bool {
    lock.withLock {
      if isHalfClosed || takesCare().isPromised { return true }
      // In blocking style the message waits until a thread asks for it.
      return !isCallbackStyle && !waiters.isAwaited(.message) && !waiters.isAwaited(.headers)
    }
  }

  /// Notes the user's promise that another thread will half-close the call, and will not wait for a message
  /// before that. Any thread.
  public func promiseHalfClose() -> Outcome {
    lock.withLock {
      if reply != nil { return .gone }
      if kind == .bidi { takesCare().isPromised = true }
      return .ok
    }
  }

  public override func callStatus(_ status: Status) {
    borrow(channel.loop.live) { $0.remove(self) }
    scope?.ended(self)
    endSideCalls()
    // If `needsNoLock`, the thread that has made the call is the driver, and no other thread can reach the
    // call.
    let needsNoLock = hasNoHandle && !call.wasMadeWithHops && unaryThread == UInt(cs_thread_self())
    var visited: [ClientChannel] = []
    if !needsNoLock { lock.lock() }
    if !redirectChannels.isEmpty { swap(&visited, &redirectChannels) }
    // The reply is made under the lock. A value that another thread sets at the same time is then either in
    // the reply already, or that thread adds it to the reply afterwards.
    let ended = Reply(status, generation, call)
    swap(&ended.headers, &headers)
    swap(&ended.message, &answer)
    let handed = OpaquePointer(Unmanaged.passUnretained(ended).toOpaque())
    reply = consume ended
    channel.sendBudget?.giveBack(bytesInFlight)
    bytesInFlight = 0
    sizesInFlight = ShortQueue()
    if needsNoLock { waiters.setUnshared() } else { unlock(andWake: .end) }
    withExtendedLifetime(visited) {}
    if let callbacks {
      call.watch.begin(call.id, .status)
      let began = call.callbackBegins
      // `handed` is valid during the callback, because the call holds the reply.
      callbacks.onReply?(handle, handed, callbacks.pointer)
      if userData != nil { userData = nil }
      call.watch.end()
      call.callbackEnded(began, .status)
    }
    driver._withUnsafeGuaranteedRef { runtime in
      if isCallbackStyle { runtime.endBackground() }
      runtime.endCall()
    }
  }
}
