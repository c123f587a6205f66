import PenstockWire
import PenstockLoop

/// A piece of an outgoing body: a prefix, which the framing makes, and then a message. The message is shared
/// and does not change, because a retry may send it again.
public struct BodyPiece {
  /// The prefix in one number. The lowest byte is the first byte of the prefix. The highest byte is the
  /// number of bytes in the prefix, and `restBit`.
  private let prefix: UInt64
  public let bytes: ByteBuffer

  private static let restBit: UInt64 = 1 << 63

  private var prefixSize: Int { Int(prefix >> 56 & 7) }
  public var count: Int { prefixSize + bytes.count }
  /// Whether this is the end of a message whose other bytes were a piece before it. A DATA frame of HTTP/2 ends with it,
  /// and it does not count as a message.
  public var isRest: Bool { prefix & BodyPiece.restBit != 0 }

  /// Makes a piece. `prefix`: the `size` bytes of the prefix (at most 7) as a number, whose lowest byte is
  /// the first byte.
  public init(prefix: UInt64 = 0, size: Int = 0, _ bytes: ByteBuffer) {
    self.prefix = prefix | UInt64(size) << 56
    self.bytes = bytes
  }

  /// Makes a piece of the end of a message (`isRest`).
  public init(rest bytes: ByteBuffer) {
    prefix = BodyPiece.restBit
    self.bytes = bytes
  }

  /// Appends `count` bytes of the piece, from `offset` on, to `out`. False: no memory.
  public func move(from offset: Int, count: Int, into out: SendQueue) -> Bool {
    var at = offset
    let end = offset + count
    let prefixSize = prefixSize
    if at < prefixSize {
      guard let tail = out.bytes.spare(atLeast: 8) else { return false }
      tail.storeBytes(of: (prefix >> UInt64(8 * at)).littleEndian, as: UInt64.self)
      out.bytes.commit(min(end, prefixSize) - at)
      at = prefixSize
    }
    return at >= end || out.append(bytes, from: at - prefixSize, count: end - at)
  }
}

/// A queue of pieces. Most bodies have one piece, which is stored in the struct itself, without an array.
public struct PieceQueue {
  private var first: BodyPiece?
  /// The pieces after `first`. They begin at the index `next`, which is below 64; the entries before that
  /// index are nil.
  private var rest: [BodyPiece?] = []
  /// The number of bytes of `first` that were already moved to the output.
  private var offset = 0
  /// The number of bytes of all pieces that were not moved to the output yet.
  public private(set) var bytes = 0
  private var next: UInt8 = 0
  /// Whether one of the pieces may be a rest.
  private var hasRests = false

  public init() {}

  public mutating func append(_ piece: consuming BodyPiece) {
    bytes += piece.count
    if piece.isRest { hasRests = true }
    if first == nil { first = consume piece } else { rest.append(consume piece) }
  }

  /// The number of bytes that the next frame has, at most `most`: those up to the first rest, and with it.
  public func bytesOfFrame(_ most: Int) -> Int {
    guard hasRests else { return min(most, bytes) }
    var count = -offset
    for index in -1..<rest.count - Int(next) where count < most {
      guard let piece = index < 0 ? first : rest[Int(next) + index] else { continue }
      count += piece.count
      if piece.isRest { break }
    }
    return min(most, count)
  }

  /// Moves the next `count` bytes to `out`. The queue must have that many. Returns the number of messages that
  /// are moved completely; nil: no memory.
  public mutating func move(_ count: Int, into out: SendQueue) -> Int? {
    var left = count
    var through = 0
    while left > 0, let whole = first?.count {
      let part = min(left, whole - offset)
      guard first?.move(from: offset, count: part, into: out) == true else { return nil }
      left -= part
      offset += part
      if offset == whole {
        if first?.isRest == false { through += 1 }
        removeFirst()
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
    // This check is for speed: usually no piece is left.
    if first == nil { return }
    first = nil
    rest = []
    next = 0
    offset = 0
    bytes = 0
    hasRests = false
  }

  public func forEach(_ body: (BodyPiece) -> Void) {
    if let first { body(first) }
    for index in Int(next)..<rest.count { if let piece = rest[index] { body(piece) } }
  }
}

extension BodyPiece {
  /// Makes a piece from a message and its prefix (a "Length-Prefixed-Message" in PROTOCOL-HTTP2).
  public init(compressed: Bool, _ bytes: ByteBuffer, length: UInt32) {
    var prefix: UInt64 = 0
    MessagePrefix.write(compressed: compressed, length: length, to: &prefix)
    self.init(prefix: prefix, size: MessagePrefix.size, bytes)
  }
}
