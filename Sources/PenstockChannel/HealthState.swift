/// The decisions of a health check (gRFC A17). The channel opens a stream on its connection to an endpoint,
/// and the server reports on it whether it is serving. No I/O, no clock.
///
/// | | connected | serving | notServing | unimplemented |
/// |---|---|---|---|---|
/// | off | watch -> asking | - | - | - |
/// | asking | - | tell(ready) -> serving | tell(failed) -> refusing | tell(ready) -> unneeded |
/// | serving | - | - | tell(failed) -> refusing | -> unneeded |
/// | refusing | - | tell(ready) -> serving | - | tell(ready) -> unneeded |
/// | waiting | - | - | - | - |
/// | unneeded | - | - | - | - |
///
/// | | ended | time | reset | stop |
/// |---|---|---|---|---|
/// | off | - | - | - | - |
/// | asking | arm, tell(failed) -> waiting | - | - | cancel -> off |
/// | serving | watch, tell(gone) -> asking; too soon: arm, tell(failed) -> waiting | - | - | cancel -> off |
/// | refusing | watch -> asking; too soon: arm -> waiting | - | - | cancel -> off |
/// | waiting | - | watch -> asking, or arm | watch -> asking, anew | cancel -> off |
/// | unneeded | - | - | - | cancel -> off |
///
/// In each cell: the actions, then the state that follows; "-" changes nothing. An "or arm" belongs to a
/// timer that has fired before `retry`: the timer is set again. "too soon": the stream ended before `retry`,
/// the earliest time for the next stream after a stream without any report; and it was not the first stream
/// of its back-off. Such a stream is followed by a pause, because some servers end each stream at once.
/// "anew": the back-off begins with its first wait again, as it does after a stream that has lasted until
/// `retry`.
public enum HealthState: Equatable, Sendable {
  /// The endpoint has no connection, or the check is switched off.
  case off
  /// A stream was begun, and the server has not reported yet. If the stream ends, the next one begins at
  /// `retry` or later.
  case asking(Backoff, retry: UInt64)
  /// The server has reported its health on the stream. `serves`: it is serving (`serving` in the table), or
  /// it has reported anything else (`refusing`).
  case heard(serves: Bool, Backoff, retry: UInt64)
  /// The stream has ended, and the next one begins at `retry`.
  case waiting(Backoff, retry: UInt64)
  /// The server has no health service: it counts as serving as long as the connection lasts.
  case unneeded

  /// The connectivity of an endpoint that has a connection, as its health check sees it.
  public var connectivity: Connectivity {
    switch self {
    case .off, .asking: .connecting
    case .unneeded: .ready
    case .heard(let serves, _, _): serves ? .ready : .transientFailure
    case .waiting: .transientFailure
    }
  }
}

public enum HealthEvent: Equatable, Sendable {
  /// The endpoint has a connection. `random` is a random number for the wait after the stream.
  case connected(random: UInt64)
  /// The server has reported its health on the stream. `serves`: it is serving, or it has reported anything
  /// else ("notServing" in the table).
  case heard(serves: Bool)
  /// The server has no health service.
  case unimplemented
  /// The stream has ended, but not because the server has no health service.
  case ended(random: UInt64)
  /// The armed timer is due.
  case time(random: UInt64)
  /// The program has reset the back-off, so the next stream may begin at once.
  case reset(random: UInt64)
  /// The connection is lost or takes no new streams, or the program has switched the check off.
  case stop
}

public enum HealthAction: Equatable, Sendable {
  /// Begins a stream.
  case watch
  /// Ends the stream and stops the timer.
  case cancel
  case arm(UInt64)
  /// Tells the balancer this event about the endpoint.
  case tell(EndpointNews)
}

extension HealthState {
  public mutating func handle(_ event: HealthEvent, _ policy: Backoff.Policy, now: UInt64)
    -> Actions<HealthAction>
  {
    switch (self, event) {
    case (.off, .connected(let random)):
      return watch(Backoff(), policy, now, random)
    case (.asking(let backoff, let retry), .heard(let serves)):
      self = .heard(serves: serves, backoff, retry: retry)
      return Actions(.tell(serves ? .ready : .failed))
    case (.heard(let served, let backoff, let retry), .heard(let serves)):
      self = .heard(serves: serves, backoff, retry: retry)
      return served == serves ? .none : Actions(.tell(serves ? .ready : .failed))
    case (.asking, .unimplemented), (.heard(false, _, _), .unimplemented):
      self = .unneeded
      return Actions(.tell(.ready))
    case (.heard(true, _, _), .unimplemented):
      self = .unneeded
      return .none
    case (.asking(let backoff, let retry), .ended):
      self = .waiting(backoff, retry: max(retry, now))
      return Actions(.arm(max(retry, now)), .tell(.failed))
    case (.heard(let served, let backoff, let retry), .ended(let random)):
      if now < retry, backoff.attempts > 1 {
        self = .waiting(backoff, retry: retry)
        return Actions(.arm(retry), served ? .tell(.failed) : nil)
      }
      _ = watch(now < retry ? backoff : Backoff(), policy, now, random)
      return Actions(.watch, served ? .tell(.gone) : nil)
    case (.waiting(let backoff, let retry), .time(let random)):
      return now < retry ? Actions(.arm(retry)) : watch(backoff, policy, now, random)
    case (.waiting, .reset(let random)):
      return watch(Backoff(), policy, now, random)
    case (.asking, .stop), (.heard, .stop), (.waiting, .stop), (.unneeded, .stop):
      self = .off
      return Actions(.cancel)
    case (.off, .heard), (.off, .unimplemented), (.off, .ended), (.off, .time), (.off, .reset), (.off, .stop),
      (.asking, .connected), (.asking, .time), (.asking, .reset),
      (.heard, .connected), (.heard, .time), (.heard, .reset),
      (.waiting, .connected), (.waiting, .heard), (.waiting, .unimplemented), (.waiting, .ended),
      (.unneeded, .connected), (.unneeded, .heard), (.unneeded, .unimplemented), (.unneeded, .ended),
      (.unneeded, .time), (.unneeded, .reset):
      return .none
    }
  }

  private mutating func watch(_ backoff: Backoff, _ policy: Backoff.Policy, _ now: UInt64, _ random: UInt64)
    -> Actions<HealthAction>
  {
    var backoff = backoff
    let retry = backoff.begin(policy, now: now, random: random)
    self = .asking(backoff, retry: retry)
    return Actions(.watch)
  }
}
