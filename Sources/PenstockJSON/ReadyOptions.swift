import PenstockCall
import PenstockChannel
import PenstockReady
import PenstockTransport
import PenstockWire
import PenstockLoop

// The options of the ready-made interceptors, in a table each; Options.swift says how a table is written.

// ---- penstock_ready_bearer_token: ready.h ----

public func read(_ reader: JSONReader, into options: inout BearerToken.Options) -> Failure? {
  var scheme = ByteBuffer()
  _ = scheme.append("Bearer")
  _ = options.header.append("authorization")
  let failure = reader.members { key, option in
    switch key {
    /// The header in which the token is sent. Default: "authorization".
    case "header": option.textHeaderName { options.header = $0 }
    /// The word before the token; empty: no word. Default: "Bearer".
    case "scheme": option.ascii { scheme = $0 }
    /// How long before a token expires the next one is requested, but at most half of the token's lifetime.
    /// The old one is used meanwhile.
    case "refresh_early_ms": option.milliseconds(0...86_400_000) { options.refreshEarly = $0 }
    /// How long a call waits for a token; 0: without limit.
    case "refresh_timeout_ms": option.milliseconds(0...86_400_000) { options.refreshTimeout = $0 }
    /// How many bytes of a call's request messages are kept. A call that has sent more is not sent again with
    /// a new token.
    case "replay_bytes": option.bytes { options.replayBytes = $0 }
    /// Whether the token may be sent without TLS.
    case "allow_cleartext": option.bool { options.allowsCleartext = $0 }
    default: option.unknown
    }
  }
  if !scheme.isEmpty { _ = scheme.append(" ") }
  options.prefix = scheme
  return failure
}

// ---- penstock_ready_token_file: ready.h ----

public func read(_ reader: JSONReader, into options: inout TokenFile.Options) -> Failure? {
  var scheme = ByteBuffer()
  _ = scheme.append("Bearer")
  _ = options.bearer.header.append("authorization")
  let failure = reader.members { key, option in
    switch key {
    /// The path of the file. Default: none, it is required.
    case "file": option.string { options.path = $0 }
    /// How old a token may be before the file is read again. If it can't be read then, the old token is used
    /// for as long again.
    case "reread_ms": option.milliseconds(1...86_400_000) { options.reread = $0 }
    /// The header in which the token is sent. Default: "authorization".
    case "header": option.textHeaderName { options.bearer.header = $0 }
    /// The word before the token; empty: no word. Default: "Bearer".
    case "scheme": option.ascii { scheme = $0 }
    /// How many bytes of a call's request messages are kept. A call that has sent more is not sent again with
    /// a new token.
    case "replay_bytes": option.bytes { options.bearer.replayBytes = $0 }
    /// Whether the token may be sent without TLS.
    case "allow_cleartext": option.bool { options.bearer.allowsCleartext = $0 }
    default: option.unknown
    }
  }
  if let failure { return failure }
  guard !options.path.isEmpty else {
    return reader.fail(because: ("\"file\" is missing" as StaticString).bytes)
  }
  if !scheme.isEmpty { _ = scheme.append(" ") }
  options.bearer.prefix = scheme
  return options.path.append(byte: 0) ? nil : Failure(.noMemory, "no memory")
}

// ---- penstock_ready_logging: ready.h ----

public func read(_ reader: JSONReader, into options: inout LogLines.Options) -> Failure? {
  reader.members { key, option in
    switch key {
    /// The events that are logged: an array of "start", "send", "half_close", "headers", "receive", "status"
    /// and "cancel". Default: ["start", "headers", "status", "cancel"].
    case "events": readEvents(option) { options.events = $0 }
    /// Header names whose values are shown as "redacted". Default: ["authorization", "cookie",
    /// "proxy-authorization", "set-cookie", "x-api-key"].
    case "redact": option.headerNames { options.redacted = $0 }
    /// Whether values of "-bin" names are redacted, too.
    case "redact_binary": option.bool { options.redactsBinary = $0 }
    /// Whether metadata is shown.
    case "metadata": option.bool { options.showsMetadata = $0 }
    /// Whether the sizes of messages are shown.
    case "messages": option.choice("sizes none") { options.showsSizes = $0 == 0 }
    /// The least level of the channel's events that are logged, too. Default: "warning".
    case "channel":
      option.choice("debug info warning error none") {
        options.channel = ConnectionNews.Level(rawValue: Int32($0))
      }
    default: option.unknown
    }
  }
}

private func readEvents(_ reader: JSONReader, _ into: (LogLines.Events) -> Void) -> Failure? {
  var events: LogLines.Events = []
  let failure = reader.elements { one in
    guard let name = one.string, let event = LogLines.Events(name: name) else {
      return one.fail(
        "\"start\", \"send\", \"half_close\", \"headers\", \"receive\", \"status\" or \"cancel\"")
    }
    events.formUnion(event)
    return nil
  }
  into(events)
  return failure
}

// ---- penstock_metrics_new: ready.h ----

public func read(_ reader: JSONReader, into options: inout Metrics.Options) -> Failure? {
  reader.members { key, option in
    switch key {
    /// How many methods are counted separately; calls of further methods are counted together as "other".
    case "max_methods": option.count(1...65536) { options.maxMethods = $0 }
    /// How many servers are counted separately; further ones are counted together as "other".
    case "max_peers": option.count(1...65536) { options.maxPeers = $0 }
    /// The upper bounds of the histogram's buckets, in milliseconds: increasing, at most 64, each from 1 to
    /// 86400000. Default: [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000].
    case "buckets_ms": readBuckets(option) { options.buckets = $0 }
    default: option.unknown
    }
  }
}

private func readBuckets(_ reader: JSONReader, _ into: ([UInt64]) -> Void) -> Failure? {
  var buckets: [UInt64] = []
  let failure = reader.elements { one in
    guard buckets.count < 64 else { return reader.fail("at most 64 numbers", hasType: true) }
    var bound: UInt64 = 0
    if let failure = one.milliseconds(1...86_400_000, { bound = $0 }) { return failure }
    guard bound > buckets.last ?? 0 else { return one.fail("a number above the one before", hasType: true) }
    buckets.append(bound)
    return nil
  }
  into(buckets)
  return failure
}

// ---- penstock_telemetry_new: telemetry.h ----

public func read(_ reader: JSONReader, into options: inout Telemetry.Options) -> Failure? {
  reader.members { key, option in
    switch key {
    /// The attributes of the resource, by their names: strings that tell where the data come from. Default:
    /// {"service.name": "unknown_service"}.
    case "resource": readResource(option) { options.resource = $0 }
    /// Whether metrics are recorded.
    case "metrics": option.bool { options.metrics = $0 }
    /// Whether spans are recorded.
    case "spans": option.bool { options.spans = $0 }
    /// Whether the messages of an attempt are events of its span.
    case "messages": option.bool { options.messages = $0 }
    /// The percentage of the traces beginning here whose spans are recorded.
    case "sampled": option.percent { options.sampled = $0 }
    /// How many pairs of a method and a target are counted separately; further ones are counted together as "other".
    case "max_methods": option.count(1...65536) { options.maxMethods = $0 }
    /// How many spans are kept until they are read or exported; further ones are dropped, and counted.
    case "max_spans": option.count(1...1_048_576) { options.maxSpans = $0 }
    /// How many bytes of spans are kept.
    case "max_span_bytes": option.bytes(4096...2_147_483_647) { options.maxSpanBytes = $0 }
    default: option.unknown
    }
  }
}

private func readResource(_ reader: JSONReader, _ into: ([Telemetry.Attribute]) -> Void) -> Failure? {
  var attributes: [Telemetry.Attribute] = []
  let failure = reader.members { key, value in
    guard attributes.count < 64 else { return reader.fail("at most 64 attributes", hasType: true) }
    guard let name = ByteBuffer(copying: key) else { return Failure(.noMemory, "no memory") }
    return value.string { attributes.append(Telemetry.Attribute(name, $0)) }
  }
  into(attributes)
  return failure
}

// ---- penstock_ready_trace_context: ready.h ----

public func read(_ reader: JSONReader, into options: inout TraceContext.Options) -> Failure? {
  reader.members { key, option in
    switch key {
    /// The percentage of the traces that begin at this interceptor which are sampled.
    case "sampled": option.percent { options.sampled = $0 }
    /// A seed: the same seed gives the same random numbers each time.
    case "seed": option.seed { options.seed = $0 }
    /// Whether a trace that an earlier part of the program has begun gets a new parent-id, or keeps its own.
    case "parent_id": option.choice("new keep") { options.keepsParentID = $0 == 1 }
    default: option.unknown
    }
  }
}

// ---- penstock_ready_response_cache: ready.h ----

public func read(_ reader: JSONReader, into options: inout ResponseCache.Options) -> Failure? {
  reader.members { key, option in
    switch key {
    /// How long a stored response may be used.
    case "ttl_ms": option.milliseconds(1...86_400_000) { options.timeToLive = $0 }
    /// How many responses are stored; the least recently used ones are dropped first.
    case "max_entries": option.count(1...1_048_576) { options.maxEntries = $0 }
    /// How many bytes of responses are stored.
    case "max_bytes": option.bytes { options.maxBytes = $0 }
    /// Names of request metadata whose values distinguish the stored responses. Default: ["authorization"].
    case "metadata": option.headerNames { options.metadata = $0 }
    default: option.unknown
    }
  }
}

// ---- penstock_ready_rate_limit: ready.h ----

public func read(_ reader: JSONReader, into options: inout RateLimit.Options) -> Failure? {
  var burst: Int?
  var rate = 0.0
  let failure = reader.members { key, option in
    switch key {
    /// How many calls may start per second. Default: none, it is required.
    case "rate": option.number(0.001...1_000_000, "a number from 0.001 to 1000000") { rate = $0 }
    /// How many calls may start at the same time after a time without calls. Default: the rate, rounded up.
    case "burst": option.count(1...1_000_000) { burst = $0 }
    /// How long a call may wait to be started; a call that would wait longer ends at once.
    case "max_wait_ms": option.milliseconds(0...86_400_000) { options.maxWait = $0 }
    /// How many calls may wait; a further call that would have to wait ends at once.
    case "max_waiting": option.count(0...2_147_483_647) { options.maxWaiting = UInt64($0) }
    /// The status code of a call that ends at once, because it would wait too long or behind too many others.
    case "code": option.code { options.code = $0 }
    default: option.unknown
    }
  }
  if let failure { return failure }
  guard rate > 0 else { return reader.fail(because: ("\"rate\" is missing" as StaticString).bytes) }
  options.interval = UInt64(1_000_000_000 / rate)
  options.burst = UInt64(burst ?? Int(rate.rounded(.up)))
  return nil
}

// ---- penstock_ready_hedging: ready.h ----

public func read(_ reader: JSONReader, into options: inout Hedging.Options) -> Failure? {
  reader.members { key, option in
    switch key {
    /// How often a call is sent at most, with the first time.
    case "max_attempts": option.count(2...5) { options.attempts = $0 }
    /// How long an attempt may have no answer before the next one is sent; 0: all are sent at once.
    case "delay_ms": option.milliseconds(0...86_400_000) { options.delay = $0 }
    /// The status codes after which the other attempts go on, and the next one is sent at once: an array of names or
    /// numbers. Default: ["UNAVAILABLE"].
    case "non_fatal_codes": readCodes(option) { options.codes = $0 }
    /// Holds further attempts back while most attempts fail, as `retryThrottling` of the channel's service config does in
    /// any case: an object with the options below. Default: no throttle of its own.
    case "throttle": readHedgeThrottle(option) { options.throttle = $0 }
    default: option.unknown
    }
  }
}

// ---- "throttle" of penstock_ready_hedging: ready.h ----

private func readHedgeThrottle(_ reader: JSONReader, _ into: (RetryThrottle.Settings) -> Void) -> Failure? {
  var settings = RetryThrottle.Settings()
  settings.most = 10_000
  settings.ratio = 100
  let failure = reader.members { key, option in
    switch key {
    /// How many tokens there are at first and at most. A failure takes one; with half of them or fewer no further attempt
    /// is sent. Default: 10.
    case "max_tokens": option.count(1...1000) { settings.most = $0 * 1000 }
    /// How many tokens a success brings back. Default: 0.1.
    case "token_ratio":
      option.number(0.001...1000, "a number from 0.001 to 1000") { settings.ratio = Int($0 * 1000 + 1e-6) }
    default: option.unknown
    }
  }
  into(settings)
  return failure
}

private func readCodes(_ reader: JSONReader, _ into: (StatusCodes) -> Void) -> Failure? {
  var codes = StatusCodes()
  let failure = reader.elements { one in one.code { codes.insert($0) } }
  into(codes)
  return failure
}

// ---- penstock_ready_fault_injection: ready.h ----

public func read(_ reader: JSONReader, into options: inout FaultInjection.Options) -> Failure? {
  reader.members { key, option in
    switch key {
    /// A seed: the same seed gives the same random numbers each time.
    case "seed": option.seed { options.seed = $0 }
    /// The delay of calls before they are sent: an object with the options below.
    case "delay": readDelay(option, into: &options)
    /// The status with which calls end instead of being sent: an object with the options below.
    case "abort": readAbort(option, into: &options)
    default: option.unknown
    }
  }
}

// ---- "delay" of penstock_ready_fault_injection: ready.h ----

private func readDelay(_ reader: JSONReader, into options: inout FaultInjection.Options) -> Failure? {
  options.delayChance = Chance(percent: 100)
  return reader.members { key, option in
    switch key {
    /// How long calls are delayed.
    case "ms": option.milliseconds(0...86_400_000) { options.delay = $0 }
    /// The percentage of the calls that are delayed. Default: 100.
    case "percent": option.percent { options.delayChance = $0 }
    default: option.unknown
    }
  }
}

// ---- "abort" of penstock_ready_fault_injection: ready.h ----

private func readAbort(_ reader: JSONReader, into options: inout FaultInjection.Options) -> Failure? {
  options.abortChance = Chance(percent: 100)
  let status = Status(.unavailable, "injected fault")
  options.abort = status
  return reader.members { key, option in
    switch key {
    /// The status code. Default: UNAVAILABLE.
    case "code": option.code { status.setCode($0) }
    /// The status message. Default: "injected fault".
    case "message": readMessage(option, status)
    /// The percentage of the calls that end with this status. Default: 100.
    case "percent": option.percent { options.abortChance = $0 }
    default: option.unknown
    }
  }
}

private func readMessage(_ reader: JSONReader, _ status: Status) -> Failure? {
  guard let text = reader.string else { return reader.fail("a string") }
  return status.setMessage(text) ? nil : Failure(.noMemory, "no memory")
}
