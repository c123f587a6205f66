import PenstockWire

/// How a stream has ended, independent of its protocol; the explanation is in words for people.
enum StreamEnd {
  /// The answer is complete: the stream's owner has got the trailers, or a head that was the whole answer.
  case trailers
  /// The body has ended, and no trailers will come.
  case body
  /// Nothing of the request was written.
  case neverSent(ByteBuffer)
  /// Some of the request was written, but the peer has certainly not processed it.
  case unprocessed(ByteBuffer)
  /// The peer has reset the stream: it cancelled the request, it saw too much traffic, it wants a safer connection, or
  /// it had another reason.
  case cancelled(ByteBuffer)
  case tooMuch(ByteBuffer)
  case insecure(ByteBuffer)
  case reset(ByteBuffer)
  /// The connection ended before the answer was complete.
  case lost(ByteBuffer)
  /// The peer broke a rule of the protocol on this stream.
  case broken(ByteBuffer)
  /// The headers of the answer are over our limit.
  case answerTooLarge(ByteBuffer)
  /// The headers of the request are over the peer's limit.
  case requestTooLarge(size: UInt32, limit: UInt32)
  case noMemory
}

/// The reason why its owner leaves a stream.
enum Leave {
  /// The call was cancelled: bytes that may still come are of no use.
  case cancelled
  /// The answer is complete, and the rest of the request is of no use.
  case done
}
