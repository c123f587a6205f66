import PenstockWire

/// The states of the call of an HTTP/1.1 connection, which has at most one call at a time.
///
/// | | assigned | headGiven | bodyEnded | sentSome | sentAll | writeFailed |
/// |---|---|---|---|---|---|---|
/// | idle | opening | x | x | - | - | - |
/// | opening | x | unsent | x | - | - | - |
/// | unsent (1) | x | x | unsent, ended | dropCopies -> sending | x | - |
/// | sending (1) | x | x | sending, ended | - | (2) | deaf |
/// | receiving | x | x | x | - | - | deaf, sent |
/// | deaf | x | x | x | x | - | x |
/// | closed | x | x | x | x | x | x |
///
/// | | answered, keeps | answered | unwanted | over |
/// |---|---|---|---|---|
/// | idle | x | x | x | closed |
/// | opening | x | x | keep -> idle | closed |
/// | unsent | x | x | close -> closed | closed |
/// | sending (3) | close -> closed | close -> closed | close -> closed | closed |
/// | receiving | keep -> idle | close -> closed | close -> closed | closed |
/// | deaf | close -> closed | close -> closed | close -> closed | closed |
/// | closed | x | x | x | x |
///
/// In each cell: the action, if there is one, then the next state; "-" changes nothing; "x" can't happen (H1).
///
/// (1): `bodyEnded` can't happen twice. (2): receiving if the body has ended; otherwise "-". (3): if an answer is
/// complete before its request was sent, the connection closes. Otherwise the peer would take the rest of the
/// request for the next request.
public enum HTTP1Life: StateTable, Equatable, Sendable {
  /// The connection has no call, and may get one.
  case idle
  /// A call has the connection, and nothing of its request was written yet.
  case opening
  /// The kernel has accepted no byte of the request, whose head is in the output. The connection keeps copies of
  /// the body's pieces, so that another connection can send the request.
  case unsent(Body)
  /// The kernel has accepted bytes of the request. Its answer may have begun.
  case sending(Body)
  /// The kernel has accepted the whole request.
  case receiving
  /// A write has failed, so nothing more is written. The answer is still read. `wasSent`: the request was sent
  /// before, and only TLS had messages of its own to write.
  case deaf(wasSent: Bool)
  case closed

  /// The part of the body that is not in the output yet.
  public enum Body: CaseIterable, Sendable {
    case plain, chunked
    /// The whole body is in the output.
    case ended
  }

  public enum Event: Equatable, Sendable {
    case assigned
    /// The head of the request was added to the output.
    case headGiven(isChunked: Bool)
    /// The end of the body was added to the output.
    case bodyEnded
    /// The kernel has accepted bytes.
    case sentSome
    /// No bytes wait to be sent.
    case sentAll
    case writeFailed
    /// The answer is complete. `keeps`: whether the connection may be used again.
    case answered(keeps: Bool)
    /// The call needs no more bytes.
    case unwanted
    /// The connection is over.
    case over
  }

  public enum Action: Equatable, Sendable {
    case nothing
    /// The copies of the body's pieces are no longer needed.
    case dropCopies
    /// The connection is free for the next call.
    case keep
    case close
  }

  public static var invariant: StaticString { "H1" }
  public static var ignored: Action { .nothing }

  /// Carries out the cell of the table; nil: the event can't happen.
  public mutating func apply(_ event: Event) -> Action? {
    switch event {
    case .assigned:
      switch self {
      case .idle: become(.opening, .nothing)
      case .opening, .unsent, .sending, .receiving, .deaf, .closed: nil
      }
    case .headGiven(let isChunked):
      switch self {
      case .opening: become(.unsent(isChunked ? .chunked : .plain), .nothing)
      case .idle, .unsent, .sending, .receiving, .deaf, .closed: nil
      }
    case .bodyEnded:
      switch self {
      case .unsent(.plain), .unsent(.chunked): become(.unsent(.ended), .nothing)
      case .sending(.plain), .sending(.chunked): become(.sending(.ended), .nothing)
      case .idle, .opening, .unsent(.ended), .sending(.ended), .receiving, .deaf, .closed: nil
      }
    case .sentSome:
      switch self {
      case .unsent(let body): become(.sending(body), .dropCopies)
      case .idle, .opening, .sending, .receiving: .nothing
      case .deaf, .closed: nil
      }
    case .sentAll:
      switch self {
      case .sending(.ended): become(.receiving, .nothing)
      case .idle, .opening, .sending(.plain), .sending(.chunked), .receiving, .deaf: .nothing
      case .unsent, .closed: nil
      }
    case .writeFailed:
      switch self {
      case .sending: become(.deaf(wasSent: false), .nothing)
      case .receiving: become(.deaf(wasSent: true), .nothing)
      case .idle, .opening, .unsent: .nothing
      case .deaf, .closed: nil
      }
    case .answered(let keeps):
      switch self {
      case .receiving: keeps ? become(.idle, .keep) : become(.closed, .close)
      case .sending, .deaf: become(.closed, .close)
      case .idle, .opening, .unsent, .closed: nil
      }
    case .unwanted:
      switch self {
      case .opening: become(.idle, .keep)
      case .unsent, .sending, .receiving, .deaf: become(.closed, .close)
      case .idle, .closed: nil
      }
    case .over:
      switch self {
      case .idle, .opening, .unsent, .sending, .receiving, .deaf: become(.closed, .nothing)
      case .closed: nil
      }
    }
  }

  /// Whether the connection has a call.
  var hasCall: Bool {
    switch self {
    case .opening, .unsent, .sending, .receiving, .deaf: true
    case .idle, .closed: false
    }
  }

  /// Whether bytes from the peer can be those of an answer.
  var expectsAnswer: Bool {
    switch self {
    case .sending, .receiving, .deaf: true
    case .idle, .opening, .unsent, .closed: false
    }
  }

  var isUnsent: Bool {
    switch self {
    case .unsent: true
    case .idle, .opening, .sending, .receiving, .deaf, .closed: false
    }
  }

  var isDeaf: Bool {
    switch self {
    case .deaf: true
    case .idle, .opening, .unsent, .sending, .receiving, .closed: false
    }
  }

  /// The form of the body whose bytes may be added to the output; nil: none can be added.
  var body: Body? {
    switch self {
    case .unsent(let body), .sending(let body): body == .ended ? nil : body
    case .idle, .opening, .receiving, .deaf, .closed: nil
    }
  }

  /// The present activity, for error texts.
  var during: StaticString {
    switch self {
    case .idle, .opening: " without a request"
    case .unsent, .sending, .deaf(wasSent: false): " while a request was sent"
    case .receiving, .deaf(wasSent: true): " before the answer was complete"
    case .closed: ""
    }
  }
}
