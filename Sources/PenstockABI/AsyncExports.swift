import CMemory
public import CPenstock
import PenstockCall
import PenstockTransport
import PenstockWire

// The functions of async.h.

@_cdecl("penstock_async_interceptor_table") @implementation
public func penstock_async_interceptor_table(
  _ interceptor: UnsafePointer<penstock_async_interceptor>!,
  _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let known = MemoryLayout<penstock_async_interceptor>.size
  guard let interceptor else {
    return report(.invalidArgument, "interceptor must not be NULL", error)
  }
  let size = interceptor.pointee.struct_size
  guard size >= known else {
    return report(
      .invalidArgument, "interceptor.struct_size is too small: use PENSTOCK_ASYNC_INTERCEPTOR_INIT", error)
  }
  let given = interceptor.pointee
  let userData = UserData(given.user_data, given.finalizer)
  if hasUnknownFields(interceptor, size, known: known) {
    return report(
      .unsupported, "interceptor.struct_size: the table has fields that this version does not know", error)
  }
  guard let table, table.pointee.struct_size >= InterceptorTable.firstSize else {
    return report(.invalidArgument, "table must be made with PENSTOCK_INTERCEPTOR_INIT", error)
  }
  var callbacks = AsyncCallbacks()
  callbacks.create = given.create
  callbacks.destroy = given.destroy
  callbacks.onStart = given.on_start
  callbacks.onSend = given.on_send
  callbacks.onHalfClose = given.on_half_close
  callbacks.onHeaders = given.on_headers
  callbacks.onReceive = given.on_receive
  callbacks.onStatus = given.on_status
  callbacks.onCancel = given.on_cancel
  let (made, state, finalizer) = AsyncState.table(callbacks, userData)
  table.pointee.name = given.name
  table.pointee.methods = given.methods
  table.pointee.kinds = given.kinds
  table.pointee.level = given.level
  table.pointee.per_attempt = given.per_attempt
  table.pointee.user_data = state
  table.pointee.finalizer = finalizer
  table.pointee.create = made.create
  table.pointee.destroy = made.destroy
  table.pointee.on_start = made.onStart
  table.pointee.on_send = made.onSend
  table.pointee.on_half_close = made.onHalfClose
  table.pointee.on_headers = made.onHeaders
  table.pointee.on_receive = made.onReceive
  table.pointee.on_status = made.onStatus
  table.pointee.on_cancel = made.onCancel
  table.pointee.on_demand = nil
  table.pointee.on_sent = nil
  return PENSTOCK_OK
}
