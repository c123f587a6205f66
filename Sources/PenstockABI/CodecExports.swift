import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockClient

// The functions of codec.h.

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
  let table: penstock_codec_functions
  switch readTable(functions, "functions") {
  case .refused(let failure): return failure.report(error)
  case .read(let read): table = read
  }
  let data = UserData(table.user_data, table.finalizer)
  guard let codec, let encode = table.encode, let decode = table.decode, let free = table.free else {
    return report(.invalidArgument, "codec, encode, decode and free must not be NULL", error)
  }
  var type: ByteBuffer?
  if let name = table.name {
    guard HeaderRules.isValidName(bytes(name)) else {
      return report(
        .invalidArgument, "functions.name: expected lower-case letters, digits, \"-\", \"_\" or \".\"", error)
    }
    type = RequestLabels.contentType(bytes(name))
    if type == nil { return report(.noMemory, "no memory", error) }
  }
  codec.pointee = retained(
    Codec(data, encode: encode, decode: decode, free: free, copy: table.copy, contentType: type))
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
