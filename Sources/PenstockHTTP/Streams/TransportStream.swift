import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop

/// The layer above a stream. Its functions are called on the driving thread, and never while the owner calls
/// a function of the stream. `streamSends` and `streamReceives` are called in the middle of the stream's
/// work: they may only record what has happened, and must call no function of the stream.
///
/// It is a class, and not a protocol, so that a reference can be borrowed without reference counting. It
/// inherits from `CallBelow`, because an attempt is both, and a class has only one base class. A stream uses
/// nothing of `CallBelow`.
open class StreamOwner: CallBelow {
  /// Whether this is an attempt of a call, as by default, and not a health check.
  open var isCall: Bool { true }
  /// Called when the stream is about to open. The owner adds the header list to `fields`, and sets
  /// `isDuplex`. False: no memory; the stream ends.
  open func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool { mustOverride(false) }
  /// Called when the headers or a part of the body were added to the connection's output. True: the owner
  /// wants a call of `streamChanged` later; it does not by default. May only record.
  open func streamSends() -> Bool { false }
  /// Called with the head of the final response, which is valid during the call. May only record.
  open func streamReceives(head: HeaderBlock, endsStream: Bool) { mustOverride(()) }
  /// Called with the trailers, which are valid during the call. May only record.
  open func streamReceives(trailers: HeaderBlock) { mustOverride(()) }
  /// The space into which the next bytes of the body may be received, before `streamReceives` gets them; nil,
  /// as by default: no such space.
  open func streamSpace() -> UnsafeMutableRawBufferPointer? { nil }
  /// Called when bytes of the body have arrived. The owner uses as many as it wants now, and returns their
  /// number; the stream keeps the rest. May only record.
  open func streamReceives(_ bytes: ByteView) -> Int { mustOverride(0) }
  /// Called when `body`, `end` or `piecesSent` has changed since the last call. The owner checks all three.
  open func streamChanged(_ stream: TransportStream) { mustOverride(()) }
  /// Called when a stream that was opened without a connection has one now. `facts`: data about it. May only
  /// record. By default nobody wants to know.
  open func streamJoins(_ stream: TransportStream, _ facts: ConnectionFacts) {}
  /// Called when `lacksConnection` of an open stream has changed. May only record. By default nobody wants
  /// to know.
  open func streamWaits(_ stream: TransportStream) {}
}

/// One request and its answer on a connection. An attempt sends and receives only through this class, and so
/// is independent of the HTTP version. A stream keeps the received bytes until the owner takes them, and the
/// bytes to be sent until the connection takes them. The subclass for an HTTP version moves the bytes, and
/// implements the functions that the owner calls.
///
/// ```
/// new --open--> (waits until the connection opens it) --streamOpens--> open --> ended
/// ```
///
/// The owner may leave in any of these states. `end` is set once, when the answer is complete or can't be
/// completed any more; no bytes are added to `body` after that. No function that the owner calls reports to
/// the owner before it returns.
///
/// It is a class, and not a protocol, so that a reference can be borrowed without reference counting. To call
/// an overridden function costs 2 instructions more than to call a function of a final class.
open class TransportStream {
  /// The owner; nil: the owner has left.
  public final var owner: StreamOwner?
  /// The received bytes that the owner has not taken yet, at most a window of the stream. nil: no such bytes
  /// so far, or the owner has left.
  private final var unread: ByteBuffer?
  private final var pieces: PieceQueue
  public final var endsAfterPieces = false
  /// Whether the peer ends the connection and still processes other requests on it, but not this request.
  final var wasPassedOver = false
  /// The number of messages that were added completely to the connection's output, in the headers or as
  /// pieces of the body. It wraps around at 2^32.
  public private(set) final var piecesSent: UInt32 = 0
  /// The number of received bytes that `takeCount` has not returned yet.
  private final var uncounted: UInt32 = 0
  public private(set) final var end: StreamEnd?

  @inline(__always)
  public init(_ owner: StreamOwner?, sending pieces: consuming PieceQueue) {
    self.owner = owner
    self.pieces = pieces
    confine(self)
  }

  /// Whether the stream was opened and has no connection yet. By default a connection makes the stream.
  open var lacksConnection: Bool { false }

  /// Whether the answer can be read reliably only after the whole request was sent, as in HTTP/1.1. By default
  /// both directions are independent.
  open var isHalfDuplex: Bool { false }

  /// The status of a bidi call that receives a message before its half-close, although its stream is
  /// half-duplex.
  public static func halfDuplex() -> Status {
    let words = ByteBuffer().say(
      "a message was read before the call's half-close, but HTTP/1.1 is half-duplex: ")
    return Status(.unimplemented, words: words.say("half-close the call first, or use HTTP/2"))
  }

  /// Whether the request may be sent again. `end`: how its stream has ended, without an answer.
  public final func repeats(_ end: StreamEnd, _ idempotency: Idempotency) -> Repeat {
    if case .unprocessed = end { return wasPassedOver ? .passedOver : .unprocessed }
    if case .refused = end { return .refused }
    if case .unanswered = end, idempotency != .unknown { return .unprocessed }
    return .no
  }

  // MARK: Verbs

  /// Opens the stream as soon as the connection permits. The stream then sends the pieces that were added.
  open func open() { mustOverride(()) }
  /// Adds a piece to the body.
  open func send(_ piece: BodyPiece) { mustOverride(()) }
  /// Ends the body after the pieces that were added before.
  open func endBody() { mustOverride(()) }
  /// Called when the owner has taken `count` bytes of `body`. Returns their flow-control credit to the peer.
  open func consume(_ count: Int) { mustOverride(()) }
  /// Called when the owner does not need the stream any more.
  open func leave(_ why: Leave) { mustOverride(()) }

  // MARK: Outbound

  final var bytesToSend: Int { pieces.bytes }
  /// How many of these bytes the next DATA frame has, at most `most`.
  final func bytesOfFrame(_ most: Int) -> Int { pieces.bytesOfFrame(most) }

  public final func append(_ piece: BodyPiece) { pieces.append(piece) }

  /// Removes and returns the pieces of the body, for another stream, because no byte of this stream was
  /// written.
  public final func takePieces() -> PieceQueue {
    var all = PieceQueue()
    swap(&all, &pieces)
    return all
  }

  /// A copy of the pieces that were not moved yet, for a later `restore`.
  final func copyPieces() -> PieceQueue { pieces }
  /// Puts back pieces that were moved to the output of a connection that sent none of them.
  public final func restore(_ all: consuming PieceQueue) { pieces = all }

  /// Whether the owner has added the whole request, and it has a body.
  final var isWholeRequest: Bool { endsAfterPieces && bytesToSend > 0 }

  /// Moves the next `count` bytes of the body to `out`. False: no memory.
  final func moveBody(_ count: Int, into out: SendQueue) -> Bool {
    guard let through = pieces.move(count, into: out) else { return false }
    piecesSent &+= UInt32(through)
    return true
  }

  /// Adds `count` messages to `piecesSent`. They are sent in the headers, not as pieces of the body.
  public final func sentWithHeaders(_ count: UInt32) { piecesSent &+= count }

  // MARK: Inbound

  public final var bodyIsEmpty: Bool { unread.map { $0.isEmpty } ?? true }
  /// The bytes that the owner has not taken yet. The view is valid until the owner takes bytes, or more bytes
  /// arrive.
  public final var body: ByteView { unread.map { $0.view } ?? ByteView(start: nil, count: 0) }

  /// Stores received bytes that the owner has not taken. False: no memory.
  public final func store(_ bytes: ByteView) -> Bool {
    if unread == nil { unread = ByteBuffer() }
    return borrow(unread) { $0.append(bytes) } ?? false
  }

  public final func take(_ count: Int) { _ = borrow(unread) { $0.consume(count) } }

  public final func received(_ count: Int) { uncounted &+= UInt32(truncatingIfNeeded: count) }

  /// Returns the number of bytes that were received since the last call of this function.
  public final func takeCount() -> Int {
    defer { uncounted = 0 }
    return Int(uncounted)
  }

  public final func finish(_ how: StreamEnd) {
    if end == nil { end = how }
  }

  /// Called when the owner leaves. Releases the owner, and drops all bytes.
  public final func letGo() {
    owner = nil
    if unread != nil { unread = nil }
    pieces.removeAll()
  }
}
