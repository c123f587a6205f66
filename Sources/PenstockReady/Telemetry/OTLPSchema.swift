import PenstockCall
import PenstockWire

/// The messages of OTLP that this library writes, with the names that their fields have in OTLP/JSON. The text in JSON is
/// made from the message in protobuf, so the two can't differ.
enum OTLPSchema {
  case metricsRequest, resourceMetrics, scopeMetrics, metric, sum, histogram, number, histogramPoint
  case tracesRequest, resourceSpans, scopeSpans, span, event, status
  case resource, scope, attribute, value

  enum Kind {
    /// 64-bit integers are strings of digits in JSON; enums and other integers are numbers.
    case text, flag, integer, small, double
    /// The ids of traces and spans, which OTLP/JSON has as hexadecimal digits.
    case id
    /// Packed fields.
    case integers, doubles
    case message(OTLPSchema)
    case messages(OTLPSchema)
  }

  struct Field {
    let name: StaticString
    let kind: Kind

    init(_ name: StaticString, _ kind: Kind) {
      self.name = name
      self.kind = kind
    }
  }

  /// The field with this number; nil: the library does not write it.
  func field(_ number: UInt32) -> Field? {
    switch (self, number) {
    case (.metricsRequest, 1): Field("resourceMetrics", .messages(.resourceMetrics))
    case (.resourceMetrics, 1), (.resourceSpans, 1): Field("resource", .message(.resource))
    case (.resourceMetrics, 2): Field("scopeMetrics", .messages(.scopeMetrics))
    case (.scopeMetrics, 1), (.scopeSpans, 1): Field("scope", .message(.scope))
    case (.scopeMetrics, 2): Field("metrics", .messages(.metric))
    case (.metric, 1), (.scope, 1), (.span, 5), (.event, 2): Field("name", .text)
    case (.metric, 2): Field("description", .text)
    case (.metric, 3): Field("unit", .text)
    case (.metric, 7): Field("sum", .message(.sum))
    case (.metric, 9): Field("histogram", .message(.histogram))
    case (.sum, 1): Field("dataPoints", .messages(.number))
    case (.histogram, 1): Field("dataPoints", .messages(.histogramPoint))
    case (.sum, 2), (.histogram, 2): Field("aggregationTemporality", .small)
    case (.sum, 3): Field("isMonotonic", .flag)
    case (.number, 2), (.histogramPoint, 2), (.span, 7): Field("startTimeUnixNano", .integer)
    case (.number, 3), (.histogramPoint, 3), (.event, 1): Field("timeUnixNano", .integer)
    case (.number, 6): Field("asInt", .integer)
    case (.number, 7), (.histogramPoint, 9), (.span, 9), (.event, 3), (.resource, 1):
      Field("attributes", .messages(.attribute))
    case (.histogramPoint, 4): Field("count", .integer)
    case (.histogramPoint, 5): Field("sum", .double)
    case (.histogramPoint, 6): Field("bucketCounts", .integers)
    case (.histogramPoint, 7): Field("explicitBounds", .doubles)
    case (.tracesRequest, 1): Field("resourceSpans", .messages(.resourceSpans))
    case (.resourceSpans, 2): Field("scopeSpans", .messages(.scopeSpans))
    case (.scopeSpans, 2): Field("spans", .messages(.span))
    case (.span, 1): Field("traceId", .id)
    case (.span, 2): Field("spanId", .id)
    case (.span, 3): Field("traceState", .text)
    case (.span, 4): Field("parentSpanId", .id)
    case (.span, 6): Field("kind", .small)
    case (.span, 8): Field("endTimeUnixNano", .integer)
    case (.span, 11): Field("events", .messages(.event))
    case (.span, 12): Field("droppedEventsCount", .small)
    case (.span, 15): Field("status", .message(.status))
    case (.span, 16): Field("flags", .small)
    case (.status, 2): Field("message", .text)
    case (.status, 3): Field("code", .small)
    case (.scope, 2): Field("version", .text)
    case (.attribute, 1): Field("key", .text)
    case (.attribute, 2): Field("value", .message(.value))
    case (.value, 1): Field("stringValue", .text)
    case (.value, 2): Field("boolValue", .flag)
    case (.value, 3): Field("intValue", .integer)
    default: nil
    }
  }
}

extension JSONText {
  /// Writes a message of OTLP. The elements of a repeated field stand one behind the other.
  func otlp(_ bytes: ByteView, _ schema: OTLPSchema) {
    object {
      var reader = ProtoReader(bytes)
      var step = reader.next()
      while case .field(let number, let value) = step {
        guard let field = schema.field(number) else {
          step = reader.next()
          continue
        }
        key(field.name)
        if case .messages(let element) = field.kind {
          array {
            while case .field(number, .bytes(let message)) = step {
              otlp(message, element)
              step = reader.next()
            }
          }
        } else {
          otlp(value, field.kind)
          step = reader.next()
        }
      }
    }
  }

  private func otlp(_ value: ProtoReader.Value, _ kind: OTLPSchema.Kind) {
    switch (kind, value) {
    case (.text, .bytes(let text)): string(text)
    case (.id, .bytes(let id)): hex(id)
    case (.flag, .varint(let flag)): bool(flag != 0)
    case (.small, .varint(let number)): self.number(number)
    case (.small, .fixed32(let number)): self.number(UInt64(number))
    case (.integer, .varint(let number)), (.integer, .fixed64(let number)): quoted(number)
    case (.double, .fixed64(let bits)): double(Double(bitPattern: bits))
    case (.integers, .bytes(let packed)): array { each(packed) { quoted($0) } }
    case (.doubles, .bytes(let packed)): array { each(packed) { double(Double(bitPattern: $0)) } }
    case (.message(let schema), .bytes(let message)): otlp(message, schema)
    default: null()
    }
  }

  /// Calls `body` for each element of a packed field of 8 bytes each.
  private func each(_ packed: ByteView, _ body: (UInt64) -> Void) {
    for start in stride(from: 0, to: packed.count - 7, by: 8) {
      var bits: UInt64 = 0
      for n in 0..<8 { bits |= UInt64(packed[start + n]) << UInt64(8 * n) }
      body(bits)
    }
  }

  /// Writes a number that is whole, or whole as nanoseconds: sizes are the one, durations in seconds the other.
  private func double(_ value: Double) {
    let whole = UInt64(min(value, 0x1p63))
    if Double(whole) == value || value > 9e9 {
      number(whole)
    } else {
      seconds(UInt64(value * 1e9 + 0.5))
    }
  }
}

extension Telemetry {
  /// The metrics as an ExportMetricsServiceRequest in OTLP/JSON, followed by a NUL; nil: no memory.
  public func metricsJSON() -> ByteBuffer? {
    metricsRequest().flatMap { Telemetry.json($0, .metricsRequest) }
  }

  /// Takes the spans, as an ExportTraceServiceRequest in OTLP/JSON, followed by a NUL. `.busy`: another thread takes
  /// some.
  public func takeSpansJSON() -> (Outcome, ByteBuffer?) {
    guard spans.beginTaking() else { return (.busy, nil) }
    defer { spans.endTaking() }
    guard let (oldest, count) = spans.oldest(.max, bytes: .max), let request = tracesRequest(oldest),
      let text = Telemetry.json(request, .tracesRequest)
    else { return (.noMemory, nil) }
    spans.remove(oldest, count, refused: 0)
    return (.ok, text)
  }

  private static func json(_ request: ByteBuffer, _ schema: OTLPSchema) -> ByteBuffer? {
    let text = JSONText()
    text.otlp(request.view, schema)
    withExtendedLifetime(request) {}
    return text.isComplete && text.buffer.append(byte: 0) ? text.buffer : nil
  }
}
