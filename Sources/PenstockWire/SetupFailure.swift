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
