import PenstockNames
import PenstockTestSupport
import Testing

@Suite struct HostNameTests {
  private static let label = String(repeating: "a", count: 63)
  private static let long = [label, label, label, String(label.dropLast(2))].joined(separator: ".")
  private static let manyLabels = String(repeating: "a.", count: 200)
  private static let numbers = "as an IPv4 address it needs four numbers from 0 to 255, such as 127.0.0.1"
  private static let character = "it has a character that no host name has"

  private func flaw(_ name: String) -> String? {
    let name = bytes(name)
    return withExtendedLifetime(name) { HostName.flaw(name.view)?.description }
  }

  @Test(arguments: [
    "a", "a.b", "a.b.", "a_b.c", "xn--bcher-kva.example", "127.0.0.1", "1.example", long, "\(long).",
    label, "b.\(label).b", "az.AZ.09", "0.0.0.0", "255.255.255.255",
    // Labels that only look like numbers.
    "0x", "0xg", "0x1g", "1x1", "0y1", "127.1a", "1.2.3.4a", "1-2", "a.1", "1.0xz",
  ])
  func names(_ name: String) { #expect(flaw(name) == nil) }

  private static let flawed: [(String, String)] = [
    ("", "it is empty"), (".example.com", "it begins with a dot: patterns are not allowed"),
    (".", "it begins with a dot: patterns are not allowed"), ("a..b", "it has two dots in a row"),
    ("a..", "it has two dots in a row"), ("*.example.com", character),
    ("a\0b", character), ("a b", character), ("[::1]", character), ("a:1", character),
    ("b\u{fc}cher.example", character),
    ("\(label)a", "it is too long"), ("\(long)a", "it is too long"), ("\(long)a.", "it is too long"),
    ("b.\(label)a", "it is too long"),
    (manyLabels, "it is too long"),
    ("1", numbers), ("127.1", numbers), ("1.2.3", numbers), ("1.2.3.4.5", numbers), ("1.2.3.256", numbers),
    ("1.2.3.4.", numbers), ("1.", numbers), ("0x7f.1", numbers), ("0X7F000001", numbers), ("0xaf", numbers),
    ("0x0.0x9", numbers), ("0xAF.1", numbers), ("9", numbers), ("0", numbers),
  ]

  @Test(arguments: flawed)
  func flaws(_ name: String, _ words: String) { #expect(flaw(name) == words) }

  /// Of all characters only letters, digits, "-", "_" and the dot are allowed.
  @Test func everyCharacter() {
    for byte in UInt8.min...UInt8.max {
      let isAllowed =
        "-_.".utf8.contains(byte)
        || (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte) || (0x61...0x7A).contains(byte)
      let name: [UInt8] = [0x61, byte, 0x61]
      let words = name.withUnsafeBytes { HostName.flaw($0)?.description }
      #expect(words == (isAllowed ? nil : Self.character), "\(byte)")
    }
  }

  @Test(arguments: [
    ("a.example", "a.example"), ("a.example.", "a.example"), ("a%b", "a%b"), ("fe80::1%eth0", "fe80::1"),
    ("fe80::1", "fe80::1"), ("::1%", "::1"), ("", ""), ("10.0.0.1", "10.0.0.1"),
  ])
  func nameForTLS(_ host: String, _ expected: String) {
    let host = bytes(host)
    withExtendedLifetime(host) {
      #expect(String(decoding: HostName.forTLS(host.view), as: UTF8.self) == expected)
    }
  }
}
