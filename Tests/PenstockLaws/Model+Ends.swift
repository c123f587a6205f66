import PenstockCall

// The model of a call's end.

extension Model {
  func endOutbound(_ index: Int) { outboundEnd = min(outboundEnd, max(index, 0)) }

  func lose(_ lane: Lane) {
    for slot in lane.slots {
      switch slot.state {
      case .held(let ticket), .paused(let ticket):
        if tickets[ticket]?.state == .open { tickets[ticket]?.state = .gone }
      case .ready, .shown, .ended: break
      }
    }
  }

  func discardOutbound(_ hop: Hop) {
    lose(hop.outbound)
    let abandoned =
      hop.again.count { $0.item.kind == .send && !$0.isAnswered }
      + hop.outbound.queue.count { $0.kind == .send }
      + hop.outbound.slots.count { $0.item.kind == .send && !$0.isAnswered }
    hop.again = []
    hop.outbound.removeAll()
    arriveSent(abandoned, at: hop.index - 1)
  }

  func discardInbound(_ hop: Hop) {
    lose(hop.inbound)
    hop.inbound.removeAll()
  }

  func endServer() {
    guard !serverHasEnded else { return }
    serverHasEnded = true
    serverSaidStatus = true
    endOutbound(hops.count)
    let n = inTransport
    inTransport = 0
    arriveSent(n, at: hops.count - 1)
  }

  /// Ends the call at the hop at `index` (-1: above the top hop; hops.count: below the last hop).
  func finish(_ index: Int, _ status: Item) {
    // A hop above ends the call already.
    if let own, own.index < index { return }
    guard index >= 0, index < hops.count else { return finishNow(index, status) }
    if status.code == 0, hops[index].isTaken {
      hops[index].inbound.refresh()
      if waits(status, hops[index]) { return }
    }
    // A hop that has not returned TAKE does not answer in the server's place, so an answer that it has
    // delivered would be lost. Ending the call with OK is then a fault of the hop.
    let lacksTake =
      hops[index].isActive && hops[index].mayDeliver && !hops[index].isTaken && hops[index].hasBegunToAnswer
    let lacksMessage = (hops[index].isTaken ? hops[index].hasRefusal : lacksTake) && status.code == 0
    let status = lacksMessage ? Item(.status, code: 13) : status
    // Events that may leave the hop leave before the status, and everything that follows from them comes
    // first.
    hops[index].inbound.refresh()
    // The hop's end is final: a status that waits behind others does not leave any more.
    hops[index].inbound.slots.removeAll { $0.item.kind == .status && $0.state == .ready }
    endItself(above: index)
    guard mayLeaveUp(hops[index]) else { return finishNow(index, status) }
    finishing = (index, status)
    advance()
  }

  /// Something above the hop that is ending the call ends it first, because of an event that has left the hop. The hop
  /// has ended the call itself all the same.
  private func endItself(above index: Int) {
    if let own, own.index > index { hops[own.index].hasFinished = true }
  }

  /// The end by a hop that waits for the events that leave the hop before its status; nil: there is none.
  private var own: (index: Int, status: Item)? { finishing.flatMap { hops[$0.index].isLost ? nil : $0 } }

  var isTooMuch: Bool {
    kind.receivesOne && callerMessages + callerQueue.count(where: { $0.kind == .receive }) > 1
  }

  func finishNow(_ index: Int, _ status: Item) {
    guard index >= 0, index < hops.count else { return finishBetween(max(index, 0), status) }
    let hop = hops[index]
    endBelow(index, from: hop.isLost ? index : index + 1)
    discardOutbound(hop)
    discardInbound(hop)
    hop.hasFinished = !hop.isLost
    pushInbound(status, index - 1)
  }

  /// Ends the call above the hop at `index`, for a reason other than a hop's wish. If a hop below is ending the call,
  /// its status stands.
  func finishBetween(_ index: Int, _ status: Item) {
    if let own, own.index < index { return }
    let status = own?.status ?? status
    endItself(above: index - 1)
    if own != nil { finishing = nil }
    endBelow(index, from: index)
    pushInbound(status, index - 1)
  }

  func endBelow(_ end: Int, from first: Int) {
    if !serverHasEnded {
      endServer()
      serverSaidStatus = false
    }
    endOutbound(end)
    for hop in hops[first...] {
      discardOutbound(hop)
      discardInbound(hop)
      guard hop.life == .entered else { continue }
      if hop.isActive {
        if hop.plan.executor(of: .cancel) != nil {
          dispatchEnd(.cancel, finishing?.status ?? Item(.status), to: hop)
        } else if hop.has(.cancel) {
          hop.owesCancel = true
        } else {
          hop.isCancelled = true
        }
      }
      hop.mayDestroy = true
    }
  }

  func endLocally(_ status: Item) {
    local = status
    status.isLocal = true
    serverHasEnded = true
    callerQueue = []
    for hop in hops.reversed() {
      let overtakes = hop.isTaken || hop.inbound.slots.contains { $0.item.kind == .status }
      lose(hop.outbound)
      lose(hop.inbound)
      hop.outbound.removeAll()
      hop.inbound.removeAll()
      guard hop.isActive else { continue }
      let kind: EventKind = overtakes ? .cancel : .status
      if hop.plan.ending != nil {
        dispatchEnd(kind, status, to: hop)
      } else if hop.has(kind) {
        localOrder.append((hop.index, kind))
      }
    }
  }

  func expectLocal(_ hop: Hop, _ kind: EventKind, _ name: String) {
    guard let first = localOrder.first, first.hop == hop.index, first.kind == kind else {
      let next = localOrder.first.map { "hop \($0.hop) \($0.kind.word)" } ?? "nothing"
      fail("law 4", "\(name) of a local end, next to come is \(next)")
      return
    }
    localOrder.removeFirst()
    hop.isCancelled = true
  }

  /// Called when the call shows an event that comes only at its end, but the model has not ended the call
  /// yet. Finds the reason, and ends the call in the model. The reason may be that a hop has asked for the
  /// end. Or the caller's or server's side has got one message too many, or a half-close without a message.
  func discoverEnd(_ hop: Hop?, until isThere: () -> Bool = { false }) {
    guard local == nil, !isOver, hop?.owesCancel != true, hop?.mayDestroy != true else { return }
    if discover(hop) { return }
    // An event that has not moved yet in the model may also end the call: for example, a message that the
    // codec refuses.
    func isDone() -> Bool { isOver || isThere() || hop?.owesCancel == true || hop?.mayDestroy == true }
    if order.patience == .some {
      while refreshNext() {
        advance()
        if isDone() || discover(hop) { return }
      }
    }
    var found = false
    let ends = [Part.above(hops.count), .below(-1)]
    for part in (order.looksUpFirst ? ends.reversed() : ends) + [.everywhere] where !found {
      hurry(part) {
        found = found || isDone() || self.discover(hop)
        return found
      }
    }
    if !found, !isOver { _ = discover(hop) }
  }

  func discover(_ hop: Hop?) -> Bool {
    if let first = serverQueue.first, !serverHasEnded, kind.sendsOne, own == nil {
      let isWrong =
        first.kind == .send ? serverMessages == 1 : first.kind == .halfClose && serverMessages == 0
      if isWrong {
        endByItself(hops.count)
        return true
      }
    }
    if isTooMuch {
      endByItself(-1)
      return true
    }
    guard let (index, status) = finishing, hop.map({ $0.index >= index }) ?? true else { return false }
    finishing = nil
    guard hops[index].isActive else { return false }
    finishNow(index, status)
    return true
  }

  func endByItself(_ index: Int) {
    if index < 0 {
      callerQueue.removeSubrange(min(max(1 - callerMessages, 0), callerQueue.count)...)
    } else {
      let discarded = serverQueue.count { $0.kind == .send }
      serverQueue = []
      arriveSent(discarded, at: hops.count - 1)
    }
    if own == nil { finishing = nil }
    finishNow(index, Item(.status, code: index < 0 ? 12 : 13))
    advance()
  }
}
