import PenstockCall
import PenstockClient
import PenstockLoop
import PenstockWire

/// The requests to a collector.
extension Telemetry {
  /// How many requests were sent, and the last failure or the last warning of a collector.
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
      // If the collector is slow, half of the time is left for the spans.
      let (outcome, code) = sendMetrics(over: channel, until: options.spans ? until &- time / 2 : until)
      guard outcome == .ok else { return (outcome, code) }
      first = code
    }
    // Spans that come meanwhile wait for the next export, so this one ends.
    var left = Int(clamping: spans.figures.kept)
    while left > 0 {
      let path: StaticString = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
      guard let (oldest, count) = spans.oldest(min(left, Telemetry.mostSpans), bytes: Telemetry.mostBytes),
        count > 0, let request = tracesRequest(oldest)
      else { return (.noMemory, first) }
      let (outcome, answer) = send(request, path, channel, until)
      guard let answer else { return (outcome, first) }
      left -= count
      if first == .ok { first = answer.code }
      if answer.mayRetry { break }
      let refused = answer.code == .ok ? Int(min(answer.rejected, UInt64(count))) : count
      spans.remove(oldest, count, refused: refused)
    }
    return (.ok, first)
  }

  /// Sends the metrics, in requests of about `mostBytes`.
  private func sendMetrics(over channel: ClientChannel, until: UInt64) -> (Outcome, StatusCode) {
    let path: StaticString = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
    let count = methodCount
    var first = StatusCode.ok
    var next = 0
    var number = count
    repeat {
      guard let request = metricsRequest(next..<(next + number)) else { return (.noMemory, first) }
      if request.count > Telemetry.mostBytes, number > 1 {
        number = (number + 1) / 2
        continue
      }
      let (outcome, answer) = send(request, path, channel, until)
      guard let answer else { return (outcome, first) }
      if first == .ok { first = answer.code }
      if answer.mayRetry { break }
      next += number
      number = min(number, count - next)
    } while next < count
    return (.ok, first)
  }

  /// How a request has ended.
  private struct Answer {
    let code: StatusCode
    /// Whether the request may be sent again, with the next export.
    let mayRetry: Bool
    /// How many spans or data points the collector has rejected of a request that it has taken.
    let rejected: UInt64
  }

  private func send(
    _ request: ByteBuffer, _ path: StaticString, _ channel: ClientChannel, _ until: UInt64
  ) -> (Outcome, Answer?) {
    let options = CallOptions()
    // A limit of the channel, which is for other calls, would hold the same spans back for ever.
    options.maxSendBytes = Int(Int32.max)
    let now = clock
    options.hasDeadline = true
    options.deadline = until > now ? until - now : 0
    let (outcome, made) = ClientCall.make(channel, path.bytes, .unary, options, nil)
    guard let made else { return (outcome, nil) }
    defer { made.release() }
    return made._withUnsafeGuaranteedRef { call in
      // The channel's codec and its content-type are for the messages of other calls.
      call.call.codec = nil
      call.call.request.labels = nil
      let (result, ended) = call.unary(.passRetained(request), options)
      guard result == .ok, let reply = ended?.takeRetainedValue() else { return (result, nil) }
      let status = reply.status
      let (rejected, warning) = status.code == .ok ? Telemetry.partialSuccess(reply.message) : (0, nil)
      exports.note(status, warning)
      // Without a byte of the request the collector has not refused it: its status is that of the library, as when memory
      // runs out, or of an interceptor, such as one that finds no token.
      let wasSent = call.call.measures.firstByteSentAt.value > 0
      let mayRetry = status.code != .ok && (!wasSent || Telemetry.mayRetry(status))
      return (.ok, Answer(code: status.code, mayRetry: mayRetry, rejected: rejected))
    }
  }

  /// Whether OTLP lets a request be sent again after a collector's status. After RESOURCE_EXHAUSTED only if the collector
  /// says when to come back; else a request that is too large for it would stand before all others for ever.
  private static func mayRetry(_ status: Status) -> Bool {
    let code = status.code
    if code == .resourceExhausted {
      return status.findDetail(("google.rpc.RetryInfo" as StaticString).bytes) != nil
    }
    return code == .cancelled || code == .deadlineExceeded || code == .aborted || code == .outOfRange
      || code == .unavailable || code == .dataLoss
  }

  /// Reads "partial_success" of an ExportTraceServiceResponse or an ExportMetricsServiceResponse: how many spans or data
  /// points were rejected, and the collector's message about that or about something else; nil: it has none.
  private static func partialSuccess(_ response: Message?) -> (rejected: UInt64, warning: Status?) {
    guard let response else { return (0, nil) }
    return withExtendedLifetime(response) {
      var rejected: UInt64 = 0
      var warning: Status?
      var reader = ProtoReader(response.view)
      while case .field(let number, let value) = reader.next() {
        guard number == 1, case .bytes(let partial) = value else { continue }
        var inner = ProtoReader(partial)
        while case .field(let number, let value) = inner.next() {
          switch (number, value) {
          case (1, .varint(let count)): rejected = Int64(bitPattern: count) < 0 ? 0 : count
          case (2, .bytes(let message)) where !message.isEmpty: warning = Status(.ok, message)
          default: break
          }
        }
      }
      return (rejected, warning)
    }
  }
}

/// Counts the requests to collectors.
final class ExportTally: @unchecked Sendable {
  private let lock = Lock()
  private var tally = Telemetry.Exports()

  private var mark = ForkMark()

  var figures: Telemetry.Exports {
    enter()
    defer { lock.unlock() }
    return tally
  }

  /// Takes the lock. The requests of its parent are none of a forked child's.
  private func enter() {
    lock.lock()
    if mark.hasForked() { tally = Telemetry.Exports() }
  }

  /// `warning`: the collector's message about a request that it has taken.
  func note(_ status: Status, _ warning: Status?) {
    enter()
    let last = tally.failure
    tally.sent += 1
    if status.code != .ok {
      tally.failed += 1
      tally.failure = status
    } else if let warning {
      tally.failure = warning
    }
    lock.unlock()
    withExtendedLifetime(last) {}
  }
}
