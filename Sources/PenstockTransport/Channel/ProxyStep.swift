import CPenstockSystem
import PenstockChannel
import PenstockLink
import PenstockLoop
import PenstockNames
import PenstockWire

/// The server that a proxy is asked to connect to.
enum ProxyAim {
  case name(ByteBuffer, port: UInt16)
  case address(SocketAddress)

  /// The host and the port, as in ":authority".
  var text: ByteBuffer {
    switch self {
    case .address(let address):
      // The zone of an IPv6 address has a meaning on this host alone.
      let written = address.text()
      let zone = written.firstIndex(of: 0x25)
      let end = zone.flatMap { _ in written.firstIndex(of: 0x5D) }
      guard let zone, let end else { return ByteBuffer().say(written) }
      return ByteBuffer().say(Array(written[..<zone] + written[end...]))
    case .name(let host, let port):
      let text = ByteBuffer()
      let isSix = host.view.contains(0x3A)
      if isSix { text.say("[") }
      text.say(HostName.forTLS(host.view))
      if isSix { text.say("]") }
      return text.say(":").say(Int(port))
    }
  }
}

/// Asks a proxy of HTTP for a tunnel to the server (RFC 9110 section 9.3.6).
final class TunnelStep: ConnectStep {
  private static let mostHeadBytes = 16384

  private let aim: ByteBuffer
  private let proxy: Proxy
  private let userAgent: ByteBuffer
  /// How many bytes of the answer have no end of a head among them.
  private var searched = 0
  /// How many bytes the heads before the present one have.
  private var taken = 0

  init(_ aim: ProxyAim, _ proxy: Proxy, _ userAgent: ByteBuffer) {
    self.aim = aim.text
    self.proxy = proxy
    self.userAgent = userAgent
  }

  override var during: StaticString { " during the CONNECT that the proxy was asked for" }

  override func begin(_ link: Link) -> Outcome {
    let head = ByteBuffer().say("CONNECT ").say(aim.view).say(" HTTP/1.1\r\nhost: ").say(aim.view)
    if let credentials = proxy.basicCredentials {
      head.say("\r\nproxy-authorization: ").say(credentials.view)
    }
    head.say("\r\nuser-agent: ").say(userAgent.view).say("\r\n\r\n")
    return link.out.append(head.view) ? take(link) : .failed(ByteBuffer().say("no memory to ask the proxy"))
  }

  override func take(_ link: Link) -> Outcome {
    while let end = endOfHead(link.input.view), taken + end <= TunnelStep.mostHeadBytes {
      taken += end
      let outcome = read(statusLine: ByteView(rebasing: link.input.view[..<end]))
      link.input.consume(end)
      searched = 0
      if case .more = outcome { continue }
      return outcome
    }
    return taken + link.input.count <= TunnelStep.mostHeadBytes
      ? .more : .failed(told("has answered with more than 16384 bytes of header"))
  }

  /// The number of bytes up to the end of the empty line after the head; nil: it has not come yet.
  private func endOfHead(_ bytes: ByteView) -> Int? {
    // The empty line may have begun with the bytes that were searched before.
    for index in max(searched - 2, 1)..<max(bytes.count, max(searched - 2, 1)) where bytes[index] == 0x0A {
      let last = bytes[index - 1]
      if last == 0x0A || last == 0x0D && index >= 2 && bytes[index - 2] == 0x0A { return index + 1 }
    }
    searched = bytes.count
    return nil
  }

  /// Reads "HTTP/1.1 200 Connection established". The fields after it mean nothing: "any 2xx (Successful) response
  /// indicates that the sender will switch to tunnel mode immediately after".
  private func read(statusLine head: ByteView) -> Outcome {
    let line = cut(cut(head, before: "\n"), before: "\r")
    guard hasPrefixIgnoringCase(line, ("http/1." as StaticString).bytes), line.count >= 12, line[8] == 0x20,
      line[9] >= 0x31, line[9] <= 0x39, line[10...11].allSatisfy({ $0 >= 0x30 && $0 <= 0x39 }),
      line.count == 12 || line[12] == 0x20
    else {
      return .failed(told("does not answer in HTTP/1: \"").say(printable: line, limit: 60).say("\""))
    }
    switch line[9] {
    // 101 would change to another protocol, which nobody has asked for.
    case 0x31 where line[10] != 0x30 || line[11] != 0x31: return .more
    case 0x32: return .done
    default:
      let words = told("has refused to connect to ").say(aim.view).say(": ")
      words.say(printable: ByteView(rebasing: line[9...]), limit: 120)
      let isLogin = line[10] == 0x30 && line[11] == 0x37 && line[9] == 0x34
      if isLogin { words.say(proxy.login == nil ? "; its URL has no user" : "; it did not accept the user") }
      return .failed(words)
    }
  }

  private func told(_ words: StaticString) -> ByteBuffer {
    ByteBuffer().say("the proxy ").say(proxy.name.view).say(" ").say(words)
  }
}
