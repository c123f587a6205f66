/// The rules for names and values of metadata (gRPC over HTTP2, "Requests", Custom-Metadata; RFC 9113 section
/// 8.2).
public enum HeaderRules {
  /// Whether the name is a Header-Name: one or more of `0-9 a-z _ - .`, so lower case only.
  public static func isValidName(_ name: ByteView) -> Bool {
    for byte in name {
      switch byte {
      case 0x30...0x39, 0x61...0x7A, 0x5F, 0x2D, 0x2E: continue
      default: return false
      }
    }
    return !name.isEmpty
  }

  /// Appends `name` with ASCII letters in lower case. False: no memory, and `out` is as it was.
  public static func lowercased(_ name: ByteView, into out: ByteBuffer) -> Bool {
    guard let spare = out.spare(atLeast: name.count) else { return false }
    for i in 0..<name.count { spare[i] = lowercase(name[i]) }
    out.commit(name.count)
    return true
  }

  /// Whether a value that we send is an ASCII-Value: space and printable ASCII, neither beginning nor ending
  /// with a space, because RFC 9113 section 8.2.1 makes such a field malformed. The empty value is valid, as
  /// it is in other implementations.
  public static func isValidASCIIValue(_ value: ByteView) -> Bool {
    for byte in value where byte < 0x20 || byte > 0x7E { return false }
    guard let first = value.first, let last = value.last else { return true }
    return first != 0x20 && last != 0x20
  }

  /// Whether a header field that came could have this value: it has no control characters, such as CR or NUL, but tabs
  /// (RFC 9110 section 5.5).
  public static func isFieldValue(_ value: ByteView) -> Bool {
    for byte in value where byte < 0x20 && byte != 0x09 || byte == 0x7F { return false }
    return true
  }

  /// The value without spaces and tabs at its ends: "If it contains leading or trailing whitespace, it may be
  /// stripped."
  public static func trimmed(_ value: ByteView) -> ByteView { trimmed(value, from: 0, to: value.count) }

  /// Whether the name is that of a binary header: it ends with `-bin` and is longer than that.
  public static func isBinary(_ name: ByteView) -> Bool {
    name.count > 4 && equalIgnoringCase(slice(name, from: name.count &- 4, to: name.count), "-bin")
  }

  /// Whether metadata can't set this name: pseudo headers, gRPC's own ("Header names starting with grpc- ...
  /// should not be used by applications"), `te` and `content-type`, the fields that RFC 9113 section 8.2.2
  /// forbids in HTTP/2, and `host` and `content-length`, which would contradict `:authority` and the DATA
  /// frames (sections 8.3.1 and 8.1.1).
  public static func isReserved(_ name: ByteView) -> Bool {
    guard let first = name.first else { return false }
    switch lowercase(first) {
    case 0x3A: return true
    case 0x63:
      return equalIgnoringCase(name, "content-type") || equalIgnoringCase(name, "connection")
        || equalIgnoringCase(name, "content-length")
    case 0x67: return hasPrefixIgnoringCase(name, ("grpc-" as StaticString).bytes)
    case 0x68: return equalIgnoringCase(name, "host")
    case 0x6B: return equalIgnoringCase(name, "keep-alive")
    case 0x70: return equalIgnoringCase(name, "proxy-connection")
    case 0x74: return equalIgnoringCase(name, "te") || equalIgnoringCase(name, "transfer-encoding")
    case 0x75: return equalIgnoringCase(name, "upgrade")
    default: return false
    }
  }

  /// Calls `body` for each value of a "-bin" field, still in base64, without blanks around it. gRPC's protocol demands
  /// that such fields are split at commas. An empty part counts too: it is an empty value.
  public static func forEachBinaryValue(_ wire: ByteView, _ body: (ByteView) -> Void) {
    var from = 0
    for i in 0..<wire.count where wire[i] == 0x2C {
      body(trimmed(wire, from: from, to: i))
      from = i &+ 1
    }
    body(trimmed(wire, from: from, to: wire.count))
  }

  private static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }

  private static func trimmed(_ bytes: ByteView, from: Int, to: Int) -> ByteView {
    var lower = from
    var upper = to
    while lower < upper && isBlank(bytes[lower]) { lower &+= 1 }
    while upper > lower && isBlank(bytes[upper &- 1]) { upper &-= 1 }
    return slice(bytes, from: lower, to: upper)
  }
}

/// Whether a content-type says that the body is gRPC (gRPC over HTTP2, "Requests", Content-Type).
public enum ContentType: Equatable, Sendable {
  case grpc, notGRPC

  /// gRPC is `application/grpc`, alone or followed by `+something` or by parameters, with letters in any case (RFC 9110
  /// section 8.3.1). `application/grpc-web` is another protocol.
  public static func classify(_ value: ByteView?) -> ContentType {
    guard let value else { return .notGRPC }
    let trimmed = HeaderRules.trimmed(value)
    let prefix = ("application/grpc" as StaticString).bytes
    guard hasPrefixIgnoringCase(trimmed, prefix) else { return .notGRPC }
    if trimmed.count == prefix.count { return .grpc }
    switch trimmed[prefix.count] {
    case 0x2B: return .grpc
    case 0x3B: return .grpc
    case 0x20, 0x09:
      return HeaderRules.trimmed(slice(trimmed, from: prefix.count, to: trimmed.count)).first == 0x3B
        ? .grpc : .notGRPC
    default: return .notGRPC
    }
  }
}

extension ContentType {
  /// How the content-type of an answer fits a request.
  public enum Fit {
    case fits
    /// The content-type belongs to the protocol, but names another encoding of messages than the request.
    case otherEncoding
    case foreign
  }

  /// Compares the content-type `value`, without its parameters, with `start` followed by the name of an
  /// encoding (nil: "proto"). Upper and lower case are the same. `start` ends with "+" or "/". `isOptional`:
  /// the content-type may also end before that character and name no encoding.
  public static func fit(
    _ value: ByteView?, _ start: StaticString, _ encoding: ByteView?, isOptional: Bool = false
  ) -> Fit {
    guard let value else { return .foreign }
    let media = HeaderRules.trimmed(slice(value, from: 0, to: position(of: 0x3B, in: value) ?? value.count))
    let start = start.bytes
    let short = slice(start, from: 0, to: start.count &- 1)
    if isOptional, media.count == short.count, hasPrefixIgnoringCase(media, short) { return .fits }
    guard hasPrefixIgnoringCase(media, start) else { return .foreign }
    let given = slice(media, from: start.count, to: media.count)
    let encoding = encoding ?? ("proto" as StaticString).bytes
    return given.count == encoding.count && hasPrefixIgnoringCase(given, encoding) ? .fits : .otherEncoding
  }
}

/// The value of `user-agent`.
public enum UserAgent {
  /// Appends `penstock/VERSION`, after the application's own product if there is one. Bytes that a header can't have
  /// are left out; the code that reads the option has already refused them, with `HeaderRules.isValidASCIIValue`.
  /// False: no memory, and `out` is as it was.
  public static func compose(version: ByteView, application: ByteView? = nil, into out: ByteBuffer) -> Bool {
    let before = out.count
    if let application {
      guard appendPrintable(application, into: out),
        out.count == before || out.append(" ")
      else {
        out.truncate(to: before)
        return false
      }
    }
    if out.append("penstock/") && appendPrintable(version, into: out) { return true }
    out.truncate(to: before)
    return false
  }

  /// Appends the printable ASCII characters of `bytes`, without spaces at either end.
  private static func appendPrintable(_ bytes: ByteView, into out: ByteBuffer) -> Bool {
    let begin = out.count
    var end = begin
    for byte in bytes where byte >= 0x20 && byte <= 0x7E {
      if byte == 0x20 && end == begin { continue }
      if !out.append(byte: byte) { return false }
      if byte != 0x20 { end = out.count }
    }
    out.truncate(to: end)
    return true
  }
}
