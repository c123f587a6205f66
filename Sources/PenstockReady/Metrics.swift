import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockClient

/// Metrics: counters and histograms by method and status code. Any number of interceptors may share one
/// object. A reader takes a reference to the arrays and then unlocks the lock. If a count changes while it
/// reads, only the changed part of the arrays is copied.
public final class Metrics: @unchecked Sendable {
  public struct Options {
    /// The upper bounds of the histogram's buckets, in nanoseconds, increasing.
    public var buckets: [UInt64] = [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000].map {
      $0 * 1_000_000
    }
    public var maxMethods = 256

    public init() {}
  }

  /// The calls of one method that have ended with one status code.
  struct Ended {
    let code: StatusCode
    var count: UInt64 = 0
    var nanoseconds: UInt64 = 0
    /// One bucket for each bound in the options, and a last one for the calls that took longer.
    var buckets: [UInt64]
  }

  struct Method {
    /// The path of the method; nil: this entry counts all methods beyond the first `maxMethods`.
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

  /// Calls `body` with the counts. The reference to the arrays is released while the lock is held: so the
  /// next change finds it gone and need not copy the arrays.
  func read<Result>(_ body: ([Method]) -> Result) -> Result {
    var lent = lock.withLock { methods }
    let result = body(lent)
    lock.lock()
    withExtendedLifetime(lent) {}
    lent = []
    lock.unlock()
    return result
  }

  /// Counts the start of a call, and returns the index of its method.
  fileprivate func begin(_ path: ByteView, _ kind: CallKind) -> Int {
    lock.lock()
    defer { lock.unlock() }
    let method = index(path, kind)
    methods[method].started += 1
    return method
  }

  private func index(_ path: ByteView, _ kind: CallKind) -> Int {
    for method in 0..<methods.count where methods[method].kind == kind {
      if let known = methods[method].path, bytesEqual(known.view, path) { return method }
    }
    let isRoom = methods.count < options.maxMethods
    let copy = isRoom ? ByteBuffer(copying: path) : nil
    if copy == nil, let method = methods.firstIndex(where: { $0.path == nil && $0.kind == kind }) {
      return method
    }
    methods.append(Method(path: copy, kind: kind))
    return methods.count - 1
  }

  fileprivate func end(_ method: Int, _ code: StatusCode, _ nanoseconds: UInt64, _ call: Call) {
    let bucket = options.buckets.firstIndex { nanoseconds <= $0 } ?? options.buckets.count
    lock.lock()
    defer { lock.unlock() }
    methods[method].ended += 1
    methods[method].sentMessages += call.measures.sent.messages.value
    methods[method].sentBytes += call.measures.sent.bytes.value
    methods[method].receivedMessages += call.measures.received.messages.value
    methods[method].receivedBytes += call.measures.received.bytes.value
    let known = methods[method].codes.firstIndex { $0.code == code }
    if known == nil {
      methods[method].codes.append(
        Ended(code: code, buckets: [UInt64](repeating: 0, count: options.buckets.count + 1)))
    }
    let index = known ?? methods[method].codes.count - 1
    methods[method].codes[index].count += 1
    methods[method].codes[index].nanoseconds += nanoseconds
    methods[method].codes[index].buckets[bucket] += 1
  }
}

/// The object behind the `user_data` of an interceptor that counts calls in a `Metrics` object.
public final class MetricsInterceptor: ReadyInterceptor {
  private final class Timed {
    let metrics: Metrics
    let method: Int
    let startedAt: UInt64
    var isEnded = false

    init(_ metrics: Metrics, _ hop: Hop) {
      self.metrics = metrics
      startedAt = hop.platform.clock()
      let request = hop.call.request
      method = metrics.begin(request.pathView, request.kind)
    }

    func end(_ code: StatusCode, _ hop: Hop) {
      guard !isEnded else { return }
      isEnded = true
      metrics.end(method, code, hop.platform.clock() - startedAt, hop.call)
    }
  }

  private let metrics: Metrics

  public init(_ metrics: Metrics) {
    self.metrics = metrics
    var callbacks = Registration.Callbacks()
    callbacks.create = { handle, userData, out in
      let (hop, this) = behind(handle, userData, MetricsInterceptor.self)
      return keep(Timed(this.metrics, hop), out)
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
