/// The decisions of a subchannel on the events that happen to it. No I/O, no clock.
///
/// | | wanted(until) | connected | ended | time | close |
/// |---|---|---|---|---|---|
/// | idle | connect(until) -> connecting | - | - | - | closeAll -> closed |
/// | connecting | - | arm(old), tell(ready) -> ready | fail(retry) -> failed | giveUp, or arm | closeAll -> closed |
/// | ready | - | - | lose: -> idle, or failed | retire, tell(left) -> idle, or arm | closeAll -> closed |
/// | failed | - | - | - | tell(rested) -> idle, or arm | closeAll -> closed |
/// | closed | - | - | - | - | - |
///
/// | | full | room | draining | reset | unwanted | removed |
/// |---|---|---|---|---|---|---|
/// | idle | - | - | - | -> idle, anew | - | - |
/// | connecting | - | - | - | retry at once | drop -> idle | drop -> idle |
/// | ready | ask | tell(room) | retire, lose | anew | disarm, retire -> idle | disarm, retire -> idle |
/// | failed | - | - | - | disarm, tell(rested) -> idle, anew | - | disarm -> idle, anew |
/// | closed | - | - | - | - | - | - |
///
/// In each cell: the action, then the state that follows; "-" changes nothing. "anew": the back-off begins with its
/// first wait again. "retry at once": if the attempt fails, the next one may begin at once, and the back-off begins
/// anew. "arm(old)": for the time at which the connection is old; without such a time, disarm.
///
/// "lose": a connection is useless if it has answered no call and is lost before `retry`, the time at which the next
/// attempt would have begun if this one had failed. If earlier attempts of the back-off had failed or were useless,
/// too, fail(retry) -> failed: otherwise a server that ends each connection at once would be connected to without a
/// pause. In all other cases tell(left) -> idle, or tell(leftUnused) -> idle if the connection has answered no call.
///
/// Connections that drain are in none of these states: they go on until their streams have ended, or until
/// `closeAll`.
public enum SubchannelState: Equatable, Sendable {
  case idle(Backoff)
  /// A connection is being made, until a time. If it fails, the next attempt begins at `retry` or later.
  case connecting(Backoff, until: UInt64, retry: UInt64)
  /// There is a connection, which is to be replaced at `oldAt`. If it turns out to be useless, the back-off goes on, and
  /// the next attempt may begin at `retry`.
  case ready(Backoff, retry: UInt64, oldAt: UInt64)
  /// The last attempt failed, and the next one may begin at `retry` (TRANSIENT_FAILURE).
  case failed(Backoff, retry: UInt64)
  case closed

  public static var new: SubchannelState { .idle(Backoff()) }

  public var connectivity: Connectivity {
    switch self {
    case .idle: .idle
    case .connecting: .connecting
    case .ready: .ready
    case .failed: .transientFailure
    case .closed: .shutdown
    }
  }

  /// How many attempts have failed, or have given a useless connection, one after the other, and the earliest time of
  /// the next; nil: the state is not `failed`.
  public var failures: (count: Int, retry: UInt64)? {
    switch self {
    case .failed(let backoff, let retry): (backoff.attempts, retry)
    case .idle, .connecting, .ready, .closed: nil
    }
  }
}

public enum SubchannelEvent: Equatable, Sendable {
  /// A connection is wanted by this time. `random`: a random number for the wait after a failure.
  case wanted(until: UInt64, random: UInt64)
  /// The connection that is being made can be used, until a time; `UInt64.max`: as long as it lives.
  case connected(oldAt: UInt64)
  /// A call has found no slot on the connection in use. (Here another connection may be opened one day.)
  case full
  /// A slot that was asked for has come free on the connection in use.
  case room
  /// The connection in use takes no new streams. `answered`: whether it has answered a call.
  case draining(answered: Bool)
  /// The connection that is being made, or the one in use, has ended, or no connection could be begun.
  case ended(answered: Bool)
  /// The armed timer is due.
  case time
  /// Begins the back-off anew: the next attempt may begin at once.
  case reset
  /// For now no new call will come to this subchannel. If it waits after a failure, it goes on to wait, so that the wait
  /// can't be avoided by going to and fro between two addresses.
  case unwanted
  /// The name does not have the address any more.
  case removed
  case close
}

public enum SubchannelAction: Equatable, Sendable {
  /// Begins a connection, and arms the timer for `until`. If no connection can be begun, the event `ended` follows.
  case connect(until: UInt64)
  case arm(UInt64)
  /// Arms the timer for `until`, when the next attempt may begin, and tells the balancer `failed`.
  case fail(until: UInt64)
  case disarm
  /// Closes the connection that is being made, so that it ends.
  case giveUp
  /// Ends the connection that is being made, and the timer; no event follows from it.
  case drop
  /// Asks the connection in use to tell of a slot that comes free.
  case ask
  /// Lets the connection in use drain: it takes no new streams, and closes when its streams have ended.
  case retire
  /// Tells the balancer the news.
  case tell(EndpointNews)
  /// Ends the timer, and every connection.
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
      self = .ready(backoff, retry: retry, oldAt: oldAt)
      return Actions(oldAt == .max ? .disarm : .arm(oldAt), .tell(.ready))
    case (.connecting(let backoff, _, let retry), .ended):
      self = .failed(backoff, retry: max(retry, now))
      return Actions(.fail(until: max(retry, now)))
    case (.connecting(_, let until, _), .time):
      return now < until ? Actions(.arm(until)) : Actions(.giveUp)
    case (.connecting(_, let until, _), .reset):
      self = .connecting(Backoff(), until: until, retry: now)
      return .none
    case (.connecting, .unwanted), (.connecting, .removed):
      self = .new
      return Actions(.drop)
    case (.ready, .full):
      return Actions(.ask)
    case (.ready, .room):
      return Actions(.tell(.room))
    case (.ready(_, _, let oldAt), .time):
      if now < oldAt { return oldAt == .max ? .none : Actions(.arm(oldAt)) }
      self = .new
      return Actions(.retire, .tell(.left))
    case (.ready(let backoff, let retry, _), .draining(let answered)):
      return Actions(.retire, lose(backoff, retry, answered, now))
    case (.ready(let backoff, let retry, _), .ended(let answered)):
      return Actions(lose(backoff, retry, answered, now))
    case (.ready(_, _, let oldAt), .reset):
      self = .ready(Backoff(), retry: now, oldAt: oldAt)
      return .none
    case (.ready, .unwanted), (.ready, .removed):
      self = .new
      return Actions(.disarm, .retire)
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
    case (.idle, .close), (.connecting, .close), (.ready, .close), (.failed, .close):
      self = .closed
      return Actions(.closeAll)
    case (.idle, .connected), (.idle, .full), (.idle, .room), (.idle, .draining), (.idle, .ended),
      (.idle, .time), (.idle, .unwanted), (.idle, .removed),
      (.connecting, .wanted), (.connecting, .full), (.connecting, .room), (.connecting, .draining),
      (.ready, .wanted), (.ready, .connected),
      (.failed, .wanted), (.failed, .connected), (.failed, .full), (.failed, .room), (.failed, .draining),
      (.failed, .ended), (.failed, .unwanted),
      (.closed, .wanted), (.closed, .connected), (.closed, .full), (.closed, .room), (.closed, .draining),
      (.closed, .ended), (.closed, .time), (.closed, .reset), (.closed, .unwanted), (.closed, .removed),
      (.closed, .close):
      return .none
    }
  }

  /// The connection in use is lost.
  private mutating func lose(_ backoff: Backoff, _ retry: UInt64, _ answered: Bool, _ now: UInt64)
    -> SubchannelAction
  {
    let isUseless = !answered && now < retry
    if isUseless, backoff.attempts > 1 {
      self = .failed(backoff, retry: retry)
      return .fail(until: retry)
    }
    self = isUseless ? .idle(backoff) : .new
    return .tell(answered ? .left : .leftUnused)
  }
}
