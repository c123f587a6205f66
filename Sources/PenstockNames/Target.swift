import PenstockWire

/// A channel's target, parsed ("gRPC Name Resolution", "Name Syntax").
///
/// `host:port`, `dns:host:port`, `dns:///host:port`, `ipv4:1.2.3.4:5,...`, `ipv6:[::1]:5,...`, `unix:path`,
/// `unix:///path`, `unix-abstract:name`, `vsock:2:5`, `passthrough:///host:port`, and the URLs
/// `https://host:port/prefix` and `http://host:port/prefix`. If no port is given it is 443, or 80 for
/// `http://`; a vsock has to have one. Paths of unix sockets may be percent-encoded, and have blanks as they are.
public struct Target {
  public enum Location {
    case name(host: ByteBuffer, port: UInt16)
    case addresses([SocketAddress])
  }

  /// How the target says that connections are secured. Only a URL says it; for all others it is `unsaid`.
  public enum Security: UInt8, Sendable { case unsaid, cleartext, tls }

  public var isUnix: Bool {
    if case .addresses(let list) = location, let first = list.first { return first.isUnix }
    return false
  }

  static let defaultPort: UInt16 = 443
  /// The largest number of addresses in a target: more than anybody writes, and few enough to be kept in
  /// memory.
  public static let mostAddresses = 256
  /// The largest length of a URL's path, in bytes. It is limited because each request repeats the path.
  static let mostPrefixBytes = 1024

  public let location: Location
  /// The value of ":authority": the host and, if the target gives one, the port, as the target writes them,
  /// but without the zone of an IPv6 address.
  /// If the target has several addresses, it is the first of them; for a unix socket or a vsock it is
  /// "localhost".
  public let authority: ByteBuffer
  /// The host that the server's certificate has to name, without a port.
  public let host: ByteBuffer
  public let security: Security
  /// The path of a URL, percent-encoded as in the target, without a slash at its end; nil: the path is empty.
  public let prefix: ByteBuffer?

  private init(
    location: Location, authority: ByteBuffer, host: ByteBuffer, security: Security = .unsaid,
    prefix: ByteBuffer? = nil
  ) {
    self.location = location
    self.authority = authority
    self.host = host
    self.security = security
    self.prefix = prefix
  }

  public enum Outcome {
    case target(Target)
    case failed(ByteBuffer)
    case noMemory
  }

  public static func parse(_ text: ByteView) -> Outcome {
    if text.isEmpty { return .failed(ByteBuffer().say("the target is empty")) }
    if let rest = after("unix-abstract:", text) { return unix(rest, text, isAbstract: true) }
    if let rest = after("unix:", text) { return unix(rest, text, isAbstract: false) }
    if hasBlank(text) { return wrong(text, "it has a space or a control character in it") }
    if let rest = after("https://", text) { return url(rest, text, .tls) }
    if let rest = after("http://", text) { return url(rest, text, .cleartext) }
    if mayNameUser(text) { return wrong(text, "it names a user") }
    if let rest = after("vsock:", text) { return vsock(rest, text) }
    if let rest = after("dns:", text) { return dns(rest, text, scheme: "dns") }
    // "passthrough" means that the name goes to the connecting code as it is. Only the system's look-up could
    // understand it there, so the scheme is treated as "dns:".
    if let rest = after("passthrough:", text) { return dns(rest, text, scheme: "passthrough") }
    if let rest = after("ipv4:", text) { return literals(rest, text, isSix: false) }
    if let rest = after("ipv6:", text) { return literals(rest, text, isSix: true) }
    // "scheme://..." has two slashes behind the colon; "host:port" has none.
    for index in 0..<text.count where text[index] == 0x3A {
      if text.count - index > 2, text[index + 1] == 0x2F, text[index + 2] == 0x2F {
        let scheme = ByteView(rebasing: text[..<index])
        let words = ByteBuffer().say("the scheme \"").say(scheme)
          .say("\" is not known (dns, http, https, ipv4, ipv6, passthrough, unix, unix-abstract, vsock)")
        return wrong(text, words)
      }
    }
    return named(text, text)
  }

  /// The target with its scheme, as the attribute `grpc.target` has it (gRFC A66): a name without one is of the scheme
  /// "dns". nil: no memory.
  public static func canonical(_ text: ByteView) -> ByteBuffer? {
    let schemes: [StaticString] = [
      "dns:", "https://", "http://", "ipv4:", "ipv6:", "passthrough:", "unix:", "unix-abstract:", "vsock:",
    ]
    if schemes.contains(where: { after($0, text) != nil }) { return ByteBuffer(copying: text) }
    let full = ByteBuffer()
    return full.append(("dns:///" as StaticString).bytes) && full.append(text) ? full : nil
  }

  // MARK: Schemes

  private static func dns(_ rest: ByteView, _ text: ByteView, scheme: StaticString) -> Outcome {
    guard let path = after("//", rest) else { return named(rest, text) }
    guard let slash = path.firstIndex(of: 0x2F) else {
      return wrong(text, ByteBuffer().say("\"").say(scheme).say("://\" needs a third slash"))
    }
    if slash > 0 {
      let words = ByteBuffer().say("an authority (a DNS server) is not supported: write \"")
      return wrong(text, words.say(scheme).say(":///\""))
    }
    return named(ByteView(rebasing: path[1...]), text)
  }

  /// Parses the part of a URL behind its scheme (RFC 3986 section 3).
  private static func url(_ rest: ByteView, _ text: ByteView, _ security: Security) -> Outcome {
    var end = 0
    while end < rest.count, rest[end] != 0x2F, rest[end] != 0x3F, rest[end] != 0x23 { end += 1 }
    var path = ByteView(rebasing: rest[end...])
    if let flaw = pathFlaw(path) { return wrong(text, flaw) }
    if path.last == 0x2F { path = ByteView(rebasing: path.dropLast()) }
    guard let prefix = ByteBuffer(copying: path) else { return .noMemory }
    return named(ByteView(rebasing: rest[..<end]), text, security, path.isEmpty ? nil : prefix)
  }

  /// The flaw that makes a URL's path unusable before the path of a method, in words; nil: nothing.
  private static func pathFlaw(_ path: ByteView) -> StaticString? {
    if path.count > mostPrefixBytes { return "its path is longer than 1024 bytes" }
    // The number of dots, plain or encoded, and of other characters in the segment so far.
    var dots = 0
    var others = 0
    var index = 0
    while index <= path.count {
      let byte = index < path.count ? path[index] : 0x2F
      index += 1
      switch byte {
      case 0x2F:
        if others == 0, dots == 1 || dots == 2 { return "its path has a segment \".\" or \"..\"" }
        if others + dots == 0, index > 1, index <= path.count {
          return "its path has an empty segment (\"//\")"
        }
        dots = 0
        others = 0
      case 0x3F: return "it has a query"
      case 0x23: return "it has a fragment"
      case 0x2E: dots += 1
      case 0x25:
        guard path.count - index >= 2, PercentCoding.hexValue(path[index]) != nil,
          PercentCoding.hexValue(path[index + 1]) != nil
        else {
          return "its path has a \"%\" without two hexadecimal digits"
        }
        if path[index] == 0x32, path[index + 1] | 0x20 == 0x65 { dots += 1 } else { others += 1 }
        index += 2
      default:
        guard isPathCharacter(byte) else { return "its path has a character that has to be percent-encoded" }
        others += 1
      }
    }
    return nil
  }

  /// Whether a segment of a path may contain this character: `pchar` of RFC 3986 section 3.3, but not "." or
  /// "%", which the caller handles.
  private static func isPathCharacter(_ byte: UInt8) -> Bool {
    byte >= 0x30 && byte <= 0x39 || byte | 0x20 >= 0x61 && byte | 0x20 <= 0x7A
      || ("-_~!$&'()*+,;=:@" as StaticString).bytes.contains(byte)
  }

  private static func named(
    _ part: ByteView, _ text: ByteView, _ security: Security = .unsaid, _ prefix: ByteBuffer? = nil
  ) -> Outcome {
    switch split(part) {
    case .failed(let words): return wrong(text, words)
    case .parts(let host, let port, let isBracketed):
      if host.isEmpty { return wrong(text, "it has no host") }
      if security != .unsaid, isBracketed != host.contains(0x3A) {
        return wrong(text, "in a URL brackets enclose an IPv6 address, and nothing else")
      }
      if host.contains(0x3A) {
        guard SocketAddress(literal: HostName.forTLS(host), port: 0) != nil else {
          return wrong(text, "its host is not an IPv6 address")
        }
      } else if let flaw = HostName.flaw(host) {
        return wrong(text, ByteBuffer().say("its host name is wrong: ").say(flaw))
      }
      guard let name = security == .unsaid ? ByteBuffer(copying: host) : plainZone(host),
        let authority = authority(part, port)
      else { return .noMemory }
      let location = Location.name(host: name, port: port ?? (security == .cleartext ? 80 : defaultPort))
      return .target(
        Target(location: location, authority: authority, host: name, security: security, prefix: prefix))
    }
  }

  private static func literals(_ list: ByteView, _ text: ByteView, isSix: Bool) -> Outcome {
    var addresses: [SocketAddress] = []
    var firstHost: ByteBuffer?
    var firstAuthority: ByteBuffer?
    var from = 0
    var at = 0
    while at <= list.count {
      if at < list.count && list[at] != 0x2C {
        at += 1
        continue
      }
      let part = ByteView(rebasing: list[from..<at])
      at += 1
      from = at
      if addresses.count == mostAddresses { return wrong(text, "it has too many addresses") }
      switch split(part) {
      case .failed(let words): return wrong(text, words)
      case .parts(let host, let port, _):
        guard let plain = plainZone(host) else { return .noMemory }
        guard let address = SocketAddress(literal: plain.view, port: port ?? defaultPort),
          host.contains(0x3A) == isSix
        else {
          let words = ByteBuffer().say("\"").say(part).say(
            !isSix
              ? "\" is not an IPv4 address"
              : host.contains(0x25)
                ? "\" is not an IPv6 address with the zone of an interface that exists"
                : "\" is not an IPv6 address")
          return wrong(text, words)
        }
        addresses.append(address)
        if firstHost == nil {
          guard let whole = authority(part, port) else { return .noMemory }
          firstHost = plain
          firstAuthority = whole
        }
      }
    }
    guard let firstHost, let firstAuthority else { return wrong(text, "it has no address") }
    return .target(Target(location: .addresses(addresses), authority: firstAuthority, host: firstHost))
  }

  private static func unix(_ rest: ByteView, _ text: ByteView, isAbstract: Bool) -> Outcome {
    var path = rest
    if !isAbstract, let absolute = after("//", rest) {
      guard absolute.first == 0x2F else { return wrong(text, "\"unix://\" needs an absolute path") }
      path = absolute
    }
    if path.isEmpty { return wrong(text, "it has no path") }
    guard let name = ByteBuffer(capacity: path.count + 1), !isAbstract || name.append(byte: 0) else {
      return .noMemory
    }
    if let flaw = decode(path, into: name) { return wrong(text, flaw) }
    guard let host = ByteBuffer(copying: ("localhost" as StaticString).bytes) else { return .noMemory }
    guard let address = SocketAddress(unixPath: name.view) else {
      return wrong(text, !isAbstract && name.view.contains(0) ? "its path has a NUL" : "its path is too long")
    }
    return .target(Target(location: .addresses([address]), authority: host, host: host))
  }

  /// Appends a path to `out`, with its percent-encoding decoded ("gRPC Name Resolution": a target is a URI). `out` has
  /// room for it. Returns the flaw in words; nil: the path is well formed.
  static func decode(_ path: ByteView, into out: ByteBuffer) -> StaticString? {
    var index = 0
    while index < path.count {
      var byte = path[index]
      index += 1
      if byte == 0x25 {
        guard path.count - index >= 2, let high = PercentCoding.hexValue(path[index]),
          let low = PercentCoding.hexValue(path[index + 1])
        else { return "its path has a \"%\" without two hexadecimal digits: write \"%25\" for a \"%\"" }
        byte = high << 4 | low
        index += 2
      }
      _ = out.append(byte: byte)
    }
    return nil
  }

  private static func vsock(_ rest: ByteView, _ text: ByteView) -> Outcome {
    guard let colon = rest.firstIndex(of: 0x3A), let cid = number(ByteView(rebasing: rest[..<colon])),
      let port = number(ByteView(rebasing: rest[(colon + 1)...]))
    else { return wrong(text, "it needs two numbers from 0 to 4294967295: \"vsock:cid:port\"") }
    guard let host = ByteBuffer(copying: ("localhost" as StaticString).bytes) else { return .noMemory }
    let address = SocketAddress(vsock: cid, port: port)
    return .target(Target(location: .addresses([address]), authority: host, host: host))
  }

  // MARK: Parts

  enum Split {
    case parts(host: ByteView, port: UInt16?, isBracketed: Bool)
    case failed(StaticString)
  }

  /// Parses `host`, `host:port`, `[v6]`, `[v6]:port`, or a bare IPv6 address.
  static func split(_ text: ByteView) -> Split {
    if text.first == 0x5B {
      guard let close = text.firstIndex(of: 0x5D) else { return .failed("a bracket is not closed") }
      let host = ByteView(rebasing: text[1..<close])
      let rest = ByteView(rebasing: text[(close + 1)...])
      if rest.isEmpty { return .parts(host: host, port: nil, isBracketed: true) }
      guard rest[0] == 0x3A, let port = port(ByteView(rebasing: rest[1...])) else {
        return .failed("its bracket is not followed by a port (1 to 65535)")
      }
      return .parts(host: host, port: port, isBracketed: true)
    }
    guard let colon = text.firstIndex(of: 0x3A) else {
      return .parts(host: text, port: nil, isBracketed: false)
    }
    let after = ByteView(rebasing: text[(colon + 1)...])
    // If there are two colons without brackets, the whole text is an IPv6 address.
    if after.contains(0x3A) { return .parts(host: text, port: nil, isBracketed: false) }
    guard let port = port(after) else { return .failed("its port is not a number from 1 to 65535") }
    return .parts(host: ByteView(rebasing: text[..<colon]), port: port, isBracketed: false)
  }

  private static func port(_ digits: ByteView) -> UInt16? {
    guard digits.count <= 5, let value = number(digits), value > 0 else { return nil }
    return UInt16(exactly: value)
  }

  private static func number(_ digits: ByteView) -> UInt32? {
    guard !digits.isEmpty, digits.count <= 10 else { return nil }
    var value: UInt64 = 0
    for byte in digits {
      guard byte >= 0x30, byte <= 0x39 else { return nil }
      value = value * 10 + UInt64(byte - 0x30)
    }
    return UInt32(exactly: value)
  }

  /// The value of ":authority": the host and port as they were written, but an IPv6 address always in
  /// brackets, and without its zone, which "has only local significance at the sending host" (RFC 6874
  /// section 4).
  private static func authority(_ text: ByteView, _ port: UInt16?) -> ByteBuffer? {
    let isBare = port == nil && text.first != 0x5B && text.contains(0x3A)
    let zone = text.firstIndex(of: 0x25)
    if !isBare, zone == nil { return ByteBuffer(copying: text) }
    let close = text.firstIndex(of: 0x5D) ?? text.count
    let whole = ByteBuffer()
    return (!isBare || whole.append("[")) && whole.append(ByteView(rebasing: text[..<(zone ?? close)]))
      && whole.append("]") && whole.append(ByteView(rebasing: text[min(close + 1, text.count)...]))
      ? whole : nil
  }

  /// A copy of the host of a URI. In an IPv6 address its zone is percent-encoded: "%25" begins it (RFC 6874).
  private static func plainZone(_ host: ByteView) -> ByteBuffer? {
    guard let copied = ByteBuffer(copying: host), let zone = host.firstIndex(of: 0x25),
      after("25", ByteView(rebasing: host[(zone + 1)...])) != nil, host.count > zone + 3
    else { return ByteBuffer(copying: host) }
    copied.truncate(to: zone + 1)
    return copied.append(ByteView(rebasing: host[(zone + 3)...])) ? copied : nil
  }

  /// The part of `text` behind `prefix`, which is in lower case and is compared without regard to case: "schemes are
  /// case-insensitive" (RFC 3986 section 3.1). nil: `text` does not begin with it.
  static func after(_ prefix: StaticString, _ text: ByteView) -> ByteView? {
    let bytes = prefix.bytes
    return hasPrefixIgnoringCase(text, bytes) ? ByteView(rebasing: text[bytes.count...]) : nil
  }

  private static func hasBlank(_ text: ByteView) -> Bool { text.contains { $0 <= 0x20 || $0 == 0x7F } }

  private static func mayNameUser(_ text: ByteView) -> Bool {
    after("unix:", text) == nil && after("unix-abstract:", text) == nil && text.contains(0x40)
  }

  private static func wrong(_ text: ByteView, _ words: StaticString) -> Outcome {
    wrong(text, ByteBuffer().say(words))
  }

  private static func wrong(_ text: ByteView, _ words: ByteBuffer) -> Outcome {
    // A target that may name a user is not quoted, because a password may stand before the "@".
    if mayNameUser(text) { return .failed(ByteBuffer().say("the target has an \"@\": it can't name a user")) }
    return .failed(
      ByteBuffer().say("the target \"").say(printable: text, limit: 200).say("\": ").say(words.view))
  }
}

extension SocketAddress {
  /// The only address of a target. nil: the text is no valid target, has several addresses, or has a host
  /// that is not an IP address.
  public init?(target text: ByteView) {
    guard case .target(let target) = Target.parse(text), target.security == .unsaid else { return nil }
    switch target.location {
    case .addresses(let list):
      guard list.count == 1 else { return nil }
      self = list[0]
    case .name(let host, let port):
      guard let literal = SocketAddress(literal: host.view, port: port) else { return nil }
      self = literal
    }
  }
}
