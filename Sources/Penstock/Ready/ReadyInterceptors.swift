internal import CPenstock

// The ready-made interceptors that need nothing of the program but options. docs/ready.md says more about each.

/// Carries the W3C trace context: passes a traceparent on that the call has, and begins a trace for a call without one.
public struct TraceContext: Sendable {
  /// The interceptor, to be added to channels and runtimes.
  public let interception: Interception

  /// Makes an interceptor.
  ///
  /// - Parameters:
  ///   - sampledPercent: the percentage of the traces beginning here that are marked as sampled; nil: all.
  ///   - keepsParentID: whether a traceparent that is passed on keeps its parent-id.
  ///   - seed: a number with which the same ids are made each time; nil: they are random.
  /// - Throws: ``PenstockError``: an option out of range.
  public init(
    sampledPercent: Double? = nil, keepsParentID: Bool = false, seed: Int? = nil
  ) throws(PenstockError) {
    var options = OptionText()
    options.set("sampled", sampledPercent)
    options.set("parent_id", keepsParentID ? "keep" : "new")
    options.set("seed", seed)
    interception = Interception(
      try ReadyTable("the trace context") { penstock_ready_trace_context(options.finished, $0, &$1) })
  }
}

/// Answers unary calls from a cache. Calls with the same method, request bytes and chosen metadata share an answer.
public struct ResponseCache: Sendable {
  /// The interceptor, to be added to channels and runtimes, which then share the cache.
  public let interception: Interception

  /// Makes a cache; which methods it is for is said where it is added.
  ///
  /// - Parameters:
  ///   - timeToLive: how long a response may be used; nil: a minute.
  ///   - maxEntries: how many responses are kept; nil: 1024.
  ///   - maxBytes: how many bytes of responses are kept; nil: 16 MiB.
  ///   - metadata: names of the request's metadata whose values have to be the same; nil: "authorization".
  /// - Throws: ``PenstockError``: an option out of range.
  public init(
    timeToLive: Duration? = nil, maxEntries: Int? = nil, maxBytes: Int? = nil, metadata: [String]? = nil
  ) throws(PenstockError) {
    var options = OptionText()
    options.set("ttl_ms", timeToLive)
    options.set("max_entries", maxEntries)
    options.set("max_bytes", maxBytes)
    options.set("metadata", metadata)
    interception = Interception(
      try ReadyTable("the cache") { penstock_ready_response_cache(options.finished, $0, &$1) })
  }
}

/// Lets only so many calls start per second; further ones wait their turn, or end at once.
public struct RateLimit: Sendable {
  /// The interceptor, to be added to channels and runtimes, which then share the rate.
  public let interception: Interception

  /// Makes a rate limit.
  ///
  /// - Parameters:
  ///   - perSecond: how many calls may start per second; 0.001 to 1000000.
  ///   - burst: how many may start at once after a quiet time; nil: the rate, rounded up.
  ///   - maxWait: how long a call may wait; nil: a second.
  ///   - maxWaiting: behind how many others a call may wait; nil: 1000.
  ///   - code: the status of calls that end at once; nil: RESOURCE_EXHAUSTED.
  /// - Throws: ``PenstockError``: an option out of range.
  public init(
    perSecond: Double, burst: Int? = nil, maxWait: Duration? = nil, maxWaiting: Int? = nil,
    code: Status.Code? = nil
  ) throws(PenstockError) {
    var options = OptionText()
    options.set("rate", perSecond)
    options.set("burst", burst)
    options.set("max_wait_ms", maxWait)
    options.set("max_waiting", maxWaiting)
    options.set("code", code?.description)
    interception = Interception(
      try ReadyTable("the rate limit") { penstock_ready_rate_limit(options.finished, $0, &$1) })
  }
}

/// Delays calls, ends them, or both, to see how a program bears it.
public struct FaultInjection: Sendable {
  /// The interceptor, to be added to channels and runtimes.
  public let interception: Interception

  /// Makes an interceptor.
  ///
  /// - Parameters:
  ///   - delay: how long calls are delayed; nil: they are not.
  ///   - delayPercent: the percentage of the calls that are delayed.
  ///   - abort: the status with which calls end; nil: they go on.
  ///   - abortPercent: the percentage of the calls that end so.
  ///   - seed: a number with which the same faults come each time; nil: they are random.
  /// - Throws: ``PenstockError``: an option out of range.
  public init(
    delay: Duration? = nil, delayPercent: Double = 100, abort: RPCError? = nil, abortPercent: Double = 100,
    seed: Int? = nil
  ) throws(PenstockError) {
    var options = OptionText()
    if let delay {
      var fault = OptionText()
      fault.set("ms", delay)
      fault.set("percent", delayPercent)
      options.set("delay", fault)
    }
    if let abort {
      var fault = OptionText()
      fault.set("code", abort.code.description)
      fault.set("message", abort.message)
      fault.set("percent", abortPercent)
      options.set("abort", fault)
    }
    options.set("seed", seed)
    interception = Interception(
      try ReadyTable("the faults") { penstock_ready_fault_injection(options.finished, $0, &$1) })
  }
}

/// Changes metadata by rules, which are applied in order.
public struct HeaderRules: Sendable {
  /// A rule. The value of a name that ends in "-bin" is base64.
  public enum Rule: Sendable, Hashable {
    /// One value instead of any others.
    case set(String, String)
    /// One more value.
    case add(String, String)
    /// No value any more.
    case remove(String)
    /// The values go to the other name.
    case rename(String, to: String)

    var text: String {
      var text = OptionText()
      switch self {
      case .set(let name, let value):
        text.set("set", name)
        text.set("value", value)
      case .add(let name, let value):
        text.set("add", name)
        text.set("value", value)
      case .remove(let name): text.set("remove", name)
      case .rename(let name, let other):
        text.set("rename", name)
        text.set("to", other)
      }
      return text.finished
    }
  }

  /// The interceptor, to be added to channels and runtimes.
  public let interception: Interception

  /// Makes an interceptor of rules for the request's metadata, the response headers and the trailers.
  ///
  /// - Throws: ``PenstockError``: a name or a value that is not allowed.
  public init(request: [Rule] = [], headers: [Rule] = [], trailers: [Rule] = []) throws(PenstockError) {
    var options = OptionText()
    for (name, rules) in [("request", request), ("headers", headers), ("trailers", trailers)] {
      options.set(json: name, "[\(rules.map(\.text).joined(separator: ","))]")
    }
    interception = Interception(
      try ReadyTable("the header rules") { penstock_ready_header_rules(options.finished, $0, &$1) })
  }
}

extension Interception {
  /// Sends a call again that has ended with one of some codes: up to `attempts` times in all, each time after a wait that
  /// is twice as long as the last, by up to a fifth more or less. A call is not sent again if it has sent more than
  /// `replayBytes`, or if a part of its response has gone on.
  ///
  /// The retry policy of a service config does the same with a limit for the whole channel; docs/channel.md has it.
  public static func retry(
    attempts: Int = 3, codes: Set<Status.Code> = [.unavailable], firstWait: Duration = .milliseconds(100),
    longestWait: Duration = .seconds(5), replayBytes: Int = 65_536
  ) -> Interception {
    around(replayBytes: replayBytes, maxRestarts: max(1, attempts - 1)) { call in
      var wait = firstWait
      for attempt in 1... {
        do {
          return try await call.next()
        } catch let error as RPCError where attempt < attempts && codes.contains(error.code) {
          guard call.canGoAgain else { throw error }
          try await Task.sleep(for: wait * Double.random(in: 0.8...1.2))
          wait = min(wait * 2, longestWait)
        }
      }
    }
  }
}
