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
    return name.count > longest + (label == 0 ? 1 : 0) ? "it is too long" : nil
  }

  /// The host name in the form that TLS uses (RFC 6066 section 3): without a dot at its end; an IPv6 address
  /// without its zone.
  public static func forTLS(_ host: ByteView) -> ByteView {
    if host.last == 0x2E { return ByteView(rebasing: host.dropLast()) }
    return ByteView(rebasing: host.contains(0x3A) ? host.prefix { $0 != 0x25 } : host[...])
  }
}
