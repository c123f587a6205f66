#if Observability
  public import Logging
  public import Penstock
  import Tracing

  // `PenstockObservability` has interceptors for the packages with which Swift programs log, measure and trace:
  // swift-log, swift-metrics and swift-distributed-tracing. They watch calls and never change what a call does: they add
  // fields to a request's metadata at most. Their callbacks run on the runtime's thread, and so do the log handlers, the
  // metrics factories and the tracers behind them; what these need of the task that makes a call, such as its
  // ServiceContext, is taken when the call is made.

  /// Logs calls to a `Logger` of swift-log: a line for each call that has ended, and what happens to the channel.
  ///
  ///     let logging = CallLogging(Logger(label: "rpc"))
  ///     try channel.addInterceptor("logging", logging.interception, priority: 1_000)
  ///
  /// A line has this metadata: "call" (the number of the call), "method", "kind", "target", "code" (such as "NOT_FOUND"),
  /// "message" (that of the status, if it has one), "elapsed_us", "attempts", "peer" (the server's address, if there was a
  /// connection), "sent_messages", "sent_bytes", "received_messages" and "received_bytes" (the sizes before compression).
  ///
  /// The handlers of the logger run on the runtime's thread: one that waits holds up other calls. The task's
  /// `ServiceContext` is in place while they run, so a metadata provider finds the trace of the caller.
  public struct CallLogging: Sendable {
    /// The options.
    public struct Options: Sendable {
      /// The level of a line about a call that has ended with a code.
      public var level: @Sendable (Status.Code) -> Logger.Level = CallLogging.level
      /// The level of a line about a call that starts; nil: there is no such line.
      public var startLevel: Logger.Level?
      /// Whether lines have the metadata of the request, of the response headers and of the trailers.
      public var hasMetadata = false
      /// The names of metadata, in letters of any case, whose values are shown as "redacted".
      public var redacted: Set<String> = [
        "authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key",
      ]
      /// Whether the values of names that end in "-bin" are redacted, too; else they are shown as base64.
      public var redactsBinary = false
      /// The least level of the channel's events that are logged, too; nil: none is.
      public var connections: ConnectionEvent.Level? = .warning
      /// Whether a call is logged to the logger of the task that makes it (`withLogger`), instead of the one that was
      /// given. The channel's events go to that one in any case.
      public var usesTaskLogger = false

      /// Makes options.
      public init() {}

      /// These options with the names as metadata has them: in small letters.
      fileprivate var asMetadataIs: Options {
        var same = self
        same.redacted = Set(redacted.map { $0.lowercased() })
        return same
      }
    }

    /// The interceptor, to be added to channels and runtimes.
    public let interception: Interception

    /// Makes an interceptor that logs to `logger`.
    public init(_ logger: Logger, options: Options = Options()) {
      let options = options.asMetadataIs
      let usesTaskLogger = options.usesTaskLogger
      let capture = Capture {
        Surroundings(context: .current, logger: usesTaskLogger ? Logger.current : nil)
      }
      var connections: (@Sendable (ConnectionEvent) -> Void)?
      if let least = options.connections {
        connections = { event in if event.level >= least { Self.log(event, to: logger) } }
      }
      interception = .observing(
        events: options.hasMetadata ? .headers : [], capture: capture, connections: connections
      ) { call in
        let surroundings = call.value(of: capture)
        return LoggedCall(call, surroundings?.logger ?? logger, surroundings?.context, options)
      }
    }

    /// The usual levels: info for OK and CANCELLED, error for what points at a fault of the server or the network (UNKNOWN,
    /// DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS), and warning for the others.
    public static func level(of code: Status.Code) -> Logger.Level {
      switch code {
      case .ok, .cancelled: .info
      case .unknown, .deadlineExceeded, .unimplemented, .internal, .unavailable, .dataLoss: .error
      case .invalidArgument, .notFound, .alreadyExists, .permissionDenied, .resourceExhausted,
        .failedPrecondition, .aborted, .outOfRange, .unauthenticated:
        .warning
      }
    }

    /// The values that a call takes along from the task that makes it.
    private struct Surroundings: Sendable {
      let context: ServiceContext?
      let logger: Logger?
    }

    private static func log(_ event: ConnectionEvent, to logger: Logger) {
      let level: Logger.Level =
        switch event.level {
        case .debug: .debug
        case .info: .info
        case .warning: .warning
        case .error: .error
        }
      var fields: Logger.Metadata = ["event": "\(event.kind.rawValue)", "target": "\(event.target)"]
      fields.add("address", event.address)
      fields.add("message", event.message)
      fields.add("ms", event.duration.map { $0 / .milliseconds(1) }.map { Int($0) })
      fields.add("call", event.call)
      fields.add("method", event.method)
      fields.add("interceptor", event.interceptor)
      fields.add("callback", event.callback)
      logger.log(level: level, "channel event", metadata: fields)
    }
  }

  /// The line of one call.
  private final class LoggedCall: CallObserver {
    private let logger: Logger
    private let context: ServiceContext?
    private let options: CallLogging.Options
    private var fields: Logger.Metadata

    init(
      _ call: ObservedCall, _ logger: Logger, _ context: ServiceContext?, _ options: CallLogging.Options
    ) {
      self.logger = logger
      self.context = context
      self.options = options
      fields = [
        "call": "\(call.id)", "method": "\(call.method)", "kind": "\(call.kind)", "target": "\(call.target)",
      ]
    }

    func started(_ call: ObservedCall) {
      if options.hasMetadata { fields["request_metadata"] = shown(call.metadata) }
      if let level = options.startLevel { log(level, "call started") }
    }

    func headersCame(_ headers: Penstock.Metadata) {
      fields["response_headers"] = shown(headers)
    }

    func ended(_ status: Status, _ call: ObservedCall) {
      let level = options.level(status.code)
      guard level >= logger.logLevel else { return }
      let figures = call.figures()
      fields["code"] = "\(status.code)"
      fields.add("message", status.message.isEmpty ? nil : status.message)
      fields["elapsed_us"] = "\(figures.elapsedMicroseconds)"
      fields["attempts"] = "\(figures.attempts)"
      fields.add("peer", figures.peer)
      fields["sent_messages"] = "\(figures.sent.messages)"
      fields["sent_bytes"] = "\(figures.sent.bytes)"
      fields["received_messages"] = "\(figures.received.messages)"
      fields["received_bytes"] = "\(figures.received.bytes)"
      if options.hasMetadata { fields["trailers"] = shown(status.trailers) }
      log(level, "call ended")
    }

    private func log(_ level: Logger.Level, _ message: Logger.Message) {
      guard let context else { return logger.log(level: level, message, metadata: fields) }
      ServiceContext.withValue(context) { logger.log(level: level, message, metadata: fields) }
    }

    /// Metadata as a dictionary of lists.
    private func shown(_ metadata: Penstock.Metadata) -> Logger.MetadataValue {
      var shown: Logger.Metadata = [:]
      for entry in metadata {
        let value: Logger.MetadataValue = .string(shownValue(entry))
        if case .array(let values)? = shown[entry.name] {
          shown[entry.name] = .array(values + [value])
        } else {
          shown[entry.name] = .array([value])
        }
      }
      return .dictionary(shown)
    }

    private func shownValue(_ entry: Penstock.Metadata.Entry) -> String {
      let isBinary = entry.name.hasSuffix("-bin")
      if options.redacted.contains(entry.name) || isBinary && options.redactsBinary { return "redacted" }
      return isBinary ? base64(entry.bytes) : entry.value
    }
  }

  extension Logger.Metadata {
    /// Adds a field that has a value.
    fileprivate mutating func add(_ name: String, _ value: (some CustomStringConvertible & Sendable)?) {
      if let value { self[name] = "\(value)" }
    }
  }
#endif
