import PenstockCall
import PenstockLoop
import PenstockWire

/// The spans that have ended and that no reader has taken yet, as they are sent: fields "spans" of ScopeSpans, one
/// behind the other. When it is full, it refuses further spans, and counts them.
final class SpanStore: @unchecked Sendable {
  /// Numbers of spans.
  struct Counts {
    /// Those that are here now.
    var kept: UInt64 = 0
    var bytes: UInt64 = 0
    /// Those that were read as JSON, or that a collector has accepted.
    var taken: UInt64 = 0
    /// Those for which there was no room (`maxSpans`, `maxSpanBytes`) or no memory.
    var dropped: UInt64 = 0
    /// Those that a collector has refused.
    var refused: UInt64 = 0
  }

  private let most: Int
  private let mostBytes: Int
  private let lock = Lock()
  private let queue = ByteBuffer()
  private var counts = Counts()
  private var isTaken = false
  private var mark = ForkMark()

  /// The number of the field "spans" in ScopeSpans.
  static let field: UInt32 = 2

  init(most: Int, bytes: Int) {
    self.most = most
    mostBytes = bytes
  }

  /// Takes the lock. In a forked child it first forgets the spans, which are the parent's to send, and the thread that
  /// took some in the parent.
  private func enter() {
    lock.lock()
    guard mark.hasForked() else { return }
    queue.removeAll(keepingCapacity: false)
    counts = Counts()
    isTaken = false
  }

  var figures: Counts {
    enter()
    defer { lock.unlock() }
    counts.bytes = UInt64(queue.count)
    return counts
  }

  /// Keeps a span; nil: there was no memory to write it.
  func keep(_ span: ByteBuffer?) {
    enter()
    defer { lock.unlock() }
    guard let span, counts.kept < most, let size = ProtoWriter.bytesFieldSize(SpanStore.field, span.count),
      size <= mostBytes - queue.count, queue.reserve(size)
    else {
      counts.dropped += 1
      return
    }
    var writer = ProtoWriter(into: queue)
    let before = queue.count
    writer.bytes(SpanStore.field, span.view)
    guard writer.isComplete else {
      queue.truncate(to: before)
      counts.dropped += 1
      return
    }
    counts.kept += 1
  }

  /// Begins to take spans. False: another thread takes some.
  func beginTaking() -> Bool {
    enter()
    defer { lock.unlock() }
    let wasTaken = isTaken
    isTaken = true
    return !wasTaken
  }

  func endTaking() { lock.withLock { isTaken = false } }

  /// A copy of the oldest spans: at most `number`, and of more than one no more than `bytes` bytes. `count` is their number.
  /// They stay here until `remove`. nil: no memory.
  func oldest(_ number: Int, bytes: Int) -> (spans: ByteBuffer, count: Int)? {
    lock.lock()
    defer { lock.unlock() }
    var reader = ProtoReader(queue.view)
    var count = 0
    var size = 0
    while count < number, case .field(_, .bytes(let span)) = reader.next() {
      guard let more = ProtoWriter.bytesFieldSize(SpanStore.field, span.count) else { break }
      if count > 0, size + more > bytes { break }
      count += 1
      size += more
    }
    return ByteBuffer(copying: ByteView(rebasing: queue.view[..<size])).map { ($0, count) }
  }

  /// Removes the oldest spans, `count` of them with these bytes. `refused`: how many of them a collector has refused.
  func remove(_ spans: ByteBuffer, _ count: Int, refused: Int) {
    lock.lock()
    defer { lock.unlock() }
    queue.consume(spans.count)
    if queue.isEmpty { queue.removeAll(keepingCapacity: false) }
    counts.kept -= UInt64(count)
    counts.refused += UInt64(refused)
    counts.taken += UInt64(count - refused)
  }
}
