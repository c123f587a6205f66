import CPenstockMemory
import CPenstock
import PenstockJSON
import PenstockCall
import PenstockReady
import PenstockTransport
import PenstockWire
import PenstockClient
import PenstockTickets

// The tables that the library fills (penstock_interceptor): their callbacks and user data are the library's.

extension penstock_interceptor {
  mutating func takeCallbacks(_ callbacks: Registration.Callbacks) {
    create = callbacks.create
    destroy = callbacks.destroy
    on_start = callbacks.onStart
    on_send = callbacks.onSend
    on_half_close = callbacks.onHalfClose
    on_headers = callbacks.onHeaders
    on_receive = callbacks.onReceive
    on_status = callbacks.onStatus
    on_cancel = callbacks.onCancel
    on_demand = callbacks.onDemand
    on_sent = callbacks.onSent
    on_pick = callbacks.onPick
  }

  /// Takes the fields of `own`, which a function of the library has made for this table, and its callbacks. What the
  /// caller has set before stays; a failure names a field that would be lost.
  mutating func take(_ own: penstock_interceptor, _ callbacks: Registration.Callbacks) -> Failure? {
    var lost = setByFiller
    var table = self
    set(&table.name, own.name, "name", &lost)
    set(&table.methods, own.methods, "methods", &lost)
    set(&table.kinds, own.kinds, "kinds", &lost)
    set(&table.level, own.level, "level", &lost)
    set(&table.per_attempt, own.per_attempt, "per_attempt", &lost)
    set(&table.hold_bytes, own.hold_bytes, "hold_bytes", &lost)
    set(&table.replay_bytes, own.replay_bytes, "replay_bytes", &lost)
    set(&table.max_restarts, own.max_restarts, "max_restarts", &lost)
    set(&table.headers_wait, own.headers_wait, "headers_wait", &lost)
    if let lost {
      return Failure(
        .invalidArgument, ("table." as StaticString).bytes, lost.bytes,
        (": expected 0, because the function that fills the table sets it" as StaticString).bytes)
    }
    table.user_data = own.user_data
    table.finalizer = own.finalizer
    table.takeCallbacks(callbacks)
    self = table
    return nil
  }

  /// A field that is set although it is for the function that fills the table: user data, or a callback, which would
  /// get the library's state. nil: none is set.
  private var setByFiller: StaticString? {
    if user_data != nil { return "user_data" }
    if finalizer != nil { return "finalizer" }
    if create != nil { return "create" }
    if destroy != nil { return "destroy" }
    if on_start != nil { return "on_start" }
    if on_send != nil { return "on_send" }
    if on_half_close != nil { return "on_half_close" }
    if on_headers != nil { return "on_headers" }
    if on_receive != nil { return "on_receive" }
    if on_status != nil { return "on_status" }
    if on_cancel != nil { return "on_cancel" }
    if on_demand != nil { return "on_demand" }
    if on_sent != nil { return "on_sent" }
    if on_connection != nil { return "on_connection" }
    if on_pick != nil { return "on_pick" }
    return nil
  }

  /// Why the table can't be registered, if the library has filled it and the program has changed it since.
  var faultSinceFilled: Failure? {
    let mark = destroy.map { unsafeBitCast($0, to: UInt.self) }
    let isSync = mark == unsafeBitCast(SyncInterceptor.destroy, to: UInt.self)
    let isFilled =
      isSync || mark == unsafeBitCast(AsyncState.destroy, to: UInt.self)
      || finalizer.map { unsafeBitCast($0, to: UInt.self) }
        == unsafeBitCast(ReadyInterceptor.finalize, to: UInt.self)
    if isFilled, let told = on_connection, !isReadyCallback(unsafeBitCast(told, to: UInt.self)) {
      return Failure(
        .invalidArgument,
        "interceptor.on_connection: expected NULL in a table that the library has filled, whose user_data it would get"
      )
    }
    if isSync, outbound_executor != nil || inbound_executor != nil {
      return Failure(
        .invalidArgument,
        "interceptor: expected no executors, because a synchronous function has a thread of its own")
    }
    return nil
  }
}

private func set(
  _ field: inout UnsafePointer<CChar>?, _ value: UnsafePointer<CChar>?, _ name: StaticString,
  _ lost: inout StaticString?
) {
  guard let value else { return }
  if let before = field, strcmp(before, value) != 0, lost == nil { lost = name }
  field = value
}

private func set<Value: FixedWidthInteger>(
  _ field: inout Value, _ value: Value, _ name: StaticString, _ lost: inout StaticString?
) {
  guard value != 0 else { return }
  if field != 0, field != value, lost == nil { lost = name }
  field = value
}
