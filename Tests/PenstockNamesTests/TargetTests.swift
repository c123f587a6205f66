import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockNames

/// Targets, as in "gRPC Name Resolution", section "Name Syntax".
@Suite struct TargetTests {
  struct Good: CustomTestStringConvertible, Sendable {
    let testDescription: String
    /// The content of the target: "name HOST PORT", or addresses.
    let place: String
    let authority: String
    let host: String

    init(_ target: String, _ place: String, _ authority: String, _ host: String) {
      testDescription = target
      self.place = place
      self.authority = authority
      self.host = host
    }
  }

  @Test(arguments: [
    Good("localhost:50051", "localhost 50051", "localhost:50051", "localhost"),
    Good("a_b.example.com.:1", "a_b.example.com. 1", "a_b.example.com.:1", "a_b.example.com."),
    // The zone of an IPv6 address means something on this machine alone, and is not sent.
    Good("[fe80::1%1]:2", "fe80::1%1 2", "[fe80::1]:2", "fe80::1%1"),
    Good("[fe80::1%1]", "fe80::1%1 443", "[fe80::1]", "fe80::1%1"),
    Good("fe80::1%1", "fe80::1%1 443", "[fe80::1]", "fe80::1%1"),
    Good("[fe80::1%251]:2", "fe80::1%251 2", "[fe80::1]:2", "fe80::1%251"),
    Good("example.com", "example.com 443", "example.com", "example.com"),
    Good("dns:example.com:1", "example.com 1", "example.com:1", "example.com"),
    Good("dns:///example.com:65535", "example.com 65535", "example.com:65535", "example.com"),
    Good("10.0.0.1:80", "10.0.0.1 80", "10.0.0.1:80", "10.0.0.1"),
    Good("[::1]:80", "::1 80", "[::1]:80", "::1"),
    Good("[::1]", "::1 443", "[::1]", "::1"),
    Good("::1", "::1 443", "[::1]", "::1"),
    Good("ipv4:1.2.3.4:5,6.7.8.9", "1.2.3.4:5,6.7.8.9:443", "1.2.3.4:5", "1.2.3.4"),
    Good("ipv6:[::1]:5,[2001:db8::1],fe80::1", "[::1]:5,[2001:db8::1]:443,[fe80::1]:443", "[::1]:5", "::1"),
    Good("unix:/tmp/s", "unix:/tmp/s", "localhost", "localhost"),
    Good("unix:///tmp/s", "unix:/tmp/s", "localhost", "localhost"),
    Good("unix:relative", "unix:relative", "localhost", "localhost"),
    Good("unix-abstract:name", "unix-abstract:name", "localhost", "localhost"),
    Good("vsock:2:5", "vsock:2:5", "localhost", "localhost"),
    Good("vsock:4294967295:4294967295", "vsock:4294967295:4294967295", "localhost", "localhost"),
    Good("vsock:0:0", "vsock:0:0", "localhost", "localhost"),
    Good("passthrough:///example.com:1", "example.com 1", "example.com:1", "example.com"),
    Good("passthrough:10.0.0.1:80", "10.0.0.1 80", "10.0.0.1:80", "10.0.0.1"),
    Good("passthrough:///[::1]", "::1 443", "[::1]", "::1"),
    // "schemes are case-insensitive" (RFC 3986 section 3.1).
    Good("DNS:///example.com:1", "example.com 1", "example.com:1", "example.com"),
    Good("Dns:example.com:1", "example.com 1", "example.com:1", "example.com"),
    Good("PassThrough:///example.com:1", "example.com 1", "example.com:1", "example.com"),
    Good("IPV4:1.2.3.4:5", "1.2.3.4:5", "1.2.3.4:5", "1.2.3.4"),
    Good("IPv6:[::1]:5", "[::1]:5", "[::1]:5", "::1"),
    Good("UNIX:/tmp/S", "unix:/tmp/S", "localhost", "localhost"),
    Good("Unix-Abstract:Name", "unix-abstract:Name", "localhost", "localhost"),
    Good("VSock:2:5", "vsock:2:5", "localhost", "localhost"),
    // A target is a URI, so a path may be percent-encoded. Blanks may stand as they are.
    Good("unix:/tmp/a b", "unix:/tmp/a b", "localhost", "localhost"),
    Good("unix:///tmp/a%20b%2fc", "unix:/tmp/a b/c", "localhost", "localhost"),
    Good("unix:/tmp/%C3%a9", "unix:/tmp/\u{e9}", "localhost", "localhost"),
    Good("unix:/tmp/100%25", "unix:/tmp/100%25", "localhost", "localhost"),
    Good("unix:a\tb\u{7f}", "unix:a%09b%7F", "localhost", "localhost"),
    Good("unix:/tmp/me@home", "unix:/tmp/me@home", "localhost", "localhost"),
    Good("unix-abstract:a b%00c", "unix-abstract:a b%00c", "localhost", "localhost"),
    // The zone of an address is the number or the name of an interface. In a URI "%25" is the "%" before it.
    Good("ipv6:[fe80::1%1]:5,[fe80::2%251]", "[fe80::1%1]:5,[fe80::2%1]:443", "[fe80::1]:5", "fe80::1%1"),
    Good("ipv6:fe80::1%25lo", "[fe80::1%1]:443", "[fe80::1]", "fe80::1%lo"),
    Good("ipv6:[fe80::1%lo]:5", "[fe80::1%1]:5", "[fe80::1]:5", "fe80::1%lo"),
    Good("ipv6:[fe80::1%254294967295]:5", "[fe80::1%4294967295]:5", "[fe80::1]:5", "fe80::1%4294967295"),
    Good("ipv6:::1", "[::1]:443", "[::1]", "::1"),
    Good("ipv4:1.2.3.4,1.2.3.4", "1.2.3.4:443,1.2.3.4:443", "1.2.3.4", "1.2.3.4"),
  ])
  func good(_ good: Good) {
    let name = bytes(good.testDescription)
    guard case .target(let target) = Target.parse(name.view) else {
      Issue.record("does not parse")
      return
    }
    switch target.location {
    case .name(let host, let port): #expect("\(text(host)!) \(port)" == good.place)
    case .addresses(let list):
      #expect(list.map { String(decoding: $0.text(), as: UTF8.self) }.joined(separator: ",") == good.place)
    }
    #expect(text(target.authority) == good.authority)
    #expect(text(target.host) == good.host)
  }

  @Test(arguments: [
    ("", "the target is empty"),
    ("a b:1", "the target \"a b:1\": it has a space or a control character in it"),
    (":1", "the target \":1\": it has no host"),
    ("a:", "the target \"a:\": its port is not a number from 1 to 65535"),
    ("a:0", "the target \"a:0\": its port is not a number from 1 to 65535"),
    ("a:65536", "the target \"a:65536\": its port is not a number from 1 to 65535"),
    (
      "a:99999999999999999999",
      "the target \"a:99999999999999999999\": its port is not a number from 1 to 65535"
    ),
    ("a:+1", "the target \"a:+1\": its port is not a number from 1 to 65535"),
    ("[::1", "the target \"[::1\": a bracket is not closed"),
    ("[::1]x", "the target \"[::1]x\": its bracket is not followed by a port (1 to 65535)"),
    (
      "ftp://a",
      "the target \"ftp://a\": the scheme \"ftp\" is not known "
        + "(dns, http, https, ipv4, ipv6, passthrough, unix, unix-abstract, vsock)"
    ),
    (
      "dns://8.8.8.8/a",
      "the target \"dns://8.8.8.8/a\": an authority (a DNS server) is not supported: write \"dns:///\""
    ),
    ("dns://a", "the target \"dns://a\": \"dns://\" needs a third slash"),
    ("dns:///", "the target \"dns:///\": it has no host"),
    (
      ".a:1",
      "the target \".a:1\": its host name is wrong: it begins with a dot: patterns are not allowed"
    ),
    (
      "dns:///a/b",
      "the target \"dns:///a/b\": its host name is wrong: it has a character that no host name has"
    ),
    ("a:b:1", "the target \"a:b:1\": its host is not an IPv6 address"),
    ("[::1::2]:1", "the target \"[::1::2]:1\": its host is not an IPv6 address"),
    ("me:secret@a:1", "the target has an \"@\": it can't name a user"),
    ("*.a", "the target \"*.a\": its host name is wrong: it has a character that no host name has"),
    ("a..b", "the target \"a..b\": its host name is wrong: it has two dots in a row"),
    ("ipv4:", "the target \"ipv4:\": \"\" is not an IPv4 address"),
    ("ipv4:a:1", "the target \"ipv4:a:1\": \"a:1\" is not an IPv4 address"),
    ("ipv4:1.2.3.4:5,", "the target \"ipv4:1.2.3.4:5,\": \"\" is not an IPv4 address"),
    ("ipv4:[::1]:5", "the target \"ipv4:[::1]:5\": \"[::1]:5\" is not an IPv4 address"),
    ("ipv6:1.2.3.4:5", "the target \"ipv6:1.2.3.4:5\": \"1.2.3.4:5\" is not an IPv6 address"),
    (
      "ipv6:[fe80::1%no-such-if]:5",
      "the target \"ipv6:[fe80::1%no-such-if]:5\": \"[fe80::1%no-such-if]:5\" is not an IPv6 address with the zone of "
        + "an interface that exists"
    ),
    (
      "ipv6:fe80::1%",
      "the target \"ipv6:fe80::1%\": \"fe80::1%\" is not an IPv6 address with the zone of an interface that exists"
    ),
    (
      "ipv6:fe80::1%4294967296",
      "the target \"ipv6:fe80::1%4294967296\": \"fe80::1%4294967296\" is not an IPv6 address with the zone of an "
        + "interface that exists"
    ),
    ("ipv6:[::1 ]:5", "the target \"ipv6:[::1 ]:5\": it has a space or a control character in it"),
    (
      "unix:/tmp/%2",
      "the target \"unix:/tmp/%2\": its path has a \"%\" without two hexadecimal digits: write \"%25\" "
        + "for a \"%\""
    ),
    ("unix:/tmp/a%00", "the target \"unix:/tmp/a%00\": its path has a NUL"),
    ("unix-abstract:", "the target \"unix-abstract:\": it has no path"),
    ("passthrough://a", "the target \"passthrough://a\": \"passthrough://\" needs a third slash"),
    (
      "passthrough://b/a",
      "the target \"passthrough://b/a\": an authority (a DNS server) is not supported: write \"passthrough:///\""
    ),
    ("passthrough:", "the target \"passthrough:\": it has no host"),
    ("vsock:", "the target \"vsock:\": it needs two numbers from 0 to 4294967295: \"vsock:cid:port\""),
    ("vsock:2", "the target \"vsock:2\": it needs two numbers from 0 to 4294967295: \"vsock:cid:port\""),
    ("vsock:2:", "the target \"vsock:2:\": it needs two numbers from 0 to 4294967295: \"vsock:cid:port\""),
    ("vsock::5", "the target \"vsock::5\": it needs two numbers from 0 to 4294967295: \"vsock:cid:port\""),
    (
      "vsock:2:-1", "the target \"vsock:2:-1\": it needs two numbers from 0 to 4294967295: \"vsock:cid:port\""
    ),
    (
      "vsock:2:5:6",
      "the target \"vsock:2:5:6\": it needs two numbers from 0 to 4294967295: \"vsock:cid:port\""
    ),
    (
      "vsock:///2:5",
      "the target \"vsock:///2:5\": it needs two numbers from 0 to 4294967295: \"vsock:cid:port\""
    ),
    (
      "vsock:4294967296:1",
      "the target \"vsock:4294967296:1\": it needs two numbers from 0 to 4294967295: \"vsock:cid:port\""
    ),
    (
      "vsock:2:99999999999",
      "the target \"vsock:2:99999999999\": it needs two numbers from 0 to 4294967295: \"vsock:cid:port\""
    ),
    ("unix:", "the target \"unix:\": it has no path"),
    ("unix://a", "the target \"unix://a\": \"unix://\" needs an absolute path"),
  ])
  func bad(_ target: String, _ words: String) {
    let name = bytes(target)
    guard case .failed(let failure) = Target.parse(name.view) else {
      Issue.record("parses")
      return
    }
    #expect(text(failure) == words)
  }

  /// The text of an address is a target for it, and so a resolver can give it back.
  @Test(arguments: [
    "unix:/tmp/a b", "unix:/tmp/100%25", "unix:%01", "unix-abstract:a%00%7Fb", "[fe80::1%1]:5", "vsock:2:5",
    "1.2.3.4:5",
  ])
  func textOfAddressIsTarget(_ target: String) {
    let name = bytes(target)
    #expect(SocketAddress(target: name.view).map { String(decoding: $0.text(), as: UTF8.self) } == target)
  }

  struct GoodURL: CustomTestStringConvertible, Sendable {
    let testDescription: String
    let security: Target.Security
    let place: String
    let authority: String
    /// nil: none
    let prefix: String?

    init(
      _ target: String, _ security: Target.Security, _ place: String, _ authority: String,
      _ prefix: String? = nil
    ) {
      testDescription = target
      self.security = security
      self.place = place
      self.authority = authority
      self.prefix = prefix
    }
  }

  /// Targets that are URLs (RFC 3986 sections 3.1 to 3.3).
  @Test(arguments: [
    GoodURL("http://a", .cleartext, "a 80", "a"),
    GoodURL("https://a", .tls, "a 443", "a"),
    GoodURL("HTTP://A.example", .cleartext, "A.example 80", "A.example"),
    GoodURL("hTTps://a/", .tls, "a 443", "a"),
    GoodURL("https://a:443", .tls, "a 443", "a:443"),
    GoodURL("http://a:80/", .cleartext, "a 80", "a:80"),
    GoodURL("https://a:8443/api", .tls, "a 8443", "a:8443", "/api"),
    GoodURL("https://a/api/", .tls, "a 443", "a", "/api"),
    GoodURL("https://a/api/v1", .tls, "a 443", "a", "/api/v1"),
    GoodURL("http://127.0.0.1:5/x", .cleartext, "127.0.0.1 5", "127.0.0.1:5", "/x"),
    GoodURL("http://[::1]/x", .cleartext, "::1 80", "[::1]", "/x"),
    GoodURL("https://[2001:db8::1]:1", .tls, "2001:db8::1 1", "[2001:db8::1]:1"),
    // RFC 6874: "%25" in a URL is the "%" before a zone.
    GoodURL("https://[fe80::1%251]:2", .tls, "fe80::1%1 2", "[fe80::1]:2"),
    GoodURL("http://[fe80::1%25eth0]", .cleartext, "fe80::1%eth0 80", "[fe80::1]"),
    GoodURL("http://[fe80::1%1]:2", .cleartext, "fe80::1%1 2", "[fe80::1]:2"),
    GoodURL("https://a/%7Euser/%2f/x%20y", .tls, "a 443", "a", "/%7Euser/%2f/x%20y"),
    GoodURL("https://a/-_~!$&'()*+,;=:@", .tls, "a 443", "a", "/-_~!$&'()*+,;=:@"),
    GoodURL("https://a/.../.x/..x/%2E.%2e", .tls, "a 443", "a", "/.../.x/..x/%2E.%2e"),
    GoodURL(
      "https://a/" + String(repeating: "x", count: 1023), .tls, "a 443", "a",
      "/" + String(repeating: "x", count: 1023)),
  ])
  func goodURL(_ good: GoodURL) {
    let name = bytes(good.testDescription)
    guard case .target(let target) = Target.parse(name.view) else {
      Issue.record("does not parse")
      return
    }
    guard case .name(let host, let port) = target.location else {
      Issue.record("has addresses")
      return
    }
    #expect("\(text(host)!) \(port)" == good.place)
    #expect(text(target.host) == text(host))
    #expect(target.security == good.security)
    #expect(text(target.authority) == good.authority)
    #expect(target.prefix.map { text($0)! } == good.prefix)
    // A URL is not allowed as the address of an endpoint.
    #expect(SocketAddress(target: name.view) == nil)
  }

  @Test(arguments: [
    ("http://", "it has no host"),
    ("http:///a", "it has no host"),
    ("https://:1", "it has no host"),
    ("https://a:", "its port is not a number from 1 to 65535"),
    ("https://a:0/", "its port is not a number from 1 to 65535"),
    ("https://a:65536/", "its port is not a number from 1 to 65535"),
    ("https://::1/", "in a URL brackets enclose an IPv6 address, and nothing else"),
    ("https://a:1:2/", "in a URL brackets enclose an IPv6 address, and nothing else"),
    ("https://[::1/", "a bracket is not closed"),
    ("https://[::1]x/", "its bracket is not followed by a port (1 to 65535)"),
    ("https://[::1::2]/", "its host is not an IPv6 address"),
    ("https://[a]/", "in a URL brackets enclose an IPv6 address, and nothing else"),
    ("https://a%20b/", "its host name is wrong: it has a character that no host name has"),
    ("https://a?x=1", "it has a query"),
    ("https://a/?", "it has a query"),
    ("https://a/b?x=/y", "it has a query"),
    ("https://a#b", "it has a fragment"),
    ("https://a/b#", "it has a fragment"),
    ("https://a//", "its path has an empty segment (\"//\")"),
    ("https://a//b", "its path has an empty segment (\"//\")"),
    ("https://a/b//", "its path has an empty segment (\"//\")"),
    ("https://a/b//c", "its path has an empty segment (\"//\")"),
    ("https://a/.", "its path has a segment \".\" or \"..\""),
    ("https://a/../b", "its path has a segment \".\" or \"..\""),
    ("https://a/%2e", "its path has a segment \".\" or \"..\""),
    ("https://a/b/.%2E/", "its path has a segment \".\" or \"..\""),
    ("https://a/%", "its path has a \"%\" without two hexadecimal digits"),
    ("https://a/%2", "its path has a \"%\" without two hexadecimal digits"),
    ("https://a/%2g", "its path has a \"%\" without two hexadecimal digits"),
    ("https://a/%%20", "its path has a \"%\" without two hexadecimal digits"),
    ("https://a/\"", "its path has a character that has to be percent-encoded"),
    ("https://a/{b}", "its path has a character that has to be percent-encoded"),
    ("https://a/b\\c", "its path has a character that has to be percent-encoded"),
    ("https://a/b c", "it has a space or a control character in it"),
    ("https://a/b\r\nc", "it has a space or a control character in it"),
    ("https://a/" + String(repeating: "x", count: 1024), "its path is longer than 1024 bytes"),
  ])
  func badURL(_ target: String, _ words: String) {
    let name = bytes(target)
    guard case .failed(let failure) = Target.parse(name.view) else {
      Issue.record("parses")
      return
    }
    #expect(text(failure)?.hasSuffix("\": " + words) == true)
  }

  /// The error for a target with an "@" never quotes the target, because a password may stand before the "@".
  @Test(arguments: [
    "https://me:secret@a/", "http://me@a:1", "https://me:sec/ret@a", "https://me:s?@a",

    "https://me:sec ret@a",
  ])
  func urlWithUser(_ target: String) {
    let name = bytes(target)
    guard case .failed(let failure) = Target.parse(name.view) else {
      Issue.record("parses")
      return
    }
    #expect(text(failure) == "the target has an \"@\": it can't name a user")
  }

  @Test(arguments: [
    ("a.example:443", "dns:///a.example:443"), ("[::1]:50051", "dns:///[::1]:50051"), ("dns:a", "dns:a"),
    ("dns:///a:1", "dns:///a:1"), ("HTTPS://a/b", "HTTPS://a/b"), ("http://a", "http://a"),
    ("http:8080", "dns:///http:8080"),
    ("ipv4:1.2.3.4:5", "ipv4:1.2.3.4:5"), ("ipv6:[::1]:5", "ipv6:[::1]:5"),
    ("passthrough:///a:1", "passthrough:///a:1"), ("unix:/a", "unix:/a"),
    ("unix-abstract:a", "unix-abstract:a"), ("vsock:2:5", "vsock:2:5"),
  ])
  func canonicalFormHasAScheme(_ target: String, _ canonical: String) {
    let target = bytes(target)
    withExtendedLifetime(target) { #expect(text(Target.canonical(target.view)) == canonical) }
  }

  @Test func tooLong() {
    for target in ["unix:/" + String(repeating: "a", count: 200), String(repeating: "a", count: 256) + ":1"] {
      let name = bytes(target)
      guard case .failed = Target.parse(name.view) else {
        Issue.record("parses")
        return
      }
    }
    let name = bytes("ipv4:" + (0..<300).map { _ in "1.2.3.4" }.joined(separator: ","))
    guard case .failed(let failure) = Target.parse(name.view) else {
      Issue.record("parses")
      return
    }
    #expect(text(failure)?.hasSuffix(": it has too many addresses") == true)
  }
}
