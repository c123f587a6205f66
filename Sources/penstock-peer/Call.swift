import CNghttp2
import CSystem
import PenstockTransport
import PenstockWire

/// One stream of the server: the request as it comes in, the answer as it goes out.
///
/// While a reply is to be sent or waits for its time, no input is decoded, and bytes that are not decoded give no
/// flow-control credit back to the client. So a call holds one message, one window of input and `highWater` bytes of
/// output at most.
///
/// ```
///   receive -> [inbox] -> decoder -> service (Call+Services) -> replies -> [output] -> provide
/// ```
/// Call objects are used again (`CallPool`): `begin` prepares one for a new stream, `reset` after its stream has ended.
final class Call: Source {
  /// A response message that waits for its time, or for room in the output.
  struct Reply {
    /// The message; nil: `size` zeros in a test payload.
    var body: ByteBuffer?
    var size = 0
    var delay: UInt64 = 0
    var compressed = false
    var times = 1
    var isOnlyDelay = false
  }

  unowned(unsafe) var session: Session?  // The session holds this call while the stream lives.
  private(set) var id: Int32 = 0
  /// The index among the session's calls.
  var index = 0
  var closeCode: UInt32 = 0

  // The state of the request.
  private(set) var method = Method.unknownService
  private(set) var knobs = Knobs()
  /// The request's fields. Each is stored as the lengths of name and value (four bytes each), the name, and the value.
  private let fields = ByteBuffer()
  private var timeout: UInt64?
  private var isGRPC = false
  private(set) var requestCoding = Coding.identity
  private(set) var clientTakesGzip = false
  private var decoder = MessageDecoder(limit: 0)
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
  /// Whether the delay of the next reply is over.
  private var isDue = false
  var messagesOut = 0
  /// Whether the status is sent once all `replies` have been.
  var endsAfterReplies = false
  private(set) var status: Int?
  let statusMessage = ByteBuffer()
  private var isSubmitted = false
  private var isDeferred = false
  private var trailersAreSubmitted = false
  private var wasReset = false
  /// Whether the call has had a large message. If so, its buffers free their memory before it is used again.
  private var wasLarge = false

  private static let highWater = 64 << 10

  // MARK: Life

  func begin(_ session: Session, _ id: Int32, index: Int) {
    self.session = session
    self.id = id
    self.index = index
    decoder = MessageDecoder(limit: session.options.maxMessageBytes)
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
    isSubmitted = false
    isDeferred = false
    trailersAreSubmitted = false
    wasReset = false
    wasLarge = false
  }

  private func clear(_ buffer: ByteBuffer) { buffer.removeAll(keepingCapacity: !wasLarge) }

  // MARK: Request headers

  func field(_ name: ByteView, _ value: ByteView) {
    if bytesEqual(name, ":path") {
      method = Method(path: value)
    } else if bytesEqual(name, "content-type") {
      isGRPC = ContentType.classify(value) == .grpc
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
    if !isGRPC { return refuseMediaType() }
    if let timeout {
      deadline = session.loop.now &+ min(timeout, 1 << 62)
      session.loop.arm(self, at: deadline)
    }
    if method == .unknownService { end(.unimplemented, "no such service") }
    if method == .unknownMethod { end(.unimplemented, "no such method") }
    if requestCoding == .unknown { end(.unimplemented, "grpc-encoding is not supported") }
    if knobs.after == 0 { endAsAsked() }
    if status == nil && method.isDuplex && knobs.delay == 0 { submit() }
    advance()
  }

  /// "gRPC servers SHOULD respond with HTTP status of 415" (gRPC over HTTP2, "Requests", Content-Type).
  private func refuseMediaType() {
    guard let session else { return }
    status = Int(StatusCode.unknown.rawValue)
    isSubmitted = true
    trailersAreSubmitted = true
    session.fields.clear()
    session.fields.add(":status", "415")
    let (handle, id) = (session.handle, id)
    session.fields.withVectors { _ = nghttp2_submit_response(handle, id, $0, $1, nil) }
  }

  // MARK: Input

  func receive(_ bytes: ByteView) {
    if status != nil {
      nghttp2_session_consume_stream(session?.handle, id, bytes.count)
      return
    }
    chunk = bytes
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
    let (used, event) = onlyCounts ? skipper.push(bytes) : decoder.push(bytes)
    if isStored { inbox.consume(used) } else { chunk = part(chunk, used, chunk.count) }
    if used > 0 { nghttp2_session_consume_stream(session?.handle, id, used) }
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

  // MARK: Going on

  /// Goes on as far as possible: sends replies that are due, then takes the next message, until something is missing.
  func advance() {
    guard let session else { return }
    loop: while status == nil {
      if output.bytes >= Call.highWater { break }
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
          endWasHandled = true
          if decoder.isMidMessage || skipper.isMidMessage {
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

  /// Ends the call with DEADLINE_EXCEEDED. The client's own deadline gives it the same status at about the same time.
  /// If output has not left completely, trailers can't follow, so RST_STREAM is sent: "servers should only use this
  /// mechanism when they need to cancel a call but the payload byte sequence is incomplete" (gRPC over HTTP2,
  /// "Errors").
  private func deadlineExpired() {
    guard let session else { return }
    end(.deadlineExceeded, "the deadline has expired at the server")
    if output.bytes == 0 { return commit() }
    wasReset = true
    nghttp2_submit_rst_stream(session.handle, 0, id, NGHTTP2_CANCEL.rawValue)
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
    guard let length = UInt32(exactly: body.count) else { return end(.resourceExhausted, "no memory") }
    output.append(BodyPiece(compressed: compresses, body, length: length))
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
    if !inbox.isEmpty { nghttp2_session_consume_stream(session?.handle, id, inbox.count) }
    inbox.removeAll(keepingCapacity: true)
    if !chunk.isEmpty { nghttp2_session_consume_stream(session?.handle, id, chunk.count) }
    chunk = ByteView(start: nil, count: 0)
  }

  /// Ends with OK, or with the status that the knobs ask for.
  func endAsAsked() {
    end(knobs.status ?? 0, ByteView(start: nil, count: 0))
    guard knobs.status != nil && knobs.hasMessage else { return }
    eachField { name, value in
      if bytesEqual(name, "x-message") { self.statusMessage.put(value) }
      if bytesEqual(name, "x-message-bin") { _ = Base64.decode(value, into: self.statusMessage) }
    }
  }

  // MARK: Output

  /// Tells nghttp2 that there is something to send.
  private func commit() {
    guard let session, !wasReset else { return }
    if !isSubmitted {
      if status == nil && output.bytes == 0 { return }
      submit()
    } else if isDeferred && (output.bytes > 0 || status != nil) {
      isDeferred = false
      nghttp2_session_resume_data(session.handle, id)
    }
  }

  private func submit() {
    guard let session, !isSubmitted else { return }
    isSubmitted = true
    let (list, handle, id) = (session.fields, session.handle, id)
    list.clear()
    list.add(":status", "200")
    list.add("content-type", "application/grpc")
    if status != nil && output.bytes == 0 {
      trailersAreSubmitted = true
      addHeaders(to: list)
      addTrailers(to: list)
      list.withVectors { _ = nghttp2_submit_response(handle, id, $0, $1, nil) }
    } else {
      addHeaders(to: list)
      var provider = SessionCallbacks.provider(self)
      list.withVectors { _ = nghttp2_submit_response(handle, id, $0, $1, &provider) }
    }
  }

  private func submitTrailers() {
    guard let session, !trailersAreSubmitted else { return }
    trailersAreSubmitted = true
    let (list, handle, id) = (session.fields, session.handle, id)
    list.clear()
    addTrailers(to: list)
    list.withVectors { _ = nghttp2_submit_trailer(handle, id, $0, $1) }
  }

  /// Tells nghttp2 how many bytes the next DATA frame gets. The bytes are passed on later, when nghttp2 has made the
  /// frame's header.
  func provide(_ room: Int, _ flags: UnsafeMutablePointer<UInt32>) -> Int {
    if output.bytes < Call.highWater / 2 && status == nil { advance() }
    let n = min(output.bytes, room)
    if n == output.bytes && status != nil {
      flags.pointee |= NGHTTP2_DATA_FLAG_EOF.rawValue | NGHTTP2_DATA_FLAG_NO_END_STREAM.rawValue
      submitTrailers()
    } else if n == 0 {
      isDeferred = true
      return Int(NGHTTP2_ERR_DEFERRED.rawValue)
    }
    flags.pointee |= NGHTTP2_DATA_FLAG_NO_COPY.rawValue
    return n
  }
}
