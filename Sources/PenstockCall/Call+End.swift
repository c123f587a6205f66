import PenstockWire
import Synchronization

// Ends a call: when a hop ends it, at a cancel or the deadline, and when the status has come to the caller.

extension Call {
  /// Ends the call because of a fault of this hop's interceptor (law 7 in docs/interceptors.md).
  func fail(_ hop: Hop, _ what: StaticString, code: StatusCode = .internal) {
    spendTicket(hop)
    finish(at: hop.index, failure(of: hop, what, code: code))
  }

  func failure(of hop: Hop, _ what: StaticString, code: StatusCode = .internal) -> Status {
    let name = hop.registration.name.view
    return Status(
      code, parts: ("interceptor '" as StaticString).bytes, ByteView(rebasing: name.dropLast()),
      ("' " as StaticString).bytes, what.bytes)
  }

  /// Ends the call at the hop at `index` (-1: above the top hop; hops.count: below the last one). The hops above get
  /// `status` as the last event of their inbound lane, behind the events that are there already; the hops below see
  /// on_cancel, then destroy.
  @inline(never) @_optimize(size)
  func finish(at index: Int, _ status: Status) {
    guard phase == .live else { return }
    splitRun(at: max(index, 0))
    var status = status
    if index >= 0, index < hops.count {
      let hop = hops[index]
      spendTicket(hop)
      if hop.life == .answering, status.code == .ok, waits(status, behindAnswersOf: hop) { return }
      // A message that the hop has tried to deliver was refused, usually for lack of room, and no later
      // message was accepted. With OK the caller would take the messages that it has got for the whole
      // answer, although this one is missing.
      if hop.life == .answering, status.code == .ok, hop.hasRefused {
        status = failure(
          of: hop, "ended its answer with OK, but did not deliver again a message that had been refused")
      }
      // Without TAKE the hop does not answer in the server's place: the events that it has delivered would be lost.
      if hop.life == .starting, status.code == .ok, hop.answered != .nothing {
        status = failure(of: hop, "ended the call with OK, but an answer that it has delivered needs TAKE")
      }
      // Events that may leave the hop, such as a message that it has just injected, leave before its status. That may
      // end the call.
      letGo(hop, .inbound)
      guard phase == .live, hop.isActive || !hop.isEntered else { return }
    }
    if trace != nil, index >= 0, index < hops.count {
      note(.finished, hops[index], .status, detail: Int(status.code.rawValue))
    }
    outboundEnd = min(outboundEnd, max(index, 0))
    if index < cutAt { tellSent(dropBottom(), from: cutAt - 1) }
    stopBelow()
    if index >= 0, index < hops.count {
      let hop = hops[index]
      if hop.isEntered { hop.become(.over(.own)) }
      discardStations(hop)
    }
    cancelHops(from: index + 1, status)
    if index < 0 {
      complete(status)
    } else {
      moveUp(.status(status), at: index - 1)
    }
  }

  /// Ends the hops that stand below the hop that has ended the call (invariant I2).
  @inline(never) @_optimize(size)
  func cancelHops(from index: Int, _ status: Status) {
    splitRun(at: index)
    var index = index
    while index < hops.count {
      let hop = hops[index]
      index += 1
      guard hop.isPresent else { continue }
      discardStations(hop)
      if hop.isActive { cancel(hop, status) }
      destroy(hop)
    }
  }

  /// A cancel or deadline ends the call: its status cannot be paused, its code is fixed, and it overtakes everything
  /// (law 4). The status goes up from the bottom; a hop that held another status, or has taken the call, sees
  /// on_cancel instead of on_status.
  @inline(never) @_optimize(size)
  func endLocally(_ status: Status) {
    guard phase == .live || phase == .created else { return }
    splitRun(at: 0)
    phase = .endingLocally
    status.isLocal = true
    status.isReadOnly = true
    outboundEnd = 0
    stopBelow()
    tellAbove { $0.callDiscardsMessages() }
    var index = hops.count - 1
    while index >= 0 {
      let hop = hops[index]
      index -= 1
      let overtakes = hop.life == .answering || (hop.inbound?.holdsStatus ?? false)
      discardStations(hop)
      guard hop.isActive else { continue }
      if overtakes {
        cancel(hop, status)
      } else {
        if let callback = hop.callbacks.pointee.onStatus, !dispatchEnd(.status, status, to: hop, callback) {
          show(.status(status))
          _ = hop.invoke(callback, .status)
          spendTicket(hop)
        }
        hop.become(.over(.passed))
      }
    }
    complete(status)
  }

  /// The status has come to the caller's side. Hops are destroyed before the caller learns of it, so a program that
  /// has the reply knows that no interceptor runs for this call any more (invariants I2 and I17).
  func complete(_ status: Status) {
    guard phase != .ended else { return }
    phase = .ended
    if trace != nil { note(.ended, nil, .status, detail: Int(status.code.rawValue)) }
    withLoop { loop in
      measures.endedAt.set(loop.now)
      loop.setDeadline(self, nil)
    }
    stopBelow()
    if row != nil {
      let passed = endRun()
      for hop in hops[passed...] where hop.isPresent {
        discardStations(hop)
        if hop.isActive { cancel(hop, status) }
        destroy(hop)
      }
      #if PENSTOCK_CHECKS
        checkEnds(passed)
      #endif
    }
    withLoop { $0.closeTickets(of: self) }
    status.isReadOnly = true
    if chain != nil {
      letRowGo()
      hops = HopRow.Hops()
      chain?.callEnded()
      chain = nil
      earlyResolutions = []
    }
    if !pending.isEmpty { pending.removeAll() }
    forgetBottom()
    let caller = detachAbove()
    if manner != .brief || !withLoop({ $0.keepUntilRest(self) }) { below = nil }
    caller?._withUnsafeGuaranteedRef { $0.callStatus(status) }
    caller?.release()
  }

  /// The transport will no longer report the messages in it as sent. So `sent` is told for them now, and no
  /// sender waits for it.
  func releaseTransport() {
    let n = inTransport
    inTransport = 0
    if hearsSent { tellSent(n, from: hops.count - 1) }
  }

  func stopBelow() {
    let was = leg
    guard was != .ended else { return }
    leg = .ended
    door = .queued
    demandBelow = 0
    releaseTransport()
    if was == .open { tellBelow { $0.reset() } }
  }

  /// Calls on_cancel: the call was ended elsewhere, and no status passes this hop.
  private func cancel(_ hop: Hop, _ status: Status) {
    hop.become(.over(.told))
    guard let callback = hop.callbacks.pointee.onCancel,
      !dispatchEnd(.cancel, status, to: hop, callback)
    else { return }
    show(.status(status))
    // A status on its way up may be changed; on_cancel only shows it, read only.
    let wasReadOnly = status.isReadOnly
    status.isReadOnly = true
    _ = hop.invoke(callback, .cancel)
    status.isReadOnly = wasReadOnly
    spendTicket(hop)
  }

  func destroy(_ hop: Hop) {
    hop.become(.gone)
    hop.cut?.close(.gone)
    if let queue = hop.lastJobs {
      dispatchDestroy(hop, queue)
      return
    }
    guard let callback = hop.callbacks.pointee.destroy else { return }
    hop.running = .destroy
    watch.begin(id, .destroy, of: hop.registrationID)
    callback(hop.handle, hop.state)
    watch.end()
    hop.running = .none
    if trace != nil { note(.callback, hop, .destroy) }
  }

  /// Drops the events that stand at the hop; their tickets are gone.
  func discardStations(_ hop: Hop) {
    discardOutbound(hop)
    discardInboundStation(hop)
  }

  func discardInboundStation(_ hop: Hop) {
    guard let station = hop.inbound else { return }
    if station.isShut { pausesInbound -= 1 }
    loseTickets(station)
    hop.inbound = nil
  }

  /// Drops the outbound events that stand at the hop; their messages count as sent, so that no sender waits for them.
  func discardOutbound(_ hop: Hop) {
    // Events that wait to be sent again after a RESTART are dropped too.
    var abandoned = hop.cut?.drop() ?? 0
    if let station = hop.outbound {
      for index in 0..<station.parked.count {
        if case .send = station.parked[index].event, !station.parked[index].isOwn { abandoned += 1 }
      }
      for index in 0..<station.waiting.count { if case .send = station.waiting[index] { abandoned += 1 } }
      loseTickets(station)
      hop.outbound = nil
    }
    tellSent(abandoned, from: hop.index - 1)
  }

  private func loseTickets(_ station: Station) {
    for index in 0..<station.parked.count {
      switch station.parked[index].wait {
      case .hold(let ticket), .pause(.ticket(let ticket)): withLoop { $0.loseTicket(ticket, of: self) }
      case .none, .next, .pause(.job): break
      }
    }
  }
}
