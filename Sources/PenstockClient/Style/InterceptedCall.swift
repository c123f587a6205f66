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
/// The state has four parts, one for each thread or lock that guards it: `SyncStage`, `SyncFunction`, `SyncNews` and
/// `SyncOffer`, each with its table. SyncInvariants.swift says how they belong together.
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

  /// Under the lock of the worker pool.
  var offer = SyncOffer.early

  /// Only the driving thread uses it.
  var stage: SyncStage

  // The function uses these fields while it runs; before that, the driving thread uses them.
  /// A copy of the start, which `next` sends. Each further `next` sends the copy again, with all changes that
  /// the function has made to it. In the stage `short` it is the call's own start, and no function runs.
  let start: Request
  /// Whether the function may have changed `start`. If it has not, nothing is copied back. A change stays one in all
  /// states that follow, so this is no part of them.
  private(set) var isStartChanged = false
  var function = SyncFunction.beforeNext(SyncFunction.Draft())
  /// The responses of earlier calls of `next`. They are kept, because the function may still use their headers and
  /// statuses.
  private var seen: [SyncResponse] = []

  // The other fields are under the lock.
  /// An order from the function to the driving thread.
  enum Wish {
    case next(SyncFunction.Change?)
    case again
    case answer(SyncAnswer)
    case end(Status)
    case letGo
  }
  private let lock = Lock()
  private var wish: Wish?
  /// The deadline that the function has set before `next`; its inner nil: no deadline.
  private var deadlineWish: UInt64??
  private var news = SyncNews.none

  /// Called when the start event arrives at the hop.
  init(_ hop: Hop, _ interceptor: SyncInterceptor) {
    self.hop = hop
    self.interceptor = interceptor
    (registration, userData) = hop.registered
    item = hop.call.item
    hop.lend()
    let copied = hop.call.request.copy()
    stage = copied == nil ? .short : .fresh
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

  /// Tells the function, and wakes its thread if it waits in `next`.
  func tell(_ event: SyncNews.Event) {
    lock.lock()
    let action = news.handle(event)
    lock.unlock()
    if case .wake(let cell) = action { cell.set() }
  }

  /// Called when other code than the interceptor's function has ended the call, or when the hop ends. Makes
  /// `next` return. If the function has not begun, it is not run any more. If it runs, its later calls of the
  /// hop's functions do nothing.
  func end(_ status: Status?) {
    if case .over = stage { return }
    _ = stage.handle(.gone, kind)
    let own = status?.copy()
    own?.isReadOnly = true
    tell(.ended(own))
    pool.withdraw(self)
    #if PENSTOCK_CHECKS
      if !isGone || pool.offers(self) { fatalError("invariant F4: a function goes on after its hop") }
    #endif
  }

  /// Carries out the function's last order.
  public override func run() {
    lock.lock()
    let wanted = wish
    wish = nil
    let deadline = deadlineWish
    deadlineWish = nil
    lock.unlock()
    if let deadline, case .offered = stage { hop.call.moveDeadline(to: deadline) }
    switch wanted {
    case nil: break
    case .next(let change): passStart(hop, change)
    case .again: startAgain(hop)
    case .answer(let answer): follow(stage.handle(.answer(answer), kind), hop, answer.status)
    case .end(let status): follow(stage.handle(.end, kind), hop, status)
    case .letGo: follow(stage.handle(.letGo, kind), hop)
    }
  }

  /// Called if the runtime ended before this item could run. Makes a waiting `next` return.
  public override func dropped(_ why: Closing) { tell(.dropped) }

  /// Called on any thread: no thread could be started to run the function.
  func endForLackOfThreads() { wishes(.end(InterceptedCall.noThread)) }

  static var noThread: Status {
    Status(.resourceExhausted, "no thread for a synchronous interceptor could be started")
  }

  static var noMemory: Status { Status(.resourceExhausted, "no memory for a synchronous interceptor") }

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
    if isGone { return }
    switch function.handle(.returned(isNext: verdict == Verdict.next.rawValue)) {
    case .letGo: wishes(.letGo)
    case .broken(let what): wishes(.end(broken(what)))
    case .nothing, .next, .again, .end, .endElsewhere, .answer, .gives, .refuses: break
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

  /// Whether other code has ended the call.
  private var isGone: Bool { lock.withLock { news.isOver } }

  /// Whether the calling thread drives a loop of the call's runtime. Such a thread must not wait.
  private var isOnDrivingThread: Bool {
    DrivingThread.isCurrent() && ClientCall.of(hop)?.channel.runtime.isDriving != false
  }

  /// Passes the start on, and waits for the response. A further `next`, after a status, restarts the call
  /// below the hop. While this thread waits, it runs other synchronous functions of the call.
  func next() -> Outcome {
    let wanted: Wish
    switch function.handle(.next) {
    case .next(let change): wanted = .next(change)
    case .again(let response):
      seen.append(response)
      wanted = .again
    case .refuses(let why): return hop.refuse(why)
    case .gives(let outcome): return outcome
    case .nothing, .end, .endElsewhere, .answer, .letGo, .broken: return .state
    }
    start.metadata.isReadOnly = true
    let response = isGone ? nil : waitForResponse(to: wanted)
    guard let response else {
      _ = function.handle(.lost)
      return .gone
    }
    _ = function.handle(.responded(response))
    start.metadata.isReadOnly = response.status == nil
    return response.refusedAgain.take().map { hop.refuse($0) } ?? .ok
  }

  private func waitForResponse(to wanted: Wish) -> SyncResponse? {
    let waits = WaitCell()
    tell(.asked(waits))
    let attendant = pool.attend(item, waits, isInNext: true)
    let owner = ClientCall.of(hop)
    let isCallers = attendant?.worker.isCallers == true
    let interruption = isCallers ? owner?.interruption : nil
    var isInterruptible = owner.map { interruption?.applies(to: $0) == true } ?? false
    wishes(wanted)
    while true {
      if let attendant { pool.serve(item, attendant) }
      if !lock.withLock({ news.isAwaited }) { break }
      // A waiting worker of the pool does not drive a loop that the host program drives.
      let result =
        isOnDrivingThread
        ? .wouldDeadlock
        : runtime.wait(
          for: waits, deadline: nil, interruptible: isInterruptible,
          mayDrive: isCallers || runtime.options.mode == .thread)
      waits.reset()
      if result == .interrupted, let owner { isInterruptible = interruption?.goesOn(owner) == true }
      if result == .closed || result == .wouldDeadlock {
        tell(.givenUp)
        break
      }
    }
    if let attendant { pool.detach(item, attendant) }
    return lock.withLock { news.response }
  }

  /// Ends the call with `status`. The return value of the function is then ignored. While the function waits in
  /// `next`, a function below it may do so, on the same thread.
  func cancel(_ status: Status) -> Outcome {
    switch function.handle(.end) {
    case .end:
      if isGone { return .gone }
      wishes(.end(status))
      return .ok
    case .endElsewhere: return hop.finish(status)
    case .gives(let outcome): return outcome
    case .nothing, .next, .again, .answer, .letGo, .broken, .refuses: return .state
    }
  }

  /// Answers the call instead of the server: with the headers and messages of earlier calls of `addAnswer`,
  /// and then with `status`.
  func answer(_ status: Status) -> Outcome {
    switch function.handle(.answer) {
    case .answer(let draft):
      if isGone { return .gone }
      wishes(.answer(SyncAnswer(headers: draft.answerHeaders, messages: draft.answers, status: status)))
      return .ok
    case .refuses(let why): return hop.refuse(why)
    case .gives(let outcome): return outcome
    case .nothing, .next, .again, .end, .endElsewhere, .letGo, .broken: return .state
    }
  }

  func addAnswer(_ headers: Metadata) -> Outcome {
    if let why = function.refusesAnswer { return hop.refuse(why) }
    return function.edit { draft in
      if draft.answerHeaders != nil { return .already }
      guard draft.answers.isEmpty else { return hop.refuse(.headersLate) }
      draft.answerHeaders = headers
      return .ok
    } ?? .state
  }

  func addAnswer(_ message: Message) -> Outcome {
    guard fits(message) else { return otherForm }
    if let why = function.refusesAnswer { return hop.refuse(why) }
    return function.edit { draft in
      guard !kind.receivesOne || draft.answers.isEmpty else { return hop.refuse(.secondMessage) }
      draft.answers.append(message)
      return .ok
    } ?? .state
  }

  /// Whether the message has the form that the function sees: an object if the hop has a codec, otherwise
  /// bytes.
  private func fits(_ message: Message) -> Bool { message.isObject == (codec != nil) }
  private var otherForm: Outcome { hop.refuse(codec == nil ? .takesBytes : .takesObjects) }

  /// Changes the copy of the start that `next` will send.
  func edit(_ change: (Request) -> Outcome) -> Outcome {
    if let why = function.refusesEdit { return hop.refuse(why) }
    isStartChanged = true
    return change(start)
  }

  /// Calls `edit` with the record of the request messages, if `next` has returned a status.
  func editRecord(_ edit: (Cut) -> Outcome) -> Outcome {
    if let why = function.refusesEditOfRecord { return hop.refuse(why) }
    return isGone ? .gone : hop.editRecord(start, function.response?.status, edit)
  }

  /// Sets the deadline (monotonic ns); nil: no deadline. Before the interceptor's function first calls
  /// `next`, the call's deadline changes at once. If `next` has returned a status, the new deadline takes
  /// effect when the interceptor's function calls `next` again.
  func setDeadline(_ time: UInt64?) -> Outcome {
    if let why = function.refusesEdit { return hop.refuse(why) }
    if isGone { return .gone }
    start.deadline = time
    guard function.isBeforeNext else {
      isStartChanged = true
      return .ok
    }
    lock.withLock { deadlineWish = .some(time) }
    runtime.post(self)
    return .ok
  }

  /// The request's metadata. The function may change it until it calls `next`.
  var requestMetadata: Metadata {
    isStartChanged = true
    return start.metadata
  }

  /// Before `next` the request's metadata, after `next` the response's headers. nil: a trailers-only response
  /// has no headers.
  var metadata: Metadata? { function.isBeforeNext ? requestMetadata : function.response?.headers }

  /// Before `next` the request message, after `next` the response message. nil: the request or the response
  /// is a stream, or has no message.
  var message: Message? { function.message(kind) }

  /// Replaces the request message or the response message, or adds a message if there is none.
  func replace(_ message: Message) -> Outcome {
    guard fits(message) else { return otherForm }
    if function.response != nil, kind.receivesOne, isGone { return .gone }
    return function.setMessage(message, kind).map { hop.refuse($0) } ?? .ok
  }

  /// The status of the response. If other code has ended the call, it is the status that the call's user
  /// gets. nil before `next`.
  var responseStatus: Status? {
    switch function {
    case .beforeNext: nil
    case .afterNext(let response), .ended(.some(let response)): response.status
    case .inNext, .gone, .ended(nil): lock.withLock { news.endStatus }
    }
  }

  func setValue(_ key: ByteView, _ value: UserData?) -> Outcome {
    if isGone { return .gone }
    return values.set(key, value) ? .ok : .noMemory
  }

  func value(_ key: ByteView) -> UnsafeMutableRawPointer? { values.get(key) }
}
