import PenstockLink
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockLoop
@testable import PenstockNames
@testable import PenstockTransport

/// The dialogues with proxies of HTTP (RFC 9110 section 9.3.6) and of SOCKS (RFC 1928, RFC 1929).
@Suite struct ProxyStepTests {
  private static func proxy(_ url: String) -> Proxy {
    let url = bytes(url)
    guard case .proxy(let proxy) = withExtendedLifetime(url, { Proxy.parse(url.view) }) else {
      preconditionFailure("no proxy")
    }
    return proxy
  }

  private static func name(_ host: String, _ port: UInt16 = 7) -> ProxyAim { .name(bytes(host), port: port) }

  /// The aim that a row names: an address, or a name and its port with a blank between them.
  private static func aim(_ text: String) -> ProxyAim {
    let words = text.split(separator: " ")
    return words.count == 2 ? name(String(words[0]), UInt16(words[1])!) : address(text)
  }

  private static func address(_ target: String) -> ProxyAim {
    let target = bytes(target)
    return .address(withExtendedLifetime(target) { SocketAddress(target: target.view)! })
  }

  /// The result of a step: "more", "done" and the bytes that the step has left, or the words of its failure.
  private static func words(_ outcome: ConnectStep.Outcome, _ link: Link) -> String {
    switch outcome {
    case .more: "more"
    case .done: "done \(text(link.input)!)"
    case .failed(let words): text(words)!
    }
  }

  /// The steps do no I/O, so the loop never turns.
  private static let runtime = makeRuntime(.host)
  private static func link() -> Link { Link(Socket(-1), copies: true, runtime) }

  private static func sent(_ link: Link) -> [UInt8] {
    let bytes = Array(link.out.bytes.view)
    link.out.removeAll()
    return bytes
  }

  /// Plays an answer to a step, in one piece and byte by byte, and returns the result, which is always equal.
  private func play(_ answer: [UInt8], _ make: () -> ConnectStep) -> String {
    var results: [String] = []
    for size in [max(answer.count, 1), 1, 3] {
      let link = Self.link()
      let step = make()
      var result = Self.words(step.begin(link), link)
      var at = 0
      while result == "more", at < answer.count {
        let end = min(at + size, answer.count)
        #expect(answer[at..<end].withUnsafeBytes { link.input.append($0) })
        at = end
        result = Self.words(step.take(link), link)
      }
      if result.hasPrefix("done"), at < answer.count {
        result += String(decoding: answer[at...], as: UTF8.self)
      }
      results.append(result)
    }
    #expect(Set(results).count == 1, "\(results)")
    return results[0]
  }

  // MARK: HTTP

  private static let tunnelled: [(String, String, String, String)] = [
    ("http://p:1", "a.example 7", "a.example:7", ""),
    ("http://p:1", "a.example. 65535", "a.example:65535", ""),
    ("http://p:1", "fe80::1%eth0 7", "[fe80::1]:7", ""),
    ("http://p:1", "1.2.3.4:5", "1.2.3.4:5", ""),
    ("http://p:1", "[fe80::1%1]:5", "[fe80::1]:5", ""),
    (
      "http://me:secret@p:1", "[::1]:5", "[::1]:5",
      "proxy-authorization: Basic bWU6c2VjcmV0\r\n"
    ),
  ]

  @Test(arguments: tunnelled)
  func asksForATunnel(_ url: String, _ aim: String, _ host: String, _ login: String) {
    let link = Self.link()
    let step = TunnelStep(Self.aim(aim), Self.proxy(url), bytes("agent/1"))
    #expect(Self.words(step.begin(link), link) == "more")
    #expect(
      String(decoding: Self.sent(link), as: UTF8.self)
        == "CONNECT \(host) HTTP/1.1\r\nhost: \(host)\r\n\(login)user-agent: agent/1\r\n\r\n")
    #expect(step.during.description == " during the CONNECT that the proxy was asked for")
  }

  private static let refused = "the proxy p:1 has refused to connect to a:7: "
  private static let noHTTP = "the proxy p:1 does not answer in HTTP/1: "
  private static let many = String(repeating: "x", count: 200)
  private static let some = String(repeating: "x", count: 116)
  private static let tooMany = String(repeating: "y", count: 61)
  private static let most = String(repeating: "y", count: 60)
  private static let long = "the proxy p:1 has answered with more than 16384 bytes of header"

  private static let tunnels: [(String, String)] = [
    ("HTTP/1.1 200 OK\r\n\r\n", "done "), ("HTTP/1.0 200\r\n\r\n", "done "),
    ("http/1.1 299 \r\n\r\n", "done "),
    ("HTTP/1.1 200 OK\n\n", "done "), ("HTTP/1.1 200 OK\r\na: b\r\n\r\nmore\n\n", "done more\n\n"),
    ("HTTP/1.1 200 OK\r\na: b\n\r\n\r\n", "done \r\n"), ("HTTP/1.1 200 OK\na: b\n\nx", "done x"),
    ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\na: b\r\n\r\nHTTP/1.1 204 \r\n\r\n", "done "),
    ("HTTP/1.1 111 Go on\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "done "),
    ("HTTP/1.1 100 Continue\r\n\r\n", "more"), ("HTTP/1.1 200 OK\r\n", "more"),
    ("HTTP/1.1 200 OK\r\na: \r\r\n", "more"), ("HTTP/1.1 200 OK\r\n\r", "more"), ("", "more"),
    ("HTTP/1.1 200 OK\r\na\r\nb\r", "more"), ("HTTP/1.1 200 OK\ra\r\n", "more"),
    ("HTTP/1.1 101 Switching\r\n\r\n", "\(refused)101 Switching"),
    ("HTTP/1.1 300 Choices\r\n\r\n", "\(refused)300 Choices"), ("HTTP/1.1 404\r\n\r\n", "\(refused)404"),
    ("HTTP/1.1 599 \u{1}x\r\n\r\n", "\(refused)599 .x"), ("HTTP/1.1 999 \r\n\r\n", "\(refused)999 "),
    ("HTTP/1.1 407 Login\r\n\r\n", "\(refused)407 Login; its URL has no user"),
    ("HTTP/1.1 417 No\r\n\r\n", "\(refused)417 No"), ("HTTP/1.1 507 No\r\n\r\n", "\(refused)507 No"),
    ("HTTP/1.1 408 No\r\n\r\n", "\(refused)408 No"),
    ("HTTP/1.1 500 \(many)\r\n\r\n", "\(refused)500 \(some)..."),
    ("HTTP/1.1 099 Low\r\n\r\n", "\(noHTTP)\"HTTP/1.1 099 Low\""),
    ("HTTP/1.1 :00 No\r\n\r\n", "\(noHTTP)\"HTTP/1.1 :00 No\""),
    ("HTTP/1.1 2/0 No\r\n\r\n", "\(noHTTP)\"HTTP/1.1 2/0 No\""),
    ("HTTP/1.1 20: No\r\n\r\n", "\(noHTTP)\"HTTP/1.1 20: No\""),
    ("HTTP/1.1 20\r\n\r\n", "\(noHTTP)\"HTTP/1.1 20\""),
    ("HTTP/1.1 2000\r\n\r\n", "\(noHTTP)\"HTTP/1.1 2000\""),
    ("HTTP/1.1_200 OK\r\n\r\n", "\(noHTTP)\"HTTP/1.1_200 OK\""),
    ("HTTP/2 200 OK..\n\n", "\(noHTTP)\"HTTP/2 200 OK..\""),
    ("\r\n\r\n", "\(noHTTP)\"\""), ("SSH-2.0\n\n", "\(noHTTP)\"SSH-2.0\""),
    ("\(tooMany)\n\n", "\(noHTTP)\"\(most)...\""),
  ]

  @Test(arguments: tunnels)
  func answersOfHTTP(_ answer: String, _ expected: String) {
    let result = play(Array(answer.utf8)) {
      TunnelStep(Self.name("a"), Self.proxy("http://p:1"), bytes("agent"))
    }
    #expect(result == expected)
  }

  @Test func loginThatIsRefused() {
    let result = play(Array("HTTP/1.1 407 Login\r\n\r\n".utf8)) {
      TunnelStep(Self.name("a"), Self.proxy("http://me@p:1"), bytes("agent"))
    }
    #expect(result == Self.refused + "407 Login; it did not accept the user")
  }

  /// All heads together may have 16384 bytes, also those that have not ended.
  @Test func longHeads() {
    let (first, last) = ("HTTP/1.1 100 \r\n\r\n", "HTTP/1.1 200 \r\na: ")
    func play(_ size: Int, isWhole: Bool = true) -> String {
      let filling = String(
        repeating: "x", count: size - first.utf8.count - last.utf8.count - (isWhole ? 4 : 0))
      let link = Self.link()
      let step = TunnelStep(Self.name("a"), Self.proxy("http://p:1"), bytes("agent"))
      _ = step.begin(link)
      let heads = first + last + filling + (isWhole ? "\r\n\r\n" : "")
      #expect(Array(heads.utf8).withUnsafeBytes { link.input.append($0) })
      return Self.words(step.take(link), link)
    }
    #expect(play(16384) == "done " && play(16385) == Self.long && play(20000) == Self.long)
    #expect(play(16384, isWhole: false) == "more" && play(16385, isWhole: false) == Self.long)
  }

  // MARK: SOCKS

  @Test func asksWithoutLogin() {
    let link = Self.link()
    let step = SocksStep(Self.name("a.example.", 0x1234), Self.proxy("socks5h://p:1"))
    #expect(Self.words(step.begin(link), link) == "more" && Self.sent(link) == [5, 1, 0])
    #expect(step.during.description == " during the dialogue with the SOCKS proxy")
    #expect(Self.play([5, 0], step, link) == "more")
    #expect(Self.sent(link) == [5, 1, 0, 3, 9] + Array("a.example".utf8) + [0x12, 0x34])
  }

  private static func play(_ answer: [UInt8], _ step: ConnectStep, _ link: Link) -> String {
    _ = answer.withUnsafeBytes { link.input.append($0) }
    return words(step.take(link), link)
  }

  @Test func asksWithLogin() {
    let link = Self.link()
    let step = SocksStep(Self.address("1.2.3.4:258"), Self.proxy("socks5://me:secret@p:1"))
    #expect(Self.words(step.begin(link), link) == "more" && Self.sent(link) == [5, 2, 0, 2])
    #expect(Self.play([5, 2], step, link) == "more")
    #expect(Self.sent(link) == [1, 2] + Array("me".utf8) + [6] + Array("secret".utf8))
    #expect(Self.play([1, 0], step, link) == "more")
    #expect(Self.sent(link) == [5, 1, 0, 1, 1, 2, 3, 4, 1, 2])
    #expect(Self.play([5, 0, 0, 1, 1, 2, 3, 4, 0, 9, 0x78], step, link) == "done x")
  }

  private static let aims: [(String, [UInt8])] = [
    ("::1 7", [5, 1, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 7]),
    ("10.0.0.1 7", [5, 1, 0, 1, 10, 0, 0, 1, 0, 7]),
    ("[2001::2]:9", [5, 1, 0, 4, 0x20, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 9]),
  ]

  /// A proxy may need no login although its URL has one.
  @Test(arguments: aims)
  func namesAndAddresses(_ aim: String, _ request: [UInt8]) {
    let link = Self.link()
    let step = SocksStep(Self.aim(aim), Self.proxy("socks5h://me:secret@p:1"))
    _ = step.begin(link)
    _ = Self.sent(link)
    #expect(Self.play([5, 0], step, link) == "more")
    #expect(Self.sent(link) == request)
  }

  private static let noVersion5 = "the proxy p:1 does not speak SOCKS version 5"
  private static let unknown = "the proxy p:1 has answered with an address of an unknown type"

  private static let replies: [([UInt8], String)] = [
    ([], "more"), ([5], "more"), ([4, 0], noVersion5), ([0x48, 0x54], noVersion5),
    ([5, 1], "the proxy p:1 lets nobody in without a login; its URL has no user"),
    ([5, 2], "the proxy p:1 lets nobody in without a login; its URL has no user"),
    ([5, 0xFF], "the proxy p:1 lets nobody in without a login; its URL has no user"),
    ([5, 0, 4, 0, 0, 1, 0, 0, 0, 0, 0, 0], noVersion5), ([5, 0, 5], "more"), ([5, 0, 5, 0], "more"),
    ([5, 0, 5, 0, 0, 1], "more"), ([5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0], "more"),
    ([5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0], "done "),
    ([5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x61], "done a"),
    ([5, 0, 5, 0, 0, 3, 1, 0x62, 0], "more"), ([5, 0, 5, 0, 0, 3, 1, 0x62, 0, 0, 0x61], "done a"),
    ([5, 0, 5, 0, 0, 3, 0, 0, 0, 0x61], "done a"),
    ([5, 0, 5, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "more"),
    ([5, 0, 5, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x61], "done a"),
    ([5, 0, 5, 0, 0, 2, 0], unknown), ([5, 0, 5, 0, 0, 0, 0], unknown), ([5, 0, 5, 0, 0, 9, 0], unknown),
    ([5, 0, 5, 1], "\(refused)general failure of the SOCKS server"),
    ([5, 0, 5, 2], "\(refused)its rules do not allow the connection"),
    ([5, 0, 5, 3], "\(refused)network unreachable"), ([5, 0, 5, 4], "\(refused)host unreachable"),
    ([5, 0, 5, 5], "\(refused)connection refused"),
    ([5, 0, 5, 6], "\(refused)the time to live has expired"),
    ([5, 0, 5, 7], "\(refused)it does not know CONNECT"),
    ([5, 0, 5, 8], "\(refused)it does not know this type of address"),
    ([5, 0, 5, 9], "\(refused)for a reason that has no name"),
  ]

  @Test(arguments: replies)
  func answersOfSocks(_ answer: [UInt8], _ expected: String) {
    #expect(play(answer) { SocksStep(Self.name("a"), Self.proxy("socks5h://p:1")) } == expected)
  }

  private static let logins: [([UInt8], String)] = [
    ([5, 1], "the proxy p:1 takes no user with a password"),
    ([5, 0xFF], "the proxy p:1 takes no user with a password"),
    ([5, 2, 1, 1], "the proxy p:1 did not accept the user or password"),
    ([5, 2, 1, 0xFF], "the proxy p:1 did not accept the user or password"), ([5, 2, 1], "more"),
    ([5, 2, 5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0], "done "),
  ]

  @Test(arguments: logins)
  func loginsAtSocks(_ answer: [UInt8], _ expected: String) {
    #expect(play(answer) { SocksStep(Self.name("a"), Self.proxy("socks5h://me:secret@p:1")) } == expected)
  }
}
