import PenstockCall
import PenstockWire
import Synchronization

/// A user's function that intercepts calls, and the object that keeps its data.
public final class SyncInterceptor {
  public typealias Function = @convention(c) (OpaquePointer?, UnsafeMutableRawPointer?) -> Int32

  let function: Function
  let userData: UserData
  /// The name and the methods, each followed by a NUL.
  public let name: ByteBuffer
  public let methods: ByteBuffer?

  public init(_ function: @escaping Function, _ userData: UserData, name: ByteBuffer, methods: ByteBuffer?) {
    self.function = function
    self.userData = userData
    self.name = name
    self.methods = methods
  }
}

/// One synchronous interceptor in one call: the state of its hop, and the requests that the user's function
/// makes through a `SyncHop`.
///
/// Two threads work on this object. On the driving thread the hop's callbacks (HopCallbacks.swift) stop the
/// events that the function is to see, and offer the function to the workers. The function runs on a worker.
/// It sees a copy of the start, because other code may read the start at the same time. Of the response it
/// sees the events themselves, which wait at the hop: no other code uses them until the function has
/// returned. The function's requests are posted to the driving thread and carried out there (`run`).
///
/// `@unchecked Sendable`: each part below names its owner.
public final class InterceptedCall: InboxItem, @unchecked Sendable {
  // Immutable.
  /// The hop. The driving thread uses it; other threads call only the functions of a hop that any thread may
  /// call. The hop keeps this object until the hop's `destroy`.
  let hop: Hop
  /// The interceptor. `userData`, the user data of its registration, keeps it; so the user's finalizer runs
  /// only after the last function has returned.
  unowned(unsafe) let interceptor: SyncInterceptor
  private let userData: UserData
  let registration: UInt64
  let item: CallItem
  let pool: WorkerPool
  /// The loop of the call. The reference is not counted, because `pool` keeps the loop.
  unowned(unsafe) let runtime: Runtime
  let kind: CallKind
  /// The codec, if the function sees messages as objects.
  let codec: Codec?
  /// The values of the call, which have a lock of their own.
  private let values: CallValues

  // The pool's state, under its lock.
  /// `open`: the function is offered to the workers, and none has begun it.
  enum Offer { case closed, open }
  var offer = Offer.closed
  var isQueued = false
  var nextQueued: InterceptedCall?
  var previousQueued: Unmanaged<InterceptedCall>?

  // The state of the hop, used by the driving thread only.
  enum Stage: Equatable {
    /// Start waits at the hop until the one request message has come, too.
    case collecting
    /// The function may run; start waits at the hop.
    case offered
    /// The function has called `next`, and start has gone on.
    case passed
    /// The response waits at the hop.
    case responded
    /// The function has returned, or has ended the call: all events pass the hop.
    case passing
    /// The function answers instead of the server.
    case answering
    case over
  }
  var stage = Stage.collecting
  var tickets = OpenTickets()
  var answer: Answer?
  /// A response message that the function has set although none had come. It is delivered before the status,
  /// as soon as the caller asks for a message.
  var lateResponse: Message?
  var isPumping = false
  /// Whether there was no memory for the copy of the start.
  let isShort: Bool

  struct OpenTickets {
    var start: UInt64 = 0
    /// The ticket of the request message or, if there is no message, of half-close.
    var request: UInt64 = 0
    var headers: UInt64 = 0
    var response: UInt64 = 0
    var status: UInt64 = 0
  }

  struct Answer {
    var headers: Metadata?
    var messages: [Message]
    var status: Status
  }

  // Used by the function once it runs; before that, by the driving thread.
  /// A copy of the start, which `next` sends. A further `next` sends it again, with the changes made by then.
  let start: Request
  /// Whether the function may have changed the start.
  private(set) var isChanged = false
  /// `request`: the request message that came. `newRequest` and `newResponse`: the messages by which the function has
  /// replaced the request message and the response message.
  var request: Message?
  var newRequest: Message?
  var newResponse: Message?
  private var answers: [Message] = []
  private var answerHeaders: Metadata?
  private var hasCalledNext = false
  /// Whether `next` has returned with a response.
  private var hasSeenResponse = false
  private var hasEnded = false

  // The response, written by the driving thread before it sets `hasResponse`, and by the function after that.
  var headers: Metadata?
  var response: Message?
  var status: Status?
  /// Headers and statuses that an earlier `next` has shown, which the function may still look at.
  var shownBefore: [AnyObject] = []
  /// The reason why the call could not begin again; nil: it could.
  var refusedAgain: Refusal?

  // The rest is under the lock. A wish is a request of the function to the driving thread.
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

  /// Called when start comes to the hop.
  @inline(never) @_optimize(size)
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
    // RuntimeLoop is the only class of loops.
    runtime = unsafeDowncast(hop.call.loop, to: RuntimeLoop.self).runtime
    kind = hop.call.request.kind
    codec = hop.codec
    values = hop.call.values
    values.hold()
  }

  deinit { values.letGo() }

  // MARK: - News for the function, from the driving thread

  /// Called when the response has come, or its first part if it is a stream: makes `next` return.
  func respond() {
    stage = .responded
    lock.lock()
    hasResponse = true
    let waits = cell
    lock.unlock()
    waits?.set()
  }

  /// Called when the call was ended elsewhere, or the hop has ended: makes `next` return. A function that has
  /// not begun then does not run, and the function's requests are ignored.
  @inline(never) @_optimize(size)
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

  /// Carries out the function's request.
  @inline(never) @_optimize(size)
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

  /// Called if the runtime has ended before this item ran: makes a waiting `next` return.
  public override func dropped(_ why: Closing) {
    lock.lock()
    isOver = true
    let waits = cell
    lock.unlock()
    waits?.set()
  }

  private func wishes(_ wanted: Wish) {
    lock.withLock { wish = wanted }
    runtime.post(self)
  }

  // MARK: - The function, on a worker

  /// Runs the function. The caller holds a reference.
  @inline(never) @_optimize(size)
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

  /// The status with which a call ends by law 7, because its interceptor is broken.
  func broken(_ what: StaticString) -> Status {
    Status(
      .internal, parts: ("interceptor '" as StaticString).bytes,
      ByteView(rebasing: interceptor.name.view.dropLast()),
      ("' " as StaticString).bytes, what.bytes)
  }

  /// Whether the function has not called `next` yet, so that the start can be changed.
  var isBeforeNext: Bool { !hasCalledNext && !hasEnded }
  /// Whether `next` has returned a response, which can be changed.
  var isAfterNext: Bool { hasSeenResponse && !hasEnded }
  /// Whether the call was ended elsewhere.
  private var isGone: Bool { lock.withLock { isOver } }

  /// Whether the calling thread drives a loop of the call's runtime, so that it must not wait.
  @inline(never) @_optimize(size)
  private var isOnDrivingThread: Bool {
    DrivingThread.isCurrent() && ClientCall.of(hop)?.channel.runtime.isDriving != false
  }

  /// Lets start go on, and waits for the response. A further `next`, after a status, makes the call begin
  /// again below the hop. While this thread waits, it runs other synchronous functions of the call.
  @inline(never) @_optimize(size)
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
    wishes(isAgain ? .again : .next)
    while true {
      if let attendant { pool.serve(item, attendant) }
      if lock.withLock({ hasResponse || isOver }) { break }
      // A worker waits without driving a loop that the host program drives.
      let result =
        isOnDrivingThread
        ? .wouldDeadlock
        : runtime.wait(
          for: waits, deadline: nil, interruptible: false, mayDrive: runtime.options.mode == .thread)
      waits.reset()
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

  /// Ends the call. The function's return value is then ignored.
  func cancel(_ status: Status) -> Outcome {
    if hasEnded { return .already }
    hasEnded = true
    if isGone { return .gone }
    wishes(.end(status))
    return .ok
  }

  /// Answers the call instead of the server: with the headers and the messages that the function has delivered
  /// (`addAnswer`), and then `status`.
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

  /// Whether the message is an object or bytes, as the function sees messages.
  private func fits(_ message: Message) -> Bool { message.isObject == (codec != nil) }
  private var otherForm: Outcome { hop.refuse(codec == nil ? .takesBytes : .takesObjects) }
  private var notBeforeNext: Outcome { hop.refuse(hasEnded ? .functionHasEnded : .hasGoneOn) }

  /// Whether a further `next` is possible, so that the start may be changed.
  private var isBeforeStart: Bool { isBeforeNext || isAfterNext && status != nil }
  private var notBeforeStart: Outcome { hop.refuse(hasEnded ? .functionHasEnded : .streamHasBegun) }

  /// Changes the start that the next `next` sends.
  func edit(_ change: (Request) -> Outcome) -> Outcome {
    guard isBeforeStart else { return notBeforeStart }
    isChanged = true
    return change(start)
  }

  /// Sets the deadline; nil: none. Before the first `next` the call's deadline changes at once; after a
  /// status it changes when the function calls `next` again.
  @inline(never) @_optimize(size)
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

  /// The request's metadata, which can be changed until `next`.
  var requestMetadata: Metadata {
    isChanged = true
    return start.metadata
  }

  /// The request's metadata until `next`, then the response's; nil: a trailers-only answer has none.
  var metadata: Metadata? {
    if isBeforeNext { return requestMetadata }
    return isAfterNext ? headers : nil
  }

  /// The request message until `next`, then the response message. nil: that side of the call is a stream, or
  /// has no message.
  var message: Message? {
    if isBeforeNext { return newRequest ?? request }
    return isAfterNext && kind.receivesOne ? newResponse ?? response : nil
  }

  /// Replaces the message, or adds one if there is none.
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

  /// The status of the response, after `next`; if the call was ended elsewhere, the status that its caller gets.
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
