#if GRPCSwift
  import GRPCCore

  /// The options of methods in a service config, by the method's name.
  struct MethodTable: Sendable {
    private var configs: [MethodConfig.Name: MethodConfig] = [:]

    init(_ config: ServiceConfig) {
      for method in config.methodConfig {
        for name in method.names { configs[name] = method }
      }
    }

    /// The options of a method, or else of its service, or else of all.
    subscript(_ descriptor: MethodDescriptor) -> MethodConfig? {
      if configs.isEmpty { return nil }
      let service = descriptor.service.fullyQualifiedService
      return configs[MethodConfig.Name(service: service, method: descriptor.method)]
        ?? configs[MethodConfig.Name(service: service)] ?? configs[MethodConfig.Name(service: "")]
    }
  }

  extension GRPCCore.CallOptions {
    /// These options, with those of the service config where they say nothing.
    func over(_ config: MethodConfig?) -> GRPCCore.CallOptions {
      guard let config else { return self }
      var options = self
      options.timeout = timeout ?? config.timeout
      options.waitForReady = waitForReady ?? config.waitForReady
      options.maxRequestMessageBytes = maxRequestMessageBytes ?? config.maxRequestMessageBytes
      options.maxResponseMessageBytes = maxResponseMessageBytes ?? config.maxResponseMessageBytes
      return options
    }
  }

  extension ServiceConfig {
    /// The balancing policies as the service config of a channel, in JSON; nil: there are none.
    var balancing: String? {
      let policies = loadBalancingConfig.compactMap { policy in
        if policy.roundRobin != nil { return #"{"round_robin":{}}"# }
        return policy.pickFirst.map { #"{"pick_first":{"shuffleAddressList":\#($0.shuffleAddressList)}}"# }
      }
      return policies.isEmpty ? nil : #"{"loadBalancingConfig":[\#(policies.joined(separator: ","))]}"#
    }

    /// The throttle of retries; nil: there is none. Values beyond gRPC's bounds become the nearest ones.
    var throttle: RetryThrottle? {
      retryThrottling.map {
        RetryThrottle(maxTokens: min(max($0.maxTokens, 1), 1_000), tokenRatio: max($0.tokenRatio, 0.001))
      }
    }
  }
#endif
