import CPenstockNghttp2
import CPenstockSystem
import PenstockWire
import PenstockHTTP

/// A header list that is being built. Names and values are static or are copied, so no argument has to outlive `add`.
final class FieldList {
  private struct Entry {
    var name: UnsafePointer<UInt8>?
    var nameAt = 0
    var nameCount = 0
    var value: UnsafePointer<UInt8>?
    var valueAt = 0
    var valueCount = 0
  }

  private var entries: [Entry] = []
  private var vectors: [nghttp2_nv] = []
  private let bytes = ByteBuffer()

  func clear() {
    entries.removeAll(keepingCapacity: true)
    bytes.removeAll(keepingCapacity: true)
  }

  func add(_ name: StaticString, _ value: StaticString) {
    var entry = Entry()
    entry.name = name.utf8Start
    entry.nameCount = name.utf8CodeUnitCount
    entry.value = value.utf8Start
    entry.valueCount = value.utf8CodeUnitCount
    entries.append(entry)
  }

  func add(_ name: StaticString, _ value: ByteView) {
    var entry = Entry()
    entry.name = name.utf8Start
    entry.nameCount = name.utf8CodeUnitCount
    entry.valueAt = bytes.count
    entry.valueCount = value.count
    if bytes.append(value) { entries.append(entry) }
  }

  func add(_ name: StaticString, _ value: ByteBuffer) {
    withExtendedLifetime(value) { add(name, value.view) }
  }

  /// Adds a field whose name is `prefix` and `name` together.
  func add(prefix: StaticString, _ name: ByteView, _ value: ByteView) {
    var entry = Entry()
    entry.nameAt = bytes.count
    entry.nameCount = prefix.utf8CodeUnitCount + name.count
    entry.valueAt = bytes.count + entry.nameCount
    entry.valueCount = value.count
    if bytes.append(prefix.bytes) && bytes.append(name) && bytes.append(value) { entries.append(entry) }
  }

  func add(_ name: ByteView, _ value: ByteView) { add(prefix: "", name, value) }

  var count: Int { entries.count }

  /// Calls `body` with the name and value of each field. They are valid until the list changes.
  func forEach(_ body: (ByteView, ByteView) -> Void) {
    for entry in entries {
      let name =
        entry.name.map { ByteView(start: $0, count: entry.nameCount) }
        ?? part(bytes.view, entry.nameAt, entry.nameAt + entry.nameCount)
      let value =
        entry.value.map { ByteView(start: $0, count: entry.valueCount) }
        ?? part(bytes.view, entry.valueAt, entry.valueAt + entry.valueCount)
      body(name, value)
    }
  }

  /// Calls `body` with the fields as an array for nghttp2, which copies them and does not write to them.
  func withVectors<R>(_ body: (UnsafePointer<nghttp2_nv>?, Int) -> R) -> R {
    vectors.removeAll(keepingCapacity: true)
    let base = bytes.view.baseAddress?.assumingMemoryBound(to: UInt8.self)
    for entry in entries {
      let name = entry.name ?? base.map { $0 + entry.nameAt }
      let value = entry.value ?? base.map { $0 + entry.valueAt }
      vectors.append(
        nghttp2_nv(
          name: UnsafeMutablePointer(mutating: name), value: UnsafeMutablePointer(mutating: value),
          namelen: entry.nameCount, valuelen: entry.valueCount, flags: 0))
    }
    return vectors.withUnsafeBufferPointer { body($0.baseAddress, $0.count) }
  }
}
