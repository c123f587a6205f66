import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockHTTP

/// One attempt of a call. It connects three objects: the call above it, the call's framing, and a stream of a
/// connection. If the stream ends and no byte of the request was written, the attempt is *picked again*: the channel
/// finds another connection, and the attempt starts again on it. If bytes of the request were written and the server
/// has certainly not processed them, the attempt ends with a status that marks this, and the call makes another attempt
/// (gRFC A6, "Transparent Retries").
///
/// When the call calls a function of the attempt, this function does not call the call back. It only records, and
/// `runInTurn` reports to the call later in the same turn of the event loop.
///
/// The fields are ordered so that an attempt takes only 144 bytes.
final class Attempt: StreamOwner, TurnTask, Queued {
  /// The channel's core. The reference is not counted: the core is used only with a call, which holds the channel.
  private let channel: Unmanaged<ChannelCore>
  var core: ChannelCore { channel.takeUnretainedValue() }
  /// The call; nil before the start and after the end. The reference is not counted. A call that has begun exists until
  /// it has ended, and by then it has reset its attempt or has received its status.
  private(set) var call: Unmanaged<Call>?
  var framing: Framing?
  var stream: TransportStream?
  /// The pieces of the request's body, until there is a stream that sends them.
  var pieces = PieceQueue()
  private(set) var isHalfClosed = false
  /// Whether no message may arrive before the call's half-close, because it is a bidi call on a half-duplex stream.
  private var takesTurns = false
  private var headersCame = false
  /// Whether the body contains the call's status. The body is then read even if the call asks for no message.
  var readsStatus = false
  var isScheduled = false
  private(set) var wasPickedAgain = false
  /// Whether the call's hops, or its request's `EndpointWish`, take part in the choice of the endpoint.
  private(set) var isChoosy = false
  private(set) var order = Order.first
  var isRepeat: Bool { order != .first }
  /// The value of the stream's `piecesSent` that was last reported to the call.
  private var told: UInt32 = 0
  /// The size of `message` in bytes as it was received; it may have been compressed.
  private var messageSize: UInt32 = 0
  /// The index of this attempt in the channel's list of attempts; -1: it is not in the list.
  @Small var listIndex = -1
  private var message: Message?
  private var trailers: Status?
  /// A status that ends the call once `message` was delivered.
  private(set) var failure: Status?
  /// The result of the response's head, until it is reported to the call.
  private var head: ResponseStart?

  /// The size in bytes of the largest message that is offered to the call before the call has asked for a message.
  private static let aheadLimit = 512

  init(_ channel: Unmanaged<ChannelCore>, _ order: Order = .first) {
    self.channel = channel
    self.order = order
    super.init()
    confine(self)
  }

  @inline(__always)
  func withCore<R>(_ body: (ChannelCore) -> R) -> R { channel._withUnsafeGuaranteedRef(body) }

  override var lacks: Lack {
    guard isWaiting else { return stream?.lacksConnection == true ? .connection : .nothing }
    return withCore { $0.lack == .slot && (isChoosy || $0.picker != nil) ? .endpoint : $0.lack }
  }

  override func sayWait(for holder: Holder, _ text: ByteBuffer) { sayWaiting(for: holder, text) }

  // MARK: From the call

  override func start(_ call: Call) {
    if begins(call), mayOpen { withCore { $0.attach(self) } }
  }

  override func startChoosing(_ call: Call) {
    isChoosy = true
    if begins(call), mayOpen { core.ask(self) }
  }

  override func offered(_ name: ByteView?) -> ByteBuffer? {
    guard let endpoint = core.offered else { return nil }
    guard let name else { return endpoint.text }
    return endpoint.attribute(name)
  }

  /// The call; nil before the start and after the end.
  var owner: Call? { call?.takeUnretainedValue() }

  /// Whether the framing can make the request headers now.
  private var mayOpen: Bool {
    return borrow(framing) { $0.opening == .atOnce || (isHalfClosed && !$0.isPacking) } ?? false
  }

  /// Starts with the whole request. The stream opens after that, so it begins to send once instead of three times.
  override func start(_ call: Call, saying message: Message) {
    guard begins(call) else { return }
    isHalfClosed = true
    send(message)
    if failure == nil, mayOpen { withCore { $0.attach(self) } }
  }

  private func begins(_ call: Call) -> Bool {
    self.call = .passUnretained(call)
    return withCore { core in
      framing = core.defaults.framings.make(call.request, core.defaults)
      core.begin(self)
      if let closed = core.closedBecause {
        failSoon(closed.status)
      } else if core.defaults.privacy != .tls, core.isTooOpen(call.request.settings) {
        failSoon(Status(.unauthenticated, "the call has credentials, and the channel is not secure (no TLS)"))
      }
      return failure == nil
    }
  }

  override func send(_ message: Message) {
    guard let call, failure == nil else { return }
    guard let framed = borrow(framing, { $0.encode(message) }) else { return }
    send(framed, call)
  }

  private func send(_ framed: consuming FramedMessage, _ call: Unmanaged<Call>) {
    switch consume framed {
    case .failed(let status): failSoon(status)
    case .later: core.work.scheduleLater(self)
    case .inHeaders(let size, let wireSize):
      call._withUnsafeGuaranteedRef { $0.measures.sent.add(bytes: size, wireBytes: wireSize) }
    case .piece(let piece):
      call._withUnsafeGuaranteedRef { $0.measures.sent.add(bytes: piece.bytes.count, wireBytes: piece.count) }
      if borrow(stream, { $0.send(piece) }) == nil { pieces.append(consume piece) }
    }
  }

  var isPacking: Bool { framing?.isPacking ?? false }

  /// Does the next slice of a large message. One slice runs per turn, so that other calls are served in between.
  private func pack() {
    guard let call, let framing, failure == nil else { return }
    withCore { $0.runtime.mark.isStale = true }
    send(framing.encodeNext(), call)
    if framing.isPacking { core.work.scheduleLater(self) } else if isHalfClosed { halfClose() }
  }

  override func halfClose() {
    isHalfClosed = true
    if hasRest, !addRest() { return }
    _ = borrow(stream) { $0.endBody() }
    if stream == nil, failure == nil, borrow(framing, { $0.opening == .whole }) == true {
      attachLate()
    }
  }

  private var hasRest: Bool { return borrow(framing) { $0.rest != .nothing } ?? false }

  /// Adds the end of the body that the framing has kept. False: a message is not framed yet.
  private func addRest() -> Bool {
    if isPacking { return false }
    if let call, let framing, failure == nil { send(framing.lastPiece(), call) }
    return true
  }

  override func another(isRepeat: Bool) -> CallBelow {
    Attempt(channel, !isRepeat ? .first : order == .afterRefusal ? order : .again)
  }

  /// Schedules the delivery of the arrived message or end for the end of this turn. The stream reports later bytes.
  override func pull() {
    guard call != nil, let stream,
      message != nil || failure != nil || !stream.bodyIsEmpty || stream.end != nil
    else { return }
    core.work.schedule(self)
  }

  override func reset() {
    countLate()
    call = nil
    leave(.cancelled)
  }

  // MARK: The connection

  /// Fails the attempt, because no connection can be made. Not called while the call calls a function of the attempt.
  func connectFailed(_ words: ByteBuffer) {
    if isWaiting { finish(Status(.unavailable, words: words)) }
  }

  func failSoon(_ status: Status) {
    if stream?.lacksConnection == true { notesWait(for: .nothing) }
    if failure == nil { failure = status }
    core.work.schedule(self)
  }

  override func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool {
    guard let call else { return false }
    return call._withUnsafeGuaranteedRef { call in
      withCore { core in
        // The clock is read again, because the server counts the timeout from now on. With the time from the beginning
        // of the turn, `grpc-timeout` would be too long.
        if call.request.deadline != nil { core.runtime.refreshNow() }
        let now = core.runtime.now
        return borrow(framing) { framing in
          stream.sentWithHeaders(framing.messagesInHeaders)
          fields.isDuplex = call.request.kind == .bidi
          return framing.requestHeaders(call.request, core.defaults, now: now, into: fields)
        } ?? false
      }
    }
  }

  // MARK: From the stream

  override func streamSends() -> Bool {
    guard let call else { return false }
    return call._withUnsafeGuaranteedRef { call in
      call.measures.firstByteSentAt.setOnce(now)
      return call.hearsSent
    }
  }

  private var now: UInt64 { withCore { $0.runtime.now } }

  override func streamReceives(head block: HeaderBlock, endsStream: Bool) {
    head = borrow(framing) { $0.responseHeaders(block, endsStream: endsStream) }
  }

  override func streamReceives(trailers block: HeaderBlock) {
    // If the trailers have no status, a status from the body stays.
    if let status = borrow(framing, { $0.status(ofTrailers: block) }) ?? nil { trailers = status }
  }

  private var wantsMessage: Bool { call?._withUnsafeGuaranteedRef { $0.wantsMessage } ?? false }

  override func streamReceives(_ bytes: ByteView) -> Int {
    guard message == nil, failure == nil, wantsMessage else { return takeLast(bytes) }
    let taken = takeMessage(bytes)
    if message == nil || taken == bytes.count { return taken }
    return taken + takeLast(ByteView(rebasing: bytes[taken...]))
  }

  private func takeMessage(_ bytes: ByteView) -> Int {
    borrow(framing) { framing in
      // The call may be paused at the headers. Until it knows of them, only a message that has arrived as a whole is
      // decoded, because that needs no further memory.
      guard headersCame || (headersWait && framing.beginsWithMessage(bytes)), !framing.isBusy else {
        return 0
      }
      return decode(bytes, framing)
    } ?? 0
  }

  /// Decodes the frame with the status, if `bytes` begin with it. It needs no demand, because trailers need none either.
  private func takeLast(_ bytes: ByteView) -> Int {
    guard headersCame || headersWait, failure == nil else { return 0 }
    return borrow(framing) { framing in
      framing.beginsWithLast(bytes) && !framing.isBusy ? decode(bytes, framing) : 0
    } ?? 0
  }

  override func streamSpace() -> UnsafeMutableRawBufferPointer? {
    guard message == nil, failure == nil, headersCame, wantsMessage else { return nil }
    return framing?.space()
  }

  /// Whether the headers were received and not yet reported to the call.
  private var headersWait: Bool {
    if case .headers = head { return true }
    return false
  }

  /// Decodes `bytes` up to the end of one message, and stores the message. Returns the number of used bytes.
  private func decode(_ bytes: ByteView, _ framing: Framing) -> Int {
    let (consumed, step) = framing.decode(bytes)
    take(step)
    return consumed
  }

  private func take(_ step: consuming BodyStep) {
    switch consume step {
    case .needsMore, .busy: break
    case .message(let whole, let size):
      if takesTurns, !isHalfClosed,
        call?._withUnsafeGuaranteedRef({ $0.takesTurns(hasMessage: true) }) ?? false
      {
        return failSoon(TransportStream.halfDuplex())
      }
      if size < whole.count { withCore { $0.runtime.mark.isStale = true } }
      message = whole
      messageSize = UInt32(clamping: size)
    case .trailers(let status): trailers = status
    case .failed(let status): failure = status
    }
  }

  override func streamChanged(_ stream: TransportStream) {
    guard stream === self.stream else { return }
    proceed()
  }

  func runInTurn() {
    if isPacking { pack() }
    if call != nil, let framing, framing.isBusy { take(framing.proceed()) }
    proceed()
  }

  /// Calls `body` with the call, if there is one. The call is retained, because it may end within `body` and be freed.
  @inline(__always)
  private func withRetainedCall(_ body: (Call) -> Void) {
    guard let call else { return }
    _ = call.retain()
    call._withUnsafeGuaranteedRef(body)
    call.release()
  }

  /// Reports everything that has arrived. The caller holds the attempt.
  private func proceed() { withRetainedCall { proceed($0) } }

  /// Reports to the call everything that has arrived, in order. Each step may end the call or the attempt.
  private func proceed(_ call: Call) {
    var hasDelivered = false
    guard let stream else {
      if let failure { finish(failure, call) }
      return
    }
    noteSending(stream, call)
    guard self.stream === stream, self.call != nil else { return }
    call.measures.received.wireBytes.add(stream.takeCount())
    if let start = head.take() {
      guard takeHeaders(start, stream, call) else { return }
    }
    while self.stream === stream, self.call != nil {
      if message != nil {
        guard call.wantsMessage, let whole = message.take() else { return }
        call.measures.firstMessageAt.setOnce(now)
        call.measures.received.messages.add(1)
        call.measures.received.bytes.add(whole.count)
        call.measures.received.compressedBytes.add(Int(messageSize))
        call.inboundMessage(whole)
        hasDelivered = true
      } else if let failure {
        finish(failure, call)
      } else if framing?.isBusy == true {
        return core.work.scheduleLater(self)
      } else if !stream.bodyIsEmpty, headersCame || readsStatus, let framing {
        // The last message is not offered ahead of demand. The status would have to wait behind a message that the call
        // has not asked for.
        if hasDelivered, !call.wantsMessage,
          framing.beginsWithTwo(stream.body, limit: Attempt.aheadLimit)
        {
          call.offerMessage()
          guard self.stream === stream, self.call != nil else { return }
        }
        // When the stream has ended, the rest is decoded even if the call has not asked for it, because a message that
        // is cut off is an error.
        guard call.wantsMessage || stream.end != nil || readsStatus else { return }
        let consumed = decode(stream.body, framing)
        stream.consume(consumed)
      } else if let end = stream.end {
        if let framing, framing.hearsEnd, end.isComplete {
          framing.hearsEnd = false
          take(framing.bodyEnds())
        } else {
          conclude(end, stream, call)
        }
      } else {
        return
      }
    }
  }

  private func noteSending(_ stream: TransportStream, _ call: Call) {
    guard call.hearsSent else { return }
    // The difference may be negative after the attempt was picked again, because the new stream counts from 0.
    let sent = Int32(bitPattern: stream.piecesSent &- told)
    if sent > 0 {
      told = stream.piecesSent
      call.transportSent(Int(sent))
    }
  }

  /// Reports the headers to the call. False: the attempt has ended.
  private func takeHeaders(_ start: ResponseStart, _ stream: TransportStream, _ call: Call) -> Bool {
    switch start {
    case .informational: return true
    case .statusInBody:
      readsStatus = true
      return true
    case .headers(let metadata):
      headersCame = true
      call.measures.headersAt.setOnce(now)
      call.inboundHeaders(metadata)
      return self.call != nil && self.stream === stream
    case .foreign(let status):
      takeForeign(status)
      return true
    case .ended(let status):
      finish(status, call)
      return false
    }
  }

  private func conclude(_ end: StreamEnd, _ stream: TransportStream, _ call: Call) {
    if case .neverSent = end, core.closedBecause == nil, !isGivenUp {
      wasPickedAgain = true
      pieces = stream.takePieces()
      self.stream = nil
      takesTurns = false
      return attachLate()
    }
    order = .again
    if case .refused = end { order = .afterRefusal }
    var isLate = false
    if case .cancelled = end, let deadline = call.request.deadline {
      core.runtime.refreshNow()
      isLate = deadline <= now
    }
    if let status = borrow(framing, { $0.status(end, trailers: trailers.take(), deadlineHasPassed: isLate) })
    {
      if !headersCame, !readsStatus, core.closedBecause == nil {
        status.canRepeat = stream.repeats(end, call.request.settings.idempotency)
      }
      finish(status, call)
    }
  }

  override func streamJoins(_ stream: TransportStream, _ facts: ConnectionFacts) {
    call?._withUnsafeGuaranteedRef { call in
      call.connection = facts
      takesTurns = stream.isHalfDuplex && call.request.kind == .bidi
      if takesTurns, !isHalfClosed, call.takesTurns(hasMessage: false) { awaited() }
    }
  }

  override func streamWaits(_ stream: TransportStream) {
    notesWait(for: stream.lacksConnection ? .connection : .nothing)
  }

  override func awaited() {
    if takesTurns, !isHalfClosed, call != nil { failSoon(TransportStream.halfDuplex()) }
  }

  /// Ends the call with a status from the transport.
  func finish(_ status: Status) { withRetainedCall { finish(status, $0) } }

  private func finish(_ status: Status, _ call: Call) {
    self.call = nil
    var why = Leave.cancelled
    // The answer is complete. "When a client receives Trailers before the client's END_STREAM, then the client should
    // send RST_STREAM with NO_ERROR" (gRPC over HTTP2, "Early Server Closure").
    if let end = stream?.end, end.isComplete { why = .done }
    count(call, status.code == .ok)
    leave(why)
    call.inboundStatus(status)
  }

  /// Called at the end. Counts the attempt for outlier detection, if that is on for its connection's endpoint.
  @inline(__always)
  private func count(_ call: Call, _ isOK: Bool) {
    guard stream != nil else { return }
    _ = borrow(call.connection) { $0.tally?.count(isOK) }
  }

  /// Called when the call ends the attempt. The server counts as having failed only if the deadline has passed.
  private func countLate() {
    if isWaiting || stream?.lacksConnection == true { notesWait(for: .nothing) }
    call?._withUnsafeGuaranteedRef { call in
      if let deadline = call.request.deadline, deadline <= now { count(call, false) }
    }
  }

  /// Leaves the stream, and releases all objects that the attempt holds, because it has no call any more.
  private func leave(_ why: Leave) {
    if borrow(stream, { $0.leave(why) }) == nil { withCore { $0.forgetWaiting() } }
    if message != nil { message = nil }
    if readsStatus, let timer = framing?.timer { core.runtime.disarm(timer) }
    pieces.removeAll()
    withCore { $0.end(self) }
  }
}
