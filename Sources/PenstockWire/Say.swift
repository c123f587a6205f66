import CPenstockSystem

/// Composes texts for people. If memory runs out, the text is cut short without an error.
extension ByteBuffer {
  @discardableResult
  public func say(_ words: StaticString) -> ByteBuffer {
    _ = append(words.bytes)
    return self
  }

  @discardableResult
  public func say(_ bytes: ByteView) -> ByteBuffer {
    _ = append(bytes)
    return self
  }

  @discardableResult
  public func say(_ number: Int) -> ByteBuffer {
    if number < 0 { _ = append(byte: 0x2D) }
    return say(unsigned: UInt64(number.magnitude))
  }

  @discardableResult
  public func say(unsigned number: UInt64) -> ByteBuffer {
    var digits: UInt64 = 1
    while number / digits >= 10 { digits &*= 10 }
    while digits > 0 {
      _ = append(byte: 0x30 &+ UInt8(truncatingIfNeeded: number / digits % 10))
      digits /= 10
    }
    return self
  }

  @discardableResult
  public func say(cString: UnsafePointer<CChar>?) -> ByteBuffer {
    guard let cString else { return self }
    return say(ByteView(start: cString, count: strlen(cString)))
  }

  /// Appends the system's text for an errno value.
  @discardableResult
  public func say(errno code: Int32) -> ByteBuffer {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 128) { text in
      cs_error_text(code, text.baseAddress, text.count)
      return say(cString: text.baseAddress.map { UnsafePointer($0) })
    }
  }

  /// Appends a text from an array, for example the text of an address.
  @discardableResult
  public func say(_ text: [UInt8]) -> ByteBuffer { text.withUnsafeBytes { say($0) } }

  /// Appends at most `limit` bytes that a peer has sent; a dot replaces each that is not printable ASCII.
  @discardableResult
  public func say(printable bytes: ByteView, limit: Int) -> ByteBuffer {
    for byte in bytes.prefix(limit) { _ = append(byte: byte >= 0x20 && byte < 0x7F ? byte : 0x2E) }
    if bytes.count > limit { say("...") }
    return self
  }
}
