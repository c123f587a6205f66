import PenstockWire

// The inbound lane: headers, messages and the status, from the server toward the caller.

extension Call {
  /// Delivers an event of the answer that a hop gives instead of the server. If start has no verdict yet, the event
  /// is kept. If start has left the hop, a message goes up all the same.
  func answer(_ event: Event, from hop: Hop) {
    splitRun(at: hop.index)
    guard hop.isActive, phase == .live else { return }
    guard hop.life == .answering else {
      if hop.mayDeliver {
        hop.earlyAnswers.append(event)
      } else if case .receive = event {
        injectUnasked(event, at: hop)
        drain(hop, .inbound)
      }
      return
    }
    switch event {
    case .status(let status):
      // The hop has ended the call since.
      if hop.isEnding { return }
      if !waits(status, behindAnswersOf: hop), hop.isActive { finish(at: hop.index, status) }
    case .receive:
      hop.station(.inbound).inject(event)
      drain(hop, .inbound)
    case .headers: move(event, beyond: hop)
    case .start, .send, .halfClose: break
    }
  }

  /// Adds a message that the hop has delivered before start had a verdict, although nobody may have asked for it: it
  /// waits at the hop, and uses up the next demand.
  func injectUnasked(_ event: Event, at hop: Hop) {
    hop.reserve()
    hop.station(.inbound).inject(event)
  }

  /// Whether messages of the hop's own answer wait at the hop for demand. If so, `status` waits behind them.
  func waits(_ status: Status, behindAnswersOf hop: Hop) -> Bool {
    letGo(hop, .inbound)
    guard phase == .live, let station = hop.inbound, let last = station.parked.last else { return false }
    if !last.event.isLast {
      station.parked.append(Station.Parked(event: .status(status), wait: .none, isOwn: true))
    }
    return true
  }

  /// Adds an event that a hop has made outside of its callbacks to the event's lane at the hop.
  func put(_ event: Event, from hop: Hop) {
    splitRun(at: hop.index)
    guard hop.isActive, phase == .live else { return }
    if event.kind.lane == .outbound { return inject(event, from: hop) }
    guard hop.life != .answering else { return }
    hop.reserved += 1
    hop.station(.inbound).inject(event)
    drain(hop, .inbound)
  }

  /// Adds a message or a half-close that the hop has made to its outbound lane. After such a half-close,
  /// outbound events from above are dropped at the hop, and count as sent.
  private func inject(_ event: Event, from hop: Hop) {
    guard hop.life == .passing else { return }
    let station = hop.station(.outbound)
    if case .halfClose = event {
      while let unseen = station.waiting.popFirst() { discardOutbound(unseen, at: hop.index) }
      if let last = station.parked.last, last.event.isLast { return }
      // Events that the hop holds without a ticket wait for the hop's next NEXT. No NEXT follows the
      // half-close, so they are released now.
      station.releaseTicketless()
      hop.become(.closed)
    }
    station.inject(event)
    drain(hop, .outbound)
  }

  @inline(__always)
  func tellAbove(_ body: (CallAbove) -> Void) { above?._withUnsafeGuaranteedRef(body) }

  /// Gives an event that has passed all hops to the caller.
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
    // gRPC status codes, "Response cardinality violation": a second response message is an error.
    if inboundCount == 1, request.kind.receivesOne {
      let tooMany = Status(.unimplemented, "more than one response message in a call that allows one")
      finish(at: -1, ending?.status ?? tooMany)
      return
    }
    inboundCount += 1
    tellAbove { $0.callMessage(message) }
  }

  func arrive(_ status: Status) {
    if status.code == .ok, inboundCount == 0, request.kind.receivesOne {
      complete(Status(.unimplemented, "no response message in a call that needs one"))
    } else {
      complete(status)
    }
  }
}
