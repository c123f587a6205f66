import PenstockWire

/// How a stream has ended, independent of the HTTP version. The text in a case is for error messages.
public enum StreamEnd {
  /// The answer is complete. The stream's owner has received the trailers, or a head that was the whole
  /// answer.
  case trailers
  /// The body has ended, and there are no trailers.
  case body
  /// No byte of the request was written.
  case neverSent(ByteBuffer)
  /// Bytes of the request were written, but the peer has certainly not processed it.
  case unprocessed(ByteBuffer)
  /// As `unprocessed`: the peer has reset the stream because it takes no further one now (REFUSED_STREAM).
  case refused(ByteBuffer)
  /// The connection ended after a part of the request or all of it was written, and before any byte of an
  /// answer. The peer may have processed the request.
  case unanswered(ByteBuffer)
  /// In this case and the next three, the peer has reset the stream. The reasons are: the request was
  /// cancelled, too much traffic, a connection that is not secure enough, or another reason.
  case cancelled(ByteBuffer)
  case tooMuch(ByteBuffer)
  case insecure(ByteBuffer)
  case reset(ByteBuffer)
  /// The connection ended before the answer was complete.
  case lost(ByteBuffer)
  /// The peer has broken a rule of HTTP on this stream.
  case broken(ByteBuffer)
  /// The headers of the answer exceed our limit.
  case answerTooLarge(ByteBuffer)
  /// The headers of the request exceed the peer's limit.
  case requestTooLarge(size: UInt32, limit: UInt32)
  case noMemory

  /// Whether the peer or the network has ended the stream, and not a fault that was found here.
  public var isFromElsewhere: Bool {
    switch self {
    case .neverSent, .unprocessed, .refused, .unanswered, .cancelled, .tooMuch, .insecure, .reset, .lost: true
    case .trailers, .body, .broken, .answerTooLarge, .requestTooLarge, .noMemory: false
    }
  }

  /// Whether the peer has certainly not processed the request.
  public var isUnprocessed: Bool {
    switch self {
    case .neverSent, .unprocessed, .refused: return true
    case .trailers, .body, .unanswered, .cancelled, .tooMuch, .insecure, .reset, .lost, .broken,
      .answerTooLarge, .requestTooLarge, .noMemory:
      return false
    }
  }

  /// Whether the peer has ended its answer without an error.
  public var isComplete: Bool {
    switch self {
    case .trailers, .body: return true
    case .neverSent, .unprocessed, .refused, .unanswered, .cancelled, .tooMuch, .insecure, .reset, .lost,
      .broken,
      .answerTooLarge, .requestTooLarge, .noMemory:
      return false
    }
  }
}

/// The reason why the owner of a stream leaves it.
public enum Leave {
  /// The call has ended before the answer was complete. The rest of the request and of the answer is not
  /// needed.
  case cancelled
  /// The answer is complete. The rest of the request is not needed.
  case done
}
