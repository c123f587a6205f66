import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink
import PenstockClient

// The functions of call.h for call options and for calls.

@_cdecl("penstock_call_options_new") @implementation
public func penstock_call_options_new(
  _ json: UnsafePointer<CChar>!, _ out: UnsafeMutablePointer<OpaquePointer?>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let out else { return report(.invalidArgument, "options must not be NULL", error) }
  if memoryIsLow { return report(.noMemory, "no memory for options", error) }
  let options = CallOptions()
  if let json, let failure = JSONReader.parse(bytes(json), { read($0, into: options) }) {
    return failure.report(error)
  }
  out.pointee = retained(options)
  return PENSTOCK_OK
}

@_cdecl("penstock_call_options_retain") @implementation
public func penstock_call_options_retain(_ options: OpaquePointer!) -> OpaquePointer! {
  retain(options, CallOptions.self)
}

@_cdecl("penstock_call_options_release") @implementation
public func penstock_call_options_release(_ options: OpaquePointer!) { release(options, CallOptions.self) }

@_cdecl("penstock_call_options_set_on_interrupted") @implementation
public func penstock_call_options_set_on_interrupted(
  _ options: OpaquePointer!, _ interrupted: (@convention(c) (UnsafeMutableRawPointer?) -> Int32)!,
  _ userData: UnsafeMutableRawPointer!, _ finalizer: penstock_finalizer!
) -> penstock_result {
  let data = UserData(userData, finalizer)
  guard let options, let interrupted else { return PENSTOCK_E_INVALID_ARGUMENT }
  object(options, CallOptions.self).onInterrupted = (interrupted, data)
  return PENSTOCK_OK
}

@_cdecl("penstock_call_options_set_context") @implementation
public func penstock_call_options_set_context(
  _ options: OpaquePointer!, _ context: UnsafeMutableRawPointer!, _ finalizer: penstock_finalizer!
) -> penstock_result {
  let data = context.map { UserData($0, finalizer) }
  guard let options else { return PENSTOCK_E_INVALID_ARGUMENT }
  object(options, CallOptions.self).context = data
  return PENSTOCK_OK
}

@_cdecl("penstock_call_options_set_cancel_scope") @implementation
public func penstock_call_options_set_cancel_scope(_ options: OpaquePointer!, _ scope: OpaquePointer!)
  -> penstock_result
{
  guard let options else { return PENSTOCK_E_INVALID_ARGUMENT }
  let given = scope.map { object($0, CancelScope.self) }
  if let given, Process.isForked(given.generation) { return PENSTOCK_E_FORKED }
  object(options, CallOptions.self).scope = given
  return PENSTOCK_OK
}

@_cdecl("penstock_call_options_add_interceptor") @implementation
public func penstock_call_options_add_interceptor(
  _ handle: OpaquePointer!, _ interceptor: UnsafePointer<penstock_interceptor>!, _ priority: Int32,
  _ id: UnsafeMutablePointer<penstock_interceptor_id>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let owner = handle.map { object($0, CallOptions.self) }
  return register(interceptor, id, error, owner?.interceptors, owner?.generation) {
    owner?.interceptors.add($0, priority: priority)
    return .ok
  }
}

// MARK: - The call

/// Runs `body` on the call. A NULL handle, or one of another process, is an error.
private func with(_ handle: OpaquePointer?, _ body: (ClientCall) -> Outcome) -> penstock_result {
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  let call = object(handle, ClientCall.self)
  return Process.isForked(call.generation) ? PENSTOCK_E_FORKED : body(call).rawValue
}

/// Runs `body` on the call without counting a reference, so `body` must return at once. A NULL handle, or one
/// of another process, is an error.
@inline(__always)
private func ask(_ handle: OpaquePointer?, _ body: (ClientCall) -> Outcome) -> penstock_result {
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  return look(handle, ClientCall.self) { call in
    Process.isForked(call.generation) ? PENSTOCK_E_FORKED : body(call).rawValue
  }
}

/// Adds a handle. All handles of a call share one reference.
@_cdecl("penstock_call_retain") @implementation
public func penstock_call_retain(_ handle: OpaquePointer!) -> OpaquePointer! {
  // If all handles were released before, a callback may still retain the handle that it got. Then the shared
  // reference is needed again.
  if let handle, look(handle, ClientCall.self, { $0.retainHandle() }) {
    return retain(handle, ClientCall.self)
  }
  return handle
}

@_cdecl("penstock_call_release") @implementation
public func penstock_call_release(_ handle: OpaquePointer!) {
  if let handle, look(handle, ClientCall.self, { $0.releaseHandle() }) { release(handle, ClientCall.self) }
}

@_cdecl("penstock_call_id") @implementation
public func penstock_call_id(_ handle: OpaquePointer!) -> UInt64 {
  handle.map { object($0, ClientCall.self).call.id } ?? 0
}

@_cdecl("penstock_call_send") @implementation
public func penstock_call_send(_ handle: OpaquePointer!, _ data: UnsafeRawPointer!, _ length: Int)
  -> penstock_result
{
  guard let bytes = bytes(data, length) else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { $0.send(bytes) }
}

@_cdecl("penstock_call_try_send") @implementation
public func penstock_call_try_send(_ handle: OpaquePointer!, _ data: UnsafeRawPointer!, _ length: Int)
  -> penstock_result
{
  guard let bytes = bytes(data, length) else { return PENSTOCK_E_INVALID_ARGUMENT }
  return ask(handle) { $0.trySend(bytes) }
}

/// Sends messages whose bytes stand one after another at `data`, and tells in `sent` how many are queued.
private func sendMany(
  _ handle: OpaquePointer?, _ data: UnsafeRawPointer?, _ lengths: UnsafePointer<Int>?, _ count: Int,
  _ sent: UnsafeMutablePointer<Int>?, waits: Bool
) -> penstock_result {
  guard let sent, lengths != nil || count == 0, count >= 0 else { return PENSTOCK_E_INVALID_ARGUMENT }
  let all = UnsafeBufferPointer(start: lengths, count: count)
  var total = 0
  for length in all {
    guard bytes(data, length) != nil, bytes(data, total + length) != nil else {
      return PENSTOCK_E_INVALID_ARGUMENT
    }
    total += length
  }
  return with(handle) { call in
    sent.pointee = 0
    var rest = data
    for length in all {
      let message = ByteView(start: rest, count: length)
      let outcome = waits ? call.send(message) : call.trySend(message)
      guard outcome == .ok else { return outcome }
      sent.pointee += 1
      rest = rest.map { $0 + length }
    }
    return .ok
  }
}

@_cdecl("penstock_call_send_many") @implementation
public func penstock_call_send_many(
  _ handle: OpaquePointer!, _ data: UnsafeRawPointer!, _ lengths: UnsafePointer<Int>!, _ count: Int,
  _ sent: UnsafeMutablePointer<Int>!
) -> penstock_result {
  sendMany(handle, data, lengths, count, sent, waits: true)
}

@_cdecl("penstock_call_try_send_many") @implementation
public func penstock_call_try_send_many(
  _ handle: OpaquePointer!, _ data: UnsafeRawPointer!, _ lengths: UnsafePointer<Int>!, _ count: Int,
  _ sent: UnsafeMutablePointer<Int>!
) -> penstock_result {
  sendMany(handle, data, lengths, count, sent, waits: false)
}

private func send(_ handle: OpaquePointer?, _ message: OpaquePointer?, waits: Bool) -> penstock_result {
  guard let message else { return PENSTOCK_E_INVALID_ARGUMENT }
  let given = object(message, Message.self)
  return with(handle) { call in
    guard let sent = given.fitting(call.call.codec) else { return .state }
    return waits ? call.send(sent) : call.trySend(sent)
  }
}

@_cdecl("penstock_call_send_message") @implementation
public func penstock_call_send_message(_ handle: OpaquePointer!, _ message: OpaquePointer!) -> penstock_result
{
  send(handle, message, waits: true)
}

@_cdecl("penstock_call_try_send_message") @implementation
public func penstock_call_try_send_message(_ handle: OpaquePointer!, _ message: OpaquePointer!)
  -> penstock_result
{
  send(handle, message, waits: false)
}

@_cdecl("penstock_call_half_close") @implementation
public func penstock_call_half_close(_ handle: OpaquePointer!) -> penstock_result {
  ask(handle) { $0.halfClose() }
}

@_cdecl("penstock_call_promise_half_close") @implementation
public func penstock_call_promise_half_close(_ handle: OpaquePointer!) -> penstock_result {
  ask(handle) { $0.promiseHalfClose() }
}

@_cdecl("penstock_call_receive") @implementation
public func penstock_call_receive(
  _ handle: OpaquePointer!, _ message: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let message else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { call in
    let (outcome, received) = call.receive()
    if outcome == .ok, let received { message.pointee = retained(received) }
    return outcome
  }
}

@_cdecl("penstock_call_receive_many") @implementation
public func penstock_call_receive_many(
  _ handle: OpaquePointer!, _ most: Int, _ data: UnsafeMutableRawPointer!, _ size: Int,
  _ lengths: UnsafeMutablePointer<Int>!, _ count: UnsafeMutablePointer<Int>!
) -> penstock_result {
  guard most > 0, bytes(data, size) != nil, let lengths, let count else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { call in
    let (outcome, number) = call.receiveMany(most, into: data, size, lengths: lengths)
    if outcome == .ok { count.pointee = number }
    return outcome
  }
}

@_cdecl("penstock_call_wait_headers") @implementation
public func penstock_call_wait_headers(
  _ handle: OpaquePointer!, _ headers: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let headers else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { call in
    let (outcome, found) = call.waitHeaders()
    if outcome == .ok, let found { headers.pointee = borrowed(found) }
    return outcome
  }
}

@_cdecl("penstock_call_wait_status") @implementation
public func penstock_call_wait_status(
  _ handle: OpaquePointer!, _ reply: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  waitForReply(handle, reply) { $0.waitStatus(timeoutMilliseconds: -1) }
}

@_cdecl("penstock_call_wait_status_for") @implementation
public func penstock_call_wait_status_for(
  _ handle: OpaquePointer!, _ timeout: Int64, _ reply: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard timeout >= -1 else { return PENSTOCK_E_INVALID_ARGUMENT }
  return waitForReply(handle, reply) { $0.waitStatus(timeoutMilliseconds: timeout) }
}

private func waitForReply(
  _ handle: OpaquePointer!, _ reply: UnsafeMutablePointer<OpaquePointer?>!,
  _ wait: (ClientCall) -> (Outcome, Reply?)
) -> penstock_result {
  guard let reply else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { call in
    let (outcome, ended) = wait(call)
    if outcome == .ok, let ended { reply.pointee = retained(ended) }
    return outcome
  }
}

@_cdecl("penstock_call_wait") @implementation
public func penstock_call_wait(
  _ handle: OpaquePointer!, _ reply: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  waitForReply(handle, reply) { $0.finish() }
}

@_cdecl("penstock_call_demand") @implementation
public func penstock_call_demand(_ handle: OpaquePointer!, _ count: UInt64) -> penstock_result {
  ask(handle) { $0.demand(count) }
}

@_cdecl("penstock_call_cancel") @implementation
public func penstock_call_cancel(_ handle: OpaquePointer!, _ reason: UnsafePointer<CChar>!) -> penstock_result
{
  with(handle) {
    $0.cancel(reason.map { bytes($0) } ?? ByteView(start: nil, count: 0))
    return .ok
  }
}

@_cdecl("penstock_call_reply") @implementation
public func penstock_call_reply(
  _ handle: OpaquePointer!, _ reply: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let reply else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { call in
    guard let ended = call.ended else { return .wouldBlock }
    reply.pointee = retained(ended)
    return .ok
  }
}

@_cdecl("penstock_call_value") @implementation
public func penstock_call_value(_ handle: OpaquePointer!, _ key: UnsafePointer<CChar>!)
  -> UnsafeMutableRawPointer!
{
  guard let handle, let key else { return nil }
  let call = object(handle, ClientCall.self)
  return Process.isForked(call.generation) ? nil : call.value(bytes(key))
}

@_cdecl("penstock_call_set_value") @implementation
public func penstock_call_set_value(
  _ handle: OpaquePointer!, _ key: UnsafePointer<CChar>!, _ value: UnsafeMutableRawPointer!,
  _ finalizer: penstock_finalizer!
) -> penstock_result {
  let data = value.map { UserData($0, finalizer) }
  guard let key else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { $0.setValue(bytes(key), data) }
}
