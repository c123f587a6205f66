import CPenstockNghttp2
import PenstockWire

/// The rules of RFC 9113 section 8 for a response. nghttp2's own checks are switched off, because they read
/// every byte: an answer with the three usual fields takes them 700 instructions. Here one comparison per
/// usual field is enough (`HeaderBlock.note`). This code refuses exactly the responses that nghttp2 would
/// refuse, but for blanks at the ends of a value: gRPC permits to strip them ("If it contains leading or trailing
/// whitespace, it may be stripped"), and some servers send a status message with a blank at its end.
extension HeaderBlock {
  public enum Verdict: Equatable { case add, ignore, refuse }

  /// Checks a field that `note` has not recognised, by sections 8.2 and 8.3 of RFC 9113. `value`: without blanks at
  /// its ends, unless the field is a pseudo header.
  public func judge(_ name: ByteView, _ value: ByteView) -> Verdict {
    let isFirst = noted == []
    noted.insert(.others)
    guard nghttp2_check_header_name(name.bytes, name.count) != 0,
      nghttp2_check_header_value(value.bytes, value.count) != 0
    else { return .refuse }
    if name.first == 0x3A {
      guard isFirst, bytesEqual(name, ":status"), value.count == 3, let number = number(value), number != 101
      else { return .refuse }
      status = number
      return .add
    }
    if bytesEqual(name, "content-length") {
      guard length < 0, status / 100 != 1, let number = number(value) else { return .refuse }
      length = number
      // RFC 9110 section 8.6: a server "MUST NOT send" content-length with status 204. Some servers send "0",
      // which is ignored here.
      if status == 204 { return bytesEqual(value, "0") ? .ignore : .refuse }
      return .add
    }
    if bytesEqual(name, "te") { return isTrailers(value) ? .add : .refuse }
    return isOfAConnection(name) ? .refuse : .add
  }

  public var hasNoBody: Bool { status == 204 || status == 304 }
  /// Whether the head gives the length of the body.
  var saysLength: Bool { length >= 0 || hasNoBody }

  /// Whether a field is connection-specific (RFC 9113 section 8.2.2), and therefore forbidden.
  private func isOfAConnection(_ name: ByteView) -> Bool {
    bytesEqual(name, "connection") || bytesEqual(name, "keep-alive") || bytesEqual(name, "proxy-connection")
      || bytesEqual(name, "transfer-encoding") || bytesEqual(name, "upgrade")
  }

  /// Whether `value` is "trailers", in upper or lower case.
  private func isTrailers(_ value: ByteView) -> Bool {
    value.count == 8
      && UInt64(bigEndian: value.loadUnaligned(as: UInt64.self)) | 0x2020_2020_2020_2020
        == 0x7472_6169_6C65_7273
  }

  private func number(_ digits: ByteView) -> Int? {
    if digits.isEmpty { return nil }
    var number = 0
    for byte in digits {
      guard byte >= 0x30, byte <= 0x39 else { return nil }
      let digit = Int(byte - 0x30)
      guard number <= (Int.max - digit) / 10 else { return nil }
      number = number * 10 + digit
    }
    return number
  }
}

extension HTTP2Stream {
  /// Whether `block` has only the usual fields of a response, in their usual position. Then `flaw` need not
  /// be called.
  public func isUsual(_ block: HeaderBlock, endsStream: Bool) -> Bool {
    switch answer {
    case .awaited: return block.isPlainHead && !endsStream
    case .begun: return block.isPlainTrailers && endsStream
    case .measured: return false
    }
  }

  /// The first rule that the header block breaks, by itself or by its position in the response. nil: it
  /// breaks no rule.
  public func flaw(of block: HeaderBlock, endsStream: Bool) -> nghttp2_error? {
    switch answer {
    case .awaited:
      if block.status < 0 { return NGHTTP2_ERR_HTTP_MESSAGING }
      if block.status / 100 == 1 { return endsStream ? NGHTTP2_ERR_HTTP_MESSAGING : nil }
    case .begun, .measured:
      // RFC 9113 section 8.1: "Trailers MUST NOT include pseudo-header fields".
      if block.status >= 0 || (block.length >= 0 && answer == .measured) { return NGHTTP2_ERR_HTTP_HEADER }
      if !endsStream { return NGHTTP2_ERR_HTTP_MESSAGING }
    }
    if block.length >= 0 { lengthLeft += block.length }
    if block.hasNoBody { lengthLeft = 0 }
    let isMeasured = answer == .measured || block.saysLength
    return endsStream && isMeasured && lengthLeft != 0 ? NGHTTP2_ERR_HTTP_MESSAGING : nil
  }

  /// Whether the body has the length that the head has announced; true if no length was announced.
  var hasFullLength: Bool { answer != .measured || lengthLeft == 0 }

  /// Subtracts `count` received bytes of a body from `lengthLeft`. False: no head was received before the
  /// bytes, or the head has announced a shorter body.
  func admits(_ count: Int) -> Bool {
    lengthLeft &-= count
    switch answer {
    case .awaited: return false
    case .begun: return true
    case .measured: return lengthLeft >= 0
    }
  }
}

extension ByteView {
  fileprivate var bytes: UnsafePointer<UInt8>? { baseAddress?.assumingMemoryBound(to: UInt8.self) }
}
