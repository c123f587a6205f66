#if SwiftProtobuf
  public import SwiftProtobuf

  // Only with the package trait SwiftProtobuf.

  /// How a message of SwiftProtobuf becomes bytes.
  public enum ProtobufEncoding: String, Sendable, CaseIterable {
    /// The binary form.
    case binary = "proto"
    /// ProtoJSON, which servers of Connect have.
    case json
  }

  /// Messages of SwiftProtobuf.
  public struct ProtobufCodec<Message: SwiftProtobuf.Message>: MessageCodec {
    /// The form of the messages.
    public let encoding: ProtobufEncoding

    /// Makes a codec.
    public init(_ encoding: ProtobufEncoding = .binary) { self.encoding = encoding }

    /// The name of the encoding: "proto" or "json".
    public var contentSubtype: String? { encoding.rawValue }

    /// Gives the bytes of a message.
    public func encode(_ message: Message) throws -> [UInt8] {
      switch encoding {
      case .binary: try message.serializedBytes()
      case .json: try message.jsonUTF8Bytes()
      }
    }

    /// Gives the message of bytes. Fields of JSON that the type does not have are left out.
    public func decode(_ bytes: [UInt8]) throws -> Message {
      switch encoding {
      case .binary: return try Message(serializedBytes: bytes)
      case .json:
        var options = JSONDecodingOptions()
        options.ignoreUnknownFields = true
        return try Message(jsonUTF8Bytes: bytes, options: options)
      }
    }
  }

  extension MessageCodec {
    /// Messages of a type of SwiftProtobuf.
    public static func protobuf<Message: SwiftProtobuf.Message>(
      _ type: Message.Type, _ encoding: ProtobufEncoding = .binary
    ) -> ProtobufCodec<Message> where Self == ProtobufCodec<Message> { ProtobufCodec(encoding) }
  }

  extension Method where Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message {
    /// Makes a method whose messages are those of SwiftProtobuf.
    public static func protobuf(_ path: String, _ encoding: ProtobufEncoding = .binary) -> Method {
      Method(
        path, requests: ProtobufCodec<Request>(encoding), responses: ProtobufCodec<Response>(encoding))
    }
  }

  // Calls of a path, whose messages are those of SwiftProtobuf. They are JSON if the content subtype of the call's
  // options or the channel's is "json", and else binary.
  extension Channel {
    private func encoding(_ options: CallOptions) -> ProtobufEncoding {
      (options.contentSubtype ?? self.options.contentSubtype) == "json" ? .json : .binary
    }

    /// Makes a unary call with messages of SwiftProtobuf; the path is "/package.Service/Method".
    ///
    /// - Throws: as ``unary(_:_:options:)``, and the errors of SwiftProtobuf.
    public func unary<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
      _ path: String, _ request: Request, as response: Response.Type, options: CallOptions = CallOptions()
    ) async throws -> Response {
      try await unary(.protobuf(path, encoding(options)), request, options: options)
    }

    /// Makes a call with many requests, which are messages of SwiftProtobuf.
    public func clientStream<Response: SwiftProtobuf.Message, Requests: AsyncSequence & Sendable>(
      _ path: String, _ requests: Requests, as response: Response.Type, options: CallOptions = CallOptions()
    ) async throws -> Response where Requests.Element: SwiftProtobuf.Message {
      try await clientStream(.protobuf(path, encoding(options)), requests, options: options)
    }

    /// Makes a call with many responses, which are messages of SwiftProtobuf.
    public func serverStream<Request: SwiftProtobuf.Message, Response: SwiftProtobuf.Message>(
      _ path: String, _ request: Request, as response: Response.Type, options: CallOptions = CallOptions()
    ) async throws -> Responses<Response> {
      try await serverStream(.protobuf(path, encoding(options)), request, options: options)
    }

    /// Makes a call with many requests and many responses, which are messages of SwiftProtobuf.
    public func bidi<Response: SwiftProtobuf.Message, Requests: AsyncSequence & Sendable>(
      _ path: String, _ requests: Requests, as response: Response.Type, options: CallOptions = CallOptions()
    ) async throws -> Responses<Response> where Requests.Element: SwiftProtobuf.Message {
      try await bidi(.protobuf(path, encoding(options)), requests, options: options)
    }
  }
#endif
