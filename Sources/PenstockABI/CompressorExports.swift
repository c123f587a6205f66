public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockClient
import PenstockLoop
import PenstockTransport
import PenstockWire
import PenstockFraming

// The functions of compressor.h.

private func message(_ handle: OpaquePointer?) -> MessageCompression? {
  handle.map { object($0, MessageCompression.self) }
}

@_cdecl("penstock_compression_append") @implementation
public func penstock_compression_append(_ handle: OpaquePointer!, _ data: UnsafeRawPointer!, _ length: Int)
  -> penstock_result
{
  guard let message = message(handle), let bytes = bytes(data, length) else {
    return PENSTOCK_E_INVALID_ARGUMENT
  }
  return message.append(bytes).rawValue
}

@_cdecl("penstock_compression_room") @implementation
public func penstock_compression_room(_ handle: OpaquePointer!) -> Int { message(handle)?.room ?? 0 }

@_cdecl("penstock_compression_fail") @implementation
public func penstock_compression_fail(_ handle: OpaquePointer!, _ words: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let message = message(handle), let words, UTF8Repair.isValid(bytes(words)) else {
    return PENSTOCK_E_INVALID_ARGUMENT
  }
  message.fail(bytes(words))
  return PENSTOCK_OK
}

@_cdecl("penstock_compressor_new") @implementation
public func penstock_compressor_new(
  _ functions: UnsafePointer<penstock_compressor_functions>!,
  _ compressor: UnsafeMutablePointer<OpaquePointer?>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let table: penstock_compressor_functions
  switch readTable(functions, "functions") {
  case .refused(let failure): return failure.report(error)
  case .read(let read): table = read
  }
  let data = UserData(table.user_data, table.finalizer)
  guard let compressor, let compress = table.compress, let decompress = table.decompress,
    let given = table.name
  else {
    return report(.invalidArgument, "compressor, name, compress and decompress must not be NULL", error)
  }
  guard HeaderRules.isValidName(bytes(given)) else {
    return report(
      .invalidArgument, "functions.name: expected lower-case letters, digits, \"-\", \"_\" or \".\"", error)
  }
  if Compression(named: bytes(given)) != nil {
    return report(.invalidArgument, "functions.name: the library has a compression with this name", error)
  }
  guard let made = ProgramCompressor.make(bytes(given), compress: compress, decompress: decompress, data)
  else {
    return report(.noMemory, "no memory", error)
  }
  compressor.pointee = retained(made)
  return PENSTOCK_OK
}

@_cdecl("penstock_compressor_retain") @implementation
public func penstock_compressor_retain(_ compressor: OpaquePointer!) -> OpaquePointer! {
  retain(compressor, ProgramCompressor.self)
}

@_cdecl("penstock_compressor_release") @implementation
public func penstock_compressor_release(_ compressor: OpaquePointer!) {
  release(compressor, ProgramCompressor.self)
}

@_cdecl("penstock_channel_add_compressor") @implementation
public func penstock_channel_add_compressor(_ handle: OpaquePointer!, _ compressor: OpaquePointer!)
  -> penstock_result
{
  guard let handle, let compressor else { return PENSTOCK_E_INVALID_ARGUMENT }
  let channel = object(handle, ClientChannel.self)
  if Process.isForked(channel.generation) { return PENSTOCK_E_FORKED }
  return channel.add(object(compressor, ProgramCompressor.self)).rawValue
}
