import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockClient
import PenstockTickets

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
  callbacks.onDemand = given.on_demand
  callbacks.onSent = given.on_sent
  callbacks.onPick = given.on_pick
  let (made, state, finalizer) = AsyncState.table(callbacks, userData)
  var own = penstock_interceptor()
  own.name = given.name
  own.methods = given.methods
  own.kinds = given.kinds
  own.level = given.level
  own.per_attempt = given.per_attempt
  own.hold_bytes = given.hold_bytes
  own.user_data = state
  own.finalizer = finalizer
  own.replay_bytes = given.replay_bytes
  own.max_restarts = given.max_restarts
  own.headers_wait = given.headers_wait
  let failure = writeTable(table, "table") { $0.take(own, made) }
  guard let failure else { return PENSTOCK_OK }
  finalizer(state)
  return failure.report(error)
}
