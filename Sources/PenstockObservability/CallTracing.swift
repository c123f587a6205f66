#if Observability
  public import Penstock
  public import Tracing

  /// Traces calls by swift-distributed-tracing: a span for each call, and one for each of its attempts. The names of spans
  /// and events are those that gRPC has for clients (gRFC A72).
  ///
  ///     let tracing = CallTracing()
  ///     try channel.addInterceptor("calls", tracing.calls, priority: 1_000)
  ///     try channel.addInterceptor("attempts", tracing.attempts)
  ///
  /// The span of a call is "Sent.package.Service/Method", a child of the span in the `ServiceContext` of the task that
  /// makes the call. Its attempts are "Attempt.package.Service/Method", children of the call's span. Each writes its context
  /// into the metadata of the request by the tracer (for W3C the field "traceparent"); the attempt, if there is one, is
  /// what the server sees. A call ends its spans exactly once, with its status: OK, or an error that is recorded, too.
  ///
  /// | attribute (OpenTelemetry's conventions 1.37) | value |
  /// |---|---|
  /// | `rpc.system` | "grpc", also for gRPC-Web; "connect_rpc" for Connect |
  /// | `rpc.service`, `rpc.method` | "package.Service" and "Method" |
  /// | `server.address`, `server.port` | host and port of the authority; the path of a unix socket |
  /// | `rpc.grpc.status_code` | the number of the status |
  /// | `rpc.connect_rpc.error_code` | in its place for Connect: such as "not_found"; absent for OK |
  /// | `network.peer.address`, `network.peer.port` | of an attempt: the server that was picked |
  /// | `previous-rpc-attempts` (A72) | of an attempt: how many came before it by a retry policy |
  /// | `transparent-retry` (A72) | of an attempt: whether it repeats one that the server has certainly not processed |
  ///
  /// The tracer runs on the runtime's thread: one that waits holds up other calls.
  public struct CallTracing: Sendable {
    /// The options.
    public struct Options: Sendable {
      /// Whether each message is an event of its spans: "Outbound message" and "Inbound message", with the attributes
      /// "sequence-number", which begins with 0, and "message-size", in bytes before compression.
      public var recordsMessages = false

      /// Makes options.
      public init(recordsMessages: Bool = false) { self.recordsMessages = recordsMessages }
    }

    /// The interceptor that makes a span for each call.
    public let calls: Interception
    /// The interceptor that makes a span for each attempt of a call. Its priority only places it among other interceptors
    /// of attempts, which stand below all others.
    public let attempts: Interception

    /// Makes interceptors.
    ///
    /// - Parameter tracer: makes the spans, and writes their contexts; nil: that of the `InstrumentationSystem`, with all
    ///   of its instruments, as they are for the task when it makes a call.
    public init(tracer: (any Tracer)? = nil, options: Options = Options()) {
      let capture = Capture { TracedScope(tracer, ServiceContext.current) }
      let events: InterceptedEvents = options.recordsMessages ? [.request, .response] : []
      calls = .observing(events: events, capture: capture) { call in
        TracedCall(call, call.value(of: capture) ?? TracedScope(tracer, nil), isAttempt: false)
      }
      attempts = .observing(perAttempt: true, events: events, capture: capture) { call in
        TracedCall(call, call.value(of: capture) ?? TracedScope(tracer, nil), isAttempt: true)
      }
    }
  }

  /// The context and the tracer that the spans of one call share.
  private final class TracedScope: Sendable {
    let tracer: any Tracer
    let instrument: any Instrument
    /// The context of the task that has made the call.
    let outer: ServiceContext
    /// The contexts of the spans of calls, each with the number of its call. An interceptor above can send a call again,
    /// also as several calls that run at once, which all have this scope.
    private let calls = Locked<[(id: UInt64, context: ServiceContext)]>([])

    init(_ tracer: (any Tracer)?, _ context: ServiceContext?) {
      self.tracer = tracer ?? InstrumentationSystem.tracer
      instrument = tracer ?? InstrumentationSystem.instrument
      outer = context ?? .topLevel
    }

    func begin(_ id: UInt64, _ context: ServiceContext) {
      calls.withLock { calls in
        calls.removeAll { $0.id == id }
        calls.append((id, context))
      }
    }

    /// The context in which an attempt of a call is. An interceptor between the two may make attempts as calls of their
    /// own: these belong to the span of the call that came to it.
    func context(ofAttemptOf id: UInt64) -> ServiceContext {
      calls.withLock { calls in (calls.first { $0.id == id } ?? calls.last)?.context } ?? outer
    }
  }

  /// The span of one call or of one attempt.
  private final class TracedCall: CallObserver {
    private let scope: TracedScope
    private let span: any Span
    private let isConnect: Bool
    private var sentMessages = 0
    private var receivedMessages = 0

    init(_ call: ObservedCall, _ scope: TracedScope, isAttempt: Bool) {
      self.scope = scope
      let path = call.method.hasPrefix("/") ? call.method.dropFirst() : call.method[...]
      isConnect = call.rpcProtocol == "connect"
      if isAttempt {
        let context = scope.context(ofAttemptOf: call.id)
        span = scope.tracer.startSpan("Attempt.\(path)", context: context, ofKind: .client)
      } else {
        span = scope.tracer.startSpan("Sent.\(path)", context: scope.outer, ofKind: .client)
        scope.begin(call.id, span.context)
      }
      let slash = path.lastIndex(of: "/") ?? path.startIndex
      let server = ServerAddress(of: call)
      let isConnect = isConnect
      span.updateAttributes { attributes in
        attributes["rpc.system"] = isConnect ? "connect_rpc" : "grpc"
        attributes["rpc.service"] = String(path[..<slash])
        attributes["rpc.method"] = String(path[slash...].drop { $0 == "/" })
        attributes["server.address"] = server.host
        if let port = server.port { attributes["server.port"] = port }
        guard isAttempt else { return }
        attributes["previous-rpc-attempts"] = call.previousAttempts
        attributes["transparent-retry"] = call.isTransparentRetry
      }
    }

    func started(_ call: ObservedCall) {
      var fields: [RequestFields.Field] = []
      scope.instrument.inject(span.context, into: &fields, using: RequestFields())
      for field in fields { call.set(field.name, field.value) }
    }

    func picked(address: String) {
      let peer = ServerAddress(address)
      span.updateAttributes { attributes in
        attributes["network.peer.address"] = peer.host
        if let port = peer.port { attributes["network.peer.port"] = port }
      }
    }

    func sent(bytes: Int) {
      record("Outbound message", &sentMessages, bytes)
    }

    func received(bytes: Int) {
      record("Inbound message", &receivedMessages, bytes)
    }

    private func record(_ name: String, _ number: inout Int, _ bytes: Int) {
      var attributes = SpanAttributes()
      attributes["sequence-number"] = number
      attributes["message-size"] = bytes
      span.addEvent(SpanEvent(name: name, attributes: attributes))
      number += 1
    }

    func ended(_ status: Status, _ call: ObservedCall) {
      if !isConnect {
        span.attributes["rpc.grpc.status_code"] = Int64(status.code.rawValue)
      } else if status.code != .ok {
        span.attributes["rpc.connect_rpc.error_code"] = status.code.description.lowercased()
      }
      if status.code == .ok {
        span.setStatus(SpanStatus(code: .ok))
      } else {
        span.setStatus(SpanStatus(code: .error, message: status.description))
        span.recordError(RPCError(status))
      }
      span.end()
    }
  }

  /// Writes the fields of an instrument into the metadata of a request.
  private struct RequestFields: Injector {
    struct Field: Sendable {
      let name: String
      let value: [UInt8]
    }

    func inject(_ value: String, forKey key: String, into fields: inout [Field]) {
      // An instrument writes text, also for the fields whose values are bytes: these it gives as base64 (gRFC A72).
      let isBinary = key.lowercased().hasSuffix("-bin")
      // Text that is no base64 can't be sent as such a field.
      guard let sent = isBinary ? bytes(base64: value) : [UInt8](value.utf8) else { return }
      fields.append(Field(name: key, value: sent))
    }
  }

  /// A server's host and port, as attributes have them.
  struct ServerAddress: Equatable {
    var host: String
    var port: Int?

    /// Reads "host:port", "[::1]:443", "host" or "unix:/path".
    init(_ text: String) {
      host = text
      if text.hasPrefix("unix:") {
        host = String(text.dropFirst(5))
        return
      }
      guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]) else {
        host = Self.bare(text[...])
        return
      }
      let before = text[..<colon]
      // A colon of a bare IPv6 address is none before a port.
      if before.contains(":") && !before.hasSuffix("]") { return }
      host = Self.bare(before)
      self.port = Int(port)
    }

    private static func bare(_ host: Substring) -> String {
      host.hasPrefix("[") && host.hasSuffix("]") ? String(host.dropFirst().dropLast()) : String(host)
    }

    /// The server that a call is for.
    init(of call: ObservedCall) {
      let target = call.target
      guard target.hasPrefix("unix:") else {
        self.init(call.authority)
        return
      }
      let path = target.dropFirst(5)
      self.init("unix:\(path.hasPrefix("//") ? path.dropFirst(2) : path)")
    }
  }
#endif
