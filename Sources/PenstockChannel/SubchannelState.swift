/// The decisions of a subchannel on the events that happen to it. No I/O, no clock.
///
/// | | wanted(until) | connected | ended | time | close |
/// |---|---|---|---|---|---|
/// | idle | connect(until) -> connecting | - | - | - | closeAll -> closed |
/// | connecting | - | disarm, tell(ready) -> ready | arm(retry), tell(failed) -> failed | giveUp/arm | closeAll -> closed |
/// | ready | - | - | tell(left) -> idle | - | closeAll -> closed |
/// | failed | - | - | - | tell(rested) -> idle, or arm | closeAll -> closed |
/// | closed | - | - | - | - | - |
///
/// | | full | room | draining | reset | unwanted |
/// |---|---|---|---|---|---|
/// | idle | - | - | - | -> idle, anew | - |
/// | connecting | - | - | - | retry at once | drop -> idle |
/// | ready | ask | tell(room) | retire, tell(left) -> idle | - | retire -> idle |
/// | failed | - | - | - | disarm, tell(rested) -> idle, anew | disarm -> idle, anew |
/// | closed | - | - | - | - | - |
///
/// In each cell: the action, then the state that follows; "-" changes nothing. "Anew": its back-off begins with the
/// first wait. Connections that drain go on beside all of it until they are done, or `closeAll`.
public enum SubchannelState: Equatable, Sendable {
  case idle(Backoff)
  /// A connection is being made, until a time. If it fails, the next attempt begins at `retry` or later.
  case connecting(Backoff, until: UInt64, retry: UInt64)
  case ready
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

  /// How many attempts have failed one after the other, and the time of the next.
  public var failures: (count: Int, retry: UInt64)? {
    switch self {
    case .failed(let backoff, let retry): (backoff.attempts, retry)
    case .idle, .connecting, .ready, .closed: nil
    }
  }
}

public enum SubchannelEvent: Equatable, Sendable {
  /// A connection is wanted by this time. `random`: for the wait after a failure.
  case wanted(until: UInt64, random: UInt64)
  /// The connection that is being made can be used.
  case connected
  /// A call has found no slot on the connection in use. (Here another connection may be opened one day.)
  case full
  /// A slot that was asked for has come free there.
  case room
  /// The connection in use takes no new streams.
  case draining
  /// The connection that is being made, or the one in use, has ended; or none could be begun.
  case ended
  /// The armed timer is due.
  case time
  /// Waits for nothing any more: the next attempt may begin at once.
  case reset
  /// No new call will come here.
  case unwanted
  case close
}

public enum SubchannelAction: Equatable, Sendable {
  /// Begins a connection, and arms the time; a connection that can't be begun has ended.
  case connect(until: UInt64)
  case arm(UInt64)
  case disarm
  /// Closes the connection that is being made, so that it ends.
  case giveUp
  /// Ends the connection that is being made, and the timer; no event follows from it.
  case drop
  /// Asks the connection in use to tell of a slot that comes free.
  case ask
  /// Puts the connection in use aside, until its streams have ended.
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
    case (.connecting, .connected):
      self = .ready
      return Actions(.disarm, .tell(.ready))
    case (.connecting(let backoff, _, let retry), .ended):
      self = .failed(backoff, retry: max(retry, now))
      return Actions(.arm(max(retry, now)), .tell(.failed))
    case (.connecting(_, let until, _), .time):
      return now < until ? Actions(.arm(until)) : Actions(.giveUp)
    case (.connecting(_, let until, _), .reset):
      self = .connecting(Backoff(), until: until, retry: now)
      return .none
    case (.connecting, .unwanted):
      self = .new
      return Actions(.drop)
    case (.ready, .full):
      return Actions(.ask)
    case (.ready, .room):
      return Actions(.tell(.room))
    case (.ready, .draining):
      self = .new
      return Actions(.retire, .tell(.left))
    case (.ready, .ended):
      self = .new
      return Actions(.tell(.left))
    case (.ready, .unwanted):
      self = .new
      return Actions(.retire)
    case (.failed(let backoff, let retry), .time):
      if now < retry { return Actions(.arm(retry)) }
      self = .idle(backoff)
      return Actions(.tell(.rested))
    case (.failed, .reset):
      self = .new
      return Actions(.disarm, .tell(.rested))
    case (.failed, .unwanted):
      self = .new
      return Actions(.disarm)
    case (.idle, .close), (.connecting, .close), (.ready, .close), (.failed, .close):
      self = .closed
      return Actions(.closeAll)
    case (.idle, .connected), (.idle, .full), (.idle, .room), (.idle, .draining), (.idle, .ended),
      (.idle, .time), (.idle, .unwanted),
      (.connecting, .wanted), (.connecting, .full), (.connecting, .room), (.connecting, .draining),
      (.ready, .wanted), (.ready, .connected), (.ready, .time), (.ready, .reset),
      (.failed, .wanted), (.failed, .connected), (.failed, .full), (.failed, .room), (.failed, .draining),
      (.failed, .ended),
      (.closed, .wanted), (.closed, .connected), (.closed, .full), (.closed, .room), (.closed, .draining),
      (.closed, .ended), (.closed, .time), (.closed, .reset), (.closed, .unwanted), (.closed, .close):
      return .none
    }
  }
}
