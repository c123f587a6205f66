internal import CPenstock

/// A call around which a function of ``Interception/around(replayBytes:maxRestarts:_:)`` runs.
public final class InterceptedCall: Sendable {
  /// The events that wait at the hop, each with the handle that lets it go.
  private struct Held {
    var start: Handle?
    var headers: Handle?
    var message: Handle?
    var status: Handle?
  }

  private struct State {
    var held = Held()
    var start: CallStart
    var before: CallStart
    var headers: Metadata?
    var message: InterceptedMessage?
    var status: Status?
    /// The status that the hop has got, before the function changed it.
    var came: Status?
    var canRestart = false
    /// The function has returned, or the call has ended without it: events pass.
    var isOver = false
    /// The end of the call that the function could not see coming: a cancel or a deadline.
    var cut: Status?
    var waiter: CheckedContinuation<Void, Never>?
    var task: Task<Void, Never>?

    /// Whether `next` has what it waits for.
    func hasResult(_ kind: CallKind) -> Bool {
      cut != nil || status != nil || (!kind.hasOneResponse && headers != nil)
    }
  }

  /// The number that names the call within the process.
  public let id: UInt64
  /// The kind of the call.
  public let kind: CallKind
  /// The target of the channel, as the program gave it.
  public let target: String
  /// Whether the call is protected on its way, by TLS or a unix socket.
  public let isSecure: Bool

  private let name: String
  private let hop: Handle
  private let state: Locked<State>

  private init(_ name: String, _ bound: Handle) {
    self.name = name
    hop = bound
    id = penstock_hop_call_id(bound.pointer)
    kind = CallKind(rawValue: penstock_hop_kind(bound.pointer)) ?? .unary
    let start = CallStart(bound.pointer)
    target = start.target
    isSecure = start.isSecure
    state = Locked(State(held: Held(start: bound), start: start, before: start))
  }

  // ---- What the function sees and changes ----

  /// The start of the call; a change counts for the next ``next()``.
  public var start: CallStart {
    get { state.withLock { $0.start } }
    set { state.withLock { $0.start = newValue } }
  }
  /// The response headers; nil: they have not come.
  public var headers: Metadata? {
    get { state.withLock { $0.headers } }
    set { state.withLock { if $0.held.headers != nil { $0.headers = newValue ?? Metadata() } } }
  }
  /// The response of a call that has one; nil: it has not come. It can be replaced, but not taken away.
  public var response: [UInt8]? {
    get { state.withLock { $0.message?.bytes } }
    set { state.withLock { if let newValue { $0.message?.bytes = newValue } } }
  }
  /// The status; nil: it has not come.
  public var status: Status? {
    get { state.withLock { $0.status } }
    set { state.withLock { if $0.held.status != nil, let newValue { $0.status = newValue } } }
  }

  /// Whether ``next()`` may be called again: the call has its status, has sent no more than is kept, and was not
  /// restarted too often.
  public var canGoAgain: Bool {
    state.withLock { $0.cut == nil && $0.held.status != nil && $0.canRestart }
  }

  /// Lets the call go on and waits for its response: in a call with one response for the whole response, in a call with
  /// many for the headers; the rest passes when the function has returned. Called again, it sends the request again.
  ///
  /// - Throws: ``RPCError``: the call has got this status. ``PenstockError``: the call can't be sent again: it has sent
  ///   more than is kept, was restarted too often, or a part of the response has gone on.
  public func next() async throws {
    try go()
    while !state.withLock({ $0.hasResult(kind) }) {
      await withCheckedContinuation { continuation in
        let waits = state.withLock { state in
          if state.hasResult(kind) { return false }
          state.waiter = continuation
          return true
        }
        if !waits { continuation.resume() }
      }
    }
    let end = state.withLock { $0.cut ?? $0.status }
    if let end, end.code != .ok { throw RPCError(end) }
  }

  /// Sends the start, or sends it again.
  private func go() throws {
    enum Step {
      case start(Handle, CallStart, CallStart)
      case again(Held, CallStart, CallStart)
      case over(Status)
      case not
    }
    let step: Step = state.withLock { state in
      if let cut = state.cut { return .over(cut) }
      let (start, before) = (state.start, state.before)
      state.before = start
      if let bound = state.held.start {
        state.held.start = nil
        return .start(bound, start, before)
      }
      guard state.held.status != nil, state.canRestart else { return .not }
      let held = state.held
      state.held = Held()
      (state.headers, state.message, state.status, state.came) = (nil, nil, nil, nil)
      return .again(held, start, before)
    }
    switch step {
    case .start(let bound, let start, let before):
      try start.settle(at: bound.pointer, before: before)
    case .again(let held, let start, let before):
      // The headers and the response are dropped by the restart, so their handles go after it.
      try withExtendedLifetime(held) {
        guard let bound = held.status else { return }
        try start.write(to: bound.pointer, before: before)
        penstock_hop_resolve(bound.pointer, PENSTOCK_RESTART)
      }
    case .over(let status): throw RPCError(status)
    case .not:
      throw PenstockError(
        code: .state, message: "the call can't be sent again at the interceptor \"\(name)\"")
    }
  }

  // ---- The end of the function ----

  private func finish(_ error: (any Error)?) {
    let (held, state) = state.withLock { state in
      defer {
        state.isOver = true
        state.held = Held()
        state.task = nil
      }
      return (state.held, state)
    }
    // A handle that goes before its event has been settled would end the call.
    withExtendedLifetime(held) { settle(held, state, error) }
  }

  private func settle(_ held: Held, _ state: State, _ error: (any Error)?) {
    do {
      if let error {
        // The status with which `next` failed goes on as it came.
        guard let error = error as? RPCError, held.status != nil, error.status == state.came else {
          throw error
        }
      } else if let bound = held.start {
        return try state.start.settle(at: bound.pointer, before: state.before)
      }
      if let bound = held.headers {
        if let headers = state.headers { try headers.write(to: penstock_hop_metadata(bound.pointer)) }
        penstock_hop_resolve(bound.pointer, PENSTOCK_NEXT)
      }
      if let bound = held.message { try state.message?.settle(at: bound.pointer) }
      if let bound = held.status {
        if state.status != state.came, let status = state.status,
          let target = penstock_hop_status(bound.pointer)
        {
          try status.write(to: target)
        }
        penstock_hop_resolve(bound.pointer, PENSTOCK_NEXT)
      }
    } catch {
      let bound = held.status ?? held.start ?? hop
      HopEnd.end(bound.pointer, name, error)
    }
  }

  // ---- Events ----

  private func begin(_ body: @escaping @Sendable (InterceptedCall) async throws -> Void) {
    state.withLock { state in
      state.task = Task { [self] in
        do {
          try await body(self)
          finish(nil)
        } catch { finish(error) }
      }
    }
  }

  /// Changes the state and wakes the function if it waits. False: events pass.
  private func change(_ body: (inout State) -> Void) -> Bool {
    let (isOver, waiter) = state.withLock { state in
      if !state.isOver { body(&state) }
      defer { state.waiter = nil }
      return (state.isOver, state.waiter)
    }
    waiter?.resume()
    return !isOver
  }

  private func headersCame(_ bound: Handle) {
    let headers = Metadata(penstock_hop_metadata(bound.pointer))
    let keeps = change { state in
      state.held.headers = bound
      state.headers = headers
    }
    // In a call with one response, the response and the status are shown behind the headers that wait.
    if !keeps { penstock_hop_resolve(bound.pointer, PENSTOCK_NEXT) }
    if keeps && kind.hasOneResponse { penstock_hop_resolve(bound.pointer, PENSTOCK_HOLD) }
  }

  private func messageCame(_ bound: Handle) {
    var keeps = false
    if kind.hasOneResponse {
      let message = InterceptedMessage(bound.pointer)
      keeps = change { state in
        state.held.message = bound
        state.message = message
      }
    }
    penstock_hop_resolve(bound.pointer, keeps ? PENSTOCK_HOLD : PENSTOCK_NEXT)
  }

  private func statusCame(_ bound: Handle) {
    let status = Status(penstock_hop_status(bound.pointer))
    // There is no ticket for the status of a cancel or a deadline, which nothing delays.
    guard penstock_hop_ticket(bound.pointer) != 0 else {
      penstock_hop_resolve(bound.pointer, PENSTOCK_NEXT)
      return cut(status)
    }
    let canRestart = penstock_hop_can_restart(bound.pointer) == PENSTOCK_OK
    let keeps = change { state in
      state.held.status = bound
      state.status = status
      state.came = status
      state.canRestart = canRestart
    }
    if !keeps { penstock_hop_resolve(bound.pointer, PENSTOCK_NEXT) }
  }

  /// Something else has ended the call: the function is told by its cancelled task, and by ``next()``.
  private func cut(_ status: Status) {
    var task: Task<Void, Never>?
    _ = change { state in
      state.cut = status
      state.status = status
      state.held = Held()
      task = state.task
    }
    // The program's own cancellation handlers don't run on the runtime's thread.
    if let task { Task.detached { task.cancel() } }
  }

  // ---- The table of callbacks ----

  /// The objects that a registration keeps.
  private final class Function: Sendable {
    let name: String
    let body: @Sendable (InterceptedCall) async throws -> Void
    init(_ name: String, _ body: @escaping @Sendable (InterceptedCall) async throws -> Void) {
      self.name = name
      self.body = body
    }
  }

  /// The state of a hop: its call, once start has come.
  private final class Hop: Sendable {
    let function: Function
    let call = Locked<InterceptedCall?>(nil)
    init(_ function: Function) { self.function = function }
  }

  /// The callbacks for an interceptor that is a function. The table has a reference to the function, and each hop one to
  /// its call, which `destroy` gives back.
  static func table(
    _ name: String, _ body: @escaping @Sendable (InterceptedCall) async throws -> Void
  ) -> penstock_async_interceptor {
    var table = penstock_async_interceptor()
    table.user_data = Unmanaged.passRetained(Function(name, body)).toOpaque()
    table.finalizer = { data in
      if let data { Unmanaged<Function>.fromOpaque(data).release() }
    }
    table.create = { _, data, state in
      guard let data, let state else { return PENSTOCK_SKIP }
      let function = Unmanaged<Function>.fromOpaque(data).takeUnretainedValue()
      state.pointee = Unmanaged.passRetained(Hop(function)).toOpaque()
      return PENSTOCK_NEXT
    }
    table.destroy = { _, state in
      guard let state else { return }
      let hop = Unmanaged<Hop>.fromOpaque(state).takeRetainedValue()
      // Without a status or on_cancel before, the function itself has ended the call, or has answered it.
      hop.call.withLock { $0 }?.cut(Status(.cancelled, "the call has ended"))
    }
    table.on_start = { bound, state in
      let bound = HopEnd.bound(bound)
      guard let state else { return }
      let hop = Unmanaged<Hop>.fromOpaque(state).takeUnretainedValue()
      let call = InterceptedCall(hop.function.name, bound)
      hop.call.withLock { $0 = call }
      call.begin(hop.function.body)
    }
    table.on_headers = { InterceptedCall.of($1)?.headersCame(HopEnd.bound($0)) }
    table.on_receive = { InterceptedCall.of($1)?.messageCame(HopEnd.bound($0)) }
    table.on_status = { InterceptedCall.of($1)?.statusCame(HopEnd.bound($0)) }
    table.on_cancel = { hop, state in
      InterceptedCall.of(state)?.cut(Status(penstock_hop_status(hop)))
      return 0
    }
    return table
  }

  private static func of(_ state: UnsafeMutableRawPointer?) -> InterceptedCall? {
    state.flatMap { Unmanaged<Hop>.fromOpaque($0).takeUnretainedValue().call.withLock { $0 } }
  }
}
