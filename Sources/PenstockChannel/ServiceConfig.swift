import PenstockWire

/// The part of a service config (grpc-proto's service_config.proto) that channels use. The object is not
/// changed after the config was read.
public final class ServiceConfig {
  public var balancing = BalancerConfig()
  public var methods = MethodConfigs()
  /// The name of the service for health checks (gRFC A17): each server is asked whether it serves this
  /// service. nil: the servers are not asked.
  public var healthService: ByteBuffer?
  /// The largest number of connections to one address (gRFC A105).
  public var connectionsPerSubchannel = 1
  /// The limit on retries while most requests fail; nil: there is none.
  public var retryThrottle: RetryThrottle.Settings?
  /// The parts of the config that have no effect yet.
  public var ignored = IgnoredParts()

  public init() {}
}

/// Parts of a service config that the channel does not apply. Its listeners are told of them.
public struct IgnoredParts: Equatable, Sendable {
  public var hedgingPolicy = false

  public init() {}
}

/// How the channel chooses the endpoint of an attempt.
public struct BalancerConfig: Equatable, Sendable {
  public enum Policy: Equatable, Sendable {
    /// Uses the first address that can be connected to. `shuffles`: the addresses are tried in random order.
    case pickFirst(shuffles: Bool)
    case roundRobin
    /// Endpoints get calls in turn, in proportion to the weights that servers report (gRFC A58). The channel
    /// does not ask servers for weights, so all weights are equal.
    case weightedRoundRobin
    /// Endpoints get calls in turn, in proportion to the weights that the resolver gives.
    case staticWeightedRoundRobin

    public var name: StaticString {
      switch self {
      case .pickFirst: "pick_first"
      case .roundRobin: "round_robin"
      case .weightedRoundRobin: "weighted_round_robin"
      case .staticWeightedRoundRobin: "static_weighted_round_robin"
      }
    }
  }

  public var policy = Policy.pickFirst(shuffles: false)
  /// The settings of outlier detection: endpoints whose calls fail get no calls for a time. nil: it is
  /// switched off.
  public var outliers: OutlierDetection?

  public init() {}
}

/// The settings of outlier detection (gRFC A50). Times are in nanoseconds. `enforcement` is the probability,
/// in percent, with which an outlier is ejected (gets no calls for a time).
public struct OutlierDetection: Equatable, Sendable {
  /// Ejects endpoints whose success rate is less than the mean by more than `deviations` / 1000 standard
  /// deviations.
  public struct SuccessRate: Equatable, Sendable {
    public var deviations = 1900
    public var enforcement = 100
    public var leastEndpoints = 5
    public var leastCalls = 100

    public init() {}
  }

  /// Ejects endpoints at which more than `threshold` percent of the calls fail.
  public struct FailurePercentage: Equatable, Sendable {
    public var threshold = 85
    public var enforcement = 100
    public var leastEndpoints = 5
    public var leastCalls = 50

    public init() {}
  }

  public var interval: UInt64 = 10_000_000_000
  public var baseEjection: UInt64 = 30_000_000_000
  /// The longest time of an ejection; nil: 300 s, or `baseEjection` if that is longer.
  public var longestEjection: UInt64?
  /// The largest part of the endpoints, in percent, that may be ejected at the same time. One endpoint may
  /// always be ejected.
  public var mostEjected = 10
  public var successRate: SuccessRate?
  public var failurePercentage: FailurePercentage?

  public init() {}
}
