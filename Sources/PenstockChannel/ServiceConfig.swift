import PenstockWire

/// The part of a service config (grpc-proto's service_config.proto) that channels use. `retryPolicy`, `hedgingPolicy`
/// and `retryThrottling` are not read yet. Never changed after it was read.
public final class ServiceConfig {
  public var balancing = BalancerConfig()
  public var methods = MethodConfigs()
  /// The service whose health each server is asked for (gRFC A17); nil: the servers are not asked.
  public var healthService: ByteBuffer?
  /// The most connections to one address (gRFC A105).
  public var connectionsPerSubchannel = 1

  public init() {}
}

/// How the endpoint of an attempt is chosen.
public struct BalancerConfig: Equatable, Sendable {
  public enum Policy: Equatable, Sendable {
    /// `shuffles`: the addresses are tried in random order.
    case pickFirst(shuffles: Bool)
    case roundRobin
    /// By the weights that servers report (gRFC A58). Servers are not asked for weights, so all weights are equal.
    case weightedRoundRobin
    /// By the weights that the resolver gives.
    case staticWeightedRoundRobin
  }

  public var policy = Policy.pickFirst(shuffles: false)
  /// The settings by which endpoints whose calls fail get no calls for a time; nil: all endpoints get calls.
  public var outliers: OutlierDetection?

  public init() {}
}

/// The settings of outlier detection (gRFC A50). Times are in nanoseconds. `enforcement`: the chance in percent that an
/// outlier is ejected.
public struct OutlierDetection: Equatable, Sendable {
  /// Settings for the ejection of endpoints whose success rate is below the mean by more than `deviations` / 1000
  /// standard deviations.
  public struct SuccessRate: Equatable, Sendable {
    public var deviations = 1900
    public var enforcement = 100
    public var leastEndpoints = 5
    public var leastCalls = 100

    public init() {}
  }

  /// Settings for the ejection of endpoints where more than `threshold` percent of the calls fail.
  public struct FailurePercentage: Equatable, Sendable {
    public var threshold = 85
    public var enforcement = 100
    public var leastEndpoints = 5
    public var leastCalls = 50

    public init() {}
  }

  public var interval: UInt64 = 10_000_000_000
  public var baseEjection: UInt64 = 30_000_000_000
  /// The longest ejection; nil: 300 s, or `baseEjection` where that is longer.
  public var longestEjection: UInt64?
  /// How many percent of the endpoints may be ejected at a time; one endpoint always may.
  public var mostEjected = 10
  public var successRate: SuccessRate?
  public var failurePercentage: FailurePercentage?

  public init() {}
}
