import PenstockWire

// Runs callbacks on executors. Meanwhile the callback's event waits at its hop, as it does after PAUSE.

extension Call {
  /// Gives the event's callback to the executor of the event's lane.
  func dispatch(_ event: Event, to hop: Hop, _ callback: @escaping HopCallback, _ queue: JobQueue) {
    let job = Job(hop, event, event.kind, .callback(callback), queue, isAwaited: true)
    switch event {
    case .start:
      job.start = request.copy()
      if job.start == nil {
        finish(at: hop.index, Status(.resourceExhausted, "no memory to show the start to an interceptor"))
        return
      }
    case .status(let status):
      let allowed = hop.mayRestart(status)
      // A message that the hop has injected leaves before its status. Once it has left, the call can't be
      // sent again.
      let isPreceded = hop.inbound?.mayLetGo(hasDemand: hop.owed > 0) ?? false
      job.canRestart = allowed == .ok && isPreceded ? .state : allowed
      if !isPreceded { job.start = hop.cut?.start }
    case .send, .halfClose, .headers, .receive: break
    }
    if trace != nil { note(.executor, hop, event.kind) }
    park(event, at: hop, .passing, .pause(.job), bytes: 0)
    if !queue.append(job) { executorLost(hop) }
  }

  /// Gives the callback of a signal (`sent` or demand) to the executor, with the signal's count. If
  /// `isAwaited`, the job tells the call when the callback has run. Returns false if the executor has refused
  /// the job: then the caller of this function ends the call (law 7).
  func dispatch(
    _ kind: EventKind, _ event: Event, _ count: Int, to hop: Hop, _ callback: @escaping HopCallback,
    _ queue: JobQueue, isAwaited: Bool
  ) -> Bool {
    let job = Job(hop, event, kind, .callback(callback), queue, isAwaited: isAwaited)
    job.count = count
    return queue.append(job)
  }

  /// Makes the job of on_status or on_cancel at the call's end, with a copy of the status, because others may
  /// already have the status when the job runs. The function `dispatchDestroy`, which is called next, hands
  /// this job to the executor together with the job of `destroy`.
  func dispatchEnd(_ kind: EventKind, _ status: Status, to hop: Hop, _ callback: @escaping HopCallback)
    -> Bool
  {
    guard let queue = hop.lastJobs else { return false }
    let copy = status.copy()
    copy.isLocal = status.isLocal
    copy.isReadOnly = true
    queue.ending = Job(hop, .status(copy), kind, .callback(callback), queue, isAwaited: false)
    return true
  }

  /// Gives `destroy` to an executor, behind all jobs of the hop that either of its executors still has.
  func dispatchDestroy(_ hop: Hop, _ queue: JobQueue) {
    let ending = queue.ending.take()
    let last = Job(hop, .start, .destroy, .destroy, queue, isAwaited: false)
    if let outbound = hop.outboundJobs, outbound !== queue {
      outbound.appendOrPerform(
        Job(hop, .start, .none, .lastOfLane(ending, then: last), outbound, isAwaited: false))
    } else {
      last.goLast(behind: ending)
    }
  }

  /// Ends the call, because an executor has refused a callback of the hop (law 7). The hop has not ended the
  /// call itself, so it sees on_cancel. Events that may leave the hop, such as a message that it has just
  /// injected, leave first.
  func executorLost(_ hop: Hop) {
    guard hop.isActive else { return }
    letGo(hop, .inbound)
    guard hop.isActive else { return }
    let status = failure(of: hop, "lost its executor")
    if trace != nil { note(.endedByHop, hop, .status, detail: Int(status.code.rawValue)) }
    endBetween(hop.index, status)
  }

  /// A callback has run on its executor: applies its verdict (invariant I3).
  func ran(_ job: Job) {
    let hop = job.hop
    guard hop.isActive, phase == .live else {
      if job.ticket != 0 { loop.loseTicket(job.ticket, of: self) }
      return
    }
    if job.kind == .demand || job.kind == .sent {
      for event in job.injected { inject(event, at: hop) }
      if let status = job.finishRequest {
        finish(at: hop.index, status)
      } else if job.kind == .demand, hop.life != .answering {
        runDemand(hop.lessSurplus(job.count), below: hop)
      }
      return
    }
    let lane = job.kind.lane
    guard let station = hop.standing(lane), var index = station.jobIndex else {
      if job.ticket != 0 { loop.loseTicket(job.ticket, of: self) }
      return
    }
    // Invariant I6: the event kept its lane shut while the callback ran. The event is taken from its place,
    // so the lane is opened.
    _ = station.parked.remove(at: index)
    open(station, lane)
    if case .start = job.event, let start = job.start {
      let deadline = request.deadline
      request.adopt(start)
      if request.deadline != deadline { loop.setDeadline(self, request.deadline) }
    }
    // Messages that the callback has injected in the lane of its own event leave before that event.
    for event in job.injected {
      if event.kind.lane == lane {
        if lane == .inbound { hop.reserved += 1 }
        station.parked.insert(Station.Parked(event: event, wait: .none, isOwn: true), at: index)
        index += 1
      } else {
        inject(event, at: hop)
      }
    }
    hop.ticket = job.ticket
    hop.finishRequest = job.finishRequest
    _ = answered(job.answer, job.event, hop, .returned(index))
    goOn(hop, lane)
    if job.ticket != 0, let index = earlyResolutions.firstIndex(where: { $0.ticket == job.ticket }) {
      let early = earlyResolutions.remove(at: index)
      if phase == .live { resolve(early.ticket, early.resolution) }
    }
  }

  /// Stores the resolution of a ticket whose event's callback still runs on an executor. The resolution is
  /// applied when the callback has returned.
  func storeIfShown(_ ticket: UInt64, _ resolution: Resolution) {
    let isShown = hops.contains { hop in
      hop.hasExecutors && (hop.outbound?.jobIndex != nil || hop.inbound?.jobIndex != nil)
    }
    if isShown { earlyResolutions.append((ticket, resolution)) }
  }

  /// Adds an event that a callback has made to its lane at the hop. Half-close may have left the hop while the
  /// callback ran: then a message does not follow it.
  private func inject(_ event: Event, at hop: Hop) {
    let lane = event.kind.lane
    switch lane {
    case .inbound: hop.reserved += 1
    case .outbound: guard hop.life == .passing else { return }
    }
    hop.station(lane).inject(event)
    pending.append(.flush(hop.index, lane))
  }
}
