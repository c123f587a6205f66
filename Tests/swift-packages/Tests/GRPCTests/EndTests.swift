import GRPCCore
import Testing

/// Deadlines, cancellation, retries and shutdown.
@Suite(.timeLimit(.minutes(15))) struct EndTests {
  static let idle: @Sendable (Writer) async throws -> Void = { _ in
    try await Task.sleep(for: .seconds(3_600))
  }

  @Test func deadlinesEndCalls() async throws {
    try await withClient { client in
      var options = CallOptions.defaults
      options.timeout = .milliseconds(100)
      for method in [MethodDescriptor.unary, .serverStream] {
        let error = await #expect(throws: RPCError.self) {
          try await client.call(method, ["x-delay-ms": "3600000"], options) {
            try await $0.write([1])
          } _: { response in
            for try await _ in response.messages {}
          }
        }
        #expect(error?.code == .deadlineExceeded)
      }
    }
  }

  @Test func theServerLearnsTheDeadline() async throws {
    func timeout(_ client: any EchoClient, _ options: CallOptions) async throws -> Int? {
      let response = try await client.unary([1], ["x-echo-metadata": "1"], options)
      let value = response.trailingMetadata[stringValues: "seen-grpc-timeout"].first { _ in true }
      guard let value, let amount = Int(value.dropLast()) else { return nil }
      let perSecond = ["S": 1, "m": 1_000, "u": 1_000_000, "n": 1_000_000_000]
      return perSecond[String(value.suffix(1))].map { amount / $0 }
    }
    var method = MethodConfig(names: [MethodConfig.Name(service: "penstock.Echo")])
    method.timeout = .seconds(5_000)
    try await withClient(config: ServiceConfig(methodConfig: [method])) { client in
      let fromConfig = try await timeout(client, .defaults)
      #expect(fromConfig.map { (4_900...5_000).contains($0) } == true)
      var options = CallOptions.defaults
      options.timeout = .seconds(50)
      let fromCall = try await timeout(client, options)
      #expect(fromCall.map { (1...50).contains($0) } == true)
    }
    try await withClient { client in
      let none = try await timeout(client, .defaults)
      #expect(none == nil)
    }
  }

  @Test func aCancelledTaskEndsItsCall() async throws {
    try await withClient { client in
      let (begun, begin) = AsyncStream.makeStream(of: Void.self)
      let call = Task {
        try await client.call(.bidi, [:], .defaults, Self.idle) { response in
          begin.yield()
          for try await _ in response.messages {}
        }
      }
      for await _ in begun { break }
      call.cancel()
      await #expect(throws: (any Error).self) { try await call.value }
      let next = try await client.unary(bytes("next"))
      #expect(try next.message == bytes("next"))
    }
  }

  @Test func callsFailOrWaitWithoutAServer() async throws {
    // Nobody listens on the port of a server that has ended.
    let target = try Server().target
    try await withClient(target: target) { client in
      let failed = await #expect(throws: RPCError.self) { try await client.unary([1]).message }
      #expect(failed?.code == .unavailable)
      var options = CallOptions.defaults
      options.waitForReady = true
      options.timeout = .milliseconds(300)
      let waiting = options
      let waited = await #expect(throws: RPCError.self) { try await client.unary([1], [:], waiting).message }
      #expect(waited?.code == .deadlineExceeded)
    }
  }

  static func retrying(_ attempts: Int) throws -> ServiceConfig {
    var method = MethodConfig(names: [MethodConfig.Name(service: "")])
    method.executionPolicy = .retry(
      RetryPolicy(
        maxAttempts: attempts, initialBackoff: .milliseconds(1), maxBackoff: .milliseconds(2),
        backoffMultiplier: 1, retryableStatusCodes: [.unavailable]))
    return try ServiceConfig(
      methodConfig: [method], loadBalancingConfig: [.roundRobin],
      retryThrottling: .init(maxTokens: 100, tokenRatio: 0.1))
  }

  @Test func retriesAreMadeOnce() async throws {
    let server = try Server(["--print-requests"])
    try await withClient(to: server, config: Self.retrying(3)) { client in
      let error = await #expect(throws: RPCError.self) {
        try await client.unary([1], ["x-status": "14", "x-message": "busy"]).message
      }
      #expect(error?.code == .unavailable)
      #expect(error?.message == "busy")
      #expect(error.map { Array($0.metadata[stringValues: "grpc-previous-rpc-attempts"]) } == ["2"])
      let next = try await client.unary(bytes("next"))
      #expect(try next.message == bytes("next"))
    }
    #expect(server.lines(4).filter { $0.contains("\"status\":14") }.count == 3)
  }

  @Test func hedgedCallsWork() async throws {
    var method = MethodConfig(names: [MethodConfig.Name(service: "")])
    method.executionPolicy = .hedge(
      HedgingPolicy(maxAttempts: 3, hedgingDelay: .milliseconds(1), nonFatalStatusCodes: [.unavailable]))
    try await withClient(config: ServiceConfig(methodConfig: [method])) { client in
      for number in 0..<5 {
        let message = bytes("\(number)")
        let response = try await client.unary(message, ["x-delay-ms": "20"])
        #expect(try response.message == message)
      }
    }
  }

  @Test func shutdownLetsCallsEnd() async throws {
    let (goOn, proceed) = AsyncStream.makeStream(of: Void.self)
    try await withClient { client in
      let (begun, begin) = AsyncStream.makeStream(of: Void.self)
      let call = Task {
        try await client.call(.bidi, [:], .defaults) { writer in
          try await writer.write(bytes("before"))
          for await _ in goOn { break }
          try await writer.write(bytes("after"))
        } _: { response in
          var read: [String] = []
          for try await message in response.messages {
            read.append(text(message))
            begin.yield()
          }
          return read
        }
      }
      for await _ in begun { break }
      client.beginGracefulShutdown()
      await #expect(throws: RuntimeError.self) { try await client.unary([1]) }
      proceed.yield()
      let read = try await call.value
      #expect(read == ["before", "after"])
    }
  }

  @Test func cancellingTheConnectionsEndsCalls() async throws {
    let server = try Server()
    let (begun, begin) = AsyncStream.makeStream(of: Void.self)
    let client = Task {
      try await withClient(to: server) { client in
        try await withThrowingTaskGroup(of: Void.self) { group in
          for _ in 0..<10 {
            group.addTask {
              try await client.call(.bidi, [:], .defaults, Self.idle) { response in
                begin.yield()
                for try await _ in response.messages {}
              }
            }
          }
          try await group.waitForAll()
        }
      }
    }
    var count = 0
    for await _ in begun {
      count += 1
      if count == 10 { break }
    }
    client.cancel()
    await #expect(throws: (any Error).self) { try await client.value }
  }
}
