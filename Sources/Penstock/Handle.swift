internal import CPenstock

// `Penstock` is the library for Swift programs. It stands on the public C header alone, like every other binding: the
// calls, their chains and their laws are those of the C API. What this module adds is Swift's way to wait: no function here
// blocks the thread it runs on, each wait ends when its call ends, and a cancelled task cancels the call that it waits
// for. It has no state of its own beside its objects, and its public functions name no type of the C API.

/// Owns one reference to an object of the C API.
///
/// The object is given back when the last owner of this one has gone; no release of the C API ever waits.
final class Handle: Sendable {
  // A pointer is not Sendable because the compiler can't know what is behind it. Behind this one is an object of the C
  // API whose functions may be called from any thread, which the header says of each object that is kept so.
  nonisolated(unsafe) let pointer: OpaquePointer
  private let release: @Sendable (OpaquePointer?) -> Void

  init(_ pointer: OpaquePointer, _ release: @escaping @Sendable (OpaquePointer?) -> Void) {
    self.pointer = pointer
    self.release = release
  }

  deinit { release(pointer) }
}

/// Calls a function of the C API that may fail, and throws its error.
///
/// - Parameter act: names what was tried, for functions that give no error of their own.
func attempt(
  _ act: @autoclosure () -> String, _ body: (inout OpaquePointer?) -> penstock_result
) throws(PenstockError) {
  var error: OpaquePointer?
  let result = body(&error)
  guard result != PENSTOCK_OK else { return }
  let code = PenstockError.Code(rawValue: result)
  guard let error else { throw PenstockError(code: code, message: "\(act()) failed") }
  defer { penstock_error_release(error) }
  throw PenstockError(code: code, message: String(cString: penstock_error_message(error)))
}

/// Makes an object of the C API; throws the error if there is none.
func make(
  _ act: @autoclosure () -> String, _ release: @escaping @Sendable (OpaquePointer?) -> Void,
  _ body: (inout OpaquePointer?, inout OpaquePointer?) -> penstock_result
) throws(PenstockError) -> Handle {
  var made: OpaquePointer?
  try attempt(act()) { error in body(&made, &error) }
  guard let made else { throw PenstockError(code: .noMemory, message: "\(act()) failed") }
  return Handle(made, release)
}

extension Array where Element == UInt8 {
  /// Copies `count` bytes of the C API.
  init(_ bytes: UnsafeRawPointer?, count: Int) {
    self.init(UnsafeRawBufferPointer(start: bytes, count: bytes == nil ? 0 : count))
  }
}
