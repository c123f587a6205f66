import PenstockCall
import PenstockWire

/// Who stands above a stream. All on the driving thread, outside of nghttp2's callbacks but for `streamReceives`.
protocol StreamOwner: AnyObject {
  /// The stream is about to open: its header list. nil: no memory, and the stream ends.
  func streamOpens(_ stream: HTTP2Stream) -> Metadata?
  /// Takes as much of a body as it wants now, and says how much; what is left is buffered. Must only record.
  func streamReceives(_ bytes: ByteView) -> Int
  /// Something has changed since the last call: look at `head`, `body`, `end`, `piecesSent`.
  func streamChanged(_ stream: HTTP2Stream)
}

/// One HTTP/2 stream: what has come and what is to go. It records; `HTTP2Session` moves the bytes.
///
/// ```
/// created --open--> queued --(the peer's limit allows)--> open --> closed
/// ```
/// `end` says how it ended, once; after that nothing inbound changes.
final class HTTP2Stream {
  enum State: Equatable { case created, queued, open, closed }

  /// Cleared when the stream has closed, or its owner has let go.
  var owner: (any StreamOwner)?
  var state = State.created
  var id: Int32 = -1
  /// Where it stands in the session's list of open streams.
  var slot = -1
  /// It is in the session's list of changed streams.
  var isMarked = false

  // Outbound.
  private var pieces: [BodyPiece] = []
  private var firstPiece = 0
  /// How much of the first piece is sent.
  private var offset = 0
  private(set) var bytesToSend = 0
  var endsAfterPieces = false
  /// nghttp2 has been told that there is nothing to send now.
  var isDeferred = false
  /// Our END_STREAM is on its way.
  var isFinished = false
  /// The HEADERS frame is on its way.
  var headersAreSent = false
  /// Pieces framed whole, ever.
  private(set) var piecesSent = 0
  private(set) var bytesSent = 0

  // Inbound.
  private(set) var head: Metadata?
  private(set) var headEndsStream = false
  /// What the owner has not taken yet. Bounded by the stream's window.
  let body = ByteBuffer()
  private(set) var end: StreamEnd?
  var bytesReceived = 0
  /// The final response has come: what follows are trailers.
  private var hasFinalHead = false
  private var block: Metadata?
  private var blockSize = 0
  private var blockOverflows = false
  var peerReset: UInt32?

  // MARK: Outbound

  func append(_ piece: BodyPiece) {
    pieces.append(piece)
    bytesToSend += piece.count
  }

  var hasWork: Bool { bytesToSend > 0 || (endsAfterPieces && !isFinished) }

  /// Appends the next `count` bytes of the body. False: no memory.
  func copyBody(_ count: Int, into out: ByteBuffer) -> Bool {
    var left = count
    while left > 0, firstPiece < pieces.count {
      let piece = pieces[firstPiece]
      let part = min(left, piece.count - offset)
      guard piece.copy(from: offset, count: part, into: out) else { return false }
      left -= part
      offset += part
      if offset == piece.count {
        offset = 0
        firstPiece += 1
        piecesSent += 1
      }
    }
    if firstPiece == pieces.count {
      pieces.removeAll(keepingCapacity: true)
      firstPiece = 0
    } else if firstPiece >= 64 {
      pieces.removeFirst(firstPiece)
      firstPiece = 0
    }
    bytesToSend -= count
    bytesSent += count
    return true
  }

  // MARK: Inbound

  func takeHead() -> Metadata? {
    let taken = head
    head = nil
    return taken
  }

  func beginBlock() {
    block = Metadata()
    blockSize = 0
    blockOverflows = false
  }

  /// The size as RFC 9113 section 6.5.2 counts it.
  func addField(_ name: ByteView, _ value: ByteView, limit: Int) {
    guard let block, !blockOverflows else { return }
    blockSize += name.count + value.count + 32
    if blockSize > limit {
      blockOverflows = true
    } else if block.add(name, value) != .done {
      finish(.noMemory)
    }
  }

  /// A HEADERS frame is complete.
  func endBlock(endsStream: Bool, limit: Int) {
    guard let fields = block else { return }
    block = nil
    if end != nil { return }
    if blockOverflows { return finish(.headersTooLarge(limit: limit)) }
    if hasFinalHead { return finish(.trailers(fields)) }
    let index = fields.index(of: (":status" as StaticString).bytes)
    // "1xx: Technically, the entire header should be skipped and a subsequent header be read" (the mapping document).
    if let index, fields.value(at: index).first == 0x31, !endsStream { return }
    hasFinalHead = true
    head = fields
    headEndsStream = endsStream
    if endsStream { finish(.trailers(Metadata())) }
  }

  func finish(_ how: StreamEnd) {
    if end == nil { end = how }
  }

  /// Nothing more is wanted of this stream.
  func letGo() {
    owner = nil
    body.removeAll(keepingCapacity: false)
    head = nil
    block = nil
    pieces = []
    firstPiece = 0
    bytesToSend = 0
    offset = 0
  }
}
