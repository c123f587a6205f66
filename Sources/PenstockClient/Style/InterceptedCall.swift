import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockLink
import PenstockHTTP
import PenstockTransport

/// A user's function that intercepts calls in synchronous style, and the function's user data.
public final class SyncInterceptor {
  public typealias Function = @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Int32

  let function: Function
  let userData: UserData
  /// The name of the interceptor, and the filter for its methods. Each has a NUL at its end.
  public let name: ByteBuffer
  public let methods: ByteBuffer?

  public init(_ function: @escaping Function, _ userData: UserData, name: ByteBuffer, methods: ByteBuffer?) {
    self.function = function
    self.userData = userData
    self.name = name
    self.methods = methods
  }
}

/// One synchronous interceptor in one call: the state of its hop, and the orders that the user's function
/// gives through a `SyncHop`.
///
/// Two threads work on this object. On the driving thread the hop's callbacks (HopCallbacks.swift) stop the
/// events that the function should see, and offer the function to the threads that may run it (WorkerPool.swift).
/// One of them runs it. It sees a copy of the start, because other code may read the start at the same time. It sees the
/// events of the response themselves. They wait at the hop, and no other code uses them until the function
/// has returned. The function's orders are posted to the driving thread and carried out there (`run`).
///
/// `@unchecked Sendable`: the comment above each group of fields names the thread or the lock that guards it.
public final class InterceptedCall: InboxItem, @unchecked Sendable {
  // Constants.
  /// The hop. Only the driving thread uses it, except for the functions of a hop that any thread may call.
  /// The hop holds this object until its `destroy` callback.
  let hop: Hop
  /// The interceptor. `userData`, the user data of its registration, holds the interceptor. So the user's
  /// finalizer runs only after the function has returned in all calls.
  unowned(unsafe) let interceptor: SyncInterceptor
  private let userData: UserData
  let registration: UInt64
  let item: CallItem
  let pool: WorkerPool
  /// The runtime of the call's loop. The reference is not counted, because `pool` holds the loop.
  unowned(unsafe) let runtime: Runtime
  let kind: CallKind
  /// The codec, if the function sees messages as objects; nil: it sees bytes.
  let codec: Codec?
  /// The values that the call and its hops share. They have a lock of their own.
  private let values: CallValues
  /// The pointer that the program has given to the call. It is kept, because the function may run on after
  /// the call's end.
  let context: UserData?

  // The state of the worker pool, under the pool's lock.
  /// `open`: the function is offered to the workers, and no worker has begun to run it.
  enum Offer { case closed, open }
  var offer = Offer.closed
  var isQueued = false
  var nextQueued: InterceptedCall?
  var previousQueued: Unmanaged<InterceptedCall>?

  // The state of the hop. Only the driving thread uses it.
  enum Stage: Equatable {
    /// The start waits at the hop until the only request message arrives.
    case collecting
    /// The start waits at the hop, and the function is offered to the workers or runs.
    case offered
    /// The function has called `next`, and the start was passed on.
    case passed
    /// The response has arrived and waits at the hop.
    case responded
    /// The function has returned, or has ended the call. All events pass the hop from now on.
    case passing
    /// The function answers the call itself, instead of the server.
    case answering
    case over
  }
  var stage = Stage.collecting
  var tickets = OpenTickets()
  var answer: Answer?
  /// A response message that the function has set although the server has sent none. It is delivered before
  /// the status, as soon as the caller asks for a message.
  var lateResponse: Message?
  var isPumping = false
  /// Whether memory was lacking for the copy of the start. The call then ends.
  let isShort: Bool

  struct OpenTickets {
    var start: UInt64 = 0
    /// The ticket of the request message; if there is no message, the ticket of the half-close.
    var request: UInt64 = 0
    /// The ticket of a half-close behind a message.
    var halfClose: UInt64 = 0
    var headers: UInt64 = 0
    var response: UInt64 = 0
    var status: UInt64 = 0
  }

  struct Answer {
    var headers: Metadata?
    var messages: [Message]
    var status: Status
  }

  // The function uses these fields while it runs; before that, the driving thread uses them.
  /// A copy of the start, which `next` sends. Each further `next` sends the copy again, with all changes that
  /// the function has made to it.
  let start: Request
  /// Whether the function may have changed the start.
  private(set) var isChanged = false
  /// `request`: the request message that has arrived. `newRequest` and `newResponse`: the function's
  /// replacements for the request message and the response message.
  var request: Message?
  var newRequest: Message?
  var newResponse: Message?
  private var answers: [Message] = []
  private var answerHeaders: Metadata?
  private var hasCalledNext = false
  /// Whether the last `next` has returned with a response.
  private var hasSeenResponse = false
  private var hasEnded = false

  // The response. The driving thread writes it before it sets `hasResponse`. Afterwards the function uses it.
  var headers: Metadata?
  var response: Message?
  var status: Status?
  /// Headers and statuses from earlier calls of `next`. They are kept, because the function may still use
  /// them.
  var shownBefore: [AnyObject] = []
  /// The reason why a further `next` could not restart the call; nil: it could.
  var refusedAgain: Refusal?

  // The other fields are under the lock. A `Wish` is an order from the function to the driving thread.
  enum Wish {
    case next, again
    case answer(Answer)
    case end(Status)
    case letGo
  }
  private let lock = Lock()
  private var wish: Wish?
  private var deadlineWish: UInt64??
  private var hasResponse = false
  private var isOver = false
  private var endStatus: Status?
  private var cell: WaitCell?

  /// Called when the start event arrives at the hop.
  init(_ hop: Hop, _ interceptor: SyncInterceptor) {
    self.hop = hop
    self.interceptor = interceptor
    (registration, userData) = hop.registered
    item = hop.call.item
    hop.lend()
    let copied = hop.call.request.copy()
    isShort = copied == nil
    start = copied ?? hop.call.request
    pool = item.workers
    // The cast is safe, because `RuntimeLoop` is the only subclass of `CallLoop`.
    runtime = unsafeDowncast(hop.call.loop, to: RuntimeLoop.self).runtime
    kind = hop.call.request.kind
    codec = hop.codec
    values = hop.call.values
    values.hold()
    context = hop.call.context
  }

  deinit { values.letGo() }

  // MARK: - News for the function, from the driving thread

  /// Called when the response has arrived, or its first part if it is a stream. Makes `next` return.
  func respond() {
    stage = .responded
    lock.lock()
    hasResponse = true
    let waits = cell
    lock.unlock()
    waits?.set()
  }

  /// Called when other code than the interceptor's function has ended the call, or when the hop ends. Makes
  /// `next` return. If the function has not begun, it is not run any more. If it runs, its later calls of the
  /// hop's functions do nothing.
  func end(_ status: Status?) {
    guard stage != .over else { return }
    stage = .over
    let own = status?.copy()
    own?.isReadOnly = true
    lock.lock()
    endStatus = own
    isOver = true
    let waits = cell
    lock.unlock()
    waits?.set()
    pool.withdraw(self)
  }

  /// Carries out the function's last order.
  public override func run() {
    lock.lock()
    let wanted = wish
    wish = nil
    let deadline = deadlineWish
    deadlineWish = nil
    lock.unlock()
    guard stage != .over else { return }
    if let deadline, stage == .offered { hop.call.moveDeadline(to: deadline) }
    switch wanted {
    case nil: break
    case .next: passStart(hop)
    case .again: startAgain(hop)
    case .answer(let answer): begin(answer, hop)
    case .end(let status): finish(status, hop)
    case .letGo: letGo(hop)
    }
  }

  /// Called if the runtime ended before this item could run. Makes a waiting `next` return.
  public override func dropped(_ why: Closing) {
    lock.lock()
    isOver = true
    let waits = cell
    lock.unlock()
    waits?.set()
  }

  /// Called on any thread: no thread could be started to run the function.
  func endForLackOfThreads() { wishes(.end(InterceptedCall.noThread)) }

  static var noThread: Status {
    Status(.resourceExhausted, "no thread for a synchronous interceptor could be started")
  }

  private func wishes(_ wanted: Wish) {
    lock.withLock { wish = wanted }
    runtime.post(self)
  }

  // MARK: - The function, on its thread

  /// Runs the user's function. The caller holds a reference to this object.
  func execute() {
    let handle = SyncHop(self)
    let verdict = interceptor.function(handle.pointer, interceptor.userData.pointer)
    handle.close()
    let over = lock.withLock { isOver }
    if over || hasEnded { return }
    hasEnded = true
    if verdict != Verdict.next.rawValue {
      wishes(.end(broken("returned a value that its function may not return")))
    } else if !hasCalledNext {
      wishes(.end(broken("returned without calling next, ending the call or answering it")))
    } else {
      wishes(.letGo)
    }
  }

  /// The status (INTERNAL) of a call that ends because its interceptor has broken the rules for its functions
  /// (law 7 in docs/laws.md).
  func broken(_ what: StaticString) -> Status {
    Status(
      .internal, parts: ("interceptor '" as StaticString).bytes,
      ByteView(rebasing: interceptor.name.view.dropLast()),
      ("' " as StaticString).bytes, what.bytes)
  }

  /// Whether the function has not called `next` yet, so that it may change the start.
  var isBeforeNext: Bool { !hasCalledNext && !hasEnded }
  /// Whether `next` has returned a response, which the function may change.
  var isAfterNext: Bool { hasSeenResponse && !hasEnded }
  /// Whether other code has ended the call.
  private var isGone: Bool { lock.withLock { isOver } }

  /// Whether the calling thread drives a loop of the call's runtime. Such a thread must not wait.
  private var isOnDrivingThread: Bool {
    DrivingThread.isCurrent() && ClientCall.of(hop)?.channel.runtime.isDriving != false
  }

  /// Passes the start on, and waits for the response. A further `next`, after a status, restarts the call
  /// below the hop. While this thread waits, it runs other synchronous functions of the call.
  func next() -> Outcome {
    if hasEnded { return hop.refuse(.functionHasEnded) }
    let isAgain = hasCalledNext
    if isAgain {
      guard hasSeenResponse else { return .gone }
      guard status != nil else { return hop.refuse(.streamHasBegun) }
    }
    hasCalledNext = true
    hasSeenResponse = false
    start.metadata.isReadOnly = true
    if isGone { return .gone }
    let waits = WaitCell()
    lock.lock()
    cell = waits
    hasResponse = false
    lock.unlock()
    let attendant = pool.attend(item, waits, isInNext: true)
    let owner = ClientCall.of(hop)
    let isCallers = attendant?.worker.isCallers == true
    var isInterruptible = isCallers && owner?.interruptsFunctions == true
    wishes(isAgain ? .again : .next)
    while true {
      if let attendant { pool.serve(item, attendant) }
      if lock.withLock({ hasResponse || isOver }) { break }
      // A waiting worker of the pool does not drive a loop that the host program drives.
      let result =
        isOnDrivingThread
        ? .wouldDeadlock
        : runtime.wait(
          for: waits, deadline: nil, interruptible: isInterruptible,
          mayDrive: isCallers || runtime.options.mode == .thread)
      waits.reset()
      if result == .interrupted { isInterruptible = owner?.goesOnInFunction() == true }
      if result == .closed || result == .wouldDeadlock {
        lock.withLock { isOver = isOver || !hasResponse }
        break
      }
    }
    if let attendant { pool.leave(item, attendant) }
    lock.lock()
    cell = nil
    hasSeenResponse = hasResponse && !isOver
    lock.unlock()
    guard hasSeenResponse else { return .gone }
    start.metadata.isReadOnly = status == nil
    return refusedAgain.take().map { hop.refuse($0) } ?? .ok
  }

  /// Ends the call with `status`. The return value of the function is then ignored.
  func cancel(_ status: Status) -> Outcome {
    if hasEnded { return .already }
    hasEnded = true
    if isGone { return .gone }
    wishes(.end(status))
    return .ok
  }

  /// Answers the call instead of the server: with the headers and messages of earlier calls of `addAnswer`,
  /// and then with `status`.
  func answer(_ status: Status) -> Outcome {
    if hasEnded { return .already }
    guard !hasCalledNext else { return hop.refuse(.hasGoneOn) }
    hasEnded = true
    if isGone { return .gone }
    wishes(.answer(Answer(headers: answerHeaders, messages: answers, status: status)))
    return .ok
  }

  func addAnswer(_ headers: Metadata) -> Outcome {
    guard isBeforeNext else { return notBeforeNext }
    if answerHeaders != nil { return .already }
    guard answers.isEmpty else { return hop.refuse(.headersLate) }
    answerHeaders = headers
    return .ok
  }

  func addAnswer(_ message: Message) -> Outcome {
    guard fits(message) else { return otherForm }
    guard isBeforeNext else { return notBeforeNext }
    guard !kind.receivesOne || answers.isEmpty else { return hop.refuse(.secondMessage) }
    answers.append(message)
    return .ok
  }

  /// Whether the message has the form that the function sees: an object if the hop has a codec, otherwise
  /// bytes.
  private func fits(_ message: Message) -> Bool { message.isObject == (codec != nil) }
  private var otherForm: Outcome { hop.refuse(codec == nil ? .takesBytes : .takesObjects) }
  private var notBeforeNext: Outcome { hop.refuse(hasEnded ? .functionHasEnded : .hasGoneOn) }

  /// Whether the function can still call `next`, so that it may change the start.
  private var isBeforeStart: Bool { isBeforeNext || isAfterNext && status != nil }
  private var notBeforeStart: Outcome { hop.refuse(hasEnded ? .functionHasEnded : .streamHasBegun) }

  /// Changes the copy of the start that `next` will send.
  func edit(_ change: (Request) -> Outcome) -> Outcome {
    guard isBeforeStart else { return notBeforeStart }
    isChanged = true
    return change(start)
  }

  /// Calls `edit` with the record of the request messages, if `next` has returned a status.
  func editRecord(_ edit: (Cut) -> Outcome) -> Outcome {
    guard isBeforeStart else { return notBeforeStart }
    guard !isBeforeNext else { return hop.refuse(.startNotLeft) }
    return isGone ? .gone : hop.editRecord(start, status, edit)
  }

  /// Sets the deadline (monotonic ns); nil: no deadline. Before the interceptor's function first calls
  /// `next`, the call's deadline changes at once. If `next` has returned a status, the new deadline takes
  /// effect when the interceptor's function calls `next` again.
  func setDeadline(_ time: UInt64?) -> Outcome {
    guard isBeforeStart else { return notBeforeStart }
    if isGone { return .gone }
    start.deadline = time
    guard isBeforeNext else {
      isChanged = true
      return .ok
    }
    lock.withLock { deadlineWish = .some(time) }
    runtime.post(self)
    return .ok
  }

  /// The request's metadata. The function may change it until it calls `next`.
  var requestMetadata: Metadata {
    isChanged = true
    return start.metadata
  }

  /// Before `next` the request's metadata, after `next` the response's headers. nil: a trailers-only response
  /// has no headers.
  var metadata: Metadata? {
    if isBeforeNext { return requestMetadata }
    return isAfterNext ? headers : nil
  }

  /// Before `next` the request message, after `next` the response message. nil: the request or the response
  /// is a stream, or has no message.
  var message: Message? {
    if isBeforeNext { return newRequest ?? request }
    return isAfterNext && kind.receivesOne ? newResponse ?? response : nil
  }

  /// Replaces the request message or the response message, or adds a message if there is none.
  func replace(_ message: Message) -> Outcome {
    guard fits(message) else { return otherForm }
    if isBeforeNext, kind.sendsOne {
      newRequest = message
      return .ok
    }
    guard isAfterNext, kind.receivesOne else {
      return hop.refuse(hasEnded ? .functionHasEnded : .noMessage)
    }
    if isGone { return .gone }
    newResponse = message
    return .ok
  }

  /// The status of the response. If other code has ended the call, it is the status that the call's user
  /// gets. nil before `next`.
  var responseStatus: Status? {
    guard hasCalledNext else { return nil }
    return hasSeenResponse ? status : lock.withLock { endStatus }
  }

  func setValue(_ key: ByteView, _ value: UserData?) -> Outcome {
    if isGone { return .gone }
    return values.set(key, value) ? .ok : .noMemory
  }

  func value(_ key: ByteView) -> UnsafeMutableRawPointer? { values.get(key) }
}
