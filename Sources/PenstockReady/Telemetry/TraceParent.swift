import PenstockCall
import PenstockWire

/// The place of a span in its trace, as the header "traceparent" tells it (W3C Trace Context, level 1).
struct TraceParent {
  /// The halves of the trace's id.
  let high: UInt64
  let low: UInt64
  let span: UInt64
  let isSampled: Bool

  static var name: ByteView { ("traceparent" as StaticString).bytes }

  init(high: UInt64, low: UInt64, span: UInt64, isSampled: Bool) {
    self.high = high
    self.low = low
    self.span = span
    self.isSampled = isSampled
  }

  /// Reads the header of a request; nil: it has none, or none that is valid.
  init?(in metadata: Metadata) {
    guard let index = metadata.index(of: TraceParent.name),
      metadata.index(of: TraceParent.name, occurrence: 1) == nil
    else { return nil }
    let text = metadata.value(at: index)
    guard TraceContext.isValid(text) else { return nil }
    func number(_ start: Int) -> UInt64 {
      text[start..<(start + 16)].reduce(0) { $0 << 4 | UInt64(TraceContext.digit($1)) }
    }
    self.init(
      high: number(3), low: number(19), span: number(36), isSampled: TraceContext.digit(text[54]) & 1 == 1)
  }

  /// Sets the header of a request. False: no memory.
  func write(to metadata: Metadata) -> Bool {
    let text = ByteBuffer()
    return withExtendedLifetime(text) {
      text.append("00-") && appendHex(high, to: text) && appendHex(low, to: text) && text.append("-")
        && appendHex(span, to: text) && text.append(isSampled ? "-01" : "-00")
        && metadata.set(TraceParent.name, text.view) == .ok
    }
  }
}
