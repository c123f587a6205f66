import PenstockWire
import Synchronization

// The outbound lane: start, messages and half-close, from the caller toward the server.

extension Call {
  /// Shows `event` to the hops from `index` on, until one keeps it or it leaves for the transport.
  @inline(never)
  func runOutbound(_ event: Event, at index: Int) {
    var index = index
    if index < inStep {
      guard runInStep(event, at: index) else { return }
      index = inStep
    }
    if index == hops.count, index < outboundEnd, codec == nil {
      leaveForTransport(event)
    } else {
      runOneByOne(event, at: index)
    }
  }

  /// The same, where hops count for themselves.
  @inline(never) @_optimize(size)
  private func runOneByOne(_ event: Event, at index: Int) {
    var index = index
    let now = epoch
    while true {
      if index >= outboundEnd {
        discardOutbound(event, at: index)
        return
      }
      if index == codecIndex, let codec, let message = event.message, !encode(message, codec) { return }
      if index == hops.count {
        leaveForTransport(event)
        return
      }
      let hop = hops[index]
      if case .start = event {
        startAt = index
        guard enter(hop) else {
          if phase != .live || outboundEnd <= index || epoch != now { return }
          index += 1
          continue
        }
      }
      guard hop.isEntered else {
        index += 1
        continue
      }
      if let station = hop.outbound, station.isPaused || !station.waiting.isEmpty {
        station.waiting.append(event)
        return
      }
      guard showOutbound(event, to: hop), leave(event, hop) else {
        flush(index, .outbound)
        return
      }
      index += 1
    }
  }

  /// Asks `create`. False: the hop is not in this call.
  func enter(_ hop: Hop) -> Bool {
    if hop.index >= inStep { hop.wear(.waiting) }
    if let create = hop.callbacks.pointee.create {
      hop.row.isTouched.store(true, ordering: .relaxed)
      hop.running = .create
      var state: UnsafeMutableRawPointer?
      hop.become(.creating)
      request.metadata.isReadOnly = true
      watch.begin(id, .create, of: hop.registrationID)
      let answer: Int32
      if trace == nil {
        answer = create(hop.handle, hop.registration.userData.pointer, &state)
      } else {
        answer = hop.runTraced(.create) { create(hop.handle, hop.registration.userData.pointer, &state) }
      }
      watch.end()
      request.metadata.isReadOnly = false
      hop.running = .none
      hop.state = state
      switch Verdict(rawValue: answer) {
      case .next: break
      case .skip:
        hop.become(.out)
        return false
      default:
        hop.become(.out)
        fail(hop, "returned a value from create that is neither NEXT nor SKIP")
        return false
      }
    }
    hop.become(.starting)
    if let jobs = hop.jobs {
      hop.share()
      if let executor = jobs.outbound?.executor { tellAbove { $0.callNeeds(executor) } }
      if let executor = jobs.inbound?.executor { tellAbove { $0.callNeeds(executor) } }
    }
    return true
  }

  /// Calls the hop's callback. True: the event is to leave the hop now.
  @inline(never)
  func showOutbound(_ event: Event, to hop: Hop) -> Bool {
    let callback: HopCallback? =
      switch event {
      case .start: hop.callbacks.pointee.onStart
      case .send: hop.callbacks.pointee.onSend
      case .halfClose: hop.callbacks.pointee.onHalfClose
      case .headers, .receive, .status: nil
      }
    guard let callback else {
      hop.outbound?.releaseTicketless()
      return true
    }
    let now = epoch
    if let queue = hop.jobs?.outbound {
      dispatch(event, to: hop, callback, queue)
      return false
    }
    show(event)
    return outboundAnswered(hop.run(callback, event.kind), event, hop, now)
  }

  /// What becomes of the event after its callback has returned; it was shown in this epoch. True: it is to leave the
  /// hop now.
  func outboundAnswered(_ answer: Int32, _ event: Event, _ hop: Hop, _ now: Int) -> Bool {
    if !finishIfAsked(hop), let verdict = checked(answer, for: event, at: hop) {
      switch verdict {
      case .next:
        spendTicket(hop)
        hop.outbound?.releaseTicketless()
        return true
      case .take:
        spendTicket(hop)
        take(hop)
        return false
      case .pause, .hold: if park(event, at: hop, verdict) { return false }
      case .drop: spendTicket(hop)
      case .restart, .skip: break
      }
    }
    // It goes no further: nobody is to wait for it. After a restart that has been told.
    if case .send = event, epoch == now { tellSent(1, from: hop.index - 1) }
    return false
  }

  /// The event has the hop's NEXT. True: it goes on at once; else it stands behind others, or the hop has
  /// taken it.
  func leave(_ event: Event, _ hop: Hop) -> Bool {
    if let station = hop.outbound, !station.parked.isEmpty {
      station.parked.append(Station.Parked(event: event, state: .ready, isOwn: false, heldBytes: 0))
      return false
    }
    return goBelow(event, hop, isOwn: false)
  }

  /// The event leaves the hop downward. False: nothing is below.
  private func goBelow(_ event: Event, _ hop: Hop, isOwn: Bool) -> Bool {
    switch event {
    case .start:
      startAt = hop.index + 1
      hop.startLeft()
      hop.recording?.noteStart(request, below)
      let demand = frontierDemand
      frontierDemand = hop.earlyDemand
      hop.earlyDemand = 0
      hop.noteAsked(frontierDemand)
      if demand > 0 {
        let passed = showDemand(demand, to: hop)
        if finishIfAsked(hop) { return false }
        hop.noteAsked(passed)
        addFrontierDemand(passed)
      }
    case .send:
      if hop.life == .answering {
        if !isOwn { tellSent(1, from: hop.index - 1) }
        return false
      }
      hop.recording?.note(event, isOwn: isOwn)
      if hop.isReplaying { return false }
      hop.countInFlight(isOwn: isOwn)
    case .halfClose:
      if hop.life == .passing { hop.become(.halfClosed) }
      hop.recording?.note(event, isOwn: true)
      if hop.isReplaying { return false }
    case .headers, .receive, .status: break
    }
    return hop.life != .answering
  }

  /// The hop is the far end from now on.
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
    for answer in hop.earlyAnswers { pending.append(.deliver(hop, answer)) }
    hop.earlyAnswers = []
  }

  /// Lets go what may leave the hop, in order; then shows what waited in front of it.
  func flush(_ index: Int, _ lane: Lane) {
    if lane == .inbound {
      flushInbound(index)
      return
    }
    guard index < hops.count else { return }
    breakStep(at: index)
    let hop = hops[index]
    while let station = hop.outbound {
      if let first = station.parked.first, first.state == .ready {
        _ = station.parked.popFirst()
        station.heldBytes -= first.heldBytes
        if goBelow(first.event, hop, isOwn: first.isOwn) { runOutbound(first.event, at: index + 1) }
        continue
      }
      guard !station.isPaused, let next = station.waiting.popFirst() else { break }
      if index >= outboundEnd {
        discardOutbound(next, at: index)
      } else if showOutbound(next, to: hop), leave(next, hop) {
        runOutbound(next, at: index + 1)
      }
    }
    if let station = hop.outbound, station.isEmpty { hop.outbound = nil }
  }

  /// Nothing listens there any more; the sender is not to wait for it.
  func discardOutbound(_ event: Event, at index: Int) {
    guard case .send = event else { return }
    tellSent(1, from: index - 1)
  }

  /// Start has passed all hops, which are in step and do not look at what follows: it leaves with the one message and the
  /// half-close, which is 350 instructions fewer than one by one. False: they are to leave one by one.
  func leavesWhole(_ message: Message) -> Bool {
    guard inStep == hops.count, outboundEnd > inStep, pending.isEmpty,
      message.count <= request.settings.maxSendBytes
    else { return false }
    takeRoute()
    guard let below else { return false }
    isStarted = true
    startAt = inStep + 1
    stepInFlight = 1
    stepHalfClosed = true
    measures.attempts.add(1)
    request.metadata.seal()
    demandBelow = frontierDemand
    frontierDemand = 0
    count(message)
    below.start(self, saying: message)
    return true
  }

  private func takeRoute() {
    if let other = request.route?.newBelow() { below = other }
  }

  private func count(_ message: Message) {
    outboundCount += 1
    inTransport += 1
    measures.sent.messages.add(1)
    measures.sent.bytes.add(message.count)
  }

  private func leaveForTransport(_ event: Event) {
    if trace != nil { note(.transport, nil, event.kind) }
    switch event {
    case .start:
      isStarted = true
      startAt = hops.count + 1
      measures.attempts.add(1)
      request.metadata.seal()
      takeRoute()
      below?.start(self)
      let demand = frontierDemand
      frontierDemand = 0
      addDemandBelow(demand)
    case .send(let message):
      if outboundCount == 1, request.kind.sendsOne {
        tellSent(1, from: hops.count - 1)
        finish(at: hops.count, Status(.internal, "more than one request message in a call that has one"))
      } else if message.count > request.settings.maxSendBytes {
        tellSent(1, from: hops.count - 1)
        finish(at: hops.count, Status(.resourceExhausted, "a message to send is over max_send_message_bytes"))
      } else {
        count(message)
        below?.send(message)
      }
    case .halfClose:
      if outboundCount == 0, request.kind.sendsOne {
        finish(at: hops.count, Status(.internal, "no request message in a call that has one"))
      } else {
        below?.halfClose()
      }
    case .headers, .receive, .status: break
    }
  }
}
