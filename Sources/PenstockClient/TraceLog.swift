import CPenstockMemory
import PenstockCall
import PenstockWire
import PenstockLoop

/// The trace of one call: the most recent events, and the number of older events that were dropped. Any
/// thread.
public final class TraceLog: CallTrace, @unchecked Sendable {
  public static let defaultEvents = 256

  /// The label of a hop in the trace. The name ends with a NUL.
  public struct HopLabel {
    public let name: ByteBuffer
    public let level: Level
  }

  /// A copy of the notes (recorded events) that are still in the log, oldest first.
  public final class Copy {
    public let notes: UnsafeMutablePointer<TraceNote>
    public let count: Int
    public let dropped: UInt64

    fileprivate init(_ notes: UnsafeMutablePointer<TraceNote>, _ count: Int, _ dropped: UInt64) {
      self.notes = notes
      self.count = count
      self.dropped = dropped
    }

    deinit { cm_free(notes) }
  }

  public let hops: [HopLabel]
  private let limit: Int
  private let lock = Lock()
  /// The notes (recorded events). Their memory comes from malloc, because the user chooses the limit on their
  /// number. If memory runs out, the oldest notes are dropped.
  private var notes: UnsafeMutablePointer<TraceNote>?
  private var room = 0
  private var count = 0
  /// The index of the oldest note. It is not 0 only after notes were dropped.
  private var first = 0
  private var dropped: UInt64 = 0

  init(_ chain: Chain?, _ limit: Int) {
    self.limit = limit
    hops = (chain?.entries ?? []).map { HopLabel(name: $0.registration.name, level: $0.level) }
  }

  deinit { cm_free(notes) }

  private static func size(_ count: Int) -> Int { count * MemoryLayout<TraceNote>.stride }

  public func note(_ note: TraceNote) {
    lock.lock()
    defer { lock.unlock() }
    if count == room, dropped == 0, room < limit {
      let wanted = min(limit, max(16, room * 2))
      if let larger = cm_realloc(notes, TraceLog.size(wanted)) {
        notes = larger.assumingMemoryBound(to: TraceNote.self)
        room = wanted
      }
    }
    if let notes, count < room {
      notes[count] = note
      count += 1
      return
    }
    dropped += 1
    guard let notes else { return }
    notes[first] = note
    first = first + 1 == count ? 0 : first + 1
  }

  /// Returns a copy of the notes; nil: no memory for the copy.
  public func copy() -> Copy? {
    lock.lock()
    defer { lock.unlock() }
    guard let copy = cm_alloc(TraceLog.size(max(count, 1)))?.assumingMemoryBound(to: TraceNote.self) else {
      return nil
    }
    if let notes {
      memcpy(copy, notes + first, TraceLog.size(count - first))
      memcpy(copy + (count - first), notes, TraceLog.size(first))
    }
    return Copy(copy, count, dropped)
  }
}

/// The facts about a call for its trace and for snapshots.
public struct CallRecord {
  public let id: UInt64
  public let kind: CallKind
  public let createdAt: UInt64
  /// The path and the target, each with a NUL at its end.
  public let path: ByteBuffer
  public let target: ByteBuffer
  public let log: TraceLog?

  /// Collects the facts about a call, with its present path. Called on the driving thread.
  init(_ call: Call) { self.init(call, call.request.path, call.measures.createdAt.value) }

  /// Collects the facts about a call, with the given path. Any thread.
  init(_ call: Call, _ path: ByteBuffer, _ createdAt: UInt64) {
    id = call.id
    kind = call.request.kind
    self.createdAt = createdAt
    self.path = path
    target = call.request.route?.target ?? call.origin.target
    // The cast is safe, because `TraceLog` is the only subclass of `CallTrace`.
    log = call.trace.map { unsafeDowncast($0, to: TraceLog.self) }
  }
}
