import PenstockCall
import PenstockTransport
import PenstockWire

/// Metrics: counters and histograms by method and code, for any number of tables. A reader takes the arrays as they
/// are and lets go of the lock; the next change copies the part that it changes.
public final class Metrics: @unchecked Sendable {
  public struct Options {
    /// Nanoseconds, rising.
    public var buckets: [UInt64] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000].map {
      $0 * 1_000_000
    }
    public var maxMethods = 256

    public init() {}
  }

  /// The calls of a method that ended with one code.
  struct Ended {
    let code: StatusCode
    var count: UInt64 = 0
    var nanoseconds: UInt64 = 0
    /// One bucket for each bound in the options, and one for all calls that took longer.
    var buckets: [UInt64]
  }

  struct Method {
    /// nil: all that came when there were too many.
    let path: ByteBuffer?
    let kind: CallKind
    var started: UInt64 = 0
    var ended: UInt64 = 0
    var sentMessages: UInt64 = 0
    var sentBytes: UInt64 = 0
    var receivedMessages: UInt64 = 0
    var receivedBytes: UInt64 = 0
    var codes: [Ended] = []
  }

  let options: Options
  public let generation = Process.generation
  private let lock = Lock()
  private var methods: [Method] = []

  public init(_ options: Options) { self.options = options }

  /// Lends the counts. They are let go under the lock, so that the next change of them, in place, comes after
  /// the last look at it.
  func read<Result>(_ body: ([Method]) -> Result) -> Result {
    var lent = lock.withLock { methods }
    let result = body(lent)
    lock.lock()
    withExtendedLifetime(lent) {}
    lent = []
    lock.unlock()
    return result
  }

  /// The index at which the calls of a method are counted.
  fileprivate func begin(_ path: ByteView, _ kind: CallKind) -> Int {
    lock.lock()
    defer { lock.unlock() }
    let place = index(path, kind)
    methods[place].started += 1
    return place
  }

  private func index(_ path: ByteView, _ kind: CallKind) -> Int {
    for place in 0..<methods.count where methods[place].kind == kind {
      if let known = methods[place].path, bytesEqual(known.view, path) { return place }
    }
    let isRoom = methods.count < options.maxMethods
    let copy = isRoom ? ByteBuffer(copying: path) : nil
    if copy == nil, let place = methods.firstIndex(where: { $0.path == nil && $0.kind == kind }) {
      return place
    }
    methods.append(Method(path: copy, kind: kind))
    return methods.count - 1
  }

  fileprivate func end(_ place: Int, _ code: StatusCode, _ nanoseconds: UInt64, _ call: Call) {
    let bucket = options.buckets.firstIndex { nanoseconds <= $0 } ?? options.buckets.count
    lock.lock()
    defer { lock.unlock() }
    methods[place].ended += 1
    methods[place].sentMessages += call.measures.sent.messages.value
    methods[place].sentBytes += call.measures.sent.bytes.value
    methods[place].receivedMessages += call.measures.received.messages.value
    methods[place].receivedBytes += call.measures.received.bytes.value
    let known = methods[place].codes.firstIndex { $0.code == code }
    if known == nil {
      methods[place].codes.append(
        Ended(code: code, buckets: [UInt64](repeating: 0, count: options.buckets.count + 1)))
    }
    let index = known ?? methods[place].codes.count - 1
    methods[place].codes[index].count += 1
    methods[place].codes[index].nanoseconds += nanoseconds
    methods[place].codes[index].buckets[bucket] += 1
  }
}

/// The object of a table of metrics.
public final class MetricsInterceptor: ReadyInterceptor {
  private final class Timed {
    let metrics: Metrics
    let place: Int
    let startedAt = Runtime.monotonicNow()
    var isEnded = false

    init(_ metrics: Metrics, _ request: Request) {
      self.metrics = metrics
      place = metrics.begin(request.pathView, request.kind)
    }

    func end(_ code: StatusCode, _ hop: Hop) {
      guard !isEnded else { return }
      isEnded = true
      metrics.end(place, code, Runtime.monotonicNow() - startedAt, hop.call)
    }
  }

  private let metrics: Metrics

  public init(_ metrics: Metrics) {
    self.metrics = metrics
    var callbacks = Registration.Callbacks()
    callbacks.create = { handle, userData, place in
      let (hop, this) = behind(handle, userData, MetricsInterceptor.self)
      return keep(Timed(this.metrics, hop.call.request), place)
    }
    let end: HopCallback = { handle, state in
      let (hop, timed) = behind(handle, state, Timed.self)
      timed.end(hop.status?.code ?? .unknown, hop)
      return next
    }
    callbacks.onStatus = end
    callbacks.onCancel = end
    callbacks.destroy = { handle, state in
      let (hop, timed) = behind(handle, state, Timed.self)
      timed.end(.cancelled, hop)
      forget(state, Timed.self)
    }
    super.init("metrics", callbacks)
  }
}
