import Penstock
import Testing

/// Neither side runs ahead of the other: what waits between them is bounded.
@Suite(.serialized, .timeLimit(.minutes(15))) struct PressureTests {
  /// Counts what a sequence was asked for.
  struct Endless: AsyncSequence, Sendable {
    let asked: Counted
    let message: [UInt8]
    struct Iterator: AsyncIteratorProtocol {
      let sequence: Endless
      mutating func next() async -> [UInt8]? {
        await sequence.asked.up()
        return sequence.message
      }
    }
    func makeAsyncIterator() -> Iterator { Iterator(sequence: self) }
  }
  actor Counted {
    private(set) var count = 0
    func up() { count += 1 }
  }

  /// Goes on when a number of calls on another channel to the same server have ended: in this time a stream without
  /// back pressure would go on, too.
  private static func others(_ channel: Channel) async throws {
    for _ in 0..<100 { _ = try await channel.unary("/penstock.Echo/Unary", []) }
  }

  @Test func requestsWaitForTheServer() async throws {
    let server = try Server()
    let other = try Channel(server.target, options: .cleartext)
    defer { other.close() }
    try await withChannel(to: server) { channel in
      let asked = Counted()
      // The server answers each request, and stops reading when nobody reads its answers.
      let responses = try await channel.bidi(
        "/penstock.Echo/Bidi", Endless(asked: asked, message: [UInt8](repeating: 7, count: 65_536)))
      var before = -1
      while await asked.count != before {
        before = await asked.count
        try await Self.others(other)
      }
      // The window of the server, that of the client, the send buffer, and what the sockets take.
      #expect(before * 65_536 < 48 << 20)
      var iterator = responses.makeAsyncIterator()
      for _ in 0..<before { _ = try await iterator.next() }
      #expect(await asked.count > before)
    }
  }

  @Test func responsesWaitForTheReader() async throws {
    let server = try Server()
    let other = try Channel(server.target, options: .cleartext)
    defer { other.close() }
    try await withChannel(to: server) { channel in
      let size = 1 << 20
      let responses = try await channel.serverStream(
        "/penstock.Echo/ServerStream", [UInt8](repeating: 7, count: size),
        options: .asking(["x-count": "300"]))
      let before = residentBytes()
      var most = 0
      var count = 0
      for try await response in responses {
        #expect(response.count == size)
        count += 1
        if count % 100 == 1 { try await Self.others(other) }
        most = max(most, residentBytes() - before)
      }
      #expect(count == 300)
      #expect(most < 100 << 20)
    }
  }

  /// Counts the responses that come, whether they are read or not.
  actor Came: Interceptor {
    private(set) var count = 0
    func onResponse(_ response: inout InterceptedMessage) { count += 1 }
  }

  @Test func aFewResponsesAreAskedForAheadOfTheirReader() async throws {
    let server = try Server()
    let other = try Channel(server.target, options: .cleartext)
    defer { other.close() }
    try await withChannel(to: server) { channel in
      let came = Came()
      try channel.addInterceptor("came", .shared(events: .response, came))
      for (size, most) in [(10, 16), (1 << 18, 4), (2 << 20, 1)] {
        let before = await came.count
        let responses = try await channel.serverStream(
          "/penstock.Echo/ServerStream", [UInt8](repeating: 7, count: size),
          options: .asking(["x-count": "30"]))
        var reader = responses.makeAsyncIterator()
        _ = try await reader.next()
        try await Self.others(other)
        // The first one comes alone.
        #expect(await came.count == before + 1)
        _ = try await reader.next()
        let second = before + 1 + min(2, most)
        await eventually { await came.count >= second }
        try await Self.others(other)
        #expect(await came.count == second)
        for read in 3...20 {
          _ = try await reader.next()
          #expect(await came.count - before - read <= most)
        }
        await eventually { await came.count >= before + 20 + most / 2 }
        var rest = 0
        while try await reader.next() != nil { rest += 1 }
        #expect(rest == 10)
      }
    }
  }

  @Test func nothingIsReadAfterACancel() async throws {
    try await withChannel { channel in
      let call = try channel.call(
        Method("/penstock.Echo/ServerStream"), .serverStream, options: .asking(["x-count": "1000"]))
      try await call.send([1])
      call.halfClose()
      for _ in 0..<3 { _ = try await call.response() }
      call.cancel()
      #expect(await call.status().code == .cancelled)
      let error = await #expect(throws: RPCError.self) { try await call.response() }
      #expect(error?.code == .cancelled)
    }
  }

  @Test func severalTasksSendAndReceiveInOneCall() async throws {
    try await withChannel { channel in
      let call = try channel.call(Method("/penstock.Echo/Bidi"), .bidi)
      let received = try await withThrowingTaskGroup(of: Int.self) { group in
        for _ in 0..<4 {
          group.addTask {
            for _ in 0..<200 { try await call.send([UInt8](repeating: 1, count: 10_000)) }
            return 0
          }
          group.addTask {
            var bytes = 0
            for _ in 0..<200 { bytes += try await call.response().count }
            return bytes
          }
        }
        return try await group.reduce(0, +)
      }
      #expect(received == 4 * 200 * 10_000)
      call.halfClose()
      #expect(await call.status().code == .ok)
    }
  }
}
