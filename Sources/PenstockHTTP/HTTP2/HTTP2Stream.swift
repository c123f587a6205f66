import PenstockCall
import PenstockWire

/// One HTTP/2 stream: its state, the received bytes, and the bytes to be sent. `HTTP2Session` moves the
/// bytes.
///
/// Ten thousand streams may be open and idle. The small fields are stored together, so that a stream takes
/// 136 bytes.
final class HTTP2Stream: TransportStream, Queued {
  /// The part of the answer that was received.
  enum Answer {
    /// The final (not 1xx) head of the response was not received yet.
    case awaited
    /// The head was received, and did not give the length of the body.
    case begun
    /// The head was received, and gave the length of the body.
    case measured
  }

  var life = HTTP2StreamLife.created
  private(set) var answer = Answer.awaited
  /// Whether the stream is in the session's list of changed streams.
  var isMarked = false
  /// The number of the kept header block (`KnownBlocks`) that the request uses; 0: none.
  var block: UInt8 = 0
  var id: Int32 = -1
  /// The index in the session's list of open streams; -1: it is not in the list.
  @Small var listIndex = -1
  /// The bytes that the owner has taken, and whose credit was not returned to the peer; at most a window.
  private var uncredited: UInt32 = 0
  /// The length of the body that the response's head has announced (0: not announced), minus the bytes that
  /// were received.
  var lengthLeft = 0
  /// The connection, which the stream keeps alive until the owner leaves. nil: the session has no connection,
  /// or the owner has left.
  private var connection: HTTP2Connection?

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

  /// Whether the stream is in a queue of the session and was not opened yet.
  var isWaiting: Bool { life == .queued }

  /// Whether bytes, or the end of the body, still have to be packed into a DATA frame.
  var hasWork: Bool { bytesToSend > 0 || endsAfterPieces }

  /// Called when the owner has taken `count` bytes. Returns the number of bytes of credit that has to be
  /// returned to the peer. nil: the credit is below `leastCredit`, and is kept for later.
  func credit(_ count: Int) -> Int? {
    let all = Int(uncredited) + count
    guard all >= HTTP2Session.leastCredit else {
      uncredited = UInt32(all)
      return nil
    }
    uncredited = 0
    return all
  }

  /// Handles a header block that is complete and well formed.
  func take(_ block: HeaderBlock, endsStream: Bool) {
    if end != nil { return }
    if answer != .awaited {
      _ = borrow(owner) { $0.streamReceives(trailers: block) }
      return finish(.trailers)
    }
    // A 1xx head is ignored: "Technically, 1xx should have the entire header skipped and a subsequent header
    // be read" (http-grpc-status-mapping.md of gRPC).
    if block.status / 100 == 1 { return }
    answer = !block.isPlainHead && block.saysLength ? .measured : .begun
    _ = borrow(owner) { $0.streamReceives(head: block, endsStream: endsStream) }
    if endsStream { finish(.trailers) }
  }
}
