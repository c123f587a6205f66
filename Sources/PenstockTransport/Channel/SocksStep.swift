import CPenstockSystem
import PenstockChannel
import PenstockLink
import PenstockLoop
import PenstockNames
import PenstockWire

/// The dialogue with a proxy of SOCKS version 5 (RFC 1928), which may ask for a user and a password (RFC 1929).
final class SocksStep: ConnectStep {
  /// The answer that comes next.
  private enum Awaited { case method, login, reply }

  private static let version: UInt8 = 5

  private let aim: ProxyAim
  private let aimText: ByteBuffer
  private let proxy: Proxy
  private var awaited = Awaited.method

  init(_ aim: ProxyAim, _ proxy: Proxy) {
    self.aim = aim
    aimText = aim.text
    self.proxy = proxy
  }

  override var during: StaticString { " during the dialogue with the SOCKS proxy" }

  override func begin(_ link: Link) -> Outcome {
    let methods: [UInt8] = proxy.login == nil ? [SocksStep.version, 1, 0] : [SocksStep.version, 2, 0, 2]
    return send(methods, link) ? take(link) : lacksMemory
  }

  override func take(_ link: Link) -> Outcome {
    while let answer = whole(link.input.view) {
      let outcome = read(answer, link)
      link.input.consume(answer.count)
      if case .more = outcome { continue }
      return outcome
    }
    return .more
  }

  /// The bytes of the answer that is awaited; nil: they have not all come.
  private func whole(_ bytes: ByteView) -> ByteView? {
    guard bytes.count >= 2 else { return nil }
    var size = 2
    // A reply that tells no success may end before its address.
    if awaited == .reply, bytes[0] == SocksStep.version, bytes[1] == 0 {
      guard bytes.count >= 5 else { return nil }
      switch bytes[3] {
      case 1: size = 10
      case 3: size = 7 + Int(bytes[4])
      case 4: size = 22
      default: size = 4
      }
    }
    return bytes.count >= size ? ByteView(rebasing: bytes[..<size]) : nil
  }

  private func read(_ answer: ByteView, _ link: Link) -> Outcome {
    switch awaited {
    case .method:
      guard answer[0] == SocksStep.version else { return .failed(told("does not speak SOCKS version 5")) }
      switch (answer[1], proxy.login) {
      case (0, _): return ask(link)
      case (2, let login?):
        awaited = .login
        let user: [UInt8] = [1, UInt8(clamping: login.user.count)] + Array(login.user.view)
        return send(user + [UInt8(clamping: login.password.count)] + Array(login.password.view), link)
          ? .more : lacksMemory
      case (_, nil): return .failed(told("lets nobody in without a login; its URL has no user"))
      default: return .failed(told("takes no user with a password"))
      }
    case .login:
      return answer[1] == 0 ? ask(link) : .failed(told("did not accept the user or password"))
    case .reply:
      guard answer[0] == SocksStep.version else { return .failed(told("does not speak SOCKS version 5")) }
      if answer[1] == 0 {
        return answer.count > 4 ? .done : .failed(told("has answered with an address of an unknown type"))
      }
      let words = told("has refused to connect to ").say(aimText.view).say(": ")
      return .failed(words.say(SocksStep.reason(answer[1])))
    }
  }

  /// Asks for a connection to the server.
  private func ask(_ link: Link) -> Outcome {
    awaited = .reply
    var request: [UInt8] = [SocksStep.version, 1, 0]
    let port: UInt16
    switch aim {
    case .address(let address):
      request += typed(address)
      port = address.port
    case .name(let host, let its):
      port = its
      let name = HostName.forTLS(host.view)
      if let literal = SocketAddress(literal: name, port: its) {
        request += typed(literal)
      } else {
        // A host name has at most 254 bytes (`HostName`).
        request += [3, UInt8(clamping: name.count)] + Array(name)
      }
    }
    return send(request + [UInt8(port >> 8), UInt8(port & 0xFF)], link) ? .more : lacksMemory
  }

  /// An IP address after the byte for its type.
  private func typed(_ address: SocketAddress) -> [UInt8] {
    [address.family == AF_INET ? 1 : 4] + (address.bytes ?? [])
  }

  /// The meaning of a reply's code (RFC 1928 section 6).
  private static func reason(_ code: UInt8) -> StaticString {
    switch code {
    case 1: "general failure of the SOCKS server"
    case 2: "its rules do not allow the connection"
    case 3: "network unreachable"
    case 4: "host unreachable"
    case 5: "connection refused"
    case 6: "the time to live has expired"
    case 7: "it does not know CONNECT"
    case 8: "it does not know this type of address"
    default: "for a reason that has no name"
    }
  }

  private var lacksMemory: Outcome { .failed(ByteBuffer().say("no memory to ask the proxy")) }

  private func send(_ bytes: [UInt8], _ link: Link) -> Bool {
    bytes.withUnsafeBytes { link.out.append($0) }
  }

  private func told(_ words: StaticString) -> ByteBuffer {
    ByteBuffer().say("the proxy ").say(proxy.name.view).say(" ").say(words)
  }
}
