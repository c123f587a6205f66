/// Chooses the endpoint of each attempt. The balancer knows an endpoint only by its index and by the news of
/// it. The balancer decides, and the channel carries out its actions (`ChannelCore.follow`). Another kind of
/// balancer is another case. No I/O, no clock.
public enum Balancer: Equatable {
  case pickFirst(PickFirst)
  case roundRobin(RoundRobin)

  /// Makes the balancer for a policy of a service config. `timeout`: how long each attempt to connect may take, in
  /// nanoseconds. `random`: a random number.
  public static func make(_ policy: BalancerConfig.Policy, timeout: UInt64, random: UInt64) -> Balancer {
    switch policy {
    case .pickFirst: .pickFirst(PickFirst(timeout: timeout))
    case .roundRobin, .weightedRoundRobin, .staticWeightedRoundRobin:
      .roundRobin(RoundRobin(timeout: timeout, random: random))
    }
  }

  /// Chooses the endpoint of one attempt, if `pick` is `choose`. Returns its index.
  public mutating func choose() -> Int {
    switch self {
    case .pickFirst: return 0
    case .roundRobin(var robin):
      let endpoint = robin.choose()
      self = .roundRobin(robin)
      return endpoint
    }
  }

  /// The indices of the endpoints among which `choose` chooses.
  public var choices: [Int] {
    switch self {
    case .pickFirst(let first): if case .endpoint(let index) = first.pick { [index] } else { [] }
    case .roundRobin(let robin): robin.ready
    }
  }

  public mutating func handle(_ event: BalancerEvent, now: UInt64) -> Actions<BalancerAction> {
    switch self {
    case .pickFirst(var first):
      let actions = first.handle(event, now: now)
      self = .pickFirst(first)
      return actions
    case .roundRobin(var robin):
      let actions = robin.handle(event, now: now)
      self = .roundRobin(robin)
      return actions
    }
  }

  /// The answer for each attempt that wants an endpoint. It stays until the next event.
  public var pick: Pick {
    switch self {
    case .pickFirst(let first): return first.pick
    case .roundRobin(let robin): return robin.pick
    }
  }

  /// The reason why `pick` is `fail`.
  public var failure: BalancerAction.Why {
    switch self {
    case .pickFirst(let first): return first.failure
    case .roundRobin(let robin): return robin.failure
    }
  }

  /// Whether there is no connection because no addresses are known.
  public var lacksName: Bool {
    switch self {
    case .pickFirst(let first): return first.lacksName
    case .roundRobin(let robin): return robin.lacksName
    }
  }

  public var connectivity: Connectivity {
    switch self {
    case .pickFirst(let first): return first.connectivity
    case .roundRobin(let robin): return robin.connectivity
    }
  }
}

public enum Pick: Equatable {
  /// The index of an endpoint that is ready.
  case endpoint(Int)
  /// Several endpoints are ready: `choose` says which one an attempt gets.
  case choose
  /// The attempt waits until the balancer has a connection.
  case wait
  /// The attempt fails, unless the call waits until a connection can be made (`Patience`).
  case fail
}

public enum BalancerEvent: Equatable, Sendable {
  /// A connection is wanted: by a call that waits, or by the program.
  case wanted
  /// The addresses have come. They are now the endpoints 0, 1, 2 and so on, in these states and with these weights;
  /// without `weights` all weigh the same.
  case named([Connectivity], weights: [UInt32] = [])
  /// The name has no addresses, or could not be looked up, and no addresses are known from before.
  case nameless
  case endpoint(Int, EndpointNews)
  /// The armed timer is due.
  case time
  /// No call has used the channel for the idle timeout.
  case rest
  case close
}

/// News of one endpoint.
public enum EndpointNews: Equatable, Sendable {
  case ready
  /// An attempt to connect to the endpoint has failed.
  case failed
  /// The wait after a failure is over.
  case rested
  /// The endpoint was ready, and no longer has a connection that takes new calls.
  case left
  /// Like `left`, and the connection has answered no call.
  case leftUnused
  /// A slot has come free on the endpoint's connection.
  case room
}

public enum BalancerAction: Equatable, Sendable {
  /// Asks for addresses.
  case resolve
  /// Asks for addresses again. The known addresses stay, and the balancer gets no event about them.
  case refresh
  case connect(Int, until: UInt64)
  /// Connects each endpoint that is idle.
  case connectAll(until: UInt64)
  case arm(UInt64)
  /// Releases every endpoint but this one; nil: all endpoints. Disarms the timer.
  case keep(Int?)
  /// Picks again for the calls that wait.
  case serve
  /// Fails the calls that wait, except those with "wait for ready".
  case fail(Why)

  public enum Why: Equatable, Sendable {
    case nameless
    /// The attempts to connect have failed at each address.
    case unconnected
    case closed
  }
}
