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
  place.pointee.level = given.level
  place.pointee.per_attempt = given.per_attempt
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
