import PenstockCall
import PenstockLoop
import PenstockNames
import PenstockWire

/// OpenTelemetry: the metrics of gRFC A66 and the spans of gRFC A72, which any number of interceptors record into one
/// object. Readers get them as OTLP or in Prometheus' format.
///
/// The counts are cumulative. As in `Metrics`, a reader takes a reference to the arrays; if a count changes while it
/// reads, only the changed part is copied.
public final class Telemetry: @unchecked Sendable {
  /// An attribute of the resource.
  public struct Attribute {
    let key: ByteBuffer
    let value: ByteBuffer

    public init(_ key: ByteBuffer, _ value: ByteBuffer) {
      self.key = key
      self.value = value
    }
  }

  public struct Options {
    public var resource: [Attribute] = []
    public var metrics = true
    public var spans = true
    /// Whether the messages of an attempt are events of its span.
    public var messages = true
    public var sampled = Chance(percent: 100)
    public var maxMethods = 256
    public var maxSpans = 2048
    public var maxSpanBytes = 4_194_304
    /// The library's version, which lives as long as the process.
    public var version = ("" as StaticString).bytes

    public init() {}
  }

  /// The attempts and calls of one method that have ended with one status code.
  struct Ended {
    let code: StatusCode
    /// In nanoseconds.
    var callDuration = Histogram()
    var attemptDuration = Histogram()
    /// The bytes of the messages of an attempt, after compression.
    var sent = Histogram()
    var received = Histogram()
  }

  struct Method {
    /// The method without its first slash; nil: this entry counts all methods beyond the first `maxMethods`.
    let name: ByteBuffer?
    /// The target of the channel as the program gave it, and as it is shown; nil for that entry.
    let target: ByteBuffer?
    let shownTarget: ByteBuffer?
    var attempts: UInt64 = 0
    var codes: [Ended] = []

    func isSame(_ method: ByteView, _ shown: ByteBuffer) -> Bool {
      guard let name, let shownTarget else { return false }
      return withExtendedLifetime(shown) {
        bytesEqual(name.view, method) && bytesEqual(shownTarget.view, shown.view)
      }
    }
  }

  let options: Options
  public let generation = Process.generation
  let spans: SpanStore
  let exports = ExportTally()
  public var exportFigures: Exports { exports.figures }
  let dice = Dice(seed: nil)
  let bounds = Bounds()
  private let platform = Platform()
  private let lock = Lock()
  /// Nanoseconds since 1970: the counts are those since then.
  private var since: UInt64
  private var methods: [Method] = []
  private var mark = ForkMark()

  public init(_ options: Options) {
    self.options = options
    since = platform.wallClock()
    spans = SpanStore(most: options.maxSpans, bytes: options.maxSpanBytes)
  }

  /// Nanoseconds since 1970.
  var now: UInt64 { platform.wallClock() }

  /// The monotonic time in nanoseconds.
  var clock: UInt64 { platform.clock() }

  /// Whether calls of the method are exports, which are not recorded: each export would be followed by another.
  static func isExport(_ path: ByteView) -> Bool {
    let package = ("/opentelemetry.proto.collector." as StaticString).bytes
    return path.count >= package.count && bytesEqual(ByteView(rebasing: path[..<package.count]), package)
  }

  /// Takes the lock. In a forked child it first begins to count anew, because the counts until then are the parent's.
  private func enter() {
    lock.lock()
    guard mark.hasForked() else { return }
    methods = []
    since = platform.wallClock()
  }

  /// Calls `body` with the counts, and the time since which they are counted. The reference to the array is released
  /// while the lock is held: so the next change finds it gone and need not copy the array.
  func read<Result>(_ body: (_ methods: [Method], _ since: UInt64) -> Result) -> Result {
    enter()
    var lent = methods
    let begin = since
    lock.unlock()
    let result = body(lent, begin)
    lock.lock()
    withExtendedLifetime(lent) {}
    lent = []
    lock.unlock()
    return result
  }

  /// The index of a method, which begins to be counted if it is new. `path` begins with a slash.
  func method(_ path: ByteView, _ target: ByteView) -> Int {
    let name = ByteView(rebasing: path.dropFirst())
    enter()
    defer { lock.unlock() }
    var others: Int?
    for index in 0..<methods.count {
      guard let known = methods[index].name, let channel = methods[index].target else {
        others = index
        continue
      }
      if bytesEqual(known.view, name), bytesEqual(channel.view, target) { return index }
    }
    let shown = Target.canonical(target)
    // Another channel may write the same target in another way.
    if let shown, let same = methods.firstIndex(where: { $0.isSame(name, shown) }) { return same }
    // The entry for the others is not one of the `maxMethods`.
    let hasRoom = methods.count - (others == nil ? 0 : 1) < options.maxMethods
    if hasRoom, let shown, let channel = ByteBuffer(copying: target), let copy = ByteBuffer(copying: name) {
      methods.append(Method(name: copy, target: channel, shownTarget: shown))
    } else if let others {
      return others
    } else {
      methods.append(Method(name: nil, target: nil, shownTarget: nil))
    }
    return methods.count - 1
  }

  /// How many methods are counted apart, and 1 more if there are others.
  var methodCount: Int {
    enter()
    defer { lock.unlock() }
    return methods.count
  }

  func attemptStarted(_ method: Int) { lock.withLock { methods[method].attempts += 1 } }

  func attemptEnded(_ method: Int, _ code: StatusCode, _ nanoseconds: UInt64, sent: UInt64, received: UInt64)
  {
    change(method, code) { ended in
      ended.attemptDuration.record(nanoseconds, bounds.durations)
      ended.sent.record(sent, bounds.sizes)
      ended.received.record(received, bounds.sizes)
    }
  }

  func callEnded(_ method: Int, _ code: StatusCode, _ nanoseconds: UInt64) {
    change(method, code) { $0.callDuration.record(nanoseconds, bounds.durations) }
  }

  private func change(_ method: Int, _ code: StatusCode, _ body: (inout Ended) -> Void) {
    lock.lock()
    defer { lock.unlock() }
    let known = methods[method].codes.firstIndex { $0.code == code }
    if known == nil { methods[method].codes.append(Ended(code: code)) }
    body(&methods[method].codes[known ?? methods[method].codes.count - 1])
  }
}

/// A histogram; it takes room for its buckets with the first value.
struct Histogram {
  /// One for each bound, and a last one for larger values.
  private(set) var buckets: [UInt64] = []
  private(set) var count: UInt64 = 0
  private(set) var sum: UInt64 = 0

  mutating func record(_ value: UInt64, _ bounds: [UInt64]) {
    if buckets.isEmpty { buckets = [UInt64](repeating: 0, count: bounds.count + 1) }
    buckets[bounds.firstIndex { value <= $0 } ?? bounds.count] += 1
    count += 1
    sum &+= value
  }
}

/// The upper bounds of buckets that gRFC A66 gives.
struct Bounds {
  /// In nanoseconds.
  let durations: [UInt64] = [
    0, 10, 50, 100, 300, 600, 800, 1000, 2000, 3000, 4000, 5000, 6000, 8000, 10000, 13000, 16000, 20000,
    25000,
    30000, 40000, 50000, 65000, 80000, 100_000, 130_000, 160_000, 200_000, 250_000, 300_000, 400_000, 500_000,
    650_000, 800_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 20_000_000, 50_000_000, 100_000_000,
  ].map { $0 * 1000 }
  let sizes: [UInt64] = [0] + [0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22].map { 1024 << $0 }
}
