/// Decodes base64 that arrives in pieces of any size. Padding is also allowed in the middle, because a server
/// may encode each part of its answer separately (gRPC-Web, "Text-encoded streams").
public struct Base64Stream {
  /// `bits`: the values, six bits each, of the characters of an unfinished group of four. `have`: their
  /// number.
  private var bits: UInt32 = 0
  private var have = 0
  private var padding = 0
  /// Whether a character was found that is not base64, or not allowed at its place. The characters after it
  /// are not decoded.
  public private(set) var isBroken = false

  public init() {}

  /// Whether no group of four characters is unfinished.
  public var isAtGroup: Bool { have == 0 }

  /// Decodes the characters from `at` on, as long as `space` has room for the three bytes of a group. Moves
  /// `at` to the first character that was not used. Returns the number of bytes that were written to `space`.
  public mutating func decode(
    _ text: ByteView, from at: inout Int, into space: UnsafeMutableRawBufferPointer
  ) -> Int {
    var count = 0
    while at < text.count, space.count &- count >= 3, !isBroken {
      let letter = text[at]
      at &+= 1
      if letter == 0x3D, have >= 2 {
        padding &+= 1
        bits <<= 6
      } else if padding == 0, let value = Base64.value(of: letter) {
        have &+= 1
        bits = bits << 6 | UInt32(value)
      } else {
        isBroken = true
        break
      }
      guard have &+ padding == 4 else { continue }
      for index in 0..<(3 &- padding) {
        space[count] = UInt8(truncatingIfNeeded: bits >> UInt32(16 &- 8 &* index))
        count &+= 1
      }
      bits = 0
      have = 0
      padding = 0
    }
    return count
  }
}
