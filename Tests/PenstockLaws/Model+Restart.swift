import PenstockCall

// The part of the model for RESTART: which events are recorded, when RESTART is possible, and how the events
// are sent again.

extension Model {
  /// Records the start, a message or the half-close that leaves the hop downward, if the hop may RESTART.
  func record(_ hop: Hop, _ item: Item) {
    guard hop.plan.replayBytes > 0, hop.unreplayable == nil, !hop.isTaken else { return }
    switch item.kind {
    case .start:
      if hop.recordedStart == nil { hop.recordedStart = (requestMarks, expectedDeadline, requestChannel) }
    case .send:
      if item.isObject, codec?.copies == false {
        hop.unreplayable = .unsupported
        return
      }
      guard item.room <= hop.plan.replayBytes - hop.recordedBytes else {
        hop.unreplayable = .tooLarge
        return
      }
      hop.recordedBytes += item.room
      let copy = Item(.send, id: item.id, size: item.size)
      copy.isObject = item.isObject
      hop.recorded.append(copy)
    default: hop.recorded.append(item)
    }
  }

  func noteAnswer(_ hop: Hop) { if hop.unanswered > 0 { hop.unanswered -= 1 } }

  /// OK if on_status, or a ticket for the status, may answer RESTART. Otherwise the reason why not, as
  /// `can_restart` returns it.
  func mayRestart(_ hop: Hop) -> Outcome {
    guard hop.plan.replayBytes > 0, local == nil, hop.isActive else { return .state }
    if let reason = hop.unreplayable { return reason }
    guard hop.recordedStart != nil else { return .state }
    return hop.restarts < hop.plan.maxRestarts ? .ok : .already
  }

  /// Whether headers with the verdict NEXT wait at the hop for its verdict on the next event, so that the
  /// hop can still restart the call.
  func holdsHeaders(_ hop: Hop, _ item: Item) -> Bool {
    guard item.kind == .headers, hop.plan.headersWait & (1 << UInt32(kind.rawValue)) != 0,
      mayRestart(hop) == .ok
    else { return false }
    return kind.sendsOne || hop.halfCloseHasLeft || hop.hasClosed
  }

  /// The headers wait at the hop. If no message was asked for, the hop asks for one.
  func askBehindHeaders(_ hop: Hop) {
    guard hop.unanswered == 0 else { return }
    hop.surplus += 1
    renew(hop)
  }

  func restart(_ hop: Hop) {
    guard let start = hop.recordedStart else { return }
    hop.restarts += 1
    // The events in the hop's inbound lane are dropped. The hop asks again for each message from below among
    // them, but not for a held one, for which it has asked again already. A message of its own gives back the
    // demand that was reserved for it.
    for slot in hop.inbound.slots where slot.item.kind == .receive {
      if slot.isInjected {
        hop.reserved -= 1
      } else if !slot.isHeld {
        hop.unanswered = saturating(hop.unanswered, 1)
      }
    }
    discardInbound(hop)
    // Messages that have left the hop, and were not reported as sent, are reported now.
    for (item, isAnswered) in hop.again where item.kind == .send { hop.ledger.append(isAnswered) }
    hop.again = []
    arriveSent(hop.ledger.count - hop.sentCame, at: hop.index)
    for index in (hop.index + 1)..<max(hops.count, hop.index + 1) {
      let old = hops[index]
      lose(old.outbound)
      lose(old.inbound)
      old.outbound.removeAll()
      old.inbound.removeAll()
      if old.life == .entered, !old.isDestroyed {
        require(
          !old.isActive && !old.owesCancel, "restart",
          "\(old.name) is below a RESTART, and has not seen the end")
        if old.plan.chosen != nil {
          leftover.append(old)
        } else if old.has(.destroy) {
          retired.append(old)
        } else {
          old.isDestroyed = true
        }
      }
      hops[index] = Hop(index, old.plan, attempt: old.attempt + 1)
    }
    serverQueue = []
    serverHasStarted = false
    serverHasEnded = false
    serverSaidStatus = false
    serverMessages = 0
    serverDemandCame = 0
    serverDemand = 0
    inTransport = 0
    wasReset = false
    outboundEnd = hops.count + 1
    finishing = nil
    requestMarks = start.marks
    expectedDeadline = start.deadline
    requestChannel = start.channel
    arriveDemand(hop.unanswered, at: hop.index + 1)
    hop.again = [(Item(.start), true)]
    for item in hop.recorded {
      let copy = Item(item.kind, id: item.id, size: item.size)
      copy.isObject = item.isObject
      hop.again.append((copy, true))
    }
  }

  /// The time of the events has come that wait before they are sent again.
  func resumeRepeats() {
    for hop in hops { hop.waits = false }
    advance()
  }

  /// Sends the next recorded event again. Events that leave the hop meanwhile wait behind the recorded ones.
  func replay(_ hop: Hop) -> Bool {
    guard !hop.again.isEmpty, !hop.waits, finishing == nil else { return false }
    let (item, isAnswered) = hop.again.removeFirst()
    if item.kind == .send { hop.ledger.append(isAnswered) }
    pushOutbound(item, hop.index + 1)
    return true
  }
}
