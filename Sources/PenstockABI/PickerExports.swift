public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockChannel
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockClient

// The functions of picker.h.

@_cdecl("penstock_channel_set_picker") @implementation
public func penstock_channel_set_picker(
  _ handle: OpaquePointer!, _ function: penstock_picker!, _ data: UnsafeMutableRawPointer!,
  _ finalizer: penstock_finalizer!
) -> penstock_result {
  // `userData` is made first, so that the finalizer also runs on an error.
  let userData = UserData(data, finalizer)
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  let channel = object(handle, ClientChannel.self)
  if Process.isForked(channel.generation) { return PENSTOCK_E_FORKED }
  return channel.set(function.map { Picker($0, userData) }).rawValue
}

private func picker(_ handle: OpaquePointer?) -> Picker? { handle.map { object($0, Picker.self) } }

@_cdecl("penstock_pick_request") @implementation
public func penstock_pick_request(_ pick: OpaquePointer!) -> OpaquePointer! {
  // The handle of a pick is also the handle of its request: it shows the call's request while the picker
  // runs.
  pick
}

@_cdecl("penstock_pick_context") @implementation
public func penstock_pick_context(_ pick: OpaquePointer!) -> UnsafeMutableRawPointer! {
  picker(pick)?.call?.contextPointer
}

@_cdecl("penstock_pick_count") @implementation
public func penstock_pick_count(_ pick: OpaquePointer!) -> Int { picker(pick)?.count ?? 0 }

@_cdecl("penstock_pick_address") @implementation
public func penstock_pick_address(_ pick: OpaquePointer!, _ index: Int) -> UnsafePointer<CChar>! {
  picker(pick)?.endpoint(index).map { cString($0.text) }
}

@_cdecl("penstock_pick_weight") @implementation
public func penstock_pick_weight(_ pick: OpaquePointer!, _ index: Int) -> UInt32 {
  picker(pick)?.endpoint(index)?.weight ?? 0
}

@_cdecl("penstock_pick_attribute") @implementation
public func penstock_pick_attribute(_ pick: OpaquePointer!, _ index: Int, _ name: UnsafePointer<CChar>!)
  -> UnsafePointer<CChar>!
{
  guard let name else { return nil }
  return picker(pick)?.endpoint(index)?.attribute(bytes(name)).map { cString($0) }
}

@_cdecl("penstock_pick_fail") @implementation
public func penstock_pick_fail(_ pick: OpaquePointer!, _ code: Int32, _ message: UnsafePointer<CChar>!)
  -> penstock_result
{
  let (made, outcome) = status(code, message)
  guard let made else { return outcome.rawValue }
  guard let picker = picker(pick), made.code != .ok else { return PENSTOCK_E_INVALID_ARGUMENT }
  return picker.fail(made).rawValue
}
