import PenstockNames
import PenstockTestSupport
import Testing

@Suite struct HostNameTests {
  private static let label = String(repeating: "a", count: 63)
  private static let long = [label, label, label, String(label.dropLast(2))].joined(separator: ".")

  private func flaw(_ name: String) -> String? {
    let name = bytes(name)
    return withExtendedLifetime(name) { HostName.flaw(name.view)?.description }
  }

  @Test(arguments: [
    "a", "a.b", "a.b.", "a_b.c", "xn--bcher-kva.example", "127.0.0.1", "1.example", long, long + ".",
  ])
  func names(_ name: String) { #expect(flaw(name) == nil) }

  @Test(arguments: [
    ("", "it is empty"), (".example.com", "it begins with a dot: patterns are not allowed"),
    (".", "it begins with a dot: patterns are not allowed"), ("a..b", "it has two dots in a row"),
    ("a..", "it has two dots in a row"), ("*.example.com", "it has a character that no host name has"),
    ("a\0b", "it has a character that no host name has"),
    ("a b", "it has a character that no host name has"),
    ("[::1]", "it has a character that no host name has"),
    ("a:1", "it has a character that no host name has"),
    ("b\u{fc}cher.example", "it has a character that no host name has"),
    ("127.1", "as an IPv4 address it needs four numbers from 0 to 255, such as 127.0.0.1"),
    (label + "a", "it is too long"), (long + "a", "it is too long"),
    (String(repeating: "a.", count: 200), "it is too long"),
  ])
  func flaws(_ name: String, _ words: String) { #expect(flaw(name) == words) }
}
