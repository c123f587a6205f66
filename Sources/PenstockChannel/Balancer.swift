/// Chooses the endpoint of an attempt. It gets the numbers of endpoints, and news of them, and decides; the channel
/// carries out its decisions (`ChannelCore.follow`). A further kind of balancer is a further case. No I/O, no clock.
public enum Balancer: Equatable {
  case pickFirst(PickFirst)

  public mutating func handle(_ event: BalancerEvent, now: UInt64) -> Actions<BalancerAction> {
    switch self {
    case .pickFirst(var first):
      let actions = first.handle(event, now: now)
      self = .pickFirst(first)
      return actions
    }
  }

  /// The endpoint for an attempt. Each attempt asks for it, so the answer is ready beforehand, and `@inlinable`: it is a
  /// load and a comparison there.
  @inlinable @inline(__always)
  public var pick: Pick {
    switch self {
    case .pickFirst(let first): return first.pick
    }
  }

  /// Whether it does nothing until a call wants a connection.
  @inlinable
  public var isIdle: Bool {
    switch self {
    case .pickFirst(let first): return first.state == .idle
    }
  }
}

public enum Pick: Equatable {
  /// The index of an endpoint that is ready.
  case endpoint(Int)
  /// The attempt waits until the balancer has a connection.
  case wait
  /// The attempt fails: there will be no connection.
  case fail
}

public enum BalancerEvent: Equatable {
  /// A call waits for a connection.
  case wanted
  /// This many addresses have come; they are the endpoints from 0 on.
  case named(Int)
  /// The name has no addresses, or could not be looked up.
  case nameless
  case endpoint(Int, EndpointNews)
  case close
}

/// News of one endpoint.
public enum EndpointNews: Equatable {
  case ready
  /// The endpoint could not be connected to.
  case failed
  /// The endpoint was ready, and no longer has a connection that takes new calls.
  case left
  /// A slot has come free on the endpoint's connection.
  case room
}

public enum BalancerAction: Equatable {
  /// Asks for addresses, which have to come by this time.
  case resolve(until: UInt64)
  case connect(Int, until: UInt64)
  /// Picks again for the calls that wait.
  case serve
  /// Fails the calls that wait.
  case fail(Why)

  public enum Why: Equatable {
    case nameless
    /// None of the addresses could be connected to.
    case unconnected(ConnectPlan)
    case closed
  }
}
