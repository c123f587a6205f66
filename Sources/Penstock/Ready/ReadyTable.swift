internal import CPenstock

/// A table of a ready-made interceptor, whose state all registrations share. It is never registered itself.
final class ReadyTable: Sendable {
  // Any thread may share a filled table, which does not change.
  private nonisolated(unsafe) let table: UnsafeMutablePointer<penstock_interceptor>

  /// Fills a table by `fill`, a function of the C API.
  init(
    _ act: String,
    _ fill: (UnsafeMutablePointer<penstock_interceptor>, inout OpaquePointer?) -> penstock_result
  ) throws(PenstockError) {
    let table = Self.empty()
    do {
      try attempt(act) { fill(table, &$0) }
    } catch {
      table.deallocate()
      throw error
    }
    self.table = table
  }

  deinit {
    table.pointee.finalizer?(table.pointee.user_data)
    table.deallocate()
  }

  /// Calls `body` with the table, to ask for the state behind it.
  func with<Result>(_ body: (UnsafePointer<penstock_interceptor>) -> Result) -> Result { body(table) }

  /// Gives a table to be registered.
  func shared() -> (penstock_result, penstock_interceptor) {
    let other = Self.empty()
    defer { other.deallocate() }
    return (penstock_ready_share(table, other), other.pointee)
  }

  private static func empty() -> UnsafeMutablePointer<penstock_interceptor> {
    let table = UnsafeMutablePointer<penstock_interceptor>.allocate(capacity: 1)
    table.initialize(to: penstock_interceptor())
    table.pointee.struct_size = MemoryLayout<penstock_interceptor>.size
    return table
  }
}

/// A function of the program that the library keeps as user data.
final class KeptFunction<Function: Sendable>: Sendable {
  let function: Function
  private init(_ function: Function) { self.function = function }

  /// User data with a reference to `function`, which ``finalizer`` gives back.
  static func keep(_ function: Function) -> UnsafeMutableRawPointer {
    Unmanaged.passRetained(KeptFunction(function)).toOpaque()
  }

  static func of(_ data: UnsafeMutableRawPointer?) -> Function? {
    data.map { Unmanaged<KeptFunction>.fromOpaque($0).takeUnretainedValue().function }
  }

  static func release(_ data: UnsafeMutableRawPointer?) {
    if let data { Unmanaged<KeptFunction>.fromOpaque(data).release() }
  }
}
