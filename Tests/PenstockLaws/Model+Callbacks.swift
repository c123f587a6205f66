import PenstockCall

// The part of the model for callbacks: the events that they see, and the effects of their verdicts.

extension Model {
  /// Finds the model's hop for this attempt: one of the present hops, or one that a RESTART above it has
  /// replaced.
  func instance(_ index: Int, _ attempt: UInt32) -> Hop? {
    hops[index].attempt == attempt
      ? hops[index] : (retired + leftover).first { $0.index == index && $0.attempt == attempt }
  }

  func begin(_ hop: Hop, _ kind: EventKind, _ seen: Item?, count: Int) {
    let index = hop.index
    let name = "\(hop.name) \(kind.word)"
    noteHanded()
    if kind == .destroy, retired.contains(where: { $0 === hop }) {
      require(running == nil, "one at a time", "\(name) inside \(runningKind.word)")
      require(
        retired.first === hop, "restart", "\(name), next to be destroyed is \(retired.first?.name ?? "")")
      retired.removeFirst()
      hop.isDestroyed = true
      running = hop
      runningKind = kind
      return
    }
    require(
      retired.isEmpty, "restart", "\(name) before destroy of \(retired.first?.name ?? "")")
    require(running == nil, "one at a time", "\(name) inside \(runningKind.word)")
    require(!hop.isDestroyed, "law 2", "\(name) after destroy")
    require(hop.plan.has(kind) || kind == .create, "callbacks", "\(name) is NULL")
    runningItem = nil
    defer {
      running = hop
      runningKind = kind
    }
    switch kind {
    case .create:
      if hop.outbound.queue.isEmpty { hurry(.above(index)) { !hop.outbound.queue.isEmpty } }
      require(
        hop.life == .notEntered && hop.outbound.queue.first?.kind == .start, "law 1",
        "\(name): no start there")
    case .start, .send, .halfClose:
      require(!hop.isEnding, "law 1", "\(name) after the hop has ended the call")
      if kind == .start, hop.life == .notEntered, hop.plan.create == .none { hop.life = .entered }
      require(hop.isActive, "law 2", "\(name): not in the call any more")
      runningItem = take(hop.outbound, kind, seen, name, .above(index))
    case .headers, .receive:
      require(!hop.isEnding, "law 1", "\(name) after the hop has ended the call")
      runningItem = seeInbound(hop, kind, seen, name)
      if kind == .receive, runningItem != nil { noteAnswer(hop) }
    case .status:
      if local != nil {
        expectLocal(hop, .status, name)
        runningItem = local
        if let local, let seen { compare(seen, local, name) }
      } else {
        require(!hop.isEnding, "law 1", "\(name) after the hop has ended the call")
        runningItem = seeInbound(hop, kind, seen, name)
      }
    case .cancel:
      discoverEnd(hop)
      if local != nil {
        expectLocal(hop, .cancel, name)
      } else {
        require(hop.owesCancel, "law 2", "\(name): no hand above has ended the call, or a status has passed")
      }
      hop.owesCancel = false
      hop.isCancelled = true
    case .demand:
      if !hop.seesDemand { hurry { hop.seesDemand } }
      if count > hop.demandCame - hop.demandSeen {
        hurry(.demand(index)) { count <= hop.demandCame - hop.demandSeen }
      }
      require(hop.isActive, "law 2", "\(name): not in the call any more")
      require(hop.seesDemand, "demand", "\(name) before start has left the hop")
      require(
        count > 0 && count <= hop.demandCame - hop.demandSeen, "demand",
        "\(name) of \(count), asked \(hop.demandCame), seen \(hop.demandSeen)")
      hop.demandSeen = saturating(hop.demandSeen, count)
      addOwed(count, hop)
    case .sent:
      require(hop.isActive, "law 2", "\(name): not in the call any more")
      if count > hop.sentPassed - hop.sentSeen { hurry { count <= hop.sentPassed - hop.sentSeen } }
      pairSent(below: hop.index) { count <= hop.sentPassed - hop.sentSeen }
      require(
        count > 0 && count <= hop.sentPassed - hop.sentSeen, "sent",
        "\(name) of \(count), told \(hop.sentPassed), seen \(hop.sentSeen)")
      hop.sentSeen += count
    case .destroy:
      discoverEnd(hop)
      require(hop.life == .entered, "law 2", "\(name), but never entered")
      require(!hop.owesCancel, "law 2", "\(name) before on_cancel")
      if local == nil, !hop.mayDestroy, !isOver { hurry() }
      if local != nil {
        require(localOrder.isEmpty, "law 2", "\(name) before every hop has seen the end")
      } else {
        require(hop.mayDestroy || isOver, "law 2", "\(name) while the call goes on")
        require(
          hop.hasPassed || hop.hasFinished || hop.isCancelled, "law 2",
          "\(name) without a status, a finish of its own or on_cancel")
      }
      hop.isDestroyed = true
    case .none, .pick: break
    }
  }

  /// A callback has returned `verdict`. `finishing` is the status with which it has asked to end the call;
  /// nil: it has not asked.
  func end(_ hop: Hop, _ kind: EventKind, verdict: Int32, ticket: UInt64, finishing: Item?, count: Int) {
    guard running === hop else { return }
    let index = hop.index
    let item = runningItem
    running = nil
    runningItem = nil
    defer { advance() }
    switch kind {
    case .create:
      switch hop.plan.create {
      case .none, .next: hop.life = .entered
      case .skip: hop.life = .skipped
      case .nonsense:
        hop.life = .refused
        if !hop.outbound.queue.isEmpty { hop.outbound.queue.removeFirst() }
        finish(index, Item(.status, code: 13))
      }
    case .start, .send, .halfClose, .headers, .receive, .status:
      guard let item, local == nil else { return }
      let lane = item.kind.isOutbound ? hop.outbound : hop.inbound
      lane.refresh()
      let answered = judge(hop, lane, item, verdict, ticket, finishing)
      // A message that is dropped is still reported as sent, so that no sender waits for it.
      if answered, kind == .send { arriveSent(1, at: index - 1) }
    case .demand:
      if let finishing {
        finish(index, finishing)
      } else if !hop.isTaken {
        ask(hop, hop.lessSurplus(count))
      }
    case .sent: if let finishing { finish(index, finishing) }
    case .cancel, .destroy, .none, .pick: break
    }
  }

  /// Applies the answer of a callback to its event. Returns true if the event goes no further. Also returns
  /// true for a message that is held, if its sender is told `sent` now.
  func judge(
    _ hop: Hop, _ lane: Lane, _ item: Item, _ answer: Int32, _ ticket: UInt64, _ finishing: Item?
  ) -> Bool {
    if let finishing {
      spend(ticket)
      finish(hop.index, finishing)
      return true
    }
    if hop.isEnding {
      spend(ticket)
      lane.park(Slot(item: item, state: .ended, isInjected: false, isAnswered: false))
      return false
    }
    let isMessage = item.kind == .send || item.kind == .receive
    let isLast = item.kind == .halfClose || item.kind == .status
    switch Verdict(rawValue: answer) {
    case .next:
      spend(ticket)
      next(hop, lane, item)
      return false
    case .restart where item.kind == .status:
      spend(ticket)
      if mayRestart(hop) == .ok { restart(hop) } else { next(hop, lane, item) }
      return false
    case .pause where ticket != 0:
      lane.park(Slot(item: item, state: .paused(ticket), isInjected: false, isAnswered: false))
      return false
    case .hold where ticket != 0 || !isLast:
      if lane.heldBytes > 0,
        lane.heldBytes + item.room > (hop.plan.holdBytes == 0 ? 65536 : hop.plan.holdBytes)
      {
        spend(ticket)
        finish(hop.index, Item(.status, code: 8))
        return true
      }
      let outbound = item.kind == .send
      lane.park(
        Slot(item: item, state: .held(ticket), isInjected: false, isAnswered: outbound, isHeld: true))
      if item.kind == .receive { renew(hop) }
      return outbound && hop.tellsHeld()
    case .drop where isMessage:
      spend(ticket)
      if item.kind == .receive { renew(hop) }
      return true
    case .take where item.kind == .start:
      spend(ticket)
      hop.isTaken = true
      return false
    default:
      spend(ticket)
      finish(hop.index, Item(.status, code: 13))
      return true
    }
  }

  func take(_ lane: Lane, _ kind: EventKind, _ seen: Item?, _ name: String, _ part: Part) -> Item? {
    require(!lane.isPaused, "law 1", "\(name) behind a paused event")
    if lane.queue.first?.kind != kind { hurry(part) { lane.queue.first?.kind == kind } }
    guard let item = lane.queue.first, item.kind == kind else {
      fail("law 1", "\(name), next to come is \(lane.queue.first?.kind.word ?? "nothing")")
      return nil
    }
    lane.queue.removeFirst()
    if let seen { compare(seen, item, name) }
    return item
  }

  func seeInbound(_ hop: Hop, _ kind: EventKind, _ seen: Item?, _ name: String) -> Item? {
    require(hop.isActive, "law 2", "\(name): not in the call any more")
    return take(hop.inbound, kind, seen, name, .below(hop.index))
  }

  func compare(_ seen: Item, _ expected: Item, _ name: String, marks: [Int]? = nil) {
    require(
      seen.id == expected.id && seen.size == expected.size, "law 1",
      "\(name) is \(seen.id) of \(seen.size) bytes, next to come is \(expected.id) of \(expected.size)")
    require(
      seen.isObject == expected.isObject, "levels", "\(name) is \(seen.isObject ? "an object" : "bytes")")
    require(seen.code == expected.code, "law 3", "\(name) says \(seen.code), not \(expected.code)")
    let marks = marks ?? (expected.kind == .start ? requestMarks : expected.marks)
    require(
      seen.marks == marks, "law 5", "\(name) was changed by \(listed(seen.marks)), not \(listed(marks))")
    require(seen.isLocal == expected.isLocal, "law 2", "\(name) local: \(seen.isLocal)")
  }
}
