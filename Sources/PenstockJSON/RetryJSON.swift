import CPenstockJansson
import PenstockCall
import PenstockChannel
import PenstockWire

// Reads the parts of a service config about retries (gRFC A6), which have no defaults: each field has to be there.

/// Reads a `retryPolicy`.
func readRetry(_ reader: JSONReader, _ into: (MethodRetry) -> Void) -> Failure? {
  var retry = MethodRetry()
  let failure = reader.fields { key, field in
    switch key {
    case "maxAttempts":
      return field.uint32 { retry.attempts = min($0, MethodRetry.mostAttempts) }
        ?? (retry.attempts < 2 ? field.fail(because: ("expected 2 or more" as StaticString).bytes) : nil)
    case "initialBackoff": return field.positiveDuration { retry.backoff.initial = $0 }
    case "maxBackoff": return field.positiveDuration { retry.backoff.most = $0 }
    case "backoffMultiplier": return field.positiveNumber { retry.backoff.multiplier = $0 }
    case "retryableStatusCodes":
      return field.elements { one in
        guard let code = one.statusCode else {
          return one.fail("a status code, such as \"UNAVAILABLE\" or 14")
        }
        retry.codes.insert(code)
        return nil
      } ?? (retry.codes.isEmpty ? field.fail(because: ("it has no status code" as StaticString).bytes) : nil)
    default: return nil
    }
  }
  if let failure { return failure }
  let lacking = reader.lacks(
    "maxAttempts", "initialBackoff", "maxBackoff", "backoffMultiplier", "retryableStatusCodes")
  if lacking == nil { into(retry) }
  return lacking
}

/// Reads `retryThrottling`. gRPC's "decimal places beyond 3 are ignored" applies to `tokenRatio`.
func readThrottle(_ reader: JSONReader, _ into: (RetryThrottle.Settings) -> Void) -> Failure? {
  var settings = RetryThrottle.Settings()
  let failure = reader.fields { key, field in
    switch key {
    case "maxTokens":
      return field.uint32(most: 1000) { settings.most = $0 * 1000 }
        ?? (settings.most == 0 ? field.fail(because: ("expected 1 or more" as StaticString).bytes) : nil)
    case "tokenRatio":
      // With more than 1000 tokens for a success the throttle is always full.
      return field.positiveNumber { settings.ratio = Int(min($0, 1000) * 1000 + 1e-6) }
        ?? (settings.ratio == 0 ? field.fail(because: ("expected 0.001 or more" as StaticString).bytes) : nil)
    default: return nil
    }
  }
  if let failure { return failure }
  let lacking = reader.lacks("maxTokens", "tokenRatio")
  if lacking == nil { into(settings) }
  return lacking
}

extension JSONReader {
  /// The failure for the first of `keys` that the object does not have; nil: it has them all.
  fileprivate func lacks(_ keys: StaticString...) -> Failure? {
    for key in keys where member(key)?.isNull ?? true {
      return fail(because: ("it has no " as StaticString).bytes, key.bytes)
    }
    return nil
  }

  fileprivate func positiveDuration(_ into: (UInt64) -> Void) -> Failure? {
    var time: UInt64 = 0
    if let failure = duration({ time = $0 }) { return failure }
    if time == 0 { return fail(because: ("expected more than 0 s" as StaticString).bytes) }
    into(time)
    return nil
  }

  fileprivate func positiveNumber(_ into: (Double) -> Void) -> Failure? {
    guard value.pointee.type == JSON_INTEGER || value.pointee.type == JSON_REAL, json_number_value(value) > 0
    else { return fail("a number above 0") }
    into(json_number_value(value))
    return nil
  }

  /// The status code of this name or number; nil: there is none.
  fileprivate var statusCode: StatusCode? {
    if value.pointee.type == JSON_INTEGER {
      return Int32(exactly: json_integer_value(value)).flatMap { StatusCode(rawValue: $0) }
    }
    guard let name = string else { return nil }
    for number in Int32(0)...16 {
      if let code = StatusCode(rawValue: number), bytesEqual(code.name.bytes, name) { return code }
    }
    return nil
  }
}
