import CMemory
public import CPenstock
import PenstockCall
import PenstockTransport
import PenstockWire

// codec.h

@_cdecl("penstock_buffer_append") @implementation
public func penstock_buffer_append(_ buffer: OpaquePointer!, _ data: UnsafeRawPointer!, _ length: Int)
  -> penstock_result
{
  guard let buffer, let bytes = bytes(data, length) else { return PENSTOCK_E_INVALID_ARGUMENT }
  return object(buffer, ByteBuffer.self).append(bytes) ? PENSTOCK_OK : PENSTOCK_E_NO_MEMORY
}

@_cdecl("penstock_codec_new") @implementation
public func penstock_codec_new(
  _ functions: UnsafePointer<penstock_codec_functions>!, _ codec: UnsafeMutablePointer<OpaquePointer?>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let known = MemoryLayout<penstock_codec_functions>.size
  guard let functions, functions.pointee.struct_size >= known else {
    return report(.invalidArgument, "functions: use PENSTOCK_CODEC_FUNCTIONS_INIT", error)
  }
  let table = functions.pointee
  let data = UserData(table.user_data, table.finalizer)
  if hasUnknownFields(functions, table.struct_size, known: known) {
    return report(.unsupported, "functions has fields that this version does not know", error)
  }
  guard let codec, let encode = table.encode, let decode = table.decode, let free = table.free else {
    return report(.invalidArgument, "codec, encode, decode and free must not be NULL", error)
  }
  codec.pointee = retained(Codec(data, encode: encode, decode: decode, free: free, copy: table.copy))
  return PENSTOCK_OK
}

@_cdecl("penstock_codec_retain") @implementation
public func penstock_codec_retain(_ codec: OpaquePointer!) -> OpaquePointer! { retain(codec, Codec.self) }

@_cdecl("penstock_codec_release") @implementation
public func penstock_codec_release(_ codec: OpaquePointer!) { release(codec, Codec.self) }

@_cdecl("penstock_channel_set_codec") @implementation
public func penstock_channel_set_codec(_ handle: OpaquePointer!, _ codec: OpaquePointer!) -> penstock_result {
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  let channel = object(handle, ClientChannel.self)
  if Process.isForked(channel.generation) { return PENSTOCK_E_FORKED }
  channel.setCodec(codec.map { object($0, Codec.self) })
  return PENSTOCK_OK
}

@_cdecl("penstock_call_options_set_codec") @implementation
public func penstock_call_options_set_codec(_ options: OpaquePointer!, _ codec: OpaquePointer!)
  -> penstock_result
{
  guard let options else { return PENSTOCK_E_INVALID_ARGUMENT }
  object(options, CallOptions.self).codec = codec.map { object($0, Codec.self) }
  return PENSTOCK_OK
}

// MARK: - Calls

@_cdecl("penstock_channel_unary_object") @implementation
public func penstock_channel_unary_object(
  _ handle: OpaquePointer!, _ method: UnsafePointer<CChar>!, _ request: UnsafeMutableRawPointer!,
  _ callOptions: OpaquePointer!, _ reply: UnsafeMutablePointer<OpaquePointer?>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let handle, let method, let reply else {
    return report(.invalidArgument, "channel, method and reply must not be NULL", error)
  }
  let channel = object(handle, ClientChannel.self)
  var taken: CodecObject?
  // In a forked child the channel's lock may be held.
  if !Process.isForked(channel.generation) {
    guard let codec = options(callOptions)?.codec ?? channel.codec else {
      return report(.state, "the call has no codec for objects", error)
    }
    taken = CodecObject(request, codec)
  }
  // Another thread may have taken the channel's codec away; what has come to the call is its.
  return unary(handle, method, callOptions, reply, error) { call in
    guard let taken, call.codec != nil else {
      taken?.leave()
      return (.state, nil)
    }
    return (.ok, .passRetained(ByteBuffer(object: taken)))
  }
}

@inline(never) @_optimize(size)
private func send(_ handle: OpaquePointer?, _ given: UnsafeMutableRawPointer?, waits: Bool) -> penstock_result
{
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  let call = object(handle, ClientCall.self)
  if Process.isForked(call.generation) { return PENSTOCK_E_FORKED }
  guard let codec = call.call.codec else { return PENSTOCK_E_STATE }
  let object = CodecObject(given, codec)
  let message = ByteBuffer(object: object)
  let outcome = waits ? call.send(message) : call.trySend(message)
  switch outcome {
  case .state, .wouldBlock, .interrupted, .wouldDeadlock: object.leave()
  default: break
  }
  return outcome.rawValue
}

@_cdecl("penstock_call_send_object") @implementation
public func penstock_call_send_object(_ handle: OpaquePointer!, _ given: UnsafeMutableRawPointer!)
  -> penstock_result
{
  send(handle, given, waits: true)
}

@_cdecl("penstock_call_try_send_object") @implementation
public func penstock_call_try_send_object(_ handle: OpaquePointer!, _ given: UnsafeMutableRawPointer!)
  -> penstock_result
{
  send(handle, given, waits: false)
}

@_cdecl("penstock_message_object") @implementation
public func penstock_message_object(_ message: OpaquePointer!) -> UnsafeMutableRawPointer! {
  message.flatMap { object($0, Message.self).codecObject?.pointer }
}

@_cdecl("penstock_reply_object") @implementation
public func penstock_reply_object(_ handle: OpaquePointer!) -> UnsafeMutableRawPointer! {
  reply(handle)?.message?.codecObject?.pointer
}

// MARK: - Hops

private func with(
  _ handle: OpaquePointer?, _ given: UnsafeMutableRawPointer?, _ body: (Hop, CodecObject) -> Outcome
) -> penstock_result {
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  let hop = Hop.from(handle)
  if hop.isForked { return PENSTOCK_E_FORKED }
  guard hop.seesObjects, let codec = hop.call.codec else { return PENSTOCK_E_STATE }
  let object = CodecObject(given, codec)
  let outcome = body(hop, object)
  if outcome == .state { object.leave() }
  return outcome.rawValue
}

@_cdecl("penstock_hop_object") @implementation
public func penstock_hop_object(_ handle: OpaquePointer!) -> UnsafeMutableRawPointer! {
  handle.flatMap { Hop.from($0).message?.codecObject?.pointer }
}

@_cdecl("penstock_hop_set_object") @implementation
public func penstock_hop_set_object(_ handle: OpaquePointer!, _ given: UnsafeMutableRawPointer!)
  -> penstock_result
{
  with(handle, given) { $0.setObject($1) }
}

@_cdecl("penstock_hop_send_object") @implementation
public func penstock_hop_send_object(_ handle: OpaquePointer!, _ given: UnsafeMutableRawPointer!)
  -> penstock_result
{
  with(handle, given) { $0.injectOutbound(ByteBuffer(object: $1)) }
}

@_cdecl("penstock_hop_deliver_object") @implementation
public func penstock_hop_deliver_object(_ handle: OpaquePointer!, _ given: UnsafeMutableRawPointer!)
  -> penstock_result
{
  with(handle, given) { $0.injectInbound(ByteBuffer(object: $1)) }
}

@_cdecl("penstock_event_object") @implementation
public func penstock_event_object(_ event: OpaquePointer!) -> UnsafeMutableRawPointer! {
  event.flatMap { object($0, TicketEvent.self).message?.codecObject?.pointer }
}

@_cdecl("penstock_event_set_object") @implementation
public func penstock_event_set_object(_ event: OpaquePointer!, _ given: UnsafeMutableRawPointer!)
  -> penstock_result
{
  guard let event else { return PENSTOCK_E_INVALID_ARGUMENT }
  return object(event, TicketEvent.self).setObject(given).rawValue
}
