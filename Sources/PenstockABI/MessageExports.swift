import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire

// The functions of message.h, and those functions of codec.h that concern messages with an object.

private func areKnown(_ flags: UInt32) -> Bool { flags & ~PENSTOCK_MESSAGE_NO_COMPRESS == 0 }

/// Gives a new message to the caller.
private func give(
  _ made: Message, _ flags: UInt32, _ message: UnsafeMutablePointer<OpaquePointer?>
) -> penstock_result {
  made.staysPlain = flags & PENSTOCK_MESSAGE_NO_COMPRESS != 0
  message.pointee = retained(made)
  return PENSTOCK_OK
}

@_cdecl("penstock_message_new") @implementation
public func penstock_message_new(
  _ data: UnsafeRawPointer!, _ length: Int, _ flags: UInt32, _ message: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let bytes = bytes(data, length), let message, areKnown(flags) else {
    return PENSTOCK_E_INVALID_ARGUMENT
  }
  guard !memoryIsLow, let made = ByteBuffer(copying: bytes) else { return PENSTOCK_E_NO_MEMORY }
  return give(made, flags, message)
}

@_cdecl("penstock_message_new_lent") @implementation
public func penstock_message_new_lent(
  _ data: UnsafeRawPointer!, _ length: Int, _ flags: UInt32, _ userData: UnsafeMutableRawPointer!,
  _ finalizer: penstock_finalizer!, _ message: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  let keeper = UserData(userData, finalizer)
  guard let bytes = bytes(data, length), let message, areKnown(flags) else {
    return PENSTOCK_E_INVALID_ARGUMENT
  }
  if memoryIsLow { return PENSTOCK_E_NO_MEMORY }
  return give(ByteBuffer(lent: bytes, by: keeper), flags, message)
}

@_cdecl("penstock_message_new_object") @implementation
public func penstock_message_new_object(
  _ codec: OpaquePointer!, _ given: UnsafeMutableRawPointer!, _ flags: UInt32,
  _ message: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let codec, let message, areKnown(flags) else { return PENSTOCK_E_INVALID_ARGUMENT }
  if memoryIsLow { return PENSTOCK_E_NO_MEMORY }
  return give(ByteBuffer(object: CodecObject(given, object(codec, Codec.self))), flags, message)
}

@_cdecl("penstock_message_bytes") @implementation
public func penstock_message_bytes(_ message: OpaquePointer!, _ length: UnsafeMutablePointer<Int>!)
  -> UnsafeRawPointer!
{
  guard let message else {
    length?.pointee = 0
    return nil
  }
  return look(message, Message.self) { give($0, length) }
}

/// The bytes of a message, as a pointer that is not NULL even if the message is empty; nil if the message has
/// an object instead of bytes.
@inline(__always)
func give(_ message: Message, _ length: UnsafeMutablePointer<Int>?) -> UnsafeRawPointer? {
  length?.pointee = message.count
  return message.view.baseAddress ?? (message.isObject ? nil : UnsafeRawPointer(cString("")))
}

@_cdecl("penstock_message_object") @implementation
public func penstock_message_object(_ message: OpaquePointer!) -> UnsafeMutableRawPointer! {
  message.flatMap { object($0, Message.self).codecObject?.pointer }
}

@_cdecl("penstock_message_retain") @implementation
public func penstock_message_retain(_ message: OpaquePointer!) -> OpaquePointer! {
  retain(message, Message.self)
}

@_cdecl("penstock_message_release") @implementation
public func penstock_message_release(_ message: OpaquePointer!) { release(message, Message.self) }
