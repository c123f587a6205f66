internal import CPenstock

/// The library's news about a call, and the tasks that wait for more of it.
///
/// The library's callbacks change it on the runtime's thread, tasks read it on theirs. A wait always ends, because the end
/// of the call ends it: a cancelled task cancels its call, and the status of a cancel can't be delayed.
///
/// The library keeps one reference until its last callback has returned. A task's references don't keep the call alive.
final class CallEvents: Sendable {
  /// The events that a task may wait for.
  enum Change {
    case headers
    case message
    case room
    case end
  }

  private enum Headers {
    case awaited
    case came(Metadata)
    case absent
  }

  private struct Waiter {
    let change: Change
    let continuation: CheckedContinuation<Void, Never>
  }

  private struct State {
    var headers = Headers.awaited
    /// Messages that have come and that nobody has taken.
    var messages: [Handle] = []
    /// Whether a message has been asked for that has not come.
    var isAsking = false
    /// How many messages the transport has taken.
    var sent: UInt64 = 0
    var reply: Reply?
    /// The error with which the program's own requests ended.
    var failure: (any Error)?
    /// The task that sends the program's requests.
    var pump: Task<Void, Never>?
    var waiters: [Waiter] = []
    /// Grows with each change, so that a task which looked before a change does not wait for it.
    var version: UInt64 = 0

    mutating func changed(_ change: Change) -> [Waiter] {
      version += 1
      guard !waiters.isEmpty else { return [] }
      // An answer may begin with a message in place of headers.
      let isWoken = { (waiter: Waiter) in
        change == .end || waiter.change == change || (change == .message && waiter.change == .headers)
      }
      let woken = waiters.filter(isWoken)
      waiters.removeAll(where: isWoken)
      return woken
    }
  }

  private let state = Locked(State())

  private func change(_ change: Change, _ body: (inout State) -> Void) {
    let woken = state.withLock { state in
      body(&state)
      return state.changed(change)
    }
    for waiter in woken { waiter.continuation.resume() }
  }

  /// Returns what `look` finds, as soon as it finds something. It is asked at once and after each `change`, and at the
  /// call's end, when it has to find something.
  private func wait<Found: Sendable>(
    for change: Change, _ look: (inout State) -> Found?
  ) async -> Found {
    while true {
      var seen: UInt64 = 0
      let found = state.withLock { state in
        seen = state.version
        return look(&state)
      }
      if let found { return found }
      await withCheckedContinuation { continuation in
        let waits = state.withLock { state in
          guard state.version == seen else { return false }
          state.waiters.append(Waiter(change: change, continuation: continuation))
          return true
        }
        if !waits { continuation.resume() }
      }
    }
  }

  // ---- What tasks wait for ----

  func reply() async -> Reply { await wait(for: .end) { $0.reply } }

  var ended: Reply? { state.withLock { $0.reply } }

  /// The first part of an answer. That of a server begins with headers, or is only an end; that of an interceptor may
  /// begin with a message.
  enum Beginning {
    case headers(Metadata)
    case message
    case end(Reply)
  }

  /// Waits for the first part of the answer. A message is asked for with `ask` meanwhile, if the kind has many: an answer
  /// without headers begins with one, and none comes that nobody has asked for.
  func beginning(_ ask: (() -> Void)?) async -> Beginning {
    if let ask {
      let mustAsk = state.withLock { state in
        guard case .awaited = state.headers, !state.isAsking else { return false }
        state.isAsking = true
        return true
      }
      if mustAsk { ask() }
    }
    return await wait(for: .headers) { state in
      if case .came(let headers) = state.headers { return .headers(headers) }
      if !state.messages.isEmpty { return .message }
      if let reply = state.reply { return .end(reply) }
      // A message has come and was taken.
      if case .absent = state.headers { return .message }
      return nil
    }
  }

  enum Next {
    case message(Handle)
    case end(Reply)
  }

  /// The next message, for which `ask` asks if no other task has; or the end of the call.
  func next(_ ask: () -> Void) async -> Next {
    while true {
      enum Look {
        case found(Next)
        case mustAsk
      }
      let look: Look = await wait(for: .message) { state in
        if !state.messages.isEmpty { return .found(.message(state.messages.removeFirst())) }
        if let reply = state.reply { return .found(.end(reply)) }
        if state.isAsking { return nil }
        state.isAsking = true
        return .mustAsk
      }
      switch look {
      case .found(let next): return next
      case .mustAsk: ask()
      }
    }
  }

  /// Sends with `send`, as soon as there is room.
  ///
  /// - Returns: the last result of `send`: anything but WOULD_BLOCK.
  func whenThereIsRoom(_ send: () -> penstock_result) async -> penstock_result {
    while true {
      let before = state.withLock { $0.sent }
      let result = send()
      guard result == PENSTOCK_E_WOULD_BLOCK else { return result }
      let _: Bool = await wait(for: .room) { $0.sent != before || $0.reply != nil ? true : nil }
    }
  }

  // ---- The requests that a task sends ----

  /// Keeps the task that sends the requests, to cancel it when the call has ended.
  func keep(_ pump: Task<Void, Never>) {
    let late = state.withLock { state in
      if state.reply != nil { return true }
      state.pump = pump
      return false
    }
    if late { pump.cancel() }
  }

  /// Notes the error with which the program's requests ended; the call is cancelled then.
  func fail(_ error: any Error) {
    state.withLock { state in
      if state.failure == nil { state.failure = error }
    }
  }

  var failure: (any Error)? { state.withLock { $0.failure } }

  // ---- What the library tells ----

  func headersCame(_ headers: Metadata) {
    change(.headers) { $0.headers = .came(headers) }
  }

  func messageCame(_ message: Handle) {
    change(.message) { state in
      state.messages.append(message)
      state.isAsking = false
      if case .awaited = state.headers { state.headers = .absent }
    }
  }

  func transportTook(_ count: UInt64) {
    change(.room) { $0.sent += count }
  }

  func callEnded(_ reply: Reply) {
    var pump: Task<Void, Never>?
    change(.end) { state in
      state.reply = reply
      if case .awaited = state.headers { state.headers = reply.headers.map { .came($0) } ?? .absent }
      pump = state.pump
      state.pump = nil
    }
    // The program's own cancellation handlers don't run on the runtime's thread.
    if let pump { Task.detached { pump.cancel() } }
  }

  // ---- The table of callbacks ----

  /// The callbacks of a call of a kind. They have a reference to this object, which `finalizer` gives back.
  func callbacks(_ kind: CallKind) -> penstock_call_callbacks {
    var table = penstock_call_callbacks()
    table.struct_size = MemoryLayout<penstock_call_callbacks>.size
    table.user_data = Unmanaged.passRetained(self).toOpaque()
    table.finalizer = { data in
      if let data { Unmanaged<CallEvents>.fromOpaque(data).release() }
    }
    table.on_reply = { _, reply, data in
      guard let reply = penstock_reply_retain(reply) else { return }
      CallEvents.of(data)?.callEnded(Reply(reply))
    }
    if kind != .unary {
      table.on_headers = { _, headers, data in CallEvents.of(data)?.headersCame(Metadata(headers)) }
      table.on_sent = { _, count, data in CallEvents.of(data)?.transportTook(count) }
    }
    if !kind.hasOneResponse {
      table.on_message = { _, message, data in
        guard let message = penstock_message_retain(message) else { return }
        CallEvents.of(data)?.messageCame(Handle(message, penstock_message_release))
      }
    }
    return table
  }

  private static func of(_ data: UnsafeMutableRawPointer?) -> CallEvents? {
    data.map { Unmanaged<CallEvents>.fromOpaque($0).takeUnretainedValue() }
  }
}

/// How a call ended, as the library keeps it. It never changes.
final class Reply: Sendable {
  private let handle: Handle
  // A status of the C API is for one thread at a time, so the first reader makes a copy for all.
  private let copy = Locked<Status?>(nil)

  init(_ reply: OpaquePointer) { handle = Handle(reply, penstock_reply_release) }

  var isOK: Bool { penstock_reply_code(handle.pointer) == PENSTOCK_STATUS_OK }

  var status: Status {
    copy.withLock { copy in
      if let copy { return copy }
      let status = Status(penstock_reply_status(handle.pointer))
      copy = status
      return status
    }
  }

  var headers: Metadata? { penstock_reply_headers(handle.pointer).map { Metadata($0) } }

  /// The bytes of the only response; nil: there is none.
  var bytes: [UInt8]? {
    var length = 0
    guard let bytes = penstock_reply_bytes(handle.pointer, &length) else { return nil }
    return [UInt8](bytes, count: length)
  }

  /// See ``Call/retryPushback()``.
  var retryPushback: Int? {
    struct Said: Decodable { var retryPushbackMs: Int? }
    if isOK { return nil }
    return try? figures(Said.self, String(cString: penstock_reply_status_json(handle.pointer)))
      .retryPushbackMs
  }

  var statistics: String { String(cString: penstock_reply_stats_json(handle.pointer)) }
  var trace: String { String(cString: penstock_reply_trace_json(handle.pointer)) }
}
