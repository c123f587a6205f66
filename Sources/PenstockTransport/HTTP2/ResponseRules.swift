import CNghttp2
import PenstockWire

/// The rules of RFC 9113 section 8 for a response. nghttp2's own checks are switched off: for an answer of
/// the three usual fields they read every byte and take 700 instructions, while one comparison for each field
/// is enough (`HeaderBlock.note`). This code refuses exactly the responses that nghttp2 would refuse.
extension HeaderBlock {
  enum Verdict: Equatable { case add, ignore, refuse }

  /// Checks a field that `note` has not taken, by sections 8.2 and 8.3.
  @inline(never) @_optimize(size)
  func judge(_ name: ByteView, _ value: ByteView) -> Verdict {
    let isFirst = noted == []
    noted.insert(.others)
    guard nghttp2_check_header_name(name.bytes, name.count) != 0,
      nghttp2_check_header_value(value.bytes, value.count) != 0, !isBlank(value.first), !isBlank(value.last)
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
      // A server "MUST NOT send" content-length with 204 (RFC 9110 section 8.6); some servers send "0", which is
      // ignored.
      if status == 204 { return bytesEqual(value, "0") ? .ignore : .refuse }
      return .add
    }
    if bytesEqual(name, "te") { return isTrailers(value) ? .add : .refuse }
    return isOfAConnection(name) ? .refuse : .add
  }

  var hasNoBody: Bool { status == 204 || status == 304 }
  /// Whether the head determines the length of the body.
  var saysLength: Bool { length >= 0 || hasNoBody }

  /// Whether a byte is a space or a tab; nghttp2 checks the ends of a value only from 1.50 on.
  private func isBlank(_ byte: UInt8?) -> Bool { byte == 0x20 || byte == 0x09 }

  /// Whether a field is connection-specific (section 8.2.2), and so forbidden.
  private func isOfAConnection(_ name: ByteView) -> Bool {
    bytesEqual(name, "connection") || bytesEqual(name, "keep-alive") || bytesEqual(name, "proxy-connection")
      || bytesEqual(name, "transfer-encoding") || bytesEqual(name, "upgrade")
  }

  /// Whether `value` is "trailers", in letters of either case.
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
  /// Whether a block has only the usual fields of a response, at their usual position, so that `flaw` need
  /// not be called.
  func isUsual(_ block: HeaderBlock, endsStream: Bool) -> Bool {
    switch answer {
    case .awaited: return block.isPlainHead && !endsStream
    case .begun: return block.isPlainTrailers && endsStream
    case .measured: return false
    }
  }

  /// The flaw of a header block, as a whole and at its position in the response. nil: none.
  @inline(never) @_optimize(size)
  func flaw(of block: HeaderBlock, endsStream: Bool) -> nghttp2_error? {
    switch answer {
    case .awaited:
      if block.status < 0 { return NGHTTP2_ERR_HTTP_MESSAGING }
      if block.status / 100 == 1 { return endsStream ? NGHTTP2_ERR_HTTP_MESSAGING : nil }
    case .begun, .measured:
      // "Trailers MUST NOT include pseudo-header fields" (section 8.1).
      if block.status >= 0 || (block.length >= 0 && answer == .measured) { return NGHTTP2_ERR_HTTP_HEADER }
      if !endsStream { return NGHTTP2_ERR_HTTP_MESSAGING }
    }
    if block.length >= 0 { lengthLeft += block.length }
    if block.hasNoBody { lengthLeft = 0 }
    let isMeasured = answer == .measured || block.saysLength
    return endsStream && isMeasured && lengthLeft != 0 ? NGHTTP2_ERR_HTTP_MESSAGING : nil
  }

  /// Whether the whole body has come, by the length that the head has announced.
  var hasFullLength: Bool { answer != .measured || lengthLeft == 0 }

  /// Counts `count` bytes of a body that have come. False: no head has come before, or it has announced a shorter
  /// body.
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
