import PenstockCall
import PenstockWire

/// The layer above a stream. Its functions are called on the driving thread, and never from within a verb of the
/// stream. `streamSends` and `streamReceives` are called in the middle of the stream's work, and must only record.
///
/// It is a class and not a protocol, so that it can be borrowed without counting a reference. It inherits from
/// `CallBelow` because an attempt is both, and a class has only one base; a stream uses nothing of `CallBelow`.
class StreamOwner: CallBelow {
  /// The stream is about to open: adds its header list, and says whether messages go both ways. False: no memory, and the
  /// stream ends.
  func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool { false }
  /// A part of the request is about to be sent. True: the owner wants `streamChanged` later. Must only record.
  func streamSends() -> Bool { false }
  /// The head of the final response, valid until this returns. Must only record.
  func streamReceives(head: HeaderBlock, endsStream: Bool) {}
  /// The trailers, valid until this returns. Must only record.
  func streamReceives(trailers: HeaderBlock) {}
  /// The space into which the next bytes of the body may be put before `streamReceives` gets them; nil: there is
  /// none.
  func streamSpace() -> UnsafeMutableRawBufferPointer? { nil }
  /// Takes as much of a body as it wants now, and says how much; the rest is buffered. Must only record.
  func streamReceives(_ bytes: ByteView) -> Int { 0 }
  /// Something has changed since the last call: look at `body`, `end`, `piecesSent`.
  func streamChanged(_ stream: TransportStream) {}
}

/// One request and its answer on a connection. An attempt uses nothing else of the connection, and so is independent
/// of the protocol. The received bytes and the bytes to be sent are kept here; a subclass moves them, and implements
/// the verbs.
///
/// ```
/// new --open--> (waits for its turn) --streamOpens--> open --> ended --leave--> nobody's
/// ```
/// `end` says how it ended, once; after that nothing inbound changes. A verb tells its owner nothing before it returns.
///
/// It is a class so that it can be borrowed; a verb costs 2 instructions more than one of a final class.
class TransportStream {
  /// Cleared when the stream has closed, or its owner has left.
  final var owner: StreamOwner?
  /// The bytes that the owner has not taken yet. Bounded by the stream's window. nil: there was never any.
  private final var unread: ByteBuffer?
  private final var pieces: PieceQueue
  final var endsAfterPieces = false
  /// The number of pieces that were framed completely; it wraps around at 2^32.
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

  /// Opens as soon as it may, and sends the bytes that were added.
  func open() {}
  /// Adds a piece to the body.
  func send(_ piece: BodyPiece) {}
  /// The body ends behind the bytes that are there.
  func endBody() {}
  /// The owner has taken `count` bytes of `body`: their credit goes back.
  func consume(_ count: Int) {}
  /// The owner wants nothing more of the stream.
  func leave(_ why: Leave) {}

  // MARK: Outbound

  final var bytesToSend: Int { pieces.bytes }

  final func append(_ piece: BodyPiece) { pieces.append(piece) }

  /// Takes the pieces for another stream: nothing of this one was written.
  final func takePieces() -> PieceQueue {
    var all = PieceQueue()
    swap(&all, &pieces)
    return all
  }

  /// Whether all of the request is here, and has a body.
  final var isWholeRequest: Bool { endsAfterPieces && bytesToSend > 0 }

  /// Adds the next `count` bytes of the body. False: no memory.
  final func moveBody(_ count: Int, into out: SendQueue) -> Bool {
    guard let through = pieces.move(count, into: out) else { return false }
    piecesSent &+= UInt32(through)
    return true
  }

  /// This many messages are sent with the headers, and count as sent pieces.
  final func sentWithHeaders(_ count: UInt32) { piecesSent &+= count }

  // MARK: Inbound

  final var bodyIsEmpty: Bool { unread.map { $0.isEmpty } ?? true }
  /// The bytes that the owner has not taken yet, until it takes some or more comes.
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

  /// Lets go of the owner, who wants nothing more of this stream.
  final func letGo() {
    owner = nil
    if unread != nil { unread = nil }
    pieces.removeAll()
  }
}
