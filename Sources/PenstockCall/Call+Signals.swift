import PenstockWire

// Signals, which do not queue: demand on its way down, `sent` on its way up. And what parks an event, or lets
// it go.

extension Call {
  /// `n` more messages are asked for, seen by the hops from `index` on.
  func runDemand(_ n: Int, at index: Int) {
    var n = n
    var index = index
    guard n > 0, phase == .live || phase == .created else { return }
    if index < inStep {
      if index > 0 {
        breakStep(at: index)
      } else {
        n = askInStep(n)
        index = inStep
      }
    }
    while n > 0 {
      // Where start has not come to, nothing can be asked: it waits, and moves on with start.
      if index >= startAt, startAt <= hops.count {
        addFrontierDemand(n)
        return
      }
      if index == hops.count {
        addDemandBelow(n)
        return
      }
      let hop = hops[index]
      if hop.isActive {
        n = showDemand(n, to: hop)
        if finishIfAsked(hop) || hop.life == .answering { return }
        hop.noteAsked(n)
      }
      index += 1
    }
  }

  func addFrontierDemand(_ n: Int) { frontierDemand = saturatingSum(frontierDemand, n) }

  /// A hop asks for more from below. Before start has left it, that waits with it.
  func runDemand(_ n: Int, below hop: Hop) {
    breakStep(at: hop.index)
    guard hop.isActive, n > 0 else { return }
    if startAt <= hop.index {
      hop.earlyDemand = saturatingSum(hop.earlyDemand, n)
    } else {
      hop.noteAsked(n)
      runDemand(n, at: hop.index + 1)
    }
  }

  /// What the hop passes on. Whoever calls looks whether it wants to finish.
  func showDemand(_ n: Int, to hop: Hop) -> Int {
    hop.addOwed(n)
    if let station = hop.inbound, !station.parked.isEmpty { pending.append(.flush(hop.index, .inbound)) }
    guard let callback = hop.callbacks.pointee.onDemand else { return hop.lessSurplus(n) }
    if let queue = hop.jobs?.inbound {
      if !dispatch(.demand, .start, n, to: hop, callback, queue, isAwaited: true) {
        hop.finishRequest = failure(of: hop, "lost its executor")
      }
      return 0
    }
    hop.count = n
    _ = hop.run(callback, .demand)
    return hop.lessSurplus(hop.count)
  }

  func addDemandBelow(_ n: Int) {
    guard n > 0, !belowEnded else { return }
    demandBelow = saturatingSum(demandBelow, n)
    if wantsMessage { below?.pull() }
  }

  /// Done after what runs: `sent` is never shown between an event's callback and what becomes of the event.
  func tellSent(_ n: Int, from index: Int) {
    if n > 0, phase == .live { pending.append(.sentFrom(index, n)) }
  }

  /// Somebody wants to know when the transport has taken messages: not who makes a unary call without `on_sent`.
  public var hearsSent: Bool {
    isAboveToldSent || table.map { !$0.pointee.sent.isEmpty } ?? false || inStep < hops.count || trace != nil
  }

  /// `n` messages were taken below, told to the hops from `index` up.
  func runSent(_ n: Int, at index: Int) {
    var n = n
    var index = index
    let now = epoch
    while index >= 0, n > 0 {
      // After a RESTART above they have been told.
      guard phase == .live, epoch == now else { return }
      if index < inStep {
        breakStep(at: index + 1)
        guard tellSentInStep(n) else { return }
        break
      }
      let hop = hops[index]
      if hop.isEntered {
        let (passed, held) = hop.countSent(n)
        n = passed
        if n > 0, hop.isActive, let callback = hop.callbacks.pointee.onSent {
          if let queue = hop.jobs?.outbound {
            if !dispatch(.sent, .start, n, to: hop, callback, queue, isAwaited: true) { executorLost(hop) }
          } else {
            hop.count = n
            _ = hop.run(callback, .sent)
            _ = finishIfAsked(hop)
          }
        }
        n += held
      }
      index -= 1
    }
    if n > 0, phase == .live, epoch == now { tellAbove { $0.callSent(n) } }
  }

  /// The callback that has just returned has asked to end the call; its verdict is ignored.
  func finishIfAsked(_ hop: Hop) -> Bool {
    guard let status = hop.finishRequest else { return false }
    hop.finishRequest = nil
    finish(at: hop.index, status)
    return true
  }

  // MARK: - Parking

  /// The verdict, if the event allows it. Else the call has been ended (law 7).
  func checked(_ answer: Int32, for event: Event, at hop: Hop) -> Verdict? {
    guard let verdict = Verdict(rawValue: answer), event.kind.allows(verdict) else {
      spendTicket(hop)
      fail(hop, "returned a value that its callback may not return")
      return nil
    }
    if verdict == .pause, hop.ticket == 0 {
      fail(hop, "paused without a ticket")
      return nil
    }
    if verdict == .hold, hop.ticket == 0, event.isLast {
      fail(hop, "held the last event of a lane without a ticket")
      return nil
    }
    return verdict
  }

  /// The event waits behind the hop's callback. False: there is no room, and the call has been ended.
  func park(_ event: Event, at hop: Hop, _ verdict: Verdict) -> Bool {
    var parked = Station.Parked(event: event, state: .ready, isOwn: false, heldBytes: 0)
    guard parks(&parked, at: hop, verdict) else { return false }
    hop.station(event.kind.lane).parked.append(parked)
    return true
  }

  /// The same, but for where in its lane it stands.
  func parks(_ parked: inout Station.Parked, at hop: Hop, _ verdict: Verdict) -> Bool {
    let lane = parked.event.kind.lane
    let station = hop.station(lane)
    let ticket = hop.ticket
    hop.ticket = 0
    parked.since = loop.now
    guard verdict == .hold else {
      parked.state = .paused(ticket)
      parked.ticket = ticket
      station.isPaused = true
      if lane == .inbound { pausesInbound += 1 }
      return true
    }
    // An empty message takes room too.
    let bytes = parked.event.message.map { max($0.charge, 1) } ?? 0
    if station.heldBytes + bytes > hop.registration.holdBytes {
      if ticket != 0 { loop.spendTicket(ticket, of: self) }
      fail(hop, "held more than its hold_bytes", code: .resourceExhausted)
      return false
    }
    station.heldBytes += bytes
    parked.heldBytes = bytes
    parked.state = .held(ticket)
    if parked.event.message != nil {
      if lane == .outbound {
        // Its `sent` stops here when it comes.
        parked.isOwn = true
        if hop.tellsHeld() { tellSent(1, from: hop.index - 1) }
      } else {
        pending.append(.demandBelow(hop, 1))
      }
    }
    parked.ticket = ticket
    if ticket == 0 { station.ticketless += 1 }
    return true
  }

  func spendTicket(_ hop: Hop) {
    guard hop.ticket != 0 else { return }
    loop.spendTicket(hop.ticket, of: self)
    hop.ticket = 0
  }

  /// A ticket was resolved: it is spent already.
  func resolve(_ ticket: UInt64, _ resolution: Resolution) {
    for hop in hops where hop.life != .gone {
      if let station = hop.outbound, let index = station.index(of: ticket) {
        settle(hop, station, index, resolution, .outbound)
        return
      }
      if let station = hop.inbound, let index = station.index(of: ticket) {
        settle(hop, station, index, resolution, .inbound)
        return
      }
    }
    keepIfShown(ticket, resolution)
  }

  private func settle(_ hop: Hop, _ station: Station, _ index: Int, _ resolution: Resolution, _ lane: Lane) {
    var wasHeld = true
    if case .paused = station.parked[index].state {
      wasHeld = false
      station.isPaused = false
      if lane == .inbound { pausesInbound -= 1 }
    }
    if trace != nil { noteResolved(hop, station.parked[index].event.kind, resolution) }
    switch resolution {
    case .finish(let status):
      finish(at: hop.index, status)
      return
    case .broken(let what):
      fail(hop, what)
      return
    case .verdict(.drop):
      let dropped = station.parked.remove(at: index)
      station.heldBytes -= dropped.heldBytes
      if lane == .outbound {
        if !dropped.isOwn { tellSent(1, from: hop.index - 1) }
      } else if !wasHeld, case .receive = dropped.event {
        // A held one has renewed its demand already.
        pending.append(.demandBelow(hop, 1))
      }
    case .verdict(.restart):
      if case .status(let status) = station.parked[index].event, restart(hop, status) { return }
      station.parked[index].state = .ready
      station.releaseTicketless()
    case .verdict(.take) where station.parked[index].event.kind == .start:
      _ = station.parked.remove(at: index)
      take(hop)
    case .verdict:
      station.parked[index].state = .ready
      // A NEXT like any other: what was held without a ticket goes too.
      station.releaseTicketless()
    }
    flush(hop.index, lane)
    if lane == .inbound, wantsMessage { below?.pull() }
  }
}
