/// Chooses the endpoint of each attempt. The balancer knows endpoints only by their indices and by the events
/// about them. It decides, and the channel carries out its actions (`ChannelCore.follow`). A further kind of
/// balancer is added as a case. No I/O, no clock.
public enum Balancer: Equatable {
  case pickFirst(PickFirst)
  case roundRobin(RoundRobin)

  /// Makes the balancer for a policy of a service config. `timeout` is the time that each attempt to connect
  /// may take, in nanoseconds. `random` is any random number.
  public static func make(_ policy: BalancerConfig.Policy, timeout: UInt64, random: UInt64) -> Balancer {
    switch policy {
    case .pickFirst: .pickFirst(PickFirst(timeout: timeout))
    case .roundRobin, .weightedRoundRobin, .staticWeightedRoundRobin:
      .roundRobin(RoundRobin(timeout: timeout, random: random))
    }
  }

  /// Chooses the endpoint of one attempt, and returns its index. Called while `pick` is `.choose`.
  public mutating func choose() -> Int {
    switch self {
    case .pickFirst: return 0
    case .roundRobin(var robin):
      let endpoint = robin.choose()
      self = .roundRobin(robin)
      return endpoint
    }
  }

  /// The indices of all endpoints that an attempt may get now.
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

  /// The answer for an attempt that wants an endpoint now. It stays the same until the next event.
  public var pick: Pick {
    switch self {
    case .pickFirst(let first): return first.pick
    case .roundRobin(let robin): return robin.pick
    }
  }

  /// The reason for which attempts fail now, while `pick` is `.fail`.
  public var failure: BalancerAction.Why {
    switch self {
    case .pickFirst(let first): return first.failure
    case .roundRobin(let robin): return robin.failure
    }
  }

  /// Whether attempts wait because no addresses are known.
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
  /// The attempt gets the endpoint with this index, which is ready.
  case endpoint(Int)
  /// Several endpoints are ready: `choose` says which one an attempt gets.
  case choose
  /// The attempt waits until the balancer has a connection.
  case wait
  /// The attempt fails, unless its call waits for a connection however long that takes (`Patience`).
  case fail
}

public enum BalancerEvent: Equatable, Sendable {
  /// A waiting call, or the program, wants a connection.
  case wanted
  /// The resolver has given addresses. They are the endpoints 0, 1, 2 and so on from now on, in these states
  /// and with these weights; without `weights` all weights are equal.
  case named([Connectivity], weights: [UInt32] = [])
  /// The look-up has given no addresses, or has failed, and no addresses are known from before.
  case nameless
  case endpoint(Int, EndpointNews)
  /// The armed timer is due.
  case time
  /// No call has used the channel for the time of its idle timeout.
  case rest
  case close
}

/// News of one endpoint.
public enum EndpointNews: Equatable, Sendable {
  case ready
  /// An attempt to connect to the endpoint has failed.
  case failed
  /// Waiting after a failed attempt is over: the endpoint may be connected to again.
  case rested
  /// The endpoint, which was ready, has no connection left that takes new calls.
  case gone
  /// The endpoint, which was ready, has no connection left that takes new calls, and the last one has
  /// answered no call.
  case goneUnused
  /// A connection of the endpoint can take a further call, after it was full.
  case room
}

public enum BalancerAction: Equatable, Sendable {
  /// Asks for addresses.
  case resolve
  /// Looks the name up again. The known addresses stay, and the balancer is not told if the look-up fails.
  case refresh
  case connect(Int, until: UInt64)
  /// Begins to connect each endpoint that is idle; an attempt is given up at the time `until`.
  case connectAll(until: UInt64)
  case arm(UInt64)
  /// Gives up the connections of every endpoint except the one with this index (nil: of all endpoints), and
  /// stops the balancer's timer.
  case useOnly(Int?)
  /// Chooses an endpoint again for each waiting attempt.
  case serve
  /// Fails the waiting attempts, except those of calls with "wait for ready".
  case fail(Why)

  public enum Why: Equatable, Sendable {
    case nameless
    /// An attempt to connect to each address has failed.
    case unconnected
    case closed
  }
}
