public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockLoop
import PenstockTransport
import PenstockWire
import PenstockClient

// The functions of cancel.h.

@_cdecl("penstock_cancel_scope_new") @implementation
public func penstock_cancel_scope_new(_ scope: UnsafeMutablePointer<OpaquePointer?>!) -> penstock_result {
  guard let scope else { return PENSTOCK_E_INVALID_ARGUMENT }
  if memoryIsLow { return PENSTOCK_E_NO_MEMORY }
  scope.pointee = retained(CancelScope())
  return PENSTOCK_OK
}

@_cdecl("penstock_cancel_scope_cancel") @implementation
public func penstock_cancel_scope_cancel(_ scope: OpaquePointer!, _ reason: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let scope else { return PENSTOCK_E_INVALID_ARGUMENT }
  return object(scope, CancelScope.self).cancel(reason.map { bytes($0) } ?? ByteView(start: nil, count: 0))
    .rawValue
}

@_cdecl("penstock_cancel_scope_retain") @implementation
public func penstock_cancel_scope_retain(_ scope: OpaquePointer!) -> OpaquePointer! {
  retain(scope, CancelScope.self)
}

@_cdecl("penstock_cancel_scope_release") @implementation
public func penstock_cancel_scope_release(_ scope: OpaquePointer!) { release(scope, CancelScope.self) }
