import PenstockTransport
import PenstockWire
import PenstockHTTP

/// The wire format of a call: the form of the messages in the body, and the place of the status. Each call
/// has its own framing, because a framing may keep a part of the request.
///
/// This class implements the common part of the formats with envelopes: a message is a prefix of five bytes,
/// and then its own bytes.
class ServerFraming {
  private final var decoder = MessageDecoder(limit: 0)

  /// The name of the protocol, for the output of `--print-requests`.
  var name: StaticString { mustOverride("") }
  /// Whether the answer is sent only when the call has ended; by default it is not.
  var isWhole: Bool { false }

  /// Prepares for a call whose request headers have arrived, and reads the headers of the protocol. Wrong
  /// headers end the call.
  func begin(_ call: Call, limit: Int) { decoder = MessageDecoder(limit: limit) }

  // MARK: Request

  /// Decodes bytes of the body up to the end of one message. Returns the number of bytes that were used, and
  /// the event.
  func push(_ bytes: ByteView) -> (consumed: Int, event: MessageDecoder.Event) { decoder.push(bytes) }
  /// Called when the body has ended. Returns a message that only the end of the body completes; nil, as by
  /// default: no such message, or it was returned before.
  func lastMessage() -> (ByteBuffer, isCompressed: Bool)? { nil }
  /// Whether the body would be cut off if it ended here.
  var isMidMessage: Bool { decoder.isMidMessage }

  // MARK: Answer

  /// Adds the headers. `isAlone`: the call has ended without a message, so the headers are the whole answer
  /// if the protocol allows this. Returns whether a body follows.
  func addHeaders(_ call: Call, to list: FieldList, isAlone: Bool) -> Bool { mustOverride(true) }
  /// Makes the piece of the body for a message. nil: no memory, or the message is too large for the format.
  func piece(_ message: ByteBuffer, compressed: Bool) -> BodyPiece? {
    UInt32(exactly: message.count).map { BodyPiece(compressed: compressed, message, length: $0) }
  }
  /// Makes the last piece of the body, if the protocol has the status there; nil, as by default: it has
  /// the status elsewhere.
  func lastPiece(_ call: Call) -> BodyPiece? { nil }
  /// Adds the trailers, if the protocol has the status there. False, as by default: the
  /// answer has no trailers.
  func addTrailers(_ call: Call, to list: FieldList) -> Bool { false }
}

/// gRPC over HTTP/2: the status is in the trailers.
final class GRPCServerFraming: ServerFraming {
  override var name: StaticString { "grpc" }

  override func addHeaders(_ call: Call, to list: FieldList, isAlone: Bool) -> Bool {
    list.add(":status", "200")
    if call.subtype.isEmpty {
      list.add("content-type", "application/grpc")
    } else {
      list.add("content-type", Text("application/grpc+").put(call.subtype))
    }
    call.addCodings(to: list, "grpc-encoding", "grpc-accept-encoding")
    call.addHeaders(to: list)
    if isAlone { call.addTrailers(to: list) }
    return !isAlone
  }

  override func addTrailers(_ call: Call, to list: FieldList) -> Bool {
    call.addTrailers(to: list)
    return true
  }
}

/// gRPC-Web. The status is at the end of the body, as an envelope that contains header lines. With `isText`
/// the whole body is in base64.
final class WebServerFraming: ServerFraming {
  private let isText: Bool

  init(isText: Bool) { self.isText = isText }

  override var name: StaticString { isText ? "grpc-web-text" : "grpc-web" }

  override func addHeaders(_ call: Call, to list: FieldList, isAlone: Bool) -> Bool {
    list.add(":status", "200")
    let type = Text(isText ? "application/grpc-web-text" : "application/grpc-web")
    if !call.subtype.isEmpty { type.put("+").put(call.subtype) }
    list.add("content-type", type)
    call.addCodings(to: list, "grpc-encoding", "grpc-accept-encoding")
    call.addHeaders(to: list)
    if isAlone { call.addTrailers(to: list) }
    return !isAlone
  }

  override func piece(_ message: ByteBuffer, compressed: Bool) -> BodyPiece? {
    if !isText { return super.piece(message, compressed: compressed) }
    return Envelope.make(flags: compressed ? 1 : 0, message.view).flatMap(encoded)
  }

  /// "Trailers may be sent in the body as the last message ... 8th bit of the first byte" (PROTOCOL-WEB).
  override func lastPiece(_ call: Call) -> BodyPiece? {
    let (list, lines) = (FieldList(), Text())
    call.addTrailers(to: list)
    list.forEach { name, value in lines.put(name).put(": ").put(value).put("\r\n") }
    guard let envelope = Envelope.make(flags: 0x80, lines.view) else { return nil }
    return isText ? encoded(envelope) : BodyPiece(envelope)
  }

  /// Encodes one envelope in base64, with padding at its end.
  private func encoded(_ envelope: ByteBuffer) -> BodyPiece? {
    let text = ByteBuffer()
    return Base64.encode(envelope.view, padded: true, into: text) ? BodyPiece(text) : nil
  }
}

enum Envelope {
  /// Makes the envelope for `bytes`. `flags`: its first byte. nil: no memory.
  static func make(flags: UInt8, _ bytes: ByteView) -> ByteBuffer? {
    let envelope = ByteBuffer()
    guard let length = UInt32(exactly: bytes.count), let space = envelope.spare(atLeast: 5),
      let base = space.baseAddress
    else { return nil }
    MessagePrefix.write(compressed: false, length: length, to: base)
    base.storeBytes(of: flags, as: UInt8.self)
    envelope.commit(5)
    return envelope.append(bytes) ? envelope : nil
  }
}

/// Decodes the base64 of a gRPC-Web-text request, which arrives in parts of any size.
final class TextInput {
  private var stream = Base64Stream()
  let plain = ByteBuffer()
  /// The number of received letters whose decoded bytes the call has not taken yet.
  private var letters = 0

  var isMidGroup: Bool { !stream.isAtGroup }

  /// Decodes `text` into `plain`. False: malformed, or no memory.
  func decode(_ text: ByteView) -> Bool {
    plain.removeAll(keepingCapacity: true)
    letters += text.count
    var at = 0
    guard let space = plain.spare(atLeast: text.count + 6) else { return false }
    plain.commit(stream.decode(text, from: &at, into: space))
    return !stream.isBroken
  }

  /// Returns the number of letters that `count` decoded bytes were made from. `isLast`: no decoded bytes are
  /// left, so all remaining letters are returned.
  func consumed(_ count: Int, isLast: Bool) -> Int {
    let taken = isLast ? letters : min(letters, (count * 4 + 2) / 3)
    letters -= taken
    return taken
  }
}
