import PenstockWire

/// A part of an attempt's state: an event has no other effect than the next state.
protocol AttemptTable: StateTable where Action == Void {
  /// The cell of the table; nil: the event can't happen.
  func next(_ event: Event) -> Self?
}

extension AttemptTable {
  static var invariant: StaticString { "A1" }
  static var ignored: Void { () }

  mutating func apply(_ event: Event) -> Void? {
    guard let next = next(event) else { return nil }
    self = next
    return ()
  }
}

/// How far an attempt has come: whether it waits for a stream, or has one.
///
/// | | begins | gathered | opens | joins | unsent | fails | ends |
/// |---|---|---|---|---|---|---|---|
/// | new | waiting, or gathering | x | x | x | x | x | over |
/// | gathering | x | waiting | x | x | x | stopped | over |
/// | waiting | x | x | streaming | x | x | stopped | over |
/// | waiting, again | x | x | streaming, again | x | x | stopped | over |
/// | streaming | x | x | x | streaming, or in turns | waiting, again | - | over |
/// | streaming, again | x | x | x | streaming, again, or in turns | waiting, again | - | over |
/// | stopped | x | x | x | x | x | - | over |
/// | over | x | x | x | x | x | x | - |
///
/// In each cell: the next state; "-" changes nothing; "x" can't happen (A1).
enum AttemptLife: AttemptTable, Equatable, Sendable {
  /// The call has not started it.
  case new
  /// The framing can't make the headers before the call has given the whole request.
  case gathering
  /// It waits in the channel for a connection, or for a free stream on one. `isAgain`: it was *picked again*, because
  /// nothing of its request was written to an earlier stream.
  case waiting(isAgain: Bool)
  /// It has a stream, which may still wait for a connection. `takesTurns`: the call is bidi and the stream half-duplex,
  /// so no message may arrive before the call's half-close.
  case streaming(isAgain: Bool, takesTurns: Bool)
  /// It gets no stream any more. The call is told why at the end of the turn.
  case stopped
  /// It has no call any more.
  case over

  enum Event: Equatable, Sendable {
    /// The call starts it. `gathers`: the framing needs the whole request first.
    case begins(gathers: Bool)
    /// The whole request is known.
    case gathered
    /// It gets a stream.
    case opens
    /// The stream has got a connection after it was opened.
    case joins(takesTurns: Bool)
    /// The stream has ended, and nothing of the request was written to it.
    case unsent
    /// A status of our own will end the call.
    case fails
    /// The call has its status, or needs none.
    case ends
  }

  func next(_ event: Event) -> AttemptLife? {
    switch event {
    case .begins(let gathers):
      switch self {
      case .new: gathers ? .gathering : .waiting(isAgain: false)
      case .gathering, .waiting, .streaming, .stopped, .over: nil
      }
    case .gathered:
      switch self {
      case .gathering: .waiting(isAgain: false)
      case .new, .waiting, .streaming, .stopped, .over: nil
      }
    case .opens:
      switch self {
      case .waiting(let isAgain): .streaming(isAgain: isAgain, takesTurns: false)
      case .new, .gathering, .streaming, .stopped, .over: nil
      }
    case .joins(let takesTurns):
      switch self {
      case .streaming(let isAgain, _): .streaming(isAgain: isAgain, takesTurns: takesTurns)
      case .new, .gathering, .waiting, .stopped, .over: nil
      }
    case .unsent:
      switch self {
      case .streaming: .waiting(isAgain: true)
      case .new, .gathering, .waiting, .stopped, .over: nil
      }
    case .fails:
      switch self {
      case .gathering, .waiting: .stopped
      case .streaming, .stopped: self
      case .new, .over: nil
      }
    case .ends: .over
    }
  }

  /// Whether it has begun, has no stream, and may get one.
  var isWaiting: Bool {
    switch self {
    case .gathering, .waiting: true
    case .new, .streaming, .stopped, .over: false
    }
  }

  /// Whether the channel may give it a stream.
  var mayOpen: Bool {
    switch self {
    case .waiting: true
    case .new, .gathering, .streaming, .stopped, .over: false
    }
  }

  var isStreaming: Bool {
    switch self {
    case .streaming: true
    case .new, .gathering, .waiting, .stopped, .over: false
    }
  }

  var wasPickedAgain: Bool {
    switch self {
    case .waiting(let isAgain), .streaming(let isAgain, _): isAgain
    case .new, .gathering, .stopped, .over: false
    }
  }

  var takesTurns: Bool {
    switch self {
    case .streaming(_, let takesTurns): takesTurns
    case .new, .gathering, .waiting, .stopped, .over: false
    }
  }

  /// Whether it has a call.
  var hasCall: Bool {
    switch self {
    case .gathering, .waiting, .streaming, .stopped: true
    case .new, .over: false
    }
  }
}
