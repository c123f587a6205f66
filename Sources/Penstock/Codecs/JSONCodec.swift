public import FoundationEssentials

/// Messages that are Codable values, as JSON.
///
/// The content-type is then "application/grpc+json", or with Connect "application/json".
public struct JSONCodec<Message: Codable & Sendable>: MessageCodec {
  private let encoder: JSONEncoder
  private let decoder: JSONDecoder

  /// Makes a codec. An encoder and a decoder of the program's own are for dates, keys and the like; they are not
  /// changed any more once a codec has them.
  public init(encoder: JSONEncoder = JSONEncoder(), decoder: JSONDecoder = JSONDecoder()) {
    self.encoder = encoder
    self.decoder = decoder
  }

  /// The name of the encoding: "json".
  public var contentSubtype: String? { "json" }
  /// Gives the JSON of a value.
  public func encode(_ message: Message) throws -> [UInt8] { try encoder.bytes(message) }
  /// Gives the value of JSON.
  public func decode(_ bytes: [UInt8]) throws -> Message { try decoder.value(bytes) }
}

extension MessageCodec {
  /// Messages of a Codable type, as JSON.
  public static func json<Message: Codable & Sendable>(_ type: Message.Type) -> JSONCodec<Message>
  where Self == JSONCodec<Message> { JSONCodec() }
}

extension Method where Request: Encodable, Response: Decodable {
  /// Makes a method whose messages are JSON. A message that is `[UInt8]` is JSON already.
  public static func json(_ path: String) -> Method {
    let encoder = JSONEncoder()
    let decoder = JSONDecoder()
    // A cast alone would take any empty array for bytes.
    let isWritten = Request.self == [UInt8].self
    let isRead = Response.self == [UInt8].self
    return Method(
      path, subtype: "json", encode: { try (isWritten ? $0 as? [UInt8] : nil) ?? encoder.bytes($0) },
      decode: { try (isRead ? $0 as? Response : nil) ?? decoder.value($0) })
  }
}

extension JSONEncoder {
  fileprivate func bytes<Message: Encodable>(_ message: Message) throws -> [UInt8] {
    [UInt8](try encode(message))
  }
}

extension JSONDecoder {
  func value<Message: Decodable>(_ bytes: [UInt8]) throws -> Message {
    try decode(Message.self, from: Data(bytes))
  }
}

// Calls of a path, whose messages are Codable values.
extension Channel {
  /// Makes a unary call with Codable values, as JSON; the path is "/package.Service/Method".
  ///
  /// - Throws: as ``unary(_:_:options:)``, and the errors of JSONEncoder and JSONDecoder.
  public func unary<Request: Encodable & Sendable, Response: Decodable & Sendable>(
    _ path: String, _ request: Request, as response: Response.Type, options: CallOptions = CallOptions()
  ) async throws -> Response {
    try await unary(.json(path), request, options: options)
  }

  /// Makes a call with many requests, which are Codable values, as JSON.
  public func clientStream<Response: Decodable & Sendable, Requests: AsyncSequence & Sendable>(
    _ path: String, _ requests: Requests, as response: Response.Type, options: CallOptions = CallOptions()
  ) async throws -> Response where Requests.Element: Encodable & Sendable {
    try await clientStream(.json(path), requests, options: options)
  }

  /// Makes a call with many responses, which are Codable values, as JSON.
  public func serverStream<Request: Encodable & Sendable, Response: Decodable & Sendable>(
    _ path: String, _ request: Request, as response: Response.Type, options: CallOptions = CallOptions()
  ) async throws -> Responses<Response> {
    try await serverStream(.json(path), request, options: options)
  }

  /// Makes a call with many requests and many responses, which are Codable values, as JSON.
  public func bidi<Response: Decodable & Sendable, Requests: AsyncSequence & Sendable>(
    _ path: String, _ requests: Requests, as response: Response.Type, options: CallOptions = CallOptions()
  ) async throws -> Responses<Response> where Requests.Element: Encodable & Sendable {
    try await bidi(.json(path), requests, options: options)
  }
}
