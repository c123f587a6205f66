/// The decisions of a subchannel on the events that happen to it. No I/O, no clock.
///
/// | | wanted(until) | connected | full | room | draining | ended | time | close |
/// |---|---|---|---|---|---|---|---|---|
/// | idle | connect(until) -> connecting | - | - | - | - | - | - | closeAll -> closed |
/// | connecting | - | disarm, tell(ready) -> ready | - | - | - | disarm, tell(failed) -> idle | giveUp/arm | closeAll -> closed |
/// | ready | - | - | ask | tell(room) | retire, tell(left) -> idle | tell(left) -> idle | - | closeAll -> closed |
/// | closed | - | - | - | - | - | - | - | - |
///
/// Each cell has the actions, then the state that follows; "-" changes nothing. Connections that drain go on beside
/// all of it until they are done, or `closeAll`.
public enum SubchannelState: Equatable {
  case idle
  case connecting(until: UInt64)
  case ready
  case closed
}

public enum SubchannelEvent: Equatable {
  /// A connection is wanted by this time.
  case wanted(until: UInt64)
  /// The connection that is being made can be used.
  case connected
  /// A call has found no slot on the connection in use.
  case full
  /// A slot that was asked for has come free on the connection in use.
  case room
  /// The connection in use takes no new streams.
  case draining
  /// The connection that is being made, or the one in use, has ended; or none could be begun.
  case ended
  /// The armed timer is due.
  case time
  case close
}

public enum SubchannelAction: Equatable {
  /// Begins a connection, and arms the timer; a connection that can't be begun counts as ended.
  case connect(until: UInt64)
  case arm(UInt64)
  case disarm
  /// Closes the connection that is being made, so that it ends.
  case giveUp
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
  public mutating func handle(_ event: SubchannelEvent, now: UInt64) -> Actions<SubchannelAction> {
    switch (self, event) {
    case (.idle, .wanted(let until)):
      self = .connecting(until: until)
      return Actions(.connect(until: until))
    case (.connecting, .connected):
      self = .ready
      return Actions(.disarm, .tell(.ready))
    case (.connecting, .ended):
      self = .idle
      return Actions(.disarm, .tell(.failed))
    case (.connecting(let until), .time):
      return now < until ? Actions(.arm(until)) : Actions(.giveUp)
    case (.ready, .full):
      return Actions(.ask)
    case (.ready, .room):
      return Actions(.tell(.room))
    case (.ready, .draining):
      self = .idle
      return Actions(.retire, .tell(.left))
    case (.ready, .ended):
      self = .idle
      return Actions(.tell(.left))
    case (.idle, .close), (.connecting, .close), (.ready, .close):
      self = .closed
      return Actions(.closeAll)
    case (.idle, .connected), (.idle, .full), (.idle, .room), (.idle, .draining), (.idle, .ended),
      (.idle, .time),
      (.connecting, .wanted), (.connecting, .full), (.connecting, .room), (.connecting, .draining),
      (.ready, .wanted), (.ready, .connected), (.ready, .time),
      (.closed, .wanted), (.closed, .connected), (.closed, .full), (.closed, .room), (.closed, .draining),
      (.closed, .ended), (.closed, .time), (.closed, .close):
      return .none
    }
  }
}
