import CMemory
public import CPenstock
import PenstockCall
import PenstockTransport
import PenstockWire

// The functions of sync.h.

@_cdecl("penstock_sync_interceptor_table") @implementation
public func penstock_sync_interceptor_table(
  _ given: UnsafePointer<penstock_sync_interceptor>!, _ out: UnsafeMutablePointer<penstock_interceptor>!,
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
  guard let out, out.pointee.struct_size >= InterceptorTable.firstSize else {
    return report(.invalidArgument, "table must be made with PENSTOCK_INTERCEPTOR_INIT", error)
  }
  guard let name = copied(table.name), let methods = copied(table.methods) else {
    return report(.noMemory, "no memory", error)
  }
  let made = SyncInterceptor(function, userData, name: name, methods: table.methods == nil ? nil : methods)
  fill(out, made, table)
  return PENSTOCK_OK
}

/// A copy of the text with a NUL at its end; only the NUL if `text` is NULL. nil: no memory.
private func copied(_ text: UnsafePointer<CChar>?) -> ByteBuffer? {
  let buffer = ByteBuffer()
  if let text, !buffer.append(bytes(text)) { return nil }
  return buffer.append(byte: 0) ? buffer : nil
}

private func fill(
  _ out: UnsafeMutablePointer<penstock_interceptor>, _ made: SyncInterceptor,
  _ given: penstock_sync_interceptor
) {
  let callbacks = SyncInterceptor.callbacks()
  // Nothing changes the two strings, so the pointers to their storage stay valid.
  out.pointee.name = cString(made.name)
  out.pointee.methods = made.methods.map { cString($0) }
  out.pointee.kinds = given.kinds
  out.pointee.level = given.level
  out.pointee.per_attempt = given.per_attempt
  out.pointee.hold_bytes = given.hold_bytes == 0 ? Int(Int32.max) : given.hold_bytes
  // If the interceptor's function calls `next` a second time, the request is sent again, so it is recorded.
  // An interceptor with per_attempt can't send it again.
  let records = given.per_attempt == 0 || given.level == PENSTOCK_LEVEL_OBJECT
  out.pointee.replay_bytes = records ? 65536 : 0
  out.pointee.max_restarts = .max
  out.pointee.user_data = Unmanaged.passRetained(made).toOpaque()
  out.pointee.finalizer = { made in
    if let made { Unmanaged<SyncInterceptor>.fromOpaque(made).release() }
  }
  out.pointee.create = callbacks.create
  out.pointee.destroy = callbacks.destroy
  out.pointee.on_start = callbacks.onStart
  out.pointee.on_send = callbacks.onSend
  out.pointee.on_half_close = callbacks.onHalfClose
  out.pointee.on_headers = callbacks.onHeaders
  out.pointee.on_receive = callbacks.onReceive
  out.pointee.on_status = callbacks.onStatus
  out.pointee.on_cancel = callbacks.onCancel
  out.pointee.on_demand = callbacks.onDemand
}
