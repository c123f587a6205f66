import PenstockCall
import PenstockWire

/// The trace of one call: the latest events, and how many had to go. Any thread.
public final class TraceLog: CallTrace, @unchecked Sendable {
  public static let defaultEvents = 256

  /// A hop's, in the order of the chain; the name is followed by a NUL.
  public struct Place {
    public let name: ByteBuffer
    public let level: Level
  }

  public let places: [Place]
  private let limit: Int
  private let lock = Lock()
  private var notes: [TraceNote] = []
  /// The oldest, once there are `limit`.
  private var first = 0
  private var dropped: UInt64 = 0

  init(_ chain: Chain?, _ limit: Int) {
    self.limit = limit
    places = (chain?.entries ?? []).map { Place(name: $0.registration.name, level: $0.level) }
  }

  public func note(_ note: TraceNote) {
    lock.lock()
    defer { lock.unlock() }
    if notes.count < limit {
      notes.append(note)
    } else {
      notes[first] = note
      first = first + 1 == limit ? 0 : first + 1
      dropped += 1
    }
  }

  /// Oldest first.
  public var kept: (notes: [TraceNote], dropped: UInt64) {
    lock.lock()
    defer { lock.unlock() }
    return (Array(notes[first...]) + notes[..<first], dropped)
  }
}

/// What a trace says of its call, whatever has become of it.
public struct CallRecord {
  public let id: UInt64
  public let kind: CallKind
  public let createdAt: UInt64
  /// Each followed by a NUL.
  public let path: ByteBuffer
  public let target: ByteBuffer
  public let log: TraceLog?

  /// The driving thread.
  init(_ call: Call) { self.init(call, call.request.path, call.measures.createdAt.value) }

  /// Any thread.
  init(_ call: Call, _ path: ByteBuffer, _ createdAt: UInt64) {
    id = call.id
    kind = call.request.kind
    self.createdAt = createdAt
    self.path = path
    target = call.request.route?.target ?? call.origin.target
    // There is no other class of traces.
    log = call.trace.map { unsafeDowncast($0, to: TraceLog.self) }
  }
}
