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
    #expect((proxy.basicCredentials == nil) == (proxy.login == nil))
  }

  /// The name of a proxy in error texts is its host and port as they were written, without the login.
  @Test(arguments: [
    ("http://me:secret@proxy.example:3128/", "proxy.example:3128"), ("socks5://[::1]", "[::1]"),
    ("http://p", "p"),
  ])
  func name(_ url: String, _ expected: String) {
    guard case .proxy(let proxy) = withBytes(url, { Proxy.parse($0) }) else {
      Issue.record("\(url) is no proxy")
      return
    }
    #expect(text(proxy.name) == expected)
  }

  private static let scheme =
    "it begins neither with \"http://\" nor with \"socks5://\" nor with \"socks5h://\""
  private static let port = "its port is not a number from 1 to 65535"
  private static let long = String(repeating: "a", count: 256)
  private static let percent =
    "its user or password has a \"%\" without two hexadecimal digits: write \"%25\" for a \"%\""

  private static let flawed: [(String, String)] = [
    ("", scheme), ("p:1", scheme), ("https://p:1", scheme), ("socks4://p", scheme), ("http:/p", scheme),
    ("http://", "it has no host"), ("http:///", "it has no host"), ("http://:1", "it has no host"),
    ("http://a@", "it has no host"),
    ("http://p q", "it has a space or a control character in it"),
    ("http://p\t", "it has a space or a control character in it"),
    ("http://p\u{7f}", "it has a space or a control character in it"),
    ("http://p/a", "it has a path, a query or a fragment, which a proxy has not"),
    ("http://p//", "it has a path, a query or a fragment, which a proxy has not"),
    ("http://p?a", "it has a path, a query or a fragment, which a proxy has not"),
    ("http://p#a", "it has a path, a query or a fragment, which a proxy has not"),
    ("http://p:0", port), ("http://p:65536", port), ("http://p:", port), ("http://[::1", port),
    ("http://[::1]x", port),
    ("http://[::1::2]:1", "its host is not an IPv6 address"),
    ("http://[p]", "its host is not an IPv6 address"),
    ("http://.p", "it begins with a dot: patterns are not allowed"),
    ("http://p..q", "it has two dots in a row"),
    ("http://@p", "it has an \"@\" without a user before it"),
    ("http://:secret@p", "it has an \"@\" without a user before it"),
    ("http://a%:b@p", percent), ("http://a%4:b@p", percent), ("http://a:%zz@p", percent),
    ("http://a%3Ab:c@p", "its user has a colon, which no proxy can tell from the password"),
    ("http://\(long)@p", "its user or password is longer than 255 bytes"),
    (
      "http://a:\(long)@p", "its user or password is longer than 255 bytes"
    ),
  ]

  @Test(arguments: flawed)
  func flaws(_ url: String, _ words: String) {
    guard case .failed(let flaw) = withBytes(url, { Proxy.parse($0) }) else {
      Issue.record("\(url) is a proxy")
      return
    }
    #expect(flaw.description == words)
  }

  @Test func theLongestLogin() {
    let (user, password) = (String(repeating: "a", count: 255), String(repeating: "b", count: 255))
    guard case .proxy(let proxy) = withBytes("http://\(user):\(password)@p", { Proxy.parse($0) }) else {
      Issue.record("it is no proxy")
      return
    }
    #expect(proxy.login.map { text($0.user) } == user && proxy.login.map { text($0.password) } == password)
  }

  private static let bare: [(String, String)] = [
    ("p:1", "http p 1"), ("p", "http p 80"), ("p/", "http p 80"), ("[::1]:5", "http ::1 5"),
    ("me@p:1", "http p 1"), ("socks5://p", "socks p 1080"), ("http://p:2", "http p 2"), ("p:/", port),
    ("p:", port), ("https://p:1", scheme), ("://", scheme), ("x://p", scheme),
    ("p:1:/", "it has a character that no host name has"),
  ]

  /// In the environment a proxy may be written without a scheme, but not with an unknown one.
  @Test(arguments: bare)
  func withoutScheme(_ url: String, _ expected: String) {
    switch withBytes(url, { Proxy.parse($0, needsScheme: false) }) {
    case .failed(let words): #expect(words.description == expected)
    case .noMemory: Issue.record("no memory")
    case .proxy(let proxy):
      let isHTTP = if case .http = proxy.kind { true } else { false }
      #expect("\(isHTTP ? "http" : "socks") \(text(proxy.host)) \(proxy.port)" == expected)
    }
  }

  /// A proxy that the options name, or none: the target decides, by its host and port, whether it needs the
  /// proxy.
  @Test(arguments: [
    ("a.example:7", true), ("b.example:7", false), ("b.example:8", true), ("ipv4:1.2.3.4:7", true),
    ("unix:/a", true),
  ])
  func choiceByTarget(_ target: String, _ needsProxy: Bool) {
    guard case .target(let target) = withBytes(target, { Target.parse($0) }),
      case .proxy(let proxy) = withBytes("http://p:1", { Proxy.parse($0) })
    else {
      Issue.record("they are no target and proxy")
      return
    }
    var exceptions = ProxyExceptions()
    #expect(withBytes("b.example:7 1.2.3.4") { exceptions.add(list: $0) })
    guard case .proxy(let found) = ProxyChoice.given(proxy).find(target, hasTLS: false, exceptions),
      case .proxy(let none) = ProxyChoice.none.find(target, hasTLS: true, exceptions)
    else {
      Issue.record("nothing is found")
      return
    }
    #expect((found != nil) == needsProxy && none == nil)
    // The addresses of a target without a name, or of a name, are compared one by one later.
    #expect(found.map { proxy in withBytes("1.2.3.4") { proxy.exceptions.covers($0, port: 7) } } ?? true)
  }

  @Test func credentials() throws {
    guard case .proxy(let proxy) = withBytes("http://Aladdin:open%20sesame@p:1", { Proxy.parse($0) }) else {
      Issue.record("no proxy")
      return
    }
    // The example of RFC 7617 section 2.
    #expect(proxy.basicCredentials.map(text) == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
  }

  private static let needed: [(String, String, Bool)] = [
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
    ("a\tb", "b", true),
    ("a,b c", "c", true),
    ("*:7", "b", false),
    ("10.0.0.1:7", "10.0.0.1", true),
    ("10.0.0.1:8", "10.0.0.1", false),
    ("::1/128", "::1", true),
    ("::1/129", "::1", false),
    ("10.0.0.0/08", "10.1.1.1", true),
    ("10.0.0.0/008", "10.1.1.1", true),
    ("10.0.0.0/0008", "10.1.1.1", false),
    ("10.0.0.0/9", "10.127.255.255", true),
    ("10.0.0.0/:", "10.0.0.0", false),
    ("10.0.0.0//", "10.0.0.0", false),
    ("10.0.0.2/31", "10.0.0.3", true),
    ("10.0.0.2/31", "10.0.0.1", false),
    ("10.0.0.1/32", "10.0.0.0", false),
    ("example.com", "xample.com", false),
    ("example.com", "example.co", false),
    ("example.com", "a.example.org", false),
    ("*example.com", "a.example.com", true),
    ("fe80::1", "fe80::1%eth0", true),
    ("::ffff:10.1.2.3", "::ffff:10.1.2.3", true),
    ("::fffe:10.1.2.3", "10.1.2.3", false),
    ("::feff:10.1.2.3", "10.1.2.3", false),
    ("1::ffff:10.1.2.3", "10.1.2.3", false),
  ]

  @Test(arguments: needed)
  func needsNone(_ list: String, _ host: String, _ expected: Bool) {
    var exceptions = ProxyExceptions()
    let isWhole = withBytes(list) { exceptions.add(list: $0) }
    #expect(isWhole)
    #expect(withBytes(host) { exceptions.covers($0, port: 7) } == expected)
  }

  private static let entries: [(String, Bool)] = [
    ("*", true), ("a", true), (".a", true), ("*.a", true), ("a:1", true), ("[::1]", true),
    ("10.0.0.0/8", true),
    ("", false), (".", false), ("a:0", false), ("a b", false), ("a/8", false), ("10.0.0.0/33", false),
    ("/8", false), ("10.0.0.0/", false), ("10.0.0.0/8:1", false), ("[::1", false), ("**", false),
    ("..a", false),
  ]

  /// Entries one by one say whether they are well formed; a list leaves out those that are not.
  @Test(arguments: entries)
  func entriesAreChecked(_ entry: String, _ isGood: Bool) {
    var exceptions = ProxyExceptions()
    let added = withBytes(entry) { exceptions.add($0) }
    #expect(added == (isGood ? .added : .malformed))
  }

  /// Addresses are compared with addresses and ranges, also by their ports; those of other kinds need the
  /// proxy.
  @Test func exceptionsOfAddresses() throws {
    func exceptions(_ list: String) -> ProxyExceptions {
      var made = ProxyExceptions()
      #expect(withBytes(list) { made.add(list: $0) })
      return made
    }
    let four = try #require(withBytes("10.0.0.1") { SocketAddress(literal: $0, port: 7) })
    let mapped = try #require(withBytes("::ffff:10.0.0.1") { SocketAddress(literal: $0, port: 7) })
    for address in [four, mapped] {
      for list in ["*", "10.0.0.1", "10.0.0.1:7", "10.0.0.0/31", "::ffff:10.0.0.1"] {
        #expect(exceptions(list).covers(address), "\(list)")
      }
      for list in ["", "10.0.0.1:8", "10.0.0.2", "example.com", "::/0"] {
        #expect(!exceptions(list).covers(address), "\(list)")
      }
    }
    #expect(!exceptions("*").covers(SocketAddress(vsock: 2, port: 7)))
    #expect(SocketAddress(vsock: 2, port: 7).bytes == nil)
    #expect(four.bytes == [10, 0, 0, 1])
    #expect(mapped.bytes == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 1])
  }

  private func withBytes<R>(_ text: String, _ body: (ByteView) -> R) -> R {
    Array(text.utf8).withUnsafeBytes { body($0) }
  }

  private func text(_ bytes: ByteBuffer) -> String { String(decoding: bytes.view, as: UTF8.self) }
}
