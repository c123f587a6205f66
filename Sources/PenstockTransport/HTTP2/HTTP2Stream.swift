import PenstockCall
import PenstockWire

/// Who stands above a stream. All on the driving thread, outside of nghttp2's callbacks but for
/// `streamSends` and `streamReceives`.
///
/// A class, and no protocol, so that it can be told without a reference being counted.
class StreamOwner {
  /// The stream is about to open: adds its header list. False: no memory, and the stream ends.
  func streamOpens(_ stream: HTTP2Stream, _ fields: FieldList) -> Bool { false }
  /// A frame of the request is on its way: true if `streamChanged` is to tell. Must only record.
  func streamSends() -> Bool { false }
  /// The head of the final response, there until this returns. Must only record.
  func streamReceives(head: HeaderBlock, endsStream: Bool) {}
  /// The trailers, there until this returns. Must only record.
  func streamReceives(trailers: HeaderBlock) {}
  /// Where the next bytes of the body may be put before `streamReceives` gets them; nil: there is no such place.
  func streamPlace() -> UnsafeMutableRawBufferPointer? { nil }
  /// Takes as much of a body as it wants now, and says how much; what is left is buffered. Must only record.
  func streamReceives(_ bytes: ByteView) -> Int { 0 }
  /// Something has changed since the last call: look at `body`, `end`, `piecesSent`.
  func streamChanged(_ stream: HTTP2Stream) {}
}

/// One HTTP/2 stream: what has come and what is to go. It records; `HTTP2Session` moves the bytes.
///
/// ```
/// created --open--> queued --(the peer's limit allows)--> open --> closed
/// ```
/// `end` says how it ended, once; after that nothing inbound changes.
///
/// Ten thousand may be open and idle: what is small stands together, so that one takes 136 bytes.
final class HTTP2Stream {
  enum State: Equatable { case created, queued, open, closed }

  /// Cleared when the stream has closed, or its owner has let go.
  var owner: StreamOwner?
  /// What has come and the owner has not counted; what the owner has taken and no credit went back for. Within a window.
  private var uncounted: UInt32 = 0
  private var uncredited: UInt32 = 0
  /// What the owner has not taken yet. Bounded by the stream's window. nil: there was never any.
  private var unread: ByteBuffer?
  private var pieces: PieceQueue
  var bytesToSend: Int { pieces.bytes }
  var state = State.created
  /// Messages go both ways.
  var isDuplex = false
  /// It is in the session's list of changed streams.
  var isMarked = false
  var endsAfterPieces = false
  /// nghttp2 has it among those that send.
  var isSending = false
  /// The DATA frame on its way is the last that there is to send now.
  var isDraining = false
  /// Our END_STREAM is on its way.
  var isFinished = false
  /// The HEADERS frame is on its way.
  var headersAreSent = false
  /// The final response has come: what follows are trailers.
  private(set) var hasFinalHead = false
  /// "content-length" has come.
  var hasLength = false
  /// Where its request's block stands in the session's `KnownBlocks`; 0: nowhere.
  var block: UInt8 = 0
  var id: Int32 = -1
  /// "content-length", or 0, less what has come of the body.
  var lengthLeft = 0
  private var place: Int32 = -1
  /// Pieces framed whole, ever; beyond 2^32 it begins anew.
  private(set) var piecesSent: UInt32 = 0
  private(set) var end: StreamEnd?

  /// Where it stands in the session's list of open streams; -1: nowhere.
  var slot: Int {
    get { Int(place) }
    set { place = Int32(truncatingIfNeeded: newValue) }
  }

  init(_ owner: StreamOwner? = nil, sending pieces: PieceQueue = PieceQueue()) {
    self.owner = owner
    self.pieces = pieces
    confine(self)
  }

  // MARK: Outbound

  func append(_ piece: BodyPiece) { pieces.append(piece) }

  /// All of it is here, and has a body.
  var isWholeRequest: Bool { endsAfterPieces && bytesToSend > 0 }

  var hasWork: Bool { bytesToSend > 0 || (endsAfterPieces && !isFinished) }

  /// Adds the next `count` bytes of the body. False: no memory.
  func moveBody(_ count: Int, into out: SendQueue) -> Bool {
    guard let through = pieces.move(count, into: out) else { return false }
    piecesSent &+= UInt32(through)
    return true
  }

  // MARK: Inbound

  var bodyIsEmpty: Bool { unread.map { $0.isEmpty } ?? true }
  /// What the owner has not taken yet, until it takes some or more comes.
  var body: ByteView { unread.map { $0.view } ?? ByteView(start: nil, count: 0) }

  /// False: no memory.
  func keep(_ bytes: ByteView) -> Bool {
    if unread == nil { unread = ByteBuffer() }
    return borrow(unread) { $0.append(bytes) } ?? false
  }

  func take(_ count: Int) { _ = borrow(unread) { $0.consume(count) } }

  func received(_ count: Int) { uncounted &+= UInt32(truncatingIfNeeded: count) }

  /// The owner has taken `count` bytes: for how much credit is to go back; nil: for less than is worth it.
  func credit(_ count: Int) -> Int? {
    let all = Int(uncredited) + count
    guard all >= HTTP2Session.leastCredit else {
      uncredited = UInt32(all)
      return nil
    }
    uncredited = 0
    return all
  }

  /// How much has come since it was last asked.
  func takeCount() -> Int {
    defer { uncounted = 0 }
    return Int(uncounted)
  }

  /// A HEADERS frame is complete, and well formed.
  func take(_ block: HeaderBlock, endsStream: Bool) {
    if end != nil { return }
    if hasFinalHead {
      _ = borrow(owner) { $0.streamReceives(trailers: block) }
      return finish(.trailers)
    }
    // "1xx: Technically, the entire header should be skipped and a subsequent header be read" (the mapping document).
    if block.status / 100 == 1 { return }
    hasFinalHead = true
    _ = borrow(owner) { $0.streamReceives(head: block, endsStream: endsStream) }
    if endsStream { finish(.trailers) }
  }

  func finish(_ how: StreamEnd) {
    if end == nil { end = how }
  }

  /// Nothing more is wanted of this stream.
  func letGo() {
    owner = nil
    if unread != nil { unread = nil }
    pieces.removeAll()
  }
}
