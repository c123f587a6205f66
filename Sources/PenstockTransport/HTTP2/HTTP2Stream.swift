import PenstockCall
import PenstockWire

/// One HTTP/2 stream. It records; `HTTP2Session` moves the bytes.
///
/// ```
/// created --open--> queued --(the peer's limit allows)--> open --> closed
/// ```
/// Ten thousand may be open and idle: what is small stands together, so that one takes 136 bytes.
final class HTTP2Stream: TransportStream {
  enum State: Equatable { case created, queued, open, closed }

  var state = State.created
  /// It is in the session's list of changed streams.
  var isMarked = false
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
  private var place: Int32 = -1
  /// What the owner has taken and no credit went back for. Within a window.
  private var uncredited: UInt32 = 0
  /// "content-length", or 0, less what has come of the body.
  var lengthLeft = 0
  /// Until the owner leaves. nil: only a session has it.
  private var connection: HTTP2Connection?

  /// Where it stands in the session's list of open streams; -1: nowhere.
  var slot: Int {
    get { Int(place) }
    set { place = Int32(truncatingIfNeeded: newValue) }
  }

  @inline(__always)
  init(
    _ owner: StreamOwner? = nil, sending pieces: consuming PieceQueue = PieceQueue(),
    on connection: HTTP2Connection? = nil
  ) {
    self.connection = connection
    super.init(owner, sending: pieces)
  }

  // MARK: Verbs

  override func open() { _ = borrow(connection) { $0.add(self) } }

  override var hasOpened: Bool { id > 0 }

  override func send(_ piece: BodyPiece) {
    append(piece)
    _ = borrow(connection) { $0.resume(self) }
  }

  override func endBody() {
    endsAfterPieces = true
    _ = borrow(connection) { $0.resume(self) }
  }

  override func consume(_ count: Int) {
    take(count)
    _ = borrow(connection) { $0.consumed(self, count) }
  }

  override func leave(_ why: Leave) {
    _ = borrow(connection) { $0.letGo(self, why) }
    connection = nil
  }

  // MARK: For the session

  var hasWork: Bool { bytesToSend > 0 || (endsAfterPieces && !isFinished) }

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
}
