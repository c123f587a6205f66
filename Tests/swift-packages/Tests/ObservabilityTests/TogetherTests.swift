import InMemoryLogging
import InMemoryTracing
import Logging
import Metrics
import MetricsTestKit
import Penstock
import PenstockObservability
import Testing
import Tracing

/// Logs, metrics and traces of the same calls.
@Suite(.timeLimit(.minutes(15))) struct TogetherTests {
  @Test func eachOfManyCallsIsCountedOnceByAll() async throws {
    let (metrics, tracer) = (TestMetrics(), InMemoryTracer())
    let (logger, handler) = LoggingTests.logger()
    let (metering, tracing) = (CallMetering(factory: metrics), CallTracing(tracer: tracer))
    try await withChannel { channel in
      try channel.addInterceptor("log", CallLogging(logger).interception)
      try MetricsTests.add(metering, to: channel)
      try TracingTests.add(tracing, to: channel)
      await withTaskGroup(of: Void.self) { group in
        for number in 0..<300 {
          group.addTask {
            switch number % 4 {
            case 0: _ = try? await channel.unary("/penstock.Echo/Unary", [1])
            case 1: _ = try? await fails(channel, with: .notFound)
            case 2: try? await cancelled(channel)
            default: _ = try? channel.call(Method("/penstock.Echo/Bidi"), .bidi)
            }
          }
        }
      }
      await eventually {
        LoggingTests.ends(handler).count == 300 && tracer.activeSpans.isEmpty
          && metrics.meters.allSatisfy { $0.lastValue == 0 }
      }
    }
    let codes = LoggingTests.ends(handler).reduce(into: [:]) { codes, line in
      codes[line.metadata["code"]?.description, default: 0] += 1
    }
    #expect(codes == ["OK": 75, "NOT_FOUND": 75, "CANCELLED": 150])
    #expect(Set(LoggingTests.ends(handler).map { $0.metadata["call"]?.description }).count == 300)
    let durations = metrics.timers(label: "grpc.client.call.duration").map(\.values.count)
    #expect(durations.reduce(0, +) == 300)
    let attempts = metrics.timers(label: "grpc.client.attempt.duration").map(\.values.count)
    let started = metrics.counterTotal(label: "grpc.client.attempt.started")
    #expect(attempts.reduce(0, +) == Int(started))
    let spans = tracer.finishedSpans
    #expect(spans.count { $0.operationName.hasPrefix("Sent.") } == 300)
    #expect(spans.count { $0.operationName.hasPrefix("Attempt.") } == Int(started))
  }

  /// An object that the context of a task has.
  final class Kept: Sendable {}
  private enum KeptKey: ServiceContextKey { typealias Value = Kept }

  @Test func nothingIsLeftOfCallsAndInterceptors() async throws {
    weak var inTask: Kept?
    weak var inLevel: Kept?
    weak var traced: CountingTracer?
    try await withChannel { channel in
      let (first, second, tracer) = (Kept(), Kept(), CountingTracer())
      (inTask, inLevel, traced) = (first, second, tracer)
      var options = CallLogging.Options()
      options.level = { [second] _ in withExtendedLifetime(second) { .info } }
      let tracing = CallTracing(tracer: tracer)
      let registrations = try [
        channel.addInterceptor("log", CallLogging(LoggingTests.logger().0, options: options).interception),
        channel.addInterceptor("calls", tracing.calls), channel.addInterceptor("attempts", tracing.attempts),
      ]
      var context = ServiceContext.topLevel
      context[KeptKey.self] = first
      try await ServiceContext.withValue(context) {
        _ = try await channel.unary("/penstock.Echo/Unary", [])
        try await cancelled(channel)
        _ = try channel.call(Method("/penstock.Echo/Bidi"), .bidi)
      }
      for registration in registrations {
        try registration.remove()
        try await registration.waitRemoved(within: .seconds(60))
      }
    }
    await eventually { inTask == nil && inLevel == nil && traced == nil }
  }

  @Test func theCodeOfThePageRuns() async throws {
    let server = try Server()
    let channel = try Channel(server.target, options: .cleartext)
    defer { channel.close() }

    let logging = CallLogging(Logger(label: "rpc"))
    let metering = CallMetering()
    let tracing = CallTracing()
    try channel.addInterceptor("logging", logging.interception, priority: 1_000)
    try channel.addInterceptor("metering", metering.calls, priority: 1_000)
    try channel.addInterceptor("metering of attempts", metering.attempts)
    try channel.addInterceptor("tracing", tracing.calls, priority: 1_000)
    try channel.addInterceptor("tracing of attempts", tracing.attempts)

    #expect(try await channel.unary("/penstock.Echo/Unary", [1]) == [1])
  }
}
