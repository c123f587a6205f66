import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLink
import PenstockClient

// The functions of registration.h: registering, changing and removing interceptors.

private func explain(_ outcome: Outcome, _ error: UnsafeMutablePointer<OpaquePointer?>?) -> penstock_result {
  switch outcome {
  case .notFound: report(outcome, "no interceptor is registered under this id", error)
  case .forked: report(outcome, "the registration belongs to the parent of this process", error)
  default: report(outcome, outcome.name, error)
  }
}

private func make(
  _ change: RegistrationChange, of id: penstock_interceptor_id,
  _ error: UnsafeMutablePointer<OpaquePointer?>?
) -> penstock_result {
  let (outcome, owner) = Registrations.owner(of: id)
  guard let owner else { return explain(outcome, error) }
  return explain(owner.make(change, of: id) ? .ok : .notFound, error)
}

@_cdecl("penstock_registration_remove") @implementation
public func penstock_registration_remove(
  _ id: penstock_interceptor_id, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  make(.removal, of: id, error)
}

@_cdecl("penstock_registration_set_priority") @implementation
public func penstock_registration_set_priority(
  _ id: penstock_interceptor_id, _ priority: Int32, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  make(.priority(priority), of: id, error)
}

@_cdecl("penstock_registration_set_filter") @implementation
public func penstock_registration_set_filter(
  _ id: penstock_interceptor_id, _ methods: UnsafePointer<CChar>!, _ kinds: UInt32,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let (filter, failure) = CallFilter.read(methods, kinds)
  if let failure { return failure.report(error) }
  return make(.filter(filter), of: id, error)
}

@_cdecl("penstock_registration_replace") @implementation
public func penstock_registration_replace(
  _ id: penstock_interceptor_id, _ interceptor: UnsafePointer<penstock_interceptor>!,
  _ newID: UnsafeMutablePointer<penstock_interceptor_id>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let table = InterceptorTable(interceptor)
  if let failure = table.failure { return failure.report(error) }
  guard let newID else { return report(.invalidArgument, "new_id must not be NULL", error) }
  let (outcome, owner) = Registrations.owner(of: id)
  guard let owner else { return explain(outcome, error) }
  let (registration, failure) = table.registration(on: owner)
  guard let registration else { return failure?.report(error) ?? PENSTOCK_E_NO_MEMORY }
  guard owner.make(.replacement(registration), of: id) else { return explain(.notFound, error) }
  newID.pointee = registration.id
  return PENSTOCK_OK
}

@_cdecl("penstock_registration_wait_removed") @implementation
public func penstock_registration_wait_removed(_ id: penstock_interceptor_id, _ timeout: Int64)
  -> penstock_result
{
  Registrations.waitForRemoval(id, timeoutMilliseconds: timeout).rawValue
}
