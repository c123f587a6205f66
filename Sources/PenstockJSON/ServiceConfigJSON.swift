import PenstockCall
import PenstockChannel
import PenstockWire

// Reads a service config from JSON (grpc-proto's service_config.proto in proto3's JSON form). Unknown fields
// are ignored, because a config may be newer than this library. Known fields are checked, and a failure names
// the path.

public func readServiceConfig(_ reader: JSONReader, _ into: (ServiceConfig) -> Void) -> Failure? {
  let config = ServiceConfig()
  let failure = reader.fields { key, field in
    switch key {
    case "loadBalancingConfig": return readPolicies(field, isChild: false) { config.balancing = $0 }
    case "loadBalancingPolicy":
      // This is an older field: it counts only if the newer `loadBalancingConfig` is absent.
      if let newer = reader.member("loadBalancingConfig"), !newer.isNull { return nil }
      return readPolicyName(field) { config.balancing.policy = $0 }
    case "methodConfig": return field.elements { readMethod($0, into: config) }
    case "retryThrottling": return readThrottle(field) { config.retryThrottle = $0 }
    case "healthCheckConfig":
      return field.fields { key, field in
        bytesEqual(key, "serviceName") ? field.string { config.healthService = $0 } : nil
      }
    case "connectionScaling":
      return field.fields { key, field in
        guard bytesEqual(key, "maxConnectionsPerSubchannel") else { return nil }
        return field.uint32 { config.connectionsPerSubchannel = max($0, 1) }
      }
    default: return nil
    }
  }
  if failure == nil { into(config) }
  return failure
}

// MARK: - Methods

private struct MethodName {
  var service: JSONReader?
  var method: JSONReader?
}

private func readMethod(_ reader: JSONReader, into service: ServiceConfig) -> Failure? {
  var config = MethodConfig()
  var names: JSONReader?
  let failure = reader.fields { key, field in
    switch key {
    case "name":
      names = field
      return nil
    case "waitForReady": return field.bool { config.waitsForReady = $0 }
    case "timeout": return field.duration { config.timeout = $0 }
    case "maxRequestMessageBytes": return field.uint32 { config.maxRequestBytes = $0 }
    case "maxResponseMessageBytes": return field.uint32 { config.maxResponseBytes = $0 }
    case "retryPolicy": return readRetry(field) { config.retry = $0 }
    case "hedgingPolicy":
      service.ignored.hedgingPolicy = true
      return nil
    default: return nil
    }
  }
  if let failure { return failure }
  if config.retry != nil, let hedging = reader.member("hedgingPolicy"), !hedging.isNull {
    return reader.fail(because: ("it has a retryPolicy and a hedgingPolicy" as StaticString).bytes)
  }
  return names?.elements { one in
    var name = MethodName()
    let failure = one.fields { key, field in
      switch key {
      case "service":
        name.service = field
      case "method":
        name.method = field
      default: return nil
      }
      return field.string == nil ? field.fail("a string") : nil
    }
    return failure ?? withExtendedLifetime(name) { addName($0, to: service, config, one) }
  }
}

/// Adds the config of a method. `reader`: of its name.
private func addName(
  _ name: MethodName, to service: ServiceConfig, _ config: MethodConfig, _ reader: JSONReader
) -> Failure? {
  let none = ByteView(start: nil, count: 0)
  let (of, method) = (name.service?.string ?? none, name.method?.string ?? none)
  if of.isEmpty, !method.isEmpty {
    return reader.fail(because: ("a method without its service" as StaticString).bytes)
  }
  switch service.methods.add(config, service: of, method: method) {
  case .added: return nil
  case .already: return reader.fail(because: ("this name has a config already" as StaticString).bytes)
  case .noMemory: return Failure(.noMemory, "no memory")
  }
}

// MARK: - Balancing

/// Reads a list of policies: the first one with a known name counts. `isChild`: the list is the `childPolicy`
/// of an outlier detection, and must not be empty. Any other list may be empty, which counts as absent.
private func readPolicies(_ reader: JSONReader, isChild: Bool, _ into: (BalancerConfig) -> Void) -> Failure? {
  var found: BalancerConfig?
  let failure = reader.elements { one in
    if found != nil { return nil }
    guard one.isObject, one.count == 1 else {
      return one.fail("an object with one member, the policy", hasType: one.isObject)
    }
    return one.members { name, policy in readPolicy(name, policy, isChild: isChild) { found = $0 } }
  }
  if let failure { return failure }
  if let found {
    into(found)
  } else if isChild || reader.count > 0 {
    return reader.fail(because: ("none of the policies is known" as StaticString).bytes)
  }
  return nil
}

private func readPolicy(
  _ name: ByteView, _ reader: JSONReader, isChild: Bool, _ into: (BalancerConfig) -> Void
) -> Failure? {
  var config = BalancerConfig()
  switch name {
  case "pick_first":
    let failure = reader.fields { key, field in
      guard bytesEqual(key, "shuffleAddressList") else { return nil }
      return field.bool { config.policy = .pickFirst(shuffles: $0) }
    }
    if let failure { return failure }
  case "outlier_detection_experimental":
    if isChild { return reader.fail(because: ("an outlier detection within another" as StaticString).bytes) }
    if let failure = readOutliers(reader, into: &config) { return failure }
  default:
    guard let policy = plainPolicy(name) else { return nil }
    if !reader.isObject { return reader.fail("an object") }
    config.policy = policy
  }
  into(config)
  return nil
}

/// The policy with this name, whose fields have their defaults; nil: the name is not known.
private func plainPolicy(_ name: ByteView) -> BalancerConfig.Policy? {
  switch name {
  case "pick_first": return .pickFirst(shuffles: false)
  case "round_robin": return .roundRobin
  case "weighted_round_robin": return .weightedRoundRobin
  case "static_weighted_round_robin": return .staticWeightedRoundRobin
  default: return nil
  }
}

/// Reads the older field `loadBalancingPolicy`: the name of a policy, in upper or lower case.
private func readPolicyName(_ reader: JSONReader, _ into: (BalancerConfig.Policy) -> Void) -> Failure? {
  guard let string = reader.string else { return reader.fail("a string") }
  let lowered = ByteBuffer()
  for byte in string {
    guard lowered.append(byte: byte >= 0x41 && byte <= 0x5A ? byte | 0x20 : byte) else {
      return Failure(.noMemory, "no memory")
    }
  }
  if let policy = plainPolicy(lowered.view) {
    into(policy)
  } else if !bytesEqual(lowered.view, "unspecified") {
    return reader.fail(because: ("the policy is not known" as StaticString).bytes)
  }
  return nil
}

private func readOutliers(_ reader: JSONReader, into config: inout BalancerConfig) -> Failure? {
  var outliers = OutlierDetection()
  var hasChild = false
  let failure = reader.fields { key, field in
    switch key {
    case "interval":
      if let failure = field.duration({ outliers.interval = $0 }) { return failure }
      return outliers.interval > 0
        ? nil : field.fail(because: ("expected more than 0 s" as StaticString).bytes)
    case "baseEjectionTime": return field.duration { outliers.baseEjection = $0 }
    case "maxEjectionTime": return field.duration { outliers.longestEjection = $0 }
    case "maxEjectionPercent": return field.uint32(most: 100) { outliers.mostEjected = $0 }
    case "successRateEjection":
      var rate = OutlierDetection.SuccessRate()
      let failure = field.fields { key, field in
        switch key {
        case "stdevFactor": return field.uint32 { rate.deviations = $0 }
        case "enforcementPercentage": return field.uint32(most: 100) { rate.enforcement = $0 }
        case "minimumHosts": return field.uint32 { rate.leastEndpoints = $0 }
        case "requestVolume": return field.uint32 { rate.leastCalls = $0 }
        default: return nil
        }
      }
      outliers.successRate = rate
      return failure
    case "failurePercentageEjection":
      var failures = OutlierDetection.FailurePercentage()
      let failure = field.fields { key, field in
        switch key {
        case "threshold": return field.uint32(most: 100) { failures.threshold = $0 }
        case "enforcementPercentage": return field.uint32(most: 100) { failures.enforcement = $0 }
        case "minimumHosts": return field.uint32 { failures.leastEndpoints = $0 }
        case "requestVolume": return field.uint32 { failures.leastCalls = $0 }
        default: return nil
        }
      }
      outliers.failurePercentage = failures
      return failure
    case "childPolicy":
      hasChild = true
      return readPolicies(field, isChild: true) { config = $0 }
    default: return nil
    }
  }
  if let failure { return failure }
  if !hasChild { return reader.fail(because: ("it has no childPolicy" as StaticString).bytes) }
  config.outliers = outliers
  return nil
}

// MARK: - Types

extension JSONReader {
  /// Calls `body` for each member that is not null. A field that is null counts as absent.
  func fields(_ body: (_ key: ByteView, _ field: JSONReader) -> Failure?) -> Failure? {
    members { key, field in field.isNull ? nil : body(key, field) }
  }

  /// Reads a whole number from 0 to `most`; JSON may have it as a string.
  func uint32(most: Int = 4_294_967_295, _ into: (Int) -> Void) -> Failure? {
    guard let string else { return count(0...most, into) }
    var number = 0
    for byte in string {
      guard byte >= 0x30, byte <= 0x39, number <= most else { return fail(0...most, got: nil) }
      number = number * 10 + Int(byte - 0x30)
    }
    if string.isEmpty || number > most { return fail(0...most, got: nil) }
    into(number)
    return nil
  }

  /// Reads a google.protobuf.Duration such as "1.5s", and passes it on in nanoseconds. If the duration is too
  /// long for a UInt64, it becomes the largest UInt64.
  func duration(_ into: (UInt64) -> Void) -> Failure? {
    guard let nanoseconds = string.flatMap({ duration($0) }) else {
      return fail("a duration from 0 s, such as \"1.5s\"", hasType: string != nil)
    }
    into(nanoseconds)
    return nil
  }

  /// The nanoseconds of a duration as text: digits, perhaps a dot with 1 to 9 digits, and "s". nil: the text
  /// has another form.
  private func duration(_ text: ByteView) -> UInt64? {
    guard text.last == 0x73 else { return nil }
    var nanoseconds: UInt64 = 0
    var digits = 0
    var decimals = -1
    for byte in text.dropLast() {
      if byte == 0x2E, decimals < 0, digits > 0 {
        decimals = 0
        continue
      }
      guard byte >= 0x30, byte <= 0x39, digits < 24 else { return nil }
      digits += 1
      if decimals >= 0 { decimals += 1 }
      nanoseconds = nanoseconds.scaled(10, adding: UInt64(byte - 0x30))
    }
    guard digits > 0, decimals != 0, decimals <= 9 else { return nil }
    for _ in max(decimals, 0)..<9 { nanoseconds = nanoseconds.scaled(10, adding: 0) }
    return nanoseconds
  }
}

extension UInt64 {
  /// `self * factor + more`, or the largest number if the result would overflow.
  fileprivate func scaled(_ factor: UInt64, adding more: UInt64) -> UInt64 {
    let (product, isTooLarge) = multipliedReportingOverflow(by: factor)
    let (sum, isOver) = product.addingReportingOverflow(more)
    return isTooLarge || isOver ? .max : sum
  }
}
