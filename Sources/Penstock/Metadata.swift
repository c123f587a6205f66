internal import CPenstock

/// The metadata of a call: an ordered list of names and values, in which a name may come more than once.
///
/// Names are lower-case; a capital letter is taken as its small one. The value of a name that ends in "-bin" is any bytes;
/// every other value is visible ASCII and spaces. Names that belong to the protocol, such as "grpc-timeout", are refused
/// when the metadata is used.
public struct Metadata: Sendable, Hashable, ExpressibleByDictionaryLiteral, Sequence {
  /// One name with one value.
  public struct Entry: Sendable, Hashable {
    /// The name, in lower case.
    public let name: String
    /// The bytes of the value.
    public let bytes: [UInt8]
    /// The value as text.
    public var value: String { String(decoding: bytes, as: UTF8.self) }
  }

  private var entries: [Entry] = []

  /// Makes empty metadata.
  public init() {}
  /// Makes metadata of names, each with its values.
  public init(_ values: [String: [String]]) {
    for (name, values) in values.sorted(by: { $0.key < $1.key }) {
      for value in values { add(value, for: name) }
    }
  }
  /// Makes metadata of names and values: `["x-a": "1", "x-a": "2"]` has two values of one name.
  public init(dictionaryLiteral elements: (String, String)...) {
    for (name, value) in elements { add(value, for: name) }
  }

  /// The values of a name as text, in order; setting them replaces all values of that name.
  public subscript(name: String) -> [String] {
    get { self[binary: name].map { String(decoding: $0, as: UTF8.self) } }
    set { self[binary: name] = newValue.map { [UInt8]($0.utf8) } }
  }
  /// The values of a name as bytes, in order; setting them replaces all values of that name.
  public subscript(binary name: String) -> [[UInt8]] {
    get {
      let name = name.lowercased()
      return entries.filter { $0.name == name }.map(\.bytes)
    }
    set {
      remove(name)
      for value in newValue { add(value, for: name) }
    }
  }
  /// The first value of a name; nil: it has none.
  public func first(_ name: String) -> String? {
    let name = name.lowercased()
    return entries.first { $0.name == name }?.value
  }
  /// Adds a value behind those that the name has.
  public mutating func add(_ value: String, for name: String) { add([UInt8](value.utf8), for: name) }
  /// Adds a value of bytes behind those that the name has.
  public mutating func add(_ bytes: [UInt8], for name: String) {
    entries.append(Entry(name: name.lowercased(), bytes: bytes))
  }
  /// Removes all values of a name.
  public mutating func remove(_ name: String) {
    let name = name.lowercased()
    entries.removeAll { $0.name == name }
  }

  /// All names with their values as text.
  public var dictionary: [String: [String]] {
    Dictionary(grouping: entries, by: \.name).mapValues { $0.map(\.value) }
  }
  /// How many values there are.
  public var count: Int { entries.count }
  /// Whether there are none.
  public var isEmpty: Bool { entries.isEmpty }
  /// Gives the entries in order.
  public func makeIterator() -> IndexingIterator<[Entry]> { entries.makeIterator() }

  /// Copies metadata of the C API, which one thread uses at a time.
  init(_ metadata: OpaquePointer?) {
    let count = penstock_metadata_count(metadata)
    entries.reserveCapacity(count)
    for index in 0..<count {
      var name: UnsafePointer<CChar>?
      var value: UnsafeRawPointer?
      var length = 0
      guard penstock_metadata_at(metadata, index, &name, &value, &length) == PENSTOCK_OK, let name else {
        continue
      }
      entries.append(Entry(name: String(cString: name), bytes: [UInt8](value, count: length)))
    }
  }

  /// Replaces what is in metadata of the C API.
  ///
  /// Values that are the same stay untouched, so the fields that only the library may write stay, too.
  func write(to metadata: OpaquePointer?) throws(PenstockError) {
    let before = Metadata(metadata)
    guard before != self else { return }
    for name in Set(before.entries.map(\.name)) where before[binary: name] != self[binary: name] {
      try attempt("removing \(name)") { _ in penstock_metadata_remove(metadata, name) }
    }
    for name in Set(entries.map(\.name)) where before[binary: name] != self[binary: name] {
      for bytes in self[binary: name] {
        try attempt("the metadata \(name)") { _ in
          penstock_metadata_add_bytes(metadata, name, bytes, bytes.count)
        }
      }
    }
  }

  /// Adds all entries to metadata of the C API.
  func append(to metadata: OpaquePointer?) throws(PenstockError) {
    for entry in entries {
      let result = penstock_metadata_add_bytes(metadata, entry.name, entry.bytes, entry.bytes.count)
      guard result != PENSTOCK_OK else { continue }
      throw PenstockError(
        code: PenstockError.Code(rawValue: result),
        message: "the metadata \"\(entry.name)\" has a name or a value that is not allowed")
    }
  }
}
