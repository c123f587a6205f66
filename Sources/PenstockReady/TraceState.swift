import PenstockCall
import PenstockWire

/// The rules for "tracestate" (W3C Trace Context, section 3.3): at most 32 members `key=value`; the members
/// of several such headers form one list.
enum TraceState {
  static func isValid(_ metadata: Metadata) -> Bool {
    let name = ("tracestate" as StaticString).bytes
    var members = 0
    var occurrence = 0
    while let index = metadata.index(of: name, occurrence: occurrence) {
      occurrence += 1
      for member in metadata.value(at: index).split(separator: 0x2c, omittingEmptySubsequences: true) {
        let trimmed = HeaderRules.trimmed(ByteView(rebasing: member))
        if trimmed.isEmpty { continue }
        members += 1
        guard members <= 32, isMember(trimmed) else { return false }
      }
    }
    return true
  }

  private static func isMember(_ member: ByteView) -> Bool {
    guard let equals = member.firstIndex(of: 0x3d), equals > 0, equals <= 256 else { return false }
    let value = member[(equals + 1)...]
    guard !value.isEmpty, value.count <= 256 else { return false }
    // A value may have printable ASCII except a comma and "=". A space at its end has been trimmed already.
    guard value.allSatisfy({ $0 >= 0x20 && $0 <= 0x7e && $0 != 0x3d }) else { return false }
    let key = member[0..<equals]
    let parts = key.split(separator: 0x40, omittingEmptySubsequences: false)
    guard parts.count <= 2, parts.allSatisfy({ !$0.isEmpty }) else { return false }
    if parts.count == 2,
      parts[0].count > 241 || parts[1].count > 14 || !isLetter(parts[1][parts[1].startIndex])
    {
      return false
    }
    // A key of the form tenant@system may begin with a digit; every other key begins with a letter.
    guard isLetter(key[key.startIndex]) || (parts.count == 2 && isDigit(key[key.startIndex])) else {
      return false
    }
    return key.allSatisfy {
      isLetter($0) || isDigit($0) || $0 == 0x5f || $0 == 0x2d || $0 == 0x2a || $0 == 0x2f || $0 == 0x40
    }
  }

  private static func isLetter(_ byte: UInt8) -> Bool { byte >= 0x61 && byte <= 0x7a }
  private static func isDigit(_ byte: UInt8) -> Bool { byte >= 0x30 && byte <= 0x39 }
}
