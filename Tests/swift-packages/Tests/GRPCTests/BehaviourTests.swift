import GRPCCore
import Testing

/// The behaviour that grpc-swift's clients expect of a transport.
@Suite(.timeLimit(.minutes(15))) struct BehaviourTests {
  @Test func theFourKindsWork() async throws {
    try await withClient { client in
      let one = try await client.unary(bytes("hello"))
      #expect(try one.message == bytes("hello"))
      let three = [bytes("a"), bytes("bc"), bytes("def")]
      #expect(try await client.all(.clientStream, three) == [bytes("abcdef")])
      #expect(
        try await client.all(.serverStream, [bytes("x")], ["x-count": "3"]) == [
          bytes("x"), bytes("x"), bytes("x"),
        ])
      #expect(try await client.all(.bidi, three) == three)
      // A method whose kind is not known, as code from older generators has it.
      #expect(try await client.all(.echo("Unary", nil), [bytes("u")]) == [bytes("u")])
      #expect(try await client.all(.clientStream, []) == [[]])
      #expect(try await client.all(.bidi, []) == [])
      let large = patterned(3 << 20)
      #expect(try await client.unary(large).message == large)
    }
  }

  @Test func messagesAnswerEachOther() async throws {
    try await withClient { client in
      let (turns, next) = AsyncStream.makeStream(of: Int.self)
      next.yield(0)
      let read = try await client.call(.bidi, [:], .defaults) { writer in
        for await turn in turns { try await writer.write(bytes("\(turn)")) }
      } _: { response in
        var read: [String] = []
        for try await message in response.messages {
          read.append(text(message))
          if read.count < 50 { next.yield(read.count) } else { next.finish() }
        }
        return read
      }
      #expect(read == (0..<50).map { "\($0)" })
    }
  }

  @Test func metadataGoesBothWays() async throws {
    let value: [UInt8] = [0, 255, 44, 32, 7]
    var metadata: Metadata = ["x-headers-one": "1", "X-Trailers-Two": "two words", "x-echo-metadata": "1"]
    metadata.addString("11", forKey: "x-headers-one")
    metadata.addBinary(value, forKey: "x-headers-bin")
    metadata.addBinary([], forKey: "x-headers-empty-bin")
    metadata.addBinary(value, forKey: "x-trailers-bin")
    metadata.addString("AP8=", forKey: "x-trailers-text-bin")
    try await withClient { [metadata] client in
      for method in [MethodDescriptor.unary, .serverStream] {
        let (headers, trailers) = try await client.call(method, metadata, .defaults) {
          try await $0.write([1])
        } _: { response in
          var trailers: Metadata = [:]
          let contents = try response.accepted.get()
          for try await part in contents.bodyParts {
            if case .trailingMetadata(let metadata) = part { trailers = metadata }
          }
          return (contents.metadata, trailers)
        }
        #expect(Array(headers[stringValues: "x-headers-one"]) == ["1", "11"])
        #expect(Array(headers[binaryValues: "x-headers-bin"]) == [value])
        #expect(Array(headers[binaryValues: "x-headers-empty-bin"]) == [[]])
        #expect(Array(trailers[stringValues: "x-trailers-two"]) == ["two words"])
        #expect(Array(trailers[binaryValues: "x-trailers-bin"]) == [value])
        #expect(Array(trailers[binaryValues: "x-trailers-text-bin"]) == [[0, 255]])
        #expect(Array(trailers[stringValues: "seen-path"]) == ["/\(method.fullyQualifiedMethod)"])
        #expect(
          trailers[stringValues: "seen-content-type"].first { _ in true }?.hasPrefix("application/grpc")
            == true)
      }
    }
  }

  @Test func errorsHaveMessageDetailsAndTrailers() async throws {
    var metadata: Metadata = ["x-status": "5", "x-message": "no such thing: 100%", "x-trailers-a": "1"]
    metadata.addBinary([8, 5, 18, 1, 33], forKey: "x-details-bin")
    try await withClient { [metadata] client in
      let response = try await client.unary([1], metadata)
      guard case .failure(let error) = response.accepted else {
        Issue.record("a response without headers was accepted")
        return
      }
      #expect(error.code == .notFound)
      #expect(error.message == "no such thing: 100%")
      #expect(Array(error.metadata[binaryValues: "grpc-status-details-bin"]) == [[8, 5, 18, 1, 33]])
      #expect(Array(error.metadata[stringValues: "x-trailers-a"]) == ["1"])

      let missing = try await client.unary([1], [:], .defaults, .echo("Missing", .unary))
      #expect(GRPCTests.error(missing)?.code == .unimplemented)
    }
  }

  @Test func anErrorMayComeBehindHeadersAndMessages() async throws {
    try await withClient { client in
      let late = try await client.unary([1], ["x-status": "9", "x-begin": "headers", "x-headers-a": "1"])
      let contents = try late.accepted.get()
      #expect(Array(contents.metadata[stringValues: "x-headers-a"]) == ["1"])
      #expect(error(late)?.code == .failedPrecondition)

      let (count, code) = try await client.call(
        .serverStream, ["x-count": "3", "x-status": "10"], .defaults
      ) {
        try await $0.write([1])
      } _: { response -> (Int, RPCError.Code?) in
        var count = 0
        do { for try await _ in response.messages { count += 1 } } catch let error as RPCError {
          return (count, error.code)
        }
        return (count, nil)
      }
      #expect(count == 3)
      #expect(code == .aborted)
    }
  }

  @Test(.enabled(if: !isNIO, "there the call goes on as long as the writer writes"))
  func theServerMayEndACallThatSends() async throws {
    try await withClient { client in
      let error = await #expect(throws: RPCError.self) {
        try await client.call(.bidi, ["x-after": "2", "x-status": "10"], .defaults) { writer in
          while true { try await writer.write([1]) }
        } _: { response in
          for try await _ in response.messages {}
        }
      }
      #expect(error?.code == .aborted)
    }
  }

  @Test func aHandlerNeedNotReadToTheEnd() async throws {
    try await withClient { client in
      let first = try await client.call(.serverStream, ["x-count": "1000000"], .defaults) {
        try await $0.write(bytes("x"))
      } _: { response in
        try await response.messages.first { _ in true }
      }
      #expect(first == bytes("x"))
      #expect(try await client.unary(bytes("next")).message == bytes("next"))
    }
  }

  @Test func requestsAreCompressed() async throws {
    try await withClient { client in
      var options = CallOptions.defaults
      options.compression = .gzip
      let message = [UInt8](repeating: 7, count: 100_000)
      let response = try await client.unary(message, ["x-echo-metadata": "1", "x-compress": "gzip"], options)
      #expect(try response.message == message)
      #expect(Array(response.trailingMetadata[stringValues: "seen-grpc-encoding"]) == ["gzip"])
    }
  }

  @Test func interceptorsOfGRPCCoreStay() async throws {
    struct Labels: ClientInterceptor {
      func intercept<Input: Sendable, Output: Sendable>(
        request: StreamingClientRequest<Input>, context: ClientContext,
        next: (StreamingClientRequest<Input>, ClientContext) async throws -> StreamingClientResponse<Output>
      ) async throws -> StreamingClientResponse<Output> {
        var request = request
        request.metadata.addString(context.remotePeer, forKey: "x-headers-peer")
        request.metadata.addString(context.descriptor.method, forKey: "x-headers-method")
        return try await next(request, context)
      }
    }
    let server = try Server()
    try await withClient(to: server, interceptors: [Labels()]) { client in
      let response = try await client.unary([1])
      #expect(Array(response.metadata[stringValues: "x-headers-peer"]) == ["ipv4:\(server.target)"])
      #expect(Array(response.metadata[stringValues: "x-headers-method"]) == ["Unary"])
    }
  }

  @Test func manyCallsAtOnce() async throws {
    try await withClient { client in
      try await withThrowingTaskGroup(of: Bool.self) { group in
        for number in 0..<100 {
          group.addTask {
            let message = bytes("call \(number)")
            if number % 2 == 0 { return try await client.unary(message).message == message }
            return try await client.all(.bidi, [message, message]) == [message, message]
          }
        }
        var right = 0
        for try await isRight in group where isRight { right += 1 }
        #expect(right == 100)
      }
    }
  }
}
