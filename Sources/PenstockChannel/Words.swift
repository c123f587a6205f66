import CSystem
import PenstockCall
import PenstockWire

/// A failure, in words, before there is a call that could carry a status.
public struct SetupFailure {
  public enum Kind { case option, system, memory }

  public let kind: Kind
  /// The input at fault: "target", or a TLS option ("roots_pem"); empty when no single option is at fault.
  public let field: StaticString
  /// The failure in words, UTF-8.
  public let text: ByteBuffer

  public init(_ field: StaticString, _ text: ByteBuffer, _ kind: Kind = .option) {
    self.field = field
    self.text = text
    self.kind = kind
  }

  public init(_ field: StaticString, _ text: StaticString) {
    self.init(field, ByteBuffer().say(text))
  }

  public static var noMemory: SetupFailure { SetupFailure("", ByteBuffer().say("no memory"), .memory) }
}

/// A thing that was made, or the reason why it was not.
public enum Made<Value> {
  case made(Value)
  case failed(SetupFailure)
}

/// Composes texts for people. If memory runs out, the text is cut short, and no error is reported.
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

  /// The text of an errno value.
  @discardableResult
  public func say(errno code: Int32) -> ByteBuffer {
    withUnsafeTemporaryAllocation(of: CChar.self, capacity: 128) { text in
      cs_error_text(code, text.baseAddress, text.count)
      return say(cString: text.baseAddress.map { UnsafePointer($0) })
    }
  }

  /// Adds a text that is in an array, such as the text of an address.
  @discardableResult
  public func say(_ text: [UInt8]) -> ByteBuffer { text.withUnsafeBytes { say($0) } }

  /// Adds at most `limit` bytes that a peer has sent, with a dot for each that is not printable ASCII.
  @discardableResult
  public func say(printable bytes: ByteView, limit: Int) -> ByteBuffer {
    for byte in bytes.prefix(limit) { _ = append(byte: byte >= 0x20 && byte < 0x7F ? byte : 0x2E) }
    if bytes.count > limit { say("...") }
    return self
  }
}

/// A view does not keep its buffer, so a composed text is passed as a buffer, which lives until the called function
/// returns.
extension Status {
  public convenience init(_ code: StatusCode, words: ByteBuffer) {
    self.init(code)
    _ = setMessage(words.view)
  }
}
