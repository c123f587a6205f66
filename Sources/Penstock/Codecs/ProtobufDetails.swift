#if SwiftProtobuf
  public import SwiftProtobuf

  // Only with the package trait SwiftProtobuf.

  extension Status.Detail {
    /// Makes a detail of a message; its type URL is "type.googleapis.com/" and the message's full name.
    public init<Message: SwiftProtobuf.Message>(_ message: Message) throws {
      self.init(
        typeURL: "type.googleapis.com/\(Message.protoMessageName)", value: try message.serializedBytes())
    }
  }

  extension Status {
    /// The details that are messages of a type, in order.
    ///
    /// - Throws: the error of SwiftProtobuf: a detail has that type, but its bytes are no such message.
    public func details<Message: SwiftProtobuf.Message>(of type: Message.Type) throws -> [Message] {
      try details(ofType: Message.protoMessageName).map { try Message(serializedBytes: $0) }
    }
  }

  extension RPCError {
    /// The details that are messages of a type, in order: of google.rpc.Status in "grpc-status-details-bin", or of an
    /// error of Connect.
    ///
    /// - Throws: the error of SwiftProtobuf: a detail has that type, but its bytes are no such message.
    public func details<Message: SwiftProtobuf.Message>(of type: Message.Type) throws -> [Message] {
      try status.details(of: type)
    }
  }
#endif
