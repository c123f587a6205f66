import PenstockWire
import Testing

@testable import PenstockChannel

/// Targets, by "gRPC Name Resolution", section "Name Syntax".
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
    Good("[fe80::1%1]:2", "fe80::1%1 2", "[fe80::1%1]:2", "fe80::1%1"),
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
      "http://a",
      "the target \"http://a\": the scheme \"http\" is not known "
        + "(dns, ipv4, ipv6, passthrough, unix, unix-abstract, vsock)"
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
