public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockWire
import PenstockLink

// The functions of hop.h for messages: for the message of the hop's event, and for messages that the hop
// sends itself.

@_cdecl("penstock_hop_message") @implementation
public func penstock_hop_message(_ handle: OpaquePointer!) -> OpaquePointer! {
  find(handle, { $0.isForked ? nil : $0.message }, { $0.message }).map { borrowed($0) }
}

@_cdecl("penstock_hop_codec") @implementation
public func penstock_hop_codec(_ handle: OpaquePointer!) -> OpaquePointer! {
  hop(handle)?.codec.map { borrowed($0) }
}

/// Makes a message with a copy of the bytes. Then calls `running` if the handle is that of a hop, or `bound`
/// if it is that of a waiting event (`BoundHop`).
private func put(
  _ handle: OpaquePointer?, _ data: UnsafeRawPointer?, _ length: Int, _ running: (Hop, Message) -> Outcome,
  _ bound: (BoundHop, Message) -> Outcome
) -> penstock_result {
  guard let bytes = bytes(data, length) else { return fail(handle, .invalidArgument) }
  guard let message = ByteBuffer(copying: bytes) else { return fail(handle, .noMemory) }
  return withHop(handle, { running($0, message) }, { bound($0, message) })
}

/// Makes a message that shares the bytes or the object of the caller's message. Then calls `running` if the
/// handle is that of a hop, or `bound` if it is that of a waiting event (`BoundHop`).
private func put(
  _ handle: OpaquePointer?, _ message: OpaquePointer?, _ running: (Hop, Message) -> Outcome,
  _ bound: (BoundHop, Message) -> Outcome
) -> penstock_result {
  guard let message else { return fail(handle, .invalidArgument) }
  let given = object(message, Message.self)
  return withHop(
    handle, { hop in given.fitting(hop.codec).map { running(hop, $0) } ?? hop.refuseForm() },
    { waiting in given.fitting(waiting.hop.codec).map { bound(waiting, $0) } ?? waiting.hop.refuseForm() })
}

@_cdecl("penstock_hop_set_bytes") @implementation
public func penstock_hop_set_bytes(_ handle: OpaquePointer!, _ data: UnsafeRawPointer!, _ length: Int)
  -> penstock_result
{
  put(handle, data, length, { $0.setMessage($1) }, { $0.setMessage($1) })
}

@_cdecl("penstock_hop_set_message") @implementation
public func penstock_hop_set_message(_ handle: OpaquePointer!, _ message: OpaquePointer!) -> penstock_result {
  put(handle, message, { $0.setMessage($1) }, { $0.setMessage($1) })
}

@_cdecl("penstock_hop_send") @implementation
public func penstock_hop_send(_ handle: OpaquePointer!, _ data: UnsafeRawPointer!, _ length: Int)
  -> penstock_result
{
  put(handle, data, length, { $0.injectOutbound($1) }, { $0.hop.injectOutbound($1) })
}

@_cdecl("penstock_hop_send_message") @implementation
public func penstock_hop_send_message(_ handle: OpaquePointer!, _ message: OpaquePointer!) -> penstock_result
{
  put(handle, message, { $0.injectOutbound($1) }, { $0.hop.injectOutbound($1) })
}

@_cdecl("penstock_hop_deliver") @implementation
public func penstock_hop_deliver(_ handle: OpaquePointer!, _ data: UnsafeRawPointer!, _ length: Int)
  -> penstock_result
{
  put(handle, data, length, { $0.injectInbound($1) }, { $0.deliver($1) })
}

@_cdecl("penstock_hop_deliver_message") @implementation
public func penstock_hop_deliver_message(_ handle: OpaquePointer!, _ message: OpaquePointer!)
  -> penstock_result
{
  put(handle, message, { $0.injectInbound($1) }, { $0.deliver($1) })
}
