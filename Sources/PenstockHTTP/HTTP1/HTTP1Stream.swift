import PenstockCall
import PenstockWire

/// One request and its answer over HTTP/1.1. The stream waits in the pool's queue until a connection is free,
/// and then has that connection until the answer is complete.
public final class HTTP1Stream: TransportStream {
  /// The pool; nil: the stream's owner has left.
  private var pool: HTTP1Owner?
  /// The connection; nil: the stream waits in the pool, or has ended.
  public var connection: HTTP1Connection?
  /// The next stream in a list of the pool.
  public var next: HTTP1Stream?
  public var isQueued = false

  public init(_ owner: StreamOwner, sending pieces: consuming PieceQueue, in pool: HTTP1Owner) {
    self.pool = pool
    super.init(owner, sending: pieces)
  }

  public override var isHalfDuplex: Bool { true }
  public override var lacksConnection: Bool { isQueued && end == nil }

  public override func open() { _ = borrow(pool) { $0.add(self) } }

  public override func send(_ piece: BodyPiece) {
    append(piece)
    _ = borrow(connection) {
      $0.copyUnsent(piece)
      $0.wantsWrite()
    }
  }

  public override func endBody() {
    endsAfterPieces = true
    _ = borrow(connection) { $0.wantsWrite() }
  }

  public override func consume(_ count: Int) {
    take(count)
    _ = borrow(connection) { $0.consumed(self) }
  }

  public override func leave(_ why: Leave) {
    letGo()
    if let connection = connection.take() { connection.giveUp() }
    if isQueued { _ = borrow(pool) { $0.forget(self) } }
    pool = nil
  }

  /// Called by `connection` when the answer is complete, or can't be completed any more.
  public func finish(_ how: StreamEnd, on connection: HTTP1Connection) {
    finish(how)
    self.connection = nil
  }
}

/// A list of streams, oldest first, linked by `next`.
public struct HTTP1StreamList {
  private var first: HTTP1Stream?
  private var last: HTTP1Stream?
  public private(set) var count = 0

  public init() {}

  public var isEmpty: Bool { count == 0 }

  public mutating func append(_ stream: HTTP1Stream) {
    stream.isQueued = true
    if let last { last.next = stream } else { first = stream }
    last = stream
    count += 1
  }

  public mutating func popFirst() -> HTTP1Stream? {
    guard let stream = first else { return nil }
    first = stream.next.take()
    if first == nil { last = nil }
    stream.isQueued = false
    count -= 1
    return stream
  }

  public mutating func remove(_ stream: HTTP1Stream) {
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
