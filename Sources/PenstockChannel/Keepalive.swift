/// Decides when a connection is pinged, and when it is dead (gRFC A8). No I/O, no clock.
///
/// | | opened | time | tooMany | ended |
/// |---|---|---|---|---|
/// | asleep | look | - | slow | -> over |
/// | listening | - | look | slow | disarm -> over |
/// | pinged(t), heard since t | - | look | slow | disarm -> over |
/// | pinged(t), silent since t | - | before t + timeout: arm; from then on: die -> over | slow | disarm -> over |
/// | over | - | - | - | - |
///
/// | look | |
/// |---|---|
/// | it has no calls, and `withoutCalls` is not set | -> asleep |
/// | heard within the interval | arm -> listening |
/// | silent for the interval | ping, arm -> pinged(now); while an earlier PING has no answer: arm -> pinged(now) |
///
/// Each cell has the action, then the state that follows; "-" changes nothing. "look" stands for the first
/// line of the second table whose condition holds.
///
/// Received bytes are no event here: a connection stores the time of each read, and passes it with the events
/// of this table (`KeepaliveView`). So keepalive adds only this store to a read, and nothing to a call while
/// the timer runs.
public struct Keepalive: Equatable {
  public enum State: Equatable {
    /// No timer runs, because the connection had no calls when keepalive last looked. The next call causes
    /// the event `opened`.
    case asleep
    /// The timer is set for the time at which `interval` will have passed since the last received byte.
    case listening
    /// A PING was due at this time. It was sent then, unless an earlier PING had no answer yet.
    case pinged(at: UInt64)
    case over
  }

  public private(set) var state = State.asleep
  /// How long no byte may come from the peer before the connection is pinged, in nanoseconds.
  public private(set) var interval: UInt64
  /// How long no byte may come from the peer after a PING before the connection counts as dead, in
  /// nanoseconds.
  public let timeout: UInt64
  /// Whether a connection without calls is pinged too.
  public let withoutCalls: Bool

  public init(interval: UInt64, timeout: UInt64, withoutCalls: Bool) {
    self.interval = interval
    self.timeout = timeout
    self.withoutCalls = withoutCalls
  }

  /// Lengthens the interval for later connections, because a peer has complained of too many pings. The
  /// channel calls this on the copy with which later connections begin.
  public mutating func slow(to interval: UInt64) { self.interval = max(self.interval, interval) }
}

/// The facts about a connection by which keepalive decides.
public struct KeepaliveView: Equatable {
  /// When a byte last came from the peer, in monotonic nanoseconds.
  public var heard: UInt64
  public var hasCalls: Bool
  /// Whether the last PING has been acknowledged; true before there was one.
  public var isAnswered: Bool

  public init(heard: UInt64, hasCalls: Bool, isAnswered: Bool) {
    self.heard = heard
    self.hasCalls = hasCalls
    self.isAnswered = isAnswered
  }
}

public enum KeepaliveEvent: Equatable {
  /// The connection has become ready, or has got a further stream.
  case opened(KeepaliveView)
  /// The armed timer is due.
  case time(KeepaliveView)
  /// The peer has complained of too many pings, by GOAWAY with ENHANCE_YOUR_CALM and "too_many_pings".
  case tooMany
  /// The connection has ended.
  case ended
}

public enum KeepaliveAction: Equatable {
  case ping
  case arm(UInt64)
  case disarm
  /// Later connections of the channel are to use at least this interval, in nanoseconds.
  case slow(to: UInt64)
  /// The connection is dead.
  case die
}

extension Keepalive {
  public mutating func handle(_ event: KeepaliveEvent, now: UInt64) -> Actions<KeepaliveAction> {
    switch (state, event) {
    case (.asleep, .opened(let view)), (.listening, .time(let view)):
      return look(view, now)
    case (.pinged(let at), .time(let view)):
      if view.heard >= at { return look(view, now) }
      let end = Keepalive.after(at, timeout)
      if now < end { return Actions(.arm(end)) }
      state = .over
      return Actions(.die)
    case (.asleep, .tooMany), (.listening, .tooMany), (.pinged, .tooMany):
      interval = Keepalive.after(interval, interval)
      return Actions(.slow(to: interval))
    case (.asleep, .ended):
      state = .over
      return .none
    case (.listening, .ended), (.pinged, .ended):
      state = .over
      return Actions(.disarm)
    case (.asleep, .time), (.listening, .opened), (.pinged, .opened),
      (.over, .opened), (.over, .time), (.over, .tooMany), (.over, .ended):
      return .none
    }
  }

  private mutating func look(_ view: KeepaliveView, _ now: UInt64) -> Actions<KeepaliveAction> {
    if !view.hasCalls && !withoutCalls {
      state = .asleep
      return .none
    }
    let due = Keepalive.after(view.heard, interval)
    if now < due {
      state = .listening
      return Actions(.arm(due))
    }
    state = .pinged(at: now)
    // If the interval is shorter than the timeout, the timer is set for the end of the interval: the answer
    // may have come by then, and the next PING is due one interval after that answer.
    let arm = KeepaliveAction.arm(Keepalive.after(now, min(interval, timeout)))
    return view.isAnswered ? Actions(.ping, arm) : Actions(arm)
  }

  private static func after(_ time: UInt64, _ span: UInt64) -> UInt64 {
    let (sum, overflow) = time.addingReportingOverflow(span)
    return overflow ? .max : sum
  }
}
