import CMemory
import PenstockCall
import PenstockWire

/// A header block as it comes in. The fields that nearly every answer of a gRPC server consists of are only noted: they
/// take no room, and need not be looked for again. The first field that is another brings the list. One for a
/// connection, used again.
final class HeaderBlock {
  /// Of these, each of at most once.
  private struct Noted: OptionSet {
    let rawValue: UInt8
    /// ":status: 200"
    static var ok: Noted { Noted(rawValue: 1) }
    /// "content-type: application/grpc"
    static var grpc: Noted { Noted(rawValue: 2) }
    /// "grpc-status: 0"
    static var success: Noted { Noted(rawValue: 4) }
  }

  private var noted = Noted(rawValue: 0)
  private let list = Metadata()
  /// As RFC 9113 section 6.5.2 counts it.
  private(set) var size = 0
  private(set) var isOutOfMemory = false

  init() { confine(self) }

  /// Nothing but ":status: 200" and "content-type: application/grpc".
  var isPlainHead: Bool { list.count == 0 && noted == [.ok, .grpc] }
  /// Nothing but "grpc-status: 0".
  var isPlainTrailers: Bool { list.count == 0 && noted == .success }

  func clear() {
    noted = []
    if list.count > 0 { list.clear() }
    size = 0
    isOutOfMemory = false
  }

  /// What is over the limit only counts.
  func add(_ name: ByteView, _ value: ByteView, limit: Int) {
    size += name.count + value.count + 32
    guard size <= limit else { return }
    if list.count == 0 {
      let field = HeaderBlock.known(name, value)
      if field != [], noted.isDisjoint(with: field) {
        noted.formUnion(field)
        return
      }
    }
    if !spellOut() || list.add(name, value) != .done { isOutOfMemory = true }
  }

  private static func known(_ name: ByteView, _ value: ByteView) -> Noted {
    switch name.count {
    case 7: return isSame(value, "200") && isSame(name, ":status") ? .ok : []
    case 11: return isSame(value, "0") && isSame(name, "grpc-status") ? .success : []
    case 12: return isSame(value, "application/grpc") && isSame(name, "content-type") ? .grpc : []
    default: return []
    }
  }

  /// In the caller's code, where the compiler knows the text, it is a comparison of words.
  @inline(__always)
  private static func isSame(_ bytes: ByteView, _ text: StaticString) -> Bool {
    guard bytes.count == text.utf8CodeUnitCount, let start = bytes.baseAddress else { return false }
    return memcmp(start, text.utf8Start, text.utf8CodeUnitCount) == 0
  }

  /// ":status" is of the class 1xx.
  var isInformational: Bool {
    guard !noted.contains(.ok), let index = list.index(of: (":status" as StaticString).bytes) else {
      return false
    }
    return list.value(at: index).first == 0x31
  }

  /// The block is whole. False: there was no memory for it.
  func finish() -> Bool {
    if !isPlainHead, !isPlainTrailers, !spellOut() { isOutOfMemory = true }
    return !isOutOfMemory
  }

  /// All fields.
  var fields: Metadata {
    _ = spellOut()
    return list
  }

  /// Puts what was noted into the list. False: no memory.
  private func spellOut() -> Bool {
    if noted == [] { return true }
    var isDone = true
    if noted.contains(.ok) { isDone = list.add(":status", "200") }
    if noted.contains(.grpc), isDone { isDone = list.add("content-type", "application/grpc") }
    if noted.contains(.success), isDone { isDone = list.add("grpc-status", "0") }
    noted = []
    return isDone
  }
}

extension Metadata {
  fileprivate func add(_ name: StaticString, _ value: StaticString) -> Bool {
    add(name.bytes, value.bytes) == .done
  }
}
