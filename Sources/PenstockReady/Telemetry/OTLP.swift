import PenstockCall
import PenstockWire

// The messages of OTLP (opentelemetry-proto 1.x) in protobuf. The numbers are those of the fields in metrics.proto,
// trace.proto, common.proto and resource.proto.

enum AttributeValue {
  case text(ByteView)
  case number(Int64)
  case flag(Bool)
}

extension ProtoWriter {
  /// Writes a KeyValue.
  mutating func attribute(_ field: UInt32, _ key: ByteView, _ value: AttributeValue) {
    message(field) { pair in
      pair.bytes(1, key)
      pair.message(2) { any in
        switch value {
        case .text(let text): any.text(1, text)
        case .flag(let flag): any.bool(2, flag)
        case .number(let number): any.int(3, number)
        }
      }
    }
  }

  mutating func attribute(_ field: UInt32, _ key: StaticString, _ value: AttributeValue) {
    attribute(field, key.bytes, value)
  }

  /// Writes a string; U+FFFD replaces invalid UTF-8, which a reader would refuse.
  mutating func text(_ field: UInt32, _ text: ByteView) {
    if UTF8Repair.isValid(text) { return bytes(field, text) }
    let repaired = ByteBuffer()
    if !UTF8Repair.repair(text, into: repaired) { fail() }
    bytes(field, repaired.view)
    withExtendedLifetime(repaired) {}
  }
}

/// An instrument whose values are a histogram.
enum Instrument {
  case attemptDuration, sent, received, callDuration

  static var all: [Instrument] { [.attemptDuration, .sent, .received, .callDuration] }

  var name: StaticString {
    switch self {
    case .attemptDuration: "grpc.client.attempt.duration"
    case .sent: "grpc.client.attempt.sent_total_compressed_message_size"
    case .received: "grpc.client.attempt.rcvd_total_compressed_message_size"
    case .callDuration: "grpc.client.call.duration"
    }
  }

  /// The name in Prometheus' format, with the unit at its end.
  var prometheusName: StaticString {
    switch self {
    case .attemptDuration: "grpc_client_attempt_duration_seconds"
    case .sent: "grpc_client_attempt_sent_total_compressed_message_size_bytes"
    case .received: "grpc_client_attempt_rcvd_total_compressed_message_size_bytes"
    case .callDuration: "grpc_client_call_duration_seconds"
    }
  }

  var meaning: StaticString {
    switch self {
    case .attemptDuration: "How long attempts took, from their start to their status."
    case .sent: "The bytes of an attempt's request messages, after compression."
    case .received: "The bytes of an attempt's response messages, before decompression."
    case .callDuration: "How long calls took, from their creation to their status."
    }
  }

  var isDuration: Bool { self == .attemptDuration || self == .callDuration }
  var unit: StaticString { isDuration ? "s" : "By" }

  func histogram(_ ended: Telemetry.Ended) -> Histogram {
    switch self {
    case .attemptDuration: ended.attemptDuration
    case .sent: ended.sent
    case .received: ended.received
    case .callDuration: ended.callDuration
    }
  }

  func bounds(_ bounds: Bounds) -> [UInt64] { isDuration ? bounds.durations : bounds.sizes }

  /// A value as OTLP has it: durations in seconds.
  func double(_ value: UInt64) -> Double { isDuration ? Double(value) / 1e9 : Double(value) }
}

extension Telemetry {
  /// An ExportMetricsServiceRequest with the methods that have these indexes; nil: no memory.
  func metricsRequest(_ indexes: Range<Int> = 0..<Int.max) -> ByteBuffer? {
    let made = ByteBuffer()
    var request = ProtoWriter(into: made)
    request.message(1) { resourceMetrics in
      write(&resourceMetrics, resource: 1)
      resourceMetrics.message(2) { scopeMetrics in
        write(&scopeMetrics, scope: 1)
        read { all, since in
          let methods = all[indexes.clamped(to: 0..<all.count)]
          guard !methods.isEmpty else { return }
          let times = Times(since: since, until: now)
          scopeMetrics.message(2) { writeStarted(methods, times, &$0) }
          for instrument in Instrument.all {
            scopeMetrics.message(2) { write(instrument, methods, times, &$0) }
          }
        }
      }
    }
    return request.isComplete ? made : nil
  }

  /// An ExportTraceServiceRequest with these fields "spans"; nil: no memory.
  func tracesRequest(_ spans: ByteBuffer) -> ByteBuffer? {
    let made = ByteBuffer()
    var request = ProtoWriter(into: made)
    request.message(1) { resourceSpans in
      write(&resourceSpans, resource: 1)
      resourceSpans.message(2) { scopeSpans in
        write(&scopeSpans, scope: 1)
        scopeSpans.encoded(spans.view)
      }
    }
    return request.isComplete ? made : nil
  }

  private func write(_ out: inout ProtoWriter, resource field: UInt32) {
    out.message(field) { resource in
      let name = ("service.name" as StaticString).bytes
      if !options.resource.contains(where: { bytesEqual($0.key.view, name) }) {
        resource.attribute(1, name, .text(("unknown_service" as StaticString).bytes))
      }
      for attribute in options.resource {
        resource.attribute(1, attribute.key.view, .text(attribute.value.view))
      }
    }
  }

  private func write(_ out: inout ProtoWriter, scope field: UInt32) {
    out.message(field) { scope in
      scope.string(1, "penstock")
      scope.bytes(2, options.version)
    }
  }

  /// AggregationTemporality CUMULATIVE.
  private static var cumulative: UInt64 { 2 }

  /// The time of a data point, in nanoseconds since 1970.
  private struct Times {
    let since, until: UInt64
  }

  private func writeStarted(_ methods: ArraySlice<Method>, _ times: Times, _ metric: inout ProtoWriter) {
    metric.string(1, "grpc.client.attempt.started")
    metric.string(2, "Attempts that were started.")
    metric.string(3, "{attempt}")
    metric.message(7) { sum in
      for method in methods {
        sum.message(1) { point in
          point.fixed64(2, times.since)
          point.fixed64(3, times.until)
          point.fixed64(6, method.attempts)
          write(method, &point, attributes: 7)
        }
      }
      sum.varint(2, Telemetry.cumulative)
      sum.bool(3, true)
    }
  }

  private func write(
    _ instrument: Instrument, _ methods: ArraySlice<Method>, _ times: Times, _ metric: inout ProtoWriter
  ) {
    metric.string(1, instrument.name)
    metric.string(2, instrument.meaning)
    metric.string(3, instrument.unit)
    metric.message(9) { histogram in
      for method in methods {
        for ended in method.codes where instrument.histogram(ended).count > 0 {
          histogram.message(1) { point in
            write(instrument, instrument.histogram(ended), &point)
            point.fixed64(2, times.since)
            point.fixed64(3, times.until)
            write(method, &point, attributes: 9)
            point.attribute(9, "grpc.status", .text(ended.code.name.bytes))
          }
        }
      }
      histogram.varint(2, Telemetry.cumulative)
    }
  }

  private func write(_ instrument: Instrument, _ values: Histogram, _ point: inout ProtoWriter) {
    let bounds = instrument.bounds(bounds)
    point.fixed64(4, values.count)
    point.double(5, instrument.double(values.sum))
    point.messageHeader(6, length: 8 * values.buckets.count)
    for count in values.buckets { point.element(count) }
    point.messageHeader(7, length: 8 * bounds.count)
    for bound in bounds { point.element(instrument.double(bound).bitPattern) }
  }

  private func write(_ method: Method, _ point: inout ProtoWriter, attributes field: UInt32) {
    let other = ("other" as StaticString).bytes
    point.attribute(field, "grpc.method", .text(method.name?.view ?? other))
    point.attribute(field, "grpc.target", .text(method.shownTarget?.view ?? other))
  }
}
