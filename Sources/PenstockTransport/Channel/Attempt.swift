import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockHTTP
import PenstockFraming

/// One attempt of a call. It connects three objects: the call above it, the call's framing, and a stream of a
/// connection. If the stream ends and no byte of the request was written, the attempt is *picked again*: the channel
/// finds another connection, and the attempt starts again on it. If bytes of the request were written and the server
/// has certainly not processed them, the attempt ends with a status that marks this, and the call makes another attempt
/// (gRFC A6, "Transparent Retries").
///
/// When the call calls a function of the attempt, this function does not call the call back. It only records, and
/// `runInTurn` reports to the call later in the same turn of the event loop.
///
/// Its knowledge of the call is in three states, each with its table: `AttemptLife`, `AttemptRequest` and
/// `AttemptAnswer`. AttemptInvariants.swift says what always holds.
///
/// The fields are ordered so that an attempt takes only 132 bytes.
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
  var life = AttemptLife.new
  private(set) var request = AttemptRequest.open
  /// Of `TurnWork`, which alone sets it: the attempt may have a turn in any state.
  var isScheduled = false
  /// Whether the call's hops, or its request's `EndpointWish`, take part in the choice of the endpoint. Known at the
  /// start, and the same in all states.
  private(set) var isChoosy = false
  /// Whether it may wait, whatever the channel's limit on calls that wait is: it has waited before, or had a
  /// stream that sent nothing.
  var isAdmitted = false
  var order = Order.first
  var isRepeat: Bool { order != .first }
  /// The value of the stream's `piecesSent` that was last reported to the call.
  var told: UInt32 = 0
  /// How many messages were sent before there was a connection.
  var sentEarly = 0
  /// The index of this attempt in the channel's list of attempts; -1: it is not in the list.
  @Small var listIndex = -1
  var answer = AttemptAnswer()

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
    begin(call)
    if life.mayOpen { withCore { $0.attach(self) } }
    check()
  }

  override func startChoosing(_ call: Call) {
    isChoosy = true
    begin(call)
    if life.mayOpen { core.ask(self) }
    check()
  }

  override func offered(_ name: ByteView?) -> ByteBuffer? {
    guard let endpoint = core.offered else { return nil }
    guard let name else { return endpoint.text }
    return endpoint.attribute(name)
  }

  /// The call; nil before the start and after the end.
  var owner: Call? { call?.takeUnretainedValue() }

  /// Starts with the whole request. The stream opens after that, so it begins to send once instead of three times.
  override func start(_ call: Call, saying message: Message) {
    begin(call)
    if life == .stopped { return }
    send(message)
    request.handle(.halfCloses(isPacking: isPacking))
    if life == .gathering, request == .whole { life.handle(.gathered) }
    if life.mayOpen { withCore { $0.attach(self) } }
    check()
  }

  private func begin(_ call: Call) {
    self.call = .passUnretained(call)
    withCore { core in
      let framing = core.defaults.framings.make(call.request, core.defaults)
      self.framing = framing
      life.handle(.begins(gathers: framing.opening == .whole))
      core.begin(self)
      if let closed = core.closedBecause {
        failSoon(closed.status)
      } else if core.defaults.privacy != .tls, core.isTooOpen(call.request.settings) {
        failSoon(Status(.unauthenticated, "the call has credentials, and the channel is not secure (no TLS)"))
      } else if case .named(let name) = call.request.settings.compression,
        core.defaults.compressors?.find(name.name) == nil
      {
        let words = ByteBuffer().say("the channel has no compressor \"").say(name.name).say("\"")
        failSoon(Status(.internal, words: words))
      }
    }
  }

  override func send(_ message: Message) {
    guard let call, !answer.hasFailed else { return }
    if stream == nil {
      sentEarly += 1
    } else {
      call._withUnsafeGuaranteedRef { _ = borrow($0.connection) { $0.sentMessages.add(1) } }
    }
    guard let framed = borrow(framing, { $0.encode(message) }) else { return }
    send(framed, call)
    scheduleRest()
  }

  func send(_ framed: consuming FramedMessage, _ call: Unmanaged<Call>) {
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
    guard let call, let framing, !answer.hasFailed else { return }
    withCore { $0.runtime.mark.isStale = true }
    send(framing.encodeNext(), call)
    scheduleRest()
    if framing.isPacking {
      core.work.scheduleLater(self)
    } else if request == .closing {
      request.handle(.packed)
      endRequest()
    }
  }

  override func halfClose() {
    // A call may half-close again: a hop did it first, or the whole request was given at the start.
    guard request == .open else { return }
    request.handle(.halfCloses(isPacking: isPacking))
    if request == .whole { endRequest() }
    check()
  }

  /// Ends the body of the request, with the bytes that the framing has kept for its end.
  private func endRequest() {
    if let call, let framing, framing.rest != .nothing, !answer.hasFailed { send(framing.lastPiece(), call) }
    _ = borrow(stream) { $0.endBody() }
    if life == .gathering {
      life.handle(.gathered)
      attachLate()
    }
  }

  override func another(isRepeat: Bool) -> CallBelow {
    if isRepeat { core.counts.repeats &+= 1 }
    return Attempt(channel, !isRepeat ? .first : order == .afterRefusal ? order : .again)
  }

  override func waitToRetry(after status: Status, of call: Call, _ count: inout RetryCount) -> UInt64? {
    core.waitToRetry(call, after: status, &count)
  }

  /// Schedules the delivery of the arrived message or end for the end of this turn. The stream reports later bytes.
  override func pull() {
    guard call != nil, let stream, answer.isPending || !stream.bodyIsEmpty || stream.end != nil else {
      return
    }
    core.work.schedule(self)
  }

  override func reset() {
    countLate()
    call = nil
    life.handle(.ends)
    leave(.cancelled)
    check()
  }

  // MARK: The connection

  /// Fails the attempt, because no connection can be made. Not called while the call calls a function of the attempt.
  func connectFailed(_ words: ByteBuffer) {
    guard isWaiting else { return }
    let status = Status(.unavailable, words: words)
    status.mayRetry = true
    finish(status)
  }

  func failSoon(_ status: Status) {
    if stream?.lacksConnection == true { notesWait(for: .nothing) }
    answer.fails(status)
    life.handle(.fails)
    core.work.schedule(self)
    check()
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

  var now: UInt64 { withCore { $0.runtime.now } }

  override func streamReceives(head block: HeaderBlock, endsStream: Bool) {
    _ = borrow(framing) { answer.comes($0.responseHeaders(block, endsStream: endsStream)) }
  }

  override func streamReceives(trailers block: HeaderBlock) {
    // If the trailers have no status, a status from the body stays.
    if let status = borrow(framing, { $0.status(ofTrailers: block) }) ?? nil { answer.says(status) }
  }

  var wantsMessage: Bool { call?._withUnsafeGuaranteedRef { $0.wantsMessage } ?? false }

  override func streamReceives(_ bytes: ByteView) -> Int { decodeAhead(bytes) }

  override func streamSpace() -> UnsafeMutableRawBufferPointer? {
    answer.ahead == .anything && wantsMessage ? framing?.space() : nil
  }

  override func streamChanged(_ stream: TransportStream) {
    if stream === self.stream { proceed() }
  }

  func runInTurn() {
    if isPacking { pack() } else { sendRestInTurn() }
    if call != nil, let framing, framing.isBusy { take(framing.proceed()) }
    proceed()
  }

  override func streamJoins(_ stream: TransportStream, _ facts: ConnectionFacts) {
    call?._withUnsafeGuaranteedRef { call in
      call.connection = facts
      facts.sentMessages.add(sentEarly)
      life.handle(.joins(takesTurns: stream.isHalfDuplex && call.request.kind == .bidi))
      if needsTurn { call.takesTurns() }
    }
    check()
  }

  override func streamWaits(_ stream: TransportStream) {
    notesWait(for: stream.lacksConnection ? .connection : .nothing)
  }

  override func awaited() {
    if needsTurn { failSoon(TransportStream.halfDuplex()) }
  }

  /// Whether no message may arrive yet, because the call has to half-close first.
  var needsTurn: Bool { life.takesTurns && request == .open }

  // MARK: The end

  /// Calls `body` with the call, if there is one. The call is retained, because it may end within `body` and be freed.
  @inline(__always)
  func withRetainedCall(_ body: (Call) -> Void) {
    guard let call else { return }
    _ = call.retain()
    call._withUnsafeGuaranteedRef(body)
    call.release()
  }

  /// Ends the call with a status from the transport.
  func finish(_ status: Status) { withRetainedCall { finish(status, $0) } }

  func finish(_ status: Status, _ call: Call) {
    self.call = nil
    life.handle(.ends)
    var why = Leave.cancelled
    // The answer is complete. "When a client receives Trailers before the client's END_STREAM, then the client should
    // send RST_STREAM with NO_ERROR" (gRPC over HTTP2, "Early Server Closure").
    let end = stream?.end
    if let end, end.isComplete { why = .done }
    // A request that the server has certainly not processed says nothing about how the server processes requests.
    if end?.isUnprocessed != true { count(call, status.code == .ok) }
    withCore { core in
      if status.code == .ok { core.counts.succeeded &+= 1 } else { core.counts.failed &+= 1 }
      if core.notesEnds { core.noteEnd(call.request, status, isAnswered: answer.hasHeaders) }
    }
    leave(why)
    check()
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
    answer.drop()
    disarm()
    pieces.removeAll()
    withCore { $0.end(self) }
  }
}
