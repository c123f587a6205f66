import Metrics
import MetricsTestKit
import Penstock
import PenstockObservability
import Testing

@Suite(.timeLimit(.minutes(15))) struct MetricsTests {
  static func labels(
    _ target: String, _ status: Status.Code? = nil, method: String = "penstock.Echo/Bidi"
  ) -> [(String, String)] {
    [("grpc.method", method), ("grpc.target", target == "other" ? target : "dns:///\(target)")]
      + (status.map { [("grpc.status", $0.description)] } ?? [])
  }

  static func add(_ metering: CallMetering, to channel: Channel) throws {
    try channel.addInterceptor("calls", metering.calls, priority: 1_000)
    try channel.addInterceptor("attempts", metering.attempts)
  }

  @Test(arguments: CallKind.allCases)
  func aCallIsMeasuredByItsLabels(_ kind: CallKind) async throws {
    let metrics = TestMetrics()
    let metering = CallMetering(factory: metrics)
    try await withChannel { channel in
      try Self.add(metering, to: channel)
      let message = [UInt8](repeating: 0, count: 50)
      #expect(try await finish(channel, kind, [message]).code == .ok)
      let (labels, ended) = (Self.labels(channel.target), Self.labels(channel.target, .ok))
      #expect(try metrics.expectCounter("grpc.client.attempt.started", labels).values == [1])
      #expect(try metrics.expectMeter("penstock.client.call.in_flight", labels).values == [1, 0])
      let call = try metrics.expectTimer("grpc.client.call.duration", ended)
      let attempt = try metrics.expectTimer("grpc.client.attempt.duration", ended)
      #expect(call.values.count == 1)
      #expect(attempt.values.count == 1)
      #expect(call.displayUnit == .seconds)
      #expect(attempt.displayUnit == .seconds)
      // The attempt is inside of the call.
      #expect(try #require(call.values.first) >= #require(attempt.values.first))
      #expect(try #require(attempt.values.first) > 0)
      let sent = try metrics.expectRecorder(
        "grpc.client.attempt.sent_total_compressed_message_size", ended)
      let received = try metrics.expectRecorder(
        "grpc.client.attempt.rcvd_total_compressed_message_size", ended)
      #expect(sent.aggregate)
      #expect(sent.values == [50])
      #expect(received.values == [50])
      // No other status, method or metric.
      #expect(metrics.counters.count == 1)
      #expect(metrics.meters.count == 1)
      #expect(metrics.timers.count == 2)
      #expect(metrics.recorders.count == 2)
    }
  }

  @Test func failuresAndCancelsAreMeasuredByTheirStatus() async throws {
    let metrics = TestMetrics()
    let metering = CallMetering(factory: metrics)
    try await withChannel { channel in
      try Self.add(metering, to: channel)
      for code in [Status.Code.notFound, .internal, .notFound] { try await fails(channel, with: code) }
      try await cancelled(channel)
      for (code, count, method) in [
        (Status.Code.notFound, 2, "penstock.Echo/Unary"), (.internal, 1, "penstock.Echo/Unary"),
        (.cancelled, 1, "penstock.Echo/Bidi"),
      ] {
        let labels = Self.labels(channel.target, code, method: method)
        await eventually {
          metrics.timers(label: "grpc.client.call.duration", dimensions: labels).first?.values.count == count
            && metrics.timers(label: "grpc.client.attempt.duration", dimensions: labels).first?.values.count
              == count
        }
      }
      let unary = Self.labels(channel.target, method: "penstock.Echo/Unary")
      #expect(metrics.counterTotal(label: "grpc.client.attempt.started", dimensions: unary) == 3)
      for meter in metrics.meters { #expect(meter.lastValue == 0) }
    }
  }

  @Test func eachAttemptIsMeasuredOnce() async throws {
    let metrics = TestMetrics()
    let metering = CallMetering(factory: metrics)
    try await withChannel(.retrying()) { channel in
      try Self.add(metering, to: channel)
      try await fails(channel, with: .unavailable)
      let labels = Self.labels(channel.target, .unavailable, method: "penstock.Echo/Unary")
      await eventually {
        metrics.timers(label: "grpc.client.attempt.duration", dimensions: labels).first?.values.count == 3
      }
      #expect(try metrics.expectTimer("grpc.client.call.duration", labels).values.count == 1)
      #expect(metrics.counterTotal(label: "grpc.client.attempt.started") == 3)
      // Each attempt has sent the request once more.
      let sent = try metrics.expectRecorder(
        "grpc.client.attempt.sent_total_compressed_message_size", labels)
      #expect(sent.values == [3, 3, 3])
    }
  }

  @Test func sizesAreThoseAfterCompression() async throws {
    let metrics = TestMetrics()
    let metering = CallMetering(factory: metrics)
    try await withChannel { channel in
      try Self.add(metering, to: channel)
      var options = CallOptions()
      options.compression = .gzip
      _ = try await finish(channel, .bidi, [[UInt8](repeating: 7, count: 10_000)], options)
      let labels = Self.labels(channel.target, .ok)
      let sent = try metrics.expectRecorder(
        "grpc.client.attempt.sent_total_compressed_message_size", labels)
      #expect(sent.values.count == 1)
      #expect((1...1_000).contains(sent.values.first ?? 0))
    }
  }

  @Test func runningCallsAreCounted() async throws {
    let metrics = TestMetrics()
    let metering = CallMetering(factory: metrics)
    try await withChannel { channel in
      try Self.add(metering, to: channel)
      var calls: [Call<[UInt8], [UInt8]>] = []
      for count in 1...3 {
        let call = try channel.call(Method("/penstock.Echo/Bidi"), .bidi)
        try await call.send([1])
        _ = try await call.response()
        calls.append(call)
        #expect(metrics.meters.map(\.lastValue) == [Double(count)])
      }
      for call in calls {
        call.halfClose()
        for try await _ in call.responses {}
      }
      #expect(metrics.meters.map(\.lastValue) == [0])
    }
  }

  @Test func labelsAreBounded() async throws {
    let metrics = TestMetrics()
    var options = CallMetering.Options()
    options.maxMethods = 2
    options.showsTarget = { _ in false }
    let metering = CallMetering(factory: metrics, options: options)
    try await withChannel { channel in
      try Self.add(metering, to: channel)
      for number in 0..<5 {
        await #expect(throws: RPCError.self) { try await channel.unary("/test.None/M\(number)", []) }
      }
      let started = metrics.counters(label: "grpc.client.attempt.started")
      #expect(Set(started.map { $0.dimensions[0].1 }) == ["test.None/M0", "test.None/M1", "other"])
      #expect(Set(started.map { $0.dimensions[1].1 }) == ["other"])
      #expect(
        metrics.counterTotal(
          label: "grpc.client.attempt.started", dimensions: Self.labels("other", method: "other")) == 3)
    }
  }

  @Test func theFactoryIsThatOfTheTask() async throws {
    let metrics = TestMetrics()
    let metering = withMetricsFactory(metrics) { CallMetering() }
    try await withChannel { channel in
      try Self.add(metering, to: channel)
      _ = try await channel.unary("/penstock.Echo/Unary", [])
      #expect(metrics.counterTotal(label: "grpc.client.attempt.started") == 1)
    }
  }
}
