import PenstockCall
import PenstockWire

/// One attempt of a call: joins the call above, its framing, and a stream of some connection. What the server has
/// certainly not processed is tried again, once, on a stream of its own ("transparent retry" of gRFC A6).
///
/// The call is told nothing from within a function that it called: those only note, and `runInTurn` follows in the
/// same turn.
///
/// As a stream's, its fields stand so that it takes little: 152 bytes.
final class Attempt: CallBelow, StreamOwner, TurnTask {
  private let core: ChannelCore
  /// nil before the start, and after the end.
  private var call: Call?
  private var framing: (any CallFraming)?
  private var connection: HTTP2Connection?
  private var stream: HTTP2Stream?
  /// What has been sent so far, as long as it may have to be sent again; before there is a stream, all of it.
  private var pieces = PieceQueue()
  private var isReplayable = true
  private var isHalfClosed = false
  private var headersCame = false
  var isScheduled = false
  private var hasRetried = false
  /// Of the stream's `piecesSent`, what the call has been told.
  private var told: UInt32 = 0
  /// How large `message` was on its way.
  private var messageSize: UInt32 = 0
  private var place: Int32 = -1
  private var message: Message?
  private var trailers: Status?
  /// Ends the call, behind `message`.
  private var failure: Status?
  /// What the response's head comes to, until the call is told.
  private var head: ResponseStart?

  /// What is kept for a retry.
  private static let replayLimit = 1 << 20

  /// Larger messages are not read ahead.
  private static let aheadLimit = 512

  /// Where it stands in the channel's list; -1: nowhere.
  var slot: Int {
    get { Int(place) }
    set { place = Int32(truncatingIfNeeded: newValue) }
  }

  init(_ core: ChannelCore) {
    self.core = core
    confine(self)
  }

  /// It waits for a connection.
  var isConnecting: Bool { isWaiting }
  var isWaiting: Bool { call != nil && stream == nil && failure == nil }

  // MARK: From the call

  func start(_ call: Call) {
    self.call = call
    core.begin(self)
    framing = makeFraming(call)
    if let closed = core.closedBecause {
      failSoon(Status(.cancelled, closed))
    } else if call.request.settings.credentials != nil, !core.defaults.isSecure {
      failSoon(Status(.unauthenticated, "the call has credentials, and the channel is not secure (no TLS)"))
    } else {
      core.balancer.attach(self)
    }
  }

  private func makeFraming(_ call: Call) -> any CallFraming {
    GRPCFraming(
      core.defaults, compression: call.request.settings.compression,
      maxReceiveBytes: call.request.settings.maxReceiveBytes)
  }

  func send(_ message: Message) {
    guard let call, let framing, failure == nil else { return }
    switch framing.encode(message) {
    case .failed(let status): failSoon(status)
    case .piece(let piece):
      call.measures.sent.wireBytes.add(piece.count)
      call.measures.sent.compressedBytes.add(piece.bytes.count)
      keep(piece)
      if let stream, let connection {
        stream.append(piece)
        connection.session.resume(stream)
        connection.wantsWrite()
      }
    }
  }

  private func keep(_ piece: BodyPiece) {
    guard isReplayable || stream == nil else { return }
    pieces.append(piece)
    if pieces.bytes > Attempt.replayLimit, stream != nil { forgetPieces() }
  }

  private func forgetPieces() {
    isReplayable = false
    pieces.removeAll()
  }

  func halfClose() {
    isHalfClosed = true
    if let stream, let connection {
      stream.endsAfterPieces = true
      connection.session.resume(stream)
      connection.wantsWrite()
    }
  }

  func another() -> any CallBelow { Attempt(core) }

  /// What has come and waits goes on, in the same turn; what comes later says so itself.
  func pull() {
    guard let stream, message != nil || failure != nil || !stream.bodyIsEmpty || stream.end != nil else {
      return
    }
    core.work.schedule(self)
  }

  func reset() {
    call = nil
    leave(code: 0x8)
  }

  // MARK: The connection

  /// `connection` can take a stream.
  func open(on connection: HTTP2Connection) {
    guard let call, isWaiting else { return }
    let stream = HTTP2Stream()
    stream.owner = self
    pieces.forEach { stream.append($0) }
    stream.endsAfterPieces = isHalfClosed
    self.connection = connection
    self.stream = stream
    call.connection = connection.facts
    if pieces.bytes > Attempt.replayLimit { forgetPieces() }
    connection.add(stream)
  }

  /// Not from within a function of the call.
  func connectFailed(_ words: ByteBuffer) {
    if isWaiting { finish(Status(.unavailable, words: words)) }
  }

  private func failSoon(_ status: Status) {
    if failure == nil { failure = status }
    core.work.schedule(self)
  }

  func streamOpens(_ stream: HTTP2Stream, _ fields: FieldList) -> Bool {
    guard let call, let framing else { return false }
    return framing.requestHeaders(call.request, now: core.runtime.now, into: fields)
  }

  // MARK: From the stream

  func streamSends() -> Bool {
    guard let call else { return false }
    call.measures.firstByteSentAt.setOnce(core.runtime.now)
    return call.hearsSent
  }

  func streamReceives(head block: HeaderBlock, endsStream: Bool) {
    head = framing?.responseHeaders(block, endsStream: endsStream)
  }

  func streamReceives(trailers block: HeaderBlock) { trailers = framing?.status(ofTrailers: block) }

  func streamReceives(_ bytes: ByteView) -> Int {
    guard message == nil, failure == nil, call?.wantsMessage == true, let framing else { return 0 }
    // Before the call knows of the headers, at which it may be paused, only what needs no more room.
    guard headersCame || (headersWait && framing.beginsWithMessage(bytes)) else { return 0 }
    return note(framing.decode(bytes))
  }

  func streamPlace() -> UnsafeMutableRawBufferPointer? {
    guard message == nil, failure == nil, headersCame, let call, call.wantsMessage else { return nil }
    return framing?.place()
  }

  /// They have come, and the call does not know yet.
  private var headersWait: Bool {
    if case .headers = head { return true }
    return false
  }

  /// Keeps what came out; how much went in.
  private func note(_ decoded: (consumed: Int, step: BodyStep)) -> Int {
    switch decoded.step {
    case .needsMore: break
    case .message(let whole, let size):
      message = whole
      messageSize = UInt32(clamping: size)
    case .failed(let status): failure = status
    }
    return decoded.consumed
  }

  func streamChanged(_ stream: HTTP2Stream) {
    guard stream === self.stream else { return }
    proceed()
  }

  func runInTurn() { proceed() }

  /// Tells the call what there is to tell, in order. Each step may end the call or the attempt.
  private func proceed() {
    guard let call else { return }
    var hasDelivered = false
    guard let stream, let connection else {
      if let failure { finish(failure) }
      return
    }
    noteSending(stream, call)
    guard self.stream === stream else { return }
    call.measures.received.wireBytes.add(stream.takeCount())
    if let start = head {
      head = nil
      guard takeHeaders(start, stream, call) else { return }
    }
    while self.stream === stream, self.call != nil {
      if let whole = message {
        guard call.wantsMessage else { return }
        message = nil
        call.measures.firstMessageAt.setOnce(core.runtime.now)
        call.measures.received.messages.add(1)
        call.measures.received.bytes.add(whole.count)
        call.measures.received.compressedBytes.add(Int(messageSize))
        call.inboundMessage(whole)
        hasDelivered = true
      } else if let failure {
        finish(failure)
      } else if !stream.bodyIsEmpty, headersCame, let framing {
        // Not the last one: the status is to wait behind a message that nobody has asked for.
        if hasDelivered, !call.wantsMessage,
          framing.beginsWithTwo(stream.body.view, limit: Attempt.aheadLimit)
        {
          call.offerMessage()
          guard self.stream === stream, self.call != nil else { return }
        }
        // At the end the rest is looked at even if nobody asks: a cut message is no message.
        guard call.wantsMessage || stream.end != nil else { return }
        let consumed = note(framing.decode(stream.body.view))
        stream.body.consume(consumed)
        connection.session.consumed(stream, consumed)
        connection.wantsWrite()
      } else if let end = stream.end {
        conclude(end, stream, call)
      } else {
        return
      }
    }
  }

  private func noteSending(_ stream: HTTP2Stream, _ call: Call) {
    guard call.hearsSent else { return }
    // Less than nothing on a stream that begins again.
    let sent = Int32(bitPattern: stream.piecesSent &- told)
    if sent > 0 {
      told = stream.piecesSent
      call.transportSent(Int(sent))
    }
  }

  /// False: the call has ended.
  private func takeHeaders(_ start: ResponseStart, _ stream: HTTP2Stream, _ call: Call) -> Bool {
    switch start {
    case .informational: return true
    case .headers(let metadata):
      headersCame = true
      // The server has begun: from here on nothing is tried again.
      forgetPieces()
      call.measures.headersAt.setOnce(core.runtime.now)
      call.inboundHeaders(metadata)
      return self.stream === stream
    case .ended(let status):
      finish(status)
      return false
    }
  }

  private func conclude(_ end: StreamEnd, _ stream: HTTP2Stream, _ call: Call) {
    if case .unprocessed = end, !headersCame, isReplayable, !hasRetried, core.closedBecause == nil {
      hasRetried = true
      call.measures.attempts.add(1)
      self.stream = nil
      connection = nil
      framing = makeFraming(call)
      return core.balancer.attach(self)
    }
    guard let framing else { return }
    var isLate = false
    if case .reset = end, let deadline = call.request.deadline { isLate = deadline <= core.runtime.now }
    finish(framing.status(end, trailers: trailers, deadlineHasPassed: isLate))
  }

  /// The end, from below.
  func finish(_ status: Status) {
    guard let call else { return }
    self.call = nil
    var code: UInt32 = 0x8
    // "When a client receives Trailers before the client's END_STREAM, then the client should send RST_STREAM with
    // NO_ERROR" (gRPC over HTTP2, "Early Server Closure").
    if let end = stream?.end, case .trailers = end { code = 0 }
    leave(code: code)
    call.inboundStatus(status)
  }

  private func leave(code: UInt32) {
    if let stream, let connection {
      if connection.session.letGo(stream, code: code) { connection.wantsWrite() }
    }
    stream = nil
    connection = nil
    framing = nil
    head = nil
    trailers = nil
    message = nil
    failure = nil
    pieces.removeAll()
    core.end(self)
  }
}
