import Penstock
import Testing

/// Figures as values of Swift.
@Suite(.timeLimit(.minutes(15))) struct StatisticsTests {
  @Test func aChannelCountsItsAttempts() async throws {
    try await withChannel { channel in
      let before = try await channel.statistics()
      #expect(before.state == .idle)
      #expect(before.attempts.started == 0)
      #expect(before.endpoints.flatMap(\.connections).isEmpty)
      #expect(before.tls == nil)

      for _ in 0..<3 { _ = try await channel.unary("/penstock.Echo/Unary", bytes("x")) }
      await #expect(throws: RPCError.self) {
        try await channel.unary("/penstock.Echo/Unary", [], options: .asking(["x-status": "5"]))
      }
      let call = try channel.call(Method("/penstock.Echo/Bidi"), .bidi)
      try await call.send([1])
      var responses = call.responses.makeAsyncIterator()
      #expect(try await responses.next() == [1])

      let figures = try await channel.statistics()
      #expect(figures.state == .ready)
      #expect(figures.attempts.started == 5)
      #expect(figures.attempts.succeeded == 3)
      #expect(figures.attempts.failed == 1)
      #expect(figures.attempts.inFlight == 1)
      #expect(figures.name.addresses == 1)
      let connection = try #require(figures.endpoints.first?.connections.first)
      #expect(connection.state == .ready)
      #expect(connection.peer == figures.target)
      #expect(connection.protocol == "grpc")
      #expect(connection.http == "2")
      #expect(connection.streams == 1)
      #expect(connection.streamsOpened == 5)
      #expect(connection.sentMessages == 5)
      #expect(connection.receivedMessages == 4)
      #expect(connection.sentBytes > 100)
      #expect(connection.sendWindow != nil)
      call.cancel()
    }
  }

  @Test func tlsAndThrottlingHaveFigures() async throws {
    var options = ChannelOptions.cleartext
    options.serviceConfig = """
      {"retryThrottling": {"maxTokens": 10, "tokenRatio": 0.5},
       "methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "1s",
         "maxBackoff": "1s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}
      """
    try await withChannel(options) { channel in
      _ = try await channel.unary("/penstock.Echo/Unary", [])
      let throttle = try #require(try await channel.statistics().throttle)
      #expect(throttle.maxTokens == 10)
      #expect(throttle.tokens == 10)
      #expect(throttle.retriesAllowed)
    }
    let channel = try Channel("127.0.0.1:1")
    #expect(try await channel.statistics().tls?.fullHandshakes == 0)
  }

  @Test func aServerThatCanNotBeReachedIsSeen() async throws {
    var options = ChannelOptions.cleartext
    options.initialBackoff = .seconds(60)
    let channel = try Channel("127.0.0.1:1", options: options)
    await #expect(throws: RPCError.self) { try await channel.unary("/penstock.Echo/Unary", []) }
    let endpoint = try #require(try await channel.statistics().endpoints.first)
    #expect(endpoint.lastError?.isEmpty == false)
    #expect(endpoint.failures >= 1)
    #expect(endpoint.next != nil)
  }

  @Test func aRuntimeListsItsCallsAndChannels() async throws {
    let runtime = try Runtime(RuntimeOptions(loops: 2))
    let server = try Server()
    try await withChannel(to: server, on: runtime) { channel in
      let call = try channel.call(
        Method("/penstock.Echo/Bidi"), .bidi, options: CallOptions(timeout: .seconds(600)))
      try await call.send([1])
      #expect(try await call.headers() != nil)
      let figures = try await runtime.statistics()
      #expect(figures.isComplete)
      #expect(figures.running == nil)
      #expect(figures.channels.map(\.target) == [server.target])
      let running = try #require(figures.calls.first)
      #expect(figures.calls.count == 1)
      #expect(running.id == call.id)
      #expect(running.method == "/penstock.Echo/Bidi")
      #expect(running.attempts == 1)
      #expect(running.peer == server.target)
      #expect((running.timeout ?? .zero) > .seconds(60))
      call.cancel()
    }
    try await runtime.shutdown(within: .seconds(60))
  }

  @Test func figuresOfAnEndedRuntimeAreAnError() async throws {
    let runtime = try Runtime()
    let channel = try Channel("127.0.0.1:1", options: .cleartext, on: runtime)
    try await runtime.shutdown(within: .seconds(60))
    let error = await #expect(throws: PenstockError.self) { try await channel.statistics() }
    #expect(error?.code == .closed)
  }
}
