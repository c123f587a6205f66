import FoundationEssentials
import Penstock
import Testing

/// The ready-made interceptors as types of Swift.
@Suite(.timeLimit(.minutes(15))) struct ReadyTests {
  /// A request's metadata as the server has seen it.
  static func seen(_ channel: Channel, _ name: String) async throws -> [String] {
    let call = try channel.call(
      Method("/penstock.Echo/Unary"), .unary, options: .asking(["x-echo-metadata": "1"]))
    try await call.send([])
    call.halfClose()
    _ = try await call.response()
    return await call.status().trailers["seen-\(name)"]
  }

  actor Source {
    var refused: [String?] = []
    func next(_ refused: String?) -> BearerToken.Token {
      self.refused.append(refused)
      return BearerToken.Token("t\(self.refused.count)")
    }
  }

  @Test func aTokenIsFetchedOnceForAllChannels() async throws {
    let source = Source()
    let tokens = try BearerToken(.init(allowsCleartext: true)) { await source.next($0) }
    let server = try Server()
    for _ in 0..<2 {
      try await withChannel(to: server) { channel in
        try channel.addInterceptor("tokens", tokens.interception, priority: 600)
        #expect(try await Self.seen(channel, "authorization") == ["Bearer t1"])
        #expect(try await Self.seen(channel, "authorization") == ["Bearer t1"])
      }
    }
    #expect(await source.refused == [nil])
  }

  @Test func aRefusedTokenIsReplacedAndTheCallSentAgain() async throws {
    let source = Source()
    let tokens = try BearerToken(.init(allowsCleartext: true)) { await source.next($0) }
    try await withChannel { channel in
      try channel.addInterceptor("tokens", tokens.interception, priority: 600)
      // Stands for a server that refuses the first token.
      try channel.addInterceptor(
        "refuse",
        .around { call in
          if call.start.metadata["authorization"] == ["Bearer t1"] { throw RPCError(.unauthenticated, "old") }
          try await call.next()
        })
      #expect(try await Self.seen(channel, "authorization") == ["Bearer t2"])
      #expect(await source.refused == [nil, "t1"])
    }
  }

  @Test func aTokenStandsInAFile() async throws {
    let file = FileManager.default.temporaryDirectory.appending(
      path: "token-\(UInt64.random(in: 0...UInt64.max))"
    ).path
    defer { try? FileManager.default.removeItem(atPath: file) }
    let options = BearerToken.Options(allowsCleartext: true)
    let tokens = try TokenFile(file, reread: .seconds(3600), options: options)
    try await withChannel { channel in
      try channel.addInterceptor("tokens", tokens.interception, priority: 600)
      let error = await #expect(throws: RPCError.self) { try await Self.seen(channel, "authorization") }
      #expect(error?.code == .unavailable)
      #expect(error?.message == "the token file \(file) can't be read: No such file or directory")
      try Data("t1\n".utf8).write(to: URL(filePath: file))
      #expect(try await Self.seen(channel, "authorization") == ["Bearer t1"])
    }
    #expect(throws: PenstockError.self) { try TokenFile("") }
  }

  @Test func aTokenIsSignedHere() async throws {
    var signing = TokenSigning(.pem("/no-such-key"), issuer: "me", scope: "all")
    signing.lifetime = .seconds(60)
    let tokens = try SignedToken(signing, options: BearerToken.Options(allowsCleartext: true))
    try await withChannel { channel in
      try channel.addInterceptor("tokens", tokens.interception, priority: 600)
      let error = await #expect(throws: RPCError.self) { try await Self.seen(channel, "authorization") }
      #expect(error?.code == .unavailable)
      #expect(error?.message == "the key file /no-such-key can't be read: No such file or directory")
    }
    let account = TokenSigning(.serviceAccount("/no-such-account"))
    #expect(throws: PenstockError.self) { try SignedToken(account) }
  }

  /// A server of RPCs gives no tokens, and its refusal is the error.
  @Test func aTokenServerIsAsked() async throws {
    try await withChannel { server in
      var options = OAuth2.Options(clientID: "me", clientSecret: "secret", allowsCleartext: true)
      options.sendsSecretInForm = true
      let tokens = try OAuth2(server, path: "/token", grant: .clientCredentials, options: options)
      try await withChannel { channel in
        try channel.addInterceptor("tokens", tokens.interception, priority: 600)
        let error = await #expect(throws: RPCError.self) { try await Self.seen(channel, "authorization") }
        #expect(error?.message.hasPrefix("no token from the token server: ") == true)
      }
      #expect(throws: PenstockError.self) {
        try OAuth2(server, path: "/token", grant: .jwtBearer, options: options)
      }
      options.allowsCleartext = nil
      #expect(throws: PenstockError.self) {
        try OAuth2(server, path: "/token", grant: .refreshToken("first"), options: options)
      }
    }
  }

  @Test func aSourceThatFailsEndsTheCall() async throws {
    struct Broken: Error {}
    let own = try BearerToken(.init(allowsCleartext: true)) { _ in
      throw RPCError(.permissionDenied, "not you")
    }
    let other = try BearerToken(.init(allowsCleartext: true)) { _ in throw Broken() }
    let odd = try BearerToken(.init(allowsCleartext: true)) { _ in BearerToken.Token("a\nb") }
    let cut = try BearerToken(.init(allowsCleartext: true)) { _ in BearerToken.Token("a\0b") }
    for (tokens, code, words) in [
      (own, Status.Code.permissionDenied, "not you"), (other, .unavailable, "Broken"),
      (odd, .internal, "token"), (cut, .internal, "token"),
    ] {
      try await withChannel { channel in
        try channel.addInterceptor("tokens", tokens.interception)
        let error = await #expect(throws: RPCError.self) {
          try await channel.unary("/penstock.Echo/Unary", [])
        }
        #expect(error?.code == code)
        #expect(error?.message.contains(words) == true)
      }
    }
  }

  @Test func theLogHasALineForEachEvent() async throws {
    let (lines, write) = AsyncStream.makeStream(of: String.self)
    let log = try CallLog(.init(events: [.start, .status])) { write.yield($0) }
    try await withChannel { channel in
      let registration = try channel.addInterceptor("log", log.interception)
      _ = try await channel.unary("/penstock.Echo/Unary", [], options: .asking(["authorization": "secret"]))
      var iterator = lines.makeAsyncIterator()
      let start = try #require(await iterator.next())
      #expect(start.contains(#""event":"start""#) && start.contains("/penstock.Echo/Unary"))
      #expect(!start.contains("secret"))
      #expect(try #require(await iterator.next()).contains(#""event":"status""#))
      try registration.remove()
      try await registration.waitRemoved(within: .seconds(60))
    }
  }

  @Test func metricsCountByMethodAndServer() async throws {
    let metrics = try CallMetrics(.init(buckets: [.milliseconds(1), .seconds(60)]))
    let server = try Server()
    try await withChannel(to: server) { channel in
      try channel.addInterceptor("metrics", metrics.interception, priority: 1_000)
      for _ in 0..<3 { _ = try await channel.unary("/penstock.Echo/Unary", [1, 2]) }
      await #expect(throws: RPCError.self) {
        try await channel.unary("/penstock.Echo/Unary", [1], options: .asking(["x-status": "5"]))
      }
    }
    let snapshot = try metrics.snapshot()
    let method = try #require(snapshot.methods.first)
    #expect(method.method == "/penstock.Echo/Unary")
    #expect(method.started == 4)
    #expect(method.inFlight == 0)
    #expect(method.sent.messages == 4)
    #expect(method.sent.bytes == 7)
    #expect(method.received.messages == 3)
    let ok = try #require(method.codes.first { $0.status == .ok })
    #expect(ok.count == 3)
    #expect(ok.buckets.map(\.bound) == [.milliseconds(1), .seconds(60), nil])
    #expect(ok.buckets.last?.count == 3)
    #expect(method.codes.first { $0.status == .notFound }?.count == 1)
    let peer = try #require(snapshot.peers.first { $0.peer == server.target })
    #expect(peer.codes.map(\.count).reduce(0, +) == 4)
    #expect(peer.connections.opened == 1)
    #expect(try metrics.prometheusText().contains("grpc_client_started_total"))
  }

  @Test func theOthersDoTheirWork() async throws {
    try await withChannel { channel in
      let rules = try HeaderRules(
        request: [.set("x-one", "1"), .add("x-one", "2"), .rename("x-old", to: "x-new"), .remove("x-gone")])
      try channel.addInterceptor("rules", rules.interception, priority: -900)
      try channel.addInterceptor("trace", try TraceContext(keepsParentID: true, seed: 7).interception)
      #expect(try await Self.seen(channel, "x-one") == ["1", "2"])
      #expect(try await Self.seen(channel, "traceparent").first?.hasPrefix("00-") == true)
    }
    try await withChannel { channel in
      let cache = try ResponseCache(timeToLive: .seconds(600), metadata: [])
      try channel.addInterceptor("cache", cache.interception)
      for _ in 0..<3 { #expect(try await channel.unary("/penstock.Echo/Unary", [7]) == [7]) }
      #expect(try await channel.statistics().attempts.started == 1)
    }
    try await withChannel { channel in
      let limit = try RateLimit(perSecond: 0.001, burst: 1, maxWait: .zero, code: .unavailable)
      try channel.addInterceptor("limit", limit.interception)
      _ = try await channel.unary("/penstock.Echo/Unary", [])
      let error = await #expect(throws: RPCError.self) { try await channel.unary("/penstock.Echo/Unary", []) }
      #expect(error?.code == .unavailable)
    }
    try await withChannel { channel in
      let faults = try FaultInjection(
        delay: .milliseconds(1), abort: RPCError(.dataLoss, "on purpose"), abortPercent: 100)
      try channel.addInterceptor("faults", faults.interception)
      let error = await #expect(throws: RPCError.self) { try await channel.unary("/penstock.Echo/Unary", []) }
      #expect(error == RPCError(.dataLoss, "on purpose"))
    }
  }

  /// Delays the first request that comes to it for ever, and lets the others pass.
  static func slowFirst() -> Interception {
    actor Count {
      var count = 0
      func next() -> Int {
        count += 1
        return count
      }
    }
    let requests = Count()
    return .around { call in
      if await requests.next() == 1 { call.start.metadata["x-delay-ms"] = ["86400000"] }
      try await call.next()
    }
  }

  @Test func aHedgedCallTakesTheFirstAnswer() async throws {
    let hedging = try Hedging(.init(maxAttempts: 2, delay: .milliseconds(200)))
    try await withChannel { channel in
      try channel.addInterceptor("hedging", hedging.interception, priority: 500)
      try channel.addInterceptor("slow", Self.slowFirst())
      #expect(try await channel.unary("/penstock.Echo/Unary", [7]) == [7])
      // Streams pass by.
      let stream = try await channel.serverStream("/penstock.Echo/ServerStream", [8])
      for try await response in stream { #expect(response == [8]) }
    }
    let figures = try hedging.snapshot()
    #expect(figures.calls == 1)
    #expect(figures.won == 1)
    #expect(figures.hedgesWon == 1)
    #expect(figures.open == 0)
    #expect(figures.throttle == nil)
  }

  @Test func furtherAttemptsGoToAnotherChannelUnlessTheThrottleForbids() async throws {
    let (here, there) = (try Server(), try Server())
    let other = try Channel(there.target, options: .cleartext)
    defer { other.close() }
    var options = Hedging.Options(delay: .seconds(3600))
    options.nonFatalCodes = [.aborted, .unavailable]
    options.throttle = .init(maxTokens: 3, tokenRatio: 0.5)
    let hedging = try Hedging(options, other: other)
    try await withChannel(to: here) { channel in
      try channel.addInterceptor("hedging", hedging.interception, priority: 500)
      for _ in 0..<2 {
        let error = await #expect(throws: RPCError.self) {
          try await channel.unary("/penstock.Echo/Unary", [], options: .asking(["x-status": "10"]))
        }
        #expect(error?.code == .aborted)
      }
      #expect(try await channel.statistics().attempts.started == 2)
    }
    #expect(try await other.statistics().attempts.started == 1)
    let figures = try hedging.snapshot()
    #expect(figures.failed == 3)
    #expect(figures.throttled == 1)
    #expect(figures.throttle?.retriesAllowed == false)
  }

  @Test func optionsThatAreNotAllowedAreRefused() {
    #expect(throws: PenstockError.self) { try Hedging(.init(maxAttempts: 6)) }
    #expect(throws: PenstockError.self) { try RateLimit(perSecond: 0) }
    #expect(throws: PenstockError.self) { try TraceContext(sampledPercent: 101) }
    #expect(throws: PenstockError.self) { try ResponseCache(timeToLive: .zero) }
    #expect(throws: PenstockError.self) { try HeaderRules(headers: [.set("grpc-timeout", "1S")]) }
    #expect(throws: PenstockError.self) { try CallMetrics(.init(buckets: [.seconds(2), .seconds(1)])) }
    #expect(throws: PenstockError.self) { try FaultInjection(delay: .seconds(1), delayPercent: -1) }
  }

  /// Makes a call; gives its code, and how often its request came to the transport.
  static func attempts(_ channel: Channel, _ metadata: Metadata = [:]) async throws -> (Status.Code, Int) {
    let before = try await channel.statistics().attempts.started
    var code = Status.Code.ok
    do {
      _ = try await channel.unary("/penstock.Echo/Unary", [1], options: .asking(metadata))
    } catch let error as RPCError { code = error.code }
    return (code, try await channel.statistics().attempts.started - before)
  }

  @Test func aCallIsSentAgainAfterCodesThatAreChosen() async throws {
    try await withChannel { channel in
      try channel.addInterceptor(
        "retry", .retry(attempts: 4, codes: [.unavailable, .aborted], firstWait: .milliseconds(1)),
        priority: 1)
      #expect(try await Self.attempts(channel) == (.ok, 1))
      #expect(try await Self.attempts(channel, ["x-status": "14"]) == (.unavailable, 4))
      #expect(try await Self.attempts(channel, ["x-status": "5"]) == (.notFound, 1))

      // A hop that fails twice, in place of the server.
      actor Failures {
        var left = 2
        func fails() -> Bool {
          left -= 1
          return left >= 0
        }
      }
      let failures = Failures()
      try channel.addInterceptor(
        "fail",
        .around { call in
          if await failures.fails() { throw RPCError(.aborted, "not yet") }
          try await call.next()
        })
      #expect(try await Self.attempts(channel) == (.ok, 1))
    }
  }

  @Test func theFunctionsOfTheProgramAreFreed() async throws {
    final class Kept: Sendable {}
    weak var inToken: Kept?
    weak var inLog: Kept?
    try await withChannel { channel in
      let (first, second) = (Kept(), Kept())
      inToken = first
      inLog = second
      let tokens = try BearerToken { [first] _ in
        withExtendedLifetime(first) { BearerToken.Token("x") }
      }
      let log = try CallLog { [second] _ in withExtendedLifetime(second) {} }
      let registration = try channel.addInterceptor("log", log.interception)
      _ = tokens
      _ = try await channel.unary("/penstock.Echo/Unary", [])
      try registration.remove()
      try await registration.waitRemoved(within: .seconds(60))
    }
    await eventually { inToken == nil && inLog == nil }
  }
}
