import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockWire
import PenstockLink

// The functions of metadata.h.

@_cdecl("penstock_metadata_new") @implementation
public func penstock_metadata_new(_ metadata: UnsafeMutablePointer<OpaquePointer?>!) -> penstock_result {
  guard let metadata else { return PENSTOCK_E_INVALID_ARGUMENT }
  if memoryIsLow { return PENSTOCK_E_NO_MEMORY }
  metadata.pointee = retained(Metadata())
  return PENSTOCK_OK
}

@_cdecl("penstock_metadata_retain") @implementation
public func penstock_metadata_retain(_ metadata: OpaquePointer!) -> OpaquePointer! {
  retain(metadata, Metadata.self)
}

@_cdecl("penstock_metadata_release") @implementation
public func penstock_metadata_release(_ metadata: OpaquePointer!) { release(metadata, Metadata.self) }

private func change(
  _ handle: OpaquePointer?, _ name: UnsafePointer<CChar>?, _ value: ByteView?, replacing: Bool
) -> penstock_result {
  guard let handle, let name, let value else { return PENSTOCK_E_INVALID_ARGUMENT }
  return change(object(handle, Metadata.self), bytes(name), value, replacing: replacing).rawValue
}

@_cdecl("penstock_metadata_set") @implementation
public func penstock_metadata_set(
  _ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ value: UnsafePointer<CChar>!
) -> penstock_result {
  change(metadata, name, value.map { bytes($0) }, replacing: true)
}

@_cdecl("penstock_metadata_add") @implementation
public func penstock_metadata_add(
  _ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ value: UnsafePointer<CChar>!
) -> penstock_result {
  change(metadata, name, value.map { bytes($0) }, replacing: false)
}

@_cdecl("penstock_metadata_set_bytes") @implementation
public func penstock_metadata_set_bytes(
  _ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ value: UnsafeRawPointer!, _ length: Int
) -> penstock_result {
  change(metadata, name, bytes(value, length), replacing: true)
}

@_cdecl("penstock_metadata_add_bytes") @implementation
public func penstock_metadata_add_bytes(
  _ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ value: UnsafeRawPointer!, _ length: Int
) -> penstock_result {
  change(metadata, name, bytes(value, length), replacing: false)
}

@_cdecl("penstock_metadata_remove") @implementation
public func penstock_metadata_remove(_ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let metadata, let name else { return PENSTOCK_E_INVALID_ARGUMENT }
  let all = object(metadata, Metadata.self)
  if all.isReadOnly { return PENSTOCK_E_STATE }
  let lowered = ByteBuffer()
  guard HeaderRules.lowercased(bytes(name), into: lowered) else { return PENSTOCK_E_NO_MEMORY }
  return all.remove(lowered.view).rawValue
}

@_cdecl("penstock_metadata_count") @implementation
public func penstock_metadata_count(_ metadata: OpaquePointer!) -> Int {
  metadata.map { object($0, Metadata.self).count } ?? 0
}

@_cdecl("penstock_metadata_get") @implementation
public func penstock_metadata_get(
  _ metadata: OpaquePointer!, _ name: UnsafePointer<CChar>!, _ index: Int,
  _ value: UnsafeMutablePointer<UnsafeRawPointer?>!, _ length: UnsafeMutablePointer<Int>!
) -> penstock_result {
  guard let metadata, let name, let value else { return PENSTOCK_E_INVALID_ARGUMENT }
  let all = object(metadata, Metadata.self)
  let lowered = ByteBuffer()
  guard HeaderRules.lowercased(bytes(name), into: lowered) else { return PENSTOCK_E_NO_MEMORY }
  guard let position = all.index(of: lowered.view, occurrence: index) else { return PENSTOCK_E_NOT_FOUND }
  let found = all.value(at: position)
  value.pointee = found.baseAddress
  length?.pointee = found.count
  return PENSTOCK_OK
}

@_cdecl("penstock_metadata_at") @implementation
public func penstock_metadata_at(
  _ metadata: OpaquePointer!, _ index: Int, _ name: UnsafeMutablePointer<UnsafePointer<CChar>?>!,
  _ value: UnsafeMutablePointer<UnsafeRawPointer?>!, _ length: UnsafeMutablePointer<Int>!
) -> penstock_result {
  guard let metadata, let name, let value else { return PENSTOCK_E_INVALID_ARGUMENT }
  let all = object(metadata, Metadata.self)
  guard index >= 0, index < all.count else { return PENSTOCK_E_NOT_FOUND }
  name.pointee = cString(all.name(at: index))
  value.pointee = all.value(at: index).baseAddress
  length?.pointee = all.value(at: index).count
  return PENSTOCK_OK
}

@_cdecl("penstock_metadata_json") @implementation
public func penstock_metadata_json(
  _ metadata: OpaquePointer!, _ text: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let metadata, let text else { return PENSTOCK_E_INVALID_ARGUMENT }
  guard let made = JSON.dump(json(object(metadata, Metadata.self))) else { return PENSTOCK_E_NO_MEMORY }
  text.pointee = made
  return PENSTOCK_OK
}

@_cdecl("penstock_metadata_set_json") @implementation
public func penstock_metadata_set_json(
  _ metadata: OpaquePointer!, _ text: UnsafePointer<CChar>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let metadata, let text else {
    return report(.invalidArgument, "metadata and json must not be NULL", error)
  }
  let all = object(metadata, Metadata.self)
  if all.isReadOnly { return report(.state, "this metadata is read-only", error) }
  let fresh = Metadata()
  if let failure = JSONReader.parse(bytes(text), { read($0, into: fresh) }) { return failure.report(error) }
  all.replace(with: fresh)
  return PENSTOCK_OK
}
