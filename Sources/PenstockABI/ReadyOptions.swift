import CJansson
import PenstockCall
import PenstockReady
import PenstockTransport
import PenstockWire

// The options of ready.h.

extension JSONReader {
  /// A number, whole or not.
  func number(_ range: ClosedRange<Double>, _ expected: StaticString, _ into: (Double) -> Void) -> Failure? {
    let found: Double
    switch value.pointee.type {
    case JSON_INTEGER: found = Double(json_integer_value(value))
    case JSON_REAL: found = json_real_value(value)
    default: return fail(expected)
    }
    guard range.contains(found) else { return fail(expected) }
    into(found)
    return nil
  }

  func chance(_ into: (Chance) -> Void) -> Failure? {
    number(0...100, "a number from 0 to 100") { into(Chance(percent: $0)) }
  }

  func milliseconds(from low: Int, _ expected: StaticString, _ into: (UInt64) -> Void) -> Failure? {
    int(low...86_400_000, expected) { into(UInt64($0) * 1_000_000) }
  }

  func seed(_ into: (UInt64) -> Void) -> Failure? {
    int(0...Int.max, "an integer from 0") { into(UInt64($0)) }
  }

  /// A status code but OK, by name or number.
  func code(_ into: (StatusCode) -> Void) -> Failure? {
    let expected: StaticString = "the name or number of a status other than OK"
    if value.pointee.type == JSON_INTEGER {
      return int(1...16, expected) { number in StatusCode(rawValue: Int32(number)).map(into) }
    }
    for number in 1...16 as ClosedRange<Int32> {
      if let string, let code = StatusCode(rawValue: number), bytesEqual(string, code.name) {
        into(code)
        return nil
      }
    }
    return fail(expected)
  }

  /// A header's name, in lower case.
  func headerName(_ into: (ByteBuffer) -> Void) -> Failure? {
    guard let string else { return fail("a header's name") }
    let lowered = ByteBuffer()
    guard HeaderRules.lowercased(string, into: lowered) else { return Failure(.noMemory, "no memory") }
    guard HeaderRules.isValidName(lowered.view) else { return fail("a header's name") }
    into(lowered)
    return nil
  }

  func headerNames(_ into: ([ByteBuffer]) -> Void) -> Failure? {
    var names: [ByteBuffer] = []
    if let failure = elements({ one in one.headerName { names.append($0) } }) { return failure }
    into(names)
    return nil
  }
}

@inline(never) @_optimize(size)
func read(_ reader: JSONReader, into options: inout BearerToken.Options) -> Failure? {
  let scheme = ByteBuffer()
  _ = scheme.append("Bearer")
  _ = options.header.append("authorization")
  let failure = reader.members { key, member in
    if bytesEqual(key, "header") {
      var header = options.header
      if let failure = member.headerName({ header = $0 }) { return failure }
      guard !HeaderRules.isReserved(header.view), !HeaderRules.isBinary(header.view) else {
        return member.fail("a header's name that is neither reserved nor binary")
      }
      options.header = header
      return nil
    }
    if bytesEqual(key, "scheme") {
      guard let text = member.string, HeaderRules.isValidASCIIValue(text) else {
        return member.fail("visible ASCII, without a space at its ends")
      }
      scheme.removeAll(keepingCapacity: true)
      return scheme.append(text) ? nil : Failure(.noMemory, "no memory")
    }
    if bytesEqual(key, "refresh_early_ms") {
      return member.milliseconds(from: 0, "an integer from 0 to 86400000") { options.refreshEarly = $0 }
    }
    if bytesEqual(key, "refresh_timeout_ms") {
      return member.milliseconds(from: 0, "an integer from 0 to 86400000") { options.refreshTimeout = $0 }
    }
    if bytesEqual(key, "replay_bytes") { return readLimit(member) { options.replayBytes = $0 } }
    if bytesEqual(key, "allow_cleartext") { return member.bool { options.allowsCleartext = $0 } }
    return member.unknown
  }
  if !scheme.isEmpty { _ = scheme.append(" ") }
  options.prefix = scheme
  return failure
}

@inline(never) @_optimize(size)
func read(_ reader: JSONReader, into options: inout LogLines.Options) -> Failure? {
  reader.members { key, member in
    if bytesEqual(key, "events") {
      options.events = []
      return member.elements { one in
        guard let name = one.string, let event = LogLines.Events(name: name) else {
          return one.fail(
            "\"start\", \"send\", \"half_close\", \"headers\", \"receive\", \"status\" or \"cancel\"")
        }
        options.events.formUnion(event)
        return nil
      }
    }
    if bytesEqual(key, "redact") { return member.headerNames { options.redacted = $0 } }
    if bytesEqual(key, "redact_binary") { return member.bool { options.redactsBinary = $0 } }
    if bytesEqual(key, "metadata") { return member.bool { options.showsMetadata = $0 } }
    if bytesEqual(key, "messages") {
      guard let word = member.string, bytesEqual(word, "sizes") || bytesEqual(word, "none") else {
        return member.fail("\"sizes\" or \"none\"")
      }
      options.showsSizes = bytesEqual(word, "sizes")
      return nil
    }
    return member.unknown
  }
}

@inline(never) @_optimize(size)
func read(_ reader: JSONReader, into options: inout Metrics.Options) -> Failure? {
  reader.members { key, member in
    if bytesEqual(key, "max_methods") {
      return member.int(1...65536, "an integer from 1 to 65536") { options.maxMethods = $0 }
    }
    if bytesEqual(key, "buckets_ms") {
      var buckets: [UInt64] = []
      let failure = member.elements { one in
        guard buckets.count < 64 else { return member.fail("at most 64 numbers") }
        var bound: UInt64 = 0
        if let failure = one.milliseconds(from: 1, "an integer from 1 to 86400000", { bound = $0 }) {
          return failure
        }
        guard bound > buckets.last ?? 0 else { return one.fail("more than the one before") }
        buckets.append(bound)
        return nil
      }
      options.buckets = buckets
      return failure
    }
    return member.unknown
  }
}

@inline(never) @_optimize(size)
func read(_ reader: JSONReader, into options: inout TraceContext.Options) -> Failure? {
  reader.members { key, member in
    if bytesEqual(key, "sampled") { return member.chance { options.sampled = $0 } }
    if bytesEqual(key, "seed") { return member.seed { options.seed = $0 } }
    if bytesEqual(key, "parent_id") {
      guard let word = member.string, bytesEqual(word, "new") || bytesEqual(word, "keep") else {
        return member.fail("\"new\" or \"keep\"")
      }
      options.keepsParentID = bytesEqual(word, "keep")
      return nil
    }
    return member.unknown
  }
}

@inline(never) @_optimize(size)
func read(_ reader: JSONReader, into options: inout ResponseCache.Options) -> Failure? {
  reader.members { key, member in
    if bytesEqual(key, "ttl_ms") {
      return member.milliseconds(from: 1, "an integer from 1 to 86400000") { options.timeToLive = $0 }
    }
    if bytesEqual(key, "max_entries") {
      return member.int(1...1 << 20, "an integer from 1 to 1048576") { options.maxEntries = $0 }
    }
    if bytesEqual(key, "max_bytes") { return readLimit(member) { options.maxBytes = $0 } }
    if bytesEqual(key, "metadata") { return member.headerNames { options.metadata = $0 } }
    return member.unknown
  }
}

@inline(never) @_optimize(size)
func read(_ reader: JSONReader, into options: inout RateLimit.Options) -> Failure? {
  var burst: Int?
  var rate = 0.0
  let failure = reader.members { key, member in
    if bytesEqual(key, "rate") {
      return member.number(0.001...1_000_000, "a number from 0.001 to 1000000") { rate = $0 }
    }
    if bytesEqual(key, "burst") {
      return member.int(1...1_000_000, "an integer from 1 to 1000000") { burst = $0 }
    }
    if bytesEqual(key, "max_wait_ms") {
      return member.milliseconds(from: 0, "an integer from 0 to 86400000") { options.maxWait = $0 }
    }
    if bytesEqual(key, "max_waiting") { return readLimit(member) { options.maxWaiting = UInt64($0) } }
    if bytesEqual(key, "code") { return member.code { options.code = $0 } }
    return member.unknown
  }
  if let failure { return failure }
  guard rate > 0 else { return reader.fail(because: ("\"rate\" is missing" as StaticString).bytes) }
  options.interval = UInt64(1_000_000_000 / rate)
  options.burst = UInt64(burst ?? Int(rate.rounded(.up)))
  return nil
}

@inline(never) @_optimize(size)
func read(_ reader: JSONReader, into options: inout FaultInjection.Options) -> Failure? {
  reader.members { key, member in
    if bytesEqual(key, "seed") { return member.seed { options.seed = $0 } }
    if bytesEqual(key, "delay") {
      options.delayChance = Chance(percent: 100)
      return member.members { key, member in
        if bytesEqual(key, "ms") {
          return member.milliseconds(from: 0, "an integer from 0 to 86400000") { options.delay = $0 }
        }
        if bytesEqual(key, "percent") { return member.chance { options.delayChance = $0 } }
        return member.unknown
      }
    }
    if bytesEqual(key, "abort") {
      options.abortChance = Chance(percent: 100)
      let status = Status(.unavailable, "injected fault")
      options.abort = status
      return member.members { key, member in
        if bytesEqual(key, "code") { return member.code { status.setCode($0) } }
        if bytesEqual(key, "message") {
          guard let text = member.string else { return member.fail("a string") }
          return status.setMessage(text) ? nil : Failure(.noMemory, "no memory")
        }
        if bytesEqual(key, "percent") { return member.chance { options.abortChance = $0 } }
        return member.unknown
      }
    }
    return member.unknown
  }
}
