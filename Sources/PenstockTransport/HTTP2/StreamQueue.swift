import PenstockWire

/// Streams that wait to be opened, oldest first. Those that were let go meanwhile are skipped by who takes them out.
struct StreamQueue {
  private var streams: [HTTP2Stream] = []
  private var next = 0

  var count: Int { streams.count - next }
  var isEmpty: Bool { next == streams.count }

  mutating func append(_ stream: HTTP2Stream) { streams.append(stream) }

  var first: HTTP2Stream? { isEmpty ? nil : streams[next] }

  mutating func removeFirst() {
    next += 1
    if next == streams.count {
      streams.clear()
      next = 0
    } else if next >= 256 {
      streams.removeLeading(next)
      next = 0
    }
  }

  @inline(never) @_optimize(size)
  mutating func sweep() {
    streams = streams[next...].filter { $0.state == .queued }
    next = 0
  }

  /// Those that still wait; the queue is empty then.
  @inline(never) @_optimize(size)
  mutating func takeAll() -> [HTTP2Stream] {
    sweep()
    defer { streams = [] }
    return streams
  }
}
