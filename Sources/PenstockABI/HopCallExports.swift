import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockClient

// The function of hop.h that starts a side call: a call that an interceptor makes itself.

@_cdecl("penstock_hop_start_side_call") @implementation
public func penstock_hop_start_side_call(
  _ handle: OpaquePointer!, _ method: UnsafePointer<CChar>!, _ kind: Int32, _ flags: UInt32,
  _ callOptions: OpaquePointer!, _ callbacks: UnsafePointer<penstock_call_callbacks>!,
  _ out: UnsafeMutablePointer<OpaquePointer?>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let (table, failure) = read(callbacks)
  if let failure { return failure.report(error) }
  guard let handle, let method, let out else {
    return report(.invalidArgument, "hop, method and call must not be NULL", error)
  }
  guard let kind = CallKind(rawValue: kind) else {
    return report(.invalidArgument, "kind: expected PENSTOCK_KIND_...", error)
  }
  let wanted = ClientCall.SideFlags(rawValue: flags)
  guard wanted.isSubset(of: .all) else {
    return report(.invalidArgument, "flags: expected PENSTOCK_SIDE_CALL_...", error)
  }
  let hop = HopHandle.referent(handle).hop
  if hop.isForked { return report(.forked, "the hop belongs to the parent of this process", error) }
  let (outcome, call) = ClientCall.makeSide(
    of: hop, bytes(method), kind, wanted, callOptions.map { object($0, CallOptions.self) }, table)
  guard let call else {
    if outcome == .gone { return report(outcome, "the hop's call has ended", error) }
    return explain(outcome, method, error)
  }
  // The caller gets the handle before the call opens, because a callback on another thread may release the
  // handle.
  out.pointee = OpaquePointer(call._withUnsafeGuaranteedRef { retainNew($0) }.toOpaque())
  call._withUnsafeGuaranteedRef { $0.open() }
  call.release()
  return PENSTOCK_OK
}
