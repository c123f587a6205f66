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
  let table: penstock_sync_interceptor
  switch readTable(given, "interceptor") {
  case .refused(let failure): return failure.report(error)
  case .read(let read): table = read
  }
  let userData = UserData(table.user_data, table.finalizer)
  guard let function = table.intercept else {
    return report(.invalidArgument, "interceptor.intercept must not be NULL", error)
  }
  guard let name = copied(table.name), let methods = copied(table.methods) else {
    return report(.noMemory, "no memory", error)
  }
  let made = SyncInterceptor(function, userData, name: name, methods: table.methods == nil ? nil : methods)
  let failure = writeTable(out, "table") { out in
    fill(&out, made, table)
    return nil
  }
  guard let failure else { return PENSTOCK_OK }
  Unmanaged.passUnretained(made).release()
  return failure.report(error)
}

/// A copy of the text with a NUL at its end; only the NUL if `text` is NULL. nil: no memory.
private func copied(_ text: UnsafePointer<CChar>?) -> ByteBuffer? {
  let buffer = ByteBuffer()
  if let text, !buffer.append(bytes(text)) { return nil }
  return buffer.append(byte: 0) ? buffer : nil
}

private func fill(
  _ out: inout penstock_interceptor, _ made: SyncInterceptor,
  _ given: penstock_sync_interceptor
) {
  let callbacks = SyncInterceptor.callbacks()
  // Nothing changes the two strings, so the pointers to their storage stay valid.
  out.name = cString(made.name)
  out.methods = made.methods.map { cString($0) }
  out.kinds = given.kinds
  out.level = given.level
  out.per_attempt = given.per_attempt
  out.hold_bytes = given.hold_bytes == 0 ? Int(Int32.max) : given.hold_bytes
  // If the interceptor's function calls `next` a second time, the request is sent again, so it is recorded.
  // An interceptor with per_attempt can't send it again.
  let records = given.per_attempt == 0 || given.level == PENSTOCK_LEVEL_OBJECT
  out.replay_bytes = records ? 65536 : 0
  out.max_restarts = .max
  out.user_data = Unmanaged.passRetained(made).toOpaque()
  out.finalizer = { made in
    if let made { Unmanaged<SyncInterceptor>.fromOpaque(made).release() }
  }
  out.create = callbacks.create
  out.destroy = callbacks.destroy
  out.on_start = callbacks.onStart
  out.on_send = callbacks.onSend
  out.on_half_close = callbacks.onHalfClose
  out.on_headers = callbacks.onHeaders
  out.on_receive = callbacks.onReceive
  out.on_status = callbacks.onStatus
  out.on_cancel = callbacks.onCancel
  out.on_demand = callbacks.onDemand
}
