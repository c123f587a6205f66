import PenstockCall

// The model of moving events.

extension Model {
  func pushOutbound(_ item: Item, _ index: Int) {
    if index == codecIndex, index < outboundEnd, !encode(item) { return }
    if index < hops.count { hops[index].outbound.queue.append(item) } else { serverQueue.append(item) }
  }

  func pushInbound(_ item: Item, _ index: Int) {
    if index == codecIndex - 1, !decode(item) { return }
    if index == codecIndex - 1, codec != nil, item.kind == .status { endOutbound(codecIndex) }
    if index >= 0 { hops[index].inbound.queue.append(item) } else { callerQueue.append(item) }
  }

  func next(_ hop: Hop, _ lane: Lane, _ item: Item) {
    lane.releaseTicketless()
    lane.refresh()
    let isKept = holdsHeaders(hop, item)
    lane.park(Slot(item: item, state: isKept ? .held(0) : .ready, isInjected: false, isAnswered: false))
    if isKept { askBehindHeaders(hop) }
  }

  /// Adds an event that the hop has injected behind the waiting events, but before a half-close or status.
  func inject(_ item: Item, _ hop: Hop, _ lane: Lane) {
    let slot = Slot(
      item: item, state: .ready, isInjected: true, isAnswered: true,
      fresh: running != nil && order.patience != .none ? nextFresh() : 0)
    if let last = lane.slots.last, last.item.kind == .halfClose || last.item.kind == .status {
      lane.slots.insert(slot, at: lane.slots.count - 1)
    } else {
      lane.slots.append(slot)
    }
  }

  func arriveDemand(_ n: Int, at index: Int) {
    guard n > 0 else { return }
    if index == hops.count {
      serverDemandCame = saturating(serverDemandCame, n)
    } else {
      hops[index].demandCame = saturating(hops[index].demandCame, n)
    }
  }

  func arriveSent(_ n: Int, at index: Int) {
    guard n > 0 else { return }
    guard index >= 0 else {
      callerSentCame += n
      return
    }
    let hop = hops[index]
    guard hop.life == .entered else { return arriveSent(n, at: index - 1) }
    require(hop.sentCame + n <= hop.ledger.count, "model", "hop \(index): more sent than it has passed on")
    guard hop.sentCame + n <= hop.ledger.count else { return }
    let passed = hop.ledger[hop.sentCame..<hop.sentCame + n].count { !$0 }
    let held = min(n - passed, hop.untold)
    hop.untold -= held
    hop.unpaired += n - passed - held
    hop.sentCame += n
    hop.sentPassed += passed
    arriveSent(passed + held, at: index - 1)
  }

  /// Reports held messages of the hops below `index` as sent, until `isThere` is true. A hop reports one held
  /// message for each `sent` that has stopped at it and was not counted for a held message (`unpaired`). The
  /// model had assumed that this `sent` came before the HOLD. It may have come after it, because `sent` is
  /// told only after the running callback.
  func pairSent(below index: Int, until isThere: () -> Bool) {
    for hop in hops[(index + 1)...] {
      while !isThere(), hop.untold > 0, hop.unpaired > 0 {
        hop.untold -= 1
        hop.unpaired -= 1
        arriveSent(1, at: hop.index - 1)
      }
    }
  }

  /// How many of the hop's held messages may have been reported as sent in this step without a trace. A
  /// report leaves no trace if it stops at a hop above, because that hop has injected the message for which
  /// the report counts. It shows only later, when the hop above returns HOLD for a message.
  func unseenPairs(_ hop: Hop) -> Int {
    var most = min(hop.untold, hop.unpaired)
    while most > 0, isSeen(most, above: hop.index) { most -= 1 }
    return most
  }

  /// Whether a hop or the caller would have been told `sent` by now if the hop at `index` had reported `n`
  /// more messages.
  private func isSeen(_ n: Int, above index: Int) -> Bool {
    var n = n
    for hop in hops[..<index].reversed() where hop.life == .entered {
      let passed = hop.ledger[hop.sentCame...].prefix(n).count { !$0 }
      if passed > 0, hop.isActive, hop.has(.sent), hop.plan.executor(of: .sent) == nil { return true }
      n = passed + min(n - passed, hop.untold)
      if n == 0 { return false }
    }
    return true
  }

  func saturating(_ a: Int, _ b: Int) -> Int {
    let (sum, overflow) = a.addingReportingOverflow(b)
    return overflow ? Int.max : sum
  }

  /// Makes the moves that need no callback: events leave hops in order, and pass hops that have no callback
  /// for them. Each function for a single kind of move returns whether it has moved something.
  func advance() {
    guard local == nil, !isOver else { return }
    var moved = true
    if !mayHurry { order.draw() }
    while moved, !isOver, handing == nil || mayHurry {
      moved = false
      for hop in hops where hop !== running && (handing == nil || mayHurry) {
        if leaveDown(hop) || leaveUp(hop) || passDown(hop) || passUp(hop) || passDemand(hop)
          || passRenewal(hop)
        {
          moved = true
        }
      }
      if handing != nil, !mayHurry { return }
      if serverHasEnded || outboundEnd <= hops.count { moved = discard(&serverQueue, hops.count) || moved }
      if serverHasStarted, !serverHasEnded, serverDemandCame > 0 {
        serverDemand = saturating(serverDemand, serverDemandCame)
        serverDemandCame = 0
      }
      if callerQueue.first?.kind == .status { isOver = true }
      for hop in hops
      where !hop.again.isEmpty
        && may(.replay, hop, !moved && (hop.again[0].item.kind == .start || !isMoving(below: hop.index)))
        && replay(hop)
      { moved = true }
      if let input = settling, !moved, mayHurry || (!isAboutToRun && !isMoving(below: -1)) {
        settling = nil
        moved = true
        settleEarly(input)
      }
      let isCalm = !moved && finishing == nil
      if !whole.isEmpty, mayHurry || order.allows(.open, 0, { isCalm && !isMoving(below: -1) }) {
        moved = true
        if wholeIsNext || mayHurry || !isCalm {
          pushOutbound(whole.removeFirst(), 0)
        } else {
          wholeIsNext = true
          refreshAll()
        }
      }
      if let hop = hops.first(where: { $0.isTaken && !$0.earlyAnswers.isEmpty && $0.isActive }),
        may(.answer, hop, !moved && finishing == nil && !isMoving(below: -1))
      {
        moved = true
        answer(hop.earlyAnswers.removeFirst(), hop)
      }
      if let (index, status) = finishing, !mayLeaveUp(hops[index]), !isMoving(above: index) {
        finishing = nil
        moved = true
        if hops[index].isActive { finishNow(index, status) }
      }
    }
  }

  func leaveDown(_ hop: Hop) -> Bool {
    guard finishing == nil, let slot = hop.outbound.slots.first, slot.state == .ready else { return false }
    if slot.item.kind == .start, !hop.startHasLeft {
      // The demand that waits with the start leaves the hop first, and then the start.
      hop.startHasLeft = true
      record(hop, slot.item)
      if !hop.isTaken {
        hop.headersDelivered = false
        hop.statusDelivered = false
        hop.hasRefusal = false
        hop.messageDelivered = false
        hop.answersWaiting = 0
        hop.answerBytes = 0
        let early = hop.earlyAnswers
        hop.earlyAnswers = []
        for item in early where item.kind == .receive { injectUnasked(item, hop) }
      }
      return true
    }
    guard may(.leaveDown, hop, !isMoving(below: hop.index) && !slot.isFresh) else { return false }
    hop.outbound.slots.removeFirst()
    switch slot.item.kind {
    case .halfClose: hop.halfCloseHasLeft = true
    default: break
    }
    if hop.isTaken {
      if slot.item.kind == .send, !slot.isAnswered { arriveSent(1, at: hop.index - 1) }
      return true
    }
    record(hop, slot.item)
    if !hop.again.isEmpty {
      hop.again.append((slot.item, slot.isAnswered))
      return true
    }
    if slot.item.kind == .send { hop.ledger.append(slot.isAnswered) }
    pushOutbound(slot.item, hop.index + 1)
    return true
  }

  func mayLeaveUp(_ hop: Hop) -> Bool {
    guard let first = hop.inbound.slots.first, first.state == .ready, !first.isFresh else { return false }
    return first.item.kind != .receive || hop.owed > 0
  }

  func leaveUp(_ hop: Hop) -> Bool {
    guard hop.index <= finishing?.index ?? Int.max, let slot = hop.inbound.slots.first, slot.state == .ready,
      may(.leaveUp, hop, !slot.isFresh && !isMoving(above: hop.index))
    else { return false }
    switch slot.item.kind {
    case .headers: hop.unreplayable = hop.unreplayable ?? .state
    case .receive:
      guard hop.owed > 0 else { return false }
      hop.unreplayable = hop.unreplayable ?? .state
      hop.owed -= 1
      if hop.isTaken {
        hop.answersWaiting -= 1
        hop.answerBytes -= slot.item.room
      } else if slot.isInjected {
        hop.reserved -= 1
      }
      if slot.isInjected || slot.isHeld { hop.surplus += 1 }
    case .status where hop.isEnding: return false
    case .status where hop.isTaken:
      hop.inbound.slots.removeFirst()
      finish(hop.index, slot.item)
      return true
    case .status:
      hop.hasPassed = true
      endOutbound(hop.index)
      discardOutbound(hop)
    default: break
    }
    hop.inbound.slots.removeFirst()
    pushInbound(slot.item, hop.index - 1)
    return true
  }

  func may(_ move: Order.Move, _ hop: Hop, _ natural: @autoclosure () -> Bool) -> Bool {
    mayHurry || order.allows(move, hop.index, natural)
  }

  /// The part of the call in which events may have moved already, although the model has not moved them yet.
  /// The model may put moves off, because unrelated events may move in any order.
  enum Part {
    case everywhere
    /// `above(index)`: outbound events on their way to the hop at this index. `below(index)`: inbound events
    /// on their way to it.
    case above(Int)
    case below(Int)
    /// Demand on its way to the hop at this index.
    case demand(Int)
  }

  /// Makes moves that the model has put off, until `done` returns true: first the moves nearest to the
  /// place that `part` names, and no more than necessary.
  func hurry(_ part: Part = .everywhere, until done: () -> Bool = { false }) {
    repeat { if done() { return } } while pull(part)
    if let input = settling {
      settling = nil
      settleEarly(input)
      advance()
      repeat { if done() { return } } while pull(part)
    }
    if case .everywhere = part {
      while refreshNext() {
        advance()
        if done() { return }
      }
      advance()
      if done() { return }
    }
    mayHurry = true
    advance()
    mayHurry = false
  }

  /// Makes the one possible move that is nearest to the place that `part` names. Returns false if no
  /// move is possible.
  private func pull(_ part: Part) -> Bool {
    mayHurry = true
    defer { mayHurry = false }
    switch part {
    case .everywhere: return false
    case .above(let index):
      if index < hops.count, passDown(hops[index]) { return true }
      for hop in hops[..<index].reversed()
      where hop !== running && (replay(hop) || leaveDown(hop) || passDown(hop)) {
        return true
      }
      guard !whole.isEmpty else { return false }
      pushOutbound(whole.removeFirst(), 0)
      return true
    case .below(let index):
      if index >= 0, passUp(hops[index]) { return true }
      for hop in hops[(index + 1)...] where hop !== running && (leaveUp(hop) || passUp(hop)) { return true }
    case .demand(let index):
      for hop in hops[..<index].reversed() where passDemand(hop) || passRenewal(hop) { return true }
    }
    return false
  }

  func nextFresh() -> Int {
    lastFresh += 1
    return lastFresh
  }

  /// Makes the move that was put off first. Returns false if there is none.
  func refreshNext() -> Bool {
    var oldest = Int.max
    var found: (hop: Hop, lane: Lane?)?
    for hop in hops {
      for lane in [hop.outbound, hop.inbound] {
        for slot in lane.slots where slot.isFresh && slot.fresh < oldest {
          oldest = slot.fresh
          found = (hop, lane)
        }
      }
      if let first = hop.renewals.first, first < oldest {
        oldest = first
        found = (hop, nil)
      }
    }
    guard let (hop, lane) = found else { return false }
    if let lane {
      lane.refresh()
    } else {
      hop.renewals.removeFirst()
      if hop.isActive { ask(hop, 1) }
    }
    return true
  }

  /// Makes the hop ask for one more message, in place of one that it has dropped or held, unless something
  /// that came earlier still has to move.
  func passRenewal(_ hop: Hop) -> Bool {
    guard let first = hop.renewals.first,
      may(
        .passDemand, hop,
        finishing == nil && !isAboutToRun && !isMoving(below: -1) && !isPutOff(before: first))
    else { return false }
    hop.renewals.removeFirst()
    if hop.isActive { ask(hop, 1) } else { hop.lateRenewals += 1 }
    return true
  }

  /// How much demand was on its way to the hop when the call ended, and so may have reached the hop before
  /// the end.
  func lateDemand(of hop: Hop) -> Int {
    guard isOver || local != nil || !hop.isActive else { return 0 }
    return hops[...hop.index].reduce(hop.demandShown) { sum, other in
      let renewed = other === hop ? 0 : other.renewals.count + other.lateRenewals
      return saturating(sum, saturating(renewed, other.demandCame - other.demandSeen))
    }
  }

  private func isPutOff(before number: Int) -> Bool {
    hops.contains { hop in
      if let first = hop.renewals.first, first < number { return true }
      return [hop.outbound, hop.inbound].contains { lane in
        lane.slots.contains { $0.isFresh && $0.fresh < number }
      }
    }
  }

  func refreshAll() {
    for hop in hops {
      hop.outbound.refresh()
      hop.inbound.refresh()
    }
  }

  /// Whether an event or demand still has to move below the hop at `index`. By default one event goes as far
  /// as it can, with everything that follows from it, before the next one leaves.
  func isMoving(below index: Int) -> Bool {
    if serverQueue.contains(where: { $0.kind != .start || !serverHasEnded }) || isMoving(above: hops.count) {
      return true
    }
    return hops[max(index, 0)...].contains { hop in
      if hop.isActive, hop.seesDemand, hop.demandCame > hop.demandSeen { return true }
      guard hop.index > index else { return false }
      if let first = hop.outbound.slots.first, first.state == .ready, !first.isFresh { return true }
      return !hop.outbound.isPaused && !hop.outbound.queue.isEmpty
    }
  }

  func isMoving(above index: Int) -> Bool {
    if running != nil || !callerQueue.isEmpty { return true }
    return hops[..<max(index, 0)].contains { hop in
      if mayLeaveUp(hop) { return true }
      return !hop.inbound.isPaused && !hop.inbound.queue.isEmpty
    }
  }

  func passDown(_ hop: Hop) -> Bool {
    if hop.index >= outboundEnd || hop.hasClosed { return discard(&hop.outbound.queue, hop.index) }
    guard finishing == nil, let item = hop.outbound.queue.first, !hop.outbound.isPaused else { return false }
    // If start is about to leave this hop, start leaves first.
    let first = hop.outbound.slots.first
    let startLeaves = first?.item.kind == .start && first?.state == .ready
    guard may(.passDown, hop, !isMoving(below: hop.index) && !startLeaves) else { return false }
    if hop.life == .skipped {
      hop.outbound.queue.removeFirst()
      pushOutbound(item, hop.index + 1)
      return true
    }
    if hop.life == .notEntered {
      guard hop.plan.create == .none, !hop.has(.start) || hop.plan.executor(of: .start) != nil else {
        return false
      }
      hop.life = .entered
    }
    return pass(item, hop, hop.outbound)
  }

  func passUp(_ hop: Hop) -> Bool {
    guard hop.index < finishing?.index ?? Int.max else { return false }
    guard let item = hop.inbound.queue.first, !hop.inbound.isPaused,
      may(.passUp, hop, !isMoving(above: hop.index))
    else { return false }
    if !hop.isActive {
      hop.inbound.queue.removeFirst()
      pushInbound(item, hop.index - 1)
      return true
    }
    if hop.index == cutAt, item.canRepeat, !(item.repeatsLater ? hop.hasRetried : hop.hasRepeated),
      mayRestart(hop) == .ok
    {
      if item.repeatsLater { hop.hasRetried = true } else { hop.hasRepeated = true }
      hop.inbound.queue.removeFirst()
      restart(hop)
      hop.waits = item.repeatsLater
      return true
    }
    guard pass(item, hop, hop.inbound) else { return false }
    if item.kind == .receive { noteAnswer(hop) }
    return true
  }

  /// Moves an event past a hop that has no callback for it, or gives its callback to the executor.
  private func pass(_ item: Item, _ hop: Hop, _ lane: Lane) -> Bool {
    guard hop.isActive else { return false }
    let isShown = hop.has(item.kind)
    if isShown, hop.plan.executor(of: item.kind) == nil { return false }
    lane.queue.removeFirst()
    if isShown { dispatch(item, to: hop, lane) } else { next(hop, lane, item) }
    return true
  }

  func passDemand(_ hop: Hop) -> Bool {
    let pending = hop.demandCame - hop.demandSeen
    guard pending > 0, hop.life != .notEntered, may(.passDemand, hop, true) else { return false }
    if hop.life == .skipped || (!hop.isActive && hop.seesDemand) {
      hop.demandSeen = hop.demandCame
      arriveDemand(pending, at: hop.index + 1)
      return true
    }
    let isElsewhere = hop.plan.executor(of: .demand) != nil
    guard hop.seesDemand, !hop.has(.demand) || isElsewhere else { return false }
    hop.demandSeen = hop.demandCame
    addOwed(pending, hop)
    if hop.has(.demand) {
      hop.demandShown = saturating(hop.demandShown, pending)
      hand(.demand, to: hop)
      return true
    }
    if !hop.isTaken { ask(hop, hop.lessSurplus(pending)) }
    return true
  }

  /// Sends demand for `n` messages from the hop downward.
  func ask(_ hop: Hop, _ n: Int) {
    guard n > 0 else { return }
    hop.unanswered = saturating(hop.unanswered, n)
    arriveDemand(n, at: hop.index + 1)
  }

  /// Adds demand that comes to the hop from above. Messages that have waited for demand leave the hop after
  /// the running callback.
  func addOwed(_ n: Int, _ hop: Hop) {
    let hadNone = hop.owed == 0
    hop.owed = saturating(hop.owed, n)
    if hadNone, order.patience != .none, finishing?.index != hop.index, !hop.inbound.slots.isEmpty {
      hop.inbound.slots[0].fresh = nextFresh()
    }
  }

  func discard(_ queue: inout [Item], _ index: Int) -> Bool {
    guard !queue.isEmpty else { return false }
    let messages = queue.count { $0.kind == .send }
    queue = []
    arriveSent(messages, at: index - 1)
    return true
  }
}
