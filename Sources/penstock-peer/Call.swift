import PenstockTransport
import PenstockWire
import PenstockLink
import PenstockHTTP

/// One call of the server: receives the request, and sends the answer.
///
/// While a reply is being sent or delayed, no input is decoded. Bytes that are not decoded give no
/// flow-control credit back to the client. So a call keeps at most one message, one window of input, and
/// `highWater` bytes of output.
///
/// ```
///   receive -> [inbox] -> framing -> service (Call+Services) -> replies -> framing -> [output] -> provide
/// ```
/// The framing implements the protocol: gRPC, gRPC-Web or Connect. The connection implements the version of
/// HTTP.
///
/// Call objects are reused (`CallPool`): `begin` prepares an object for a new stream, and `reset` clears it
/// after the stream has ended.
final class Call: Source {
  /// A response message that is delayed, or that waits until the output has room for it.
  struct Reply {
    /// The message; nil: a test payload of `size` zeros.
    var body: ByteBuffer?
    var size = 0
    var delay: UInt64 = 0
    var compressed = false
    var times = 1
    var isOnlyDelay = false
  }

  unowned(unsafe) var session: ServerConnection?  // The session holds this call while the stream lives.
  private(set) var id: Int32 = 0
  /// The index of this call in the session's list of calls.
  var index = 0
  var closeCode: UInt32 = 0

  // The state of the request.
  var method = Method.unknownService
  private(set) var knobs = Knobs()
  /// The request's fields. Each is stored as the lengths of name and value (four bytes each), the name, and the value.
  private let fields = ByteBuffer()
  var timeout: UInt64?
  private var isGRPC = false
  var wire = RPCWire.grpc
  private let grpc = GRPCServerFraming()
  var framing: ServerFraming
  let subtypeName = ByteBuffer()
  var codec = Codec.proto
  var requestCoding = Coding.identity
  var clientTakesGzip = false
  /// The base64 decoder of the request's body; nil: the body is not in base64.
  var text: TextInput?
  private var skipper = MessageSkipper(limit: 0)
  private let inbox = ByteBuffer()
  private var chunk = ByteView(start: nil, count: 0)
  private(set) var inputHasEnded = false
  private var endWasHandled = false
  var messagesIn = 0

  // The state of the service.
  var request: ByteBuffer?
  var requestWasCompressed = false
  let gathered = ByteBuffer()
  var total = 0

  // The state of the answer.
  var output = PieceQueue()
  private var replies: [Reply] = []
  private var nextReply = 0
  private var deadline: UInt64 = .max
  private var waitsUntil: UInt64 = 0
  /// Whether the delay of the next reply has ended.
  private var isDue = false
  var messagesOut = 0
  /// Whether the call ends with its status as soon as all `replies` were sent.
  var endsAfterReplies = false
  var status: Int?
  let statusMessage = ByteBuffer()
  var isRefused = false
  var isSubmitted = false
  private var isDeferred = false
  var trailersAreSubmitted = false
  /// Whether the body has its last piece in the output, or the answer has no body.
  private var outputIsWhole = false
  /// Whether the answer begins only when the call has ended. All output is kept until then.
  private var holdsAnswer = false
  /// Whether an answer about wrong headers waits for the end of the request. This helps curl over HTTP/2:
  /// after an earlier answer it would report the RST_STREAM as a failure, and not show the answer.
  private var waitsForInput = false
  private var wasReset = false
  /// Whether the call has had a large message. If so, its buffers free their memory before the object is
  /// reused.
  private var wasLarge = false

  private static let highWater = 64 << 10

  // MARK: Life

  override init() {
    framing = grpc
    super.init()
  }

  func begin(_ session: ServerConnection, _ id: Int32, index: Int) {
    self.session = session
    self.id = id
    self.index = index
    skipper = MessageSkipper(limit: session.options.maxMessageBytes)
  }

  func reset() {
    session = nil
    closeCode = 0
    method = .unknownService
    knobs = Knobs()
    clear(fields)
    timeout = nil
    isGRPC = false
    wire = .grpc
    framing = grpc
    clear(subtypeName)
    codec = .proto
    text = nil
    requestCoding = .identity
    clientTakesGzip = false
    clear(inbox)
    inputHasEnded = false
    endWasHandled = false
    messagesIn = 0
    request = nil
    requestWasCompressed = false
    clear(gathered)
    total = 0
    output.removeAll()
    replies.removeAll(keepingCapacity: true)
    nextReply = 0
    deadline = .max
    waitsUntil = 0
    isDue = false
    messagesOut = 0
    endsAfterReplies = false
    status = nil
    clear(statusMessage)
    isRefused = false
    isSubmitted = false
    isDeferred = false
    trailersAreSubmitted = false
    outputIsWhole = false
    holdsAnswer = false
    waitsForInput = false
    wasReset = false
    wasLarge = false
  }

  private func clear(_ buffer: ByteBuffer) { buffer.removeAll(keepingCapacity: !wasLarge) }

  // MARK: Request headers

  func field(_ name: ByteView, _ value: ByteView) {
    if bytesEqual(name, ":path") {
      method = Method(path: session?.options.withoutPrefix(value) ?? value)
    } else if bytesEqual(name, "content-type") {
      isGRPC = ContentType.classify(value) == .grpc
      if isGRPC && value.count > 16 { nameCodec(RPCWire.of(contentType: value).subtype) }
    } else if bytesEqual(name, "grpc-timeout") {
      timeout = Timeout.parse(value)
    } else if bytesEqual(name, "grpc-encoding") {
      requestCoding = Coding(value)
    } else if bytesEqual(name, "grpc-accept-encoding") {
      HeaderRules.forEachBinaryValue(value) { if bytesEqual($0, "gzip") { clientTakesGzip = true } }
    } else {
      knobs.read(name, value)
    }
    guard let space = fields.spare(atLeast: 8) else { return }
    space.storeBytes(of: UInt32(truncatingIfNeeded: name.count), as: UInt32.self)
    space.storeBytes(of: UInt32(truncatingIfNeeded: value.count), toByteOffset: 4, as: UInt32.self)
    fields.commit(8)
    _ = fields.append(name) && fields.append(value)
  }

  func eachField(_ body: (ByteView, ByteView) -> Void) {
    let bytes = fields.view
    var at = 0
    while bytes.count - at >= 8 {
      let nameCount = Int(bytes.loadUnaligned(fromByteOffset: at, as: UInt32.self))
      let valueCount = Int(bytes.loadUnaligned(fromByteOffset: at + 4, as: UInt32.self))
      let valueAt = at + 8 + nameCount
      body(part(bytes, at + 8, valueAt), part(bytes, valueAt, valueAt + valueCount))
      at = valueAt + valueCount
    }
  }

  func headersEnd() {
    guard let session else { return }
    guard isGRPC ? session.isHTTP2 || refuse("505") : negotiate() else { return }
    framing.begin(self, limit: session.options.maxMessageBytes)
    holdsAnswer = framing.isWhole || knobs.delimiting == .length
    if let timeout, status == nil {
      deadline = session.loop.now &+ min(timeout, 1 << 62)
      session.loop.arm(self, at: deadline)
    }
    if method == .unknownService { end(.unimplemented, "no such service") }
    if method == .unknownMethod { end(.unimplemented, "no such method") }
    if requestCoding == .unknown { end(.unimplemented, "grpc-encoding is not supported") }
    if codec == .json && !method.takesJSON { end(.unimplemented, "the method takes protobuf only") }
    waitsForInput = framing.isWhole && status != nil
    if knobs.after == 0 { endAsAsked() }
    if status == nil && method.isDuplex && knobs.delay == 0 && !holdsAnswer { submit() }
    advance()
  }

  // MARK: Input

  func receive(_ bytes: ByteView) {
    if status != nil {
      session?.consumed(self, bytes.count)
      return
    }
    chunk = bytes
    if let text {
      if !text.decode(bytes) { end(.internal, "the request is not base64") }
      chunk = text.plain.view
    }
    advance()
    if !chunk.isEmpty && status == nil {
      wasLarge = wasLarge || inbox.count > 1 << 18
      if !inbox.append(chunk) { end(.resourceExhausted, "no memory") }
    }
    chunk = ByteView(start: nil, count: 0)
  }

  func inputEnds() {
    inputHasEnded = true
    advance()
  }

  private enum Input {
    case message(ByteBuffer, Bool)
    case needsMore
    case failed
  }

  private var onlyCounts: Bool { method == .echoClientStream && knobs.counts && requestCoding == .identity }

  private func nextMessage() -> Input {
    let isStored = !inbox.isEmpty
    let bytes = isStored ? inbox.view : chunk
    let (used, event) = onlyCounts ? skipper.push(bytes) : framing.push(bytes)
    if isStored { inbox.consume(used) } else { chunk = part(chunk, used, chunk.count) }
    if used > 0 { giveCredit(used) }
    switch event {
    case .message(let message, let compressed): return .message(message, compressed)
    case .needsMore:
      return isStored && !chunk.isEmpty ? nextMessage() : .needsMore
    case .failed(.tooLarge): end(.resourceExhausted, "the request message is larger than the limit")
    case .failed(.badFlag): end(.internal, "bad compressed flag")
    case .failed(.noMemory): end(.resourceExhausted, "no memory")
    }
    return .failed
  }

  /// Gives the client flow-control credit for `count` bytes of decoded input.
  private func giveCredit(_ count: Int) {
    let isLast = inbox.isEmpty && chunk.isEmpty
    let count = text.map { $0.consumed(count, isLast: isLast) } ?? count
    session?.consumed(self, count)
  }

  // MARK: Going on

  /// Sends the replies that are due, and takes the next messages, as long as input and room in the output
  /// permit.
  func advance() {
    guard let session else { return }
    loop: while status == nil {
      if output.bytes >= Call.highWater && !holdsAnswer { break }
      if nextReply < replies.count {
        let delay = replies[nextReply].delay
        if delay > 0 && !isDue {
          if waitsUntil == 0 {
            waitsUntil = session.loop.now &+ delay
            session.loop.arm(self, at: min(waitsUntil, deadline))
          }
          break
        }
        isDue = false
        sendFront()
      } else if endsAfterReplies {
        endAsAsked()
      } else {
        switch nextMessage() {
        case .failed: break loop
        case .message(let message, let compressed):
          messagesIn += 1
          take(message, compressed)
        case .needsMore:
          guard inputHasEnded && !endWasHandled else { break loop }
          if let (message, compressed) = framing.lastMessage() {
            messagesIn += 1
            take(message, compressed)
            continue
          }
          endWasHandled = true
          if framing.isMidMessage || skipper.isMidMessage || text?.isMidGroup == true {
            end(.internal, "the request ends in the middle of a message")
          } else {
            takeEnd()
          }
        }
      }
    }
    commit()
  }

  override func timeIsUp(_ now: UInt64) {
    guard let session else { return }
    session.loop.mark(session)
    if now >= deadline && status == nil { return deadlineExpired() }
    if deadline != .max && status == nil { session.loop.arm(self, at: deadline) }
    if waitsUntil != 0 && now >= waitsUntil {
      waitsUntil = 0
      isDue = true
      advance()
    }
  }

  /// Ends the call with DEADLINE_EXCEEDED, the status that the client itself sets at about the same time. If
  /// a part of the output was not sent yet, trailers can't follow, so RST_STREAM is sent: "servers should
  /// only use this mechanism when they need to cancel a call but the payload byte sequence is incomplete"
  /// (gRPC over HTTP2, "Errors").
  private func deadlineExpired() {
    guard let session else { return }
    end(.deadlineExceeded, "the deadline has expired at the server")
    if output.bytes == 0 || !isSubmitted { return commit() }
    wasReset = true
    session.abort(self)
  }

  // MARK: Replies

  /// Queues a reply. The client's `x-delay-ms` is added to the reply's own delay.
  func reply(_ given: Reply) {
    var reply = given
    reply.delay &+= knobs.delay
    replies.append(reply)
  }

  private func sendFront() {
    let reply = replies[nextReply]
    if reply.times > 1 {
      replies[nextReply].times -= 1
    } else {
      nextReply += 1
      if nextReply == replies.count {
        replies.removeAll(keepingCapacity: true)
        nextReply = 0
      }
    }
    send(reply)
    if status == nil && knobs.after == messagesOut { endAsAsked() }
  }

  private func send(_ reply: Reply) {
    if reply.isOnlyDelay { return }
    let compresses = (reply.compressed || knobs.compresses) && clientTakesGzip
    var body = reply.body ?? ByteBuffer()
    if reply.body == nil, !writeTestPayload(reply.size, into: body) {
      return end(.resourceExhausted, "no memory")
    }
    if compresses {
      let plain = body
      body = ByteBuffer()
      guard Gzip.compress(plain.view, into: body) else { return end(.internal, "gzip failed") }
    }
    guard let piece = framing.piece(body, compressed: compresses) else {
      return end(.resourceExhausted, "no memory")
    }
    output.append(piece)
    messagesOut += 1
  }

  // MARK: The end

  func end(_ code: StatusCode, _ message: StaticString) { end(Int(code.rawValue), message.bytes) }

  /// Sets the status. Only the first status of a call counts. Messages that are in the output are still sent.
  func end(_ code: Int, _ message: ByteView) {
    if status != nil { return }
    status = code
    statusMessage.put(message)
    session?.loop.disarm(self)
    // The bytes that will not be decoded give their flow-control credit back now.
    let left = inbox.count + chunk.count
    inbox.removeAll(keepingCapacity: true)
    chunk = ByteView(start: nil, count: 0)
    if left > 0 { giveCredit(left) }
  }

  /// Ends the call with the status that the client asks for by metadata (`Knobs`), otherwise with OK.
  func endAsAsked() {
    end(knobs.status ?? 0, ByteView(start: nil, count: 0))
    guard knobs.status != nil && knobs.hasMessage else { return }
    eachField { name, value in
      if bytesEqual(name, "x-message") { self.statusMessage.put(value) }
      if bytesEqual(name, "x-message-bin") { _ = Base64.decode(value, into: self.statusMessage) }
    }
  }

  // MARK: Output

  /// Tells the connection that the call has something to send.
  private func commit() {
    guard let session, !wasReset else { return }
    if !isSubmitted {
      if status == nil ? output.bytes == 0 || holdsAnswer : waitsForInput && !inputHasEnded { return }
      submit()
    } else if isDeferred && (output.bytes > 0 || status != nil) {
      isDeferred = false
      session.resume(self)
    }
  }

  private func submit() {
    guard let session, !isSubmitted else { return }
    isSubmitted = true
    session.fields.clear()
    let isAlone = status != nil && output.bytes == 0 && !knobs.sendsHeadersFirst
    let hasBody = framing.addHeaders(self, to: session.fields, isAlone: isAlone)
    if !hasBody {
      trailersAreSubmitted = true
      outputIsWhole = true
    } else if status != nil {
      finishOutput()
    }
    session.respond(self, hasBody: hasBody)
  }

  /// Adds the last piece of the body to the output, after all messages.
  private func finishOutput() {
    if outputIsWhole { return }
    outputIsWhole = true
    if let piece = framing.lastPiece(self) { output.append(piece) }
  }

  /// Sends the trailers. False: the protocol has no trailers.
  private func submitTrailers() -> Bool {
    guard let session, !trailersAreSubmitted else { return true }
    session.fields.clear()
    guard framing.addTrailers(self, to: session.fields) else { return false }
    trailersAreSubmitted = true
    session.sendTrailers(self)
    return true
  }

  /// The part of the answer that follows the bytes that `provide` returns.
  enum Follows { case more, trailers, nothing }

  enum Provided {
    /// The connection has to send this many bytes of `output`.
    case bytes(Int, Follows)
    /// There is nothing to send now. The call will call `resume` of the connection later.
    case nothing
  }

  /// The number of bytes, at most `room`, that the connection may move from `output` now.
  func provide(_ room: Int) -> Provided {
    if output.bytes < Call.highWater / 2 && status == nil { advance() }
    if status != nil { finishOutput() }
    let n = min(output.bytes, room)
    if n == output.bytes && status != nil { return .bytes(n, submitTrailers() ? .trailers : .nothing) }
    if n > 0 { return .bytes(n, .more) }
    isDeferred = true
    return .nothing
  }
}
