import CPenstockNghttp2
import PenstockWire

/// The error codes of HTTP/2. The layers above HTTP/2 do not see these numbers.
public enum HTTP2Error {
  /// The `StreamEnd` of a stream that the peer has reset with `code`.
  public static func end(ofReset code: UInt32) -> StreamEnd {
    if code == NGHTTP2_REFUSED_STREAM.rawValue {
      return .refused(ByteBuffer().say("the server refused the stream (REFUSED_STREAM)"))
    }
    let words = ByteBuffer().say("the server reset the stream: ").say(name(code)).say(" (")
      .say(unsigned: UInt64(code)).say(")")
    switch code {
    case NGHTTP2_CANCEL.rawValue: return .cancelled(words)
    case NGHTTP2_ENHANCE_YOUR_CALM.rawValue: return .tooMuch(words.say(": too much traffic"))
    case NGHTTP2_INADEQUATE_SECURITY.rawValue:
      return .insecure(words.say(": the protocol is not secure enough for the call"))
    default: return .reset(words)
    }
  }

  /// The code for a RST_STREAM that this side sends, because the stream's owner leaves the stream for the
  /// reason `why`.
  public static func code(_ why: Leave) -> UInt32 {
    switch why {
    case .cancelled: return NGHTTP2_CANCEL.rawValue
    case .done: return NGHTTP2_NO_ERROR.rawValue
    }
  }

  /// The name of the error `code` in RFC 9113 section 7.
  public static func name(_ code: UInt32) -> StaticString {
    switch code {
    case 0x0: return "NO_ERROR"
    case 0x1: return "PROTOCOL_ERROR"
    case 0x2: return "INTERNAL_ERROR"
    case 0x3: return "FLOW_CONTROL_ERROR"
    case 0x4: return "SETTINGS_TIMEOUT"
    case 0x5: return "STREAM_CLOSED"
    case 0x6: return "FRAME_SIZE_ERROR"
    case 0x7: return "REFUSED_STREAM"
    case 0x8: return "CANCEL"
    case 0x9: return "COMPRESSION_ERROR"
    case 0xa: return "CONNECT_ERROR"
    case 0xb: return "ENHANCE_YOUR_CALM"
    case 0xc: return "INADEQUATE_SECURITY"
    case 0xd: return "HTTP_1_1_REQUIRED"
    default: return "UNKNOWN_ERROR"
    }
  }
}
