public import CPenstock
import PenstockCall
import PenstockWire

// hop.h: how the call is to be made.

/// NULL for the hop gives the defaults, and so it is where none of its callbacks runs.
@inline(never)
private func settings(_ handle: OpaquePointer?) -> CallSettings {
  running(handle)?.settings ?? CallSettings()
}

private func change(_ handle: OpaquePointer?, _ body: (Hop) -> Outcome) -> penstock_result {
  withHop(handle, body)
}

/// A limit as the JSON options take it.
private func limit(_ bytes: Int) -> Int? { bytes >= 0 && bytes <= Int(Int32.max) ? bytes : nil }

@_cdecl("penstock_hop_compression") @implementation
public func penstock_hop_compression(_ hop: OpaquePointer!) -> UnsafePointer<CChar>! {
  switch settings(hop).compression {
  case .identity: cString("identity")
  case .gzip: cString("gzip")
  }
}

@_cdecl("penstock_hop_set_compression") @implementation
public func penstock_hop_set_compression(_ hop: OpaquePointer!, _ name: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let name else { return PENSTOCK_E_INVALID_ARGUMENT }
  let isGzip = bytesEqual(bytes(name), "gzip")
  guard isGzip || bytesEqual(bytes(name), "identity") else { return PENSTOCK_E_INVALID_ARGUMENT }
  return change(hop) { $0.changeSettings { $0.compression = isGzip ? .gzip : .identity } }
}

@_cdecl("penstock_hop_max_receive_message_bytes") @implementation
public func penstock_hop_max_receive_message_bytes(_ hop: OpaquePointer!) -> Int {
  hop == nil ? 0 : settings(hop).maxReceiveBytes
}

@_cdecl("penstock_hop_set_max_receive_message_bytes") @implementation
public func penstock_hop_set_max_receive_message_bytes(_ hop: OpaquePointer!, _ n: Int) -> penstock_result {
  guard let n = limit(n) else { return PENSTOCK_E_INVALID_ARGUMENT }
  return change(hop) { $0.changeSettings { $0.maxReceiveBytes = n } }
}

@_cdecl("penstock_hop_max_send_message_bytes") @implementation
public func penstock_hop_max_send_message_bytes(_ hop: OpaquePointer!) -> Int {
  hop == nil ? 0 : settings(hop).maxSendBytes
}

@_cdecl("penstock_hop_set_max_send_message_bytes") @implementation
public func penstock_hop_set_max_send_message_bytes(_ hop: OpaquePointer!, _ n: Int) -> penstock_result {
  guard let n = limit(n) else { return PENSTOCK_E_INVALID_ARGUMENT }
  return change(hop) { $0.changeSettings { $0.maxSendBytes = n } }
}

@_cdecl("penstock_hop_idempotency") @implementation
public func penstock_hop_idempotency(_ hop: OpaquePointer!) -> Int32 { settings(hop).idempotency.rawValue }

@_cdecl("penstock_hop_set_idempotency") @implementation
public func penstock_hop_set_idempotency(_ hop: OpaquePointer!, _ idempotency: Int32) -> penstock_result {
  guard let wanted = Idempotency(rawValue: idempotency) else { return PENSTOCK_E_INVALID_ARGUMENT }
  return change(hop) { $0.changeSettings { $0.idempotency = wanted } }
}

@_cdecl("penstock_hop_wait_for_ready") @implementation
public func penstock_hop_wait_for_ready(_ hop: OpaquePointer!) -> Int32 {
  settings(hop).waitsForReady ? 1 : 0
}

@_cdecl("penstock_hop_set_wait_for_ready") @implementation
public func penstock_hop_set_wait_for_ready(_ hop: OpaquePointer!, _ wait: Int32) -> penstock_result {
  change(hop) { $0.changeSettings { $0.waitsForReady = wait != 0 } }
}

@_cdecl("penstock_hop_has_credentials") @implementation
public func penstock_hop_has_credentials(_ hop: OpaquePointer!) -> Int32 {
  settings(hop).credentials == nil ? 0 : 1
}

@_cdecl("penstock_hop_set_credentials") @implementation
public func penstock_hop_set_credentials(_ hop: OpaquePointer!, _ authorization: UnsafePointer<CChar>!)
  -> penstock_result
{
  change(hop) { $0.setCredentials(authorization.map { bytes($0) }) }
}
