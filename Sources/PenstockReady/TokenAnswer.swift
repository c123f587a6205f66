import PenstockWire

/// A form that is posted to a token server (RFC 6749 appendix B).
struct Form {
  let text = ByteBuffer()
  private(set) var isComplete = true

  mutating func add(_ name: StaticString, _ value: StaticString) { add(name, value.bytes) }

  /// Adds a field, unless the value is empty.
  mutating func add(_ name: StaticString, _ value: ByteBuffer) {
    withExtendedLifetime(value) { if !value.isEmpty { add(name, value.view) } }
  }

  private mutating func add(_ name: StaticString, _ value: ByteView) {
    let isWritten =
      (text.isEmpty || text.append(byte: 0x26)) && text.append(name) && text.append(byte: 0x3D)
      && PercentCoding.encodeForURL(value, into: text)
    isComplete = isComplete && isWritten
  }
}

/// The answer of a token server (RFC 6749 sections 5.1 and 5.2), read from its body.
struct TokenAnswer {
  let token = ByteBuffer()
  let type = ByteBuffer()
  let refreshToken = ByteBuffer()
  let error = ByteBuffer()
  let description = ByteBuffer()
  /// In nanoseconds; nil: the answer has none.
  private(set) var lifetime: UInt64?
  /// Whether the body is a JSON object, and has been read. If not, the other members say nothing.
  private(set) var isObject = false
  private(set) var lacksMemory = false

  init(_ body: ByteBuffer) {
    withExtendedLifetime(body) { read(body.view) }
  }

  private mutating func read(_ body: ByteView) {
    var scanner = JSONScanner(body)
    let name = ByteBuffer()
    guard scanner.opens(JSONScanner.object) else { return }
    while scanner.nextMember(name) {
      if bytesEqual(name.view, "access_token") {
        _ = scanner.string(into: token)
      } else if bytesEqual(name.view, "token_type") {
        _ = scanner.string(into: type)
      } else if bytesEqual(name.view, "refresh_token") {
        _ = scanner.string(into: refreshToken)
      } else if bytesEqual(name.view, "error") {
        _ = scanner.string(into: error)
      } else if bytesEqual(name.view, "error_description") {
        _ = scanner.string(into: description)
      } else if bytesEqual(name.view, "expires_in") {
        readLifetime(&scanner)
      }
    }
    lacksMemory = scanner.lacksMemory
    isObject = scanner.isAtEnd
  }

  /// Reads seconds. Some servers write them as a string.
  private mutating func readLifetime(_ scanner: inout JSONScanner) {
    let most: UInt64 = 1_000_000_000
    let text = ByteBuffer()
    var seconds: UInt64?
    if scanner.string(into: text) {
      var digits = JSONScanner(text.view)
      seconds = digits.wholeNumber(most: most)
    } else {
      seconds = scanner.wholeNumber(most: most)
    }
    lifetime = seconds.map { $0 * 1_000_000_000 }
    withExtendedLifetime(text) {}
  }

  /// Adds the server's error to the text, if the answer has one. A part that contains one of the secrets is left out.
  func say(in words: ByteBuffer, hiding secrets: [ByteBuffer]) {
    guard isObject else { return }
    for part in [error, description] where !part.isEmpty && !secrets.contains(where: { isIn(part, $0) }) {
      withExtendedLifetime(part) { _ = words.say(": ").say(printable: part.view, limit: 200) }
    }
  }

  private func isIn(_ text: ByteBuffer, _ secret: ByteBuffer) -> Bool {
    let size = secret.count
    guard size > 0, text.count >= size else { return false }
    return withExtendedLifetime((text, secret)) {
      (0...text.count - size).contains { at in
        bytesEqual(ByteView(rebasing: text.view[at..<at + size]), secret.view)
      }
    }
  }
}
