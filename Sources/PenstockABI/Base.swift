import CPenstockMemory
public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLink
import PenstockFraming

// The functions of base.h (results, errors, memory), and the conversions between objects and handles, which
// all exported functions share.

/// Makes a handle that owns a reference to the object; `release` gives that reference back.
func retained<T: AnyObject>(_ object: T) -> OpaquePointer {
  OpaquePointer(Unmanaged.passRetained(object).toOpaque())
}

/// Makes a handle that owns no reference: it is valid only while something else keeps the object.
func borrowed<T: AnyObject>(_ object: T) -> OpaquePointer {
  OpaquePointer(Unmanaged.passUnretained(object).toOpaque())
}

func object<T: AnyObject>(_ handle: OpaquePointer, _: T.Type) -> T {
  Unmanaged<T>.fromOpaque(UnsafeRawPointer(handle)).takeUnretainedValue()
}

/// Runs `body` with the handle's object, without counting a reference. The handle, or something else, must
/// keep the object until `body` returns.
@inline(__always)
func look<T: AnyObject, R>(_ handle: OpaquePointer, _: T.Type, _ body: (T) -> R) -> R {
  Unmanaged<T>.fromOpaque(UnsafeRawPointer(handle))._withUnsafeGuaranteedRef(body)
}

func retain<T: AnyObject>(_ handle: OpaquePointer?, _: T.Type) -> OpaquePointer? {
  if let handle { _ = Unmanaged<T>.fromOpaque(UnsafeRawPointer(handle)).retain() }
  return handle
}

func release<T: AnyObject>(_ handle: OpaquePointer?, _: T.Type) {
  if let handle { Unmanaged<T>.fromOpaque(UnsafeRawPointer(handle)).release() }
}

/// The bytes of a NUL-terminated string, without the NUL.
func bytes(_ text: UnsafePointer<CChar>) -> ByteView { ByteView(start: text, count: strlen(text)) }

/// The bytes at `data`. nil: `data` is NULL although the length is not 0, or the length is larger than any
/// memory. So the sum of a few lengths can't overflow.
func bytes(_ data: UnsafeRawPointer?, _ length: Int) -> ByteView? {
  guard UInt(bitPattern: length) >> 47 == 0, data != nil || length == 0 else { return nil }
  return ByteView(start: data, count: length)
}

/// Whether memory is so low that nothing new is made (Sources/CPenstockEmbedded/reserve.c).
var memoryIsLow: Bool { cm_is_low() != 0 }

extension Failure {
  /// Passes the failure to the caller of an exported function, if `out` is not NULL. Returns the failure's
  /// result code.
  func report(_ out: UnsafeMutablePointer<OpaquePointer?>?) -> penstock_result {
    out?.pointee = retained(self)
    return outcome.rawValue
  }
}

/// Passes a failure with the message `what` to the caller of an exported function, and returns its result
/// code. If the outcome is `.ok`, nothing is passed.
func report(_ outcome: Outcome, _ what: StaticString, _ out: UnsafeMutablePointer<OpaquePointer?>?)
  -> penstock_result
{
  outcome == .ok ? 0 : Failure(outcome, what).report(out)
}

@_cdecl("penstock_result_name") @implementation
public func penstock_result_name(_ result: penstock_result) -> UnsafePointer<CChar>! {
  cString(Outcome(rawValue: result)?.name ?? "unknown")
}

@_cdecl("penstock_set_out_of_memory_hook") @implementation
public func penstock_set_out_of_memory_hook(
  _ hook: penstock_out_of_memory_hook!, _ userData: UnsafeMutableRawPointer!
) {
  cm_set_hook(hook, userData)
}

@_cdecl("penstock_version") @implementation
public func penstock_version() -> UnsafePointer<CChar>! { Version.text }

@_cdecl("penstock_version_number") @implementation
public func penstock_version_number() -> UInt32 { UInt32(PENSTOCK_VERSION_NUMBER) }

@_cdecl("penstock_version_json") @implementation
public func penstock_version_json(_ text: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!)
  -> penstock_result
{
  guard let text else { return PENSTOCK_E_INVALID_ARGUMENT }
  guard let made = Version.json().text() else { return PENSTOCK_E_NO_MEMORY }
  text.pointee = made
  return PENSTOCK_OK
}

@_cdecl("penstock_free") @implementation
public func penstock_free(_ memory: UnsafeMutableRawPointer!) { free(memory) }

@_cdecl("penstock_error_message") @implementation
public func penstock_error_message(_ error: OpaquePointer!) -> UnsafePointer<CChar>! {
  guard let error else { return cString("") }
  return object(error, Failure.self).message.map { cString($0) } ?? cString(Failure.noMemory)
}

@_cdecl("penstock_error_json") @implementation
public func penstock_error_json(_ error: OpaquePointer!) -> UnsafePointer<CChar>! {
  guard let error else { return cString("{}") }
  return object(error, Failure.self).json.map { UnsafePointer($0) } ?? cString(Failure.noMemoryJSON)
}

@_cdecl("penstock_error_release") @implementation
public func penstock_error_release(_ error: OpaquePointer!) { release(error, Failure.self) }
