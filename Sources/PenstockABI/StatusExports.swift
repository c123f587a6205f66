import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockWire
import PenstockLink

// The functions of status.h.

@_cdecl("penstock_status_code_name") @implementation
public func penstock_status_code_name(_ code: Int32) -> UnsafePointer<CChar>! {
  cString(StatusCode(rawValue: code)?.name ?? "unknown")
}

@_cdecl("penstock_status_new") @implementation
public func penstock_status_new(
  _ code: Int32, _ message: UnsafePointer<CChar>!, _ status: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let status, let code = StatusCode(rawValue: code) else { return PENSTOCK_E_INVALID_ARGUMENT }
  if memoryIsLow { return PENSTOCK_E_NO_MEMORY }
  let made = Status(code)
  if let message, !made.setMessage(bytes(message)) { return PENSTOCK_E_NO_MEMORY }
  status.pointee = retained(made)
  return PENSTOCK_OK
}

@_cdecl("penstock_status_from_json") @implementation
public func penstock_status_from_json(
  _ json: UnsafePointer<CChar>!, _ status: UnsafeMutablePointer<OpaquePointer?>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let json, let status else {
    return report(.invalidArgument, "json and status must not be NULL", error)
  }
  var reader = StatusReader()
  if let failure = JSONReader.parse(bytes(json), { reader.read($0) }) { return failure.report(error) }
  status.pointee = retained(reader.status)
  return PENSTOCK_OK
}

@_cdecl("penstock_status_retain") @implementation
public func penstock_status_retain(_ status: OpaquePointer!) -> OpaquePointer! { retain(status, Status.self) }

@_cdecl("penstock_status_release") @implementation
public func penstock_status_release(_ status: OpaquePointer!) { release(status, Status.self) }

@_cdecl("penstock_status_code") @implementation
public func penstock_status_code(_ status: OpaquePointer!) -> Int32 {
  status.map { object($0, Status.self).code.rawValue } ?? PENSTOCK_STATUS_UNKNOWN
}

@_cdecl("penstock_status_message") @implementation
public func penstock_status_message(_ status: OpaquePointer!, _ length: UnsafeMutablePointer<Int>!)
  -> UnsafePointer<CChar>!
{
  let message = status.map { object($0, Status.self).message } ?? ByteView(start: nil, count: 0)
  length?.pointee = message.count
  return cString(message)
}

/// Runs `body` on a status that may be changed. A NULL handle, or a read-only status, is an error.
private func changing(_ handle: OpaquePointer?, _ body: (Status) -> Outcome) -> penstock_result {
  guard let handle else { return PENSTOCK_E_INVALID_ARGUMENT }
  let status = object(handle, Status.self)
  return status.isReadOnly ? PENSTOCK_E_STATE : body(status).rawValue
}

@_cdecl("penstock_status_set_code") @implementation
public func penstock_status_set_code(_ status: OpaquePointer!, _ code: Int32) -> penstock_result {
  changing(status) { status in
    guard let code = StatusCode(rawValue: code) else { return .invalidArgument }
    status.setCode(code)
    return .ok
  }
}

@_cdecl("penstock_status_set_message") @implementation
public func penstock_status_set_message(
  _ status: OpaquePointer!, _ message: UnsafeRawPointer!, _ length: Int
) -> penstock_result {
  guard let message = bytes(message, length) else { return PENSTOCK_E_INVALID_ARGUMENT }
  return changing(status) { $0.setMessage(message) ? .ok : .noMemory }
}

@_cdecl("penstock_status_trailers") @implementation
public func penstock_status_trailers(_ status: OpaquePointer!) -> OpaquePointer! {
  guard let status else { return nil }
  let found = object(status, Status.self)
  found.settleTrailers()
  return borrowed(found.trailers)
}

@_cdecl("penstock_status_detail_count") @implementation
public func penstock_status_detail_count(_ status: OpaquePointer!) -> Int {
  status.map { object($0, Status.self).detailCount } ?? 0
}

@_cdecl("penstock_status_detail_at") @implementation
public func penstock_status_detail_at(
  _ status: OpaquePointer!, _ index: Int, _ typeURL: UnsafeMutablePointer<UnsafePointer<CChar>?>!,
  _ value: UnsafeMutablePointer<UnsafeRawPointer?>!, _ length: UnsafeMutablePointer<Int>!
) -> penstock_result {
  guard let status, let typeURL, let value, let length else { return PENSTOCK_E_INVALID_ARGUMENT }
  guard let detail = object(status, Status.self).detail(at: index) else { return PENSTOCK_E_NOT_FOUND }
  typeURL.pointee = cString(detail.typeURL)
  value.pointee = detail.value.baseAddress
  length.pointee = detail.value.count
  return PENSTOCK_OK
}

@_cdecl("penstock_status_detail_find") @implementation
public func penstock_status_detail_find(
  _ status: OpaquePointer!, _ typeURL: UnsafePointer<CChar>!,
  _ value: UnsafeMutablePointer<UnsafeRawPointer?>!,
  _ length: UnsafeMutablePointer<Int>!
) -> penstock_result {
  guard let status, let typeURL, let value, let length else { return PENSTOCK_E_INVALID_ARGUMENT }
  let all = object(status, Status.self)
  guard let index = all.findDetail(bytes(typeURL)), let found = all.detail(at: index) else {
    return PENSTOCK_E_NOT_FOUND
  }
  value.pointee = found.value.baseAddress
  length.pointee = found.value.count
  return PENSTOCK_OK
}

@_cdecl("penstock_status_add_detail") @implementation
public func penstock_status_add_detail(
  _ status: OpaquePointer!, _ typeURL: UnsafePointer<CChar>!, _ value: UnsafeRawPointer!, _ length: Int
) -> penstock_result {
  guard let typeURL, let value = bytes(value, length) else { return PENSTOCK_E_INVALID_ARGUMENT }
  return changing(status) { $0.addDetail(typeURL: bytes(typeURL), value: value) ? .ok : .noMemory }
}

@_cdecl("penstock_status_set_detail") @implementation
public func penstock_status_set_detail(
  _ status: OpaquePointer!, _ typeURL: UnsafePointer<CChar>!, _ value: UnsafeRawPointer!, _ length: Int
) -> penstock_result {
  guard let typeURL, let value = bytes(value, length) else { return PENSTOCK_E_INVALID_ARGUMENT }
  return changing(status) { $0.setDetail(typeURL: bytes(typeURL), value: value) ? .ok : .noMemory }
}

@_cdecl("penstock_status_remove_detail") @implementation
public func penstock_status_remove_detail(_ status: OpaquePointer!, _ typeURL: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let typeURL else { return PENSTOCK_E_INVALID_ARGUMENT }
  return changing(status) { $0.removeDetails(bytes(typeURL)) ? .ok : .notFound }
}

@_cdecl("penstock_status_clear_details") @implementation
public func penstock_status_clear_details(_ status: OpaquePointer!) -> penstock_result {
  changing(status) {
    $0.clearDetails()
    return .ok
  }
}

@_cdecl("penstock_status_details_bin") @implementation
public func penstock_status_details_bin(
  _ status: OpaquePointer!, _ data: UnsafeMutablePointer<UnsafeMutableRawPointer?>!,
  _ length: UnsafeMutablePointer<Int>!
) -> penstock_result {
  guard let status, let data, let length else { return PENSTOCK_E_INVALID_ARGUMENT }
  // One byte more than needed is written, so that the pointer is never NULL.
  let encoded = ByteBuffer()
  guard object(status, Status.self).encodeDetails(into: encoded), encoded.append(byte: 0) else {
    return PENSTOCK_E_NO_MEMORY
  }
  let (storage, count) = encoded.take()
  data.pointee = storage
  length.pointee = count - 1
  return PENSTOCK_OK
}

@_cdecl("penstock_status_json") @implementation
public func penstock_status_json(
  _ status: OpaquePointer!, _ text: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  guard let status, let text else { return PENSTOCK_E_INVALID_ARGUMENT }
  guard let made = JSON.dump(json(object(status, Status.self))) else { return PENSTOCK_E_NO_MEMORY }
  text.pointee = made
  return PENSTOCK_OK
}
