#if GRPCSwift
  import GRPCCore
  import Penstock

  /// The parts of a response as GRPCCore reads them: metadata, messages, and the status last. A response without headers is
  /// a status alone.
  struct ResponseParts: AsyncSequence, Sendable {
    typealias Element = RPCResponsePart<[UInt8]>
    typealias Failure = any Error

    private let stream: ClientStream

    init(_ stream: ClientStream) { self.stream = stream }

    func makeAsyncIterator() -> Iterator { Iterator(stream) }

    struct Iterator: AsyncIteratorProtocol {
      private enum Position {
        case headers
        case messages(ClientStream.BytesCall, Responses<[UInt8]>.Iterator)
        case over
      }

      private let stream: ClientStream
      private var position = Position.headers

      init(_ stream: ClientStream) { self.stream = stream }

      mutating func next() async throws -> RPCResponsePart<[UInt8]>? {
        switch position {
        case .headers: try await headers()
        case .messages(let call, let messages): try await message(call, messages)
        case .over: nil
        }
      }

      private mutating func headers() async throws -> RPCResponsePart<[UInt8]> {
        let call = try await stream.call()
        // An answer from an interceptor may have no headers. GRPCCore wants metadata before messages.
        var headers = Penstock.Metadata()
        switch await call.beginning() {
        case .headers(let received): headers = received
        case .message: break
        case .end(let status): if status.code != .ok { return try await end(status, of: call) }
        }
        position = .messages(call, call.responses.makeAsyncIterator())
        return .metadata(GRPCCore.Metadata(headers))
      }

      private mutating func message(
        _ call: ClientStream.BytesCall, _ messages: Responses<[UInt8]>.Iterator
      ) async throws -> RPCResponsePart<[UInt8]> {
        var messages = messages
        do {
          if let bytes = try await messages.next() {
            position = .messages(call, messages)
            return .message(bytes)
          }
        } catch let error as Penstock.RPCError {
          return try await end(error.status, of: call)
        }
        return try await end(await call.status(), of: call)
      }

      private mutating func end(
        _ status: Penstock.Status, of call: ClientStream.BytesCall
      ) async throws -> RPCResponsePart<[UInt8]> {
        position = .over
        if status.code == .ok { return .status(GRPCCore.Status(status), GRPCCore.Metadata(status.trailers)) }
        if let failure = stream.failure { throw failure }
        var trailers = GRPCCore.Metadata(status.trailers)
        // GRPCCore's retries read the server's word on them in the metadata, where the library leaves out its protocol.
        if let wait = await call.retryPushback() {
          trailers.addString("\(wait)", forKey: "grpc-retry-pushback-ms")
        }
        return .status(GRPCCore.Status(status), trailers)
      }
    }
  }
#endif
