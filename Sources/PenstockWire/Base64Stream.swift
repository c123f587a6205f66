/// Decodes base64 that comes in pieces of any size. Padding may also stand in the middle, because a server
/// may encode each part of its answer on its own (gRPC-Web, "Text-encoded streams").
public struct Base64Stream {
  /// The values of the characters of the group of four that has begun, six bits each, and their number.
  private var bits: UInt32 = 0
  private var have = 0
  private var padding = 0
  /// Whether a character has come that is not base64, or not in this place. Nothing behind it is decoded.
  public private(set) var isBroken = false

  public init() {}

  /// Whether no group of four characters has begun.
  public var isAtGroup: Bool { have == 0 }

  /// Decodes the characters from `at` on, as long as `space` has room for the three bytes of a group, and
  /// moves `at` behind them. Returns the number of bytes written to `space`.
  @inline(never) @_optimize(size)
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
