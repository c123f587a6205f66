import InMemoryLogging
import Logging
import Penstock
import PenstockObservability
import Testing
import Tracing

@Suite(.timeLimit(.minutes(15))) struct LoggingTests {
  /// A logger that keeps its lines.
  static func logger(_ level: Logger.Level = .trace) -> (Logger, InMemoryLogHandler) {
    var handler = InMemoryLogHandler()
    handler.logLevel = level
    return (Logger(label: "test", factory: { [handler] _ in handler }), handler)
  }

  /// The lines about calls that have ended.
  static func ends(_ handler: InMemoryLogHandler) -> [InMemoryLogHandler.Entry] {
    handler.entries.filter { $0.message == "call ended" }
  }

  @Test(arguments: CallKind.allCases)
  func aCallIsOneLineWithItsFields(_ kind: CallKind) async throws {
    let (logger, handler) = Self.logger()
    let server = try Server()
    try await withChannel(to: server) { channel in
      try channel.addInterceptor("log", CallLogging(logger).interception)
      let messages: [[UInt8]] = kind == .bidi ? [[1, 2, 3], [4]] : [[1, 2, 3]]
      let status = try await finish(channel, kind, messages)
      #expect(status.code == .ok)
      await eventually { !Self.ends(handler).isEmpty }
      #expect(handler.entries.count == 1)
      let line = try #require(Self.ends(handler).first)
      #expect(line.level == .info)
      var fields = line.metadata
      let call = fields.removeValue(forKey: "call")?.description
      #expect(call.flatMap { Int($0) } ?? 0 > 0)
      let elapsed = fields.removeValue(forKey: "elapsed_us")?.description
      #expect(elapsed.flatMap { Int($0) } ?? 0 > 0)
      #expect(
        fields == [
          "method": "/penstock.Echo/Bidi", "kind": "\(kind)", "target": "\(server.target)", "code": "OK",
          "attempts": "1", "peer": "\(server.target)", "sent_messages": "\(messages.count)",
          "sent_bytes": "\(messages.joined().count)", "received_messages": "\(messages.count)",
          "received_bytes": "\(messages.joined().count)",
        ])
    }
  }

  @Test func theLevelFollowsTheCode() async throws {
    let errors: Set<Status.Code> = [
      .unknown, .deadlineExceeded, .unimplemented, .internal, .unavailable, .dataLoss,
    ]
    let (logger, handler) = Self.logger()
    try await withChannel { channel in
      let registration = try channel.addInterceptor("log", CallLogging(logger).interception)
      for code in Status.Code.allCases where code != .ok {
        try await fails(channel, with: code)
        await eventually { !handler.entries.isEmpty }
        let line = try #require(handler.entries.first)
        #expect(line.level == (code == .cancelled ? .info : errors.contains(code) ? .error : .warning))
        #expect(line.metadata["code"] == "\(code)")
        #expect(line.metadata["message"] == "as asked")
        handler.clear()
      }

      var options = CallLogging.Options()
      options.level = { $0 == .ok ? .debug : .critical }
      try registration.replace("log", CallLogging(logger, options: options).interception)
      _ = try await channel.unary("/penstock.Echo/Unary", [])
      try await fails(channel, with: .notFound)
      await eventually { handler.entries.count == 2 }
      #expect(handler.entries.map(\.level) == [.debug, .critical])
    }
  }

  @Test func linesBelowTheLevelOfTheLoggerAreNotMade() async throws {
    let (logger, handler) = Self.logger(.warning)
    try await withChannel { channel in
      try channel.addInterceptor("log", CallLogging(logger).interception)
      _ = try await channel.unary("/penstock.Echo/Unary", [])
      try await fails(channel, with: .notFound)
      await eventually { handler.entries.count == 1 }
      #expect(handler.entries.map(\.level) == [.warning])
    }
  }

  @Test func metadataIsShownOnRequestAndSecretsAreRedacted() async throws {
    let (logger, handler) = Self.logger()
    let secret: Metadata = [
      "authorization": "Bearer abc", "x-api-key": "def", "x-plain": "one", "x-plain": "two",
      "x-own": "ghi", "x-headers-cookie": "jkl", "x-trailers-end": "last",
    ]
    var asked = secret
    asked[binary: "x-raw-bin"] = [[0, 1, 2]]
    try await withChannel { channel in
      let registration = try channel.addInterceptor("log", CallLogging(logger).interception)
      _ = try await channel.unary("/penstock.Echo/Unary", [], options: .asking(asked))
      await eventually { handler.entries.count == 1 }
      for name in ["request_metadata", "response_headers", "trailers"] {
        #expect(handler.entries.first?.metadata[name] == nil)
      }

      var options = CallLogging.Options()
      options.hasMetadata = true
      options.redacted.insert("X-Own")
      try registration.replace("log", CallLogging(logger, options: options).interception)
      _ = try await channel.unary("/penstock.Echo/Unary", [], options: .asking(asked))
      await eventually { handler.entries.count == 2 }
      let line = handler.entries[1].metadata
      guard case .dictionary(let request) = line["request_metadata"],
        case .dictionary(let headers) = line["response_headers"],
        case .dictionary(let trailers) = line["trailers"]
      else {
        Issue.record("\(line)")
        return
      }
      #expect(request["authorization"] == ["redacted"])
      #expect(request["x-api-key"] == ["redacted"])
      #expect(request["x-own"] == ["redacted"])
      #expect(request["x-plain"] == ["one", "two"])
      #expect(request["x-raw-bin"] == ["AAEC"])
      #expect(headers["x-headers-cookie"] == ["jkl"])
      #expect(trailers["x-trailers-end"] == ["last"])
      for value in ["abc", "def", "ghi"] { #expect(!"\(line)".contains(value)) }

      options.redactsBinary = true
      try registration.replace("log", CallLogging(logger, options: options).interception)
      _ = try await channel.unary("/penstock.Echo/Unary", [], options: .asking(asked))
      await eventually { handler.entries.count == 3 }
      guard case .dictionary(let last) = handler.entries[2].metadata["request_metadata"] else {
        Issue.record("no metadata")
        return
      }
      #expect(last["x-raw-bin"] == ["redacted"])
    }
  }

  @Test func aStartIsLoggedOnRequestAndACancelAsTheEnd() async throws {
    let (logger, handler) = Self.logger()
    var options = CallLogging.Options()
    options.startLevel = .debug
    try await withChannel { channel in
      try channel.addInterceptor("log", CallLogging(logger, options: options).interception)
      try await cancelled(channel)
      await eventually { handler.entries.count == 2 }
      #expect(handler.entries.map(\.message) == ["call started", "call ended"])
      #expect(handler.entries.map(\.level) == [.debug, .info])
      #expect(handler.entries[0].metadata["call"] == handler.entries[1].metadata["call"])
      #expect(handler.entries[1].metadata["code"] == "CANCELLED")
    }
  }

  @Test func attemptsAreCountedInTheirCall() async throws {
    let (logger, handler) = Self.logger()
    var options = CallLogging.Options()
    options.connections = nil
    try await withChannel(.retrying()) { channel in
      try channel.addInterceptor("log", CallLogging(logger, options: options).interception)
      try await fails(channel, with: .unavailable)
      await eventually { handler.entries.count == 1 }
      #expect(handler.entries.first?.metadata["attempts"] == "3")
      #expect(handler.entries.first?.metadata["sent_messages"] == "3")
    }
  }

  @Test func theLoggerAndTheContextOfTheTaskAreThoseOfItsCalls() async throws {
    let (logger, handler) = Self.logger()
    var (own, ownLines) = Self.logger()
    ownLines.metadataProvider = Logger.MetadataProvider {
      ServiceContext.current?.tenant.map { ["tenant": "\($0)"] } ?? [:]
    }
    own = Logger(label: "own", factory: { [ownLines] _ in ownLines })
    var options = CallLogging.Options()
    options.usesTaskLogger = true
    var context = ServiceContext.topLevel
    context.tenant = "green"
    try await withChannel { channel in
      try channel.addInterceptor("log", CallLogging(logger, options: options).interception)
      try await ServiceContext.withValue(context) {
        try await withLogger(own) { _ in
          _ = try await channel.unary("/penstock.Echo/Unary", [])
        }
      }
      await eventually { ownLines.entries.count == 1 }
      #expect(ownLines.entries.first?.metadata["tenant"] == "green")
      #expect(handler.entries.isEmpty)
    }
  }

  @Test func eventsOfTheChannelHaveTheirLevel() async throws {
    let (logger, handler) = Self.logger()
    var options = CallLogging.Options()
    options.connections = .info
    try await withChannel { channel in
      try channel.addInterceptor("log", CallLogging(logger, options: options).interception)
      _ = try await channel.unary("/penstock.Echo/Unary", [])
      let lines = handler.entries.filter { $0.message == "channel event" }
      let ready = try #require(lines.first { $0.metadata["event"] == "ready" })
      #expect(ready.level == .info)
      #expect(ready.metadata["target"] == "\(channel.target)")
      #expect(ready.metadata["address"] == "\(channel.target)")
      #expect(lines.allSatisfy { $0.level >= .info })
    }
    let (warned, warnings) = Self.logger()
    // Nobody listens on the port of a server that has ended.
    let gone = try Server().target
    let channel = try Channel(gone, options: .cleartext)
    defer { channel.close() }
    try channel.addInterceptor("log", CallLogging(warned).interception)
    await #expect(throws: RPCError.self) { try await channel.unary("/penstock.Echo/Unary", []) }
    let events = { warnings.entries.filter { $0.message == "channel event" } }
    await eventually {
      events().contains { $0.metadata["event"] == "backoff" && $0.level == .warning }
        && events().contains { $0.metadata["event"] == "unreachable" && $0.level == .error }
    }
    #expect(events().allSatisfy { $0.level >= .warning })
  }

  @Test func connectionEventsAreHeardAsValues() async throws {
    let (heard, continuation) = AsyncStream.makeStream(of: ConnectionEvent.self)
    try await withChannel { channel in
      let registration = try channel.addInterceptor(
        "events", .connectionEvents { continuation.yield($0) })
      _ = try await channel.unary("/penstock.Echo/Unary", [])
      try registration.remove()
      try await registration.waitRemoved(within: .seconds(60))
      continuation.finish()
      var kinds: [ConnectionEvent.Kind] = []
      for await event in heard {
        kinds.append(event.kind)
        #expect(event.target == channel.target)
        if event.kind == .connecting {
          #expect(event.level == .debug)
          #expect(event.address == channel.target)
        }
      }
      let (connecting, ready) = (kinds.firstIndex(of: .connecting), kinds.firstIndex(of: .ready))
      #expect(try #require(connecting) < #require(ready))
    }
  }
}

private enum TenantKey: ServiceContextKey { typealias Value = String }

extension ServiceContext {
  var tenant: String? {
    get { self[TenantKey.self] }
    set { self[TenantKey.self] = newValue }
  }
}
