/// Reads the protobuf wire format (protobuf.dev, "Encoding"), one field after the other, without recursion.
///
/// Groups are skipped as unknown fields. A nested message is returned as the bytes of its field's value,
/// which another reader can read.
public struct ProtoReader {
  public enum Value: Equatable {
    case varint(UInt64)
    case fixed64(UInt64)
    case fixed32(UInt32)
    case bytes(ByteView)

    public static func == (a: Value, b: Value) -> Bool {
      switch (a, b) {
      case (.varint(let x), .varint(let y)): return x == y
      case (.fixed64(let x), .fixed64(let y)): return x == y
      case (.fixed32(let x), .fixed32(let y)): return x == y
      case (.bytes(let x), .bytes(let y)): return bytesEqual(x, y)
      case (.varint, _), (.fixed64, _), (.fixed32, _), (.bytes, _): return false
      }
    }
  }

  public enum Step: Equatable {
    case field(number: UInt32, value: Value)
    case end
    /// The bytes are not valid protobuf. Each later call also returns `malformed`.
    case malformed
  }

  /// The deepest nesting of groups that is accepted: the same limit as in other parsers.
  static let deepestGroup = 100

  private let bytes: ByteView
  private var at = 0
  private var isMalformed = false

  public init(_ bytes: ByteView) { self.bytes = bytes }

  public mutating func next() -> Step {
    if isMalformed { return .malformed }
    var depth = 0
    var outermost: UInt32 = 0
    while at < bytes.count {
      guard let tag = varint(), tag <= UInt64(UInt32.max) else { return fail() }
      let number = UInt32(truncatingIfNeeded: tag >> 3)
      if number == 0 { return fail() }
      let value: Value
      switch tag & 7 {
      case 0:
        guard let number = varint() else { return fail() }
        value = .varint(number)
      case 1:
        guard let number = littleEndian(8) else { return fail() }
        value = .fixed64(number)
      case 2:
        guard let length = varint(), length <= UInt64(bytes.count &- at) else { return fail() }
        let end = at &+ Int(length)
        value = .bytes(slice(bytes, from: at, to: end))
        at = end
      case 3:
        if depth == 0 { outermost = number }
        depth &+= 1
        if depth > ProtoReader.deepestGroup { return fail() }
        continue
      case 4:
        depth &-= 1
        if depth < 0 || (depth == 0 && number != outermost) { return fail() }
        continue
      case 5:
        guard let number = littleEndian(4) else { return fail() }
        value = .fixed32(UInt32(truncatingIfNeeded: number))
      default: return fail()
      }
      if depth == 0 { return .field(number: number, value: value) }
    }
    return depth == 0 ? .end : fail()
  }

  private mutating func fail() -> Step {
    isMalformed = true
    return .malformed
  }

  /// Reads a varint: at most ten bytes, and at most 64 bits.
  private mutating func varint() -> UInt64? {
    var result: UInt64 = 0
    var shift: UInt64 = 0
    while at < bytes.count && shift < 64 {
      let byte = bytes[at]
      at &+= 1
      if shift == 63 && byte > 1 { return nil }
      result |= UInt64(byte & 0x7F) << shift
      if byte < 0x80 { return result }
      shift &+= 7
    }
    return nil
  }

  private mutating func littleEndian(_ size: Int) -> UInt64? {
    guard size <= bytes.count &- at else { return nil }
    var result: UInt64 = 0
    for i in 0..<size { result |= UInt64(bytes[at &+ i]) << UInt64(i &* 8) }
    at &+= size
    return result
  }
}

/// Writes the protobuf wire format. If memory runs out, `isComplete` becomes false and stays false. So the
/// caller need not check each field: at the end it discards the bytes if `isComplete` is false.
public struct ProtoWriter {
  private let out: ByteBuffer
  /// Whether everything was written: false once memory has run out.
  public private(set) var isComplete = true

  public init(into out: ByteBuffer) { self.out = out }

  public mutating func varint(_ field: UInt32, _ value: UInt64) {
    tag(field, 0)
    raw(value)
  }

  /// Writes an `int32` or `int64`; a negative number takes ten bytes.
  public mutating func int(_ field: UInt32, _ value: Int64) { varint(field, UInt64(bitPattern: value)) }

  public mutating func bool(_ field: UInt32, _ value: Bool) { varint(field, value ? 1 : 0) }

  /// Writes a `fixed64` or a `sfixed64`.
  public mutating func fixed64(_ field: UInt32, _ value: UInt64) {
    tag(field, 1)
    element(value)
  }

  public mutating func fixed32(_ field: UInt32, _ value: UInt32) {
    tag(field, 5)
    littleEndian(UInt64(value), 4)
  }

  public mutating func double(_ field: UInt32, _ value: Double) { fixed64(field, value.bitPattern) }

  /// Writes one element of a packed field of `fixed64` or `double`, whose header the caller has written.
  public mutating func element(_ value: UInt64) { littleEndian(value, 8) }

  private mutating func littleEndian(_ value: UInt64, _ size: Int) {
    guard isComplete else { return }
    for n in 0..<size where isComplete {
      isComplete = out.append(byte: UInt8(truncatingIfNeeded: value >> UInt64(n &* 8)))
    }
  }

  /// Writes fields that are encoded already.
  public mutating func encoded(_ fields: ByteView) {
    if isComplete { isComplete = out.append(fields) }
  }

  /// Notes that a part of the message could not be made.
  public mutating func fail() { isComplete = false }

  /// Writes a nested message, whose fields `fill` writes.
  public mutating func message(_ field: UInt32, _ fill: (inout ProtoWriter) -> Void) {
    let inner = ByteBuffer()
    var writer = ProtoWriter(into: inner)
    fill(&writer)
    if !writer.isComplete { fail() }
    bytes(field, inner.view)
    withExtendedLifetime(inner) {}
  }

  /// Writes a field that is a string, bytes, or a message whose encoded bytes are `value`.
  public mutating func bytes(_ field: UInt32, _ value: ByteView) {
    messageHeader(field, length: value.count)
    if isComplete { isComplete = out.append(value) }
  }

  public mutating func string(_ field: UInt32, _ value: StaticString) { bytes(field, value.bytes) }

  /// Writes the tag and the length of a nested message. The caller then writes the message, `length` bytes,
  /// by further calls.
  public mutating func messageHeader(_ field: UInt32, length: Int) {
    tag(field, 2)
    raw(UInt64(max(length, 0)))
  }

  /// The size of `value` as a varint, in bytes.
  public static func varintSize(_ value: UInt64) -> Int {
    value == 0 ? 1 : (70 &- value.leadingZeroBitCount) / 7
  }

  /// The size of a length-delimited field with its tag, in bytes; nil: the number overflows.
  public static func bytesFieldSize(_ field: UInt32, _ length: Int) -> Int? {
    let header = varintSize(UInt64(field) << 3) &+ varintSize(UInt64(max(length, 0)))
    let (size, overflow) = header.addingReportingOverflow(length)
    return overflow ? nil : size
  }

  private mutating func tag(_ field: UInt32, _ type: UInt64) { raw(UInt64(field) << 3 | type) }

  private mutating func raw(_ value: UInt64) {
    guard isComplete else { return }
    guard let spare = out.spare(atLeast: 10) else {
      isComplete = false
      return
    }
    var rest = value
    var n = 0
    while rest >= 0x80 {
      spare[n] = UInt8(truncatingIfNeeded: rest) | 0x80
      rest >>= 7
      n &+= 1
    }
    spare[n] = UInt8(truncatingIfNeeded: rest)
    out.commit(n &+ 1)
  }
}
