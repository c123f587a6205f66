public import CPenstock
import PenstockJSON
import PenstockCall
import PenstockClient
import PenstockLoop
import PenstockReady
import PenstockTransport
import PenstockWire

// The functions of telemetry.h.

@_cdecl("penstock_telemetry_new") @implementation
public func penstock_telemetry_new(
  _ json: UnsafePointer<CChar>!, _ telemetry: UnsafeMutablePointer<OpaquePointer?>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let telemetry else { return report(.invalidArgument, "telemetry must not be NULL", error) }
  var (options, failure) = parse(json, Telemetry.Options(), read)
  if let failure { return failure.report(error) }
  options.version = bytes(Version.text)
  telemetry.pointee = retained(Telemetry(options))
  return PENSTOCK_OK
}

@_cdecl("penstock_telemetry_retain") @implementation
public func penstock_telemetry_retain(_ telemetry: OpaquePointer!) -> OpaquePointer! {
  retain(telemetry, Telemetry.self)
}

@_cdecl("penstock_telemetry_release") @implementation
public func penstock_telemetry_release(_ telemetry: OpaquePointer!) { release(telemetry, Telemetry.self) }

@_cdecl("penstock_ready_telemetry") @implementation
public func penstock_ready_telemetry(
  _ telemetry: OpaquePointer!, _ table: UnsafeMutablePointer<penstock_interceptor>!,
  _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let telemetry else { return report(.invalidArgument, "telemetry must not be NULL", error) }
  let recording = object(telemetry, Telemetry.self)
  if Process.isForked(recording.generation) {
    return report(.forked, "the object belongs to the parent of this process", error)
  }
  return fill(table, "table", TelemetryInterceptor(recording))?.report(error) ?? PENSTOCK_OK
}

private func give(
  _ telemetry: OpaquePointer?, _ out: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?,
  _ text: (Telemetry) -> (Outcome, UnsafeMutablePointer<CChar>?)
) -> penstock_result {
  guard let telemetry, let out else { return PENSTOCK_E_INVALID_ARGUMENT }
  let recording = object(telemetry, Telemetry.self)
  // A process that was forked must not use the object: another thread may have held its lock at that time.
  if Process.isForked(recording.generation) { return PENSTOCK_E_FORKED }
  let (outcome, made) = text(recording)
  guard let made else { return outcome.rawValue }
  out.pointee = made
  return PENSTOCK_OK
}

/// The storage of a text that ends with a NUL.
private func taken(_ text: ByteBuffer?) -> UnsafeMutablePointer<CChar>? {
  text?.take().0?.assumingMemoryBound(to: CChar.self)
}

@_cdecl("penstock_telemetry_prometheus_text") @implementation
public func penstock_telemetry_prometheus_text(
  _ telemetry: OpaquePointer!, _ text: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  give(telemetry, text) { (.noMemory, taken($0.prometheusText())) }
}

@_cdecl("penstock_telemetry_metrics_json") @implementation
public func penstock_telemetry_metrics_json(
  _ telemetry: OpaquePointer!, _ json: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  give(telemetry, json) { (.noMemory, taken($0.metricsJSON())) }
}

@_cdecl("penstock_telemetry_spans_json") @implementation
public func penstock_telemetry_spans_json(
  _ telemetry: OpaquePointer!, _ json: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  give(telemetry, json) {
    let (outcome, text) = $0.takeSpansJSON()
    return (outcome, taken(text))
  }
}

@_cdecl("penstock_telemetry_stats_json") @implementation
public func penstock_telemetry_stats_json(
  _ telemetry: OpaquePointer!, _ json: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>!
) -> penstock_result {
  give(telemetry, json) { (.noMemory, JSON.dump(stats($0.spanFigures, $0.exportFigures))) }
}

private func stats(_ spans: Telemetry.SpanFigures, _ exports: Telemetry.Exports) -> JSON.Value? {
  JSON.object { object in
    object.set(
      "spans",
      JSON.object { each in
        each.set("kept", JSON.int(spans.kept))
        each.set("bytes", JSON.int(spans.bytes))
        each.set("taken", JSON.int(spans.taken))
        each.set("dropped", JSON.int(spans.dropped))
        each.set("refused", JSON.int(spans.refused))
      }.value)
    object.set(
      "exports",
      JSON.object { each in
        each.set("sent", JSON.int(exports.sent))
        each.set("failed", JSON.int(exports.failed))
        each.set("code", exports.failure.map { JSON.int(Int($0.code.rawValue)) } ?? JSON.null)
        each.set("message", exports.failure.map { JSON.text($0.message) } ?? JSON.null)
      }.value)
  }.value
}

@_cdecl("penstock_telemetry_flush") @implementation
public func penstock_telemetry_flush(
  _ telemetry: OpaquePointer!, _ handle: OpaquePointer!, _ timeout: Int64,
  _ code: UnsafeMutablePointer<Int32>!, _ error: UnsafeMutablePointer<OpaquePointer?>!
) -> penstock_result {
  guard let telemetry, let handle, (0...86_400_000).contains(timeout) else {
    return report(
      .invalidArgument, "telemetry and channel must not be NULL, and timeout_ms is from 0 to 86400000", error)
  }
  let recording = object(telemetry, Telemetry.self)
  let channel = object(handle, ClientChannel.self)
  if Process.isForked(recording.generation) || Process.isForked(channel.generation) {
    return report(.forked, "the object belongs to the parent of this process", error)
  }
  if channel.runtime.isDriving {
    return report(
      .wouldDeadlock, "a blocking export in a callback, on the thread that drives the runtime", error)
  }
  let (outcome, first) = recording.flush(over: channel, for: UInt64(timeout) * 1_000_000)
  if outcome == .busy { return report(outcome, "another thread takes or exports spans", error) }
  if outcome == .noMemory { return report(outcome, "no memory", error) }
  guard outcome == .ok else { return explain(outcome, cString("/opentelemetry.proto.collector"), error) }
  code?.pointee = first.rawValue
  return PENSTOCK_OK
}
