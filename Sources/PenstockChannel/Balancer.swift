/// Chooses the endpoint of an attempt. It knows endpoints by their numbers and news of them, and makes the decisions;
/// the channel carries them out (`ChannelCore.follow`). A further kind of balancer is a further case. No I/O, no clock.
public enum Balancer: Equatable {
  case pickFirst(PickFirst)
  case roundRobin(RoundRobin)

  /// The balancer of a service config. `timeout`: for each attempt to connect. `random`: any number.
  public static func make(_ policy: BalancerConfig.Policy, timeout: UInt64, random: UInt64) -> Balancer {
    switch policy {
    case .pickFirst: .pickFirst(PickFirst(timeout: timeout))
    case .roundRobin, .weightedRoundRobin, .staticWeightedRoundRobin:
      .roundRobin(RoundRobin(timeout: timeout, random: random))
    }
  }

  /// Chooses the endpoint of one attempt, where `pick` says `choose`.
  public mutating func choose() -> Int {
    switch self {
    case .pickFirst: return 0
    case .roundRobin(var robin):
      let endpoint = robin.choose()
      self = .roundRobin(robin)
      return endpoint
    }
  }

  /// The endpoints among which `choose` chooses.
  public var choices: [Int] {
    switch self {
    case .pickFirst: []
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

  /// The endpoint for an attempt, until the next event.
  public var pick: Pick {
    switch self {
    case .pickFirst(let first): return first.pick
    case .roundRobin(let robin): return robin.pick
    }
  }

  /// The reason for `pick` to be `fail`.
  public var failure: BalancerAction.Why {
    switch self {
    case .pickFirst(let first): return first.failure
    case .roundRobin(let robin): return robin.failure
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
  /// An attempt that does not wait for a connection fails.
  case fail
}

public enum BalancerEvent: Equatable, Sendable {
  /// A connection is wanted: by a call that waits, or by the program.
  case wanted
  /// The addresses have come. They are the endpoints from 0 on, which are in these states and have these weights;
  /// without weights they are equal.
  case named([Connectivity], weights: [UInt32] = [])
  /// The name has no addresses, or could not be looked up, and there are no earlier ones.
  case nameless
  case endpoint(Int, EndpointNews)
  /// The armed timer is due.
  case time
  /// No call has come for the idle timeout.
  case rest
  case close
}

/// News of one endpoint.
public enum EndpointNews: Equatable, Sendable {
  case ready
  /// The endpoint could not be connected to.
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
  case connect(Int, until: UInt64)
  /// Connects each endpoint that is idle.
  case connectAll(until: UInt64)
  case arm(UInt64)
  /// No endpoint but this one is wanted any more; nil: none at all. Ends the timer.
  case keep(Int?)
  /// Picks again for the calls that wait.
  case serve
  /// Fails the calls that wait, but for those that wait for a connection however long it takes.
  case fail(Why)

  public enum Why: Equatable, Sendable {
    case nameless
    /// None of the addresses could be connected to.
    case unconnected
    case closed
  }
}
