import CPenstockMemory
import PenstockCall
import PenstockWire
import PenstockLoop

/// A header block that is being received. The usual fields of a server's answers are only noted as bits, so
/// they take no memory and no search. If a block has any other field, all its fields are stored in a
/// list. A connection has one such object for all its blocks, one after the other.
public final class HeaderBlock {
  /// The usual fields that were received; each is noted at most once. `others`: at least one other field was
  /// received.
  public struct Noted: OptionSet {
    public let rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// The field ":status: 200".
    public static var ok: Noted { Noted(rawValue: 1) }
    /// The field "content-type: application/grpc".
    public static var grpc: Noted { Noted(rawValue: 2) }
    /// The field "grpc-status: 0".
    public static var success: Noted { Noted(rawValue: 4) }
    /// Any other field.
    public static var others: Noted { Noted(rawValue: 8) }
    /// The field "content-type: application/grpc-web+proto".
    public static var web: Noted { Noted(rawValue: 16) }
    /// The field "content-type: application/proto".
    public static var proto: Noted { Noted(rawValue: 32) }
    /// The field "content-length". Its value is in `length`.
    public static var length: Noted { Noted(rawValue: 64) }
  }

  var noted = Noted(rawValue: 0)
  private let list = Metadata()
  /// The size of the block in bytes, by the rule of RFC 9113 section 6.5.2.
  public private(set) var size = 0
  private(set) var isOutOfMemory = false
  /// The value of ":status" as a number; -1: the field was not received.
  public var status = -1
  /// The value of "content-length" as a number; -1: the field was not received.
  public var length = -1

  public init() { confine(self) }

  /// Whether the block has only the fields ":status: 200" and "content-type: application/grpc".
  public var isPlainHead: Bool { noted == [.ok, .grpc] }
  /// Whether the block has only the fields ":status: 200", `type`, and perhaps the length.
  public func isPlainHead(with type: Noted) -> Bool { noted.subtracting(.length) == [.ok, type] }
  /// Whether the block has only the field "grpc-status: 0".
  public var isPlainTrailers: Bool { noted == .success }

  public func clear() {
    if noted.contains(.others) { list.clear() }
    noted = []
    size = 0
    isOutOfMemory = false
    status = -1
    length = -1
  }

  /// Notes one of the usual fields, if it is the first such field and comes before all other fields; ":status"
  /// must be the very first field. False: the caller has to check the field, and then `add` it.
  @inline(__always)
  public func note(_ name: ByteView, _ value: ByteView, limit: Int) -> Bool {
    switch name.count {
    case 7:
      guard noted == [], isSame(value, "200"), isSame(name, ":status"), note(.ok, 42, limit) else {
        return false
      }
      status = 200
      return true
    case 11: return isSame(value, "0") && isSame(name, "grpc-status") && note(.success, 44, limit)
    case 12:
      return isSame(value, "application/grpc") && isSame(name, "content-type") && note(.grpc, 60, limit)
    default: return false
    }
  }

  @inline(__always)
  private func note(_ field: Noted, _ count: Int, _ limit: Int) -> Bool {
    // After another field (8), or the usual fields of another protocol than gRPC (16, 32, 64), none is noted.
    guard noted.rawValue & (field.rawValue | 120) == 0, size &+ count <= limit else { return false }
    noted.formUnion(field)
    size &+= count
    return true
  }

  /// Notes the usual content-type of another protocol than gRPC. False: the field has to be checked and added.
  func noteType(_ name: ByteView, _ value: ByteView, limit: Int) -> Bool {
    guard noted == .ok, bytesEqual(name, "content-type") else { return false }
    if bytesEqual(value, "application/grpc-web+proto") { return note(.web, 70, limit) }
    return bytesEqual(value, "application/proto") && note(.proto, 61, limit)
  }

  /// Notes that the block has the field "content-length" with the value `digits`, which the caller has already
  /// read as a number into `length`. False: the field does not come behind the usual ones, or the block would
  /// exceed `limit` bytes, and the caller has to `add` the field.
  func noteLength(_ digits: ByteView, limit: Int) -> Bool {
    let isExact = digits.count == 1 || digits.first != 0x30
    let isInPlace = noted == [.ok, .proto] || noted == [.ok, .web]
    guard isExact, isInPlace, size + digits.count + 46 <= limit else { return false }
    noted.insert(.length)
    size += digits.count + 46
    return true
  }

  /// Whether `bytes` and `text` are equal. Inlined, so that the compiler knows the text and compares machine
  /// words.
  @inline(__always)
  private func isSame(_ bytes: ByteView, _ text: StaticString) -> Bool {
    guard bytes.count == text.utf8CodeUnitCount, let start = bytes.baseAddress else { return false }
    return memcmp(start, text.utf8Start, text.utf8CodeUnitCount) == 0
  }

  /// Adds a field of any kind. If the size exceeds `limit`, the field is only counted in the size, and not
  /// stored.
  public func add(_ name: ByteView, _ value: ByteView, limit: Int) {
    if noteType(name, value, limit: limit) { return }
    size += name.count + value.count + 32
    noted.insert(.others)
    guard size <= limit else { return }
    if !spellOut() || list.add(name, value) != .ok { isOutOfMemory = true }
  }

  /// Called when the whole block was received. False: no memory for the block.
  public func finish() -> Bool {
    if !isPlainHead, !isPlainTrailers, !isPlainHead(with: .proto), !isPlainHead(with: .web), !spellOut() {
      isOutOfMemory = true
    }
    return !isOutOfMemory
  }

  /// All fields of the block, as metadata.
  public var fields: Metadata {
    _ = spellOut()
    return list
  }

  /// Adds the noted usual fields to the list. False: no memory.
  private func spellOut() -> Bool {
    if noted.isSubset(of: .others) { return true }
    var isDone = true
    if noted.contains(.ok) { isDone = list.add(":status", "200") }
    if noted.contains(.grpc), isDone { isDone = list.add("content-type", "application/grpc") }
    if noted.contains(.success), isDone { isDone = list.add("grpc-status", "0") }
    if noted.contains(.web), isDone { isDone = list.add("content-type", "application/grpc-web+proto") }
    if noted.contains(.proto), isDone { isDone = list.add("content-type", "application/proto") }
    if noted.contains(.length), isDone {
      let digits = ByteBuffer().say(length)
      isDone = withExtendedLifetime(digits) {
        list.add(("content-length" as StaticString).bytes, digits.view) == .ok
      }
    }
    noted = .others
    return isDone
  }
}

extension Metadata {
  fileprivate func add(_ name: StaticString, _ value: StaticString) -> Bool {
    add(name.bytes, value.bytes) == .ok
  }
}
