import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLink
import PenstockLoop
import PenstockHTTP

/// The client side of gRPC-Web (PROTOCOL-WEB). The body has gRPC's frames, and one more frame at the end with
/// the trailers. With `isText` the bodies of the request and of the answer are in base64.
final class GRPCWebFraming: CommonFraming {
  private let labels: RequestLabels?
  private let isText: Bool
  /// Whether each request message in base64 ends with padding, because only one is sent. In other calls only the body
  /// ends with padding where that is possible, because some servers refuse padding in the middle of the bytes that they
  /// have received.
  private let padsEach: Bool
  /// The timer of the attempt, which pads the last bytes so far of a bidi call if nothing comes behind them soon.
  private var padding: Timer?
  /// Whether a part of the answer's body has come since the last padding.
  private var isAnswered = false
  /// The last bytes of the request so far, at most two, which are not a whole group of base64.
  private lazy var left = ByteBuffer()
  /// The large message that is being encoded in base64, and the messages behind it: the prefix of each
  /// message, and then the message.
  private var waiting: [ByteBuffer] = []
  /// The base64 of the first of these messages so far; nil: its encoding has not begun.
  private var text: ByteBuffer?
  /// The number of bytes of this message that are encoded.
  private var encoded = 0
  /// Whether the answer is in base64, by its content-type. The server may choose either form, whatever form
  /// the request has asked for.
  private var answersText = false
  private var base64: Base64Stream?
  /// Decoded bytes after the end of a message, at most two.
  private lazy var surplus = ByteBuffer()
  /// The status in the head of the answer. It is used if the body contains no status.
  private var statusInHead: Status?

  private static let trailersFlag: UInt8 = 0x80

  init(_ request: Request, _ defaults: RequestDefaults, isText: Bool) {
    labels = request.labels
    self.isText = isText
    padsEach = request.kind.sendsOne
    super.init(
      request.settings.compression, request.settings.compressionUse,
      maxReceiveBytes: request.settings.maxReceiveBytes,
      lastFlag: GRPCWebFraming.trailersFlag, isPrefixed: !isText)
    sendsRest = isText && request.kind == .bidi
  }

  // MARK: Request

  override var subtype: ByteView? { labels?.subtype }
  override var title: StaticString { "gRPC-Web" }
  override var typeStart: StaticString { isText ? "application/grpc-web-text+" : "application/grpc-web+" }
  private var type: StaticString { isText ? "application/grpc-web-text+proto" : "application/grpc-web+proto" }
  override var agents: Range<Int> { 7..<9 }

  override func addCommon(_ defaults: RequestDefaults, to fields: FieldList) -> Bool {
    let agent = defaults.userAgent.view
    return addPseudoHeaders("POST", defaults, to: fields)
      && fields.add("x-grpc-web", "1") && fields.add("content-type", type)
      && defaults.addAccepted("grpc-accept-encoding", to: fields)
      && fields.add("user-agent", lasting: agent)
      && fields.add("x-user-agent", lasting: agent)
      // Some proxies answer in base64 only if the request asks for it.
      && (!isText || fields.add("accept", "application/grpc-web-text"))
  }

  override func isOwn(_ name: ByteView) -> Bool {
    bytesEqual(name, "x-grpc-web") || bytesEqual(name, "x-user-agent") || bytesEqual(name, "accept")
  }

  /// Encodes a message as a frame in base64: "the implementation may send base64-encoded "chunks" with
  /// potential padding whenever the runtime needs to flush a byte buffer".
  override func frame(_ bytes: ByteBuffer, compressed: Bool) -> FramedMessage {
    guard let length = UInt32(exactly: bytes.count) else {
      return .failed(Status(.resourceExhausted, "a message of more than 4 GiB cannot be framed"))
    }
    var prefix: UInt64 = 0
    MessagePrefix.write(compressed: compressed, length: length, to: &prefix)
    if !waiting.isEmpty || bytes.count > GRPCWebFraming.slice { return putOff(bytes, prefix) }
    let out = ByteBuffer()
    let isWritten = withUnsafeBytes(of: prefix.littleEndian) {
      add(ByteView(rebasing: $0[..<MessagePrefix.size]), to: out)
    }
    guard isWritten, add(bytes.view, to: out) else { return noMemory() }
    if rest != .message { rest = padsEach || left.isEmpty ? .nothing : .bytes }
    return padsEach ? pad(out) : .piece(BodyPiece(out))
  }

  /// The size of a slice in bytes, which takes about a millisecond.
  private static let slice = 384 << 10

  /// Leaves a message to later turns, which encode it in slices. A message of 64 MiB takes more than a tenth
  /// of a second, so other calls are served between two slices.
  private func putOff(_ bytes: ByteBuffer, _ prefix: UInt64) -> FramedMessage {
    let head = ByteBuffer()
    let isWritten = withUnsafeBytes(of: prefix.littleEndian) {
      head.append(ByteView(rebasing: $0[..<MessagePrefix.size]))
    }
    guard isWritten else { return noMemory() }
    waiting.append(head)
    waiting.append(bytes)
    rest = .message
    return .later
  }

  override func encodeNext() -> FramedMessage {
    let framed = waiting.isEmpty ? super.encodeNext() : encodeSlice(of: waiting[1])
    rest = isDeflating || !waiting.isEmpty ? .message : left.isEmpty ? .nothing : .bytes
    return framed
  }

  private func encodeSlice(of message: ByteBuffer) -> FramedMessage {
    let out = text ?? ByteBuffer()
    if text == nil {
      let size = (left.count + MessagePrefix.size + message.count) / 3 * 4 + 8
      guard out.reserveExactly(total: size), add(waiting[0].view, to: out) else { return noMemory() }
    }
    let bytes = ByteView(rebasing: message.view.dropFirst(encoded).prefix(GRPCWebFraming.slice))
    guard add(bytes, to: out) else { return noMemory() }
    encoded += bytes.count
    text = out
    if encoded < message.count { return .later }
    text = nil
    encoded = 0
    waiting.removeLeading(2)
    return padsEach ? pad(out) : .piece(BodyPiece(out))
  }

  override func lastPiece() -> FramedMessage {
    rest = .nothing
    isAnswered = false
    let out = ByteBuffer()
    return addLeft(to: out) ? .piece(BodyPiece(rest: out)) : noMemory()
  }

  /// While the peer answers, each message is padded at once. Otherwise others may come behind it in the same piece.
  override var mayWaitWithRest: Bool { !isAnswered }
  override var timer: Timer? { padding }
  override func store(_ timer: Timer) { padding = timer }

  /// Adds the whole groups of `left` and `bytes` to `out`, in base64. `left` gets the other bytes.
  private func add(_ bytes: ByteView, to out: ByteBuffer) -> Bool {
    var bytes = bytes
    if !left.isEmpty {
      let count = min(bytes.count, 3 - left.count)
      guard left.append(ByteView(rebasing: bytes[..<count])) else { return false }
      if left.count < 3 { return true }
      guard addLeft(to: out) else { return false }
      bytes = ByteView(rebasing: bytes[count...])
    }
    let whole = bytes.count / 3 * 3
    return Base64.encode(ByteView(rebasing: bytes[..<whole]), padded: true, into: out)
      && left.append(ByteView(rebasing: bytes[whole...]))
  }

  private func addLeft(to out: ByteBuffer) -> Bool {
    defer { left.removeAll(keepingCapacity: true) }
    return Base64.encode(left.view, padded: true, into: out)
  }

  /// Ends `out` with the bytes in `left`, and padding.
  private func pad(_ out: ByteBuffer) -> FramedMessage {
    addLeft(to: out) ? .piece(BodyPiece(out)) : noMemory()
  }

  private func noMemory() -> FramedMessage {
    .failed(Status(.resourceExhausted, "no memory to encode a message"))
  }

  // MARK: Response

  override func responseHeaders(_ block: HeaderBlock, endsStream: Bool) -> ResponseStart {
    if block.isPlainHead(with: .web), !endsStream, !isText, labels == nil {
      httpStatus = 200
      return .headers(.none)
    }
    return responseHeaders(block.fields, endsStream)
  }

  private func responseHeaders(_ fields: Metadata, _ endsStream: Bool) -> ResponseStart {
    let start = start(fields, endsStream: endsStream)
    guard case .headers = start else { return start }
    statusInHead = status(inHead: fields, isAll: false)
    if answersText { base64 = Base64Stream() }
    return start
  }

  override func fit(_ given: ByteView?) -> ContentType.Fit {
    answersText = isText
    if labels == nil, let given, bytesEqual(given, type.bytes) { return .fits }
    let text = fit(given, "application/grpc-web-text+")
    answersText = text != .foreign
    return answersText ? text : fit(given, "application/grpc-web+")
  }

  private func fit(_ type: ByteView?, _ start: StaticString) -> ContentType.Fit {
    ContentType.fit(type, start, subtype, isOptional: true)
  }

  override func isUsual(_ given: ByteView) -> Bool { bytesEqual(given, type) }

  override func decode(_ bytes: ByteView) -> (consumed: Int, step: BodyStep) {
    isAnswered = true
    return base64 == nil ? super.decode(bytes) : decodeText(bytes)
  }

  override func space() -> UnsafeMutableRawBufferPointer? { base64 == nil ? super.space() : nil }
  override func beginsWithMessage(_ bytes: ByteView) -> Bool {
    base64 == nil && super.beginsWithMessage(bytes)
  }

  override func beginsWithLast(_ bytes: ByteView) -> Bool {
    bytes.first == GRPCWebFraming.trailersFlag && beginsWithMessage(bytes)
  }

  /// Decodes base64, and then messages. The decoder gets at most the bytes that it waits for, rounded up to a
  /// group of base64. So at most two bytes are left when a message is complete.
  private func decodeText(_ bytes: ByteView) -> (consumed: Int, step: BodyStep) {
    var at = 0
    while true {
      if !surplus.isEmpty {
        // One or two bytes are less than the prefix of a message, so this call usually returns `needsMore`.
        let step = super.decode(surplus.view).step
        surplus.removeAll(keepingCapacity: true)
        if case .needsMore = step {} else { return (bytes.count, step) }
      }
      let step = withUnsafeTemporaryAllocation(byteCount: 3072, alignment: 1) { space -> BodyStep? in
        let room = UnsafeMutableRawBufferPointer(rebasing: space.prefix((decoder.missing + 2) / 3 * 3))
        guard let count = base64?.decode(bytes, from: &at, into: room), count > 0 else {
          return base64?.isBroken == true
            ? .failed(Status(.internal, words: sayCoding(ByteBuffer().say("the body is not base64"))))
            : .needsMore
        }
        let (used, step) = super.decode(ByteView(rebasing: space[..<count]))
        // Bytes behind the last frame are refused.
        if used < count, decoder.isLast { return super.decode(ByteView(rebasing: space[used..<count])).step }
        if used < count, !surplus.append(ByteView(rebasing: space[used..<count])) {
          return .failed(Status(.resourceExhausted, "no memory for a received message"))
        }
        if case .needsMore = step { return nil }
        return step
      }
      if let step { return (at, step) }
    }
  }

  /// Reads the trailers: "Key-value pairs encoded as a HTTP/1 headers block (without the terminating
  /// newline)".
  override func lastFrame(_ content: ByteBuffer) -> BodyStep {
    // This check is for speed: these are the trailers of most calls.
    if statusInHead == nil,
      bytesEqual(content.view, "grpc-status: 0\r\n") || bytesEqual(content.view, "grpc-status:0\r\n")
    {
      return .trailers(Status(.ok))
    }
    let fields = Metadata()
    let name = ByteBuffer()
    var rest = content.view
    while !rest.isEmpty {
      let end = position(of: 0x0A, in: rest) ?? rest.count
      let line = ByteView(rebasing: rest[..<end])
      rest = ByteView(rebasing: rest[min(end + 1, rest.count)...])
      guard let colon = position(of: 0x3A, in: line) else { continue }
      name.removeAll(keepingCapacity: true)
      var value = ByteView(rebasing: line[(colon + 1)...])
      if value.last == 0x0D { value = ByteView(rebasing: value.dropLast()) }
      guard HeaderRules.isFieldValue(value) else { continue }
      guard HeaderRules.lowercased(ByteView(rebasing: line[..<colon]), into: name),
        fields.add(name.view, HeaderRules.trimmed(value)) == .ok
      else { return .failed(Status(.resourceExhausted, "no memory for the trailers")) }
      if fields.listSize > Limits.statusInBodyBytes { return .failed(.tooLarge) }
    }
    return .trailers(status(inFrame: fields))
  }

  /// The status of an answer whose last frame has `fields`. Some servers send an error's status in the head, and then
  /// a frame without a status. If both have one, that of the frame counts, unless it is OK and the other is not.
  private func status(inFrame fields: Metadata) -> Status {
    guard let head = statusInHead else { return grpcStatus(of: fields) }
    let isFailure = head.code != .ok
    if fields.index(of: grpcStatusName) != nil {
      let status = grpcStatus(of: fields)
      if status.code != .ok || !isFailure { return status }
    }
    addAll(fields, to: head)
    return head
  }

  // MARK: End

  override func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool) -> Status {
    statusInBody(end, trailers, else: statusInHead, deadlineHasPassed)
  }

  override var isCut: Bool { super.isCut || base64 != nil && !(surplus.isEmpty && base64!.isAtGroup) }
}
