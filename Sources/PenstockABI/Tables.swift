import CPenstockMemory
import CPenstock
import PenstockJSON
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockClient

// Reads the tables that a caller hands in, and writes the tables that a caller wants filled. Nothing else may
// touch a caller's table: it may be smaller or larger than the one that this version knows. docs/abi.md has
// the rules.

/// A struct that begins with `struct_size` and gets new fields at its end from version to version.
protocol SizedTable {
  init()
  var struct_size: Int { get set }
  var user_data: UnsafeMutableRawPointer! { get }
  var finalizer: penstock_finalizer! { get }
  /// The size of the table in the first version that had it, in bytes: the smallest that a caller can have.
  static var firstSize: Int { get }
  /// What a caller makes the table with, for messages.
  static var initialiser: StaticString { get }
}

extension penstock_interceptor: SizedTable {
  static var firstSize: Int { 168 }
  static var initialiser: StaticString { "PENSTOCK_INTERCEPTOR_INIT" }
}

extension penstock_async_interceptor: SizedTable {
  static var firstSize: Int { 152 }
  static var initialiser: StaticString { "PENSTOCK_ASYNC_INTERCEPTOR_INIT" }
}

extension penstock_sync_interceptor: SizedTable {
  static var firstSize: Int { 88 }
  static var initialiser: StaticString { "PENSTOCK_SYNC_INTERCEPTOR_INIT" }
}

extension penstock_call_callbacks: SizedTable {
  static var firstSize: Int { 56 }
  static var initialiser: StaticString { "PENSTOCK_CALL_CALLBACKS_INIT" }
}

extension penstock_codec_functions: SizedTable {
  static var firstSize: Int { 56 }
  static var initialiser: StaticString { "PENSTOCK_CODEC_FUNCTIONS_INIT" }
}

extension penstock_compressor_functions: SizedTable {
  static var firstSize: Int { 48 }
  static var initialiser: StaticString { "PENSTOCK_COMPRESSOR_FUNCTIONS_INIT" }
}

extension penstock_resolver_functions: SizedTable {
  static var firstSize: Int { 40 }
  static var initialiser: StaticString { "PENSTOCK_RESOLVER_FUNCTIONS_INIT" }
}

extension penstock_connector_functions: SizedTable {
  static var firstSize: Int { 40 }
  static var initialiser: StaticString { "PENSTOCK_CONNECTOR_FUNCTIONS_INIT" }
}

enum ReadTable<Table> {
  case read(Table)
  case refused(Failure)
}

/// Reads the table that a caller hands in as the argument `name`. If it can be read, its user data is the
/// library's from then on: that of a table that is refused nevertheless has been finalized.
func readTable<Table: SizedTable>(_ given: UnsafePointer<Table>?, _ name: StaticString) -> ReadTable<Table> {
  switch borrowTable(given, name) {
  case .known(let table): return .read(table)
  case .tooNew(let table, let failure):
    table.finalizer?(table.user_data)
    return .refused(failure)
  case .unreadable(let failure): return .refused(failure)
  }
}

/// Lets `fill` change the table that a caller wants filled and gives as the argument `name`, and writes it back
/// as far as struct_size goes; struct_size stays as it is. If `fill` sets a field that the caller's table does
/// not have, or returns a failure, the caller's table stays as it was.
func writeTable<Table: SizedTable>(
  _ out: UnsafeMutablePointer<Table>?, _ name: StaticString, _ fill: (inout Table) -> Failure?
) -> Failure? {
  var table: Table
  switch borrowTable(out.map { UnsafePointer($0) }, name) {
  case .known(let known): table = known
  case .tooNew(_, let failure), .unreadable(let failure): return failure
  }
  guard let out else { return Failure(.invalidArgument, name) }
  if let failure = fill(&table) { return failure }
  let size = structSize(out), written = min(size, MemoryLayout<Table>.size)
  table.struct_size = size
  let fits = withUnsafeMutablePointer(to: &table) { table in
    let rest = ByteView(start: UnsafeRawPointer(table) + written, count: MemoryLayout<Table>.size - written)
    guard rest.allSatisfy({ $0 == 0 }) else { return false }
    memcpy(out, table, written)
    return true
  }
  if fits { return nil }
  return Failure(
    .unsupported, name.bytes,
    (".struct_size: the table has no room for a field that this interceptor needs" as StaticString).bytes)
}

/// A caller's table as this version knows it: the fields that a smaller table does not have are zero.
enum TableCopy<Table> {
  case known(Table)
  /// The table has fields that this version does not know.
  case tooNew(Table, Failure)
  /// There is no table, or its struct_size is below that of the first version: all of it stays the caller's.
  case unreadable(Failure)
}

/// Copies the table that a caller gives as the argument `name`. Everything that it points to stays the caller's.
func borrowTable<Table: SizedTable>(_ given: UnsafePointer<Table>?, _ name: StaticString)
  -> TableCopy<Table>
{
  guard let given else {
    return .unreadable(Failure(.invalidArgument, name.bytes, (" must not be NULL" as StaticString).bytes))
  }
  let size = structSize(given), known = MemoryLayout<Table>.size
  guard size >= Table.firstSize else {
    return .unreadable(
      Failure(
        .invalidArgument, name.bytes, (".struct_size is too small: use " as StaticString).bytes,
        Table.initialiser.bytes))
  }
  var table = Table()
  withUnsafeMutablePointer(to: &table) { _ = memcpy($0, given, min(size, known)) }
  guard hasUnknownFields(given, size, known: known) else { return .known(table) }
  return .tooNew(
    table,
    Failure(
      .unsupported, name.bytes,
      (".struct_size: the table has fields that this version does not know" as StaticString).bytes))
}

/// A size beyond Int.max counts as Int.max.
private func structSize(_ table: UnsafeRawPointer) -> Int { Int(clamping: table.load(as: UInt.self)) }

/// Whether a caller's table of `size` bytes uses fields that this version does not know. That is so if bytes
/// behind the first `known` ones are not zero. It is also so if the table is larger than that of any version;
/// its bytes are not read then.
private func hasUnknownFields(_ table: UnsafeRawPointer, _ size: Int, known: Int) -> Bool {
  guard size > known else { return false }
  return size > 1024 || ByteView(start: table + known, count: size - known).contains { $0 != 0 }
}
