import PenstockWire

// The inbound lane: headers, messages and the status, from the server toward the caller.

extension Call {
  /// Shows `event` to the hops from `index` upward, until one keeps it or it comes to the caller.
  @inline(never)
  func runInbound(_ event: Event, at index: Int) {
    if codec == nil, index < inStep { passUp(event, from: index) } else { runOneByOne(event, at: index) }
  }

  /// Nothing but hops in step is above.
  func passUp(_ event: Event, from index: Int) {
    guard inStep == 0 || runInStep(event, from: index) else { return }
    arrive(event)
  }

  /// The same, where hops count for themselves.
  @inline(never) @_optimize(size)
  private func runOneByOne(_ event: Event, at index: Int) {
    var index = index
    while true {
      if index == codecIndex - 1, let codec {
        if let message = event.message, !decode(message, codec) { return }
        // One status is enough: a message that cannot be encoded ends nothing any more.
        if case .status = event { outboundEnd = min(outboundEnd, codecIndex) }
      }
      if index < inStep {
        passUp(event, from: index)
        return
      }
      let hop = hops[index]
      guard hop.isActive else {
        index -= 1
        continue
      }
      if let station = hop.inbound, station.isPaused || !station.waiting.isEmpty {
        station.waiting.append(event)
        return
      }
      guard showInbound(event, to: hop), leaveInbound(event, hop) else {
        flushInbound(index)
        return
      }
      index -= 1
    }
  }

  /// Calls the hop's callback. True: the event is to leave the hop now.
  private func showInbound(_ event: Event, to hop: Hop) -> Bool {
    let callback: HopCallback? =
      switch event {
      case .headers: hop.callbacks.pointee.onHeaders
      case .receive: hop.callbacks.pointee.onReceive
      case .status: hop.callbacks.pointee.onStatus
      case .start, .send, .halfClose: nil
      }
    if case .receive = event { hop.noteAnswered() }
    guard let callback else {
      hop.inbound?.releaseTicketless()
      return true
    }
    if let queue = hop.jobs?.inbound {
      dispatch(event, to: hop, callback, queue)
      return false
    }
    show(event)
    return inboundAnswered(hop.run(callback, event.kind), event, hop)
  }

  /// What becomes of the event after its callback has returned. True: it is to leave the hop now.
  func inboundAnswered(_ answer: Int32, _ event: Event, _ hop: Hop) -> Bool {
    if finishIfAsked(hop) { return false }
    guard let verdict = checked(answer, for: event, at: hop) else { return false }
    switch verdict {
    case .next:
      spendTicket(hop)
      hop.inbound?.releaseTicketless()
      return true
    case .drop:
      spendTicket(hop)
      pending.append(.demandBelow(hop, 1))
    case .pause, .hold: _ = park(event, at: hop, verdict)
    case .restart:
      spendTicket(hop)
      guard case .status(let status) = event, restart(hop, status) else {
        hop.inbound?.releaseTicketless()
        return true
      }
    case .take, .skip: break
    }
    return false
  }

  /// True: it goes on at once; else it stands behind others, or waits for demand.
  func leaveInbound(_ event: Event, _ hop: Hop) -> Bool {
    let stands = hop.inbound.map { !$0.parked.isEmpty } ?? false
    let needsDemand = event.kind == .receive && hop.owed == 0
    if stands || needsDemand {
      hop.station(.inbound).parked.append(
        Station.Parked(event: event, state: .ready, isOwn: false, heldBytes: 0))
      return false
    }
    goAbove(event, hop, prepaid: false)
    return true
  }

  private func goAbove(_ event: Event, _ hop: Hop, prepaid: Bool) {
    switch event {
    case .receive:
      hop.recording?.close(.state)
      hop.spendOwed(prepaid: prepaid)
    case .headers: hop.recording?.close(.state)
    case .status:
      hop.become(.over(.passed))
      outboundEnd = min(outboundEnd, hop.index)
      discardOutbound(hop)
    case .start, .send, .halfClose: break
    }
  }

  /// Lets go what may leave the hop, in order.
  func drainInbound(_ hop: Hop) {
    while let station = hop.inbound, let first = station.parked.first, first.state == .ready,
      first.event.kind != .receive || hop.owed > 0
    {
      _ = station.parked.popFirst()
      station.heldBytes -= first.heldBytes
      if first.event.kind == .receive, first.isOwn || first.heldBytes > 0 { hop.surplus += 1 }
      goAbove(first.event, hop, prepaid: first.isOwn)
      runInbound(first.event, at: hop.index - 1)
    }
  }

  /// The same; then shows what waited in front of it.
  func flushInbound(_ index: Int) {
    guard index < hops.count else { return }
    breakStep(at: index)
    let hop = hops[index]
    while true {
      drainInbound(hop)
      guard let station = hop.inbound, !station.isPaused, let next = station.waiting.popFirst() else { break }
      guard hop.isActive else { continue }
      if showInbound(next, to: hop), leaveInbound(next, hop) { runInbound(next, at: index - 1) }
    }
    if let station = hop.inbound, station.isEmpty { hop.inbound = nil }
  }

  /// What a hop that has taken the call, or injects from another thread, delivers.
  func deliver(_ event: Event, from hop: Hop) {
    breakStep(at: hop.index)
    guard hop.isActive, phase == .live else { return }
    if hop.life != .answering, event.kind != .receive {
      // Start stands at the hop still: it counts if TAKE comes.
      if hop.mayDeliver { hop.earlyAnswers.append(event) }
      return
    }
    if case .status(let status) = event {
      finish(at: hop.index, status)
      return
    }
    if case .receive = event {
      hop.reserved += 1
      hop.station(.inbound).inject(event)
      flushInbound(hop.index)
      return
    }
    runInbound(event, at: hop.index - 1)
  }

  @inline(__always)
  func tellAbove(_ body: (CallAbove) -> Void) { above?._withUnsafeGuaranteedRef(body) }

  /// The event has come to the caller.
  func arrive(_ event: Event) {
    if trace != nil { note(.caller, nil, event.kind) }
    switch event {
    case .headers(let headers): arrive(headers)
    case .receive(let message): arrive(message)
    case .status(let status): arrive(status)
    case .start, .send, .halfClose: break
    }
  }

  func arrive(_ headers: Metadata) {
    headers.seal()
    headersCount += 1
    tellAbove { $0.callHeaders(headers) }
  }

  func arrive(_ message: Message) {
    // gRPC status codes, "Response cardinality violation".
    if inboundCount == 1, request.kind.receivesOne {
      finish(at: -1, Status(.unimplemented, "more than one response message in a call that has one"))
      return
    }
    inboundCount += 1
    tellAbove { $0.callMessage(message) }
  }

  func arrive(_ status: Status) {
    if status.code == .ok, inboundCount == 0, request.kind.receivesOne {
      complete(Status(.unimplemented, "no response message in a call that has one"))
    } else {
      complete(status)
    }
  }
}
