import PenstockCall
import PenstockWire

/// Writes lines of Prometheus' exposition format 0.0.4. A sample is one line: the value of a metric for one
/// method, and for some metrics for one status code too.
final class PrometheusText {
  let buffer = ByteBuffer()
  private(set) var isComplete = true

  func fail() { isComplete = false }

  func raw(_ bytes: ByteView) { if !buffer.append(bytes) { isComplete = false } }
  func raw(_ text: StaticString) { raw(text.bytes) }

  func family(_ name: StaticString, _ type: StaticString, _ help: StaticString) {
    for part in ["# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"] as [StaticString] {
      raw(part)
    }
  }

  func sample(
    _ name: StaticString, _ method: Metrics.Method, _ code: StatusCode?, _ bound: ByteView?, _ value: UInt64?,
    seconds: UInt64 = 0
  ) {
    raw(name)
    raw("{grpc_type=\"")
    raw(method.kind == .bidi ? "bidi_stream" : method.kind.name)
    // Splits the path "/service/method" into its two parts.
    let path = method.path?.view ?? ("/other/other" as StaticString).bytes
    let slash = path.lastIndex(of: 0x2f) ?? 0
    raw("\",grpc_service=\"")
    label(path[min(1, slash)..<slash])
    raw("\",grpc_method=\"")
    label(path[(slash + 1)...])
    raw("\",grpc_target=\"")
    label((method.target?.view ?? ("other" as StaticString).bytes)[...])
    if let code {
      raw("\",grpc_code=\"")
      raw(code.name)
    }
    if let bound {
      raw("\",le=\"")
      raw(bound)
    }
    raw("\"} ")
    if let value {
      if !appendDecimal(value, to: buffer) { isComplete = false }
    } else if !appendSeconds(seconds, to: buffer) {
      isComplete = false
    }
    raw("\n")
  }

  func sample(_ name: StaticString, _ peer: Metrics.Peer, _ code: StatusCode?, _ value: UInt64) {
    let other = ("other" as StaticString).bytes
    raw(name)
    raw("{grpc_target=\"")
    label((peer.target?.view ?? other)[...])
    raw("\",grpc_peer=\"")
    label((peer.address?.view ?? other)[...])
    if let code {
      raw("\",grpc_code=\"")
      raw(code.name)
    }
    raw("\"} ")
    if !appendDecimal(value, to: buffer) { isComplete = false }
    raw("\n")
  }

  /// Writes a label's value: "Backslash, double-quote and line feed have to be escaped". U+FFFD replaces invalid UTF-8,
  /// which a target may have.
  func label(_ bytes: Slice<ByteView>) {
    let text = ByteView(rebasing: bytes)
    if UTF8Repair.isValid(text) { return escaped(text) }
    let repaired = ByteBuffer()
    if !UTF8Repair.repair(text, into: repaired) { fail() }
    escaped(repaired.view)
    withExtendedLifetime(repaired) {}
  }

  private func escaped(_ text: ByteView) {
    for byte in text {
      if byte == 0x22 || byte == 0x5c || byte == 0x0a { raw("\\") }
      if !buffer.append(byte: byte == 0x0a ? 0x6e : byte) { isComplete = false }
    }
  }
}
