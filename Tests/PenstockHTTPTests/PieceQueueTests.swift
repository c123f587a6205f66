import PenstockLoop
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockHTTP

/// The queue of the pieces of a body.
@Suite struct PieceQueueTests {
  private func piece(_ n: Int, _ message: [UInt8]) -> BodyPiece {
    BodyPiece(prefix: UInt64(n), size: 1, message.withUnsafeBytes { ByteBuffer(copying: $0) ?? ByteBuffer() })
  }

  /// Moves up to `most` bytes. Returns how many pieces have moved completely; -1: there was no memory.
  private func move(_ most: Int, of queue: inout PieceQueue, into out: SendQueue) -> Int {
    queue.move(min(most, queue.bytes), into: out) ?? -1
  }

  /// Pieces leave in order, in steps of any size, and also if further ones come meanwhile.
  @Test(arguments: [1, 3, 7, 64, 1000])
  func order(_ step: Int) {
    var queue = PieceQueue()
    let out = SendQueue(copies: true)
    var (wanted, through) = ([UInt8](), 0)
    for n in 0..<400 {
      let message = [UInt8](repeating: UInt8(n & 255), count: n % 5)
      queue.append(piece(n & 255, message))
      wanted += [UInt8(n & 255)] + message
      if n % 3 == 0 { through += move(step, of: &queue, into: out) }
    }
    while queue.bytes > 0 { through += move(step, of: &queue, into: out) }
    #expect(through == 400 && Array(out.bytes.view) == wanted)
  }

  /// Nothing is left after removal, whatever was moved before: no bytes, and no message in memory. What comes then is
  /// a body of its own.
  @Test(arguments: [0, 1, 3, 5, 12])
  func removal(_ moved: Int) {
    var queue = PieceQueue()
    var pieces = (0..<4).map { piece($0, [1, 2, 3]) }
    let messages = pieces.map { Weak($0.bytes) }
    for piece in pieces { queue.append(piece) }
    pieces = []
    _ = move(moved, of: &queue, into: SendQueue(copies: true))
    queue.removeAll()
    #expect(messages.allSatisfy { $0.object == nil } && queue.bytes == 0)
    queue.append(piece(9, [4]))
    let out = SendQueue(copies: true)
    let through = move(2, of: &queue, into: out)
    #expect(through == 1 && Array(out.bytes.view) == [9, 4] && queue.bytes == 0)
  }

  private struct Weak {
    weak var object: ByteBuffer?
    init(_ object: ByteBuffer) { self.object = object }
  }
}
