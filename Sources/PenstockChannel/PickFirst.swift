/// Tries one address after the other until one can be connected to; all calls go there. When that connection has
/// gone, the next call makes it begin again, and ask for the addresses anew.
///
/// | | wanted | named(n) | nameless | ready(i) | failed(i) | left(i) | room(i) | close |
/// |---|---|---|---|---|---|---|---|---|
/// | idle | resolve -> naming | - | - | - | - | - | - | -> closed |
/// | naming | - | connect(0) -> connecting; of none: fail -> idle | fail -> idle | - | - | - | - | -> closed |
/// | connecting | - | - | - | serve -> ready(i) | connect(next); after the last: fail -> idle | - | - | -> closed |
/// | ready(r) | - | - | - | - | - | of r: -> idle | of r: serve | -> closed |
/// | closed | fail | - | - | - | - | - | - | - |
///
/// Each cell has the action, then the state that follows; "-" changes nothing.
public struct PickFirst: Equatable {
  public enum State: Equatable {
    case idle
    /// Addresses have been asked for; the plan's time runs from here.
    case naming(ConnectPlan)
    case connecting(ConnectPlan)
    case ready(Int)
    case closed
  }

  public private(set) var state = State.idle
  /// The timeout for looking up addresses and connecting together.
  public let timeout: UInt64

  public init(timeout: UInt64) { self.timeout = timeout }

  /// As `Balancer.pick`, which is this.
  @inlinable @inline(__always)
  public var pick: Pick {
    switch state {
    case .ready(let endpoint): return .endpoint(endpoint)
    case .idle, .naming, .connecting: return .wait
    case .closed: return .fail
    }
  }

  public mutating func handle(_ event: BalancerEvent, now: UInt64) -> Actions<BalancerAction> {
    switch (state, event) {
    case (.idle, .wanted):
      let plan = ConnectPlan(now: now, timeout: timeout)
      state = .naming(plan)
      return Actions(.resolve(until: plan.deadline))
    case (.naming(var plan), .named(let count)):
      let step = plan.resolved(count, now: now)
      return follow(step, plan)
    case (.naming, .nameless):
      state = .idle
      return Actions(.fail(.nameless))
    case (.connecting, .endpoint(let endpoint, .ready)):
      state = .ready(endpoint)
      return Actions(.serve)
    case (.connecting(var plan), .endpoint(_, .failed)):
      let step = plan.failed(now: now)
      return follow(step, plan)
    case (.ready(let current), .endpoint(let endpoint, .left)):
      if endpoint == current { state = .idle }
      return .none
    case (.ready(let current), .endpoint(let endpoint, .room)):
      return endpoint == current ? Actions(.serve) : .none
    case (.closed, .wanted):
      return Actions(.fail(.closed))
    case (.idle, .close), (.naming, .close), (.connecting, .close), (.ready, .close):
      state = .closed
      return .none
    case (.idle, .named), (.idle, .nameless), (.idle, .endpoint),
      (.naming, .wanted), (.naming, .endpoint),
      (.connecting, .wanted), (.connecting, .named), (.connecting, .nameless),
      (.connecting, .endpoint(_, .left)), (.connecting, .endpoint(_, .room)),
      (.ready, .wanted), (.ready, .named), (.ready, .nameless),
      (.ready, .endpoint(_, .ready)), (.ready, .endpoint(_, .failed)),
      (.closed, .named), (.closed, .nameless), (.closed, .endpoint), (.closed, .close):
      return .none
    }
  }

  private mutating func follow(_ step: ConnectPlan.Step, _ plan: ConnectPlan) -> Actions<BalancerAction> {
    switch step {
    case .connect(let index, let until):
      state = .connecting(plan)
      return Actions(.connect(index, until: until))
    case .exhausted:
      state = .idle
      return Actions(.fail(.unconnected(plan)))
    }
  }
}
