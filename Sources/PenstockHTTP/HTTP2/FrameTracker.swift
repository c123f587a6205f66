import PenstockWire

/// Follows the frame boundaries in the bytes that a server sends (RFC 9113 section 4.1). So an error text can
/// say where a connection broke off. The first bytes also show whether the peer speaks HTTP/2 at all: "The
/// server connection preface consists of a potentially empty SETTINGS frame that MUST be the first frame"
/// (section 3.4).
struct FrameTracker {
  private var header: UInt64 = 0
  private var flags: UInt8 = 0
  /// The number of bytes of the frame header that have been received; a whole header has nine.
  private var have = 0
  /// The number of bytes of the payload that are still missing.
  private var payload = 0
  /// The frames that have made no progress for any call: see PeerDebt.swift.
  var owed = 0
  /// The first bytes that the peer has sent on the connection, for an error text.
  let opening = ByteBuffer()
  private static let openingSize = 64

  var isMidFrame: Bool { have > 0 }

  /// Returns how many of `bytes` belong to the present frame, and to the frames of the same stream and kind
  /// that follow it directly (DATA and HEADERS are one kind). nil: the first frame of the connection is not
  /// SETTINGS.
  mutating func push(_ bytes: ByteView) -> Int? {
    if opening.count < FrameTracker.openingSize, !notePreface(bytes) { return nil }
    var at = have == 0 ? 0 : proceed(bytes)
    while have == 0, bytes.count - at >= 9 {
      let start = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self))
      let next = (start & ~0xFFFF_FFFF) | (start & 0xFF_FFFF) << 8 | UInt64(bytes[at + 8])
      if at > 0, (next ^ header) & 0xFE_7FFF_FFFF != 0 { return at }
      header = next
      owed &+= 1
      flags = UInt8(truncatingIfNeeded: start >> 24)
      let length = Int(next >> 40)
      let part = min(length, bytes.count - at - 9)
      at += 9 + part
      payload = length - part
      have = payload == 0 ? 0 : 9
    }
    return at == 0 ? proceed(bytes) : at
  }

  /// Follows `bytes` to the end of the present frame, or to the end of `bytes` if that comes first. At a
  /// frame boundary, the present frame is the frame that begins with `bytes`. Returns the number of bytes
  /// passed.
  private mutating func proceed(_ bytes: ByteView) -> Int {
    var at = 0
    owed &+= 1
    while have < 9 && at < bytes.count {
      // A header has length (24 bits), type (8), flags (8) and stream (32). Without the flags, these fields
      // fill one word.
      if have == 4 { flags = bytes[at] } else { header = header << 8 | UInt64(bytes[at]) }
      have += 1
      at += 1
      if have == 9 { payload = Int(header >> 40) }
    }
    if have < 9 { return at }
    let part = min(payload, bytes.count - at)
    payload -= part
    if payload == 0 { have = 0 }
    return at + part
  }

  /// The stream of the present frame; at a frame boundary, the stream of the last frame.
  var stream: Int32 { Int32(truncatingIfNeeded: header & 0x7FFF_FFFF) }
  /// The number of missing bytes of the present frame, if it is a DATA frame without padding; otherwise 0.
  var dataLeft: Int { dataLength > 0 ? payload : 0 }
  /// The content length of the present frame (at a frame boundary: of the last frame), if it is a DATA frame
  /// without padding; otherwise 0.
  var dataLength: Int { (have == 0 || have == 9) && type == 0 && flags & 0x8 == 0 ? Int(header >> 40) : 0 }
  private var type: UInt8 { UInt8(truncatingIfNeeded: header >> 32) }
  enum Kind { case call, control }
  /// The kind of the present frame; at a frame boundary, of the last frame. DATA, HEADERS and CONTINUATION
  /// frames belong to calls.
  var kind: Kind { type < 2 || type == 9 ? .call : .control }
  /// Whether a header block is incomplete: the present frame (at a frame boundary: the last frame) is HEADERS
  /// or CONTINUATION without END_HEADERS.
  private var isInBlock: Bool { (have == 0 || have == 9) && flags & 4 == 0 && (type == 1 || type == 9) }
  /// Returns the number of bytes of an unfinished header block that have been received: `before` bytes, and
  /// now `count` more. The first frame of a block counts with its full length. 0: there is no unfinished
  /// block.
  func blockBytes(_ before: Int, _ count: Int) -> Int {
    isInBlock ? (type == 1 ? Int(header >> 40) : before + count) : 0
  }
  /// Whether the present header block (at a frame boundary: the last header block) has more than one frame.
  var isLongBlock: Bool { isInBlock || type == 9 }

  private func notePreface(_ bytes: ByteView) -> Bool {
    _ = opening.append(ByteView(rebasing: bytes.prefix(FrameTracker.openingSize - opening.count)))
    // A frame begins with three bytes for its length. If the first byte is not 0, the frame has 64 KiB or
    // more. No SETTINGS frame is that long.
    if let first = opening.view.first, first != 0 { return false }
    return opening.count < 4 || opening.view[3] == 4
  }

  /// The position of the last received byte, for an error text: for example "in the middle of a DATA frame".
  /// nil: the byte ends a frame.
  func position() -> ByteBuffer? {
    if have == 9 { return ByteBuffer().say("in the middle of a ").say(FrameTracker.name(type)).say(" frame") }
    return have > 0 ? ByteBuffer().say("in the middle of a frame header") : nil
  }

  /// The error text about a peer that does not speak HTTP/2, with the first bytes that it has sent.
  func wrongPreface() -> ByteBuffer {
    let text = ByteBuffer().say("the peer does not speak HTTP/2: ")
    let bytes = opening.view
    if bytes.isEmpty { return text.say("it sent nothing") }
    if bytesEqual(ByteView(rebasing: bytes.prefix(5)), "HTTP/") {
      let line = ByteView(rebasing: bytes.prefix { $0 != 0x0D && $0 != 0x0A })
      return text.say("it answered \"").say(printable: line, limit: 48).say("\"")
    }
    if bytes.count >= 3, bytes[0] == 0x15, bytes[1] == 0x03 { return text.say("it answered in TLS") }
    return text.say("it sent \"").say(printable: bytes, limit: 24).say("\"")
  }

  /// The rule about the length of the present frame (at a frame boundary: the last frame), if it is of a kind with
  /// such a rule; otherwise nil. `push` has joined frames of two kinds, so the text may name both.
  var lengthRule: StaticString? {
    switch type {
    case 2, 3: "PRIORITY or RST_STREAM: the length has to be 5, or 4"
    case 4, 5: "SETTINGS: the length has to be a multiple of 6, and 0 in an acknowledgement"
    case 6, 7: "PING or GOAWAY: the length has to be 8, or at least 8"
    case 8: "WINDOW_UPDATE: the length has to be 4"
    default: nil
    }
  }

  static func name(_ type: UInt8) -> StaticString {
    switch type {
    case 0: return "DATA"
    case 1: return "HEADERS"
    case 2: return "PRIORITY"
    case 3: return "RST_STREAM"
    case 4: return "SETTINGS"
    case 5: return "PUSH_PROMISE"
    case 6: return "PING"
    case 7: return "GOAWAY"
    case 8: return "WINDOW_UPDATE"
    case 9: return "CONTINUATION"
    default: return "unknown"
    }
  }
}
