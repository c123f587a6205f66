import CPenstockMemory
import PenstockCall
import PenstockChannel
import PenstockClient
import PenstockLoop
import PenstockTransport
import PenstockWire

#if canImport(Glibc)
  import Glibc
#endif

/// The attempts of one hedged call. They are sent, and end, on the driving thread. The lock is there for interceptors
/// with executors, whose callbacks run on other threads.
final class HedgedCall: @unchecked Sendable {
  /// How an attempt has ended.
  private struct Ending {
    let headers: Metadata?
    let message: Message?
    let status: Status
  }

  private let hedging: Hedging
  private var begun: SideStart?
  /// The request's message; nil: a hop above has dropped it.
  private var message: Message?

  private let lock = Lock()
  private var plan: HedgePlan
  /// nil: the hop does not answer the call, or its part in the call is over.
  private var hop: Hop?
  private var attempts: [HedgeAttempt] = []
  private var last: Ending?
  /// The number of the latest wait: an older one has no effect any more.
  private var wait = 0
  /// Whether an attempt has decided the call, or the call has ended otherwise.
  private var isDecided = false

  init(_ hedging: Hedging) {
    self.hedging = hedging
    plan = HedgePlan(most: hedging.options.attempts, delay: hedging.options.delay)
  }

  /// The verdict on the start: the hop answers the call itself, unless it can't.
  func start(_ hop: Hop) -> Int32 {
    if hop.call.request.kind != .unary {
      return refuse(
        hop, .unimplemented, "hedging is for unary calls: leave the other kinds out of its \"kinds\"")
    }
    if hop.level != .bytes { return refuse(hop, .internal, "hedging works at the level of bytes only") }
    if let why = hedging.other?.channel.refusal(of: hop) {
      return refuse(hop, .failedPrecondition, "hedging can't use the other channel: ", why)
    }
    guard let start = SideStart.make(of: hop) else {
      return refuse(hop, .resourceExhausted, "no memory for hedging")
    }
    hop.becomeShared()
    lock.withLock {
      self.hop = hop
      begun = start
    }
    hedging.count { $0.calls += 1 }
    return Verdict.take.rawValue
  }

  private func refuse(_ hop: Hop, _ code: StatusCode, _ why: StaticString, _ rest: StaticString = "") -> Int32
  {
    _ = hop.finish(Status(code, parts: why.bytes, rest.bytes))
    return next
  }

  /// The verdict on the request's message.
  func send(_ hop: Hop) -> Int32 {
    let isFirst = lock.withLock { () -> Bool in
      if message != nil { return false }
      message = hop.message
      return true
    }
    if !isFirst {
      _ = hop.finish(Status(.internal, "more than one request message in a call that allows one"))
    }
    return next
  }

  func begin() {
    lock.withLock { hop }?.onDriver { [self] in
      if lock.withLock({ !isDecided }) { carryOut(.send) }
    }
  }

  private func carryOut(_ first: HedgePlan.Step) {
    var step = first
    while true {
      switch step {
      case .send: step = send()
      case .wait(let time):
        let (hop, number) = lock.withLock { () -> (Hop?, Int) in
          wait += 1
          return (self.hop, wait)
        }
        hop?.later(nanoseconds: time) { [self] in
          if lock.withLock({ number == wait && !isDecided && plan.mayFollow }) { carryOut(.send) }
        }
        return
      case .rest: return
      case .give:
        let last = lock.withLock { () -> Ending? in
          if isDecided { return nil }
          isDecided = true
          return self.last
        }
        if let last { answer(last, by: 0, cancelling: []) }
        return
      }
    }
  }

  /// Sends the next attempt, if one may follow, and returns what is to be done next.
  private func send() -> HedgePlan.Step {
    let found = lock.withLock { () -> (hop: Hop, begun: SideStart, message: Message?, last: Status?)? in
      guard !isDecided, plan.mayFollow, let hop, let begun else { return nil }
      return (hop, begun, message, last?.status)
    }
    guard let (hop, begun, message, status) = found else { return .rest }
    // Only this thread takes numbers.
    let isFirst = lock.withLock { plan.sent == 0 }
    let other = isFirst ? nil : hedging.other?.channel
    if !isFirst,
      !hedging.allowsMore || !ClientCall.allowsHedge(of: hop, sending: begun, on: other, after: status)
    {
      hedging.count { $0.throttled += 1 }
      return lock.withLock { plan.stop() }
    }
    guard let number = lock.withLock({ isDecided ? nil : plan.take() }) else { return .rest }
    let attempt = HedgeAttempt(self, number)
    var callbacks = CallCallbacks(Unmanaged.passRetained(attempt).toOpaque()) { pointer in
      forget(pointer, HedgeAttempt.self)
    }
    callbacks.table.onReply = { _, reply, pointer in
      guard let reply else { return }
      let attempt = this(pointer, HedgeAttempt.self)
      attempt.owner.ended(attempt, Unmanaged<Reply>.fromOpaque(UnsafeRawPointer(reply)).takeUnretainedValue())
    }
    let (outcome, made) = ClientCall.makeSide(
      of: hop, sending: begun, previous: UInt8(number - 1), hedging.codes, on: other, callbacks)
    guard let made else {
      if outcome == .gone { return .rest }
      let status =
        outcome == .closed
        ? Status(.unavailable, "a channel of the hedged call has been closed")
        : Status(.resourceExhausted, "no memory for an attempt of a hedged call")
      return lock.withLock {
        // A server's own words tell more.
        if last == nil { last = Ending(headers: nil, message: nil, status: status) }
        return plan.notSent()
      }
    }
    attempt.call = made
    hedging.count {
      $0.sent += 1
      $0.open += 1
      if number > 1 { $0.hedges += 1 }
    }
    // All attempts read the same bytes. A hop below that changes them makes new ones.
    made._withUnsafeGuaranteedRef { $0.open(saying: message?.lend()) }
    let isLate = lock.withLock { () -> Bool in
      attempts.append(attempt)
      return isDecided
    }
    if isLate { leave() }
    return lock.withLock { plan.afterSend }
  }

  /// An attempt has ended, on the driving thread.
  fileprivate func ended(_ attempt: HedgeAttempt, _ reply: Reply) {
    let status = reply.status
    let isListed = hedging.codes.contains(status.code)
    // An attempt that this process has ended, for example because the other channel was closed, says nothing about
    // the others.
    let hasFailed = isListed || status.isLocal && status.code != .deadlineExceeded
    let isOver = lock.withLock { () -> Bool in
      guard let place = attempts.firstIndex(where: { $0 === attempt }), !isDecided, let hop, !hop.hasEnded
      else {
        return true
      }
      // The call ends now by its own deadline, which is that of the attempts.
      if status.code != .ok, let begun, begun.hasPassed(at: hop.clock) { return true }
      attempts.remove(at: place)
      return false
    }
    // The call ends, and with it its attempts: `leave` counts them.
    if isOver { return }
    hedging.note(status.code, hasFailed: isListed, status.pushback)
    let ending = Ending(headers: reply.headers, message: reply.message, status: status)
    if hasFailed {
      let (step, isRefused) = lock.withLock { () -> (HedgePlan.Step, Bool) in
        last = ending
        let isRefused = plan.mayFollow && status.pushback == .never
        return (plan.failed(status.pushback), isRefused)
      }
      hedging.count {
        $0.open -= 1
        $0.failed += 1
        if isRefused { $0.refused += 1 }
      }
      carryOut(step)
      return
    }
    let losers = lock.withLock { () -> [HedgeAttempt] in
      isDecided = true
      let rest = attempts
      attempts = []
      return rest
    }
    hedging.count {
      $0.open -= 1
      $0.won += 1
      if attempt.number > 1 { $0.hedgesWon += 1 }
    }
    answer(ending, by: attempt.number, cancelling: losers)
  }

  /// Answers the call as an attempt has ended. `number`: the number of the attempt that has decided the call;
  /// 0: all have failed.
  private func answer(_ ending: Ending, by number: Int, cancelling losers: [HedgeAttempt]) {
    cancel(losers, ("another attempt of the hedged call has decided it" as StaticString).bytes)
    let (kept, sent) = lock.withLock { (hop, plan.sent) }
    guard let hop = kept else { return }
    tell(hop, sent: sent, number, cancelled: losers.count)
    // The hops above may change the headers, and those of the attempt can't be changed any more.
    if let headers = ending.headers {
      guard let copy = headers.copy() else {
        _ = hop.deliverStatus(Status(.resourceExhausted, "no memory for the headers of a hedged call"))
        return
      }
      _ = hop.deliverHeaders(copy)
    }
    if let message = ending.message { _ = hop.injectInbound(message) }
    _ = hop.deliverStatus(ending.status.copy())
  }

  /// Sets the call's value "penstock.hedging". The text is freed when the value is replaced or the call has ended.
  private func tell(_ hop: Hop, sent: Int, _ number: Int, cancelled: Int) {
    let json = JSONText()
    json.object {
      json.member("sent", UInt64(sent))
      json.member("won", UInt64(number))
      json.member("cancelled", UInt64(cancelled))
    }
    guard json.isComplete, json.buffer.append(byte: 0) else { return }
    let (storage, _) = json.buffer.take()
    let value = UserData(storage) { pointer in free(pointer) }
    _ = hop.call.values.set(("penstock.hedging" as StaticString).bytes, value)
  }

  private func cancel(_ losers: [HedgeAttempt], _ reason: ByteView) {
    if losers.isEmpty { return }
    hedging.count {
      $0.open -= UInt64(losers.count)
      $0.cancelled += UInt64(losers.count)
    }
    for loser in losers { loser.call?._withUnsafeGuaranteedRef { $0.cancel(reason) } }
  }

  /// The hop's part in the call is over: attempts that are still open end with the call.
  func leave() {
    let losers = lock.withLock { () -> [HedgeAttempt] in
      isDecided = true
      hop = nil
      last = nil
      message = nil
      begun = nil
      let rest = attempts
      attempts = []
      return rest
    }
    cancel(losers, ("the hedged call has ended" as StaticString).bytes)
  }
}

/// One attempt of a hedged call. Its side call keeps it until its end.
private final class HedgeAttempt {
  let owner: HedgedCall
  /// From 1.
  let number: Int
  /// The reference that belongs to the attempt's handle; nil: the call has not been made.
  var call: Unmanaged<ClientCall>?

  init(_ owner: HedgedCall, _ number: Int) {
    self.owner = owner
    self.number = number
  }

  deinit {
    guard let call else { return }
    _ = call._withUnsafeGuaranteedRef { $0.releaseHandle() }
    call.release()
  }
}
