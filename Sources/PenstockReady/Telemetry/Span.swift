import PenstockCall
import PenstockTransport
import PenstockWire

/// The span of a call or of an attempt that has not ended.
final class Span {
  private let place: TraceParent
  private let parent: UInt64?
  /// Nanoseconds since 1970.
  private let began: UInt64
  // The request as it was at on_start: hops below may change the call's request. Each text ends with a NUL.
  private let path: ByteBuffer
  private let target: ByteBuffer
  private let authority: ByteBuffer
  private let rpc: RPCProtocol
  var traceState: ByteBuffer?
  /// The address of the server that was picked, followed by a NUL.
  var peer: ByteBuffer?
  var previousAttempts: UInt8 = 0
  var isTransparentRetry = false
  /// The fields "events".
  private let events = ByteBuffer()
  private var eventCount = 0
  private var droppedEvents: UInt64 = 0
  private var sentMessages: Int64 = 0
  private var receivedMessages: Int64 = 0

  /// OpenTelemetry's usual limit.
  private static let mostEvents = 128
  /// SPAN_KIND_CLIENT, STATUS_CODE_OK and STATUS_CODE_ERROR.
  private static var client: UInt64 { 3 }
  private static var ok: UInt64 { 1 }
  private static var error: UInt64 { 2 }

  /// `hop`: in on_start.
  init(_ place: TraceParent, parent: UInt64?, began: UInt64, of hop: Hop) {
    self.place = place
    self.parent = parent
    self.began = began
    path = hop.path
    target = hop.target
    authority = hop.authority ?? hop.defaultAuthority
    rpc = hop.rpc
  }

  /// Adds the event of a message, `age` nanoseconds after the span began.
  func noteMessage(_ age: UInt64, _ size: UInt64, isSent: Bool) {
    let number = isSent ? sentMessages : receivedMessages
    if isSent { sentMessages += 1 } else { receivedMessages += 1 }
    let before = events.count
    var writer = ProtoWriter(into: events)
    if eventCount < Span.mostEvents {
      writer.message(11) { event in
        event.fixed64(1, began &+ age)
        event.string(2, isSent ? "Outbound message" : "Inbound message")
        event.attribute(3, "sequence-number", .number(number))
        event.attribute(3, "message-size", .number(Int64(clamping: size)))
      }
      if writer.isComplete {
        eventCount += 1
        return
      }
      events.truncate(to: before)
    }
    droppedEvents += 1
  }

  /// The message Span; nil: no memory. `status`: nil: the span ends with CANCELLED.
  func encoded(_ status: Status?, _ duration: UInt64, isAttempt: Bool) -> ByteBuffer? {
    let code = status?.code ?? .cancelled
    let made = ByteBuffer()
    var span = ProtoWriter(into: made)
    id(&span, 1, place.high, place.low)
    id(&span, 2, place.span)
    if let traceState { span.text(3, traceState.view) }
    if let parent { id(&span, 4, parent) }
    let name = ByteBuffer()
    let method = ByteView(rebasing: path.view.dropLast().dropFirst())
    if !name.append(isAttempt ? "Attempt." : "Sent.") || !name.append(method) { span.fail() }
    span.bytes(5, name.view)
    span.varint(6, Span.client)
    span.fixed64(7, began)
    span.fixed64(8, began &+ duration)
    let slash = method.lastIndex(of: 0x2f) ?? 0
    let isConnect = rpc == .connect
    span.attribute(9, "rpc.system", .text((isConnect ? "connect_rpc" : "grpc" as StaticString).bytes))
    span.attribute(9, "rpc.service", .text(ByteView(rebasing: method[..<slash])))
    span.attribute(9, "rpc.method", .text(ByteView(rebasing: method[min(slash + 1, method.count)...])))
    writeServer(&span)
    if isAttempt {
      if let peer { writeAddress("network.peer", ByteView(rebasing: peer.view.dropLast()), &span) }
      span.attribute(9, "previous-rpc-attempts", .number(Int64(previousAttempts)))
      span.attribute(9, "transparent-retry", .flag(isTransparentRetry))
    }
    if !isConnect {
      span.attribute(9, "rpc.grpc.status_code", .number(Int64(code.rawValue)))
    } else if code != .ok {
      let lower = ByteBuffer()
      for byte in code.name.bytes where !lower.append(byte: lowercase(byte)) { span.fail() }
      span.attribute(9, "rpc.connect_rpc.error_code", .text(lower.view))
      withExtendedLifetime(lower) {}
    }
    span.encoded(events.view)
    if droppedEvents > 0 { span.varint(12, droppedEvents) }
    span.message(15) { ended in
      if code != .ok { writeDescription(code, status, &ended) }
      ended.varint(3, code == .ok ? Span.ok : Span.error)
    }
    span.fixed32(16, 1)
    withExtendedLifetime(name) {}
    return span.isComplete ? made : nil
  }

  private func id(_ span: inout ProtoWriter, _ field: UInt32, _ numbers: UInt64...) {
    span.messageHeader(field, length: 8 * numbers.count)
    for number in numbers { span.element(number.byteSwapped) }
  }

  /// Writes "NAME: message", or "NAME" if the message is empty (gRFC A72).
  private func writeDescription(_ code: StatusCode, _ status: Status?, _ ended: inout ProtoWriter) {
    let text = ByteBuffer()
    if !text.append(code.name) { ended.fail() }
    if let status, !status.message.isEmpty, !text.append(": ") || !text.append(status.message) {
      ended.fail()
    }
    ended.text(2, text.view)
    withExtendedLifetime(text) {}
  }

  private func writeServer(_ span: inout ProtoWriter) {
    let text = ByteView(rebasing: target.view.dropLast())
    let unix = ("unix:" as StaticString).bytes
    if text.count > unix.count, bytesEqual(ByteView(rebasing: text[..<unix.count]), unix) {
      writeAddress("server", text, &span)
    } else {
      writeAddress("server", ByteView(rebasing: authority.view.dropLast()), &span)
    }
  }

  /// Writes the attributes `key`.address and `key`.port of "host:port", "[::1]:443", "host" or "unix:/path".
  private func writeAddress(_ key: StaticString, _ text: ByteView, _ span: inout ProtoWriter) {
    let (host, port) = Span.parts(of: text)
    let name = ByteBuffer()
    if !name.append(key) || !name.append(".address") { span.fail() }
    span.attribute(9, name.view, .text(host))
    if let port {
      name.truncate(to: key.utf8CodeUnitCount)
      if !name.append(".port") { span.fail() }
      span.attribute(9, name.view, .number(port))
    }
    withExtendedLifetime(name) {}
  }

  static func parts(of text: ByteView) -> (host: ByteView, port: Int64?) {
    let unix = ("unix:" as StaticString).bytes
    if text.count > unix.count, bytesEqual(ByteView(rebasing: text[..<unix.count]), unix) {
      let path = ByteView(rebasing: text[unix.count...])
      let isURL = path.count > 2 && path[0] == 0x2f && path[1] == 0x2f
      return (isURL ? ByteView(rebasing: path[2...]) : path, nil)
    }
    guard let colon = text.lastIndex(of: 0x3a) else { return (text, nil) }
    let before = ByteView(rebasing: text[..<colon])
    let isBracketed = before.first == 0x5b && before.last == 0x5d
    // A colon of a bare IPv6 address is none before a port.
    if before.contains(0x3a), !isBracketed {
      let isHost = text.first == 0x5b && text.last == 0x5d
      return (isHost ? ByteView(rebasing: text[1..<(text.count - 1)]) : text, nil)
    }
    var port: Int64 = 0
    for byte in text[(colon + 1)...] {
      guard byte >= 0x30, byte <= 0x39, port < 65536 else { return (text, nil) }
      port = port * 10 + Int64(byte - 0x30)
    }
    return (isBracketed ? ByteView(rebasing: before[1..<(before.count - 1)]) : before, port)
  }
}
