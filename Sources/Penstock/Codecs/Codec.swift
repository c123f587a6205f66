/// Turns the values of a program into the bytes of messages, and back.
///
/// ``BytesCodec``, ``JSONCodec`` and ``Codec``, which is made of two functions, are codecs; with the package trait
/// SwiftProtobuf there is `ProtobufCodec`, too. Two tasks may use a codec at once.
public protocol MessageCodec<Message>: Sendable {
  /// The type of the values.
  associatedtype Message: Sendable
  /// The name of the encoding in the content-type, such as "json"; nil: the name that the channel has, or "proto".
  var contentSubtype: String? { get }
  /// Gives the bytes of a value. Its error is thrown where the message was to be sent, and the call is cancelled.
  func encode(_ message: Message) throws -> [UInt8]
  /// Gives the value of bytes. Its error is thrown where the message is received, and the call is cancelled
  /// unless it has ended.
  func decode(_ bytes: [UInt8]) throws -> Message
}

/// A codec of two functions.
public struct Codec<Message: Sendable>: MessageCodec {
  /// The name of the encoding in the content-type, such as "json"; nil: the name that the channel has, or "proto".
  public let contentSubtype: String?
  private let encoding: @Sendable (Message) throws -> [UInt8]
  private let decoding: @Sendable ([UInt8]) throws -> Message

  /// Makes a codec of two functions.
  public init(
    contentSubtype: String? = nil, encode: @escaping @Sendable (Message) throws -> [UInt8],
    decode: @escaping @Sendable ([UInt8]) throws -> Message
  ) {
    self.contentSubtype = contentSubtype
    encoding = encode
    decoding = decode
  }

  /// Gives the bytes of a value.
  public func encode(_ message: Message) throws -> [UInt8] { try encoding(message) }
  /// Gives the value of bytes.
  public func decode(_ bytes: [UInt8]) throws -> Message { try decoding(bytes) }
}

/// Takes messages as the bytes that they are.
public struct BytesCodec: MessageCodec {
  /// Makes a codec for bytes.
  public init() {}
  /// The name of the encoding; nil: that of the channel, or "proto".
  public var contentSubtype: String? { nil }
  /// Gives `message`.
  public func encode(_ message: [UInt8]) -> [UInt8] { message }
  /// Gives `bytes`.
  public func decode(_ bytes: [UInt8]) -> [UInt8] { bytes }
}

extension MessageCodec where Self == BytesCodec {
  /// Messages that are bytes.
  public static var bytes: BytesCodec { BytesCodec() }
}

/// A method of a service, with the encodings of its messages.
public struct Method<Request: Sendable, Response: Sendable>: Sendable {
  /// The path, "/package.Service/Method".
  public let path: String
  let contentSubtype: String?
  let encode: @Sendable (Request) throws -> [UInt8]
  let decode: @Sendable ([UInt8]) throws -> Response

  /// Makes a method. The content-type is that of `requests`.
  public init<Requests: MessageCodec<Request>, Responses: MessageCodec<Response>>(
    _ path: String, requests: Requests, responses: Responses
  ) {
    self.init(
      path, subtype: requests.contentSubtype, encode: { try requests.encode($0) },
      decode: { try responses.decode($0) })
  }

  init(
    _ path: String, subtype: String?, encode: @escaping @Sendable (Request) throws -> [UInt8],
    decode: @escaping @Sendable ([UInt8]) throws -> Response
  ) {
    self.path = path
    contentSubtype = subtype
    self.encode = encode
    self.decode = decode
  }
}

extension Method where Request == [UInt8], Response == [UInt8] {
  /// Makes a method whose messages are bytes.
  public init(_ path: String) { self.init(path, requests: .bytes, responses: .bytes) }
}
