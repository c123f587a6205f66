import PenstockCall

// The part of the model for callbacks that run on executors. Meanwhile the callback's event waits at its hop,
// as after PAUSE, until the call learns of the verdict. The call's end does not wait for such a callback; but
// the hop's callbacks for the end come after it.

extension Model {
  /// A callback that an executor has or will get. The model does not say when it runs.
  final class Job {
    let kind: EventKind
    let item: Item
    /// The hops that had changed the event's metadata when the event came to the hop.
    let marks: [Int]
    /// For on_status: whether RESTART was possible when the status came.
    let mayRestart: Outcome
    let hasStart: Bool
    /// Whether the event waits until the call learns of the callback's verdict.
    let isAwaited: Bool

    init(
      _ kind: EventKind, _ item: Item, marks: [Int] = [], mayRestart: Outcome = .state,
      hasStart: Bool = false,
      isAwaited: Bool
    ) {
      self.kind = kind
      self.item = item
      self.marks = marks
      self.mayRestart = mayRestart
      self.hasStart = hasStart
      self.isAwaited = isAwaited
    }
  }

  /// The effect of a callback on an executor. It takes effect when the call learns of the callback's verdict.
  struct Visited {
    let hop: Hop
    let kind: EventKind
    let verdict: Int32
    let ticket: UInt64
    let finishing: Item?
    let count: Int
    let injected: [Item]
    /// The changes of on_start in the request: the metadata, the deadline, the channel.
    let marks: [Int]
    let deadline: UInt64?
    let channel: Int?
  }

  /// Gives the event's callback to the executor of its lane.
  func dispatch(_ item: Item, to hop: Hop, _ lane: Lane) {
    let isStatus = item.kind == .status
    let job = Job(
      item.kind, item, marks: item.kind == .start ? requestMarks : item.marks,
      mayRestart: isStatus ? mayRestart(hop) : .state, hasStart: isStatus && hasRecordedStart(hop),
      isAwaited: true)
    lane.refresh()
    lane.slots.append(Slot(item: item, state: .shown, isInjected: false, isAnswered: false))
    lane.jobs.append(job)
    hand(item.kind, to: hop)
  }

  /// Notes that a callback is being given to an executor that may refuse it. The model does nothing else
  /// until it is known whether the executor has refused.
  func hand(_ kind: EventKind, to hop: Hop) {
    if let executor = hop.plan.executor(of: kind), executors[executor].refusesFrom > 0 {
      handing = (hop, kind)
    }
  }

  /// Notes that the callback that was being given to an executor was accepted. Any other event shows this,
  /// because it comes later.
  func noteHanded() { while handing != nil { takeHanded() } }

  private func takeHanded() {
    handing = nil
    advance()
  }

  /// Queues the hop's callback for the call's end, behind the jobs that its executor already has.
  func dispatchEnd(_ kind: EventKind, _ item: Item, to hop: Hop) {
    hop.isCancelled = true
    if hop.has(kind) { hop.inbound.jobs.append(Job(kind, item, marks: item.marks, isAwaited: false)) }
  }

  func hasRecordedStart(_ hop: Hop) -> Bool {
    hop.unreplayable == nil && hop.plan.replayBytes > 0 && hop.recordedStart != nil
  }

  /// An executor begins to run a callback of the hop. Returns the model's job for it; nil for a signal and
  /// for `destroy`.
  func beginVisit(_ hop: Hop, _ kind: EventKind, _ seen: Item?, count: Int) -> Job? {
    let name = "\(hop.name) \(kind.word)"
    noteHanded()
    require(!hop.isDestroyed, "law 2", "\(name) after destroy")
    require(hop.plan.has(kind), "callbacks", "\(name) is NULL")
    let executor = (seen?.isLocal == true ? hop.plan.ending : nil) ?? hop.plan.executor(of: kind)
    for visiting in hop.visiting {
      require(visiting.executor != executor, "one at a time", "\(name) inside \(visiting.kind.word)")
    }
    if let executor { hop.visiting.append((executor, kind)) }
    switch kind {
    case .start, .send, .halfClose, .headers, .receive, .status, .cancel:
      return takeJob(hop, kind, seen, name)
    case .demand:
      if count > hop.demandShown { hurry(.demand(hop.index)) { count <= hop.demandShown } }
      if count > hop.demandShown { hurry { count <= hop.demandShown } }
      require(
        count > 0 && count <= max(hop.demandShown, lateDemand(of: hop)), "demand",
        "\(name) of \(count), asked \(hop.demandShown)")
      hop.demandShown -= min(count, hop.demandShown)
    case .sent:
      if count > hop.sentPassed - hop.sentSeen { hurry { count <= hop.sentPassed - hop.sentSeen } }
      pairSent(below: hop.index) { count <= hop.sentPassed - hop.sentSeen }
      require(
        count > 0 && count <= hop.sentPassed - hop.sentSeen, "sent",
        "\(name) of \(count), told \(hop.sentPassed), seen \(hop.sentSeen)")
      hop.sentSeen += count
    case .destroy:
      if isCurrent(hop) {
        discoverEnd(hop)
        if local == nil, !hop.mayDestroy, !isOver { hurry() }
        require(hop.mayDestroy || isOver || local != nil, "law 2", "\(name) while the call goes on")
      }
      require(hop.life == .entered, "law 2", "\(name), but never entered")
      require(!hop.owesCancel, "law 2", "\(name) before on_cancel")
      require(hop.visiting.count == 1, "one at a time", "\(name) while another callback runs")
      for lane in [hop.outbound, hop.inbound] {
        require(lane.jobs.isEmpty, "law 2", "\(name) before \(lane.jobs.first?.kind.word ?? "")")
      }
      require(
        hop.hasPassed || hop.hasFinished || hop.isCancelled || local != nil, "law 2",
        "\(name) without a status, a finish of its own or on_cancel")
      hop.isDestroyed = true
    case .none, .create, .pick: fail("executors", "\(name) on an executor")
    }
    return nil
  }

  private func takeJob(_ hop: Hop, _ kind: EventKind, _ seen: Item?, _ name: String) -> Job? {
    let lane = kind.isOutbound ? hop.outbound : hop.inbound
    if lane.jobs.first?.kind != kind, isCurrent(hop) {
      if kind == .cancel { discoverEnd(hop) }
      hurry(kind.isOutbound ? .above(hop.index) : .below(hop.index)) { lane.jobs.first?.kind == kind }
      if lane.jobs.first?.kind != kind { hurry { lane.jobs.first?.kind == kind } }
    }
    guard let job = lane.jobs.first, job.kind == kind else {
      fail("law 1", "\(name), next to come is \(lane.jobs.first?.kind.word ?? "nothing")")
      return nil
    }
    lane.jobs.removeFirst()
    if !job.isAwaited {
      require(
        hop.outbound.jobs.isEmpty && hop.visiting.allSatisfy { $0.kind == kind }, "law 2",
        "\(name) before \(hop.outbound.jobs.first?.kind.word ?? hop.visiting.first?.kind.word ?? "")")
    }
    if let seen, kind != .cancel { compare(seen, job.item, name, marks: job.marks) }
    return job
  }

  func endVisit(_ hop: Hop, _ kind: EventKind) {
    hop.visiting.removeAll { $0.kind == kind }
    // The use of a ticket may have waited for the end of this callback, if the callback has run inside
    // `submit`.
    if settling != nil, handing == nil { advance() }
  }

  func isCurrent(_ hop: Hop) -> Bool { hops[hop.index] === hop }

  /// Applies the verdict of a callback that has run on an executor; the call learns of it now.
  func visited(_ visit: Visited) {
    let hop = visit.hop
    guard hop.isActive, isCurrent(hop) else { return lose(visit.ticket) }
    let item: Item
    switch visit.kind {
    case .demand, .sent:
      for item in visit.injected where fits(item, hop) { inject(item, hop, lane(of: item, hop)) }
      if let finishing = visit.finishing {
        finish(hop.index, finishing)
      } else if visit.kind == .demand, !hop.isTaken {
        ask(hop, hop.lessSurplus(visit.count))
      }
      return
    default: break
    }
    let own = visit.kind.isOutbound ? hop.outbound : hop.inbound
    guard var index = own.slots.firstIndex(where: { $0.state == .shown }) else { return lose(visit.ticket) }
    item = own.slots.remove(at: index).item
    own.refresh()
    if item.kind == .start {
      requestMarks += visit.marks
      if let deadline = visit.deadline { expectedDeadline = deadline }
      if let channel = visit.channel { requestChannel = channel }
    }
    for other in visit.injected {
      guard lane(of: other, hop) === own else {
        guard fits(other, hop) else { continue }
        let lane = lane(of: other, hop)
        inject(other, hop, lane)
        // The injected event leaves after the events that the verdict and its ticket release, unless
        // something else opens the lane.
        if order.patience != .none {
          for place in lane.slots.indices where lane.slots[place].item === other {
            lane.slots[place].fresh = nextFresh()
          }
        }
        continue
      }
      own.slots.insert(Slot(item: other, state: .ready, isInjected: true, isAnswered: true), at: index)
      index += 1
    }
    own.gap = index
    let answered = judge(hop, own, item, visit.verdict, visit.ticket, visit.finishing)
    own.gap = nil
    if answered, item.kind == .send { arriveSent(1, at: hop.index - 1) }
    if let early = early.removeValue(forKey: visit.ticket) { settling = early }
  }

  /// Applies the use of a ticket that came before the callback's verdict. If the events that the verdict has
  /// released have ended the call, the use has no effect.
  func settleEarly(_ input: Input) {
    if !discover(nil) { settle(input) }
    refreshAll()
  }

  /// Whether an event that a callback has injected may still take its place: a half-close may have left the hop while
  /// the callback ran.
  private func fits(_ item: Item, _ hop: Hop) -> Bool { !item.kind.isOutbound || mayPut(hop) }

  private func lane(of item: Item, _ hop: Hop) -> Lane { item.kind.isOutbound ? hop.outbound : hop.inbound }

  private func lose(_ ticket: UInt64) {
    if ticket != 0, tickets[ticket]?.state == .open { tickets[ticket]?.state = .gone }
  }

  /// Ends the call at once, because an executor has refused a callback of the hop (law 7).
  func executorRefused(_ index: Int, _ attempt: UInt32, _ kind: EventKind, count: Int) {
    guard let hop = instance(index, attempt), isCurrent(hop), local == nil else { return }
    // Callbacks that were given to executors before this one were accepted.
    while let other = handing, other.hop !== hop || other.kind != kind { takeHanded() }
    handing = nil
    let name = "\(hop.name) \(kind.word), refused by its executor"
    switch kind {
    case .start, .send, .halfClose, .headers, .receive, .status:
      guard let job = takeJob(hop, kind, nil, name) else { return }
      let lane = kind.isOutbound ? hop.outbound : hop.inbound
      if let shown = lane.slots.firstIndex(where: { $0.state == .shown }) { lane.slots.remove(at: shown) }
      if job.item.kind == .send { arriveSent(1, at: hop.index - 1) }
    case .demand:
      if count > hop.demandShown { hurry(.demand(index)) { count <= hop.demandShown } }
      if count > hop.demandShown { hurry { count <= hop.demandShown } }
      require(count <= hop.demandShown, "demand", "\(name) of \(count), asked \(hop.demandShown)")
      hop.demandShown -= count
    case .sent:
      if count > hop.sentPassed - hop.sentSeen { hurry { count <= hop.sentPassed - hop.sentSeen } }
      pairSent(below: hop.index) { count <= hop.sentPassed - hop.sentSeen }
      hop.sentSeen += count
    case .none, .cancel, .create, .destroy, .pick: return
    }
    loseExecutor(of: hop)
    advance()
  }

  /// Ends the call at the hop, because an executor has refused a callback of it.
  func loseExecutor(of hop: Hop) {
    guard hop.isActive, isCurrent(hop) else { return }
    hop.isLost = true
    finish(hop.index, Item(.status, code: 13))
  }

  /// Whether a callback is about to run inside `submit`, on the thread that submits it.
  var isAboutToRun: Bool {
    func isInline(_ executor: Int?) -> Bool { executor.map { executors[$0].isInline } ?? false }
    return hops.contains { hop in
      // When a hop's part in the call is over, its callbacks for signals (`sent`, demand) do not come any
      // more.
      let isToldOfSent = hop.isActive && hop.has(.sent) && hop.sentSeen < hop.sentPassed
      let isToldOfDemand = hop.isActive && hop.demandShown > 0
      let hasOutbound = !hop.outbound.jobs.isEmpty || isToldOfSent
      let isEnding = hop.inbound.jobs.first?.isAwaited == false
      if isEnding, hop.plan.chosen?.inbound != hop.plan.ending || !hasOutbound {
        return isInline(hop.plan.ending)
      }
      return (isInline(hop.plan.chosen?.outbound) && hasOutbound)
        || (isInline(hop.plan.chosen?.inbound) && (!hop.inbound.jobs.isEmpty || isToldOfDemand))
    }
  }

  /// Checks that the functions of a hop with executors return GONE when they must, and only when they may.
  /// Returns `isGone`: the model can't know this by itself, because the hop's callbacks run on another thread
  /// at the same time.
  func seeGone(_ hop: Hop, _ isGone: Bool) -> Bool {
    if isGone, hop.isActive, isCurrent(hop), local == nil, !isOver { hurry { !hop.isActive } }
    require(
      !isGone || !hop.isActive || !isCurrent(hop) || local != nil || isOver, "law 2",
      "\(hop.name) is gone while the call goes on")
    require(isGone || callerStatus == nil || hop.life != .entered, "law 2", "\(hop.name) works after the end")
    return isGone
  }

  /// Checks that no callback that an executor was given is still missing.
  func checkIdle() {
    for hop in hops + leftover where hop.life == .entered && hop.plan.chosen != nil {
      for lane in [hop.outbound, hop.inbound] {
        require(
          lane.jobs.isEmpty, "executors", "\(hop.name) was not shown its \(lane.jobs.first?.kind.word ?? "")")
      }
      let isEnded = isOver || local != nil || hop.mayDestroy || !isCurrent(hop)
      require(
        !isEnded || hop.isDestroyed || !hop.has(.destroy), "law 2", "\(hop.name): destroy did not come")
      guard hop.isActive, isCurrent(hop), !isEnded else { continue }
      require(
        hop.demandShown == 0, "demand", "\(hop.name): asked for \(hop.demandShown) more than it was told of")
      if hop.plan.executor(of: .sent) != nil, hop.has(.sent) {
        require(
          hop.sentSeen == hop.sentPassed, "sent",
          "\(hop.name): \(hop.sentPassed) were sent, told of \(hop.sentSeen)")
      }
    }
  }
}
