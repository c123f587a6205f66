import CPenstockMemory
import PenstockCall
import PenstockTransport
import PenstockWire
import PenstockLoop

/// W3C Trace Context, level 1 (https://www.w3.org/TR/trace-context-1/): passes on the trace of a valid
/// "traceparent" header, or begins a new trace.
public final class TraceContext: ReadyInterceptor {
  public struct Options {
    public var sampled = Chance(percent: 100)
    public var keepsParentID = false
    public var seed: UInt64?

    public init() {}
  }

  private let options: Options
  private let dice: Dice

  public init(_ options: Options) {
    self.options = options
    dice = Dice(seed: options.seed)
    var callbacks = Registration.Callbacks()
    callbacks.onStart = { handle, state in
      let (hop, this) = behind(handle, state, TraceContext.self)
      return this.start(hop)
    }
    super.init("trace_context", callbacks)
  }

  private func start(_ hop: Hop) -> Int32 {
    guard let metadata = hop.metadata else { return next }
    let name = ("traceparent" as StaticString).bytes
    let state = ("tracestate" as StaticString).bytes
    // Writes a traceparent: "00-", 32 digits, "-", 16 digits, "-", 2 digits.
    let text = ByteBuffer()
    _ = text.append("00-")
    var isPassedOn = false
    if let index = metadata.index(of: name), metadata.index(of: name, occurrence: 1) == nil,
      TraceContext.isValid(metadata.value(at: index))
    {
      let given = metadata.value(at: index)
      isPassedOn = true
      _ = text.append(ByteView(rebasing: given[3..<36]))
      if options.keepsParentID {
        _ = text.append(ByteView(rebasing: given[36..<53]))
      } else {
        appendID(text)
        _ = text.append("-")
      }
      // Only the flag "sampled" is sent; all other flags are zero, as level 1 requires (section 3.2.2.5).
      _ = text.append(TraceContext.digit(given[54]) & 1 == 1 ? "01" : "00")
    } else {
      let isSampled = dice.happens(options.sampled)
      appendID(text)
      appendID(text)
      _ = text.append("-")
      appendID(text)
      _ = text.append(isSampled ? "-01" : "-00")
    }
    if !isPassedOn || !TraceState.isValid(metadata) { _ = metadata.remove(state) }
    guard metadata.set(name, text.view) == .ok, text.append(byte: 0) else { return next }
    publish(text, hop)
    return next
  }

  /// Sets the call's value "penstock.traceparent" to `text`. The text is freed when the value is replaced or
  /// the call has ended.
  private func publish(_ text: ByteBuffer, _ hop: Hop) {
    let (storage, _) = text.take()
    let value = UserData(storage) { pointer in free(pointer) }
    _ = hop.setValue(("penstock.traceparent" as StaticString).bytes, value)
  }

  /// Appends a random id of 16 hexadecimal digits, which are never all zero.
  private func appendID(_ text: ByteBuffer) {
    _ = appendHex(dice.rollID(), to: text)
  }

  static func digit(_ byte: UInt8) -> UInt8 { byte <= 0x39 ? byte - 0x30 : byte - 0x57 }

  private static func isLowerHex(_ bytes: Slice<ByteView>) -> Bool {
    bytes.allSatisfy { ($0 >= 0x30 && $0 <= 0x39) || ($0 >= 0x61 && $0 <= 0x66) }
  }

  /// Whether a traceparent is valid (section 3.2). Version ff is invalid. Of a version above 00 only the
  /// fields of version 00 are read; more may follow after a dash.
  static func isValid(_ value: ByteView) -> Bool {
    guard value.count >= 55, value[2] == 0x2d, value[35] == 0x2d, value[52] == 0x2d else { return false }
    guard isLowerHex(value[0..<2]), isLowerHex(value[3..<35]), isLowerHex(value[36..<52]),
      isLowerHex(value[53..<55])
    else { return false }
    if value[0] == 0x66, value[1] == 0x66 { return false }
    let isFirst = value[0] == 0x30 && value[1] == 0x30
    guard value.count == 55 || (!isFirst && value[55] == 0x2d) else { return false }
    return !value[3..<35].allSatisfy { $0 == 0x30 } && !value[36..<52].allSatisfy { $0 == 0x30 }
  }
}

/// Appends `number` as 16 hexadecimal digits.
func appendHex(_ number: UInt64, to text: ByteBuffer) -> Bool {
  for shift in stride(from: 60, through: 0, by: -4) {
    let digit = UInt8(truncatingIfNeeded: number >> UInt64(shift)) & 15
    guard text.append(byte: digit < 10 ? 0x30 + digit : 0x57 + digit) else { return false }
  }
  return true
}
