import CMemory
public import CPenstock
import PenstockCall
import PenstockWire

// status.h

@_cdecl("penstock_status_code_name") @implementation
public func penstock_status_code_name(_ code: Int32) -> UnsafePointer<CChar>! {
  cString(StatusCode(rawValue: code)?.name ?? "unknown")
}

@_cdecl("penstock_status_new") @implementation
public func penstock_status_new(
  _ code: Int32, _ message: UnsafePointer<CChar>!, _ status: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let status, let code = StatusCode(rawValue: code) else { return PENSTOCK_E_INVALID_ARGUMENT }
  let made = Status(code)
  if let message, !made.setMessage(bytes(message)) { return PENSTOCK_E_NO_MEMORY }
  status.pointee = retained(made)
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
public func penstock_status_message(_ status: OpaquePointer!) -> UnsafePointer<CChar>! {
  status.map { cString(object($0, Status.self).message) } ?? cString("")
}

/// The status, if the handle is one and may be changed.
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
public func penstock_status_set_message(_ status: OpaquePointer!, _ message: UnsafePointer<CChar>!)
  -> penstock_result
{
  guard let message else { return PENSTOCK_E_INVALID_ARGUMENT }
  return changing(status) { $0.setMessage(bytes(message)) ? .ok : .noMemory }
}

@_cdecl("penstock_status_trailers") @implementation
public func penstock_status_trailers(_ status: OpaquePointer!) -> OpaquePointer! {
  status.map { borrowed(object($0, Status.self).trailers) }
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
  guard let found = find(object(status, Status.self), bytes(typeURL)) else { return PENSTOCK_E_NOT_FOUND }
  value.pointee = found.baseAddress
  length.pointee = found.count
  return PENSTOCK_OK
}

/// By the whole type URL, or, without a '/', by what stands after the last one.
private func find(_ status: Status, _ wanted: ByteView) -> ByteView? {
  let isBare = !wanted.contains(0x2f)
  for index in 0..<status.detailCount {
    guard let detail = status.detail(at: index) else { return nil }
    var url = detail.typeURL
    if isBare, let slash = url.lastIndex(of: 0x2f) { url = ByteView(rebasing: url[(slash + 1)...]) }
    if bytesEqual(url, wanted) { return detail.value }
  }
  return nil
}

@_cdecl("penstock_status_add_detail") @implementation
public func penstock_status_add_detail(
  _ status: OpaquePointer!, _ typeURL: UnsafePointer<CChar>!, _ value: UnsafeRawPointer!, _ length: Int
) -> penstock_result {
  guard let typeURL, let value = bytes(value, length) else { return PENSTOCK_E_INVALID_ARGUMENT }
  return changing(status) { $0.addDetail(typeURL: bytes(typeURL), value: value) ? .ok : .noMemory }
}

@_cdecl("penstock_status_clear_details") @implementation
public func penstock_status_clear_details(_ status: OpaquePointer!) -> penstock_result {
  changing(status) {
    $0.clearDetails()
    return .ok
  }
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
