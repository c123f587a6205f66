/// Receives the parts of a decoded error detail, in the order of JSON text: in an object, each `key` comes
/// before its value. Strings and keys are valid UTF-8; the views are valid only during the call.
///
/// A visitor that makes ProtoJSON has two things to do itself: to write 64-bit integers (`int`) as strings,
/// and to let the later of two equal keys of a map count (protobuf.dev, "Encoding", Maps).
public protocol ErrorDetailVisitor {
  mutating func beginObject()
  mutating func endObject()
  mutating func beginArray()
  mutating func endArray()
  mutating func key(_ name: ByteView)
  mutating func string(_ value: ByteView)
  mutating func int(_ value: Int64)
}

/// Decodes the ten error details of google/rpc/error_details.proto, field by field, with the names of
/// ProtoJSON.
public enum ErrorDetail {
  /// Passes the detail to `visitor` as one object. The fields come in the order of their numbers, and fields
  /// with their default value are left out, as in ProtoJSON. Returns false, without calling the visitor, if
  /// the type is not one of the ten, or if the bytes can't be decoded as that type (malformed protobuf, a
  /// string that is not UTF-8, a duration out of range).
  public static func visit<V: ErrorDetailVisitor>(typeURL: ByteView, value: ByteView, visitor: inout V)
    -> Bool
  {
    guard let schema = DetailSchema(typeURL: typeURL), isValid(schema, value) else { return false }
    tell(schema, value, &visitor)
    return true
  }

  /// Whether the type is one of the ten error details.
  public static func isKnown(typeURL: ByteView) -> Bool { DetailSchema(typeURL: typeURL) != nil }

  // MARK: Validation

  /// Whether `message` can be decoded by `schema`. The recursion is at most as deep as the schema (three
  /// levels), whatever the bytes are.
  private static func isValid(_ schema: DetailSchema, _ message: ByteView) -> Bool {
    var reader = ProtoReader(message)
    while true {
      switch reader.next() {
      case .malformed: return false
      case .end: return areDurationsValid(schema, message)
      case .field(let number, .bytes(let bytes)):
        guard let field = schema.field(numbered: number) else { continue }
        switch field.kind {
        case .string, .strings: if !UTF8Repair.isValid(bytes) { return false }
        case .message(let inner), .messages(let inner): if !isValid(inner, bytes) { return false }
        case .map: if !isValid(.mapEntry, bytes) { return false }
        case .duration: if !isProto(bytes) { return false }
        case .int, .presentInt: continue
        }
      case .field: continue
      }
    }
  }

  private static func isProto(_ message: ByteView) -> Bool {
    var reader = ProtoReader(message)
    while true {
      switch reader.next() {
      case .malformed: return false
      case .end: return true
      case .field: continue
      }
    }
  }

  private static func areDurationsValid(_ schema: DetailSchema, _ message: ByteView) -> Bool {
    var index = 0
    while let field = schema.field(at: index) {
      index &+= 1
      guard case .duration = field.kind else { continue }
      if let duration = Duration(in: message, field: field.number), !duration.isValid { return false }
    }
    return true
  }

  // MARK: Telling

  private static func tell<V: ErrorDetailVisitor>(
    _ schema: DetailSchema, _ message: ByteView, _ visitor: inout V
  ) {
    visitor.beginObject()
    var index = 0
    while let field = schema.field(at: index) {
      index &+= 1
      tell(field, in: message, &visitor)
    }
    visitor.endObject()
  }

  private static func tell<V: ErrorDetailVisitor>(
    _ field: DetailSchema.Field, in message: ByteView, _ visitor: inout V
  ) {
    switch field.kind {
    case .string:
      guard let value = lastBytes(field.number, in: message), !value.isEmpty else { return }
      visitor.key(field.name.bytes)
      visitor.string(value)
    case .int, .presentInt:
      guard let value = lastVarint(field.number, in: message) else { return }
      if value == 0, case .int = field.kind { return }
      visitor.key(field.name.bytes)
      visitor.int(Int64(bitPattern: value))
    case .duration:
      guard let duration = Duration(in: message, field: field.number) else { return }
      visitor.key(field.name.bytes)
      duration.withText { visitor.string($0) }
    case .message(let schema):
      guard lastBytes(field.number, in: message) != nil else { return }
      visitor.key(field.name.bytes)
      tellMerged(schema, field.number, in: message, &visitor)
    case .strings, .messages, .map:
      tellRepeated(field, in: message, &visitor)
    }
  }

  private static func tellRepeated<V: ErrorDetailVisitor>(
    _ field: DetailSchema.Field, in message: ByteView, _ visitor: inout V
  ) {
    guard lastBytes(field.number, in: message) != nil else { return }
    var isMap = false
    if case .map = field.kind { isMap = true }
    visitor.key(field.name.bytes)
    if isMap { visitor.beginObject() } else { visitor.beginArray() }
    var fields = FieldScan(field.number, in: message)
    while let bytes = fields.nextBytes() {
      switch field.kind {
      case .messages(let schema): tell(schema, bytes, &visitor)
      case .map:
        let none = ByteView(start: nil, count: 0)
        visitor.key(lastBytes(1, in: bytes) ?? none)
        visitor.string(lastBytes(2, in: bytes) ?? none)
      case .string, .strings, .int, .presentInt, .duration, .message: visitor.string(bytes)
      }
    }
    if isMap { visitor.endObject() } else { visitor.endArray() }
  }

  /// Visits a message field that may occur once but was sent several times: its value is the merge of all
  /// occurrences (protobuf.dev, "Encoding", Last One Wins). The only such message here has only string
  /// fields, so the last value of each field counts.
  private static func tellMerged<V: ErrorDetailVisitor>(
    _ schema: DetailSchema, _ number: UInt32, in message: ByteView, _ visitor: inout V
  ) {
    visitor.beginObject()
    var index = 0
    while let field = schema.field(at: index) {
      index &+= 1
      var last: ByteView?
      var parts = FieldScan(number, in: message)
      while let part = parts.nextBytes() { last = lastBytes(field.number, in: part) ?? last }
      guard let last, !last.isEmpty else { continue }
      visitor.key(field.name.bytes)
      visitor.string(last)
    }
    visitor.endObject()
  }
}

/// Steps through the occurrences of one field in a message that was validated before. An occurrence with a
/// wire type other than the schema's counts as an unknown field, as in other parsers.
struct FieldScan {
  private var reader: ProtoReader
  private let number: UInt32

  init(_ number: UInt32, in message: ByteView) {
    reader = ProtoReader(message)
    self.number = number
  }

  mutating func nextBytes() -> ByteView? {
    while true {
      switch reader.next() {
      case .malformed, .end: return nil
      case .field(let found, .bytes(let bytes)) where found == number: return bytes
      case .field: continue
      }
    }
  }

  mutating func nextVarint() -> UInt64? {
    while true {
      switch reader.next() {
      case .malformed, .end: return nil
      case .field(let found, .varint(let value)) where found == number: return value
      case .field: continue
      }
    }
  }
}

func lastBytes(_ number: UInt32, in message: ByteView) -> ByteView? {
  var fields = FieldScan(number, in: message)
  var last: ByteView?
  while let bytes = fields.nextBytes() { last = bytes }
  return last
}

func lastVarint(_ number: UInt32, in message: ByteView) -> UInt64? {
  var fields = FieldScan(number, in: message)
  var last: UInt64?
  while let value = fields.nextVarint() { last = value }
  return last
}

/// A google.protobuf.Duration (google/protobuf/duration.proto: seconds = 1, nanos = 2).
private struct Duration {
  private var seconds: Int64 = 0
  private var nanos: Int32 = 0

  /// The duration in `field`, merged from all its occurrences; nil: the message has none.
  init?(in message: ByteView, field: UInt32) {
    var isPresent = false
    var parts = FieldScan(field, in: message)
    while let part = parts.nextBytes() {
      isPresent = true
      if let value = lastVarint(1, in: part) { seconds = Int64(bitPattern: value) }
      if let value = lastVarint(2, in: part) { nanos = Int32(truncatingIfNeeded: value) }
    }
    if !isPresent { return nil }
  }

  /// Whether the duration is valid: within about 10,000 years, and with the same sign in both parts.
  var isValid: Bool {
    guard seconds >= -315_576_000_000 && seconds <= 315_576_000_000 else { return false }
    guard nanos > -1_000_000_000 && nanos < 1_000_000_000 else { return false }
    return !(seconds > 0 && nanos < 0) && !(seconds < 0 && nanos > 0)
  }

  /// Calls `body` with the duration as ProtoJSON text of at most 24 bytes: seconds, a fraction with as many
  /// digits as needed, and `s`.
  func withText(_ body: (ByteView) -> Void) {
    withUnsafeTemporaryAllocation(byteCount: 64, alignment: 1) { space in
      var n = 0
      if seconds < 0 || nanos < 0 {
        space[n] = 0x2D
        n &+= 1
      }
      n &+= writeDecimal(seconds.magnitude, to: UnsafeMutableRawBufferPointer(rebasing: space[n...]))
      if nanos != 0 {
        space[n] = 0x2E
        n &+= 1
        var rest = nanos.magnitude
        var unit: UInt32 = 100_000_000
        while rest > 0 && unit > 0 {
          space[n] = 0x30 &+ UInt8(truncatingIfNeeded: rest / unit)
          n &+= 1
          rest %= unit
          unit /= 10
        }
      }
      space[n] = 0x73
      body(ByteView(rebasing: UnsafeRawBufferPointer(space)[...n]))
    }
  }
}
