/// Sends all calls to the first address to which a connection succeeds (gRFC A61, A62). A connection that is
/// lost is made again at once, unless it has answered no call.
///
/// | | wanted | named | nameless | time | rest | close |
/// |---|---|---|---|---|---|---|
/// | idle | resolve -> naming | - | - | - | - | -> closed |
/// | naming | - | a pass -> connecting | fail -> nameless | - | useOnly(nil) -> idle | -> closed |
/// | connecting | - | a pass | - | next | useOnly(nil) -> idle | -> closed |
/// | ready(r) | - | a pass -> connecting | - | - | useOnly(nil) -> idle | -> closed |
/// | failing | - | a pass | - | next | useOnly(nil) -> idle | -> closed |
/// | nameless | - | a pass -> connecting | fail | - | useOnly(nil) -> idle | -> closed |
/// | closed | fail | - | - | - | - | - |
///
/// | endpoint i | ready | failed | rested | gone | goneUnused | room |
/// |---|---|---|---|---|---|---|
/// | connecting | useOnly(i), serve -> ready(i) | next; of all: resolve, fail -> failing | connect(i) | - | - | - |
/// | ready(r) | - | of r: resolve -> naming | - | of r: resolve -> naming | of r: useOnly(nil) -> idle | of r: serve |
/// | failing | useOnly(i), serve -> ready(i) | fail; of all: resolve, too | connect(i) | - | - | - |
/// | any other | - | - | - | - | - | - |
///
/// In each cell: the actions, then the state that follows; "-" changes nothing. "a pass": if one of the new
/// addresses is connected already, useOnly(i), serve -> ready(i). Otherwise a pass over the addresses begins
/// with the first one that may be tried: connect and, if there are more, arm. But if all have failed
/// already, and the state is not `failing`: resolve, fail -> failing. "next" does this with the next
/// address. "of r": only if i is r. "of all": every address has failed; in the state `failing`, as many
/// attempts as there are addresses have failed since the resolver was last asked. `failing` and `nameless`
/// are TRANSIENT_FAILURE. New addresses end `nameless`, but not `failing`: there calls fail until there is
/// a connection.
public struct PickFirst: Equatable {
  public enum State: Equatable {
    case idle
    /// The resolver was asked for addresses.
    case naming
    case connecting(ConnectPass)
    case ready(Int)
    /// An attempt to connect to each address has failed. `failures`: how many attempts have failed since the
    /// resolver was last asked for addresses, or since new addresses came.
    case failing(ConnectPass, failures: Int)
    /// There are no addresses. The resolver looks the name up again after a wait.
    case nameless
    case closed
  }

  public private(set) var state = State.idle
  /// The time in nanoseconds that each attempt to connect may take.
  public let timeout: UInt64

  public init(timeout: UInt64) { self.timeout = timeout }

  public var pick: Pick {
    switch state {
    case .ready(let endpoint): return .endpoint(endpoint)
    case .idle, .naming, .connecting: return .wait
    case .failing, .nameless, .closed: return .fail
    }
  }

  /// Whether attempts wait because no addresses are known.
  public var lacksName: Bool {
    switch state {
    case .idle, .naming, .nameless: true
    case .connecting, .ready, .failing, .closed: false
    }
  }

  /// The reason for which attempts fail now, while `pick` is `.fail`.
  public var failure: BalancerAction.Why {
    switch state {
    case .nameless: .nameless
    case .closed: .closed
    case .idle, .naming, .connecting, .ready, .failing: .unconnected
    }
  }

  public var connectivity: Connectivity {
    switch state {
    case .idle: .idle
    case .naming, .connecting: .connecting
    case .ready: .ready
    case .failing, .nameless: .transientFailure
    case .closed: .shutdown
    }
  }

  public mutating func handle(_ event: BalancerEvent, now: UInt64) -> Actions<BalancerAction> {
    switch (state, event) {
    case (.idle, .wanted):
      state = .naming
      return Actions(.resolve)
    case (.naming, .named(let states, _)), (.connecting, .named(let states, _)),
      (.nameless, .named(let states, _)),
      (.ready, .named(let states, _)), (.failing, .named(let states, _)):
      if let chosen = states.firstIndex(of: .ready) {
        state = .ready(chosen)
        return Actions(.useOnly(chosen), .serve)
      }
      return begin(ConnectPass(states), now)
    case (.naming, .nameless), (.nameless, .nameless):
      state = .nameless
      return Actions(.fail(.nameless))
    case (.connecting, .endpoint(let endpoint, .ready)), (.failing, .endpoint(let endpoint, .ready)):
      state = .ready(endpoint)
      return Actions(.useOnly(endpoint), .serve)
    case (.connecting(var pass), .endpoint(let endpoint, .failed)):
      pass.failed(endpoint)
      return follow(pass, now)
    case (.failing(let pass, let failures), .endpoint(_, .failed)):
      // As many attempts have failed as there are addresses, so the name may have other addresses by now.
      let asksAgain = failures + 1 >= pass.count
      state = .failing(pass, failures: asksAgain ? 0 : failures + 1)
      return asksAgain ? Actions(.resolve, .fail(.unconnected)) : Actions(.fail(.unconnected))
    case (.connecting, .endpoint(let endpoint, .rested)), (.failing, .endpoint(let endpoint, .rested)):
      return Actions(.connect(endpoint, until: Time.after(timeout, now)))
    case (.connecting(let pass), .time):
      return follow(pass, now)
    case (.failing(var pass, let failures), .time):
      let actions = next(&pass, now)
      state = .failing(pass, failures: failures)
      return actions
    case (.ready(let current), .endpoint(let endpoint, .gone)),
      (.ready(let current), .endpoint(let endpoint, .failed)):
      guard endpoint == current else { return .none }
      state = .naming
      return Actions(.resolve)
    case (.ready(let current), .endpoint(let endpoint, .goneUnused)):
      guard endpoint == current else { return .none }
      state = .idle
      return Actions(.useOnly(nil))
    case (.ready(let current), .endpoint(let endpoint, .room)):
      return endpoint == current ? Actions(.serve) : .none
    case (.naming, .rest), (.connecting, .rest), (.ready, .rest), (.failing, .rest), (.nameless, .rest):
      state = .idle
      return Actions(.useOnly(nil))
    case (.closed, .wanted):
      return Actions(.fail(.closed))
    case (.idle, .close), (.naming, .close), (.connecting, .close), (.ready, .close), (.failing, .close),
      (.nameless, .close):
      state = .closed
      return .none
    case (.idle, .named), (.idle, .nameless), (.idle, .endpoint), (.idle, .time), (.idle, .rest),
      (.naming, .wanted), (.naming, .endpoint), (.naming, .time),
      (.connecting, .wanted), (.connecting, .nameless), (.connecting, .endpoint(_, .gone)),
      (.connecting, .endpoint(_, .goneUnused)), (.connecting, .endpoint(_, .room)),
      (.ready, .wanted), (.ready, .nameless), (.ready, .time), (.ready, .endpoint(_, .ready)),
      (.ready, .endpoint(_, .rested)),
      (.failing, .wanted), (.failing, .nameless), (.failing, .endpoint(_, .gone)),
      (.failing, .endpoint(_, .goneUnused)), (.failing, .endpoint(_, .room)),
      (.nameless, .wanted), (.nameless, .endpoint), (.nameless, .time),
      (.closed, .named), (.closed, .nameless), (.closed, .endpoint), (.closed, .time), (.closed, .rest),
      (.closed, .close):
      return .none
    }
  }

  private mutating func begin(_ pass: ConnectPass, _ now: UInt64) -> Actions<BalancerAction> {
    guard case .failing = state else { return follow(pass, now) }
    var pass = pass
    let actions = next(&pass, now)
    state = .failing(pass, failures: 0)
    return actions
  }

  /// Begins to connect to the next address of the pass, or ends the pass if there is none.
  private mutating func follow(_ pass: ConnectPass, _ now: UInt64) -> Actions<BalancerAction> {
    if pass.isExhausted {
      state = .failing(pass, failures: 0)
      return Actions(.resolve, .fail(.unconnected))
    }
    var pass = pass
    let actions = next(&pass, now)
    state = .connecting(pass)
    return actions
  }

  private func next(_ pass: inout ConnectPass, _ now: UInt64) -> Actions<BalancerAction> {
    guard let index = pass.next() else { return .none }
    let connect = BalancerAction.connect(index, until: Time.after(timeout, now))
    return pass.hasMore ? Actions(connect, .arm(Time.after(ConnectPass.delay, now))) : Actions(connect)
  }
}
