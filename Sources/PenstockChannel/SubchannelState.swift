/// The decisions of a subchannel on the events that happen to it. No I/O, no clock.
///
/// | | wanted(until) | connected | failed | time | close |
/// |---|---|---|---|---|---|
/// | idle | connect(until) -> connecting | - | - | - | closeAll -> closed |
/// | connecting | - | arm(old), tell(ready) -> ready | fail(retry) -> failed | giveUp, or arm | closeAll -> closed |
/// | ready | - | - | - | retire, tell(gone) -> idle, or arm | closeAll -> closed |
/// | growing | - | arm, tell(room) -> ready, or pausing | arm(retry) -> pausing | giveUp, or arm | closeAll -> closed |
/// | pausing | - | - | - | arm(old), tell(room) -> ready, or arm | closeAll -> closed |
/// | failed | - | - | - | tell(rested) -> idle, or arm | closeAll -> closed |
/// | closed | - | - | - | - | - |
///
/// | | full | room | lessened | lost |
/// |---|---|---|---|---|
/// | ready | ask; with `until`, connect(until) -> growing | tell(room) | lessen: tell(room), or -> pausing | retire, lose |
/// | growing | ask | tell(room) | useless: will pause | retire, tell(gone) -> connecting |
/// | pausing | ask | tell(room) | - | retire, fail(retry) -> failed |
/// | any other | - | - | - | - |
///
/// | | reset | unwanted | removed |
/// |---|---|---|---|
/// | idle | -> idle, anew | - | - |
/// | connecting | retry at once | drop -> idle | drop -> idle |
/// | ready | anew | disarm, retire -> idle | disarm, retire -> idle |
/// | growing | retry at once | drop, retire -> idle | drop, retire -> idle |
/// | pausing | arm(old), tell(room) -> ready, anew | disarm, retire -> idle | disarm, retire -> idle |
/// | failed | disarm, tell(rested) -> idle, anew | - | disarm -> idle, anew |
/// | closed | - | - | - |
///
/// In each cell: the action, then the state that follows; "-" changes nothing. "anew": the back-off begins
/// with its first wait again. "retry at once": if the attempt fails, the next one may begin at once, and the
/// back-off begins anew. "arm(old)": the timer is set for `oldAt`, when the oldest connection is to be
/// replaced; if that is never, the timer is stopped. "or arm": the timer has fired too early, so it is set
/// again.
///
/// In `ready`, `growing` and `pausing` the subchannel is READY: there is at least one connection. In
/// `growing` a further one is being made, because all connections are full (gRFC A105); `pausing` follows if
/// that attempt fails. All attempts of a subchannel share one back-off. Its waits become longer only after an
/// attempt that has failed, or whose connection was useless. The back-off begins anew after a connection that
/// has lasted.
///
/// "lessen": after a useless connection the back-off goes on; if the connection before it was useless, too,
/// arm(retry) -> pausing. In all other cases, tell(room). If a connection was useless during `growing`,
/// `pausing` follows instead of `ready`.
///
/// "lose": a connection is useless if it has answered no call and is lost before `retry`, the time at which the next
/// attempt would have begun if this one had failed. If earlier attempts of the back-off had failed or were useless,
/// too, fail(retry) -> failed: otherwise a server that ends each connection at once would be connected to without a
/// pause. In all other cases tell(gone) -> idle, or tell(goneUnused) -> idle if the connection has answered no call. After
/// one that has answered, the waits are short at first (`Backoff.afterUse`).
///
/// Connections that drain are in none of these states: they go on until their streams have ended, or until
/// `closeAll`.
public enum SubchannelState: Equatable, Sendable {
  case idle(Backoff)
  /// A connection is being made; the attempt is given up at `until`. If it fails, the next attempt begins at
  /// `retry` or later.
  case connecting(Backoff, until: UInt64, retry: UInt64)
  /// There are connections, the oldest of which is to be replaced at `oldAt`. A connection that ends before
  /// `retry` and has answered no call was useless, and the back-off goes on. `retry` is nil if the last
  /// attempt has failed, or its connection is known to be useless.
  case ready(Backoff, retry: UInt64?, oldAt: UInt64)
  /// There are connections, and a further one is being made, with `until` and `retry` as in `connecting`.
  /// `pauses`: one of the connections was useless meanwhile, so the next attempt has to wait even if this one
  /// succeeds.
  case growing(Backoff, until: UInt64, retry: UInt64, oldAt: UInt64, pauses: Bool)
  /// There are connections, and the next attempt to make a further one may begin at `retry`. Until then no
  /// connection is replaced because of its age.
  case pausing(Backoff, retry: UInt64, oldAt: UInt64)
  /// The last attempt has failed, and the next one may begin at `retry`. The state is TRANSIENT_FAILURE.
  case failed(Backoff, retry: UInt64)
  case closed

  public static var new: SubchannelState { .idle(Backoff()) }

  public var connectivity: Connectivity {
    switch self {
    case .idle: .idle
    case .connecting: .connecting
    case .ready, .growing, .pausing: .ready
    case .failed: .transientFailure
    case .closed: .shutdown
    }
  }

  /// How many attempts in a row have failed or have given a useless connection, and the earliest time of the
  /// next one; nil: the state is not `failed`.
  public var failures: (count: Int, retry: UInt64)? {
    switch self {
    case .failed(let backoff, let retry): (backoff.attempts, retry)
    case .idle, .connecting, .ready, .growing, .pausing, .closed: nil
    }
  }

  /// Whether the subchannel has connections and is making a further one.
  public var isGrowing: Bool {
    switch self {
    case .growing: true
    case .idle, .connecting, .ready, .pausing, .failed, .closed: false
    }
  }
}

public enum SubchannelEvent: Equatable, Sendable {
  /// The balancer wants a connection, by the time `until`. `random` is a random number for the wait after a
  /// failure.
  case wanted(until: UInt64, random: UInt64)
  /// The connection that was being made can be used now. It is to be replaced at `oldAt` (`UInt64.max`:
  /// never).
  case connected(oldAt: UInt64)
  /// The connection that was being made has ended, or could not be begun.
  case failed
  /// No connection of the subchannel can take a further call, and a call needs one. `until`: another
  /// connection may be made, by this time; nil: there are as many connections as allowed. `random` is a
  /// random number for the wait after a failure.
  case full(until: UInt64?, random: UInt64)
  /// A connection that was full can take a further call. The subchannel has asked for this event.
  case room
  /// One of several connections has ended, or takes no new streams and drains now. `answered`: whether it has
  /// answered a call.
  case lessened(answered: Bool)
  /// The last usable connection has ended, or takes no new streams. `answered`: whether it has answered a
  /// call.
  case lost(answered: Bool)
  /// The armed timer is due.
  case time
  /// The program has reset the back-off: it begins anew, and the next attempt may begin at once.
  case reset
  /// The balancer sends no calls to this subchannel for now. A wait after a failure goes on nevertheless:
  /// otherwise a balancer that changes between two addresses would avoid the waits.
  case unwanted
  /// The resolver no longer gives this address for the name.
  case removed
  case close
}

public enum SubchannelAction: Equatable, Sendable {
  /// Begins to make a connection, and sets the timer for `until`. If no connection can be begun, the event
  /// `failed` follows.
  case connect(until: UInt64)
  case arm(UInt64)
  /// Sets the timer for `until`, when the next attempt may begin, and tells the balancer `failed`.
  case fail(until: UInt64)
  case disarm
  /// Closes the connection that is being made; the event `failed` follows.
  case giveUp
  /// Closes the connection that is being made, and stops the timer; no event follows.
  case drop
  /// Asks the connections to report when they can take a further call.
  case ask
  /// Makes the connections drain: they take no new streams, and close when their streams have ended.
  case retire
  /// Tells the balancer this event about the endpoint.
  case tell(EndpointNews)
  /// Stops the timer, and closes every connection, also those that drain.
  case closeAll
}

extension SubchannelState {
  public mutating func handle(_ event: SubchannelEvent, _ policy: Backoff.Policy, now: UInt64)
    -> Actions<SubchannelAction>
  {
    switch (self, event) {
    case (.idle(var backoff), .wanted(let until, let random)):
      let retry = backoff.begin(policy, now: now, random: random)
      self = .connecting(backoff, until: until, retry: retry)
      return Actions(.connect(until: until))
    case (.idle, .reset):
      self = .new
      return .none
    case (.connecting(let backoff, _, let retry), .connected(let oldAt)):
      return use(backoff, retry, oldAt, .ready)
    case (.connecting(let backoff, _, let retry), .failed):
      return Actions(fail(backoff, max(retry, now)))
    case (.connecting(_, let until, _), .time), (.growing(_, let until, _, _, _), .time):
      return now < until ? Actions(.arm(until)) : Actions(.giveUp)
    case (.connecting(_, let until, _), .reset):
      self = .connecting(Backoff(), until: until, retry: now)
      return .none
    case (.connecting, .unwanted), (.connecting, .removed):
      self = .new
      return Actions(.drop)
    case (.ready(let backoff, let retry, let oldAt), .full(let until?, let random)):
      var next = backoff
      if let retry, retry <= now { next = Backoff() }
      let isBeside = retry != nil && next.attempts > 0
      let again =
        isBeside
        ? next.begin(beside: now, policy, random: random) : next.begin(policy, now: now, random: random)
      self = .growing(next, until: until, retry: again, oldAt: oldAt, pauses: false)
      return Actions(.ask, .connect(until: until))
    case (.ready, .full(nil, _)), (.growing, .full), (.pausing, .full):
      return Actions(.ask)
    case (.ready, .room), (.growing, .room), (.pausing, .room):
      return Actions(.tell(.room))
    case (.ready(let backoff, let retry, let oldAt), .lessened(let answered)):
      guard let retry, !answered, now < retry else { return Actions(.tell(.room)) }
      if backoff.attempts > 1 {
        return Actions(pause(backoff, retry, oldAt))
      }
      self = .ready(backoff, retry: nil, oldAt: oldAt)
      return Actions(.tell(.room))
    case (.ready(_, _, let oldAt), .time):
      if now < oldAt { return oldAt == .max ? .none : Actions(.arm(oldAt)) }
      self = .new
      return Actions(.retire, .tell(.gone))
    case (.ready(let backoff, let retry, _), .lost(let answered)):
      return Actions(.retire, lose(backoff, retry, answered, now))
    case (.ready(_, _, let oldAt), .reset):
      self = .ready(Backoff(), retry: now, oldAt: oldAt)
      return .none
    case (.ready, .unwanted), (.ready, .removed), (.pausing, .unwanted), (.pausing, .removed):
      self = .new
      return Actions(.disarm, .retire)
    case (.growing(let backoff, _, let retry, let oldAt, let pauses), .connected):
      if !pauses { return use(backoff, retry, oldAt, .room) }
      return Actions(pause(backoff, retry, oldAt), .tell(.room))
    case (.growing(let backoff, let until, let retry, let oldAt, let pauses), .lessened(let answered)):
      let isUseless = !answered && now < retry
      self = .growing(backoff, until: until, retry: retry, oldAt: oldAt, pauses: pauses || isUseless)
      return .none
    case (.growing(let backoff, _, let retry, let oldAt, _), .failed):
      return Actions(pause(backoff, max(retry, now), oldAt))
    case (.growing(let backoff, let until, let retry, _, _), .lost):
      self = .connecting(backoff, until: until, retry: retry)
      return Actions(.retire, .tell(.gone))
    case (.growing(_, let until, _, let oldAt, _), .reset):
      self = .growing(Backoff(), until: until, retry: now, oldAt: oldAt, pauses: false)
      return .none
    case (.growing, .unwanted), (.growing, .removed):
      self = .new
      return Actions(.drop, .retire)
    case (.pausing(let backoff, let retry, let oldAt), .time):
      if now < retry { return Actions(.arm(retry)) }
      return use(backoff, nil, oldAt, .room)
    case (.pausing(_, _, let oldAt), .reset):
      return use(Backoff(), now, oldAt, .room)
    case (.pausing(let backoff, let retry, _), .lost):
      return Actions(.retire, fail(backoff, max(retry, now)))
    case (.failed(let backoff, let retry), .time):
      if now < retry { return Actions(.arm(retry)) }
      self = .idle(backoff)
      return Actions(.tell(.rested))
    case (.failed, .reset):
      self = .new
      return Actions(.disarm, .tell(.rested))
    case (.failed, .removed):
      self = .new
      return Actions(.disarm)
    case (.idle, .close), (.connecting, .close), (.ready, .close), (.growing, .close), (.pausing, .close),
      (.failed, .close):
      self = .closed
      return Actions(.closeAll)
    case (.idle, .connected), (.idle, .failed), (.idle, .full), (.idle, .room), (.idle, .lessened),
      (.idle, .lost), (.idle, .time), (.idle, .unwanted), (.idle, .removed),
      (.connecting, .wanted), (.connecting, .full), (.connecting, .room), (.connecting, .lessened),
      (.connecting, .lost),
      (.ready, .wanted), (.ready, .connected), (.ready, .failed),
      (.growing, .wanted),
      (.pausing, .wanted), (.pausing, .connected), (.pausing, .failed), (.pausing, .lessened),
      (.failed, .wanted), (.failed, .connected), (.failed, .failed), (.failed, .full), (.failed, .room),
      (.failed, .lessened), (.failed, .lost), (.failed, .unwanted),
      (.closed, .wanted), (.closed, .connected), (.closed, .failed), (.closed, .full), (.closed, .room),
      (.closed, .lessened), (.closed, .lost), (.closed, .time), (.closed, .reset),
      (.closed, .unwanted), (.closed, .removed), (.closed, .close):
      return .none
    }
  }

  /// Becomes `ready`, because there is one more connection, or because a pause is over.
  private mutating func use(_ backoff: Backoff, _ retry: UInt64?, _ oldAt: UInt64, _ news: EndpointNews)
    -> Actions<SubchannelAction>
  {
    self = .ready(backoff, retry: retry, oldAt: oldAt)
    return Actions(oldAt == .max ? .disarm : .arm(oldAt), .tell(news))
  }

  private mutating func pause(_ backoff: Backoff, _ retry: UInt64, _ oldAt: UInt64) -> SubchannelAction {
    self = .pausing(backoff, retry: retry, oldAt: oldAt)
    return .arm(retry)
  }

  private mutating func fail(_ backoff: Backoff, _ retry: UInt64) -> SubchannelAction {
    self = .failed(backoff, retry: retry)
    return .fail(until: retry)
  }

  /// Decides what follows the loss of the last usable connection: a wait if the connections were useless,
  /// otherwise `idle`.
  private mutating func lose(_ backoff: Backoff, _ retry: UInt64?, _ answered: Bool, _ now: UInt64)
    -> SubchannelAction
  {
    if let retry, !answered, now < retry, backoff.attempts > 1 {
      return fail(backoff, retry)
    }
    if answered {
      self = .idle(.afterUse)
      return .tell(.gone)
    }
    self = now < retry ?? .max ? .idle(backoff) : .new
    return .tell(.goneUnused)
  }
}
