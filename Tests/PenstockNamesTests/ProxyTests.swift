import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockNames

/// URLs of proxies, and the hosts that need none.
@Suite struct ProxyTests {
  @Test(arguments: [
    ("http://proxy.example:3128", "http proxy.example 3128 -"),
    ("HTTP://[::1]:80/", "http ::1 80 -"),
    ("socks5://10.0.0.1:1080", "socks proxy.looksUp=false 10.0.0.1 1080 -"),
    ("socks5h://a%40b:c%3A%25@p:1", "socks proxy.looksUp=true p 1 a@b c:%"),
    ("http://a:@p:1", "http p 1 a "),
    ("http://a@p:1", "http p 1 a "),
    ("http://a:b@c@p:1", "http p 1 a b@c"),
    ("http://p", "http p 80 -"),
    ("socks5h://a%3Ab:c@[::1]", "socks proxy.looksUp=true ::1 1080 a:b c"),
  ])
  func parses(_ url: String, _ expected: String) throws {
    guard case .proxy(let proxy) = withBytes(url, { Proxy.parse($0) }) else {
      Issue.record("\(url) is no proxy")
      return
    }
    let kind =
      switch proxy.kind {
      case .http: "http"
      case .socks(let looksUp): "socks proxy.looksUp=\(looksUp)"
      }
    let login = proxy.login.map { "\(text($0.user)) \(text($0.password))" } ?? "-"
    #expect("\(kind) \(text(proxy.host)) \(proxy.port) \(login)" == expected)
  }

  @Test func credentials() throws {
    guard case .proxy(let proxy) = withBytes("http://Aladdin:open%20sesame@p:1", { Proxy.parse($0) }) else {
      Issue.record("no proxy")
      return
    }
    // The example of RFC 7617 section 2.
    #expect(proxy.basicCredentials.map(text) == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
  }

  @Test(arguments: [
    ("*", "anything", true),
    ("*", "10.0.0.1", true),
    ("*", "::1", true),
    ("example.com", "example.com", true),
    ("example.com", "EXAMPLE.com.", true),
    ("example.com.", "a.b.example.com", true),
    (".example.com", "example.com", true),
    ("*.example.com", "a.example.com", true),
    ("example.com", "badexample.com", false),
    ("a.example.com", "example.com", false),
    (".", "example.com", false),
    ("example.com", "10.0.0.1", false),
    ("10.0.0.0/8", "example.com", false),
    ("::/0", "example.com", false),
    ("10.0.0.0/8", "10.255.255.255", true),
    ("10.0.0.0/8", "11.0.0.0", false),
    ("10.0.0.0/9", "10.128.0.0", false),
    ("10.0.0.0/0", "11.0.0.0", true),
    ("10.0.0.1/32", "10.0.0.1", true),
    ("10.0.0.1/33", "10.0.0.1", false),
    ("10.0.0.1/", "10.0.0.1", false),
    ("10.0.0.1/99999999999999999999", "10.0.0.1", false),
    ("10.0.0.1", "10.0.0.1", true),
    ("10.0.0.1", "10.0.0.2", false),
    ("0.1", "10.0.0.1", false),
    ("2001:db8::/33", "2001:db8:7fff::1", true),
    ("2001:db8::/33", "2001:db8:8000::1", false),
    ("::/0", "10.0.0.1", false),
    ("::1", "::1", true),
    ("[::1]", "::1", true),
    ("[::1]:7", "::1", true),
    ("[::1]:8", "::1", false),
    ("10.0.0.0/8", "::ffff:10.1.2.3", true),
    ("::ffff:10.1.2.3", "10.1.2.3", true),
    ("example.com:7", "a.example.com", true),
    ("example.com:8", "a.example.com", false),
    ("a, b  10.0.0.0/8,", "10.1.2.3", true),
    ("a,b", "b", true),
    ("", "b", false),
  ])
  func needsNone(_ list: String, _ host: String, _ expected: Bool) {
    var exceptions = ProxyExceptions()
    let isWhole = withBytes(list) { exceptions.add(list: $0) }
    #expect(isWhole)
    #expect(withBytes(host) { exceptions.covers($0, port: 7) } == expected)
  }

  private func withBytes<R>(_ text: String, _ body: (ByteView) -> R) -> R {
    Array(text.utf8).withUnsafeBytes { body($0) }
  }

  private func text(_ bytes: ByteBuffer) -> String { String(decoding: bytes.view, as: UTF8.self) }
}
