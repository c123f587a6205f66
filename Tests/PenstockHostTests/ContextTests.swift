import Penstock
import Testing

/// The deadline and the cancellation that a surrounding call hands on.
@Suite(.timeLimit(.minutes(15))) struct ContextTests {
  static func inheriting(_ parts: CallContext.Parts, _ metadata: Metadata = [:]) -> CallOptions {
    var options = CallOptions.asking(metadata)
    options.inherited = parts
    return options
  }

  /// The time that a call gives to the server.
  static func timeout(_ channel: Channel, _ options: CallOptions) async throws -> Duration? {
    let (starts, tell) = AsyncStream.makeStream(of: Duration?.self)
    let registration = try channel.addInterceptor(
      "watch",
      .functions { _ in
        InterceptorFunctions(start: { start, proceed in
          tell.yield(start.timeout)
          proceed(start)
        })
      })
    defer { try? registration.remove() }
    _ = try? await channel.unary("/penstock.Echo/Unary", [], options: options)
    tell.finish()
    for await timeout in starts { return timeout }
    return nil
  }

  @Test func theDeadlineIsHandedOnByOption() async throws {
    try await withChannel { channel in
      try await CallContext(timeout: .seconds(600)).run {
        let none = try await Self.timeout(channel, Self.inheriting([]))
        #expect(none == nil)
        let handed = try #require(try await Self.timeout(channel, Self.inheriting(.deadline)))
        #expect(handed > .seconds(60) && handed <= .seconds(600))

        // The earlier deadline counts: that of the call, or that of an outer context.
        var options = Self.inheriting(.all)
        options.timeout = .seconds(50)
        let own = try #require(try await Self.timeout(channel, options))
        #expect(own <= .seconds(50))
        try await CallContext(timeout: .seconds(9_000)).run {
          let outer = try #require(try await Self.timeout(channel, Self.inheriting(.deadline)))
          #expect(outer <= .seconds(600))
        }
      }
      let outside = try await Self.timeout(channel, Self.inheriting(.all))
      #expect(outside == nil)
    }
  }

  @Test func aContextMayHaveAsMuchTimeAsThereIs() async throws {
    try await withChannel { channel in
      try await CallContext(timeout: .seconds(Int64.max)).run {
        let answer = try await channel.unary("/penstock.Echo/Unary", [1], options: Self.inheriting(.all))
        #expect(answer == [1])
      }
    }
  }

  @Test func aDeadlineThatHasPassedEndsTheCall() async throws {
    try await withChannel { channel in
      try await CallContext(timeout: .seconds(-1)).run {
        let late = await #expect(throws: RPCError.self) {
          try await channel.unary("/penstock.Echo/Unary", [], options: Self.inheriting(.deadline))
        }
        #expect(late?.code == .deadlineExceeded)
        let other = try await channel.unary("/penstock.Echo/Unary", [1])
        #expect(other == [1])
      }
    }
  }

  @Test func theChannelsOwnDeadlineStillCounts() async throws {
    var options = ChannelOptions.cleartext
    options.defaultTimeout = .seconds(40)
    try await withChannel(options) { channel in
      try await CallContext(timeout: .seconds(600)).run {
        let timeout = try #require(try await Self.timeout(channel, Self.inheriting(.deadline)))
        #expect(timeout <= .seconds(40))
      }
    }
  }

  @Test func theCancellationReachesUnstructuredTasks() async throws {
    try await withChannel { channel in
      let (begun, begins) = AsyncStream.makeStream(of: Void.self)
      let context = CallContext()
      let (inheriting, plain) = await context.run {
        let inheriting = try? channel.call(
          Method("/penstock.Echo/Bidi"), .bidi, options: Self.inheriting(.cancellation))
        let plain = try? channel.call(Method("/penstock.Echo/Bidi"), .bidi)
        return (inheriting, plain)
      }
      let first = try #require(inheriting)
      let second = try #require(plain)
      for call in [first, second] {
        Task {
          try await call.send([1])
          begins.yield()
        }
      }
      var begin = begun.makeAsyncIterator()
      for _ in 0..<2 { await begin.next() }
      context.cancel("the user has gone")
      context.cancel("later")
      let status = await first.status()
      #expect(status.code == .cancelled)
      #expect(status.message.contains("the user has gone"))
      // The other call goes on.
      var responses = second.responses.makeAsyncIterator()
      #expect(try await responses.next() == [1])
      second.cancel()
    }
  }

  @Test func aCancelledTaskCancelsItsContextAndThoseInside() async throws {
    try await withChannel { channel in
      let (calls, found) = AsyncStream.makeStream(of: Call<[UInt8], [UInt8]>.self)
      let task = Task {
        try await CallContext().run {
          try await CallContext().run {
            let call = try channel.call(
              Method("/penstock.Echo/Bidi"), .bidi, options: Self.inheriting(.cancellation))
            found.yield(call)
            // Only the context tells this call: nobody waits for it here.
            try await Task.sleep(for: .seconds(600))
          }
        }
      }
      var iterator = calls.makeAsyncIterator()
      let call = try #require(await iterator.next())
      task.cancel()
      #expect(await call.status().code == .cancelled)
      _ = await task.result
    }
  }

  @Test func aCallInACancelledContextSendsNothing() async throws {
    try await withChannel { channel in
      let outer = CallContext()
      outer.cancel("over")
      let inner = CallContext(within: outer)
      #expect(inner.isCancelled)
      let error: RPCError? = await inner.run {
        do {
          _ = try await channel.unary("/penstock.Echo/Unary", [], options: Self.inheriting(.all))
          return nil
        } catch { return error as? RPCError }
      }
      #expect(error?.code == .cancelled)
      #expect(error?.message.contains("over") == true)
      let figures = try await channel.statistics()
      #expect(figures.attempts.started == 0)
    }
  }

  @Test func contextsAreFreed() async throws {
    let outer = CallContext()
    weak var inner: CallContext?
    do {
      let made = CallContext(within: outer)
      inner = made
      await made.run {}
      #expect(inner != nil)
    }
    #expect(inner == nil)
    outer.cancel()
  }
}
