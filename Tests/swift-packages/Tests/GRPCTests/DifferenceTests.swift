import Glibc
import GRPCCore
import Testing

/// The behaviour in which the transport on libpenstock and that of grpc-swift differ: docs/swift.md lists it.
@Suite(.timeLimit(.minutes(15))) struct DifferenceTests {
  static func code(_ body: () async throws -> Void) async -> RPCError.Code? {
    do {
      try await body()
      return nil
    } catch { return (error as? RPCError)?.code }
  }

  static func all(_ name: String, _ metadata: Metadata) -> [String] { Array(metadata[stringValues: name]) }

  @Test func callsBeforeTheConnection() async throws {
    let server = try Server()
    let client = GRPCClient(transport: try makeTransport(server.target))
    let code = await Self.code {
      var options = CallOptions.defaults
      // NIO's transport waits for runConnections(), which nobody calls.
      options.timeout = isNIO ? .milliseconds(200) : nil
      let response = try await client.unary(bytes("early"), [:], options)
      #expect(try response.message == bytes("early"))
    }
    #expect(code == (isNIO ? .deadlineExceeded : nil))
  }

  @Test func streamsAfterTheShutdown() async throws {
    let server = try Server()
    let transport = try makeTransport(server.target)
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await transport.connect() }
      try await transport.withStream(descriptor: .bidi, options: .defaults) { stream, _ in
        try await stream.outbound.write(.metadata([:]))
        await stream.outbound.finish()
        for try await _ in stream.inbound {}
      }
      transport.beginGracefulShutdown()
      try await group.waitForAll()
    }
    let code = await Self.code {
      try await transport.withStream(descriptor: .unary, options: .defaults) { _, _ in }
    }
    // The protocol ClientTransport wants failedPrecondition.
    #expect(code == (isNIO ? .unavailable : .failedPrecondition))
  }

  @Test func thePeerOfAName() async throws {
    struct Peer: ClientInterceptor {
      func intercept<Input: Sendable, Output: Sendable>(
        request: StreamingClientRequest<Input>, context: ClientContext,
        next: (StreamingClientRequest<Input>, ClientContext) async throws -> StreamingClientResponse<Output>
      ) async throws -> StreamingClientResponse<Output> {
        var request = request
        request.metadata.addString(context.remotePeer, forKey: "x-headers-peer")
        return try await next(request, context)
      }
    }
    let server = try Server()
    let port = server.target.split(separator: ":")[1]
    try await withClient(target: "localhost:\(port)", interceptors: [Peer()]) { client in
      let response = try await client.unary([1])
      let peer = isNIO ? "ipv4:127.0.0.1:\(port)" : "dns:localhost:\(port)"
      #expect(Self.all("x-headers-peer", response.metadata) == [peer])
    }
  }

  @Test func theFieldsOfAResponse() async throws {
    try await withClient { client in
      let response = try await client.unary([1], ["x-headers-a": "1"])
      let names = Set(response.metadata.map(\.key))
      #expect(names == (isNIO ? [":status", "content-type", "x-headers-a"] : ["x-headers-a"]))
    }
  }

  /// NIO's transport sends the field twice, which the server refuses.
  @Test func namesOfTheProtocol() async throws {
    try await withClient { client in
      let response = try await client.unary([1], ["content-type": "text/html"])
      #expect(error(response)?.code == (isNIO ? .unknown : .invalidArgument))
      #expect(error(response)?.message.contains(isNIO ? "415" : "content-type") == true)
    }
  }

  @Test func anErrorOfTheRequestsEndsTheCall() async throws {
    struct Mine: Error {}
    try await withClient { client in
      func code(_ thrown: any Error) async -> RPCError.Code? {
        await Self.code {
          try await client.call(.bidi, [:], .defaults) { writer in
            try await writer.write([1])
            throw thrown
          } _: { response in
            for try await _ in response.messages {}
          }
        }
      }
      let own = await code(RPCError(code: .dataLoss, message: "mine"))
      let other = await code(Mine())
      #expect(own == (isNIO ? .unavailable : .dataLoss))
      #expect(other == (isNIO ? .unavailable : .unknown))
    }
  }

  @Test func sizesAreLimited() async throws {
    try await withClient { client in
      func code(_ count: Int, _ options: CallOptions) async throws -> RPCError.Code? {
        error(try await client.unary([UInt8](repeating: 0, count: count), [:], options))?.code
      }
      var options = CallOptions.defaults
      options.maxResponseMessageBytes = 10
      var larger = try await code(11, options)
      var equal = try await code(10, options)
      // NIO's transport does not look at it.
      #expect(larger == (isNIO ? nil : .resourceExhausted))
      #expect(equal == nil)

      options = .defaults
      options.maxRequestMessageBytes = 10
      larger = try await code(11, options)
      equal = try await code(10, options)
      // NIO's transport sends the request, and refuses a response of this size.
      #expect(larger == (isNIO ? .internalError : .resourceExhausted))
      #expect(equal == nil)
    }
  }

  @Test func compressionNeedNotBeEnabled() async throws {
    let server = try Server()
    try await withGRPCClient(transport: makeTransport(server.target, compresses: false)) { client in
      var options = CallOptions.defaults
      options.compression = .gzip
      let response = try await client.unary(
        [UInt8](repeating: 7, count: 10_000), ["x-echo-metadata": "1"], options)
      let seen = Self.all("seen-grpc-encoding", response.trailingMetadata)
      #expect(seen == (isNIO ? [] : ["gzip"]))
    }
  }

  /// A server that refuses the first attempt, and says that there should be no other; the second one would succeed.
  @Test func theServerForbidsARetry() async throws {
    let script = """
      handshake
      expect headers
      trailers
        :status: 200
        content-type: application/grpc
        grpc-status: 14
        grpc-retry-pushback-ms: -1
      expect headers
      answer
      data message="again"
      trailers
        grpc-status: 0
      """
    var name = Array("/tmp/penstock-XXXXXX".utf8CString)
    let file = mkstemp(&name)
    try #require(file >= 0)
    let path = String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    defer { unlink(path) }
    let written = write(file, script, script.utf8.count)
    close(file)
    try #require(written == script.utf8.count)
    let server = try Server(["--script", path])
    try await withClient(to: server, config: EndTests.retrying(3)) { client in
      let response = try await client.unary([1])
      #expect(error(response)?.code == .unavailable)
    }
  }
}
