/// A header field with a number as its value, which differs between requests. Requests that use one kept
/// header block (PenstockHTTP/HTTP2/KnownBlocks.swift) differ only in these fields.
public enum InsertedField {
  case grpcTimeout, connectTimeout, contentLength

  public var name: ByteView {
    switch self {
    case .grpcTimeout: return ("grpc-timeout" as StaticString).bytes
    case .connectTimeout: return ("connect-timeout-ms" as StaticString).bytes
    case .contentLength: return ("content-length" as StaticString).bytes
    }
  }

  /// The most bytes of a value.
  public static let mostBytes = 20

  /// Appends the value. The unit of a timeout is nanoseconds. False: no memory.
  public func write(_ value: UInt64, into out: ByteBuffer) -> Bool {
    switch self {
    case .grpcTimeout: return Timeout.write(nanoseconds: value, into: out)
    case .connectTimeout: return Timeout.writeMilliseconds(nanoseconds: value, into: out)
    case .contentLength: return writeDecimal(value, into: out)
    }
  }

  // MARK: HPACK

  /// The most bytes of all inserted fields of one request, encoded by HPACK.
  public static let mostEncoded = 64

  /// Appends the field, encoded by HPACK as a literal that is never indexed (RFC 7541 section 6.2.3). Returns
  /// the size of the value in bytes; nil: no memory.
  public func encode(_ value: UInt64, into out: ByteBuffer) -> Int? {
    guard let space = out.spare(atLeast: InsertedField.mostEncoded)?.baseAddress else { return nil }
    let head: Int
    switch self {
    case .grpcTimeout:
      // The field name "grpc-timeout", Huffman-encoded.
      space.storeBytes(of: UInt64(0x494d_b2c8_ca9a_8910).littleEndian, as: UInt64.self)
      space.storeBytes(of: UInt64(0x7f6a_4f).littleEndian, toByteOffset: 8, as: UInt64.self)
      head = 11
    case .connectTimeout:
      space.storeBytes(of: UInt16(0x1210).littleEndian, as: UInt16.self)
      UnsafeMutableRawBufferPointer(start: space + 2, count: name.count).copyBytes(from: name)
      head = 2 + name.count
    case .contentLength:
      // The field name "content-length" is number 28 in HPACK's static table.
      space.storeBytes(of: UInt16(0x0d1f).littleEndian, as: UInt16.self)
      head = 2
    }
    out.commit(head + 1)
    let before = out.count
    guard write(value, into: out) else { return nil }
    let count = out.count - before
    // The buffer already had room for the whole value, so its bytes have not moved in memory.
    space.storeBytes(of: UInt8(truncatingIfNeeded: count), toByteOffset: head, as: UInt8.self)
    return count
  }
}
