import PenstockWire

/// How a stream has ended, independent of its protocol. The text of a case explains the end to people.
enum StreamEnd {
  /// The answer is complete: the stream's owner has got the trailers, or a head that was the whole answer.
  case trailers
  /// The body has ended, and no trailers will come.
  case body
  /// Nothing of the request was written.
  case neverSent(ByteBuffer)
  /// Some of the request was written, but the peer has certainly not processed it.
  case unprocessed(ByteBuffer)
  /// In this case and the next three the peer has reset the stream: because it cancelled the request, saw too much
  /// traffic, wants a safer connection, or had another reason.
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

/// The reason why the owner of a stream leaves it.
enum Leave {
  /// The call has ended before the answer was complete: the rest of the request and of the answer is of no
  /// use.
  case cancelled
  /// The answer is complete, and the rest of the request is of no use.
  case done
}
