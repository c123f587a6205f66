import CSystem
import PenstockCall
import PenstockWire

/// An error that occurs before there is a call whose status could report it.
public struct SetupFailure {
  public enum Kind { case option, system, memory }

  public let kind: Kind
  /// The faulty input: "target", or a TLS option such as "roots_pem". Empty: no single option is at fault.
  public let field: StaticString
  /// The description of the error, in UTF-8.
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

/// The result of making something: the thing, or the reason why it could not be made.
public enum Made<Value> {
  case made(Value)
  case failed(SetupFailure)
}

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

/// A status whose message is a composed text. The text is passed as a buffer, because a view does not keep
/// its buffer: the buffer exists until the called function returns.
extension Status {
  public convenience init(_ code: StatusCode, words: ByteBuffer) {
    self.init(code)
    _ = setMessage(words.view)
  }
}
