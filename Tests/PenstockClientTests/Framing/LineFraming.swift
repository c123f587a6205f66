import PenstockTestSupport
import PenstockCall
import PenstockWire

@testable import PenstockHTTP
@testable import PenstockFraming
@testable import PenstockTransport

/// A framing for tests that differs from gRPC's as much as possible. Messages have no prefix; each message is
/// a line of hexadecimal digits. The status is the last line of the body. No message is read ahead of demand.
/// With the opening `.whole` the path in the headers contains all messages.
final class LineFraming: Framing {
  private var path: [UInt8] = []
  private var shownPath = ByteBuffer()
  private var line: [UInt8] = []

  final class Factory: Framings {
    let opening: Framing.Opening
    init(_ opening: Framing.Opening) { self.opening = opening }
    override func make(_ request: Request, _ defaults: RequestDefaults) -> Framing {
      LineFraming(opening: opening)
    }
  }

  /// The digits of `bytes`. Messages have megabytes, so each pair of digits is copied from a table: a build with the thread
  /// sanitizer would take half a minute otherwise.
  static func hex(_ bytes: [UInt8]) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: 2 * bytes.count) { place, count in
      let pairs = UnsafeMutableRawBufferPointer(place)
      bytes.withUnsafeBytes { bytes in
        for index in 0..<bytes.count {
          pairs.storeBytes(of: digits[Int(bytes[index])], toByteOffset: 2 * index, as: UInt16.self)
        }
      }
      count = 2 * bytes.count
    }
  }

  /// The two digits of each byte, in the order in which they are sent.
  private static let digits: [UInt16] = (0..<256).map { byte in
    let text = Array("0123456789abcdef".utf8)
    return UInt16(text[byte & 15]).byteSwapped | UInt16(text[byte >> 4])
  }

  static func bytes(ofHex text: some Sequence<UInt8>) -> [UInt8] {
    let digits = text.map { $0 <= 0x39 ? $0 - 0x30 : $0 - 0x57 }
    return stride(from: 0, to: digits.count - 1, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
  }

  /// The line for a message.
  static func line(_ message: [UInt8]) -> [UInt8] { hex(message) + [0x0a] }

  static func line(_ status: Status) -> [UInt8] {
    Array("! \(status.code.rawValue) ".utf8) + hex([UInt8](status.message)) + [0x0a]
  }

  override func requestHeaders(
    _ request: Request, _ defaults: RequestDefaults, now: UInt64, into fields: FieldList
  ) -> Bool {
    shownPath = buffer(Array("/?".utf8) + path)
    return fields.add(":method", opening == .whole ? "GET" : "POST") && fields.add(":path", shownPath.view)
  }

  override func encode(_ message: Message) -> FramedMessage {
    let line = LineFraming.line([UInt8](message.view))
    guard opening == .whole else { return .piece(BodyPiece(buffer(line))) }
    path += line
    messagesInHeaders += 1
    return .inHeaders(size: message.count, wireSize: line.count)
  }

  override func responseHeaders(_ block: HeaderBlock, endsStream: Bool) -> ResponseStart {
    guard endsStream else { return .headers(Metadata()) }
    guard let said = value(block.fields, "x-status") else { return .ended(Status(.unknown)) }
    return .ended(status(said[...]))
  }

  override func decode(_ bytes: ByteView) -> (consumed: Int, step: BodyStep) {
    guard let end = bytes.firstIndex(of: 0x0a) else {
      line += bytes
      return (bytes.count, .needsMore)
    }
    line += bytes[..<end]
    let whole = line
    line = []
    let consumed = end - bytes.startIndex + 1
    if whole.first == 0x21 { return (consumed, .trailers(status(whole[...]))) }
    return (consumed, .message(buffer(LineFraming.bytes(ofHex: whole)), size: whole.count))
  }

  private func status(_ line: ArraySlice<UInt8>) -> Status {
    let words = String(decoding: line, as: UTF8.self).split(separator: " ")
    let message = words.count > 2 ? LineFraming.bytes(ofHex: words[2].utf8) : []
    return Status(StatusCode(rawValue: Int32(words[1])!)!, words: buffer(message))
  }

  override func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool) -> Status {
    if let said = trailers { return said }
    switch end {
    case .lost(let words), .unprocessed(let words), .refused(let words), .unanswered(let words),
      .neverSent(let words):
      return Status(.unavailable, words: words)
    case .broken(let words): return Status(.internal, words: words)
    case .answerTooLarge(let words): return Status(.resourceExhausted, words: words)
    case .trailers, .body, .cancelled, .tooMuch, .insecure, .reset, .requestTooLarge, .noMemory: break
    }
    return Status(.internal, "the stream ended without a status")
  }
}
