import PenstockCall
import PenstockWire

/// One request and its answer over HTTP/1.1. The stream waits in the pool's queue until a connection is free,
/// and then has that connection until the answer is complete.
final class HTTP1Stream: TransportStream {
  /// The pool; nil: the stream's owner has left.
  private var pool: HTTP1Pool?
  /// The connection; nil: the stream waits in the pool, or has ended.
  var connection: HTTP1Connection?
  /// The next stream in a list of the pool.
  var next: HTTP1Stream?
  var isQueued = false

  init(_ owner: StreamOwner, sending pieces: consuming PieceQueue, in pool: HTTP1Pool) {
    self.pool = pool
    super.init(owner, sending: pieces)
  }

  override var isHalfDuplex: Bool { true }
  override var lacksConnection: Bool { isQueued && end == nil }

  override func open() { _ = borrow(pool) { $0.add(self) } }

  override func send(_ piece: BodyPiece) {
    append(piece)
    _ = borrow(connection) {
      if $0.isUnsent { $0.keepUnsent(piece) }
      $0.wantsWrite()
    }
  }

  override func endBody() {
    endsAfterPieces = true
    _ = borrow(connection) { $0.wantsWrite() }
  }

  override func consume(_ count: Int) {
    take(count)
    _ = borrow(connection) { $0.consumed(self) }
  }

  override func leave(_ why: Leave) {
    letGo()
    if let connection = connection.take() { connection.left() }
    if isQueued { _ = borrow(pool) { $0.forget(self) } }
    pool = nil
  }

  /// Called by `connection` when the answer is complete, or can't be completed any more.
  func finish(_ how: StreamEnd, on connection: HTTP1Connection) {
    finish(how)
    self.connection = nil
  }
}

/// A list of streams, oldest first, linked by `next`.
struct HTTP1StreamList {
  private var first: HTTP1Stream?
  private var last: HTTP1Stream?
  private(set) var count = 0

  var isEmpty: Bool { count == 0 }

  mutating func append(_ stream: HTTP1Stream) {
    stream.isQueued = true
    if let last { last.next = stream } else { first = stream }
    last = stream
    count += 1
  }

  mutating func popFirst() -> HTTP1Stream? {
    guard let stream = first else { return nil }
    first = stream.next.take()
    if first == nil { last = nil }
    stream.isQueued = false
    count -= 1
    return stream
  }

  mutating func remove(_ stream: HTTP1Stream) {
    var before: HTTP1Stream?
    var one = first
    while let here = one, here !== stream {
      before = here
      one = here.next
    }
    guard one != nil else { return }
    let next = stream.next.take()
    if let before { before.next = next } else { first = next }
    if last === stream { last = before }
    stream.isQueued = false
    count -= 1
  }
}
