import PenstockWire

// Callbacks on executors: an event waits at its hop, as with PAUSE, until its callback has run elsewhere.

extension Call {
  /// Hands the event's callback to the lane's executor.
  func dispatch(_ event: Event, to hop: Hop, _ callback: @escaping HopCallback, _ queue: LaneQueue) {
    let visit = Visit(hop, event, event.kind, .callback(callback), queue, isAwaited: true)
    switch event {
    case .start:
      visit.start = request.copy()
      if visit.start == nil {
        finish(at: hop.index, Status(.resourceExhausted, "no memory to show the start to an interceptor"))
        return
      }
    case .status(let status):
      visit.start = hop.recording?.start
      visit.canRestart = hop.mayRestart(status)
    case .send, .halfClose, .headers, .receive: break
    }
    if trace != nil { note(.executor, hop, event.kind) }
    park(event, at: hop, .passing, .pause(.job), bytes: 0)
    if !queue.append(visit) { executorLost(hop) }
  }

  /// A signal's callback, or what a call's end tells: nothing waits for it, unless `isAwaited`. False: law 7.
  func dispatch(
    _ kind: EventKind, _ event: Event, _ count: Int, to hop: Hop, _ callback: @escaping HopCallback,
    _ queue: LaneQueue, isAwaited: Bool
  ) -> Bool {
    let visit = Visit(hop, event, kind, .callback(callback), queue, isAwaited: isAwaited)
    visit.count = count
    return queue.append(visit)
  }

  /// How a call ended, for a callback that runs when others have the status already. `destroy`, which follows at once,
  /// takes it along.
  func dispatchEnd(_ kind: EventKind, _ status: Status, to hop: Hop, _ callback: @escaping HopCallback)
    -> Bool
  {
    guard let jobs = hop.jobs, let queue = jobs.last else { return false }
    let copy = status.copy()
    copy.isLocal = status.isLocal
    copy.isReadOnly = true
    jobs.ending = Visit(hop, .status(copy), kind, .callback(callback), queue, isAwaited: false)
    return true
  }

  /// `destroy`, behind everything that runs for the hop on either executor.
  func dispatchDestroy(_ hop: Hop, _ jobs: HopJobs) {
    guard let queue = jobs.last else { return }
    let ending = jobs.ending.take()
    let last = Visit(hop, .start, .destroy, .destroy, queue, isAwaited: false)
    if let outbound = jobs.outbound, outbound !== queue {
      outbound.appendOrPerform(
        Visit(hop, .start, .none, .lastOfLane(ending, then: last), outbound, isAwaited: false))
    } else {
      last.goLast(behind: ending)
    }
  }

  func executorLost(_ hop: Hop) {
    guard hop.isActive else { return }
    fail(hop, "lost its executor")
  }

  /// A callback has run on its executor: its verdict counts now.
  func visited(_ visit: Visit) {
    let hop = visit.hop
    guard hop.isActive, phase == .live else {
      if visit.ticket != 0 { loop.loseTicket(visit.ticket, of: self) }
      return
    }
    if visit.kind == .demand || visit.kind == .sent {
      for event in visit.injected { inject(event, at: hop) }
      if let status = visit.finishRequest {
        finish(at: hop.index, status)
      } else if visit.kind == .demand, hop.life != .answering {
        runDemand(hop.lessSurplus(visit.count), below: hop)
      }
      return
    }
    let lane = visit.kind.lane
    guard let station = hop.standing(lane), var index = station.jobIndex else {
      if visit.ticket != 0 { loop.loseTicket(visit.ticket, of: self) }
      return
    }
    // I6
    _ = station.parked.remove(at: index)
    open(station, lane)
    if case .start = visit.event, let start = visit.start {
      let deadline = request.deadline
      request.adopt(start)
      if request.deadline != deadline { loop.setDeadline(self, request.deadline) }
    }
    // What it has injected in its own lane stands before its event.
    for event in visit.injected {
      if event.kind.lane == lane {
        if lane == .inbound { hop.reserved += 1 }
        station.parked.insert(Station.Parked(event: event, wait: .none, isOwn: true), at: index)
        index += 1
      } else {
        inject(event, at: hop)
      }
    }
    hop.ticket = visit.ticket
    hop.finishRequest = visit.finishRequest
    _ = answered(visit.answer, visit.event, hop, epoch, .returned(index))
    goOn(hop, lane)
    if visit.ticket != 0, let index = earlyResolutions.firstIndex(where: { $0.ticket == visit.ticket }) {
      let early = earlyResolutions.remove(at: index)
      if phase == .live { resolve(early.ticket, early.resolution) }
    }
  }

  /// A ticket that nothing waits with: of an event whose callback has not come back from its executor, perhaps. Then
  /// it counts when that has.
  func keepIfShown(_ ticket: UInt64, _ resolution: Resolution) {
    let isShown = hops.contains { hop in
      hop.jobs != nil && (hop.outbound?.jobIndex != nil || hop.inbound?.jobIndex != nil)
    }
    if isShown { earlyResolutions.append((ticket, resolution)) }
  }

  private func inject(_ event: Event, at hop: Hop) {
    let lane = event.kind.lane
    if lane == .inbound { hop.reserved += 1 }
    hop.station(lane).inject(event)
    pending.append(.flush(hop.index, lane))
  }
}
