public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockClient
import PenstockLink
import PenstockLoop
import PenstockWire

// The functions of verifier.h.

@_cdecl("penstock_channel_set_verifier") @implementation
public func penstock_channel_set_verifier(
  _ handle: OpaquePointer!, _ function: penstock_verifier!, _ data: UnsafeMutableRawPointer!,
  _ finalizer: penstock_finalizer!
) -> penstock_result {
  // `userData` is made first, so that the finalizer also runs on an error.
  let userData = UserData(data, finalizer)
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  let channel = object(handle, ClientChannel.self)
  if Process.isForked(channel.generation) { return PENSTOCK_E_FORKED }
  return channel.set(function.map { ServerVerifier($0, userData) }).rawValue
}

private func verifier(_ handle: OpaquePointer?) -> ServerVerifier? {
  handle.map { object($0, ServerVerifier.self) }
}

@_cdecl("penstock_verification_name") @implementation
public func penstock_verification_name(_ server: OpaquePointer!) -> UnsafePointer<CChar>! {
  verifier(server)?.name.map { cString($0) }
}

@_cdecl("penstock_verification_count") @implementation
public func penstock_verification_count(_ server: OpaquePointer!) -> Int { verifier(server)?.count ?? 0 }

@_cdecl("penstock_verification_certificate") @implementation
public func penstock_verification_certificate(
  _ server: OpaquePointer!, _ index: Int, _ length: UnsafeMutablePointer<Int>!
) -> UnsafeRawPointer! {
  let bytes = verifier(server)?.certificate(index)
  length?.pointee = bytes?.count ?? 0
  return bytes?.view.baseAddress
}

@_cdecl("penstock_verification_accept") @implementation
public func penstock_verification_accept(_ server: OpaquePointer!) -> penstock_result {
  guard let verifier = verifier(server) else { return PENSTOCK_E_INVALID_ARGUMENT }
  verifier.accept()
  return PENSTOCK_OK
}

@_cdecl("penstock_verification_refuse") @implementation
public func penstock_verification_refuse(_ server: OpaquePointer!, _ words: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let verifier = verifier(server) else { return PENSTOCK_E_INVALID_ARGUMENT }
  let words = words.map { bytes($0) }
  let isValid = words.map { UTF8Repair.isValid($0) } ?? true
  verifier.refuse(isValid ? words : nil)
  return isValid ? PENSTOCK_OK : PENSTOCK_E_INVALID_ARGUMENT
}
