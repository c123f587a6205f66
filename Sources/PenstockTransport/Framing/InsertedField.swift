import PenstockWire

/// A header field whose value differs from request to request: these are the only fields in which requests with a known
/// header block differ (KnownBlocks.swift). Its value is a number.
enum InsertedField {
  case grpcTimeout, connectTimeout, contentLength

  var name: ByteView {
    switch self {
    case .grpcTimeout: return ("grpc-timeout" as StaticString).bytes
    case .connectTimeout: return ("connect-timeout-ms" as StaticString).bytes
    case .contentLength: return ("content-length" as StaticString).bytes
    }
  }

  /// The most bytes that a value takes.
  static let mostBytes = 20

  /// Appends the value. A timeout is given in nanoseconds. False: no memory.
  func write(_ value: UInt64, into out: ByteBuffer) -> Bool {
    switch self {
    case .grpcTimeout: return Timeout.write(nanoseconds: value, into: out)
    case .connectTimeout: return Timeout.writeMilliseconds(nanoseconds: value, into: out)
    case .contentLength: return writeDecimal(value, into: out)
    }
  }

  // MARK: HPACK

  /// The most bytes that the fields of one request take in HPACK.
  static let mostEncoded = 64

  /// Appends the field as HPACK has it: a literal that is never indexed (RFC 7541 section 6.2.3). Returns the size of
  /// the value; nil: no memory.
  @inline(never) @_optimize(size)
  func encode(_ value: UInt64, into out: ByteBuffer) -> Int? {
    guard let space = out.spare(atLeast: InsertedField.mostEncoded)?.baseAddress else { return nil }
    let head: Int
    switch self {
    case .grpcTimeout:
      // The name in Huffman's code.
      space.storeBytes(of: UInt64(0x494d_b2c8_ca9a_8910).littleEndian, as: UInt64.self)
      space.storeBytes(of: UInt64(0x7f6a_4f).littleEndian, toByteOffset: 8, as: UInt64.self)
      head = 11
    case .connectTimeout:
      space.storeBytes(of: UInt16(0x1210).littleEndian, as: UInt16.self)
      UnsafeMutableRawBufferPointer(start: space + 2, count: name.count).copyBytes(from: name)
      head = 2 + name.count
    case .contentLength:
      // The name is number 28 in the static table.
      space.storeBytes(of: UInt16(0x0d1f).littleEndian, as: UInt16.self)
      head = 2
    }
    out.commit(head + 1)
    let before = out.count
    guard write(value, into: out) else { return nil }
    let count = out.count - before
    // There was room for all of it, so the bytes have not moved.
    space.storeBytes(of: UInt8(truncatingIfNeeded: count), toByteOffset: head, as: UInt8.self)
    return count
  }
}
