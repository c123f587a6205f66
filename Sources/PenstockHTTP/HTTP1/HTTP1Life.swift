/// The states of an HTTP/1.1 connection, which has at most one call at a time.
///
/// | | assigned | headGiven | requestSent | answered(keeps) | answered | left | over |
/// |---|---|---|---|---|---|---|---|
/// | idle | opening | - | - | - | - | - | closed |
/// | opening | - | sending | - | - | - | keep | closed |
/// | sending | - | - | receiving | close | close | close | closed |
/// | receiving | - | - | - | keep | close | close | closed |
/// | closed | - | - | - | - | - | - | - |
///
/// Each cell has the next state, or an action. After the action `keep` the state is `idle`, and after `close`
/// it is `closed`. A "-" changes nothing.
///
/// If an answer is complete before its request was sent, the connection closes. Otherwise the peer would take
/// the rest of the request for the next request.
public enum HTTP1Life: CaseIterable, Sendable {
  /// The connection has no call, and may get one.
  case idle
  /// A call has the connection, and nothing of its request was written yet.
  case opening
  /// The request is being sent. Its answer may have begun.
  case sending
  /// The kernel has accepted the whole request.
  case receiving
  case closed

  enum Event: Equatable, Sendable {
    case assigned
    /// The head of the request was added to the output.
    case headGiven
    case requestSent
    /// The answer is complete. `keeps`: whether the connection may be used again.
    case answered(keeps: Bool)
    /// The call has ended, and needs no more bytes.
    case left
    case over
  }

  enum Action: Equatable, Sendable {
    case nothing
    /// The connection is free for the next call.
    case keep
    case close
  }

  mutating func handle(_ event: Event) -> Action {
    switch (self, event) {
    case (.idle, .assigned): return become(.opening)
    case (.opening, .headGiven): return become(.sending)
    case (.sending, .requestSent): return become(.receiving)
    case (.opening, .left), (.receiving, .answered(keeps: true)): return become(.idle, .keep)
    case (.sending, .answered), (.sending, .left), (.receiving, .answered(keeps: false)), (.receiving, .left):
      return become(.closed, .close)
    case (.idle, .over), (.opening, .over), (.sending, .over), (.receiving, .over): return become(.closed)
    case (.idle, .headGiven), (.idle, .requestSent), (.idle, .answered), (.idle, .left),
      (.opening, .assigned), (.opening, .requestSent), (.opening, .answered),
      (.sending, .assigned), (.sending, .headGiven),
      (.receiving, .assigned), (.receiving, .headGiven), (.receiving, .requestSent),
      (.closed, .assigned), (.closed, .headGiven), (.closed, .requestSent), (.closed, .answered),
      (.closed, .left), (.closed, .over):
      return .nothing
    }
  }

  /// The present work of the connection, for the text of an error.
  var during: StaticString {
    switch self {
    case .idle, .opening: " without a request"
    case .sending: " while a request was sent"
    case .receiving: " before the answer was complete"
    case .closed: ""
    }
  }

  private mutating func become(_ next: HTTP1Life, _ action: Action = .nothing) -> Action {
    self = next
    return action
  }
}
