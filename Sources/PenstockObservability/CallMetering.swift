#if Observability
  public import CoreMetrics
  public import Penstock

  /// Measures calls for swift-metrics, by the names that gRPC has for the metrics of clients (gRFC A66).
  ///
  ///     let metering = CallMetering()
  ///     try channel.addInterceptor("calls", metering.calls, priority: 1_000)
  ///     try channel.addInterceptor("attempts", metering.attempts)
  ///
  /// | metric | kind | unit | labels | from |
  /// |---|---|---|---|---|
  /// | `grpc.client.attempt.started` | Counter | attempts | method, target | ``attempts`` |
  /// | `grpc.client.attempt.duration` | Timer | nanoseconds, shown as seconds | method, target, status | ``attempts`` |
  /// | `grpc.client.attempt.sent_total_compressed_message_size` | Recorder | bytes | method, target, status | ``attempts`` |
  /// | `grpc.client.attempt.rcvd_total_compressed_message_size` | Recorder | bytes | method, target, status | ``attempts`` |
  /// | `grpc.client.call.duration` | Timer | nanoseconds, shown as seconds | method, target, status | ``calls`` |
  /// | `penstock.client.call.in_flight` | Meter | calls | method, target | ``calls`` |
  ///
  /// The labels are `grpc.method` ("package.Service/Method"), `grpc.target` (with its scheme: "dns:///host:443" for
  /// "host:443") and `grpc.status` (such as "OK"). The last metric is none of gRPC's: the calls that run now. Sizes are
  /// those of the messages after compression, without framing and metadata. The duration of a call is from its creation to
  /// its status at the interceptor, so with a high priority it contains the work of the interceptors below.
  ///
  /// The factory's handlers run on the runtime's thread: one that waits holds up other calls.
  public struct CallMetering: Sendable {
    /// The options.
    public struct Options: Sendable {
      /// How many methods, counted for each target, have labels of their own; the others are "other".
      public var maxMethods = 256
      /// Whether a target is shown in the label; if not, it is "other".
      public var showsTarget: @Sendable (String) -> Bool = { _ in true }

      /// Makes options.
      public init() {}
    }

    /// The interceptor that measures whole calls.
    public let calls: Interception
    /// The interceptor that measures each attempt of a call. Its priority only places it among other interceptors of
    /// attempts, which stand below all others.
    public let attempts: Interception

    /// Makes interceptors.
    ///
    /// - Parameter factory: makes the metrics; nil: the factory of the task (`withMetricsFactory`), or the one that the
    ///   program has set by `MetricsSystem.bootstrap`, which it does before this.
    public init(factory: (any MetricsFactory)? = nil, options: Options = Options()) {
      let series = SeriesTable(factory ?? MetricsSystem.factory, options)
      calls = .observing { call in MeasuredCall(call, series.series(of: call)) }
      attempts = .observing(perAttempt: true) { call in MeasuredAttempt(call, series.series(of: call)) }
    }
  }

  /// The metrics of one method at one target.
  private final class Series: Sendable {
    let started: Counter
    let inFlight: Meter
    private let factory: any MetricsFactory
    private let labels: [(String, String)]
    private let callDurations = Locked<[Status.Code: Timer]>([:])
    private let attempts = Locked<[Status.Code: Attempts]>([:])

    /// The metrics of the attempts that end with one code.
    struct Attempts: Sendable {
      let duration: Timer
      let sent: Recorder
      let received: Recorder
    }

    init(_ factory: any MetricsFactory, _ method: String, _ target: String) {
      self.factory = factory
      labels = [("grpc.method", method), ("grpc.target", target)]
      started = Counter(label: "grpc.client.attempt.started", dimensions: labels, factory: factory)
      inFlight = Meter(label: "penstock.client.call.in_flight", dimensions: labels, factory: factory)
    }

    private func labels(_ code: Status.Code) -> [(String, String)] {
      labels + [("grpc.status", code.description)]
    }

    func callDuration(_ code: Status.Code) -> Timer {
      if let known = callDurations.withLock({ $0[code] }) { return known }
      let made = Timer(
        label: "grpc.client.call.duration", dimensions: labels(code), preferredDisplayUnit: .seconds,
        factory: factory)
      return callDurations.withLock { known in
        if let other = known[code] { return other }
        known[code] = made
        return made
      }
    }

    func attempts(_ code: Status.Code) -> Attempts {
      if let known = attempts.withLock({ $0[code] }) { return known }
      let labels = labels(code)
      func sizes(_ name: String) -> Recorder {
        Recorder(
          label: "grpc.client.attempt.\(name)_total_compressed_message_size", dimensions: labels,
          aggregate: true, factory: factory)
      }
      let made = Attempts(
        duration: Timer(
          label: "grpc.client.attempt.duration", dimensions: labels, preferredDisplayUnit: .seconds,
          factory: factory), sent: sizes("sent"), received: sizes("rcvd"))
      return attempts.withLock { known in
        if let other = known[code] { return other }
        known[code] = made
        return made
      }
    }
  }

  /// The metrics of all methods.
  private final class SeriesTable: Sendable {
    private struct Key: Hashable {
      let method: String
      let target: String
    }

    private let factory: any MetricsFactory
    private let options: CallMetering.Options
    private let all = Locked<[Key: Series]>([:])
    private let others = Locked<Series?>(nil)
    /// The label of each target, so that it is made once.
    private let labels = Locked<[String: String]>([:])

    init(_ factory: any MetricsFactory, _ options: CallMetering.Options) {
      self.factory = factory
      self.options = options
    }

    func series(of call: ObservedCall) -> Series {
      let path = call.method
      // Targets that are not shown share a series.
      let target = options.showsTarget(call.target) ? label(of: call.target) : "other"
      let key = Key(method: path.hasPrefix("/") ? String(path.dropFirst()) : path, target: target)
      let (known, isFull) = all.withLock { ($0[key], $0.count >= options.maxMethods) }
      if let known { return known }
      if isFull { return other() }
      let made = Series(factory, key.method, key.target)
      return all.withLock { all in
        if let known = all[key] { return known }
        all[key] = made
        return made
      }
    }

    private func label(of target: String) -> String {
      if let known = labels.withLock({ $0[target] }) { return known }
      let made = SeriesTable.canonical(target)
      labels.withLock { if $0.count < options.maxMethods { $0[target] = made } }
      return made
    }

    private static let schemes = [
      "dns:", "https://", "http://", "ipv4:", "ipv6:", "passthrough:", "unix:", "unix-abstract:", "vsock:",
    ]

    /// The target with its scheme (gRFC A66): a name without one is of the scheme "dns".
    private static func canonical(_ target: String) -> String {
      let lower = target.lowercased()
      return schemes.contains { lower.hasPrefix($0) } ? target : "dns:///\(target)"
    }

    private func other() -> Series {
      if let known = others.withLock({ $0 }) { return known }
      let made = Series(factory, "other", "other")
      return others.withLock { others in
        let series = others ?? made
        others = series
        return series
      }
    }
  }

  private final class MeasuredCall: CallObserver {
    private let series: Series
    /// When a call that was sent again came to its interceptor anew; the first time it counts from its creation.
    private let start: Int

    init(_ call: ObservedCall, _ series: Series) {
      self.series = series
      start = call.attempt > 1 ? call.figures().elapsedMicroseconds : 0
      series.inFlight.increment()
    }

    func ended(_ status: Status, _ call: ObservedCall) {
      series.inFlight.decrement()
      let elapsed = call.figures().elapsedMicroseconds - start
      series.callDuration(status.code).recordMicroseconds(elapsed)
    }
  }

  private final class MeasuredAttempt: CallObserver {
    private let series: Series
    /// The figures of the call when the attempt began: they contain those of earlier attempts.
    private let before: CallFigures

    init(_ call: ObservedCall, _ series: Series) {
      self.series = series
      before = call.figures()
      series.started.increment()
    }

    func ended(_ status: Status, _ call: ObservedCall) {
      let figures = call.figures()
      let metrics = series.attempts(status.code)
      metrics.duration.recordMicroseconds(figures.elapsedMicroseconds - before.elapsedMicroseconds)
      metrics.sent.record(figures.sent.compressedBytes - before.sent.compressedBytes)
      metrics.received.record(figures.received.compressedBytes - before.received.compressedBytes)
    }
  }
#endif
