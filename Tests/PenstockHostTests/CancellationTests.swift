import Penstock
import Testing

/// A cancelled task cancels the call that it waits for, wherever it waits.
@Suite(.timeLimit(.minutes(15))) struct CancellationTests {
  /// The events that a task may wait for.
  enum Place: String, CaseIterable, Sendable {
    case unary, clientStream, serverStream, bidi, send, headers, receive, status, response
  }

  /// Waits at `place` for something that does not come.
  static func wait(_ place: Place, _ channel: Channel) async throws {
    let slow = CallOptions.asking(["x-delay-ms": "60000"])
    let (silence, feed) = AsyncStream.makeStream(of: [UInt8].self)
    defer { feed.finish() }
    func call(_ kind: CallKind, _ name: String) throws -> Call<[UInt8], [UInt8]> {
      try channel.call(Method("/penstock.Echo/\(name)"), kind, options: slow)
    }
    switch place {
    case .unary: _ = try await channel.unary("/penstock.Echo/Unary", [], options: slow)
    case .clientStream: _ = try await channel.clientStream("/penstock.Echo/ClientStream", silence)
    case .serverStream:
      for try await _ in try await channel.serverStream("/penstock.Echo/ServerStream", [], options: slow) {}
    case .bidi:
      for try await _ in try await channel.bidi("/penstock.Echo/Bidi", silence) {}
    case .send:
      let call = try call(.bidi, "Bidi")
      while true { try await call.send([UInt8](repeating: 1, count: 100_000)) }
    case .headers: _ = try await call(.clientStream, "ClientStream").headers()
    case .receive:
      for try await _ in try call(.bidi, "Bidi").responses {}
    case .status:
      let status = await (try call(.bidi, "Bidi")).status()
      throw RPCError(status)
    case .response: _ = try await call(.clientStream, "ClientStream").response()
    }
  }

  @Test(arguments: Place.allCases, [false, true])
  func aCancelledTaskEndsItsCall(_ place: Place, _ atOnce: Bool) async throws {
    let runtime = try Runtime()
    try await withChannel(on: runtime) { channel in
      let task = Task { try await Self.wait(place, channel) }
      try await eventually { try atOnce || runtime.snapshot().contains("/penstock.Echo/") }
      task.cancel()
      // Headers that don't come are no error of their own.
      guard place != .headers else { return try await task.value }
      let error = await #expect(throws: RPCError.self) { try await task.value }
      #expect(error?.code == .cancelled)
    }
  }

  @Test func aCallThatNobodyHoldsIsCancelled() async throws {
    let runtime = try Runtime()
    let server = try Server()
    let channel = try Channel(server.target, options: .cleartext, on: runtime)
    var responses: Responses<[UInt8]>? = try await channel.serverStream(
      "/penstock.Echo/ServerStream", bytes("x"), options: .asking(["x-count": "1000000000"]))
    var iterator = responses?.makeAsyncIterator()
    #expect(try await iterator?.next() == bytes("x"))
    #expect(try runtime.snapshot().contains("/penstock.Echo/ServerStream"))
    iterator = nil
    responses = nil
    try await eventually { try !runtime.snapshot().contains("/penstock.Echo/ServerStream") }
    try await runtime.shutdown(within: .seconds(20))
  }

  @Test func cancelEndsTheCallWithItsReason() async throws {
    try await withChannel { channel in
      let call = try channel.call(Method("/penstock.Echo/Bidi"), .bidi)
      call.cancel("enough")
      #expect(await call.status() == Status(.cancelled, "enough"))
      let error = await #expect(throws: RPCError.self) { try await call.send([]) }
      #expect(error?.code == .cancelled)
    }
  }

  @Test func aClosedChannelEndsItsCallsAndTakesNoMore() async throws {
    try await withChannel { channel in
      let call = try channel.call(Method("/penstock.Echo/Bidi"), .bidi)
      channel.close()
      #expect(await call.status().code == .cancelled)
      let error = await #expect(throws: PenstockError.self) {
        try await channel.unary("/penstock.Echo/Unary", [])
      }
      #expect(error?.code == .closed)
      #expect(channel.connectivity == .shutdown)
    }
  }
}
