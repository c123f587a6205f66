import PenstockWire

// Handles one event at one hop: whether the hop sees it, what the hop's answer means, and whether the event
// leaves. The answers of a callback, a ticket and an executor all go through `settle`, the only function that
// knows what a verdict means.

extension Call {
  /// Where an event is when `settle` is called for it.
  enum Slot {
    /// The event waits nowhere: its callback has just returned on the driving thread.
    case passing
    /// The event's callback has just returned on an executor. Meanwhile the event waited at the hop, at this
    /// index of the lane's list `parked`.
    case returned(Int)
    /// The event waits at the hop, at this index of the lane's list `parked`.
    case parked(Int)
  }

  /// Where the event goes after `settle`.
  enum Settled {
    /// The event leaves the hop now: it did not have to wait there.
    case leaves
    /// The event is in the hop's list `parked`: it waits for an answer, or for its turn to leave.
    case stays
    /// The event goes no further: it was dropped, or the call or the attempt has ended.
    case ends
  }

  /// Handles `event`, which has come to `hop`. Returns true if the event leaves the hop now. Returns false if
  /// it waits (before or after its callback) or goes no further; in this case all waiting events that may
  /// leave the hop have left it.
  func meet(_ event: Event, _ hop: Hop) -> Bool {
    let lane = event.kind.lane
    if lane == .outbound, hop.life == .closed {
      discardOutbound(event, at: hop.index)
      return false
    }
    if let station = hop.standing(lane) {
      // Invariant I6: an event must not overtake events that still wait here for their callback. They wait
      // because the lane is shut, or was shut until now.
      if station.isShut || !station.waiting.isEmpty {
        station.waiting.append(event)
        return false
      }
    } else if hop.callbacks.pointee.of(event.kind) == nil {
      // Most hops have no callback for most events, so `show` would have nothing to call.
      if case .receive = event { hop.noteAnswered() }
      return leave(event, hop)
    }
    if show(event, to: hop), leave(event, hop) { return true }
    drain(hop, lane)
    return false
  }

  /// Calls the hop's callback for `event`, or gives it to the executor. Returns true if the event is to leave
  /// the hop now.
  func show(_ event: Event, to hop: Hop) -> Bool {
    if case .receive = event { hop.noteAnswered() }
    guard let callback = hop.callbacks.pointee.of(event.kind) else {
      hop.standing(event.kind.lane)?.releaseTicketless()
      return true
    }
    // Its verdict would not count, so a PAUSE could not keep the next event away (law 1).
    if hop.isEnding {
      awaitEnd(event, at: hop, .passing)
      return false
    }
    if let queue = hop.jobs(event.kind.lane) {
      dispatch(event, to: hop, callback, queue)
      return false
    }
    show(event)
    return answered(hop.invoke(callback, event.kind), event, hop)
  }

  /// Applies `answer`, which the callback has returned for `event`. Returns true if the event is to leave the
  /// hop now.
  func answered(_ answer: Int32, _ event: Event, _ hop: Hop, _ slot: Slot = .passing) -> Bool {
    switch settle(hop, event, slot, resolution(answer, for: event, at: hop)) {
    case .leaves: return true
    case .stays: return false
    case .ends:
      // The message ends here, so `sent` is told for it, and no sender waits. If a RESTART has replaced the
      // hop, `sent` has been told already.
      if case .send = event, isCurrent(hop) { tellSent(1, from: hop.index - 1) }
      return false
    }
  }

  /// The decision of a callback about its event: the status with which it ends the call, or the verdict that
  /// it has returned.
  func resolution(_ answer: Int32, for event: Event, at hop: Hop) -> Resolution {
    if let status = hop.finishRequest.take() { return .finish(status) }
    guard let verdict = Verdict(rawValue: answer), event.kind.allows(verdict) else {
      return .broken("returned a value that its callback may not return")
    }
    guard hop.ticket == 0 else { return .verdict(verdict) }
    if verdict == .pause { return .broken("paused without a ticket") }
    if verdict == .hold, event.isLast { return .broken("held the last event of a lane without a ticket") }
    return .verdict(verdict)
  }

  /// Applies the decision about an event at a hop, whether it comes from a callback, a ticket or an executor.
  func settle(_ hop: Hop, _ event: Event, _ slot: Slot, _ resolution: Resolution) -> Settled {
    switch resolution {
    case .verdict where hop.isEnding, .broken where hop.isEnding:
      awaitEnd(event, at: hop, slot)
      return .stays
    case .finish(let status):
      // A hop may end the call with OK while messages that it has delivered still wait. Then the OK waits
      // behind these messages. If a callback ends the call so, the event that the callback was shown is
      // dropped.
      if hop.life == .answering, status.code == .ok {
        spendTicket(hop)
        drop(event, at: hop, slot)
      }
      finish(at: hop.index, status)
    case .broken(let what): fail(hop, what)
    case .verdict(.pause):
      park(event, at: hop, slot, .pause(.ticket(hop.takeOverTicket())), bytes: 0)
      return .stays
    case .verdict(.hold): return hold(event, at: hop, slot)
    case .verdict(.drop):
      spendTicket(hop)
      drop(event, at: hop, slot)
    case .verdict(.take):
      spendTicket(hop)
      _ = remove(slot, of: hop, .outbound)
      take(hop)
    case .verdict(.restart):
      spendTicket(hop)
      if case .status(let status) = event, restart(hop, status) { return .ends }
      return pass(event, at: hop, slot)
    case .verdict(.next), .verdict(.skip):
      spendTicket(hop)
      return pass(event, at: hop, slot)
    }
    return .ends
  }

  private func pass(_ event: Event, at hop: Hop, _ slot: Slot) -> Settled {
    let station = hop.standing(event.kind.lane)
    station?.releaseTicketless()
    let holds = event.kind == .headers && hop.holdsHeaders
    switch slot {
    case .passing: return .leaves
    case .returned where holds: holdHeaders(event, at: hop, slot)
    case .returned(let index): station?.parked.insert(Station.Parked(event: event, wait: .none), at: index)
    case .parked(let index) where holds && station?.hasPassed(behind: index) == false:
      holdHeaders(event, at: hop, slot)
    case .parked(let index): station?.parked[index].wait = .none
    }
    return .stays
  }

  private func drop(_ event: Event, at hop: Hop, _ slot: Slot) {
    let dropped = remove(slot, of: hop, event.kind.lane)
    switch event {
    case .send: if let dropped, !dropped.isOwn { tellSent(1, from: hop.index - 1) }
    // For a held message, HOLD has already asked for a further message, so no demand is added here.
    case .receive: if dropped?.heldBytes ?? 0 == 0 { pending.append(.demandBelow(hop, 1)) }
    case .start, .halfClose, .headers, .status: break
    }
  }

  private func remove(_ slot: Slot, of hop: Hop, _ lane: Lane) -> Station.Parked? {
    guard case .parked(let index) = slot, let station = hop.standing(lane) else { return nil }
    let gone = station.parked.remove(at: index)
    station.heldBytes -= gone.heldBytes
    return gone
  }

  // MARK: Parking

  /// Puts the event in the hop's list `parked`: it has been shown to the hop and waits to leave (invariant
  /// I13).
  func park(_ event: Event, at hop: Hop, _ slot: Slot, _ wait: Station.Wait, bytes: Int, isOwn: Bool = false)
  {
    let lane = event.kind.lane
    let station = hop.station(lane)
    let parked = Station.Parked(
      event: event, wait: wait, isOwn: isOwn, heldBytes: bytes, since: withLoop { $0.now })
    switch slot {
    case .passing: station.parked.append(parked)
    case .returned(let index): station.parked.insert(parked, at: index)
    case .parked(let index): station.parked[index] = parked
    }
    switch wait {
    case .pause: shut(station, lane)
    case .next: station.ticketless += 1
    case .none, .hold, .end: break
    }
  }

  /// Lets the event wait for the end of the call that the hop has asked for: its verdict does not count any more.
  private func awaitEnd(_ event: Event, at hop: Hop, _ slot: Slot) {
    spendTicket(hop)
    guard case .parked(let index) = slot else { return park(event, at: hop, slot, .end, bytes: 0) }
    let station = hop.station(event.kind.lane)
    station.parked[index].wait = .end
    station.parked[index].ticket = 0
  }

  /// Carries out the verdict HOLD: the event waits, as after PAUSE, but the hop sees later events, and the
  /// sender need not wait (invariant I7).
  private func hold(_ event: Event, at hop: Hop, _ slot: Slot) -> Settled {
    let lane = event.kind.lane
    let bytes =
      event.message.map { message in
        hop.ticket == 0 ? message.room : withLoop { $0.room(of: message, of: self) }
      } ?? 0
    // One message always has room.
    let held = hop.standing(lane)?.heldBytes ?? 0
    if held > 0, held + bytes > hop.registration.holdBytes {
      fail(hop, "held more than its hold_bytes", code: .resourceExhausted)
      return .ends
    }
    let ticket = hop.takeOverTicket()
    // The sender is told `sent` for a held message now. So the `sent` that comes later from below stops at
    // this hop.
    let isSend = event.kind == .send
    park(event, at: hop, slot, ticket == 0 ? .next : .hold(ticket), bytes: bytes, isOwn: isSend)
    hop.station(lane).heldBytes += bytes
    switch event.kind {
    case .send: if hop.tellsHeld() { tellSent(1, from: hop.index - 1) }
    case .receive: pending.append(.demandBelow(hop, 1))
    case .none, .start, .halfClose, .headers, .status, .cancel, .demand, .sent, .create, .destroy, .pick:
      break
    }
    return .stays
  }

  /// Parks response headers, whose verdict is NEXT, until the hop has given its verdict on the next event: as
  /// after HOLD without a ticket. If no message has been asked for, the hop asks for one, as for a message that
  /// it holds: otherwise a caller that waits for the headers before it asks might wait for ever.
  private func holdHeaders(_ event: Event, at hop: Hop, _ slot: Slot) {
    park(event, at: hop, slot, .next, bytes: 0)
    guard hop.cut?.unanswered == 0 else { return }
    hop.surplus += 1
    pending.append(.demandBelow(hop, 1))
  }

  private func shut(_ station: Station, _ lane: Lane) {
    station.isShut = true
    if lane == .inbound { pausesInbound += 1 }
  }

  func open(_ station: Station, _ lane: Lane) {
    station.isShut = false
    if lane == .inbound { pausesInbound -= 1 }
  }

  func spendTicket(_ hop: Hop) {
    guard hop.ticket != 0 else { return }
    withLoop { $0.spendTicket(hop.ticket, of: self) }
    hop.ticket = 0
  }

  // MARK: Events that have waited

  /// Applies `resolution` to the event that waits with `ticket`. The ticket is marked as used already.
  func resolve(_ ticket: UInt64, _ resolution: Resolution) {
    for hop in hops where hop.life != .gone && resolve(ticket, of: hop, resolution) { return }
    storeIfShown(ticket, resolution)
  }

  /// Applies `resolution` to the hop's event that waits with `ticket`. Returns false if no event of the hop does.
  func resolve(_ ticket: UInt64, of hop: Hop, _ resolution: Resolution) -> Bool {
    for lane in [Lane.outbound, .inbound] {
      guard let station = hop.standing(lane), let index = station.index(of: ticket) else { continue }
      let event = station.parked[index].event
      if trace != nil { noteResolved(hop, event.kind, resolution) }
      var allowed = resolution
      if case .verdict(let verdict) = resolution, !event.kind.allows(verdict) { allowed = .verdict(.next) }
      release(hop, lane, event, at: index, allowed)
      return true
    }
    return false
  }

  /// Ends the wait of the event at `index` of the hop's list `parked`, and applies `resolution` to it.
  private func release(_ hop: Hop, _ lane: Lane, _ event: Event, at index: Int, _ resolution: Resolution) {
    if let station = hop.standing(lane), case .pause = station.parked[index].wait { open(station, lane) }
    _ = settle(hop, event, .parked(index), resolution)
    goOn(hop, lane)
  }

  /// Moves on the events that waited behind an event whose wait has ended.
  func goOn(_ hop: Hop, _ lane: Lane) {
    if hop.isActive { drain(hop, lane) }
    if lane == .inbound, wantsMessage { tellBelow { $0.pull() } }
  }

  /// Lets the events that may leave the hop leave it, in order. Then shows the hop the events that still
  /// waited for their callback.
  func drain(_ hop: Hop, _ lane: Lane) {
    while true {
      letGo(hop, lane)
      guard let station = hop.standing(lane), !station.isShut, let next = station.waiting.popFirst() else {
        break
      }
      // Invariant I5: the hop sees no more events from above once the part of the chain from it on has ended.
      if lane == .outbound, hop.index >= outboundEnd {
        discardOutbound(next, at: hop.index)
      } else if lane == .outbound || hop.isActive, show(next, to: hop), leave(next, hop) {
        move(next, beyond: hop)
      }
    }
    if let station = hop.standing(lane), station.isEmpty { hop.clear(lane) }
  }

  /// Lets the events that may leave the hop leave it, in order (invariant I4).
  func letGo(_ hop: Hop, _ lane: Lane) {
    while let station = hop.standing(lane), station.mayLetGo(hasDemand: hop.owed > 0),
      let first = station.parked.popFirst()
    {
      if case .status(let status) = first.event {
        guard mayPass(first.event, hop) else { return }
        if hop.life == .answering { return finish(at: hop.index, status) }
      }
      station.heldBytes -= first.heldBytes
      if first.event.kind == .receive, first.isOwn || first.heldBytes > 0 { hop.surplus += 1 }
      if go(first.event, hop, isOwn: first.isOwn) { move(first.event, beyond: hop) }
    }
  }

  // MARK: Leaving

  /// The hop has answered NEXT to the event. Returns true if the event goes on at once. Returns false if it
  /// waits behind other events or for demand, or goes no further.
  func leave(_ event: Event, _ hop: Hop) -> Bool {
    if event.kind == .headers, hop.holdsHeaders {
      holdHeaders(event, at: hop, .passing)
      return false
    }
    let stands = hop.standing(event.kind.lane).map { !$0.parked.isEmpty } ?? false
    if stands || event.kind == .receive && hop.owed == 0 {
      hop.station(event.kind.lane).parked.append(Station.Parked(event: event, wait: .none))
      return false
    }
    if case .status = event, !mayPass(event, hop) { return false }
    return go(event, hop, isOwn: false)
  }

  /// Notes that a status leaves the hop. Returns false if the hop has ended the call: then the status waits for
  /// that end.
  private func mayPass(_ status: Event, _ hop: Hop) -> Bool {
    if hop.claimPassing() { return true }
    hop.station(.inbound).parked.append(Station.Parked(event: status, wait: .end))
    return false
  }

  /// Counts `event`, which leaves the hop. Returns false if the event goes no further now: the hop answers
  /// the call itself or has ended it, or the event has to wait until recorded events are sent again after a
  /// RESTART.
  private func go(_ event: Event, _ hop: Hop, isOwn: Bool) -> Bool {
    switch event {
    case .start: return startLeaves(hop)
    case .send:
      if hop.life == .answering {
        if !isOwn { tellSent(1, from: hop.index - 1) }
        return false
      }
      if let cut = hop.cut, !cut.passes(event, isOwn: isOwn) { return false }
      hop.countInFlight(isOwn: isOwn)
    case .halfClose:
      if hop.life == .passing { hop.become(.halfClosed) }
      return hop.cut?.passes(event, isOwn: true) ?? true && hop.life != .answering
    case .headers: hop.cut?.close(.state)
    case .receive(let message):
      hop.cut?.close(.state)
      if hop.life == .answering {
        hop.answerPassed(message)
        hop.spendOwed(prepaid: false)
      } else {
        hop.spendOwed(prepaid: isOwn)
      }
    case .status:
      hop.become(.over(.passed))
      outboundEnd = min(outboundEnd, hop.index)
      discardOutbound(hop)
    }
    return true
  }

  /// Start leaves the hop downward, together with the demand that has waited for it (invariant I11). Returns
  /// false if the hop has ended the call.
  private func startLeaves(_ hop: Hop) -> Bool {
    startAt = hop.index + 1
    // Of an answer that needs TAKE only the messages go up.
    for event in hop.earlyAnswers where event.kind == .receive {
      injectUnasked(event, at: hop)
      pending.append(.flush(hop.index, .inbound))
    }
    hop.startPassed()
    hop.cut?.noteStart(request, below)
    let demand = frontierDemand
    frontierDemand = hop.earlyDemand
    hop.earlyDemand = 0
    hop.noteAsked(frontierDemand)
    if demand > 0 {
      let passed = showDemand(demand, to: hop)
      if finishIfAsked(hop) || !hop.isActive { return false }
      hop.noteAsked(passed)
      addFrontierDemand(passed)
    }
    return true
  }
}
