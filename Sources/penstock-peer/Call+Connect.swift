import PenstockWire

/// Reads the headers and the query of a request of the Connect protocol.
extension Call {
  /// Reads the timeout, the version and the compressions. `coding`: the name of the header field with the
  /// request's compression; nil: no such field is read. `accepted`: the name of the field with the
  /// compressions that the client accepts.
  func readConnectHeaders(coding: StaticString?, accepted: StaticString) {
    forgetGRPCHeaders()
    var isListed = false
    eachField { name, value in
      if bytesEqual(name, "connect-timeout-ms") {
        guard value.count <= 10, let number = decimal(value, limit: Int.max) else {
          return end(.invalidArgument, "connect-timeout-ms is not a number of at most ten digits")
        }
        timeout = UInt64(number) * 1_000_000
      } else if bytesEqual(name, "connect-protocol-version") && !bytesEqual(value, "1") {
        end(.invalidArgument, "connect-protocol-version must be \"1\"")
      } else if bytesEqual(name, accepted) {
        isListed = true
        if lists(value, "gzip") { clientTakesGzip = true }
      } else if let coding, bytesEqual(name, coding) {
        requestCoding = Coding(value)
      }
    }
    settleCodings(isListed)
  }

  /// "If the client omits Accept-Encoding, servers must assume that the client accepts the Content-Encoding used for the
  /// request if present."
  private func settleCodings(_ isListed: Bool) {
    if !isListed && requestCoding == .gzip { clientTakesGzip = true }
    if requestCoding == .unknown {
      end(.unimplemented, "unknown compression: supported encodings are identity, gzip")
    }
  }

  /// Reads the query of a GET, and puts the message from the query into `message`.
  func readQuery(into message: ByteBuffer) {
    var (hasMessage, isBase64) = (false, false)
    let raw = ByteBuffer()
    var query = Query(self.query)
    while let (name, value) = query.next() {
      if bytesEqual(name, "message") {
        hasMessage = true
        raw.removeAll(keepingCapacity: true)
        if !Query.decode(value, into: raw) { return end(.invalidArgument, "message= is not percent-encoded") }
      } else if bytesEqual(name, "base64") {
        isBase64 = bytesEqual(value, "1")
      } else if bytesEqual(name, "compression") {
        requestCoding = value.isEmpty ? .identity : Coding(value)
      } else if bytesEqual(name, "connect") && !bytesEqual(value, "v1") {
        return end(.invalidArgument, "connect= must be \"v1\"")
      }
    }
    guard hasMessage else { return end(.invalidArgument, "the query has no message=") }
    var isListed = false
    eachField { name, _ in if bytesEqual(name, "accept-encoding") { isListed = true } }
    settleCodings(isListed)
    if isBase64 {
      guard Query.decodeBase64(raw.view, into: message) else {
        return end(.invalidArgument, "message= is not base64")
      }
    } else {
      message.put(raw.view)
    }
    if message.count > session?.options.maxMessageBytes ?? 0 {
      end(.resourceExhausted, "the request message is larger than the limit")
    }
  }

  /// The encoded google.rpc.Status that the client asks for by metadata, in base64; nil: the client asks for
  /// none.
  func details() -> ByteView? {
    guard knobs.hasMessage && knobs.status != nil else { return nil }
    var found: ByteView?
    eachField { name, value in if bytesEqual(name, "x-details-bin") { found = value } }
    return found
  }
}

/// Reads the parameters of a URL's query, one after the other.
struct Query {
  private var rest: ByteView

  init(_ query: ByteView) { rest = query }

  mutating func next() -> (name: ByteView, value: ByteView)? {
    while !rest.isEmpty {
      let pair = cut(rest, before: "&")
      rest = part(rest, pair.count + 1, rest.count)
      if pair.isEmpty { continue }
      let name = cut(pair, before: "=")
      return (name, part(pair, name.count + 1, pair.count))
    }
    return nil
  }

  /// The value of the parameter `name`; nil: the query has no such parameter.
  static func value(_ query: ByteView, _ name: StaticString) -> ByteView? {
    var reader = Query(query)
    while let (found, value) = reader.next() { if bytesEqual(found, name) { return value } }
    return nil
  }

  /// Decodes a percent-encoded value, and appends its bytes to `out`. A plus sign means a space. False:
  /// malformed, or no memory.
  static func decode(_ text: ByteView, into out: ByteBuffer) -> Bool {
    var at = 0
    while at < text.count {
      var byte = text[at]
      at += 1
      if byte == 0x2B { byte = 0x20 }
      if byte == 0x25 {
        guard at + 1 < text.count, let high = hexValue(text[at]), let low = hexValue(text[at + 1]) else {
          return false
        }
        byte = high << 4 | low
        at += 2
      }
      if !out.append(byte: byte) { return false }
    }
    return true
  }

  /// Decodes URL-safe base64 (RFC 4648 section 5), with or without padding, and appends the bytes to `out`.
  /// False: malformed, or no memory.
  static func decodeBase64(_ text: ByteView, into out: ByteBuffer) -> Bool {
    let letters = ByteBuffer()
    for byte in text {
      if byte == 0x2B || byte == 0x2F { return false }
      guard letters.append(byte: byte == 0x2D ? 0x2B : byte == 0x5F ? 0x2F : byte) else { return false }
    }
    return Base64.decode(letters.view, into: out) == .ok
  }
}
