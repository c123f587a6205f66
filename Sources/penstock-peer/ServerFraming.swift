import PenstockTransport
import PenstockWire

/// The wire format of a call: how the body has the messages, and where the status is. A call uses one framing from its
/// headers on; the framing is the call's own, because it may keep a part of the request.
///
/// This class is what all formats with envelopes have in common: a message is five bytes of prefix and its bytes.
class ServerFraming {
  private final var decoder = MessageDecoder(limit: 0)

  /// The name for `--print-requests`.
  var name: StaticString { "" }
  /// Whether the answer is sent only when the call has ended.
  var isWhole: Bool { false }

  /// Prepares for the call whose request headers have come, and reads those that belong to the protocol. What is wrong
  /// with them ends the call.
  func begin(_ call: Call, limit: Int) { decoder = MessageDecoder(limit: limit) }

  // MARK: Request

  /// Takes bytes of the body up to the end of one message, like `MessageDecoder.push`.
  func push(_ bytes: ByteView) -> (consumed: Int, event: MessageDecoder.Event) { decoder.push(bytes) }
  /// The body has ended. Returns a message that is complete only now, and nil when asked again.
  func lastMessage() -> (ByteBuffer, isCompressed: Bool)? { nil }
  /// Whether the body may not end here.
  var isMidMessage: Bool { decoder.isMidMessage }

  // MARK: Answer

  /// Adds the headers, and the whole answer if `isAlone` and the protocol allows that: the call has ended without a
  /// message. Returns whether a body follows.
  func addHeaders(_ call: Call, to list: FieldList, isAlone: Bool) -> Bool { true }
  /// The piece of the body for a message. nil: no memory, or the message is too large for the format.
  func piece(_ message: ByteBuffer, compressed: Bool) -> BodyPiece? {
    UInt32(exactly: message.count).map { BodyPiece(compressed: compressed, message, length: $0) }
  }
  /// The rest of the body, behind the last message, if the status is there.
  func lastPiece(_ call: Call) -> BodyPiece? { nil }
  /// Adds the trailers, if the status is there. False: there are none.
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

/// gRPC-Web: the status is at the end of the body, as an envelope with header lines. All of the body is in base64 if
/// `isText`.
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

  /// Each envelope is a base64 text of its own, with its padding.
  private func encoded(_ envelope: ByteBuffer) -> BodyPiece? {
    let text = ByteBuffer()
    return Base64.encode(envelope.view, padded: true, into: text) ? BodyPiece(text) : nil
  }
}

enum Envelope {
  /// The envelope of `bytes`, whose first byte is `flags`; nil: no memory.
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

/// The base64 of a gRPC-Web-text request as it comes, in pieces of any size. Each group of four letters may be padded,
/// because clients encode the parts of a body one by one.
final class TextInput {
  private var group: (UInt8, UInt8, UInt8, UInt8) = (0, 0, 0, 0)
  private var have = 0
  let plain = ByteBuffer()
  /// How many letters have come whose bytes were not taken yet.
  private var letters = 0

  var isMidGroup: Bool { have > 0 }

  /// Decodes into `plain`. False: malformed, or no memory.
  func decode(_ text: ByteView) -> Bool {
    plain.removeAll(keepingCapacity: true)
    letters += text.count
    for letter in text {
      switch have {
      case 0: group.0 = letter
      case 1: group.1 = letter
      case 2: group.2 = letter
      default: group.3 = letter
      }
      have += 1
      if have < 4 { continue }
      have = 0
      let isDecoded = withUnsafeBytes(of: &group) { Base64.decode($0, into: plain) == .ok }
      if !isDecoded { return false }
    }
    return true
  }

  /// How many letters `count` taken bytes stand for; all that are left if `isLast`, when no decoded bytes are left.
  func consumed(_ count: Int, isLast: Bool) -> Int {
    let taken = isLast ? letters : min(letters, (count * 4 + 2) / 3)
    letters -= taken
    return taken
  }
}
