import PenstockWire

/// A proxy, from a URL such as "http://user:password@proxy.example:3128".
public struct Proxy {
  public enum Kind {
    /// A proxy of HTTP, which opens a tunnel for the method CONNECT (RFC 9110 section 9.3.6).
    case http
    /// A proxy of SOCKS version 5 (RFC 1928). `looksUp`: the proxy looks up the names of servers; otherwise the client
    /// does, and gives the proxy addresses.
    case socks(looksUp: Bool)

    /// The port of a URL without one: that of HTTP (RFC 9110 section 4.2.1), or that of SOCKS (RFC 1928 section 3).
    var usualPort: UInt16 {
      switch self {
      case .http: 80
      case .socks: 1080
      }
    }
  }

  public struct Login {
    public let user: ByteBuffer
    public let password: ByteBuffer
  }

  public let kind: Kind
  public let host: ByteBuffer
  public let port: UInt16
  public let login: Login?
  /// The value of the header "proxy-authorization" (RFC 7617); nil: there is no login.
  public let basicCredentials: ByteBuffer?
  /// The proxy's host and port as they were written, for error texts.
  public let name: ByteBuffer
  /// The hosts that are reached without the proxy.
  public var exceptions = ProxyExceptions()

  public enum Outcome {
    case proxy(Proxy)
    /// The flaw in words. They do not contain the text, in which there may be a password.
    case failed(StaticString)
    case noMemory
  }

  private static let mostLoginBytes = 255

  /// Parses a URL. `needsScheme`: "host:port" alone is none; otherwise it means a proxy of HTTP, as in environment variables.
  public static func parse(_ text: ByteView, needsScheme: Bool = true) -> Outcome {
    let kind: Kind
    var rest: ByteView
    if let found = Target.after("http://", text) {
      (kind, rest) = (.http, found)
    } else if let found = Target.after("socks5://", text) {
      (kind, rest) = (.socks(looksUp: false), found)
    } else if let found = Target.after("socks5h://", text) {
      (kind, rest) = (.socks(looksUp: true), found)
    } else if !needsScheme, !hasScheme(text) {
      (kind, rest) = (.http, text)
    } else {
      return .failed("it begins neither with \"http://\" nor with \"socks5://\" nor with \"socks5h://\"")
    }
    if rest.last == 0x2F { rest = ByteView(rebasing: rest.dropLast()) }
    if rest.contains(where: { $0 <= 0x20 || $0 == 0x7F }) {
      return .failed("it has a space or a control character in it")
    }
    if rest.contains(where: { $0 == 0x2F || $0 == 0x3F || $0 == 0x23 }) {
      return .failed("it has a path, a query or a fragment, which a proxy has not")
    }
    var login: Login?
    if let at = rest.lastIndex(of: 0x40) {
      switch parseLogin(ByteView(rebasing: rest[..<at]), kind) {
      case .failed(let words): return .failed(words)
      case .noMemory: return .noMemory
      case .login(let found): login = found
      }
      rest = ByteView(rebasing: rest[(at + 1)...])
    }
    guard case .parts(let host, let given, let isBracketed) = Target.split(rest) else {
      return .failed("its port is not a number from 1 to 65535")
    }
    if isBracketed {
      guard SocketAddress(literal: host, port: 0) != nil else {
        return .failed("its host is not an IPv6 address")
      }
    } else if let flaw = HostName.flaw(host) {
      return .failed(host.isEmpty ? "it has no host" : flaw)
    }
    guard let copied = ByteBuffer(copying: host), let name = ByteBuffer(copying: rest) else {
      return .noMemory
    }
    var credentials: ByteBuffer?
    if let login {
      credentials = basic(login)
      if credentials == nil { return .noMemory }
    }
    return .proxy(
      Proxy(
        kind: kind, host: copied, port: given ?? kind.usualPort, login: login, basicCredentials: credentials,
        name: name))
  }

  private static func hasScheme(_ text: ByteView) -> Bool {
    guard let colon = text.firstIndex(of: 0x3A), text.count - colon > 2 else { return false }
    return text[colon + 1] == 0x2F && text[colon + 2] == 0x2F
  }

  private enum ParsedLogin {
    case login(Login)
    case failed(StaticString)
    case noMemory
  }

  /// Parses "user:password", each percent-encoded.
  private static func parseLogin(_ text: ByteView, _ kind: Kind) -> ParsedLogin {
    let colon = text.firstIndex(of: 0x3A) ?? text.count
    guard let user = ByteBuffer(capacity: text.count), let password = ByteBuffer(capacity: text.count) else {
      return .noMemory
    }
    guard Target.decode(ByteView(rebasing: text[..<colon]), into: user) == nil,
      Target.decode(ByteView(rebasing: text.dropFirst(colon + 1)), into: password) == nil
    else {
      return .failed(
        "its user or password has a \"%\" without two hexadecimal digits: write \"%25\" for a \"%\"")
    }
    if user.isEmpty { return .failed("it has an \"@\" without a user before it") }
    if user.count > mostLoginBytes || password.count > mostLoginBytes {
      return .failed("its user or password is longer than 255 bytes")
    }
    if case .http = kind, user.view.contains(0x3A) {
      return .failed("its user has a colon, which no proxy can tell from the password")
    }
    return .login(Login(user: user, password: password))
  }

  /// nil: no memory.
  private static func basic(_ login: Login) -> ByteBuffer? {
    let pair = ByteBuffer()
    let value = ByteBuffer()
    guard pair.append(login.user.view), pair.append(byte: 0x3A), pair.append(login.password.view),
      value.append("Basic "),
      withExtendedLifetime(pair, { Base64.encode(pair.view, padded: true, into: value) })
    else { return nil }
    return value
  }
}
