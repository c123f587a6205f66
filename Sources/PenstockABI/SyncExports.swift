import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockClient

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
  let own = ordinary(made, table)
  let failure = writeTable(out, "table") { out in
    if let failure = out.take(own, SyncInterceptor.callbacks()) { return failure }
    // What neither table says. A second `next` sends the request again, so it is recorded; an interceptor with
    // per_attempt can't send it again.
    let records = out.per_attempt == 0 || out.level == PENSTOCK_LEVEL_OBJECT
    if out.hold_bytes == 0 { out.hold_bytes = Int(Int32.max) }
    if out.replay_bytes == 0, records { out.replay_bytes = 65536 }
    if out.max_restarts == 0 { out.max_restarts = .max }
    return nil
  }
  if let failure { return failure.report(error) }
  // The table has this reference; its finalizer releases it.
  _ = Unmanaged.passRetained(made)
  return PENSTOCK_OK
}

/// A copy of the text with a NUL at its end; only the NUL if `text` is NULL. nil: no memory.
private func copied(_ text: UnsafePointer<CChar>?) -> ByteBuffer? {
  let buffer = ByteBuffer()
  if let text, !buffer.append(bytes(text)) { return nil }
  return buffer.append(byte: 0) ? buffer : nil
}

private func ordinary(_ made: SyncInterceptor, _ given: penstock_sync_interceptor) -> penstock_interceptor {
  var table = penstock_interceptor()
  // Nothing changes the two strings, so the pointers to their storage stay valid.
  table.name = given.name == nil ? nil : cString(made.name)
  table.methods = made.methods.map { cString($0) }
  table.kinds = given.kinds
  table.level = given.level
  table.per_attempt = given.per_attempt
  table.hold_bytes = given.hold_bytes
  table.user_data = Unmanaged.passUnretained(made).toOpaque()
  table.finalizer = { if let made = $0 { Unmanaged<SyncInterceptor>.fromOpaque(made).release() } }
  table.replay_bytes = given.replay_bytes
  table.max_restarts = given.max_restarts
  return table
}
