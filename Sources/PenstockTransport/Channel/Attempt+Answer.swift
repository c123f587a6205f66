import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockHTTP
import PenstockFraming

/// How an attempt reads the answer, and tells its call of it.
extension Attempt {
  /// The size in bytes of the largest message that is offered to the call before the call has asked for a message.
  private static let aheadLimit = 512

  // MARK: Reading

  /// Decodes bytes as they arrive, as far as nothing of the answer has to wait for the call. Returns the number of used
  /// bytes; the stream keeps the others.
  func decodeAhead(_ bytes: ByteView) -> Int {
    let ahead = answer.ahead
    if ahead == .nothing { return 0 }
    return borrow(framing) { framing in
      if framing.isBusy { return 0 }
      guard ahead != .last, wantsMessage else { return decodeLast(bytes, framing) }
      guard ahead == .anything || framing.beginsWithMessage(bytes) else { return 0 }
      let taken = decode(bytes, framing)
      if answer.waiting == nil || taken == bytes.count { return taken }
      return taken + decodeLast(ByteView(rebasing: bytes[taken...]), framing)
    } ?? 0
  }

  /// Decodes the frame with the status, if `bytes` begin with it.
  private func decodeLast(_ bytes: ByteView, _ framing: Framing) -> Int {
    framing.beginsWithLast(bytes) ? decode(bytes, framing) : 0
  }

  /// Decodes `bytes` up to the end of one message, and stores the message. Returns the number of used bytes.
  private func decode(_ bytes: ByteView, _ framing: Framing) -> Int {
    let (consumed, step) = framing.decode(bytes)
    take(step)
    return consumed
  }

  func take(_ step: consuming BodyStep) {
    switch consume step {
    case .needsMore, .busy: break
    case .message(let whole, let size):
      if needsTurn, !(call?._withUnsafeGuaranteedRef({ $0.takesEarlyMessage }) ?? true) {
        return failSoon(TransportStream.halfDuplex())
      }
      if size < whole.count { withCore { $0.runtime.mark.isStale = true } }
      answer.comes(whole, size: size)
    case .trailers(let status): answer.says(status)
    case .failed(let status): answer.fails(status)
    }
  }

  // MARK: Telling

  /// Reports everything that has arrived. The caller holds the attempt.
  func proceed() {
    withRetainedCall { proceed($0) }
    check(isTold: true)
  }

  /// Reports to the call everything that has arrived, in order. Each step may end the call or the attempt.
  private func proceed(_ call: Call) {
    guard let stream else {
      if let failure = answer.failure { finish(failure, call) }
      return
    }
    noteSending(stream, call)
    guard life.isStreaming else { return }
    call.measures.received.wireBytes.add(stream.takeCount())
    var hasDelivered = false
    while life.isStreaming {
      switch answer.next {
      case .headers:
        guard let metadata = answer.takeHeaders() else { return }
        call.measures.headersAt.setOnce(now)
        call.inboundHeaders(metadata)
      case .foreign:
        guard let status = answer.takeForeign() else { return }
        takeForeign(status)
      case .message:
        guard call.wantsMessage, let arrived = answer.takeMessage() else { return }
        call.measures.firstMessageAt.setOnce(now)
        call.measures.received.messages.add(1)
        _ = borrow(call.connection) { $0.receivedMessages.add(1) }
        call.measures.received.bytes.add(arrived.message.count)
        call.measures.received.compressedBytes.add(Int(arrived.size))
        call.inboundMessage(arrived.message)
        hasDelivered = true
      case .failure:
        if let failure = answer.failure { finish(failure, call) }
      case .body(let needsDemand):
        guard readBody(stream, call, needsDemand: needsDemand, hasDelivered: hasDelivered) else { return }
      case .end:
        guard readEnd(stream, call) else { return }
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

  /// Decodes what the stream keeps, up to the end of one message. False: nothing more can be read now.
  private func readBody(_ stream: TransportStream, _ call: Call, needsDemand: Bool, hasDelivered: Bool)
    -> Bool
  {
    guard let framing else { return false }
    if framing.isBusy {
      core.work.scheduleLater(self)
      return false
    }
    if stream.bodyIsEmpty { return readEnd(stream, call) }
    // The last message is not offered ahead of demand. The status would have to wait behind a message that the call has
    // not asked for.
    if hasDelivered, !call.wantsMessage, framing.beginsWithTwo(stream.body, limit: Attempt.aheadLimit) {
      call.offerMessage()
      guard life.isStreaming else { return false }
    }
    // When the stream has ended, the rest is decoded even if the call has not asked for it, because a message that is
    // cut off is an error.
    guard call.wantsMessage || stream.end != nil || !needsDemand else { return false }
    let consumed = decode(stream.body, framing)
    stream.consume(consumed)
    return true
  }

  /// The whole body was read. False: nothing more can be read now.
  private func readEnd(_ stream: TransportStream, _ call: Call) -> Bool {
    guard let end = stream.end else { return false }
    if let framing, framing.hearsEnd, end.isComplete {
      framing.hearsEnd = false
      take(framing.bodyEnds())
      return true
    }
    conclude(end, stream, call)
    return false
  }

  private func conclude(_ end: StreamEnd, _ stream: TransportStream, _ call: Call) {
    if case .neverSent = end, core.closedBecause == nil, !isGivenUp {
      pieces = stream.takePieces()
      self.stream = nil
      life.handle(.unsent)
      isAdmitted = true
      return attachLate()
    }
    order = .again
    if case .refused = end { order = .afterRefusal }
    var isLate = false
    if case .cancelled = end, let deadline = call.request.deadline {
      core.runtime.refreshNow()
      isLate = deadline <= now
    }
    if let status = borrow(
      framing, { $0.status(end, trailers: answer.takeSaid(), deadlineHasPassed: isLate) })
    {
      if answer.isAwaited, core.closedBecause == nil {
        status.canRepeat = stream.repeats(end, call.request.settings.idempotency)
      }
      finish(status, call)
    }
  }
}
