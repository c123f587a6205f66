import Penstock
import Testing

@Suite(.timeLimit(.minutes(15))) struct CallTests {
  @Test func aUnaryCallGivesTheResponse() async throws {
    try await withChannel { channel in
      let response = try await channel.unary("/penstock.Echo/Unary", bytes("hello"))
      #expect(response == bytes("hello"))
      #expect(try await channel.unary("/penstock.Echo/Unary", []) == [])
    }
  }

  @Test func aClientStreamSendsAllRequests() async throws {
    try await withChannel { channel in
      let requests = (0..<100).map { bytes("\($0),") }
      let response = try await channel.clientStream("/penstock.Echo/ClientStream", stream(requests))
      #expect(response == requests.flatMap { $0 })
    }
  }

  @Test func aServerStreamGivesAllResponses() async throws {
    try await withChannel { channel in
      let responses = try await channel.serverStream(
        "/penstock.Echo/ServerStream", bytes("x"), options: .asking(["x-count": "50"]))
      var count = 0
      for try await response in responses {
        #expect(response == bytes("x"))
        count += 1
      }
      #expect(count == 50)
      #expect(await responses.status().code == .ok)
    }
  }

  @Test func aBidiCallGivesResponsesWhileItSends() async throws {
    try await withChannel { channel in
      let (requests, feed) = AsyncStream.makeStream(of: [UInt8].self)
      let responses = try await channel.bidi("/penstock.Echo/Bidi", requests)
      var iterator = responses.makeAsyncIterator()
      for number in 0..<20 {
        feed.yield(bytes("\(number)"))
        #expect(try await iterator.next() == bytes("\(number)"))
      }
      feed.finish()
      #expect(try await iterator.next() == nil)
      #expect(try await iterator.next() == nil)
    }
  }

  @Test(arguments: CallKind.allCases)
  func aCallIsSentAndReadByHand(_ kind: CallKind) async throws {
    try await withChannel { channel in
      let names = [
        CallKind.unary: "Unary", .clientStream: "ClientStream", .serverStream: "ServerStream", .bidi: "Bidi",
      ]
      let call = try channel.call(Method("/penstock.Echo/\(names[kind] ?? "")"), kind)
      try await call.send(bytes("one"))
      call.halfClose()
      call.halfClose()
      #expect(try await call.headers() != nil)
      var all: [[UInt8]] = []
      for try await response in call.responses { all.append(response) }
      #expect(all == [bytes("one")])
      #expect(await call.status() == Status(.ok))
      #expect(await call.statistics().contains("\"attempts\":1"))
      await #expect(throws: PenstockError.self) { try await call.send(bytes("late")) }
    }
  }

  @Test func metadataGoesAndComes() async throws {
    try await withChannel { channel in
      var options = CallOptions()
      options.metadata["x-echo-initial"] = ["one"]
      options.metadata[binary: "x-echo-trailing-bin"] = [[0, 1, 255]]
      options.metadata[binary: "x-message-bin"] = [bytes("ä")]
      options.metadata["x-status"] = ["9"]
      let call = try channel.call(Method("/penstock.Echo/Unary"), .unary, options: options)
      try await call.send([])
      call.halfClose()
      let status = await call.status()
      #expect(status.code == .failedPrecondition)
      #expect(status.message == "ä")
    }
  }

  @Test func metadataThatIsNotAllowedIsRefused() async throws {
    try await withChannel { channel in
      for metadata in [["grpc-timeout": "1S"], ["x y": "1"], ["x": "ä"]] as [Metadata] {
        await #expect(throws: PenstockError.self) {
          try await channel.unary("/penstock.Echo/Unary", [], options: .asking(metadata))
        }
      }
    }
  }

  @Test func anErrorHasItsDetails() async throws {
    let retryInfo: [UInt8] = [0x0A, 0x02, 0x08, 0x05]
    let type = bytes("type.googleapis.com/google.rpc.RetryInfo")
    let any = [0x0A, UInt8(type.count)] + type + [0x12, UInt8(retryInfo.count)] + retryInfo
    let encoded = [0x08, 0x0E, 0x12, 0x04] + bytes("busy") + [0x1A, UInt8(any.count)] + any
    var options = CallOptions.asking(["x-status": "14", "x-message": "busy"])
    options.metadata[binary: "x-details-bin"] = [encoded]
    try await withChannel { channel in
      do {
        _ = try await channel.unary("/penstock.Echo/Unary", [], options: options)
        Issue.record("no error")
      } catch let error as RPCError {
        #expect(error.code == .unavailable)
        #expect(error.message == "busy")
        #expect(error.details(ofType: "google.rpc.RetryInfo") == [retryInfo])
        #expect(error.status.details.first?.typeURL == "type.googleapis.com/google.rpc.RetryInfo")
        #expect(error.status.trailers[binary: "grpc-status-details-bin"] == [encoded])
      }
    }
  }

  @Test func aStreamThatFailsThrowsItsStatusBehindItsResponses() async throws {
    try await withChannel { channel in
      let responses = try await channel.serverStream(
        "/penstock.Echo/ServerStream", bytes("x"),
        options: .asking(["x-count": "9", "x-after": "2", "x-status": "15"]))
      var count = 0
      let error = await #expect(throws: RPCError.self) {
        for try await _ in responses { count += 1 }
      }
      #expect(error?.code == .dataLoss)
      #expect(count == 2)
    }
  }

  @Test func aDeadlineEndsTheCall() async throws {
    try await withChannel { channel in
      var options = CallOptions.asking(["x-delay-ms": "60000"])
      options.timeout = .milliseconds(20)
      let error = await #expect(throws: RPCError.self) {
        try await channel.unary("/penstock.Echo/Unary", [], options: options)
      }
      #expect(error?.code == .deadlineExceeded)
      options.timeout = .seconds(-1)
      let late = await #expect(throws: RPCError.self) {
        try await channel.unary("/penstock.Echo/Unary", [], options: options)
      }
      #expect(late?.code == .deadlineExceeded)
    }
  }

  @Test func anErrorOfTheRequestsIsThrownByTheResponses() async throws {
    struct Mine: Error {}
    let requests = AsyncThrowingStream<[UInt8], any Error> { continuation in
      continuation.yield(bytes("one"))
      continuation.finish(throwing: Mine())
    }
    try await withChannel { channel in
      await #expect(throws: Mine.self) {
        try await channel.clientStream("/penstock.Echo/ClientStream", requests)
      }
    }
  }

  @Test func aServerThatEndsEarlyEndsTheRequests() async throws {
    let (requests, feed) = AsyncStream.makeStream(of: [UInt8].self)
    let (ends, end) = AsyncStream.makeStream(of: Void.self)
    feed.onTermination = { _ in end.finish() }
    try await withChannel { channel in
      let error = await #expect(throws: RPCError.self) {
        try await channel.clientStream(
          "/penstock.Echo/ClientStream", requests, options: .asking(["x-after": "0", "x-status": "8"]))
      }
      #expect(error?.code == .resourceExhausted)
      for await _ in ends {}
    }
  }

  @Test func aThousandCallsRunAtOnce() async throws {
    try await withChannel { channel in
      try await withThrowingTaskGroup(of: Bool.self) { group in
        for number in 0..<1_000 {
          group.addTask {
            let request = bytes("call \(number)")
            let response = try await channel.unary(
              "/penstock.Echo/Unary", request, options: .asking(["x-delay-ms": "50"]))
            return response == request
          }
        }
        var right = 0
        for try await isRight in group where isRight { right += 1 }
        #expect(right == 1_000)
      }
    }
  }

  @Test func callsGoOverTLS() async throws {
    let server = try Server.withTLS()
    var certificates = Server.certificates
    let channel = try Channel(server.target, options: ChannelOptions(tls: .on(certificates)))
    var options = CallOptions()
    options.credentials = ["authorization": "Bearer secret"]
    #expect(try await channel.unary("/penstock.Echo/Unary", bytes("safe"), options: options) == bytes("safe"))

    certificates.serverName = "other.example"
    let stranger = try Channel(server.target, options: ChannelOptions(tls: .on(certificates)))
    let error = await #expect(throws: RPCError.self) {
      try await stranger.unary("/penstock.Echo/Unary", [])
    }
    #expect(error?.code == .unavailable)
    #expect(error?.message.contains("certificate") == true)

    try await withChannel { channel in
      let error = await #expect(throws: RPCError.self) {
        try await channel.unary("/penstock.Echo/Unary", [], options: options)
      }
      #expect(error?.code == .unauthenticated)
    }
  }

  @Test func aCodecTurnsValuesIntoMessages() async throws {
    struct Odd: Error {}
    let numbers = Codec<Int>(contentSubtype: "number") {
      bytes("\($0)")
    } decode: {
      guard let number = Int(text($0)), number < 100 else { throw Odd() }
      return number
    }
    try await withChannel { channel in
      let method = Method("/penstock.Echo/Unary", requests: numbers, responses: numbers)
      let response = try await channel.unary(method, 42)
      #expect(response == 42)
      await #expect(throws: Odd.self) { try await channel.unary(method, 101) }
    }
  }
}
