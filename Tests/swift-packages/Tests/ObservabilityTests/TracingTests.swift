import InMemoryTracing
import Penstock
import PenstockObservability
import Testing
import Tracing

@Suite(.timeLimit(.minutes(15))) struct TracingTests {
  static let (call, attempt) = ("Sent.penstock.Echo/Unary", "Attempt.penstock.Echo/Unary")

  static func add(_ tracing: CallTracing, to channel: Channel) throws {
    try channel.addInterceptor("calls", tracing.calls, priority: 1_000)
    try channel.addInterceptor("attempts", tracing.attempts)
  }

  /// Makes a call whose trailers have the fields that the server saw.
  static func seen(_ channel: Channel) async throws -> Metadata {
    let call = try channel.call(
      Method("/penstock.Echo/Unary"), .unary, options: .asking(["x-echo-metadata": "1"]))
    try await call.send([1, 2, 3])
    call.halfClose()
    let status = await call.status()
    #expect(status.code == .ok)
    return status.trailers
  }

  static func spans(_ tracer: InMemoryTracer, _ name: String) -> [FinishedInMemorySpan] {
    tracer.finishedSpans.filter { $0.operationName == name }
  }

  @Test func theSpansOfACallAreInsideThatOfItsTaskAndTheServerSeesTheAttempt() async throws {
    let tracer = InMemoryTracer()
    try await withChannel { channel in
      try Self.add(CallTracing(tracer: tracer), to: channel)
      let trailers = try await tracer.withSpan("work") { _ in try await Self.seen(channel) }
      let work = try #require(Self.spans(tracer, "work").first)
      let call = try #require(Self.spans(tracer, Self.call).first)
      let attempt = try #require(Self.spans(tracer, Self.attempt).first)
      #expect(tracer.finishedSpans.count == 3)
      #expect(call.parentSpanID == work.spanID)
      #expect(attempt.parentSpanID == call.spanID)
      #expect(call.traceID == work.traceID)
      #expect(attempt.traceID == work.traceID)
      #expect(call.kind == .client)
      #expect(trailers["seen-in-memory-trace-id"] == [work.traceID])
      #expect(trailers["seen-in-memory-span-id"] == [attempt.spanID])
    }
  }

  @Test func withoutAttemptsTheServerSeesTheCall() async throws {
    let tracer = InMemoryTracer()
    try await withChannel { channel in
      try channel.addInterceptor("calls", CallTracing(tracer: tracer).calls)
      let trailers = try await Self.seen(channel)
      let call = try #require(tracer.finishedSpans.first)
      #expect(tracer.finishedSpans.count == 1)
      #expect(call.parentSpanID == nil)
      #expect(trailers["seen-in-memory-span-id"] == [call.spanID])
    }
  }

  @Test func withoutCallsTheAttemptIsInsideOfTheTask() async throws {
    let tracer = InMemoryTracer()
    try await withChannel { channel in
      try channel.addInterceptor("attempts", CallTracing(tracer: tracer).attempts)
      _ = try await tracer.withSpan("work") { _ in try await Self.seen(channel) }
      let attempt = try #require(Self.spans(tracer, Self.attempt).first)
      #expect(attempt.parentSpanID == Self.spans(tracer, "work").first?.spanID)
    }
  }

  @Test func theAttributesNameTheCallAndItsEnd() async throws {
    let tracer = InMemoryTracer()
    try await withChannel { channel in
      try Self.add(CallTracing(tracer: tracer), to: channel)
      try await fails(channel, with: .notFound)
      await eventually { tracer.finishedSpans.count == 2 }
      let colon = try #require(channel.target.lastIndex(of: ":"))
      let port = try #require(Int(channel.target[channel.target.index(after: colon)...]))
      for name in [Self.call, Self.attempt] {
        let span = try #require(Self.spans(tracer, name).first)
        #expect(span.attributes["rpc.system"]?.toSpanAttribute() == "grpc")
        #expect(span.attributes["rpc.service"]?.toSpanAttribute() == "penstock.Echo")
        #expect(span.attributes["rpc.method"]?.toSpanAttribute() == "Unary")
        #expect(span.attributes["server.address"]?.toSpanAttribute() == "127.0.0.1")
        #expect(span.attributes["server.port"]?.toSpanAttribute() == .int64(Int64(port)))
        #expect(span.attributes["rpc.grpc.status_code"]?.toSpanAttribute() == .int64(5))
        #expect(span.status?.code == .error)
        #expect(span.status?.message == "NOT_FOUND: as asked")
        #expect(span.errors.count == 1)
        let error = try #require(span.errors.first?.error as? RPCError)
        #expect(error.code == .notFound)
        let isAttempt = name == Self.attempt
        let peer = span.attributes["network.peer.address"]?.toSpanAttribute()
        #expect(peer == (isAttempt ? "127.0.0.1" : nil))
        let before = span.attributes["previous-rpc-attempts"]?.toSpanAttribute()
        #expect(before == (isAttempt ? .int64(0) : nil))
      }
      tracer.clearFinishedSpans()
      _ = try await Self.seen(channel)
      for span in tracer.finishedSpans {
        #expect(span.status?.code == .ok)
        #expect(span.errors.isEmpty)
        #expect(span.attributes["rpc.grpc.status_code"]?.toSpanAttribute() == .int64(0))
      }
      #expect(tracer.finishedSpans.count == 2)
    }
  }

  @Test func aCallByConnectHasTheCodesOfConnect() async throws {
    let tracer = InMemoryTracer()
    var options = ChannelOptions.cleartext
    options.rpcProtocol = .connect
    try await withChannel(options) { channel in
      try channel.addInterceptor("calls", CallTracing(tracer: tracer).calls)
      try await fails(channel, with: .notFound)
      _ = try await channel.unary("/penstock.Echo/Unary", [])
      await eventually { tracer.finishedSpans.count == 2 }
      let spans = tracer.finishedSpans
      for span in spans {
        #expect(span.attributes["rpc.system"]?.toSpanAttribute() == "connect_rpc")
        #expect(span.attributes["rpc.grpc.status_code"]?.toSpanAttribute() == nil)
      }
      let codes = spans.map { $0.attributes["rpc.connect_rpc.error_code"]?.toSpanAttribute() }
      #expect(codes == ["not_found", nil])
    }
  }

  @Test func eachAttemptOfARetriedCallIsASpanOfItsOwn() async throws {
    let tracer = InMemoryTracer()
    try await withChannel(.retrying()) { channel in
      try Self.add(CallTracing(tracer: tracer), to: channel)
      try await fails(channel, with: .unavailable)
      await eventually { tracer.finishedSpans.count == 4 }
      let call = try #require(Self.spans(tracer, Self.call).first)
      let attempts = Self.spans(tracer, Self.attempt)
      #expect(attempts.map(\.parentSpanID) == [call.spanID, call.spanID, call.spanID])
      #expect(Set(attempts.map(\.spanID)).count == 3)
      let before = attempts.map { $0.attributes["previous-rpc-attempts"]?.toSpanAttribute() }
      #expect(before == [.int64(0), .int64(1), .int64(2)])
      let transparent = attempts.map { $0.attributes["transparent-retry"]?.toSpanAttribute() }
      #expect(transparent == [.bool(false), .bool(false), .bool(false)])
    }
  }

  @Test func aCallThatAnInterceptorSendsAgainHasSpansBesideEachOther() async throws {
    let tracer = InMemoryTracer()
    try await withChannel { channel in
      let tracing = CallTracing(tracer: tracer)
      try Self.add(tracing, to: channel)
      try channel.addInterceptor(
        "again", .retry(attempts: 2, firstWait: .milliseconds(1)), priority: 2_000)
      _ = try await tracer.withSpan("work") { _ in try await fails(channel, with: .unavailable) }
      await eventually { tracer.finishedSpans.count == 5 }
      let work = try #require(Self.spans(tracer, "work").first)
      let calls = Self.spans(tracer, Self.call)
      #expect(calls.map(\.parentSpanID) == [work.spanID, work.spanID])
      #expect(Self.spans(tracer, Self.attempt).map(\.parentSpanID) == calls.map(\.spanID))
    }
  }

  @Test(arguments: [true, false]) func messagesAreEventsOnRequest(_ records: Bool) async throws {
    let tracer = InMemoryTracer()
    try await withChannel { channel in
      try Self.add(CallTracing(tracer: tracer, options: .init(recordsMessages: records)), to: channel)
      try await finish(channel, .bidi, [[1], [2, 2], [3, 3, 3]])
      #expect(tracer.finishedSpans.count == 2)
      for span in tracer.finishedSpans {
        for name in ["Outbound message", "Inbound message"] {
          let events = span.events.filter { $0.name == name }
          let numbers = events.map { $0.attributes["sequence-number"]?.toSpanAttribute() }
          let sizes = events.map { $0.attributes["message-size"]?.toSpanAttribute() }
          #expect(numbers == (records ? [.int64(0), .int64(1), .int64(2)] : []))
          #expect(sizes == (records ? [.int64(1), .int64(2), .int64(3)] : []))
        }
      }
    }
  }

  @Test func aSpanEndsOnceHoweverItsCallEnds() async throws {
    let tracer = CountingTracer()
    try await withChannel { channel in
      try Self.add(CallTracing(tracer: tracer), to: channel)
      try await cancelled(channel)
      let late = CallOptions(timeout: .milliseconds(20), metadata: ["x-delay-ms": "60000"])
      await #expect(throws: RPCError.self) {
        try await channel.unary("/penstock.Echo/Unary", [], options: late)
      }
      let task = Task {
        try await channel.unary("/penstock.Echo/Unary", [], options: .asking(["x-delay-ms": "60000"]))
      }
      await eventually { tracer.spans.count == 6 }
      task.cancel()
      await #expect(throws: RPCError.self) { try await task.value }
      // A call that nobody holds any more, and one that an interceptor above ends.
      _ = try channel.call(Method("/penstock.Echo/Bidi"), .bidi)
      let refusing = Interception.around { call in
        try await call.next()
        throw RPCError(.aborted, "refused")
      }
      try channel.addInterceptor("refusing", refusing, priority: 2_000, methods: ["/penstock.Echo/Unary"])
      await #expect(throws: RPCError.self) { try await channel.unary("/penstock.Echo/Unary", []) }
      await eventually { tracer.spans.count >= 8 && tracer.spans.allSatisfy { $0.endCount > 0 } }
      channel.close()
    }
    #expect(tracer.spans.allSatisfy { $0.endCount == 1 })
  }

  @Test func fieldsOfAnInstrumentAreTextOrBytes() async throws {
    let tracer = CountingTracer()
    try await withChannel { channel in
      try channel.addInterceptor("calls", CallTracing(tracer: tracer).calls)
      let seen = try await Self.seen(channel)
      #expect(seen["seen-x-trace-text"] == ["text"])
      // Base64 of the instrument is not made base64 once more.
      #expect(seen[binary: "seen-x-trace-bin"] == [[0, 1, 2, 255]])
      #expect(seen["seen-grpc-timeout"] == [])
    }
  }

  @Test func theTracerIsThatOfTheTaskThatMakesTheCall() async throws {
    let (one, two) = (InMemoryTracer(), InMemoryTracer())
    try await withChannel { channel in
      try Self.add(CallTracing(), to: channel)
      for tracer in [one, two] {
        let seen = try await withTracer(tracer) { try await Self.seen(channel) }
        #expect(seen.first("seen-in-memory-span-id") == Self.spans(tracer, Self.attempt).first?.spanID)
      }
      // Without a tracer nothing is written.
      #expect(try await Self.seen(channel)["seen-in-memory-span-id"] == [])
      #expect(one.finishedSpans.count == 2)
      #expect(two.finishedSpans.count == 2)
    }
  }

  @Test func interceptorsOfARuntimeGetTheContextOfTheTask() async throws {
    let tracer = InMemoryTracer()
    let tracing = CallTracing(tracer: tracer)
    // The default runtime, with its interceptors, lives as long as something uses it.
    let (own, shared) = (try Runtime(), try Runtime.shared())
    try own.addInterceptor("calls", tracing.calls)
    // Other tests have calls on the default runtime, too.
    let registration = try shared.addInterceptor("calls", tracing.calls, methods: ["/test.Traced/*"])
    for runtime in [own, nil] {
      try await withChannel(on: runtime) { channel in
        _ = await tracer.withSpan("work") { _ in
          await #expect(throws: RPCError.self) { try await channel.unary("/test.Traced/None", []) }
        }
        let work = try #require(Self.spans(tracer, "work").first)
        let call = try #require(Self.spans(tracer, "Sent.test.Traced/None").first)
        #expect(call.parentSpanID == work.spanID)
        tracer.clearFinishedSpans()
      }
    }
    try registration.remove()
    withExtendedLifetime(shared) {}
    try await own.shutdown(within: .seconds(60))
  }
}
