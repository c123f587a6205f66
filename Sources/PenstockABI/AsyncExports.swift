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
  let given: penstock_async_interceptor
  switch readTable(interceptor, "interceptor") {
  case .refused(let failure): return failure.report(error)
  case .read(let table): given = table
  }
  let userData = UserData(given.user_data, given.finalizer)
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
  let failure = writeTable(table, "table") { table in
    table.name = given.name
    table.methods = given.methods
    table.kinds = given.kinds
    table.level = given.level
    table.per_attempt = given.per_attempt
    table.user_data = state
    table.finalizer = finalizer
    table.create = made.create
    table.destroy = made.destroy
    table.on_start = made.onStart
    table.on_send = made.onSend
    table.on_half_close = made.onHalfClose
    table.on_headers = made.onHeaders
    table.on_receive = made.onReceive
    table.on_status = made.onStatus
    table.on_cancel = made.onCancel
    table.on_demand = nil
    table.on_sent = nil
    return nil
  }
  guard let failure else { return PENSTOCK_OK }
  finalizer(state)
  return failure.report(error)
}
