import PenstockWire
import Synchronization

// Ends a call in each of three cases: a hop ends it, a cancel or the deadline ends it, or the status has come
// to the caller.

extension Call {
  /// The end of a call by a hop, while the events that leave the hop before its status go up.
  struct OwnEnd {
    let hop: Int
    let status: Status
  }

  /// Whether a hop above the one at `index` ends the call right now: then this hop has nothing more to say.
  func isEnding(above index: Int) -> Bool { ending.map { $0.hop < index } ?? false }

  /// Ends the call because of a fault of this hop's interceptor (law 7 in docs/laws.md).
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

  /// Ends the call at the hop at `index` (-1: above the top hop; hops.count: below the last hop). The hops
  /// above get `status` as the last event of their inbound lane, behind the events that wait there already.
  /// The hops below see on_cancel, then destroy.
  func finish(at index: Int, _ status: Status) {
    guard phase == .live, !isEnding(above: index) else { return }
    splitRun(at: max(index, 0))
    var status = status
    if index >= 0, index < hops.count {
      let hop = hops[index]
      spendTicket(hop)
      if hop.life == .answering, status.code == .ok, waits(status, behindAnswersOf: hop) { return }
      // The hop has tried to deliver a message of its answer, which was refused, usually for lack of room,
      // and has delivered none since. With OK the caller would take the earlier messages for the whole
      // answer, although the refused message is missing.
      if hop.life == .answering, status.code == .ok, hop.hasRefused {
        status = failure(
          of: hop, "ended its answer with OK, but did not deliver again a message that had been refused")
      }
      // A hop that has not returned TAKE does not answer in the server's place, so the events that it has
      // delivered would be lost.
      if hop.life == .starting, status.code == .ok, hop.answered != .nothing {
        status = failure(of: hop, "ended the call with OK, but an answer that it has delivered needs TAKE")
      }
      // Events that may leave the hop, such as a message that it has just injected, leave before its status. A
      // status that waits here does not: the hop's end is final. If a message among the events ends the call, it
      // ends with the hop's status (`ending`).
      hop.inbound?.dropStatus()
      if hop.isEntered { hop.settleEnd() }
      ending = OwnEnd(hop: hop.index, status: status)
      letGo(hop, .inbound)
      // Whether this hop ends the call or something above it has, no end below counts any more.
      ending = nil
      guard phase == .live, hop.isActive || !hop.isEntered else { return }
    }
    if trace != nil, index >= 0, index < hops.count {
      note(.endedByHop, hops[index], .status, detail: Int(status.code.rawValue))
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

  /// Ends the hops from `index` on, which stand below the hop that has ended the call (invariant I2).
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

  /// A cancel or the deadline ends the call with `status`. No hop can pause this status or change its code, and it
  /// overtakes all waiting events (law 4). The status goes up from the last hop. A hop that held another status, or
  /// has answered TAKE, sees on_cancel instead of on_status.
  func endLocally(_ status: Status) {
    guard phase == .live || phase == .created else { return }
    splitRun(at: 0)
    phase = .endingLocally
    status.isLocal = true
    status.isReadOnly = true
    // The hops get a copy. Another thread may go on reading it by a bound hop, while `complete` writes the status.
    let shown = status.copy()
    shown.isLocal = true
    shown.isReadOnly = true
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
        cancel(hop, shown)
      } else {
        if let callback = hop.callbacks.pointee.onStatus, !dispatchEnd(.status, shown, to: hop, callback) {
          show(.status(shown))
          _ = hop.invoke(callback, .status)
          spendTicket(hop)
        }
        hop.become(.over(.passed))
      }
    }
    complete(status)
  }

  /// Ends the call, since `status` has reached the caller's side. The hops are destroyed before the caller
  /// learns of the status, so a program that has the reply knows that no interceptor runs for this call any
  /// more (invariants I2 and I17).
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
    forgetContext()
    let caller = detachAbove()
    if manner != .brief || !withLoop({ $0.releaseAtRest(self) }) { below = nil }
    caller?._withUnsafeGuaranteedRef { $0.callStatus(status) }
    caller?.release()
  }

  /// Tells `sent` now for the messages in the transport, so that no sender waits for them: the transport will
  /// not report them any more.
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

  /// Calls the hop's on_cancel, because the call was ended elsewhere and no status passes this hop.
  private func cancel(_ hop: Hop, _ status: Status) {
    // The hop has ended the call itself; an event that leaves it first has ended the call above it.
    if hop.isSettling { return hop.become(.over(.own)) }
    hop.become(.over(.told))
    guard let callback = hop.callbacks.pointee.onCancel,
      !dispatchEnd(.cancel, status, to: hop, callback)
    else { return }
    show(.status(status))
    // While a status goes up, hops may change it. on_cancel only shows it, so the status is read-only during
    // the callback.
    let wasReadOnly = status.isReadOnly
    if !wasReadOnly { status.isReadOnly = true }
    _ = hop.invoke(callback, .cancel)
    if !wasReadOnly { status.isReadOnly = false }
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
    let began = callbackBegins
    callback(hop.handle, hop.state)
    watch.end()
    callbackEnded(began, .destroy, of: hop.registrationID)
    hop.running = .none
    if trace != nil { note(.callback, hop, .destroy) }
  }

  /// Drops the events that wait at the hop; later use of their tickets gives "gone".
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

  /// Drops the outbound events that wait at the hop. Their messages are reported as `sent`, so that no sender
  /// waits for them.
  func discardOutbound(_ hop: Hop) {
    // Events that wait to be sent again after a RESTART of this hop are dropped too.
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
      case .none, .next, .pause(.job), .end: break
      }
    }
  }
}
