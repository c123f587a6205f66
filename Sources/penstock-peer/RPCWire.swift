import PenstockWire

/// The protocol that a request asks for.
enum RPCWire: Equatable {
  case grpc, web, webText
  case connectStream
  case connectUnary
  case connectGet
  /// The content-type belongs to no protocol.
  case none

  /// The protocol of a content-type, and the part that names the messages' encoding. An empty part means
  /// protobuf.
  static func of(contentType value: ByteView) -> (RPCWire, subtype: ByteView) {
    let type = HeaderRules.trimmed(cut(value, before: ";"))
    let none = part(type, 0, 0)
    guard let rest = after(type, "application/") else { return (.none, none) }
    if let name = plus(rest, "grpc-web-text") { return (.webText, name) }
    if let name = plus(rest, "grpc-web") { return (.web, name) }
    if let name = plus(rest, "grpc") { return (.grpc, name) }
    if let name = after(rest, "connect+") { return (name.isEmpty ? .none : .connectStream, name) }
    return (rest.isEmpty || hasPrefix(rest, "grpc") ? .none : .connectUnary, rest)
  }

  /// The part of `text` after `prefix` and a plus sign. Empty: `text` is only `prefix`. nil: `text` has
  /// another form.
  private static func plus(_ text: ByteView, _ prefix: StaticString) -> ByteView? {
    guard let rest = after(text, prefix) else { return nil }
    if rest.isEmpty { return rest }
    return rest[0] == 0x2B && rest.count > 1 ? part(rest, 1, rest.count) : nil
  }

  /// The part of `text` after `prefix`; upper and lower case are equal. nil: `text` does not begin with
  /// `prefix`.
  private static func after(_ text: ByteView, _ prefix: StaticString) -> ByteView? {
    let wanted = prefix.bytes
    return hasPrefixIgnoringCase(text, wanted) ? part(text, wanted.count, text.count) : nil
  }

  var isConnectUnary: Bool { self == .connectUnary || self == .connectGet }
}

/// The encoding of the messages of a call.
enum Codec: Equatable {
  case proto, json
  /// Another name. Only the methods that accept any bytes (`Method.takesAnyBytes`) accept it.
  case other

  init(_ subtype: ByteView) {
    if subtype.isEmpty || bytesEqual(subtype, "proto") {
      self = .proto
    } else {
      self = bytesEqual(subtype, "json") ? .json : .other
    }
  }
}

/// Whether a list of compressions such as "br, gzip;q=0.5" contains `name` with a weight that is not zero.
func lists(_ codings: ByteView, _ name: StaticString) -> Bool {
  var isListed = false
  HeaderRules.forEachBinaryValue(codings) { entry in
    let coding = HeaderRules.trimmed(cut(entry, before: ";"))
    guard equalIgnoringCase(coding, name) else { return }
    var weight = HeaderRules.trimmed(part(entry, coding.count, entry.count))
    if weight.first == 0x3B { weight = HeaderRules.trimmed(part(weight, 1, weight.count)) }
    isListed = !(hasPrefix(weight, "q=0") && weight.allSatisfy { $0 < 0x31 || $0 > 0x39 })
  }
  return isListed
}
