import PenstockCall
import PenstockClient
import PenstockLoop
import PenstockWire

/// The requests to a collector.
extension Telemetry {
  /// How many requests were sent, and the last failure.
  public struct Exports {
    public var sent: UInt64 = 0
    public var failed: UInt64 = 0
    public var failure: Status?
  }

  /// Numbers of spans, for the program.
  public struct SpanFigures {
    public let kept, bytes, taken, dropped, refused: UInt64
  }

  public var spanFigures: SpanFigures {
    let counts = spans.figures
    return SpanFigures(
      kept: counts.kept, bytes: counts.bytes, taken: counts.taken, dropped: counts.dropped,
      refused: counts.refused)
  }

  private static let mostSpans = 512
  private static let mostBytes = 1 << 20

  /// Sends the metrics, and then the spans that are kept now, each request when the one before was answered. `time`: for
  /// all of them, in nanoseconds. `code`: the status of the first that failed. Not on the thread that drives the runtime.
  public func flush(over channel: ClientChannel, for time: UInt64) -> (outcome: Outcome, code: StatusCode) {
    guard spans.beginTaking() else { return (.busy, .ok) }
    defer { spans.endTaking() }
    let until = clock &+ time
    var first = StatusCode.ok
    if options.metrics {
      let path: StaticString = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
      guard let request = metricsRequest() else { return (.noMemory, .ok) }
      let (outcome, reply) = send(request, path, channel, until)
      guard let reply else { return (outcome, .ok) }
      first = reply.status.code
    }
    // Spans that come meanwhile wait for the next export, so this one ends.
    var left = Int(clamping: spans.figures.kept)
    while left > 0 {
      let path: StaticString = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
      guard let (oldest, count) = spans.oldest(min(left, Telemetry.mostSpans), bytes: Telemetry.mostBytes),
        count > 0, let request = tracesRequest(oldest)
      else { return (.noMemory, first) }
      let (outcome, reply) = send(request, path, channel, until)
      guard let reply else { return (outcome, first) }
      left -= count
      let code = reply.status.code
      if first == .ok { first = code }
      if Telemetry.mayRetry(code) { break }
      let refused = code == .ok ? Telemetry.refused(reply.message, of: count) : count
      spans.remove(oldest, count, refused: refused)
    }
    return (.ok, first)
  }

  private func send(
    _ request: ByteBuffer, _ path: StaticString, _ channel: ClientChannel, _ until: UInt64
  ) -> (Outcome, Reply?) {
    let options = CallOptions()
    let now = clock
    options.hasDeadline = true
    options.deadline = until > now ? until - now : 0
    let (outcome, made) = ClientCall.make(channel, path.bytes, .unary, options, nil)
    guard let made else { return (outcome, nil) }
    defer { made.release() }
    return made._withUnsafeGuaranteedRef { call in
      let (result, ended) = call.unary(.passRetained(request), options)
      guard result == .ok, let reply = ended?.takeRetainedValue() else { return (result, nil) }
      exports.note(reply.status)
      return (.ok, reply)
    }
  }

  /// The codes after which OTLP lets a request be sent again. RESOURCE_EXHAUSTED is none of them, unless the collector says
  /// when to come back; else a request that is too large for it would stand before all others for ever.
  private static func mayRetry(_ code: StatusCode) -> Bool {
    code == .cancelled || code == .deadlineExceeded || code == .aborted || code == .outOfRange
      || code == .unavailable || code == .dataLoss
  }

  /// How many spans an ExportTraceServiceResponse says to be refused ("rejected_spans").
  private static func refused(_ response: Message?, of count: Int) -> Int {
    guard let response else { return 0 }
    return withExtendedLifetime(response) {
      var reader = ProtoReader(response.view)
      while case .field(let number, let value) = reader.next() {
        guard number == 1, case .bytes(let partial) = value else { continue }
        var inner = ProtoReader(partial)
        while case .field(let number, let value) = inner.next() {
          if number == 1, case .varint(let refused) = value { return Int(min(refused, UInt64(count))) }
        }
      }
      return 0
    }
  }
}

/// Counts the requests to collectors.
final class ExportTally: @unchecked Sendable {
  private let lock = Lock()
  private var tally = Telemetry.Exports()

  var figures: Telemetry.Exports { lock.withLock { tally } }

  func note(_ status: Status) {
    lock.lock()
    let last = tally.failure
    tally.sent += 1
    if status.code != .ok {
      tally.failed += 1
      tally.failure = status
    }
    lock.unlock()
    withExtendedLifetime(last) {}
  }
}
