import PenstockCall
import PenstockChannel
import PenstockWire

/// The part that all requests of a channel have in common.
final class RequestDefaults {
  let privacy: Privacy
  /// The authority, without a NUL.
  let authority: ByteBuffer
  let userAgent: ByteBuffer
  let framings: Framings
  let rpc: RPCProtocol
  /// The path of a target that is a URL, without a slash at its end: it stands before the path of each method. nil:
  /// none.
  let prefix: ByteBuffer?
  /// The longest path, with its query, that a GET may have, in bytes.
  let mostURLBytes: Int

  init(
    privacy: Privacy, authority: ByteBuffer, userAgent: ByteBuffer, framings: Framings = Framings(),
    rpc: RPCProtocol = .grpc, prefix: ByteBuffer? = nil, mostURLBytes: Int = 0
  ) {
    self.privacy = privacy
    self.authority = authority
    self.userAgent = userAgent
    self.framings = framings
    self.rpc = rpc
    self.prefix = prefix
    self.mostURLBytes = mostURLBytes
  }
}

/// gRPC over HTTP/2, from the client's side: the document "gRPC over HTTP2" (PROTOCOL-HTTP2), with "HTTP to gRPC
/// Status Code Mapping" and "gRPC Compression".
final class GRPCFraming: Framing {
  private enum Encoding {
    case identity, gzip
    case unknown(ByteBuffer)
  }

  private var decoder: MessageDecoder
  private var limit: Int { decoder.limit }
  private let sends: Compression
  private var receives = Encoding.identity
  private var httpStatus = 0
  private var inflation: Inflation? {
    didSet { isBusy = inflation != nil }
  }
  private var deflation: Deflation? {
    didSet { isPacking = deflation != nil }
  }

  @inline(__always)
  init(compression: Compression, maxReceiveBytes: Int) {
    sends = compression
    decoder = MessageDecoder(limit: maxReceiveBytes)
    super.init()
  }

  // MARK: Request

  /// Adds the fields in the order of the section "Requests": reserved headers, then Timeout, then the rest of
  /// Call-Definition, then Custom-Metadata.
  override func requestHeaders(
    _ request: Request, _ defaults: RequestDefaults, now: UInt64, into fields: FieldList
  ) -> Bool {
    let hasOnlyDefaults = sends == .identity && request.hasOnlyDefaults
    let left = request.deadline.map { $0 > now ? $0 - now : 0 }
    if hasOnlyDefaults, borrow(request.path, { fields.repeats(defaults, $0, timeout: left) }) { return true }
    return spell(request, defaults, timeout: left, hasOnlyDefaults: hasOnlyDefaults, into: fields)
  }

  @inline(never) @_optimize(size)
  private func spell(
    _ request: Request, _ defaults: RequestDefaults, timeout: UInt64?, hasOnlyDefaults: Bool,
    into fields: FieldList
  ) -> Bool {
    guard fields.begin(defaults, { addCommon(defaults, to: fields) }) else { return false }
    if hasOnlyDefaults { fields.path = request.path }
    fields.setValue(at: 2, request.pathView)
    if let authority = request.authorityView { fields.setValue(at: 3, authority) }
    if let labels = request.labels {
      if let type = labels.contentType { fields.setValue(at: 5, ByteView(rebasing: type.view.dropLast())) }
      if let agent = labels.userAgent { fields.setValue(at: 7, ByteView(rebasing: agent.view.dropLast())) }
    }
    if sends != .identity {
      guard fields.add("grpc-encoding", "gzip") else { return false }
      fields.moveLast(to: 6)
    }
    if let timeout, !fields.add(timeout: timeout) { return false }
    guard borrow(request.metadata, { addAll($0, of: request, to: fields) }) else { return false }
    if let credentials = request.settings.credentials {
      for index in 0..<credentials.count {
        guard addCustom(fields, credentials.name(at: index), credentials.value(at: index)) else {
          return false
        }
      }
    }
    return true
  }

  @inline(never) @_optimize(size)
  private func addAll(_ custom: Metadata, of request: Request, to fields: FieldList) -> Bool {
    for index in 0..<custom.count {
      let name = custom.name(at: index)
      if HeaderRules.isReserved(name) || bytesEqual(name, "user-agent") { continue }
      // For a name that the credentials have, only the credentials' value is sent.
      if let credentials = request.settings.credentials, credentials.index(of: name) != nil { continue }
      guard addCustom(fields, name, custom.value(at: index)) else { return false }
    }
    return true
  }

  @inline(never) @_optimize(size)
  private func addCommon(_ defaults: RequestDefaults, to fields: FieldList) -> Bool {
    fields.add(":method", "POST") && fields.add(":scheme", defaults.privacy == .tls ? "https" : "http")
      && fields.add(":path", "") && fields.add(":authority", lasting: defaults.authority.view)
      && fields.add("te", "trailers") && fields.add("content-type", "application/grpc")
      && fields.add("grpc-accept-encoding", "identity,gzip")
      && fields.add("user-agent", lasting: defaults.userAgent.view)
  }

  @inline(never)
  private func addCustom(_ fields: FieldList, _ name: ByteView, _ value: ByteView) -> Bool {
    guard HeaderRules.isBinary(name) else { return fields.add(name, value) }
    return fields.add(name, most: value.count / 3 * 4 + 4, indexed: true) {
      Base64.encode(value, padded: false, into: $0)
    }
  }

  override func encode(_ message: Message) -> FramedMessage {
    if sends == .identity { return piece(message, compressed: false) }
    if let deflation {
      deflation.behind.append(message)
      return .later
    }
    if message.staysPlain { return piece(message, compressed: false) }
    deflation = Deflation(message)
    return encodeNext()
  }

  @inline(never) @_optimize(size)
  override func encodeNext() -> FramedMessage {
    switch deflation?.step() ?? .noMemory {
    case .more: return .later
    case .bytes(let packed):
      guard let done = deflation else { break }
      let (plain, waits) = (done.input, !done.behind.isEmpty)
      deflation = done.next()
      if waits, deflation == nil { break }
      // A message that compression does not make smaller is sent uncompressed, with the compressed flag off.
      let shrinks = packed.count < plain.count
      return piece(shrinks ? packed : plain, compressed: shrinks)
    case .noMemory: break
    }
    return .failed(Status(.resourceExhausted, "no memory to compress a message"))
  }

  private func piece(_ bytes: ByteBuffer, compressed: Bool) -> FramedMessage {
    guard let length = UInt32(exactly: bytes.count) else {
      return .failed(Status(.resourceExhausted, "a message of more than 4 GiB cannot be framed"))
    }
    return .piece(BodyPiece(compressed: compressed, bytes, length: length))
  }

  // MARK: Response

  override func responseHeaders(_ block: HeaderBlock, endsStream: Bool) -> ResponseStart {
    if block.isPlainHead, !endsStream {
      httpStatus = 200
      return .headers(.none)
    }
    return spelledHeaders(block, endsStream)
  }

  @inline(never) @_optimize(size)
  private func spelledHeaders(_ block: HeaderBlock, _ endsStream: Bool) -> ResponseStart {
    let fields = block.fields
    httpStatus = status(of: fields)
    if httpStatus / 100 == 1 && !endsStream { return .informational }
    let hasStatus = fields.index(of: grpcStatusName) != nil
    // This is a Trailers-Only answer, or an HTTP error with a grpc-status: "if grpc-status was provided, it must be
    // used".
    if hasStatus && (endsStream || httpStatus != 200) { return .ended(trailers(fields)) }
    let type = fields.index(of: ("content-type" as StaticString).bytes).map { fields.value(at: $0) }
    if httpStatus != 200 {
      let status = Status(StatusMapping.fromHTTPStatus(httpStatus), words: notGRPC(type))
      addAll(fields, to: status)
      return .ended(status)
    }
    if ContentType.classify(type) != .grpc {
      let status = Status(.unknown, words: notGRPC(type))
      addAll(fields, to: status)
      return .ended(status)
    }
    if endsStream { return .ended(trailers(fields)) }
    if let index = fields.index(of: ("grpc-encoding" as StaticString).bytes) {
      let value = fields.value(at: index)
      if bytesEqual(value, "gzip") {
        receives = .gzip
      } else if !bytesEqual(value, "identity") {
        receives = .unknown(ByteBuffer(copying: value) ?? ByteBuffer())
      }
    }
    let metadata = Metadata()
    // The usual content-type is left out of the metadata.
    if let type, !bytesEqual(type, "application/grpc"),
      metadata.add(("content-type" as StaticString).bytes, type) != .ok
    {
      return .ended(Status(.resourceExhausted, "no memory for the response headers"))
    }
    switch copyCustom(fields, to: metadata) {
    case .done: return .headers(metadata)
    case .noMemory: return .ended(Status(.resourceExhausted, "no memory for the response headers"))
    case .malformed(let name):
      let text = ByteBuffer().say("the response header \"").say(name.view).say("\" is not base64")
      return .ended(Status(.internal, words: text))
    }
  }

  private var grpcStatusName: ByteView { ("grpc-status" as StaticString).bytes }

  @inline(never) @_optimize(size)
  private func notGRPC(_ type: ByteView?) -> ByteBuffer {
    let text = ByteBuffer().say("the answer is not gRPC: HTTP status ").say(httpStatus)
    guard let type else { return text.say(", no content-type") }
    return text.say(", content-type \"").say(printable: type, limit: 80).say("\"")
  }

  /// The number in ":status"; 0: it is malformed.
  private func status(of fields: Metadata) -> Int {
    guard let index = fields.index(of: (":status" as StaticString).bytes) else { return 0 }
    let value = fields.value(at: index)
    guard value.count == 3 else { return 0 }
    var number = 0
    for byte in value {
      guard byte >= 0x30, byte <= 0x39 else { return 0 }
      number = number * 10 + Int(byte - 0x30)
    }
    return number
  }

  // MARK: Body

  override func decode(_ bytes: ByteView) -> (consumed: Int, step: BodyStep) {
    let (consumed, event) = decoder.push(bytes)
    switch event {
    case .needsMore: return (consumed, .needsMore)
    case .message(let message, compressed: false): return (consumed, .message(message, size: message.count))
    case .message(let message, compressed: true): return (consumed, expand(message))
    case .failed(.tooLarge(let length, let limit)):
      let text = ByteBuffer().say("a received message of ").say(unsigned: UInt64(length))
        .say(" bytes is over the limit of ").say(limit).say(" (max_receive_message_bytes)")
      return (consumed, .failed(Status(.resourceExhausted, words: text)))
    case .failed(.badFlag(let flag)):
      let text = ByteBuffer().say("the compressed flag of a received message is ").say(Int(flag))
        .say(", neither 0 nor 1")
      return (consumed, .failed(Status(.internal, words: text)))
    case .failed(.noMemory):
      return (consumed, .failed(Status(.resourceExhausted, "no memory for a received message")))
    }
  }

  override func space() -> UnsafeMutableRawBufferPointer? { decoder.space() }

  override func beginsWithMessage(_ bytes: ByteView) -> Bool {
    guard bytes.count >= MessagePrefix.size, !decoder.isMidMessage else { return false }
    let length = UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: 1, as: UInt32.self))
    return Int(length) <= bytes.count - MessagePrefix.size
  }

  override func beginsWithTwo(_ bytes: ByteView, limit: Int) -> Bool {
    // The size of a compressed message once it is unpacked is not known.
    guard beginsWithMessage(bytes), bytes[0] == 0 else { return false }
    let length = Int(UInt32(bigEndian: bytes.loadUnaligned(fromByteOffset: 1, as: UInt32.self)))
    return length <= limit && beginsWithMessage(ByteView(rebasing: bytes[(MessagePrefix.size + length)...]))
  }

  /// Decompresses a message; "gRPC Compression", "Test cases" 5 and 6, say which failures there are.
  @inline(never) @_optimize(size)
  private func expand(_ message: ByteBuffer) -> BodyStep {
    switch receives {
    case .identity:
      return .failed(
        Status(.internal, "the compressed flag of a received message is set, but there is no grpc-encoding"))
    case .unknown(let name):
      let text = ByteBuffer().say("a received message has the unsupported grpc-encoding \"")
        .say(printable: name.view, limit: 40).say("\" (supported: identity, gzip)")
      return .failed(Status(.internal, words: text))
    case .gzip:
      inflation = Inflation(message, limit: limit)
      return proceed()
    }
  }

  @inline(never) @_optimize(size)
  override func proceed() -> BodyStep {
    guard let inflation else {
      return .failed(Status(.resourceExhausted, "no memory for a received message"))
    }
    let step = inflation.step()
    if case .more = step { return .busy }
    self.inflation = nil
    switch step {
    case .more: return .busy
    case .bytes(let bytes): return .message(bytes, size: inflation.input.count)
    case .malformed: return .failed(Status(.internal, "a received message is not valid gzip"))
    case .noMemory: return .failed(Status(.resourceExhausted, "no memory for a received message"))
    case .tooLarge:
      let text = ByteBuffer().say("a received message, decompressed, is over the limit of ").say(limit)
        .say(" bytes (max_receive_message_bytes)")
      return .failed(Status(.resourceExhausted, words: text))
    }
  }

  // MARK: End

  override func status(ofTrailers block: HeaderBlock) -> Status {
    block.isPlainTrailers ? Status(.ok) : trailers(block.fields)
  }

  override func status(_ end: StreamEnd, trailers: consuming Status?, deadlineHasPassed: Bool) -> Status {
    guard case .trailers = end, let status = trailers else { return failure(end, deadlineHasPassed) }
    // If the last message is cut off, a failure that the server has reported explains this better than the
    // cut.
    return decoder.isMidMessage && status.code == .ok ? failure(.body, false) : status
  }

  @inline(never) @_optimize(size)
  private func failure(_ end: StreamEnd, _ deadlineHasPassed: Bool) -> Status {
    switch end {
    case .trailers: return Status(.internal, "the trailers were lost")
    case .body:
      return decoder.isMidMessage
        ? Status(.internal, "the stream ended in the middle of a message")
        : Status(.internal, "the server closed the stream without sending trailers")
    // The cases from here on follow the table of codes in the section "Errors", from the client's side. A code that
    // is not in the table is INTERNAL, as RFC 9113 section 7 allows.
    case .cancelled(let words):
      // "When a call fails with CANCELLED status the client is encouraged to check whether the deadline has expired."
      if deadlineHasPassed { return Status(.deadlineExceeded, "deadline exceeded") }
      return Status(.cancelled, words: words)
    // "... with additional error detail provided by runtime to indicate that the exhausted resource is bandwidth":
    // `words` ends with "too much traffic".
    case .tooMuch(let words): return Status(.resourceExhausted, words: words)
    case .insecure(let words): return Status(.permissionDenied, words: words)
    case .reset(let words): return Status(.internal, words: words)
    case .neverSent(let words), .unprocessed(let words), .lost(let words):
      return Status(.unavailable, words: words)
    case .broken(let words): return Status(.internal, words: words)
    case .answerTooLarge(let words): return Status(.resourceExhausted, words: words)
    case .requestTooLarge(let size, let limit):
      let text = ByteBuffer().say("the request headers have ").say(Int(size))
        .say(" bytes, over the limit of ").say(Int(limit)).say(" that the server has set")
      return Status(.resourceExhausted, words: text)
    case .noMemory: return Status(.resourceExhausted, "no memory for the call")
    }
  }

  /// The status in trailers or in a trailers-only response.
  @inline(never) @_optimize(size)
  private func trailers(_ fields: Metadata) -> Status {
    let index = fields.index(of: grpcStatusName)
    let given = index.map { fields.value(at: $0) }
    let status = Status(StatusMapping.fromTrailers(grpcStatus: given, httpStatus: httpStatus))
    if let index = fields.index(of: ("grpc-message" as StaticString).bytes) {
      let decoded = ByteBuffer()
      if PercentCoding.decode(fields.value(at: index), into: decoded) { _ = status.setMessage(decoded.view) }
    }
    if given == nil && status.message.isEmpty {
      say(ByteBuffer().say("the trailers have no grpc-status: HTTP status ").say(httpStatus), status)
    } else if let given, status.message.isEmpty, status.code == .unknown, !bytesEqual(given, "2") {
      let text = ByteBuffer().say("malformed or undefined grpc-status \"").say(printable: given, limit: 20)
        .say("\"")
      say(text, status)
    }
    addAll(fields, to: status)
    if let index = fields.index(of: Status.detailsName) { addDetails(fields.value(at: index), to: status) }
    return status
  }

  private func say(_ text: ByteBuffer, _ status: Status) { _ = status.setMessage(text.view) }

  /// Takes the details from "grpc-status-details-bin". Their raw bytes also stay in the trailers, decoded from base64
  /// where that is possible.
  private func addDetails(_ wire: ByteView, to status: Status) {
    let decoded = ByteBuffer()
    if Base64.decode(HeaderRules.trimmed(wire), into: decoded) == .ok {
      status.takeDetails(decoded.view)
    } else {
      status.takeMalformedDetails(wire)
    }
  }

  /// Copies the metadata of `fields` into the status's trailers. A "-bin" value that does not decode is left out,
  /// because the status counts in any case.
  private func addAll(_ fields: Metadata, to status: Status) { _ = copyCustom(fields, to: status.trailers) }

  // MARK: Metadata

  private enum Copied {
    case done
    case malformed(ByteBuffer)
    case noMemory
  }

  /// Copies Custom-Metadata without the reserved names, "-bin" values decoded. Returns the first malformed field; the
  /// others are copied.
  @inline(never) @_optimize(size)
  private func copyCustom(_ fields: Metadata, to metadata: Metadata) -> Copied {
    var outcome = Copied.done
    for index in 0..<fields.count {
      let name = fields.name(at: index)
      guard HeaderRules.isValidName(name), !HeaderRules.isReserved(name) else { continue }
      let value = HeaderRules.trimmed(fields.value(at: index))
      guard HeaderRules.isBinary(name) else {
        if metadata.add(name, value) != .ok { return .noMemory }
        continue
      }
      copyBinary(name, value, to: metadata, &outcome)
      if case .noMemory = outcome { return .noMemory }
    }
    return outcome
  }

  @inline(never) @_optimize(size)
  private func copyBinary(_ name: ByteView, _ value: ByteView, to metadata: Metadata, _ outcome: inout Copied)
  {
    let scratch = ByteBuffer()
    HeaderRules.forEachBinaryValue(value) { part in
      scratch.removeAll(keepingCapacity: true)
      switch Base64.decode(part, into: scratch) {
      case .ok: if metadata.add(name, scratch.view) != .ok { outcome = .noMemory }
      case .malformed:
        if case .done = outcome { outcome = .malformed(ByteBuffer(copying: name) ?? ByteBuffer()) }
      case .noMemory: outcome = .noMemory
      }
    }
  }
}

extension BodyPiece {
  /// A piece with a message and its prefix: "Length-Prefixed-Message".
  public init(compressed: Bool, _ bytes: ByteBuffer, length: UInt32) {
    var prefix: UInt64 = 0
    MessagePrefix.write(compressed: compressed, length: length, to: &prefix)
    self.init(prefix: prefix, size: MessagePrefix.size, bytes)
  }
}
