public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockClient

// The functions of executor.h.

@_cdecl("penstock_executor_new") @implementation
public func penstock_executor_new(
  _ submit: penstock_submit!, _ userData: UnsafeMutableRawPointer!, _ finalizer: penstock_finalizer!,
  _ executor: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let data = UserData(userData, finalizer)
  guard let submit, let executor else { return PENSTOCK_E_INVALID_ARGUMENT }
  executor.pointee = retained(UserExecutor(submit, data) as HostExecutor)
  return PENSTOCK_OK
}

@_cdecl("penstock_executor_new_serial") @implementation
public func penstock_executor_new_serial(_ executor: UnsafeMutablePointer<OpaquePointer?>!) -> penstock_result
{
  guard let executor else { return PENSTOCK_E_INVALID_ARGUMENT }
  guard let made = SerialExecutor.make().0 else { return PENSTOCK_E_SYSTEM }
  executor.pointee = retained(made as HostExecutor)
  return PENSTOCK_OK
}

@_cdecl("penstock_executor_survives_fork") @implementation
public func penstock_executor_survives_fork(_ executor: OpaquePointer!) -> penstock_result {
  guard let executor else { return PENSTOCK_E_INVALID_ARGUMENT }
  let known = object(executor, HostExecutor.self)
  if known.isForked { return PENSTOCK_E_FORKED }
  return known.survivesFork() ? PENSTOCK_OK : PENSTOCK_E_STATE
}

@_cdecl("penstock_executor_retain") @implementation
public func penstock_executor_retain(_ executor: OpaquePointer!) -> OpaquePointer! {
  retain(executor, HostExecutor.self)
}

@_cdecl("penstock_executor_release") @implementation
public func penstock_executor_release(_ executor: OpaquePointer!) { release(executor, HostExecutor.self) }
