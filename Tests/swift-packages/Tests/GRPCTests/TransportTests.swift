import GRPCCore
import Penstock
import PenstockGRPC
import Testing

/// The transport itself: its channel with live interceptors, and its streams without a client above them.
@Suite(.timeLimit(.minutes(15))) struct TransportTests {
  /// Runs `body` while `connect()` runs; its end shuts the transport down.
  static func withTransport(
    _ transport: PenstockClientTransport, _ body: (PenstockClientTransport) async throws -> Void
  ) async throws {
    try await withThrowingTaskGroup(of: Void.self) { group in
      group.addTask { try await transport.connect() }
      try await body(transport)
      transport.beginGracefulShutdown()
      try await group.waitForAll()
    }
  }

  static func transport(_ server: Server) throws -> PenstockClientTransport {
    try PenstockClientTransport(target: server.target, options: .cleartext)
  }

  static func firstString(_ metadata: GRPCCore.Metadata, _ name: String) -> String? {
    metadata[stringValues: name].first { _ in true }
  }

  // ---- Interceptors beneath grpc-swift ----

  @Test func interceptorsOfTheChannelAreLive() async throws {
    let server = try Server()
    let transport = try Self.transport(server)
    try await withGRPCClient(transport: transport) { client in
      func seen(_ method: MethodDescriptor) async throws -> String? {
        let response = try await client.unary([1], ["x-headers-a": "request"], .defaults, method)
        return Self.firstString(response.metadata, "x-headers-b")
      }
      #expect(try await seen(.unary) == nil)
      let registration = try transport.channel.addInterceptor(
        "label",
        .around { call in
          call.start.metadata["x-headers-b"] = ["added to \(call.start.metadata.first("x-headers-a") ?? "")"]
          try await call.next()
        }, kinds: [.unary])
      #expect(try await seen(.unary) == "added to request")
      // A call whose kind is not known is a bidi call.
      #expect(try await seen(.echo("Unary", nil)) == nil)
      try registration.remove()
      #expect(try await seen(.unary) == nil)
    }
  }

  @Test func anInterceptorOfTheChannelAnswersWithoutAServer() async throws {
    let server = try Server()
    let transport = try Self.transport(server)
    try await withGRPCClient(transport: transport) { client in
      try transport.channel.addInterceptor(
        "answers",
        .around { call in
          let isUnary = call.start.method.hasSuffix("/Unary")
          call.start.answer(CallAnswer(messages: isUnary ? [bytes("one")] : [bytes("one"), bytes("two")]))
        }, methods: ["/penstock.Echo/Unary", "/penstock.Echo/ServerStream"])
      #expect(try await client.unary([1]).message == bytes("one"))
      #expect(try await client.all(.serverStream, [[1]]) == [bytes("one"), bytes("two")])
      try transport.channel.addInterceptor(
        "refuses",
        .around { _ in
          throw Penstock.RPCError(
            .permissionDenied, "closed", details: [Penstock.Status.Detail(typeURL: "x/y", value: [1])],
            trailers: ["x-reason": "late"])
        }, priority: 900, methods: ["/penstock.Echo/Unary"])
      let refused = await #expect(throws: GRPCCore.RPCError.self) { try await client.unary([1]).message }
      #expect(refused?.code == .permissionDenied)
      #expect(refused?.message == "closed")
      #expect(refused.flatMap { Self.firstString($0.metadata, "x-reason") } == "late")
      #expect(refused?.metadata[binaryValues: "grpc-status-details-bin"].first { _ in true } != nil)
    }
  }

  // ---- Options ----

  @Test func aChannelOfTheProgramStaysOpen() async throws {
    let server = try Server()
    let channel = try Channel(server.target, options: .cleartext)
    try await withGRPCClient(transport: .penstock(channel)) { client in
      let response = try await client.unary(bytes("shared"))
      #expect(try response.message == bytes("shared"))
    }
    #expect(try await channel.unary("/penstock.Echo/Unary", bytes("open")) == bytes("open"))
    channel.close()

    let own = try Self.transport(server)
    try await withGRPCClient(transport: own) { client in _ = try await client.unary([1]) }
    #expect(own.channel.connectivity == .shutdown)
  }

  /// The tasks of the calls are not cancelled, and the channel may stay open.
  @Test(arguments: [true, false])
  func aCancelOfConnectEndsCalls(_ isShared: Bool) async throws {
    let server = try Server()
    let channel = try Channel(server.target, options: .cleartext)
    let client = GRPCClient(transport: isShared ? .penstock(channel) : try Self.transport(server))
    let connections = Task { try await client.runConnections() }
    let (begun, begin) = AsyncStream.makeStream(of: Void.self)
    let call = Task {
      try await client.call(.bidi, [:], .defaults) { _ in
        try await Task.sleep(for: .seconds(3_600))
      } _: { response in
        begin.yield()
        for try await _ in response.messages {}
      }
    }
    for await _ in begun { break }
    connections.cancel()
    let error = await #expect(throws: GRPCCore.RPCError.self) { try await call.value }
    #expect(error?.code == .cancelled)
    _ = await connections.result
    channel.close()
  }

  @Test func theOptionsOfCallsAreThoseOfPenstock() async throws {
    let server = try Server()
    var calls = Penstock.CallOptions(timeout: .seconds(3_600), metadata: ["x-headers-a": "1"])
    calls.inherited = .all
    let transport = try PenstockClientTransport(target: server.target, options: .cleartext, calls: calls)
    try await withGRPCClient(transport: transport) { client in
      let response = try await client.unary([1])
      #expect(Self.firstString(response.metadata, "x-headers-a") == "1")
      let late = await #expect(throws: GRPCCore.RPCError.self) {
        try await CallContext(timeout: .milliseconds(100)).run {
          try await client.unary([1], ["x-delay-ms": "3600000"]).message
        }
      }
      #expect(late?.code == .deadlineExceeded)
    }
  }

  @Test func otherProtocolsServeGrpcSwift() async throws {
    let server = try Server()
    for name in ChannelOptions.RPCProtocol.allCases {
      var options = ChannelOptions.cleartext
      options.rpcProtocol = name
      try await withGRPCClient(transport: .penstock(server.target, options: options)) { client in
        let (one, two) = (
          try await client.unary(bytes("x")), try await client.all(.bidi, [bytes("x"), bytes("y")])
        )
        #expect(try one.message == bytes("x"))
        #expect(two == [bytes("x"), bytes("y")])
        let refused = await #expect(throws: GRPCCore.RPCError.self) {
          try await client.unary([1], ["x-status": "5", "x-trailers-a": "1"]).message
        }
        #expect(refused?.code == .notFound)
        #expect(refused.flatMap { Self.firstString($0.metadata, "x-trailers-a") } == "1")
      }
    }
  }

  @Test func mistakesAreErrors() async throws {
    #expect(throws: PenstockError.self) { try PenstockClientTransport(target: "") }
    let server = try Server()
    try await withGRPCClient(transport: .penstock(server.target, options: .cleartext)) { client in
      let refused = await #expect(throws: GRPCCore.RPCError.self) {
        try await client.unary([1], ["content-type": "text/html"]).message
      }
      #expect(refused?.code == .invalidArgument)
      #expect(refused?.message.contains("content-type") == true)
    }
  }

  @Test func theServiceConfigIsAsked() async throws {
    func method(_ service: String, _ method: String, _ seconds: Int) -> MethodConfig {
      MethodConfig(names: [MethodConfig.Name(service: service, method: method)], timeout: .seconds(seconds))
    }
    let config = try ServiceConfig(
      methodConfig: [method("", "", 1), method("penstock.Echo", "", 2), method("penstock.Echo", "Unary", 3)],
      loadBalancingConfig: [.pickFirst(shuffleAddressList: true)],
      retryThrottling: .init(maxTokens: 2_000, tokenRatio: 0.5))
    let server = try Server()
    let transport = try PenstockClientTransport(
      target: server.target, options: .cleartext, serviceConfig: config)
    func seconds(_ service: String, _ method: String) -> Duration? {
      transport.config(forMethod: MethodDescriptor(fullyQualifiedService: service, method: method))?.timeout
    }
    #expect(seconds("penstock.Echo", "Unary") == .seconds(3))
    #expect(seconds("penstock.Echo", "Bidi") == .seconds(2))
    #expect(seconds("other", "Unary") == .seconds(1))
    // gRPC allows at most 1000.
    #expect(transport.retryThrottle?.maxTokens == 1_000)
    #expect(transport.retryThrottle?.tokenRatio == 0.5)
    // Without a client, the transport itself knows the limits of the method.
    var limited = method("penstock.Echo", "Unary", 60)
    limited.maxRequestMessageBytes = 3
    let small = try PenstockClientTransport(
      target: server.target, options: .cleartext, serviceConfig: ServiceConfig(methodConfig: [limited]))
    let error = await #expect(throws: GRPCCore.RPCError.self) {
      try await small.withStream(descriptor: .unary, options: .defaults) { stream, _ in
        try await stream.outbound.write(contentsOf: [.metadata([:]), .message([1, 2, 3, 4])])
      }
    }
    #expect(error?.code == .resourceExhausted)
  }

  // ---- The transport's life ----

  @Test func connectReturnsAtTheEnd() async throws {
    let server = try Server()
    let transport = try Self.transport(server)
    try await Self.withTransport(transport) { transport in
      // A second time is a mistake, whether the first one runs or has returned.
      try await transport.withStream(descriptor: .unary, options: .defaults) { _, _ in }
    }
    let second = await #expect(throws: GRPCCore.RPCError.self) { try await transport.connect() }
    #expect(second?.code == .failedPrecondition)
    let refused = await #expect(throws: GRPCCore.RPCError.self) {
      try await transport.withStream(descriptor: .unary, options: .defaults) { _, _ in }
    }
    #expect(refused?.code == .failedPrecondition)

    let early = try Self.transport(server)
    early.beginGracefulShutdown()
    early.beginGracefulShutdown()
    try await early.connect()
    #expect(early.channel.connectivity == .shutdown)
  }

  @Test func callsDontWaitForConnect() async throws {
    let server = try Server()
    let client = GRPCClient(transport: try Self.transport(server))
    #expect(try await client.unary(bytes("early")).message == bytes("early"))
  }

  // ---- Streams without a client above them ----

  @Test func theOrderOfAStreamIsKept() async throws {
    let server = try Server()
    try await Self.withTransport(Self.transport(server)) { transport in
      func misuse(_ body: @Sendable (PenstockClientTransport.Outbound) async throws -> Void) async throws {
        let error = await #expect(throws: GRPCCore.RPCError.self) {
          try await transport.withStream(descriptor: .bidi, options: .defaults) { stream, _ in
            try await body(stream.outbound)
          }
        }
        #expect(error?.code == .failedPrecondition)
      }
      try await misuse { try await $0.write(.message([1])) }
      try await misuse {
        try await $0.write(.metadata([:]))
        try await $0.write(.metadata([:]))
      }
      try await misuse {
        try await $0.write(contentsOf: [.metadata([:]), .message([1])])
        await $0.finish()
        await $0.finish()
        try await $0.write(.message([1]))
      }
    }
  }

  @Test func readersWaitForTheMetadata() async throws {
    let server = try Server()
    try await Self.withTransport(Self.transport(server)) { transport in
      let parts = try await transport.withStream(descriptor: .bidi, options: .defaults) { stream, _ in
        try await withThrowingTaskGroup(of: [String].self) { group in
          group.addTask {
            var parts: [String] = []
            for try await part in stream.inbound {
              switch part {
              case .metadata: parts.append("metadata")
              case .message(let bytes): parts.append(text(bytes))
              case .status(let status, _): parts.append("\(status.code)")
              }
            }
            return parts
          }
          try await stream.outbound.write(contentsOf: [
            .metadata([:]), .message(bytes("a")), .message(bytes("b")),
          ])
          await stream.outbound.finish()
          return try await group.next() ?? []
        }
      }
      #expect(parts == ["metadata", "a", "b", "ok"])
    }
  }

  @Test func readersLearnThatThereIsNoCall() async throws {
    let server = try Server()
    try await Self.withTransport(Self.transport(server)) { transport in
      let code = try await transport.withStream(descriptor: .bidi, options: .defaults) { stream, _ in
        await stream.outbound.finish()
        return await #expect(throws: GRPCCore.RPCError.self) {
          for try await _ in stream.inbound {}
        }?.code
      }
      #expect(code == .internalError)

      try await transport.withStream(descriptor: .bidi, options: .defaults) { stream, _ in
        let reader = Task { for try await _ in stream.inbound {} }
        reader.cancel()
        let error = await #expect(throws: GRPCCore.RPCError.self) { try await reader.value }
        #expect(error?.code == .cancelled)
        await #expect(throws: GRPCCore.RPCError.self) { try await stream.outbound.write(.metadata([:])) }
      }
    }
  }

  @Test func theEndOfTheClosureCancelsTheCall() async throws {
    let server = try Server(["--print-requests"])
    try await Self.withTransport(Self.transport(server)) { transport in
      let outbound = try await transport.withStream(descriptor: .bidi, options: .defaults) { stream, _ in
        try await stream.outbound.write(.metadata([:]))
        var parts = stream.inbound.makeAsyncIterator()
        guard case .metadata = try await parts.next() else {
          Issue.record("the first part is not metadata")
          return stream.outbound
        }
        return stream.outbound
      }
      #expect(server.lines(1).first?.contains("/penstock.Echo/Bidi") == true)
      let error = await #expect(throws: GRPCCore.RPCError.self) { try await outbound.write(.message([1])) }
      #expect(error?.code == .cancelled)
    }
  }
}
