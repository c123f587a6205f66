import PenstockCall
import PenstockWire

/// The layer above a stream. Its functions are called on the driving thread, and never from within a verb of the
/// stream. `streamSends` and `streamReceives` are called in the middle of the stream's work, and must only record.
///
/// It is a class and not a protocol, so that it can be borrowed without counting a reference. It inherits from
/// `CallBelow` because an attempt is both, and a class has only one base; a stream uses nothing of `CallBelow`.
class StreamOwner: CallBelow {
  /// Called when the stream is about to open: the owner adds the header list to `fields`, and sets
  /// `isDuplex`. False: there is no memory, and the stream ends.
  func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool { false }
  /// Called when the headers or a part of the body were handed to the connection's output. True: the owner
  /// wants `streamChanged` later. Must only record.
  func streamSends() -> Bool { false }
  /// The head of the final response, valid until this returns. Must only record.
  func streamReceives(head: HeaderBlock, endsStream: Bool) {}
  /// The trailers, valid until this returns. Must only record.
  func streamReceives(trailers: HeaderBlock) {}
  /// The space into which the next bytes of the body may be put before `streamReceives` gets them; nil: there is
  /// none.
  func streamSpace() -> UnsafeMutableRawBufferPointer? { nil }
  /// Called when bytes of the body have come. The owner takes as many as it wants now, and returns their
  /// number; the stream keeps the rest. Must only record.
  func streamReceives(_ bytes: ByteView) -> Int { 0 }
  /// Called when `body`, `end` or `piecesSent` has changed since the last call. The owner looks at all three.
  func streamChanged(_ stream: TransportStream) {}
}

/// One request and its answer on a connection. An attempt uses only this class to send and receive, and so is
/// independent of the protocol. A stream keeps the received bytes until the owner takes them, and the bytes
/// to be sent until the connection takes them. The subclass of a protocol moves the bytes, and implements the
/// verbs.
///
/// ```
/// new --open--> (waits for its turn) --streamOpens--> open --> ended
/// ```
/// The owner may leave in any of these states. `end` is set once, when the answer is complete or can't be completed any
/// more; no bytes are added to `body` after that. A verb tells the owner nothing before it returns.
///
/// It is a class and not a protocol, so that it can be borrowed without counting a reference; the call of a verb costs
/// 2 instructions more than the call of a function of a final class.
class TransportStream {
  /// The owner; nil once it has left.
  final var owner: StreamOwner?
  /// The bytes that the owner has not taken yet, at most a window of the stream. nil: there were none yet, or
  /// the owner has left.
  private final var unread: ByteBuffer?
  private final var pieces: PieceQueue
  final var endsAfterPieces = false
  /// Whether the peer is ending the connection, and still processes other requests on it, but not this one.
  final var wasPassedOver = false
  /// How many messages were handed to the connection's output completely, in the headers or as pieces; it wraps around
  /// at 2^32.
  private(set) final var piecesSent: UInt32 = 0
  /// The number of bytes that have come and that the owner has not counted.
  private final var uncounted: UInt32 = 0
  private(set) final var end: StreamEnd?

  @inline(__always)
  init(_ owner: StreamOwner?, sending pieces: consuming PieceQueue) {
    self.owner = owner
    self.pieces = pieces
    confine(self)
  }

  // MARK: Verbs

  /// Opens the stream as soon as the connection allows, and then sends the bytes that were added.
  func open() {}
  /// Adds a piece to the body.
  func send(_ piece: BodyPiece) {}
  /// Ends the body behind the bytes that have been added.
  func endBody() {}
  /// Called when the owner has taken `count` bytes of `body`: gives their credit back to the peer.
  func consume(_ count: Int) {}
  /// Called when the owner does not need the stream any more.
  func leave(_ why: Leave) {}

  // MARK: Outbound

  final var bytesToSend: Int { pieces.bytes }

  final func append(_ piece: BodyPiece) { pieces.append(piece) }

  /// Takes the pieces for another stream, because nothing of this stream was written.
  final func takePieces() -> PieceQueue {
    var all = PieceQueue()
    swap(&all, &pieces)
    return all
  }

  /// Whether the whole request has been added, and has a body.
  final var isWholeRequest: Bool { endsAfterPieces && bytesToSend > 0 }

  /// Moves the next `count` bytes of the body to `out`. False: no memory.
  final func moveBody(_ count: Int, into out: SendQueue) -> Bool {
    guard let through = pieces.move(count, into: out) else { return false }
    piecesSent &+= UInt32(through)
    return true
  }

  /// Counts `count` messages that are sent in the headers as sent pieces.
  final func sentWithHeaders(_ count: UInt32) { piecesSent &+= count }

  // MARK: Inbound

  final var bodyIsEmpty: Bool { unread.map { $0.isEmpty } ?? true }
  /// The bytes that the owner has not taken yet. The view is valid until the owner takes some, or more come.
  final var body: ByteView { unread.map { $0.view } ?? ByteView(start: nil, count: 0) }

  /// Keeps bytes that the owner has not taken. False: no memory.
  final func keep(_ bytes: ByteView) -> Bool {
    if unread == nil { unread = ByteBuffer() }
    return borrow(unread) { $0.append(bytes) } ?? false
  }

  final func take(_ count: Int) { _ = borrow(unread) { $0.consume(count) } }

  final func received(_ count: Int) { uncounted &+= UInt32(truncatingIfNeeded: count) }

  /// How many bytes have come since the last call of this function.
  final func takeCount() -> Int {
    defer { uncounted = 0 }
    return Int(uncounted)
  }

  final func finish(_ how: StreamEnd) {
    if end == nil { end = how }
  }

  /// Releases the owner, which does not need the stream any more, and drops all bytes.
  final func letGo() {
    owner = nil
    if unread != nil { unread = nil }
    pieces.removeAll()
  }
}
