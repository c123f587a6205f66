import PenstockCall
import PenstockWire

/// One HTTP/2 stream: its state, and the bytes that have come or are to be sent. `HTTP2Session` moves the bytes.
///
/// Ten thousand streams may be open and idle: small fields stand together, so that a stream takes 136 bytes.
final class HTTP2Stream: TransportStream, Queued {
  /// The part of the answer that has come.
  enum Answer {
    /// The final head of the response has not come.
    case awaited
    /// The head has come, and has not said how long the body is.
    case begun
    /// The head has come, and has said how long the body is.
    case measured
  }

  var life = HTTP2StreamLife.created
  private(set) var answer = Answer.awaited
  /// Whether the stream is in the session's list of changed streams.
  var isMarked = false
  /// The number of the request's block in the session's `KnownBlocks`; 0: none.
  var block: UInt8 = 0
  var id: Int32 = -1
  private var storedIndex: Int32 = -1
  /// The number of bytes that the owner has taken, and whose credit has not gone back to the peer; never more
  /// than a window.
  private var uncredited: UInt32 = 0
  /// The length of the body that the response's head has announced (0: none), less the bytes that have come.
  var lengthLeft = 0
  /// Keeps the connection until the owner leaves. nil: only a session has the stream.
  private var connection: HTTP2Connection?

  /// The index in the session's list of open streams; -1: it is not in the list.
  var listIndex: Int {
    get { Int(storedIndex) }
    set { storedIndex = Int32(truncatingIfNeeded: newValue) }
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

  /// Whether the stream waits in a queue of the session until it is opened.
  @inline(never)
  var isWaiting: Bool { life == .queued }

  /// Whether there is more to send than the bytes already on their way.
  var hasWork: Bool { bytesToSend > 0 || endsAfterPieces }

  /// Called when the owner has taken `count` bytes. Returns the credit that has to go back to the peer; nil:
  /// less than `leastCredit`, which is kept for later.
  func credit(_ count: Int) -> Int? {
    let all = Int(uncredited) + count
    guard all >= HTTP2Session.leastCredit else {
      uncredited = UInt32(all)
      return nil
    }
    uncredited = 0
    return all
  }

  /// Takes a header block that is complete and well formed.
  func take(_ block: HeaderBlock, endsStream: Bool) {
    if end != nil { return }
    if answer != .awaited {
      _ = borrow(owner) { $0.streamReceives(trailers: block) }
      return finish(.trailers)
    }
    // "Technically, 1xx should have the entire header skipped and a subsequent header be read" (gRPC's
    // http-grpc-status-mapping.md).
    if block.status / 100 == 1 { return }
    answer = !block.isPlainHead && block.saysLength ? .measured : .begun
    _ = borrow(owner) { $0.streamReceives(head: block, endsStream: endsStream) }
    if endsStream { finish(.trailers) }
  }
}
