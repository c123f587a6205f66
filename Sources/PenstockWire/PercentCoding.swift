/// The coding of `grpc-message` (gRPC over HTTP2, "Responses", Percent-Encoded): space and printable ASCII,
/// except `%`, are sent as they are; every other byte is sent as `%` and two hexadecimal digits.
public enum PercentCoding {
  /// Encodes `bytes` and appends them to `out`. Returns false if there is no memory; `out` is then unchanged.
  public static func encode(_ bytes: ByteView, into out: ByteBuffer) -> Bool {
    var escapes = 0
    for byte in bytes where !needsNoEscape(byte) { escapes &+= 1 }
    if escapes == 0 { return out.append(bytes) }
    let (extra, tooMany) = escapes.multipliedReportingOverflow(by: 2)
    let (size, tooLarge) = bytes.count.addingReportingOverflow(extra)
    guard !tooMany, !tooLarge, let spare = out.spare(atLeast: size) else { return false }
    var at = 0
    for byte in bytes {
      if needsNoEscape(byte) {
        spare[at] = byte
        at &+= 1
      } else {
        spare[at] = 0x25
        spare[at &+ 1] = hexDigit(byte >> 4)
        spare[at &+ 2] = hexDigit(byte & 0xF)
        at &+= 3
      }
    }
    out.commit(at)
    return true
  }

  /// Encodes `bytes` for the query of a URL, and appends them to `out`: every byte that is not "unreserved"
  /// in RFC 3986 section 2.3 becomes `%` and two hexadecimal digits. Returns false if there is no memory.
  public static func encodeForURL(_ bytes: ByteView, into out: ByteBuffer) -> Bool {
    for byte in bytes {
      let isWritten: Bool
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: isWritten = out.append(byte: byte)
      default:
        isWritten =
          out.append(byte: 0x25) && out.append(byte: hexDigit(byte >> 4))
          && out.append(byte: hexDigit(byte & 0xF))
      }
      if !isWritten { return false }
    }
    return true
  }

  /// Decodes `bytes` and appends them to `out`. A `%` without two hexadecimal digits behind it is kept as it
  /// is: "When decoding invalid values, implementations MUST NOT error or throw away the message". Returns
  /// false if there is no memory; `out` is then unchanged.
  public static func decode(_ bytes: ByteView, into out: ByteBuffer) -> Bool {
    guard let spare = out.spare(atLeast: bytes.count) else { return false }
    var at = 0
    var i = 0
    while i < bytes.count {
      let byte = bytes[i]
      if byte == 0x25, bytes.count &- i > 2, let high = hexValue(bytes[i &+ 1]),
        let low = hexValue(bytes[i &+ 2])
      {
        spare[at] = high << 4 | low
        i &+= 3
      } else {
        spare[at] = byte
        i &+= 1
      }
      at &+= 1
    }
    out.commit(at)
    return true
  }

  private static func needsNoEscape(_ byte: UInt8) -> Bool { byte >= 0x20 && byte <= 0x7E && byte != 0x25 }

  /// A hexadecimal digit in upper case, as the grammar requires ("2HEXDIGIT ; 0-9 A-F"). `hexValue` accepts
  /// both cases.
  private static func hexDigit(_ value: UInt8) -> UInt8 { value < 10 ? 0x30 &+ value : 0x37 &+ value }

  public static func hexValue(_ byte: UInt8) -> UInt8? {
    switch byte {
    case 0x30...0x39: return byte &- 0x30
    case 0x41...0x46: return byte &- 0x37
    case 0x61...0x66: return byte &- 0x57
    default: return nil
    }
  }
}
