import PenstockCall
import PenstockWire

// The metrics in Prometheus' exposition format 0.0.4: the names of OpenTelemetry with "_" for ".", and the unit at the end.

extension Telemetry {
  /// The metrics in Prometheus' format, followed by a NUL; nil: no memory.
  public func prometheusText() -> ByteBuffer? {
    let text = PrometheusText()
    read { methods, _ in
      let started: StaticString = "grpc_client_attempt_started_total"
      text.family(started, "counter", "Attempts that were started.")
      for method in methods { text.sample(started, "", method, method.attempts) }
      for instrument in Instrument.all {
        text.family(instrument.prometheusName, "histogram", instrument.meaning)
        for method in methods {
          for ended in method.codes { write(instrument, method, ended, text) }
        }
      }
    }
    return text.isComplete && text.buffer.append(byte: 0) ? text.buffer : nil
  }

  private func write(_ instrument: Instrument, _ method: Method, _ ended: Ended, _ text: PrometheusText) {
    let values = instrument.histogram(ended)
    guard values.count > 0 else { return }
    let name = instrument.prometheusName
    let bounds = instrument.bounds(bounds)
    var count: UInt64 = 0
    for (index, inside) in values.buckets.enumerated() {
      count += inside
      let bound = ByteBuffer()
      let isWritten =
        index == bounds.count
        ? bound.append("+Inf")
        : instrument.isDuration
          ? appendSeconds(bounds[index], to: bound) : appendDecimal(bounds[index], to: bound)
      if !isWritten { text.fail() }
      text.sample(name, "_bucket", method, count, code: ended.code, bound: bound.view)
      withExtendedLifetime(bound) {}
    }
    text.sample(
      name, "_sum", method, values.sum, code: ended.code, inSeconds: instrument.isDuration)
    text.sample(name, "_count", method, values.count, code: ended.code)
  }
}

extension PrometheusText {
  /// Writes the sample `name` and `suffix` of one method. `inSeconds`: the value is in nanoseconds.
  fileprivate func sample(
    _ name: StaticString, _ suffix: StaticString, _ method: Telemetry.Method, _ value: UInt64,
    code: StatusCode? = nil, bound: ByteView? = nil, inSeconds: Bool = false
  ) {
    let other = ("other" as StaticString).bytes
    raw(name)
    raw(suffix)
    raw("{grpc_method=\"")
    label((method.name?.view ?? other)[...])
    raw("\",grpc_target=\"")
    label((method.shownTarget?.view ?? other)[...])
    if let code {
      raw("\",grpc_status=\"")
      raw(code.name)
    }
    if let bound {
      raw("\",le=\"")
      raw(bound)
    }
    raw("\"} ")
    let isWritten = inSeconds ? appendSeconds(value, to: buffer) : appendDecimal(value, to: buffer)
    if !isWritten { fail() }
    raw("\n")
  }
}
