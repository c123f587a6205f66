import CPenstock
import CPenstockMemory
import PenstockCall
import PenstockClient
import PenstockJSON
import PenstockLoop
import PenstockWire

// The statistics and certificates of hop.h, call.h and channel.h.

@_cdecl("penstock_hop_stats_json") @implementation
public func penstock_hop_stats_json(
  _ handle: OpaquePointer!, _ text: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let handle, let text else { return PENSTOCK_E_INVALID_ARGUMENT }
  let hop = HopHandle.referent(handle).hop
  if hop.isForked { return PENSTOCK_E_FORKED }
  let object = json(hop.call.stats, hop.call.knownValues, hop.platform)
  guard let made = JSON.dump(object) else { return PENSTOCK_E_NO_MEMORY }
  text.pointee = made
  return PENSTOCK_OK
}

@_cdecl("penstock_hop_peer_certificates_pem") @implementation
public func penstock_hop_peer_certificates_pem(
  _ handle: OpaquePointer!, _ pem: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let handle, let pem else { return PENSTOCK_E_INVALID_ARGUMENT }
  let hop = HopHandle.referent(handle).hop
  return hop.isForked ? PENSTOCK_E_FORKED : give(hop.call.connection, pem)
}

@_cdecl("penstock_reply_peer_certificates_pem") @implementation
public func penstock_reply_peer_certificates_pem(
  _ handle: OpaquePointer!, _ pem: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let handle, let pem else { return PENSTOCK_E_INVALID_ARGUMENT }
  let reply = object(handle, Reply.self)
  return Process.isForked(reply.generation) ? PENSTOCK_E_FORKED : give(reply.stats.connection, pem)
}

private func give(_ connection: ConnectionFacts?, _ pem: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>)
  -> penstock_result
{
  guard let security = connection?.security else { return PENSTOCK_E_NOT_FOUND }
  guard let made = security.certificates(), let copy = ByteBuffer(copying: made.view), copy.append(byte: 0)
  else {
    return PENSTOCK_E_NO_MEMORY
  }
  pem.pointee = copy.take().0?.assumingMemoryBound(to: CChar.self)
  return PENSTOCK_OK
}

@_cdecl("penstock_channel_stats_json") @implementation
public func penstock_channel_stats_json(
  _ handle: OpaquePointer!, _ timeout: Int64, _ text: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let handle, let text else { return PENSTOCK_E_INVALID_ARGUMENT }
  let channel = object(handle, ClientChannel.self)
  if Process.isForked(channel.generation) { return PENSTOCK_E_FORKED }
  if channel.hasEnded { return PENSTOCK_E_CLOSED }
  let most = nanoseconds(UInt64(clamping: timeout))
  guard let view = channel.view(within: most) else { return PENSTOCK_E_TIMEOUT }
  guard let made = JSON.dump(json(view, channel.platform.clock())) else { return PENSTOCK_E_NO_MEMORY }
  text.pointee = made
  return PENSTOCK_OK
}
