import PenstockCall

// The part of the model for operations of hops, and for their results.

extension Model {
  /// Whether the hop is destroyed in the model, with or without a callback for it.
  func isGone(_ index: Int) -> Bool {
    let hop = hops[index]
    if hop.isDestroyed { return true }
    return !hop.has(.destroy) && hop !== running && (isOver || (hop.mayDestroy && !hop.owesCancel))
  }

  /// The expected result of sending a message from the hop. `isElsewhere`: on a thread other than the driving
  /// thread, which does not know yet whether the hop's part in the call is over.
  func resultOfInjectOutbound(_ hop: Hop, isGone: Bool, isElsewhere: Bool) -> Outcome {
    if isGone { return .gone }
    if isElsewhere { return mayPut(hop) ? .ok : .state }
    return hop.isActive && local == nil && mayPut(hop) ? .ok : .state
  }

  func mayPut(_ hop: Hop) -> Bool {
    hop.startHasLeft && !hop.isTaken && !hop.halfCloseHasLeft && !hop.hasClosed
  }

  func resultOfHalfClose(_ hop: Hop, isGone: Bool) -> Outcome {
    if isGone { return .gone }
    if !hop.startHasLeft || hop.isTaken { return .state }
    return mayPut(hop) && !hop.hasAskedToClose ? .ok : .already
  }

  func injectOutbound(_ index: Int, _ item: Item) {
    inject(item, hops[index], hops[index].outbound)
    advance()
  }

  /// The expected result of delivering a message upward from the hop. `isElsewhere`: in a callback on an
  /// executor.
  func resultOfInjectInbound(_ hop: Hop, _ item: Item, isGone: Bool, isElsewhere: Bool) -> Outcome {
    if isGone { return .gone }
    if !isElsewhere, !hop.isActive || local != nil { return .state }
    guard hop.mayDeliver else {
      return !hop.startHasLeft ? .state : hop.owed > hop.reserved ? .ok : .wouldBlock
    }
    if hop.statusDelivered { return .state }
    let isAskedFor = hop.isTaken && hop.answersWaiting < hop.owed
    let limit = hop.plan.holdBytes == 0 ? 65536 : hop.plan.holdBytes
    return isAskedFor || hop.answerBytes == 0 || hop.answerBytes + item.room <= limit ? .ok : .wouldBlock
  }

  /// Counts a message that the hop has delivered upward. `isPosted`: the message comes into the lane later,
  /// by the input `answer` or `hopPuts`.
  func injectInbound(_ hop: Hop, _ item: Item, isPosted: Bool) {
    if hop.mayDeliver {
      hop.answersWaiting += 1
      hop.answerBytes += item.room
      hop.messageDelivered = true
    } else {
      hop.reserved += 1
    }
    guard !isPosted else { return }
    inject(item, hop, hop.inbound)
    advance()
  }

  /// Adds a message that the hop has delivered before start had a verdict: it uses up the next demand.
  func injectUnasked(_ item: Item, _ hop: Hop) {
    hop.reserved += 1
    inject(item, hop, hop.inbound)
    guard order.patience != .none else { return }
    for place in hop.inbound.slots.indices where hop.inbound.slots[place].item === item {
      hop.inbound.slots[place].fresh = nextFresh()
    }
  }

  func issued(_ ticket: UInt64, _ kind: EventKind, _ hop: Hop) { tickets[ticket] = (.open, kind, hop) }

  /// A hop has ended the call with this code, on a thread or by a ticket, and got `result`. The end counts from now on.
  func ended(_ hop: Hop, code: Int32, _ result: Outcome) {
    // An OK waits behind the messages of the hop's own answer, so it decides nothing yet.
    if hop.isTaken, code == 0 {
      return require(result == .ok, "results", "\(hop.name) ends with OK: \(result.word)")
    }
    if result == .gone, hop.isActive, isCurrent(hop) { hurry { !hop.isActive } }
    let isOver = !hop.isActive || !isCurrent(hop) || local != nil || isOver
    let expected: Outcome = isOver ? .gone : hop.isEnding ? .already : .ok
    require(
      result == expected, "results", "\(hop.name) ends with \(code): \(result.word), not \(expected.word)")
    if result == .ok { hop.isEnding = true }
  }

  /// The expected result of using a ticket. If it is OK, the ticket counts as used.
  func use(_ ticket: UInt64, _ end: End) -> Outcome {
    guard let entry = tickets[ticket] else { return .gone }
    switch entry.state {
    case .gone: return .gone
    case .spent: return .already
    case .open: break
    }
    switch end {
    case .after: return .ok
    case .finish: break
    case .verdict(let verdict):
      switch verdict {
      case .next: break
      case .drop where entry.kind == .send || entry.kind == .receive: break
      case .take where entry.kind == .start: break
      case .restart where entry.kind == .status: break
      default: return .invalidArgument
      }
    }
    tickets[ticket]?.state = .spent
    return .ok
  }
}
