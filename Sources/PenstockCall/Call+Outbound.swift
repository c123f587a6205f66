import PenstockWire
import Synchronization

// The outbound lane: start, messages and half-close, from the caller toward the server.

extension Call {
  /// Brings the hop into the call when start first reaches it: calls `create`, if the interceptor has this
  /// callback. Returns false if the hop takes no part in this call.
  func enter(_ hop: Hop) -> Bool {
    if hop.index >= run.length { hop.wear(.waiting) }
    if let create = hop.callbacks.pointee.create {
      hop.row.wasLookedAt.store(true, ordering: .relaxed)
      hop.running = .create
      var state: UnsafeMutableRawPointer?
      hop.become(.creating)
      request.metadata.isReadOnly = true
      watch.begin(id, .create, of: hop.registrationID)
      let began = callbackBegins
      let answer: Int32
      if trace == nil {
        answer = create(hop.handle, hop.registration.userData.pointer, &state)
      } else {
        answer = hop.runTraced(.create) { create(hop.handle, hop.registration.userData.pointer, &state) }
      }
      watch.end()
      callbackEnded(began, .create, of: hop.registrationID)
      request.metadata.isReadOnly = false
      hop.running = .none
      hop.state = state
      switch Verdict(rawValue: answer) {
      case .next: break
      case .skip:
        hop.become(.out)
        return false
      case nil, .pause, .hold, .drop, .take, .restart:
        hop.become(.out)
        fail(hop, "returned a value from create that is neither NEXT nor SKIP")
        return false
      }
    }
    hop.become(.starting)
    if hop.hasExecutors {
      hop.share()
      if let executor = hop.outboundJobs?.executor { tellAbove { $0.callNeeds(executor) } }
      if let executor = hop.inboundJobs?.executor { tellAbove { $0.callNeeds(executor) } }
    }
    return true
  }

  /// Carries out the verdict TAKE: from now on the hop answers instead of the server.
  func take(_ hop: Hop) {
    hop.become(.answering)
    hop.share()
    startAt = hop.index + 1
    let demand = frontierDemand
    frontierDemand = 0
    if demand > 0 {
      _ = showDemand(demand, to: hop)
      _ = finishIfAsked(hop)
    }
    for answer in hop.earlyAnswers { pending.append(.answer(hop, answer)) }
    hop.earlyAnswers = []
  }

  /// Drops an event that has reached the part of the chain that has ended. A message counts as sent, so that
  /// its sender does not wait.
  func discardOutbound(_ event: Event, at index: Int) {
    guard case .send = event else { return }
    tellSent(1, from: index - 1)
  }

  /// Whether start, the one message and the half-close may leave in one step, which takes 350 instructions
  /// fewer than three steps. That is so if all hops are in the run (the hops that count together), and none
  /// of them looks at the message or the half-close, and the request has no `wish`.
  func leavesWhole(_ message: Message) -> Bool {
    guard run.length == hops.count, outboundEnd > run.length, pending.isEmpty,
      message.count <= request.settings.maxSendBytes, request.wish == nil
    else { return false }
    takeRoute()
    guard below != nil else { return false }
    leg = .open
    door = .direct
    startAt = run.length + 1
    run.inFlight = 1
    run.life = .halfClosed
    measures.attempts.add(1)
    request.metadata.seal()
    demandBelow = frontierDemand
    frontierDemand = 0
    passesCutWhole(message)
    count(message)
    tellBelow { $0.start(self, saying: message) }
    return true
  }

  /// Calls the attempt without counting a reference to it. The attempt exists until `body` returns, because
  /// it reports nothing to the call while `body` runs.
  @inline(__always)
  func tellBelow(_ body: (CallBelow) -> Void) { _ = borrow(below, body) }

  private func takeRoute() {
    if let other = request.route?.newBelow() { below = other }
  }

  private func count(_ message: Message) {
    outboundCount += 1
    inTransport += 1
    measures.sent.messages.add(1)
    measures.sent.bytes.add(message.count)
  }

  func leaveForTransport(_ event: Event) {
    if trace != nil { note(.transport, nil, event.kind) }
    switch event {
    case .start:
      leg = .open
      startAt = hops.count + 1
      measures.attempts.add(1)
      request.metadata.seal()
      takeRoute()
      door = hasOnlyHops && run.length == hops.count ? .direct : .queued
      startBelow()
      let demand = frontierDemand
      frontierDemand = 0
      addDemandBelow(demand)
    case .send(let message):
      if outboundCount == 1, request.kind.sendsOne {
        tellSent(1, from: hops.count - 1)
        finish(at: hops.count, Status(.internal, "more than one request message in a call that allows one"))
      } else if message.count > request.settings.maxSendBytes {
        tellSent(1, from: hops.count - 1)
        finish(at: hops.count, Status(.resourceExhausted, "a message to send is over max_send_message_bytes"))
      } else {
        count(message)
        tellBelow { $0.send(message) }
      }
    case .halfClose:
      if outboundCount == 0, request.kind.sendsOne {
        finish(at: hops.count, Status(.internal, "no request message in a call that needs one"))
      } else {
        tellBelow { $0.halfClose() }
      }
    case .headers, .receive, .status: break
    }
  }
}
