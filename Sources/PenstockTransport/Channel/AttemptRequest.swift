/// How much of the request the call has given, and the framing has framed. The pieces of its body are kept in the
/// attempt until there is a stream, and from then on in the stream (A3).
///
/// | | halfCloses(isPacking) | halfCloses | packed |
/// |---|---|---|---|
/// | open | closing | whole | x |
/// | closing | x | x | whole |
/// | whole | x | x | x |
///
/// In each cell: the next state; "x" can't happen (A1).
enum AttemptRequest: AttemptTable, Equatable, Sendable {
  /// The call may send more.
  case open
  /// The call has half-closed, and the framing still packs a large message.
  case closing
  /// All messages are framed, and nothing comes behind them.
  case whole

  enum Event: Equatable, Sendable {
    /// The call half-closes. `isPacking`: the framing still packs a message.
    case halfCloses(isPacking: Bool)
    /// The framing has packed all messages, and the call has half-closed before.
    case packed
  }

  func next(_ event: Event) -> AttemptRequest? {
    switch event {
    case .halfCloses(let isPacking):
      switch self {
      case .open: isPacking ? .closing : .whole
      case .closing, .whole: nil
      }
    case .packed:
      switch self {
      case .closing: .whole
      case .open, .whole: nil
      }
    }
  }
}
