/// The base64 coding of the values of `-bin` headers: "Base64 as per RFC 4648 section 4. Implementations MUST
/// accept padded and un-padded values and should emit un-padded values" (gRPC over HTTP2, "Requests").
///
/// Only the standard alphabet is used, because no gRPC implementation sends or accepts the URL-safe one.
/// Bits after the last byte are ignored, because grpc-go accepts values with such bits, and a client that
/// refuses them would lose metadata.
public enum Base64 {
  public enum Outcome: Equatable {
    case ok, malformed, noMemory
  }

  /// Appends the base64 of `bytes` to `out`. Returns false if there is no memory; `out` is then unchanged.
  public static func encode(_ bytes: ByteView, padded: Bool, into out: ByteBuffer) -> Bool {
    let (triples, rest) = bytes.count.quotientAndRemainder(dividingBy: 3)
    let (body, overflow) = triples.multipliedReportingOverflow(by: 4)
    if overflow || body > Int.max &- 4 { return false }
    guard let spare = out.spare(atLeast: body &+ 4) else { return false }
    var at = 0
    for triple in 0..<triples {
      let i = triple &* 3
      spare[at] = letter(bytes[i] >> 2)
      spare[at &+ 1] = letter(bytes[i] << 4 | bytes[i &+ 1] >> 4)
      spare[at &+ 2] = letter(bytes[i &+ 1] << 2 | bytes[i &+ 2] >> 6)
      spare[at &+ 3] = letter(bytes[i &+ 2])
      at &+= 4
    }
    let i = triples &* 3
    if rest > 0 {
      let second = rest == 2 ? bytes[i &+ 1] : 0
      spare[at] = letter(bytes[i] >> 2)
      spare[at &+ 1] = letter(bytes[i] << 4 | second >> 4)
      if rest == 2 { spare[at &+ 2] = letter(second << 2) }
      if padded {
        if rest == 1 { spare[at &+ 2] = 0x3D }
        spare[at &+ 3] = 0x3D
      }
      at &+= padded ? 4 : rest &+ 1
    }
    out.commit(at)
    return true
  }

  /// Decodes one value and appends its bytes to `out`. The text has no commas
  /// (`HeaderRules.forEachBinaryValue` splits at them). Padding may be complete, incomplete or missing, but
  /// not longer than the length requires. If the outcome is not ok, `out` is unchanged.
  public static func decode(_ text: ByteView, into out: ByteBuffer) -> Outcome {
    var length = text.count
    while length > 0 && text.count &- length < 2 && text[length &- 1] == 0x3D { length &-= 1 }
    let padding = text.count &- length
    let tail = length % 4
    if tail == 1 || (padding > 0 && padding > (4 &- tail) % 4) { return .malformed }
    guard let spare = out.spare(atLeast: length / 4 &* 3 &+ 2) else { return .noMemory }
    var at = 0
    var bits: UInt32 = 0
    var have = 0
    for i in 0..<length {
      guard let value = value(of: text[i]) else { return .malformed }
      bits = bits << 6 | UInt32(value)
      have &+= 6
      if have >= 8 {
        have &-= 8
        spare[at] = UInt8(truncatingIfNeeded: bits >> UInt32(have))
        at &+= 1
      }
    }
    out.commit(at)
    return .ok
  }

  /// Appends `bytes` to `out` in URL-safe base64 (RFC 4648 section 5), without padding. False: no memory.
  public static func encodeForURL(_ bytes: ByteView, into out: ByteBuffer) -> Bool {
    let before = out.count
    guard encode(bytes, padded: false, into: out), let start = out.view.baseAddress else { return false }
    // These bytes belong to `out`, and no other code has seen them yet. So they may be changed.
    let text = UnsafeMutableRawBufferPointer(
      start: UnsafeMutableRawPointer(mutating: start), count: out.count)
    for index in before..<text.count {
      if text[index] == 0x2B { text[index] = 0x2D }
      if text[index] == 0x2F { text[index] = 0x5F }
    }
    return true
  }

  /// The base64 character for the lowest six bits of `byte`.
  private static func letter(_ byte: UInt8) -> UInt8 {
    let value = byte & 0x3F
    switch value {
    case 0...25: return 0x41 &+ value
    case 26...51: return 0x61 &+ (value &- 26)
    case 52...61: return 0x30 &+ (value &- 52)
    case 62: return 0x2B
    default: return 0x2F
    }
  }

  static func value(of letter: UInt8) -> UInt8? {
    switch letter {
    case 0x41...0x5A: return letter &- 0x41
    case 0x61...0x7A: return letter &- 0x61 &+ 26
    case 0x30...0x39: return letter &- 0x30 &+ 52
    case 0x2B: return 62
    case 0x2F: return 63
    default: return nil
    }
  }
}
