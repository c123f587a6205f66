import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockHTTP

/// The common parts of the framings of gRPC, gRPC-Web and Connect: the request's header list, the prefixes of
/// messages, and compression. ResponseFields.swift has the parts that read answers.
class CommonFraming: Framing {
  enum Encoding {
    case known(Compression)
    case unknown(ByteBuffer)
  }

  final var decoder: MessageDecoder
  final var limit: Int { decoder.limit }
  final let sends: Compression
  /// The compressors of the program; nil: it has none.
  final var compressors: ProgramCompressors?
  private let timeout: InsertedField
  /// Whether each message is sent as a prefix and its bytes. If not, the subclass overrides `frame`.
  private let isPrefixed: Bool
  final var receives = Encoding.known(.identity)
  /// The content-encoding of the answer, which none of the framings with prefixed messages has; nil: no such field.
  final var coding: ByteBuffer?
  final var httpStatus = 0
  private var inflation: Inflation? {
    didSet { isBusy = inflation != nil }
  }
  /// Which messages are sent compressed, if `sends` is a compression.
  private let use: CompressionUse
  private var deflation: Deflation? {
    didSet { rest = isDeflating ? .message : .nothing }
  }
  /// Whether a large message is being compressed.
  final var isDeflating: Bool { deflation != nil }

  /// Makes the framing. `lastFlag`: the flag of the frame that ends an answer; 0: the protocol has no such
  /// frame.
  @inline(__always)
  init(
    _ compression: Compression, _ use: CompressionUse = .whereSmaller, maxReceiveBytes: Int,
    lastFlag: UInt8 = 0,
    timeout: InsertedField = .grpcTimeout,
    isPrefixed: Bool = true, opening: Opening = .atOnce
  ) {
    sends = compression
    self.use = use
    self.timeout = timeout
    self.isPrefixed = isPrefixed
    decoder = MessageDecoder(limit: maxReceiveBytes, lastFlag: lastFlag)
    super.init(opening: opening)
  }

  // MARK: The protocol's own

  /// The protocol's name, for error texts.
  var title: StaticString { "gRPC" }
  /// The name of the header field with the compression of messages.
  var encodingName: StaticString { "grpc-encoding" }
  /// The first part of the content-type. The name of the messages' encoding, such as "proto", follows it.
  var typeStart: StaticString { "application/grpc+" }

  /// The name of the messages' encoding; nil: the usual one, "proto", as by default.
  var subtype: ByteView? { nil }

  /// The indices of the common fields that contain the user agent.
  var agents: Range<Int> { 7..<8 }

  /// Adds the fields that all requests of a channel have: pseudo headers, a field of this protocol,
  /// content-type, accepted compressions, user agent, and perhaps others.
  func addCommon(_ defaults: RequestDefaults, to fields: FieldList) -> Bool { mustOverride(false) }

  /// Whether the protocol itself uses the header field `name`, so that metadata can't have it. By default it has
  /// none. `HeaderRules.isReserved` has the names that no protocol permits.
  func isOwn(_ name: ByteView) -> Bool { false }

  /// The code for an answer with this HTTP status, and without a status of the protocol.
  func code(ofHTTP status: Int) -> StatusCode { StatusMapping.fromHTTPStatus(status) }
  /// Whether the content-type of an answer belongs to this protocol.
  func fit(_ type: ByteView?) -> ContentType.Fit { mustOverride(.foreign) }
  /// Whether the content-type is the protocol's usual one. A usual content-type is not added to the metadata.
  /// By default every one that fits is usual.
  func isUsual(_ type: ByteView) -> Bool { true }
  /// The status in the head of an answer. `isAll`: the head is the whole answer. nil: the head has no status.
  func status(inHead fields: Metadata, isAll: Bool) -> Status? {
    isAll || fields.index(of: grpcStatusName) != nil ? grpcStatus(of: fields) : nil
  }
  /// Frames a message in the protocol's own form, if `isPrefixed` is false.
  func frame(_ bytes: ByteBuffer, compressed: Bool) -> FramedMessage {
    mustOverride(.inHeaders(size: 0, wireSize: 0))
  }
  /// Returns the step for the content of the last frame (`lastFlag`), which has the status.
  func lastFrame(_ content: ByteBuffer) -> BodyStep { mustOverride(.needsMore) }

  // MARK: Request

  /// Adds the fields in the order of the section "Requests" of PROTOCOL-HTTP2: reserved headers, Timeout, the
  /// rest of Call-Definition, Custom-Metadata.
  override func requestHeaders(
    _ request: Request, _ defaults: RequestDefaults, now: UInt64, into fields: FieldList
  ) -> Bool {
    addHeaders(request, defaults, owner: defaults, encoding: sends, now: now, into: fields)
  }

  /// Adds all header fields. `owner`: the object that owns the common fields. `length`: the length of the
  /// body; -1: no field with the length is added.
  @inline(__always)
  final func addHeaders(
    _ request: Request, _ defaults: RequestDefaults, owner: AnyObject, encoding: Compression,
    length: Int = -1,
    now: UInt64, into fields: FieldList
  ) -> Bool {
    // The server is told of the channel's present compressors.
    if let present = defaults.compressors { compressors = present }
    let isUsual = encoding == .identity && request.hasOnlyDefaults
    let left = request.deadline.map { $0 > now ? $0 - now : 0 }
    if isUsual,
      borrow(request.path, { fields.repeats(owner, $0, timeout, timeout: left, length: length) })
    {
      return true
    }
    return spell(request, defaults, owner, encoding, left, length, isUsual: isUsual, to: fields)
  }

  private func spell(
    _ request: Request, _ defaults: RequestDefaults, _ owner: AnyObject, _ encoding: Compression,
    _ left: UInt64?, _ length: Int, isUsual: Bool, to fields: FieldList
  ) -> Bool {
    guard fields.begin(owner, { addCommon(defaults, to: fields) }) else { return false }
    if isUsual { fields.path = request.path }
    return addPath(of: request, defaults, to: fields) && addLabels(of: request, to: fields)
      && (encoding == .identity || addEncoding(encoding, to: fields))
      && (length < 0 || fields.add(.contentLength, UInt64(length)))
      && addTimeout(left, to: fields) && addAttempts(request.previousAttempts, to: fields)
      && addCustom(of: request, to: fields)
  }

  /// Tells the server how often the request was sent before, if a retry policy has sent it again (gRFC A6). There are
  /// fewer than ten such attempts.
  private func addAttempts(_ previous: UInt8, to fields: FieldList) -> Bool {
    if previous == 0 { return true }
    guard let room = fields.room(1), room.append(byte: 0x30 + previous) else { return false }
    return fields.add(("grpc-previous-rpc-attempts" as StaticString).bytes, made: 1, indexed: true)
  }

  final func addTimeout(_ left: UInt64?, to fields: FieldList) -> Bool {
    left.map { fields.add(timeout, $0) } ?? true
  }

  /// Sets the path: the target's prefix, then the method's path, then `query`.
  final func addPath(
    of request: Request, _ defaults: RequestDefaults, query: ByteBuffer? = nil, to fields: FieldList
  ) -> Bool {
    let path = request.pathView
    if defaults.prefix == nil, query == nil {
      fields.setValue(at: 2, path)
      return true
    }
    let none = ByteView(start: nil, count: 0)
    let (before, behind) = (defaults.prefix?.view ?? none, query?.view ?? none)
    return fields.setValue(at: 2, before, path, behind)
  }

  private func addEncoding(_ encoding: Compression, to fields: FieldList) -> Bool {
    // The name is a constant, or the request has it.
    guard fields.add(encodingName, encoding.name) else { return false }
    fields.moveLast(to: 6)
    return true
  }

  private func addLabels(of request: Request, to fields: FieldList) -> Bool {
    if let authority = request.authorityView { fields.setValue(at: 3, authority) }
    guard let labels = request.labels else { return true }
    if let agent = labels.userAgent {
      for index in agents { fields.setValue(at: index, ByteView(rebasing: agent.view.dropLast())) }
    }
    guard let subtype = labels.subtype else { return true }
    return fields.setValue(at: 5, typeStart.bytes, subtype, ByteView(start: nil, count: 0))
  }

  /// Adds the metadata and the credentials of the request.
  final func addCustom(of request: Request, to fields: FieldList) -> Bool {
    guard borrow(request.metadata, { addAll($0, of: request, to: fields) }) else { return false }
    guard let credentials = request.settings.credentials else { return true }
    for index in 0..<credentials.count {
      guard addCustom(fields, credentials.name(at: index), credentials.value(at: index)) else { return false }
    }
    return true
  }

  private func addAll(_ custom: Metadata, of request: Request, to fields: FieldList) -> Bool {
    for index in 0..<custom.count {
      let name = custom.name(at: index)
      if HeaderRules.isReserved(name) || bytesEqual(name, "user-agent") || isOwn(name) { continue }
      // If the credentials have a field with this name, only the credentials' value is sent.
      if let credentials = request.settings.credentials, credentials.index(of: name) != nil { continue }
      guard addCustom(fields, name, custom.value(at: index)) else { return false }
    }
    return true
  }

  private func addCustom(_ fields: FieldList, _ name: ByteView, _ value: ByteView) -> Bool {
    guard HeaderRules.isBinary(name) else { return fields.add(name, value) }
    guard let room = fields.room(value.count / 3 * 4 + 4) else { return false }
    let before = room.count
    return Base64.encode(value, padded: false, into: room)
      && fields.add(name, made: room.count - before, indexed: true)
  }

  /// Adds the pseudo headers. The caller then adds the other common fields.
  final func addPseudoHeaders(
    _ method: StaticString, _ defaults: RequestDefaults, to fields: FieldList
  ) -> Bool {
    fields.add(":method", method) && fields.add(":scheme", defaults.privacy == .tls ? "https" : "http")
      && fields.add(":path", "") && fields.add(":authority", lasting: defaults.authority.view)
  }

  override func encode(_ message: Message) -> FramedMessage {
    if sends == .identity { return piece(message, compressed: false) }
    if let deflation {
      deflation.behind.append(message)
      return .later
    }
    return staysPlain(message) ? piece(message, compressed: false) : pack(message)
  }

  /// Whether a message is sent as it is in a call that compresses.
  final func staysPlain(_ message: Message) -> Bool { message.staysPlain || use.skips(message.count) }

  /// Begins to compress a message, and compresses its first slice.
  final func pack(_ message: Message) -> FramedMessage {
    let compressor = Compressor(sends, compressors)
    if case .program(let own) = compressor { return pack(message, own) }
    deflation = compressor.flatMap { Deflation.make(message, $0) }
    return encodeNext()
  }

  /// Lets the program compress a message, whole.
  private func pack(_ message: Message, _ own: ProgramCompressor) -> FramedMessage {
    let outcome = own.compress(message)
    compressors?.haveRun()
    switch outcome {
    case .bytes(let packed) where packed.isEmpty:
      return .failed(failure("compress a message", own, ByteBuffer().say("it gave no bytes")))
    case .bytes(let packed): return choose(packed, message)
    case .failed(let words): return .failed(failure("compress a message", own, words))
    case .tooLarge:
      return .failed(Status(.resourceExhausted, "a message of more than 4 GiB cannot be framed"))
    case .noMemory: return .failed(Status(.resourceExhausted, "no memory to compress a message"))
    }
  }

  /// The failure of a compressor of the program.
  private func failure(_ task: StaticString, _ own: ProgramCompressor, _ words: ByteBuffer?) -> Status {
    let text = ByteBuffer().say("the program's compressor \"").say(own.name.name).say("\" could not ").say(
      task)
    if let words { text.say(": ").say(words.view) }
    return Status(.internal, words: text)
  }

  override func encodeNext() -> FramedMessage {
    switch deflation?.step() ?? .noMemory {
    case .more: return .later
    case .bytes(let packed):
      guard let done = deflation else { break }
      let (plain, waits) = (done.input, !done.behind.isEmpty)
      deflation = done.next()
      if waits, deflation == nil { break }
      return choose(packed, plain)
    case .noMemory: break
    }
    return .failed(Status(.resourceExhausted, "no memory to compress a message"))
  }

  /// Frames a message as it is, or as the bytes that compression has made of it.
  private func choose(_ packed: ByteBuffer, _ plain: ByteBuffer) -> FramedMessage {
    // A message that is sent uncompressed has the compressed flag off.
    let isPacked = !plain.staysPlain && use.sends(packed.count, of: plain.count)
    return piece(isPacked ? packed : plain, compressed: isPacked)
  }

  private func piece(_ bytes: ByteBuffer, compressed: Bool) -> FramedMessage {
    guard isPrefixed else { return frame(bytes, compressed: compressed) }
    guard let length = UInt32(exactly: bytes.count) else {
      return .failed(Status(.resourceExhausted, "a message of more than 4 GiB cannot be framed"))
    }
    return .piece(BodyPiece(compressed: compressed, bytes, length: length))
  }

  // MARK: Body

  override func decode(_ bytes: ByteView) -> (consumed: Int, step: BodyStep) {
    if decoder.isLast, !decoder.isMidMessage {
      return (bytes.count, .failed(Status(.internal, "the body goes on behind its last frame")))
    }
    let (consumed, event) = decoder.push(bytes)
    return (consumed, step(event))
  }

  @inline(__always)
  final func step(_ event: consuming MessageDecoder.Event) -> BodyStep {
    switch consume event {
    case .needsMore: return .needsMore
    case .message(let message, compressed: false):
      return decoder.isLast ? lastFrame(message) : .message(message, size: message.count)
    case .message(let message, compressed: true): return expand(message)
    case .failed(let failure): return .failed(status(failure))
    }
  }

  final func status(_ failure: MessageDecoder.Failure) -> Status {
    switch failure {
    case .tooLarge(let length, let limit):
      let text = ByteBuffer().say("a received message of ").say(unsigned: UInt64(length))
        .say(" bytes is over the limit of ").say(limit).say(" (max_receive_message_bytes)")
      return Status(.resourceExhausted, words: sayCoding(text))
    case .badFlag(let flag):
      let text = ByteBuffer().say("the compressed flag of a received message is ").say(Int(flag))
        .say(", neither 0 nor 1")
      return Status(.internal, words: sayCoding(text))
    case .noMemory: return noMemoryToReceive()
    }
  }

  /// The status for a lack of memory while the body is read.
  func noMemoryToReceive() -> Status { Status(.resourceExhausted, "no memory for a received message") }

  override func space() -> UnsafeMutableRawBufferPointer? { decoder.space() }

  override func beginsWithMessage(_ bytes: ByteView) -> Bool {
    guard bytes.count >= MessagePrefix.size, !decoder.isMidMessage else { return false }
    let length = UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: 1, as: UInt32.self))
    return Int(length) <= bytes.count - MessagePrefix.size
  }

  override func beginsWithTwo(_ bytes: ByteView, limit: Int) -> Bool {
    // A compressed message is excluded, because its size after decompression is not known.
    guard beginsWithMessage(bytes), bytes[0] == 0 else { return false }
    let length = Int(UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: 1, as: UInt32.self)))
    guard length <= limit else { return false }
    let rest = ByteView(rebasing: bytes[(MessagePrefix.size + length)...])
    // The last frame (with a flag above 1) is not a message.
    return beginsWithMessage(rest) && rest[0] <= 1
  }

  /// Decompresses a message. The failures follow "Test cases" 5 and 6 of the document "gRPC Compression".
  final func expand(_ message: ByteBuffer) -> BodyStep {
    // No bytes are no bytes, compressed or not. Some servers set the flag of an empty message.
    if message.isEmpty { return decoder.isLast ? lastFrame(message) : .message(message, size: 0) }
    switch receives {
    case .known(let encoding):
      guard let compressor = Compressor(encoding, compressors) else {
        let text = ByteBuffer()
          .say("the compressed flag of a received message is set, but there is no ").say(encodingName)
        return .failed(Status(.internal, words: text))
      }
      let most = decoder.isLast ? max(limit, MessageDecoder.leastLastLimit) : limit
      if case .program(let own) = compressor { return expand(message, own, limit: most) }
      inflation = Inflation.make(message, compressor, limit: most)
      return proceed()
    case .unknown(let name):
      let text = ByteBuffer().say("a received message has")
      return .failed(Status(.internal, words: sayUnsupported(name, text)))
    }
  }

  /// Lets the program decompress a message, whole.
  private func expand(_ message: ByteBuffer, _ own: ProgramCompressor, limit: Int) -> BodyStep {
    let outcome = own.decompress(message, limit: limit)
    compressors?.haveRun()
    switch outcome {
    case .bytes(let bytes): return expanded(bytes, size: message.count)
    case .failed(let words): return .failed(failure("decompress a received message", own, words))
    case .tooLarge: return .failed(inflatesTooLarge())
    case .noMemory: return .failed(noMemoryToReceive())
    }
  }

  private func expanded(_ bytes: ByteBuffer, size: Int) -> BodyStep {
    decoder.isLast ? lastFrame(bytes) : .message(bytes, size: size)
  }

  private func inflatesTooLarge() -> Status {
    let text = ByteBuffer().say("a received message, decompressed, is over the limit of ").say(limit)
      .say(" bytes (max_receive_message_bytes)")
    return Status(.resourceExhausted, words: text)
  }

  override func proceed() -> BodyStep {
    guard let inflation else { return .failed(noMemoryToReceive()) }
    let step = inflation.step()
    if case .more = step { return .busy }
    self.inflation = nil
    switch step {
    case .more: return .busy
    case .bytes(let bytes): return expanded(bytes, size: inflation.input.count)
    case .malformed:
      let text = ByteBuffer().say("a received message is not valid ")
      if case .known(let encoding) = receives { text.say(encoding.name) }
      return .failed(Status(.internal, words: text))
    case .noMemory: return .failed(noMemoryToReceive())
    case .tooLarge: return .failed(inflatesTooLarge())
    }
  }

  // MARK: End

  /// Whether the received bytes of the body end in the middle of a message.
  var isCut: Bool { decoder.isMidMessage }

  override func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool) -> Status {
    guard case .trailers = end, let status = trailers else { return failure(end, deadlineHasPassed) }
    // If the last message is cut off and the server has reported a failure, that failure is the better
    // explanation.
    return decoder.isMidMessage && status.code == .ok ? failure(.body, false) : status
  }
}
