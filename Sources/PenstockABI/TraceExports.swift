import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockClient

// The functions of hop.h, call.h and runtime.h for traces, and for snapshots of running calls.

/// How long a function waits for the loop to report what a call is doing, in nanoseconds.
private let patience: UInt64 = 100_000_000

private func give(_ made: JSON.Value?, _ out: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>)
  -> penstock_result
{
  guard let text = JSON.dump(made) else { return PENSTOCK_E_NO_MEMORY }
  out.pointee = text
  return PENSTOCK_OK
}

@_cdecl("penstock_call_trace_json") @implementation
public func penstock_call_trace_json(
  _ handle: OpaquePointer!, _ json: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let handle, let json else { return PENSTOCK_E_INVALID_ARGUMENT }
  let call = object(handle, ClientCall.self)
  if Process.isForked(call.generation) { return PENSTOCK_E_FORKED }
  return give(traceJSON(call, call.view(within: patience)), json)
}

@_cdecl("penstock_hop_trace_json") @implementation
public func penstock_hop_trace_json(
  _ handle: OpaquePointer!, _ json: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let handle, let json else { return PENSTOCK_E_INVALID_ARGUMENT }
  let hop = HopHandle.referent(handle).hop
  if hop.isForked { return PENSTOCK_E_FORKED }
  guard let call = ClientCall.of(hop) else { return PENSTOCK_E_GONE }
  return give(traceJSON(call, call.view(within: patience)), json)
}

@_cdecl("penstock_reply_trace_json") @implementation
public func penstock_reply_trace_json(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  replyText(handle, .trace) { $0.trace.flatMap { traceJSON($0) } ?? JSON.object { _ in }.value }
}

@_cdecl("penstock_runtime_snapshot_json") @implementation
public func penstock_runtime_snapshot_json(
  _ handle: OpaquePointer!, _ timeout: Int64, _ json: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let handle, let json else { return PENSTOCK_E_INVALID_ARGUMENT }
  let runtime = object(handle, ClientRuntime.self)
  if Process.isForked(runtime.generation) { return PENSTOCK_E_FORKED }
  return give(snapshotJSON(runtime.view(within: nanoseconds(UInt64(max(timeout, 0))))), json)
}
