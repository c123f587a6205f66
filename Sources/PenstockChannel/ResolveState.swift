/// Decides when a name is looked up ("gRPC Name Resolution"). If addresses are wanted, the look-up begins at
/// once, but not before `least` has passed since the last one began. After a failure it begins again, with
/// back-off. If an interval is set, it also begins after each interval. No I/O, no clock.
///
/// | | ask | answered | failed | time | rest | reset |
/// |---|---|---|---|---|---|---|
/// | idle | start -> asking; too soon: arm -> waiting | - | - | - | - | - |
/// | asking | - | disarm -> idle, or arm -> waiting | arm -> waiting | arm; too late: arm, giveUp -> waiting | stop -> idle | - |
/// | waiting | start, or arm; failed: - | - | - | start -> asking, or arm | disarm -> idle | failed: start -> asking |
///
/// In each cell: the action, then the state that follows; "-" changes nothing. With "start" the timer is
/// armed for the timeout, and with "stop" it is disarmed. "failed": the state is waiting because of a
/// failure, and not because of the interval or `least`. "too soon": `least` has not passed. "or arm": the
/// timer has fired too early, so it is set again.
public struct ResolveState: Equatable {
  /// The settings of a channel for look-ups; times are in nanoseconds.
  public struct Policy: Equatable, Sendable {
    /// The least time between the beginnings of two look-ups.
    public var least: UInt64 = 30_000_000_000
    /// The time after which a name is looked up again even if no addresses are wanted; 0: never.
    public var interval: UInt64 = 0
    /// How long one look-up may take.
    public var timeout: UInt64 = 20_000_000_000
    public var backoff = Backoff.Policy()

    public init() {}
  }

  public enum Phase: Equatable {
    case idle
    case asking(until: UInt64, retry: UInt64)
    case waiting(until: UInt64)
  }

  public enum Event: Equatable {
    /// Addresses are wanted.
    case ask
    case answered
    case failed
    /// The timer that was set by `arm` has fired.
    case time
    /// The channel has become idle, so no addresses are wanted any more.
    case rest
    /// The program has reset the back-off: a wait after a failure ends, and the next look-up begins at once.
    case reset
  }

  public enum Action: Equatable {
    case start
    /// Ends the look-up, because no addresses are wanted any more.
    case stop
    /// Ends the look-up, because it has taken too long.
    case giveUp
    case arm(UInt64)
    case disarm
  }

  public private(set) var phase = Phase.idle
  private var backoff = Backoff()
  private var hasFailed: Bool { backoff.attempts > 0 }
  /// The earliest time at which the next look-up may begin.
  private var next: UInt64 = 0

  public init() {}

  public mutating func handle(_ event: Event, _ policy: Policy, now: UInt64, random: UInt64) -> Actions<
    Action
  > {
    switch (phase, event) {
    case (.idle, .ask):
      return now < next ? wait(until: next) : begin(policy, now, random)
    case (.asking, .answered):
      backoff = Backoff()
      if policy.interval > 0 { return wait(until: max(Time.after(policy.interval, now), next)) }
      phase = .idle
      return Actions(.disarm)
    case (.asking(_, let retry), .failed):
      next = max(retry, now)
      return wait(until: next)
    case (.asking(let until, let retry), .time):
      if now < until { return Actions(.arm(until)) }
      next = max(retry, now)
      phase = .waiting(until: next)
      return Actions(.arm(next), .giveUp)
    case (.asking, .rest):
      next = now
      phase = .idle
      return Actions(.stop, .disarm)
    case (.waiting(let until), .time):
      return now < until ? Actions(.arm(until)) : begin(policy, now, random)
    case (.waiting, .rest):
      if hasFailed {
        backoff = Backoff()
        next = now
      }
      phase = .idle
      return Actions(.disarm)
    case (.waiting(let until), .ask) where !hasFailed:
      // The state is waiting for the end of the interval, but addresses are wanted earlier.
      if now >= next { return begin(policy, now, random) }
      return next < until ? wait(until: next) : .none
    case (.waiting, .reset) where hasFailed:
      backoff = Backoff()
      return begin(policy, now, random)
    case (.idle, .answered), (.idle, .failed), (.idle, .time), (.idle, .rest), (.idle, .reset),
      (.asking, .ask), (.asking, .reset),
      (.waiting, .ask), (.waiting, .answered), (.waiting, .failed), (.waiting, .reset):
      return .none
    }
  }

  private mutating func begin(_ policy: Policy, _ now: UInt64, _ random: UInt64) -> Actions<Action> {
    next = Time.after(policy.least, now)
    let until = Time.after(policy.timeout, now)
    phase = .asking(until: until, retry: backoff.begin(policy.backoff, now: now, random: random))
    return Actions(.arm(until), .start)
  }

  private mutating func wait(until time: UInt64) -> Actions<Action> {
    phase = .waiting(until: time)
    return Actions(.arm(time))
  }
}
