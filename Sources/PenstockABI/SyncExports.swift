import CMemory
public import CPenstock
import PenstockCall
import PenstockTransport
import PenstockWire

// sync.h

@_cdecl("penstock_sync_interceptor_table") @implementation
public func penstock_sync_interceptor_table(
  _ given: UnsafePointer<penstock_sync_interceptor>!, _ place: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let known = MemoryLayout<penstock_sync_interceptor>.size
  guard let given else { return report(.invalidArgument, "interceptor must not be NULL", error) }
  let size = given.pointee.struct_size
  guard size >= known else {
    return report(
      .invalidArgument, "interceptor.struct_size is too small: use PENSTOCK_SYNC_INTERCEPTOR_INIT", error)
  }
  var table = penstock_sync_interceptor()
  memcpy(&table, given, known)
  let userData = UserData(table.user_data, table.finalizer)
  if hasUnknownFields(given, size, known: known) {
    return report(
      .unsupported, "interceptor.struct_size: the table has fields that this version does not know", error)
  }
  guard let function = table.intercept else {
    return report(.invalidArgument, "interceptor.intercept must not be NULL", error)
  }
  guard let place, place.pointee.struct_size >= InterceptorTable.firstSize else {
    return report(.invalidArgument, "table must be made with PENSTOCK_INTERCEPTOR_INIT", error)
  }
  guard let name = copied(table.name), let methods = copied(table.methods) else {
    return report(.noMemory, "no memory", error)
  }
  let made = SyncInterceptor(function, userData, name: name, methods: table.methods == nil ? nil : methods)
  fill(place, made, table)
  return PENSTOCK_OK
}

/// With a NUL behind it; empty for NULL.
private func copied(_ text: UnsafePointer<CChar>?) -> ByteBuffer? {
  let buffer = ByteBuffer()
  if let text, !buffer.append(bytes(text)) { return nil }
  return buffer.append(byte: 0) ? buffer : nil
}

private func fill(
  _ place: UnsafeMutablePointer<penstock_interceptor>, _ made: SyncInterceptor,
  _ given: penstock_sync_interceptor
) {
  let callbacks = SyncInterceptor.callbacks()
  // The storage of both strings stays where it is, for nothing changes them.
  place.pointee.name = cString(made.name)
  place.pointee.methods = made.methods.map { cString($0) }
  place.pointee.kinds = given.kinds
  place.pointee.flags = given.flags
  place.pointee.hold_bytes = given.hold_bytes == 0 ? Int(Int32.max) : given.hold_bytes
  place.pointee.user_data = Unmanaged.passRetained(made).toOpaque()
  place.pointee.finalizer = { made in
    if let made { Unmanaged<SyncInterceptor>.fromOpaque(made).release() }
  }
  place.pointee.create = callbacks.create
  place.pointee.destroy = callbacks.destroy
  place.pointee.on_start = callbacks.onStart
  place.pointee.on_send = callbacks.onSend
  place.pointee.on_half_close = callbacks.onHalfClose
  place.pointee.on_headers = callbacks.onHeaders
  place.pointee.on_receive = callbacks.onReceive
  place.pointee.on_status = callbacks.onStatus
  place.pointee.on_cancel = callbacks.onCancel
  place.pointee.on_demand = callbacks.onDemand
}

/// The call, if the handle is one and this process's.
private func with(_ handle: OpaquePointer?, _ body: (InterceptedCall) -> Outcome) -> penstock_result {
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  let call = InterceptedCall.from(handle)
  return Process.isForked(call.generation) ? PENSTOCK_E_FORKED : body(call).rawValue
}

/// The same for what has no result: nil for NULL, and in a child.
private func call(_ handle: OpaquePointer?) -> InterceptedCall? {
  guard let handle else { return nil }
  let call = InterceptedCall.from(handle)
  return Process.isForked(call.generation) ? nil : call
}

// MARK: - Going on, ending, answering

@_cdecl("penstock_intercepted_next") @implementation
public func penstock_intercepted_next(_ handle: OpaquePointer!) -> penstock_result {
  with(handle) { $0.next() }
}

@_cdecl("penstock_intercepted_cancel") @implementation
public func penstock_intercepted_cancel(
  _ handle: OpaquePointer!, _ code: Int32, _ message: UnsafePointer<CChar>!
) -> penstock_result {
  let (made, outcome) = status(code, message)
  guard let made else { return outcome.rawValue }
  return with(handle) { $0.cancel(made) }
}

@_cdecl("penstock_intercepted_cancel_with") @implementation
public func penstock_intercepted_cancel_with(_ handle: OpaquePointer!, _ status: OpaquePointer!)
  -> penstock_result
{
  guard let status else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { $0.cancel(object(status, Status.self).copy()) }
}

@_cdecl("penstock_intercepted_answer_message") @implementation
public func penstock_intercepted_answer_message(
  _ handle: OpaquePointer!, _ data: UnsafeRawPointer!, _ length: Int
) -> penstock_result {
  withCopy(handle, data, length) { $0.addAnswer($1) }
}

@_cdecl("penstock_intercepted_answer") @implementation
public func penstock_intercepted_answer(
  _ handle: OpaquePointer!, _ headers: OpaquePointer!, _ status: OpaquePointer!
) -> penstock_result {
  with(handle) { call in
    let copied = headers.map { object($0, Metadata.self).copy() }
    if let copied, copied == nil { return .noMemory }
    return call.answer(copied ?? nil, status.map { object($0, Status.self).copy() } ?? Status(.ok))
  }
}

@_cdecl("penstock_intercepted_hop") @implementation
public func penstock_intercepted_hop(_ handle: OpaquePointer!) -> OpaquePointer! {
  call(handle)?.runningHop.map { borrowed($0) }
}

// MARK: - The request

@_cdecl("penstock_intercepted_id") @implementation
public func penstock_intercepted_id(_ handle: OpaquePointer!) -> UInt64 {
  handle.map { InterceptedCall.from($0).id } ?? 0
}

@_cdecl("penstock_intercepted_kind") @implementation
public func penstock_intercepted_kind(_ handle: OpaquePointer!) -> Int32 {
  handle.map { InterceptedCall.from($0).kind.rawValue } ?? -1
}

@_cdecl("penstock_intercepted_attempt") @implementation
public func penstock_intercepted_attempt(_ handle: OpaquePointer!) -> UInt32 {
  handle.map { InterceptedCall.from($0).attempt } ?? 0
}

@_cdecl("penstock_intercepted_level") @implementation
public func penstock_intercepted_level(_ handle: OpaquePointer!) -> Int32 {
  handle.map { Int32(InterceptedCall.from($0).level.rawValue) } ?? -1
}

@_cdecl("penstock_intercepted_target") @implementation
public func penstock_intercepted_target(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  handle.map { cString(InterceptedCall.from($0).target) }
}

@_cdecl("penstock_intercepted_method") @implementation
public func penstock_intercepted_method(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  handle.map { cString(InterceptedCall.from($0).start.path) }
}

@_cdecl("penstock_intercepted_set_method") @implementation
public func penstock_intercepted_set_method(_ handle: OpaquePointer!, _ method: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let method else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { $0.setPath(bytes(method)) }
}

@_cdecl("penstock_intercepted_authority") @implementation
public func penstock_intercepted_authority(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  handle.map { cString(InterceptedCall.from($0).start.authority) }
}

@_cdecl("penstock_intercepted_set_authority") @implementation
public func penstock_intercepted_set_authority(_ handle: OpaquePointer!, _ authority: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let authority else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { $0.setAuthority(bytes(authority)) }
}

@_cdecl("penstock_intercepted_deadline_ms") @implementation
public func penstock_intercepted_deadline_ms(_ handle: OpaquePointer!) -> Int64 {
  guard let handle, let deadline = InterceptedCall.from(handle).start.deadline else { return -1 }
  let now = Runtime.monotonicNow()
  return deadline > now ? Int64(clamping: (deadline - now) / 1_000_000) : 0
}

@_cdecl("penstock_intercepted_set_deadline_ms") @implementation
public func penstock_intercepted_set_deadline_ms(_ handle: OpaquePointer!, _ ms: Int64) -> penstock_result {
  guard ms >= -1 else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { call in
    guard ms >= 0 else { return call.setDeadline(nil) }
    let (time, overflow) = Runtime.monotonicNow().addingReportingOverflow(nanoseconds(UInt64(ms)))
    return call.setDeadline(overflow ? nil : time)
  }
}

@_cdecl("penstock_intercepted_metadata") @implementation
public func penstock_intercepted_metadata(_ handle: OpaquePointer!) -> OpaquePointer! {
  call(handle)?.requestMetadata.map { borrowed($0) }
}

/// The message, if it is there and may be looked at now.
private func give(
  _ handle: OpaquePointer?, _ data: UnsafeMutablePointer<UnsafeRawPointer?>?,
  _ length: UnsafeMutablePointer<Int>?, _ isOpen: (InterceptedCall) -> Bool,
  _ find: (InterceptedCall) -> Message?
) -> penstock_result {
  guard let data, let length else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { call in
    guard isOpen(call) else { return .state }
    guard call.codec == nil else { return .state }
    guard let message = find(call) else { return .notFound }
    give(message, data, length)
    return .ok
  }
}

private func withCopy(
  _ handle: OpaquePointer?, _ data: UnsafeRawPointer?, _ length: Int,
  _ body: (InterceptedCall, Message) -> Outcome
) -> penstock_result {
  guard let bytes = bytes(data, length) else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { call in
    guard let message = ByteBuffer(copying: bytes) else { return .noMemory }
    return body(call, message)
  }
}

@_cdecl("penstock_intercepted_request") @implementation
public func penstock_intercepted_request(
  _ handle: OpaquePointer!, _ data: UnsafeMutablePointer<UnsafeRawPointer?>!,
  _ length: UnsafeMutablePointer<Int>!
) -> penstock_result {
  give(handle, data, length, { $0.isBeforeNext }, { $0.requestMessage })
}

@_cdecl("penstock_intercepted_set_request") @implementation
public func penstock_intercepted_set_request(
  _ handle: OpaquePointer!, _ data: UnsafeRawPointer!, _ length: Int
) -> penstock_result {
  withCopy(handle, data, length) { $0.setRequest($1) }
}

// MARK: - The response

@_cdecl("penstock_intercepted_headers") @implementation
public func penstock_intercepted_headers(_ handle: OpaquePointer!) -> OpaquePointer! {
  call(handle)?.responseHeaders.map { borrowed($0) }
}

@_cdecl("penstock_intercepted_response") @implementation
public func penstock_intercepted_response(
  _ handle: OpaquePointer!, _ data: UnsafeMutablePointer<UnsafeRawPointer?>!,
  _ length: UnsafeMutablePointer<Int>!
) -> penstock_result {
  give(handle, data, length, { $0.isAfterNext }, { $0.responseMessage })
}

@_cdecl("penstock_intercepted_set_response") @implementation
public func penstock_intercepted_set_response(
  _ handle: OpaquePointer!, _ data: UnsafeRawPointer!, _ length: Int
) -> penstock_result {
  withCopy(handle, data, length) { $0.setResponse($1) }
}

@_cdecl("penstock_intercepted_status") @implementation
public func penstock_intercepted_status(_ handle: OpaquePointer!) -> OpaquePointer! {
  call(handle)?.responseStatus.map { borrowed($0) }
}

// MARK: - Objects

/// With `.state` it stays the caller's.
private func withObject(
  _ handle: OpaquePointer?, _ given: UnsafeMutableRawPointer?, _ body: (InterceptedCall, Message) -> Outcome
) -> penstock_result {
  with(handle) { call in
    guard let codec = call.codec else { return .state }
    let object = CodecObject(given, codec)
    let outcome = body(call, ByteBuffer(object: object))
    if outcome == .state { object.leave() }
    return outcome
  }
}

@_cdecl("penstock_intercepted_request_object") @implementation
public func penstock_intercepted_request_object(_ handle: OpaquePointer!) -> UnsafeMutableRawPointer! {
  call(handle)?.requestMessage?.codecObject?.pointer
}

@_cdecl("penstock_intercepted_set_request_object") @implementation
public func penstock_intercepted_set_request_object(
  _ handle: OpaquePointer!, _ object: UnsafeMutableRawPointer!
) -> penstock_result {
  withObject(handle, object) { $0.setRequest($1) }
}

@_cdecl("penstock_intercepted_response_object") @implementation
public func penstock_intercepted_response_object(_ handle: OpaquePointer!) -> UnsafeMutableRawPointer! {
  call(handle)?.responseMessage?.codecObject?.pointer
}

@_cdecl("penstock_intercepted_set_response_object") @implementation
public func penstock_intercepted_set_response_object(
  _ handle: OpaquePointer!, _ object: UnsafeMutableRawPointer!
) -> penstock_result {
  withObject(handle, object) { $0.setResponse($1) }
}

@_cdecl("penstock_intercepted_answer_object") @implementation
public func penstock_intercepted_answer_object(_ handle: OpaquePointer!, _ object: UnsafeMutableRawPointer!)
  -> penstock_result
{
  withObject(handle, object) { $0.addAnswer($1) }
}

// MARK: - Values

@_cdecl("penstock_intercepted_set_value") @implementation
public func penstock_intercepted_set_value(
  _ handle: OpaquePointer!, _ key: UnsafePointer<CChar>!, _ value: UnsafeMutableRawPointer!,
  _ finalizer: penstock_finalizer!
) -> penstock_result {
  let data = value.map { UserData($0, finalizer) }
  guard let key else { return PENSTOCK_E_INVALID_ARGUMENT }
  return with(handle) { call in
    call.setValue(bytes(key), data)
  }
}

@_cdecl("penstock_intercepted_get_value") @implementation
public func penstock_intercepted_get_value(_ handle: OpaquePointer!, _ key: UnsafePointer<CChar>!)
  -> UnsafeMutableRawPointer!
{
  key.flatMap { call(handle)?.value(bytes($0)) }
}
