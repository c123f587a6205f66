import PenstockCall

// How the model handles each input of a call. It carries the inputs out in the same order as the call does.

extension Model {
  enum Input {
    case open(demand: Int, message: Item?)
    case send(Item)
    case halfClose
    case demand(Int)
    case end(Item)
    case headers(Item)
    case message(Item)
    case status(Item)
    case sent(Int)
    case resolve(UInt64, verdict: Verdict)
    case finish(UInt64, Item)
    case answer(Hop, Item)
    case hopDemand(Hop, Int)
    /// An operation of a hop outside of its callbacks: a status ends the call, a half-close or a message goes
    /// down, or a message goes up.
    case hopPuts(Hop, Item)
    case visited(Visited)
    case executorLost(Hop)
  }

  /// Carries out an input. `isNested`: the input came while a callback ran, so requests that hops have made
  /// earlier may still be carried out after it.
  func apply(_ input: Input, isNested: Bool = false) {
    guard !isOver, local == nil else { return }
    noteHanded()
    if let input = settling {
      settling = nil
      settleEarly(input)
    }
    if !isNested, order.patience != .more {
      while refreshNext() { advance() }
      advance()
    }
    switch input {
    case .open(let demand, let message):
      isOpen = true
      arriveDemand(demand, at: 0)
      pushOutbound(Item(.start), 0)
      if let message {
        whole = [message, Item(.halfClose)]
      }
    case .send(let item): pushOutbound(item, 0)
    case .halfClose: pushOutbound(Item(.halfClose), 0)
    case .demand(let n): arriveDemand(n, at: 0)
    case .end(let item): endLocally(item)
    case .headers(let item): pushInbound(item, hops.count - 1)
    case .message(let item):
      serverDemand -= 1
      pushInbound(item, hops.count - 1)
    case .status(let item):
      endServer()
      pushInbound(item, hops.count - 1)
    case .sent(let n):
      inTransport -= n
      arriveSent(n, at: hops.count - 1)
    case .resolve, .finish: settle(input)
    case .visited(let visit): visited(visit)
    case .executorLost(let hop): loseExecutor(of: hop)
    case .answer(let hop, let item):
      guard hop.isActive, isCurrent(hop) else { break }
      if hop.isTaken {
        answer(item, hop)
      } else if hop.mayDeliver {
        hop.earlyAnswers.append(item)
      } else if item.kind == .receive {
        injectUnasked(item, hop)
      }
    case .hopPuts(let hop, let item): if hop.isActive, isCurrent(hop) { put(item, hop) }
    case .hopDemand(let hop, let n): if hop.isActive, hops[hop.index] === hop { ask(hop, n) }
    }
    advance()
  }

  /// Delivers a part of the answer that a hop gives after TAKE.
  func answer(_ item: Item, _ hop: Hop) {
    switch item.kind {
    case .status: if !hop.isEnding, !waits(item, hop) { finish(hop.index, item) }
    case .receive: inject(item, hop, hop.inbound)
    default: pushInbound(item, hop.index - 1)
    }
  }

  /// Whether the status has to wait at the hop, because the caller has not asked yet for all messages before
  /// it.
  func waits(_ status: Item, _ hop: Hop) -> Bool {
    let messages = hop.inbound.slots.count { $0.item.kind == .receive }
    guard hop.isTaken, messages > hop.owed else { return false }
    if hop.inbound.slots.last?.item.kind != .status {
      hop.inbound.slots.append(Slot(item: status, state: .ready, isInjected: true, isAnswered: true))
    }
    return true
  }

  private func put(_ item: Item, _ hop: Hop) {
    if item.kind == .status { return finish(hop.index, item) }
    if item.kind == .receive { return inject(item, hop, hop.inbound) }
    guard mayPut(hop) else { return }
    if item.kind == .halfClose {
      let unseen = hop.outbound.queue.count { $0.kind == .send }
      hop.outbound.queue = []
      arriveSent(unseen, at: hop.index - 1)
      guard hop.outbound.slots.last?.item.kind != .halfClose else { return }
      hop.outbound.releaseTicketless()
      hop.hasClosed = true
    }
    inject(item, hop, hop.outbound)
  }

  /// Carries out the use of a ticket. If no event waits with the ticket, its callback may still run on an
  /// executor; then the use is kept until the callback's verdict comes.
  func settle(_ input: Input) {
    switch input {
    case .resolve(let ticket, let verdict):
      if place(of: ticket) == nil { early[ticket] = input } else { resolve(ticket, verdict) }
    case .finish(let ticket, let item):
      guard let (hop, lane, index) = place(of: ticket) else {
        if let hop = tickets[ticket]?.hop, hop.isActive, isCurrent(hop) { finish(hop.index, item) }
        return
      }
      if hop.isTaken, item.code == 0 {
        let slot = lane.slots.remove(at: index)
        if slot.item.kind == .send, !slot.isAnswered { arriveSent(1, at: hop.index - 1) }
      }
      finish(hop.index, item)
    default: break
    }
  }

  private func resolve(_ ticket: UInt64, _ verdict: Verdict) {
    guard let (hop, lane, index) = place(of: ticket) else { return }
    if hop.isEnding {
      lane.slots[index].state = .ended
      return
    }
    switch verdict {
    case .drop:
      let slot = lane.slots.remove(at: index)
      if slot.item.kind == .send, !slot.isAnswered { arriveSent(1, at: hop.index - 1) }
      if slot.item.kind == .receive, !slot.isHeld { renew(hop) }
    case .take:
      lane.slots.remove(at: index)
      hop.isTaken = true
    case .restart where lane.slots[index].item.kind == .status && mayRestart(hop) == .ok: restart(hop)
    default:
      lane.releaseTicketless()
      let hasPassed = lane.slots[(index + 1)...].contains { $0.state == .ready && !$0.isInjected }
      let isKept = !hasPassed && holdsHeaders(hop, lane.slots[index].item)
      lane.slots[index].state = isKept ? .held(0) : .ready
      if isKept { askBehindHeaders(hop) }
    }
  }

  func place(of ticket: UInt64) -> (Hop, Lane, Int)? {
    for hop in hops {
      if let index = hop.outbound.index(of: ticket) { return (hop, hop.outbound, index) }
      if let index = hop.inbound.index(of: ticket) { return (hop, hop.inbound, index) }
    }
    return nil
  }

  func spend(_ ticket: UInt64) {
    if ticket != 0, tickets[ticket]?.state == .open { tickets[ticket]?.state = .spent }
  }

  /// Makes the hop ask for one more message, because it has dropped one or returned HOLD for it.
  func renew(_ hop: Hop) {
    if order.patience == .none { ask(hop, 1) } else { hop.renewals.append(nextFresh()) }
  }
}
