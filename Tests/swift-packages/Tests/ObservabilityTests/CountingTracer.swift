import Synchronization
import Tracing

/// A span that counts how often it ends.
final class CountedSpan: Span {
  let context: ServiceContext
  private let name: Mutex<String>
  private let ends = Mutex(0)
  private let values = Mutex(SpanAttributes())

  init(_ name: String, _ context: ServiceContext) {
    self.name = Mutex(name)
    self.context = context
  }

  var operationName: String {
    get { name.withLock { $0 } }
    set { name.withLock { $0 = newValue } }
  }
  var attributes: SpanAttributes {
    get { values.withLock { $0 } }
    set { values.withLock { $0 = newValue } }
  }
  var endCount: Int { ends.withLock { $0 } }
  var isRecording: Bool { endCount == 0 }
  func setStatus(_ status: SpanStatus) {}
  func addEvent(_ event: SpanEvent) {}
  func addLink(_ link: SpanLink) {}
  func recordError<Instant: TracerInstant>(
    _ error: any Error, attributes: SpanAttributes, at instant: @autoclosure () -> Instant
  ) {}
  func end<Instant: TracerInstant>(at instant: @autoclosure () -> Instant) { ends.withLock { $0 += 1 } }
}

/// A tracer that counts how often each span ends, and that writes a field of text and one of bytes.
final class CountingTracer: Tracer {
  private let made = Mutex<[CountedSpan]>([])
  var spans: [CountedSpan] { made.withLock { $0 } }

  func startSpan<Instant: TracerInstant>(
    _ name: String, context: @autoclosure () -> ServiceContext, ofKind kind: SpanKind,
    at instant: @autoclosure () -> Instant, function: String, file: String, line: UInt
  ) -> CountedSpan {
    let span = CountedSpan(name, context())
    made.withLock { $0.append(span) }
    return span
  }

  func forceFlush() {}

  func inject<Carrier, Inject: Injector>(
    _ context: ServiceContext, into carrier: inout Carrier, using injector: Inject
  ) where Inject.Carrier == Carrier {
    injector.inject("text", forKey: "X-Trace-Text", into: &carrier)
    injector.inject("AAEC/w", forKey: "x-trace-bin", into: &carrier)
    // A field that belongs to the protocol can't be set.
    injector.inject("1S", forKey: "grpc-timeout", into: &carrier)
  }

  func extract<Carrier, Extract: Extractor>(
    _ carrier: Carrier, into context: inout ServiceContext, using extractor: Extract
  ) where Extract.Carrier == Carrier {}
}
