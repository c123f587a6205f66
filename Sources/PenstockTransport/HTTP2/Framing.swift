import PenstockCall
import PenstockWire

/// A piece of an outgoing body: a message behind its prefix. Shared, never changed: a retry sends it again.
public struct BodyPiece {
  static let prefixSize = MessagePrefix.size
  /// The five bytes before the message, the first byte lowest.
  let prefix: UInt64
  let bytes: ByteBuffer

  var count: Int { BodyPiece.prefixSize + bytes.count }

  public init(compressed: Bool, _ bytes: ByteBuffer, length: UInt32) {
    var place: UInt64 = 0
    MessagePrefix.write(compressed: compressed, length: length, to: &place)
    prefix = place
    self.bytes = bytes
  }

  /// Adds `count` bytes from `offset` on. False: no memory.
  func move(from offset: Int, count: Int, into out: SendQueue) -> Bool {
    var at = offset
    let end = offset + count
    if at < BodyPiece.prefixSize {
      guard let tail = out.bytes.spare(atLeast: 8) else { return false }
      tail.storeBytes(of: (prefix >> UInt64(8 * at)).littleEndian, as: UInt64.self)
      out.bytes.commit(min(end, BodyPiece.prefixSize) - at)
      at = BodyPiece.prefixSize
    }
    return at >= end || out.append(bytes, from: at - BodyPiece.prefixSize, count: end - at)
  }
}

/// Pieces in order. Most bodies have one, which stands here itself.
public struct PieceQueue {
  private var first: BodyPiece?
  /// Behind the first, from `next` on, which is less than 64; before that, nil.
  private var rest: [BodyPiece?] = []
  /// How much of the first has been moved.
  private var offset = 0
  /// Of all pieces, not yet moved.
  public private(set) var bytes = 0
  private var next: UInt8 = 0

  public init() {}

  public mutating func append(_ piece: consuming BodyPiece) {
    bytes += piece.count
    if first == nil { first = consume piece } else { rest.append(consume piece) }
  }

  /// Moves the next `count` bytes, as many as there are at most. How many pieces are through; nil: no memory.
  public mutating func move(_ count: Int, into out: SendQueue) -> Int? {
    var left = count
    var through = 0
    while left > 0, let whole = first?.count {
      let part = min(left, whole - offset)
      guard first?.move(from: offset, count: part, into: out) == true else { return nil }
      left -= part
      offset += part
      if offset == whole {
        removeFirst()
        through += 1
      }
    }
    bytes -= count - left
    return through
  }

  private mutating func removeFirst() {
    offset = 0
    first = nil
    if Int(next) == rest.count { return }
    swap(&first, &rest[Int(next)])
    next += 1
    if Int(next) == rest.count {
      rest.clear()
      next = 0
    } else if next >= 64 {
      rest.removeLeading(Int(next))
      next = 0
    }
  }

  public mutating func removeAll() {
    // Mostly all has gone.
    if first == nil { return }
    first = nil
    rest = []
    next = 0
    offset = 0
    bytes = 0
  }

  func forEach(_ body: (BodyPiece) -> Void) {
    if let first { body(first) }
    for index in Int(next)..<rest.count { if let piece = rest[index] { body(piece) } }
  }
}

/// The *framing* of calls: how a call's start, messages and end become HTTP messages, and back. One object per
/// attempt. It knows nothing of connections and never calls out.
protocol CallFraming: AnyObject {
  /// Adds the request's header list as it goes on the wire, pseudo headers first; it refers to what the request has.
  /// False: no memory.
  func requestHeaders(
    _ request: Request, _ defaults: RequestDefaults, now: UInt64, into fields: FieldList
  ) -> Bool
  func encode(_ message: Message) -> FramedMessage
  /// A message takes long to compress, and others may wait behind it: `encodeNext`, a turn later.
  var isPacking: Bool { get }
  func encodeNext() -> FramedMessage
  func responseHeaders(_ block: HeaderBlock, endsStream: Bool) -> ResponseStart
  /// Takes bytes of the body, up to the end of one message. Not while `isBusy`.
  func decode(_ bytes: ByteView) -> (consumed: Int, step: BodyStep)
  /// A message has come, and takes long to decompress: `proceed`, in the next turn.
  var isBusy: Bool { get }
  func proceed() -> BodyStep
  /// Where the next bytes of the message that is under way may be put before `decode` gets them; nil: there is none.
  func place() -> UnsafeMutableRawBufferPointer?
  /// A whole message stands at the front, and none is under way.
  func beginsWithMessage(_ bytes: ByteView) -> Bool
  /// The same, and it has no more than `limit` bytes, not compressed, and another whole one follows.
  func beginsWithTwo(_ bytes: ByteView, limit: Int) -> Bool
  /// What trailers say.
  func status(ofTrailers block: HeaderBlock) -> Status
  /// The status of a stream that has ended, after all that `decode` could give.
  func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool) -> Status
}

enum FramedMessage {
  case piece(BodyPiece)
  /// `isPacking` from here on.
  case later
  case failed(Status)
}

enum ResponseStart {
  /// An informational answer: the real one follows.
  case informational
  case headers(Metadata)
  /// No body is of interest: the call ends.
  case ended(Status)
}

enum BodyStep {
  case needsMore
  /// `isBusy` from here on.
  case busy
  /// `size`: of what came, compressed or not.
  case message(Message, size: Int)
  case failed(Status)
}
