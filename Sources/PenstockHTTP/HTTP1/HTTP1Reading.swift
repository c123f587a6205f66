import PenstockWire

/// When an HTTP/1.1 connection reads. It stops while its stream keeps a whole window of bytes that the owner has
/// not taken.
///
/// | | full | room | reads | peerEnds | hangsUp |
/// |---|---|---|---|---|---|
/// | flowing | watch -> paused | - | - | flowing, ended | unwatch -> unwatched, due |
/// | paused | x | schedule -> due | x | paused, ended | unwatch -> unwatched |
/// | due | x | - | flowing | due, ended | unwatch -> unwatched, due |
/// | unwatched | x | schedule -> unwatched, due | x | - | - |
/// | unwatched, due | unwatched | - | schedule | - | - |
///
/// In each cell: the action, if there is one, then the next state; "-" changes nothing; "x" can't happen (H1). Once
/// the peer has ended the connection, that stays so.
enum HTTP1Reading: StateTable, Equatable, Sendable {
  /// Bytes are read when the loop reports them.
  case flowing(peerHasEnded: Bool)
  /// The stream keeps a whole window of bytes.
  case paused(peerHasEnded: Bool)
  /// Reading was paused, and goes on in the next turn.
  case due(peerHasEnded: Bool)
  /// The connection has hung up. The loop would report that in each turn, so it does not watch the descriptor any
  /// more. `isDue`: the connection reads in each turn until there are no more bytes, and then closes. Otherwise the
  /// stream keeps a whole window of bytes.
  case unwatched(isDue: Bool)

  enum Event: CaseIterable, Sendable {
    /// The stream keeps a whole window of bytes.
    case full
    /// Enough of the window is free again, or the stream has gone.
    case room
    /// The connection begins to read.
    case reads
    /// The peer sends no more bytes after those that it has sent.
    case peerEnds
    /// The connection is over in both directions. It may still have bytes to read.
    case hangsUp
  }

  enum Action: Equatable, Sendable {
    case nothing
    /// The loop has to stop reporting bytes.
    case watch
    /// The loop has to report nothing.
    case unwatch
    /// The connection has to get a turn.
    case schedule
  }

  static var invariant: StaticString { "H1" }
  static var ignored: Action { .nothing }

  /// Carries out the cell of the table; nil: the event can't happen.
  mutating func apply(_ event: Event) -> Action? {
    switch event {
    case .full:
      switch self {
      case .flowing(let ended): become(.paused(peerHasEnded: ended), .watch)
      case .unwatched(isDue: true): become(.unwatched(isDue: false), .nothing)
      case .paused, .due, .unwatched(isDue: false): nil
      }
    case .room:
      switch self {
      case .paused(let ended): become(.due(peerHasEnded: ended), .schedule)
      case .unwatched(isDue: false): become(.unwatched(isDue: true), .schedule)
      case .flowing, .due, .unwatched(isDue: true): .nothing
      }
    case .reads:
      switch self {
      case .flowing: .nothing
      case .due(let ended): become(.flowing(peerHasEnded: ended), .nothing)
      case .unwatched(isDue: true): .schedule
      case .paused, .unwatched(isDue: false): nil
      }
    case .peerEnds:
      switch self {
      case .flowing: become(.flowing(peerHasEnded: true), .nothing)
      case .paused: become(.paused(peerHasEnded: true), .nothing)
      case .due: become(.due(peerHasEnded: true), .nothing)
      case .unwatched: .nothing
      }
    case .hangsUp:
      switch self {
      case .flowing, .due: become(.unwatched(isDue: true), .unwatch)
      case .paused: become(.unwatched(isDue: false), .unwatch)
      case .unwatched: .nothing
      }
    }
  }

  /// Whether nothing is read until the window has room.
  var isPaused: Bool {
    switch self {
    case .paused, .unwatched(isDue: false): true
    case .flowing, .due, .unwatched(isDue: true): false
    }
  }

  /// Whether the connection reads in its next turn, whatever the loop reports.
  var isDue: Bool {
    switch self {
    case .due, .unwatched(isDue: true): true
    case .flowing, .paused, .unwatched(isDue: false): false
    }
  }

  var isUnwatched: Bool {
    switch self {
    case .unwatched: true
    case .flowing, .paused, .due: false
    }
  }

  var peerHasEnded: Bool {
    switch self {
    case .flowing(let ended), .paused(let ended), .due(let ended): ended
    case .unwatched: true
    }
  }
}
