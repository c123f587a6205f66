/// Turns the values of a program into the bytes of messages, and back.
public struct Codec<Message: Sendable>: Sendable {
  /// The name of the encoding in the content-type, such as "json"; nil: the usual one, "proto".
  public let contentSubtype: String?
  let encode: @Sendable (Message) throws -> [UInt8]
  let decode: @Sendable ([UInt8]) throws -> Message

  /// Makes a codec of two functions. An error of `encode` is thrown where the message was to be sent, one of `decode`
  /// where the message is received; the call is cancelled then.
  public init(
    contentSubtype: String? = nil, encode: @escaping @Sendable (Message) throws -> [UInt8],
    decode: @escaping @Sendable ([UInt8]) throws -> Message
  ) {
    self.contentSubtype = contentSubtype
    self.encode = encode
    self.decode = decode
  }
}

extension Codec where Message == [UInt8] {
  /// Messages that are bytes.
  public static var bytes: Codec { Codec(encode: { $0 }, decode: { $0 }) }
}

/// A method of a service, with the codecs of its messages.
public struct Method<Request: Sendable, Response: Sendable>: Sendable {
  /// The path, "/package.Service/Method".
  public let path: String
  let requests: Codec<Request>
  let responses: Codec<Response>

  /// Makes a method.
  public init(_ path: String, requests: Codec<Request>, responses: Codec<Response>) {
    self.path = path
    self.requests = requests
    self.responses = responses
  }
}

extension Method where Request == [UInt8], Response == [UInt8] {
  /// Makes a method whose messages are bytes.
  public init(_ path: String) { self.init(path, requests: .bytes, responses: .bytes) }
}

/// The four kinds of calls.
public enum CallKind: Int32, Sendable, CaseIterable {
  /// One request, one response.
  case unary
  /// Many requests, one response.
  case clientStream
  /// One request, many responses.
  case serverStream
  /// Many requests, many responses.
  case bidi

  /// Whether a call of this kind has exactly one response.
  public var hasOneResponse: Bool { self == .unary || self == .clientStream }
}
