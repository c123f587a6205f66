internal import CPenstock

/// The way to a call of the library: its handle and its events.
///
/// Copies of it don't keep the call alive, so a task that sends requests may have one.
struct CallLine: Sendable {
  let handle: Handle
  let events: CallEvents

  /// Starts a call; callbacks may come before it has returned.
  init(_ channel: Channel, _ path: String, _ kind: CallKind, _ options: Handle?) throws(PenstockError) {
    let events = CallEvents()
    var table = events.callbacks(kind)
    handle = try make("the call", penstock_call_release) { call, error in
      penstock_channel_call(
        channel.handle.pointer, path, kind.rawValue, options?.pointer, &table, &call, &error)
    }
    self.events = events
  }

  func cancel(_ reason: String) {
    events.cancelled()
    penstock_call_cancel(handle.pointer, reason)
  }

  /// Nobody reads the call any more.
  func abandon() {
    if events.ended == nil { cancel("the program has dropped the call") }
  }

  /// Waits; a cancelled task cancels the call, which ends the wait.
  private func waiting<Value>(
    isolation: isolated (any Actor)? = #isolation, _ body: () async throws -> Value
  ) async rethrows -> Value {
    try await withTaskCancellationHandler(operation: body) { cancel("the task was cancelled") }
  }

  func reply() async -> Reply { await waiting { await events.reply() } }
  /// The response headers; nil: the answer has none.
  func headers(of kind: CallKind) async -> Metadata? {
    if case .headers(let headers) = await beginning(of: kind) { return headers }
    return nil
  }
  func beginning(of kind: CallKind) async -> CallEvents.Beginning {
    await waiting {
      await events.beginning(kind.hasOneResponse ? nil : { ask($0) })
    }
  }

  /// Runs a function of a codec; its error ends the call.
  func encoding<Value>(_ body: () throws -> Value) throws -> Value {
    do { return try body() } catch {
      cancel("a message can't be encoded or decoded: \(error)")
      throw error
    }
  }

  func send(_ bytes: [UInt8]) async throws {
    let trySend = { penstock_call_try_send(handle.pointer, bytes, bytes.count) }
    // Most messages need no wait. A task that was cancelled goes to the wait, which cancels the call.
    var result = Task.isCancelled ? PENSTOCK_E_WOULD_BLOCK : trySend()
    if result == PENSTOCK_E_WOULD_BLOCK { result = await waiting { await events.whenThereIsRoom(trySend) } }
    if result == PENSTOCK_E_GONE { try await endedEarly() }
    try attempt("sending a message") { _ in result }
  }

  /// The call has ended while there was more to send: throws what ended it, unless that was OK.
  private func endedEarly() async throws {
    let reply = await events.reply()
    if !reply.isOK { throw error(reply) }
  }

  private func error(_ reply: Reply) -> any Error { events.failure ?? RPCError(reply.status) }

  private func ask(_ count: UInt64) { penstock_call_demand(handle.pointer, count) }

  func receive() async throws -> [UInt8]? {
    let next: CallEvents.Next
    if !Task.isCancelled, let there = events.take(ask) {
      next = there
    } else {
      next = await waiting { await events.next(ask) }
    }
    switch next {
    case .message(let message):
      var length = 0
      let bytes = penstock_message_bytes(message.pointer, &length)
      return [UInt8](bytes, count: length)
    case .end(let reply):
      guard reply.isOK else { throw error(reply) }
      return nil
    }
  }

  /// The response of a call that has one; nil: it ended with OK and without one.
  func onlyResponse() async throws -> [UInt8]? {
    let reply = await reply()
    guard reply.isOK else { throw error(reply) }
    return reply.bytes
  }

  /// Sends `requests` in a task of their own and half-closes after them. An error of theirs cancels the call, whose
  /// readers then throw it. The end of the call ends the task.
  func pump<Requests: AsyncSequence & Sendable>(
    _ requests: Requests, _ encode: @escaping @Sendable (Requests.Element) throws -> [UInt8]
  ) {
    penstock_call_promise_half_close(handle.pointer)
    let line = self
    let pump = Task {
      do {
        for try await request in requests { try await line.send(try encode(request)) }
        penstock_call_half_close(line.handle.pointer)
      } catch {
        line.requestsFailed(error)
      }
    }
    events.keep(pump)
  }

  private func requestsFailed(_ error: any Error) {
    // The end of the call has ended the task: nothing of the program's failed.
    guard events.ended == nil else { return }
    events.fail(error)
    cancel("the requests failed: \(error)")
  }
}
