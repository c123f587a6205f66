import CPenstockMemory
import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockClient

// The functions of call.h for replies, which hold the outcome of a call.

func reply(_ handle: OpaquePointer?) -> Reply? { handle.map { object($0, Reply.self) } }

/// A handle of an object that the reply owns; the handle owns no reference. NULL: the reply has no such
/// object.
@inline(__always)
private func part<P: AnyObject>(_ handle: OpaquePointer?, _ which: (Reply) -> P?) -> OpaquePointer? {
  handle.flatMap { look($0, Reply.self) { which($0).map { borrowed($0) } } }
}

@_cdecl("penstock_reply_retain") @implementation
public func penstock_reply_retain(_ handle: OpaquePointer!) -> OpaquePointer! { retain(handle, Reply.self) }

@_cdecl("penstock_reply_release") @implementation
public func penstock_reply_release(_ handle: OpaquePointer!) { release(handle, Reply.self) }

@_cdecl("penstock_reply_code") @implementation
public func penstock_reply_code(_ handle: OpaquePointer!) -> Int32 {
  handle.map { look($0, Reply.self) { $0.status.code.rawValue } } ?? PENSTOCK_STATUS_UNKNOWN
}

@_cdecl("penstock_reply_status") @implementation
public func penstock_reply_status(_ handle: OpaquePointer!) -> OpaquePointer! {
  part(handle) { $0.status }
}

@_cdecl("penstock_reply_status_json") @implementation
public func penstock_reply_status_json(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  replyText(handle, .status) { json($0.status) }
}

/// A text that is made when a program first asks for it, and that the reply then keeps; "{}" if it can't be
/// made.
func replyText(
  _ handle: OpaquePointer?, _ which: Reply.Text, _ make: (Reply) -> JSON.Value?
) -> UnsafePointer<CChar> {
  guard let reply = reply(handle), !Process.isForked(reply.generation) else { return cString("{}") }
  let text = reply.text(which) { reply in
    guard let made = JSON.dump(make(reply)) else { return nil }
    defer { free(made) }
    return ByteBuffer(copying: ByteView(start: made, count: strlen(made) + 1))
  }
  return text.map { cString($0) } ?? cString("{}")
}

@_cdecl("penstock_reply_bytes") @implementation
public func penstock_reply_bytes(_ handle: OpaquePointer!, _ length: UnsafeMutablePointer<Int>!)
  -> UnsafeRawPointer!
{
  guard let message = part(handle, { $0.message }) else {
    length?.pointee = 0
    return nil
  }
  return look(message, Message.self) { give($0, length) }
}

@_cdecl("penstock_reply_response_message") @implementation
public func penstock_reply_response_message(_ handle: OpaquePointer!) -> OpaquePointer! {
  part(handle) { $0.message }
}

@_cdecl("penstock_reply_headers") @implementation
public func penstock_reply_headers(_ handle: OpaquePointer!) -> OpaquePointer! {
  part(handle) { $0.headers }
}

@_cdecl("penstock_reply_trailers") @implementation
public func penstock_reply_trailers(_ handle: OpaquePointer!) -> OpaquePointer! {
  part(handle) { $0.status.trailers }
}

@_cdecl("penstock_reply_stats_json") @implementation
public func penstock_reply_stats_json(_ handle: OpaquePointer!) -> UnsafePointer<CChar>! {
  replyText(handle, .stats) { json($0.stats, $0.knownValues, Platform()) }
}

@_cdecl("penstock_reply_value") @implementation
public func penstock_reply_value(_ handle: OpaquePointer!, _ key: UnsafePointer<CChar>!)
  -> UnsafeMutableRawPointer!
{
  guard let key else { return nil }
  return reply(handle)?.value(bytes(key))
}
