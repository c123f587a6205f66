/// Checks and repairs UTF-8, as Unicode 16 section 3.9 defines it (table 3-7: no overlong forms, no
/// surrogates, nothing above U+10FFFF).
public enum UTF8Repair {
  public static func isValid(_ bytes: ByteView) -> Bool { validPrefix(bytes, from: 0) == bytes.count }

  /// Appends `bytes` to `out`; one U+FFFD replaces each maximal subpart of an ill-formed sequence (Unicode 16
  /// section 3.9, "U+FFFD Substitution of Maximal Subparts"). Returns false if there is no memory; `out` is
  /// then unchanged.
  public static func repair(_ bytes: ByteView, into out: ByteBuffer) -> Bool {
    let before = out.count
    var at = 0
    while true {
      let good = validPrefix(bytes, from: at)
      guard out.append(slice(bytes, from: at, to: good)) else { break }
      if good == bytes.count { return true }
      guard out.append("\u{FFFD}") else { break }
      at = good &+ step(bytes, good).length
    }
    out.truncate(to: before)
    return false
  }

  /// The index of the first ill-formed sequence at or after `from`, or the number of bytes if there is none.
  private static func validPrefix(_ bytes: ByteView, from: Int) -> Int {
    var at = from
    while at < bytes.count {
      if bytes[at] < 0x80 {
        at &+= 1
        continue
      }
      let (length, isWellFormed) = step(bytes, at)
      if !isWellFormed { return at }
      at &+= length
    }
    return at
  }

  /// The sequence that begins at index `at`: its length if it is well formed, otherwise the length of its
  /// maximal subpart, which is at least 1.
  private static func step(_ bytes: ByteView, _ at: Int) -> (length: Int, isWellFormed: Bool) {
    let lead = bytes[at]
    var lowest: UInt8 = 0x80
    var highest: UInt8 = 0xBF
    let length: Int
    switch lead {
    case 0x00...0x7F: return (1, true)
    case 0xC2...0xDF: length = 2
    case 0xE0...0xEF:
      length = 3
      if lead == 0xE0 { lowest = 0xA0 }
      if lead == 0xED { highest = 0x9F }
    case 0xF0...0xF4:
      length = 4
      if lead == 0xF0 { lowest = 0x90 }
      if lead == 0xF4 { highest = 0x8F }
    default: return (1, false)
    }
    var have = 1
    while have < length {
      guard bytes.count &- at > have else { return (have, false) }
      let byte = bytes[at &+ have]
      guard byte >= lowest && byte <= highest else { return (have, false) }
      lowest = 0x80
      highest = 0xBF
      have &+= 1
    }
    return (length, true)
  }
}
