import PenstockWire

/// A host name as in DNS and in certificates: labels of letters, digits, "-" and "_" (which some hosts have
/// in spite of RFC 952), with a dot between two labels, and perhaps a dot at the end.
public enum HostName {
  /// The most characters of a name, without a dot at its end. The 255 bytes of a name on the wire (RFC 1035
  /// section 2.3.4) have room for no more.
  private static let longest = 253
  private static let longestLabel = 63

  /// The flaw that makes `name` invalid, in words; nil: it is valid.
  public static func flaw(_ name: ByteView) -> StaticString? {
    if name.isEmpty { return "it is empty" }
    // OpenSSL would take a name that begins with a dot as a pattern for all names with that ending.
    if name[0] == 0x2E { return "it begins with a dot: patterns are not allowed" }
    var label = 0
    for byte in name {
      let letter = byte | 0x20
      let isWordCharacter =
        letter >= 0x61 && letter <= 0x7A || byte >= 0x30 && byte <= 0x39 || byte == 0x2D || byte == 0x5F
      if !isWordCharacter, byte != 0x2E { return "it has a character that no host name has" }
      if byte == 0x2E, label == 0 { return "it has two dots in a row" }
      label = byte == 0x2E ? 0 : label + 1
      if label > longestLabel { return "it is too long" }
    }
    if name.count > longest + (label == 0 ? 1 : 0) { return "it is too long" }
    return isNumbers(name) && SocketAddress(literal: name, port: 0) == nil
      ? "as an IPv4 address it needs four numbers from 0 to 255, such as 127.0.0.1" : nil
  }

  /// Whether each label is a number, as in "127.1" or "0x7f.1". Such a host means an IPv4 address, which only some
  /// of the systems would understand.
  private static func isNumbers(_ name: ByteView) -> Bool {
    var start = 0
    for index in 0...name.count where index == name.count || name[index] == 0x2E {
      let label = ByteView(rebasing: name[start..<index])
      start = index + 1
      if label.isEmpty, index == name.count { continue }
      let isHex = label.count > 2 && label[0] == 0x30 && label[1] | 0x20 == 0x78
      for byte in label.dropFirst(isHex ? 2 : 0) {
        let letter = byte | 0x20
        guard byte >= 0x30 && byte <= 0x39 || isHex && letter >= 0x61 && letter <= 0x66 else { return false }
      }
    }
    return true
  }

  /// The host name in the form that TLS uses (RFC 6066 section 3): without a dot at its end; an IPv6 address
  /// without its zone.
  public static func forTLS(_ host: ByteView) -> ByteView {
    if host.last == 0x2E { return ByteView(rebasing: host.dropLast()) }
    return ByteView(rebasing: host.contains(0x3A) ? host.prefix { $0 != 0x25 } : host[...])
  }
}
