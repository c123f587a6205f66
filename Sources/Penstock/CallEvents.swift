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

  /// The most messages, and the most bytes if all are as long as the longest so far, that are asked for before they are
  /// read.
  private static let mostAhead = (messages: 16, bytes: 1 << 20)

  private struct State {
    var headers = Headers.awaited
    /// Messages that have come and that nobody has taken.
    var messages: [Handle] = []
    /// How many messages have been asked for that have not come.
    var asked = 0
    /// How many messages may be asked for before they are read: one at first, and up to twice as many after each that was
    /// read. So a task that reads many in a row does not change threads for each.
    var ahead = 1
    /// The length of the longest message so far.
    var longest = 1
    /// How many messages the transport has taken.
    var sent: UInt64 = 0
    var reply: Reply?
    /// Whether the program has cancelled the call.
    var isCancelled = false
    /// The error with which the program's own requests ended.
    var failure: (any Error)?
    /// The task that sends the program's requests.
    var pump: Task<Void, Never>?
    var waiters: [Waiter] = []
    /// Grows with each change, so that a task which looked before a change does not wait for it.
    var version: UInt64 = 0

    /// How many messages to ask for now: none while at least half of those that may be ahead are there or asked for.
    mutating func toAsk() -> UInt64 {
      let there = messages.count + asked
      if reply != nil || there > ahead / 2 { return 0 }
      asked += ahead - there
      return UInt64(ahead - there)
    }

    /// Takes a message, or else the end.
    mutating func take() -> Next? {
      if messages.isEmpty { return reply.map { .end($0) } }
      ahead = min(ahead * 2, CallEvents.mostAhead.messages, max(1, CallEvents.mostAhead.bytes / longest))
      return .message(messages.removeFirst())
    }

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
  func beginning(_ ask: ((UInt64) -> Void)?) async -> Beginning {
    if let ask {
      let count = state.withLock { state in
        guard case .awaited = state.headers else { return UInt64(0) }
        return state.toAsk()
      }
      if count > 0 { ask(count) }
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

  /// Takes the next message if it has come, or the end of the call; nil: neither is there. Asks with `ask` for messages,
  /// unless enough of them are there or asked for.
  func take(_ ask: (UInt64) -> Void) -> Next? {
    let (count, next) = state.withLock { ($0.toAsk(), $0.take()) }
    if count > 0 { ask(count) }
    return next
  }

  /// The next message, or the end of the call.
  func next(_ ask: (UInt64) -> Void) async -> Next {
    while true {
      if let next = take(ask) { return next }
      let next: Next? = await wait(for: .message) { state in
        if let next = state.take() { return .some(next) }
        // Another task has taken what came: this one asks anew.
        return state.asked == 0 ? .some(nil) : nil
      }
      if let next { return next }
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

  func cancelled() { state.withLock { $0.isCancelled = true } }

  // ---- What the library tells ----

  func headersCame(_ headers: Metadata) {
    change(.headers) { $0.headers = .came(headers) }
  }

  func messageCame(_ message: Handle, _ length: Int) {
    change(.message) { state in
      state.messages.append(message)
      state.asked -= 1
      state.longest = max(state.longest, length)
      if case .awaited = state.headers { state.headers = .absent }
    }
  }

  func transportTook(_ count: UInt64) {
    change(.room) { $0.sent += count }
  }

  func callEnded(_ reply: Reply) {
    var pump: Task<Void, Never>?
    // These are let go behind the lock, because that may run code of the program.
    var unread: [Handle] = []
    change(.end) { state in
      state.reply = reply
      // Nobody reads on what came before a cancel.
      if state.isCancelled && !reply.isOK { swap(&unread, &state.messages) }
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
        var length = 0
        _ = penstock_message_bytes(message, &length)
        CallEvents.of(data)?.messageCame(Handle(message, penstock_message_release), length)
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
