import PenstockWire
import Synchronization

// Hops in step. Most hops let everything pass, so that each has counted what its neighbours have: those from the top
// down to `inStep`, which nothing has set apart yet, count together. What goes through them touches only those that have
// a callback for it: a hop with on_start and on_status costs 150 instructions a call, and 2,200 when each counted by
// itself and was made for the call. Whatever could make one differ (a verdict other than NEXT, a ticket, an injected
// message, a handle that is kept, the call's end from within) first calls `breakStep`, and then finds every hop as if it
// had counted by itself.

/// Which hops have a callback: bit n is the hop n.
struct CallbackMasks {
  var create: UInt64 = 0
  var start: UInt64 = 0
  var send: UInt64 = 0
  var halfClose: UInt64 = 0
  var headers: UInt64 = 0
  var receive: UInt64 = 0
  var status: UInt64 = 0
  var demand: UInt64 = 0
  var sent: UInt64 = 0
  var destroy: UInt64 = 0
  /// How many hops begin in step: up to the first that records or has an executor, and no more than there are bits.
  var inStep = 0

  init() {}

  init(_ entries: [Chain.Entry]) {
    while inStep < min(entries.count, UInt64.bitWidth) {
      let registration = entries[inStep].registration
      let callbacks = registration.callbacks.pointee
      if registration.replayBytes > 0 || registration.hasExecutors { break }
      let bit: UInt64 = 1 << UInt64(inStep)
      if callbacks.create != nil { create |= bit }
      if callbacks.onStart != nil { start |= bit }
      if callbacks.onSend != nil { send |= bit }
      if callbacks.onHalfClose != nil { halfClose |= bit }
      if callbacks.onHeaders != nil { headers |= bit }
      if callbacks.onReceive != nil { receive |= bit }
      if callbacks.onStatus != nil { status |= bit }
      if callbacks.onDemand != nil { demand |= bit }
      if callbacks.onSent != nil { sent |= bit }
      if callbacks.destroy != nil { destroy |= bit }
      inStep += 1
    }
  }
}

extension Call {
  /// `event` goes down through all hops in step. False: it did not come through; what has to be done has been done.
  func runInStep(_ event: Event, at index: Int) -> Bool {
    if index > 0 || outboundEnd < inStep {
      breakStep(at: max(index, outboundEnd))
      guard index == 0, inStep > 0 else { return true }
    }
    switch event {
    case .start:
      guard startInStep() else { return false }
      stepOwed = frontierDemand
      startAt = inStep
    case .send:
      guard masks.send == 0 || showInStep(event, .send, masks.send) else { return false }
      stepInFlight += 1
    case .halfClose:
      guard masks.halfClose == 0 || showInStep(event, .halfClose, masks.halfClose) else { return false }
      stepHalfClosed = true
    case .headers, .receive, .status: break
    }
    return true
  }

  private func startInStep() -> Bool {
    let now = epoch
    let demand = frontierDemand
    let asked = demand > 0 ? masks.demand : 0
    var left = masks.create | masks.start | asked
    stride = .start
    strideCount = demand
    event = .start
    while left != 0 {
      let index = left.trailingZeroBitCount
      guard index < inStep else { break }
      left &= left - 1
      strideAt = index
      let bit: UInt64 = 1 << UInt64(index)
      if masks.create & bit != 0 {
        startAt = index
        let hop = hops[index]
        guard enter(hop) else {
          guard phase == .live, outboundEnd > index, epoch == now else { return false }
          breakStep(at: index)
          runOutbound(.start, at: index + 1)
          return false
        }
        if index >= inStep {
          goOn(showOutbound(.start, to: hop), .start, hop)
          return false
        }
      }
      let hop = hops.at(index)
      if masks.start & bit != 0 {
        let callback = hop._withUnsafeGuaranteedRef { hop in
          hop.entered = true
          hop.marks.store(Hop.Mark.mayAnswer, ordering: .releasing)
          return hop.callbacks.pointee.onStart.unsafelyUnwrapped
        }
        let answer = run(hop, callback, .start)
        guard answer == Verdict.next.rawValue, index < inStep else {
          breakStep(at: index)
          let hop = hops[index]
          goOn(outboundAnswered(answer, .start, hop, now), .start, hop)
          return false
        }
        hop._withUnsafeGuaranteedRef { $0.marks.store(Hop.Mark.startPassed, ordering: .releasing) }
      }
      guard asked & bit != 0 else { continue }
      // It is shown when start has left the hop.
      strideAt = index + 1
      let passed = showDemandInStep(demand, to: hop)
      guard passed == demand, index < inStep else {
        breakStep(at: index + 1)
        if inStep > index {
          stepOwed = demand
          startAt = index + 1
          stride = .none
        }
        if finishIfAsked(hops[index]) { return false }
        frontierDemand = passed
        runOutbound(.start, at: index + 1)
        return false
      }
    }
    stride = .none
    return true
  }

  private func showInStep(_ event: Event, _ kind: EventKind, _ mask: UInt64) -> Bool {
    let now = epoch
    var left = mask
    self.event = event
    stride = kind
    while left != 0 {
      let index = left.trailingZeroBitCount
      guard index < inStep else { break }
      left &= left - 1
      strideAt = index
      let hop = hops.at(index)
      let callback = hop._withUnsafeGuaranteedRef {
        (kind == .send ? $0.callbacks.pointee.onSend : $0.callbacks.pointee.onHalfClose).unsafelyUnwrapped
      }
      let answer = run(hop, callback, kind)
      guard answer == Verdict.next.rawValue, index < inStep else {
        breakStep(at: index)
        let hop = hops[index]
        goOn(outboundAnswered(answer, event, hop, now), event, hop)
        return false
      }
    }
    stride = .none
    return true
  }

  /// The hop has been set apart while the event was there.
  private func goOn(_ passes: Bool, _ event: Event, _ hop: Hop) {
    let index = hop.index
    if passes, leave(event, hop) { runOutbound(event, at: index + 1) } else { flush(index, .outbound) }
  }

  /// `event` goes up through the hops in step, of which the one at `index` is the lowest that has not seen it; -1: none.
  /// False: it did not come through; what has to be done has been done.
  func runInStep(_ event: Event, from index: Int) -> Bool {
    if index < inStep - 1 { breakStep(at: index + 1) }
    guard inStep > 0 else { return true }
    let mask: UInt64
    switch event {
    case .headers: mask = masks.headers
    case .receive:
      mask = masks.receive
      // The lowest keeps it.
      if stepOwed == 0 {
        breakStep(at: inStep - 1)
        runInbound(event, at: inStep)
        return false
      }
    case .status: mask = masks.status
    case .start, .send, .halfClose: return true
    }
    let kind = event.kind
    stride = kind
    var left = mask & ~(~0 << UInt64(inStep))
    if left != 0 { self.event = event }
    while left != 0 {
      let index = UInt64.bitWidth - 1 - left.leadingZeroBitCount
      left &= ~(1 << UInt64(index))
      guard index < inStep else { continue }
      strideAt = index
      let hop = hops.at(index)
      let callback = hop._withUnsafeGuaranteedRef { hop in
        switch kind {
        case .headers: hop.callbacks.pointee.onHeaders.unsafelyUnwrapped
        case .receive: hop.callbacks.pointee.onReceive.unsafelyUnwrapped
        default: hop.callbacks.pointee.onStatus.unsafelyUnwrapped
        }
      }
      let answer = run(hop, callback, kind)
      guard answer == Verdict.next.rawValue, index < inStep else {
        breakStep(at: index)
        let hop = hops[index]
        guard inboundAnswered(answer, event, hop), leaveInbound(event, hop) else {
          flushInbound(index)
          return false
        }
        runInbound(event, at: index - 1)
        return false
      }
    }
    switch kind {
    case .status:
      // Until the call's end, which follows.
      strideAt = -1
      outboundEnd = 0
    case .receive:
      stride = .none
      stepOwed -= 1
    default: stride = .none
    }
    return true
  }

  private func showDemandInStep(_ n: Int, to hop: Unmanaged<Hop>) -> Int {
    let callback = hop._withUnsafeGuaranteedRef { hop in
      hop.count = n
      return hop.callbacks.pointee.onDemand.unsafelyUnwrapped
    }
    _ = run(hop, callback, .demand)
    return hop._withUnsafeGuaranteedRef { $0.lessSurplus($0.count) }
  }

  /// Demand goes down through all hops in step. How much is left for the hop at `inStep`; 0: nothing, or the call has
  /// been ended.
  func askInStep(_ n: Int) -> Int {
    var left = masks.demand
    stride = .demand
    strideCount = n
    while left != 0 {
      let index = left.trailingZeroBitCount
      guard index < inStep else { break }
      left &= left - 1
      strideAt = index
      let passed = showDemandInStep(n, to: hops.at(index))
      guard passed == n, index < inStep else {
        breakStep(at: index + 1)
        if inStep > index {
          stepOwed = saturatingSum(stepOwed, n)
          stride = .none
        }
        if !finishIfAsked(hops[index]) { runDemand(passed, at: index + 1) }
        return 0
      }
    }
    stride = .none
    stepOwed = saturatingSum(stepOwed, n)
    return n
  }

  /// `sent` goes up through all hops in step. False: they had to be told one by one.
  func tellSentInStep(_ n: Int) -> Bool {
    var left = masks.sent & ~(~0 << UInt64(inStep))
    stride = .sent
    strideCount = n
    while left != 0 {
      let index = UInt64.bitWidth - 1 - left.leadingZeroBitCount
      left &= ~(1 << UInt64(index))
      guard index < inStep else { continue }
      strideAt = index
      let hop = hops.at(index)
      let callback = hop._withUnsafeGuaranteedRef { hop in
        hop.count = n
        return hop.callbacks.pointee.onSent.unsafelyUnwrapped
      }
      _ = run(hop, callback, .sent)
      guard index < inStep else {
        _ = finishIfAsked(hops[index])
        runSent(n, at: index - 1)
        return false
      }
    }
    stride = .none
    stepInFlight -= n
    return true
  }

  @inline(__always)
  private func run(_ hop: Unmanaged<Hop>, _ callback: HopCallback, _ kind: EventKind) -> Int32 {
    hop._withUnsafeGuaranteedRef { hop in
      hop.current = kind
      watch.begin(hop, kind)
      let answer = callback(hop.handle, hop.state)
      watch.end()
      hop.current = .none
      return answer
    }
  }

  /// From the hop at `index` on each counts by itself from now on.
  func breakStep(at index: Int) { if index < inStep { setApart(index) } }

  @inline(never)
  private func setApart(_ first: Int) {
    for index in first..<inStep {
      let hop = hops[index]
      let hasPassed: Bool
      switch stride {
      case .none: hasPassed = false
      case .start, .send, .halfClose: hasPassed = index < strideAt
      // Counted before the callback.
      case .demand: hasPassed = index <= strideAt
      case .sent: hasPassed = index >= strideAt
      default: hasPassed = index > strideAt
      }
      // Before start has come nothing else has.
      if stride == .start {
        guard hasPassed else { continue }
        hop.entered = true
        hop.mark(Hop.Mark.startPassed)
        hop.owed = strideCount
        continue
      }
      hop.entered = true
      hop.mark(Hop.Mark.startPassed)
      if stepHalfClosed || hasPassed && stride == .halfClose { hop.mark(Hop.Mark.halfClosePassed) }
      hop.owed = stepOwed
      hop.inFlight = stepInFlight
      guard hasPassed else { continue }
      switch stride {
      case .send: hop.inFlight += 1
      case .sent: hop.inFlight -= strideCount
      case .demand: hop.owed = saturatingSum(stepOwed, strideCount)
      case .receive: hop.owed -= 1
      case .status: hop.statusPassed = true
      default: break
      }
    }
    if stride == .start { startAt = strideAt }
    if stride == .status { outboundEnd = min(outboundEnd, strideAt + 1) }
    if first <= strideAt {
      // Those above have all passed it, or none.
      switch stride {
      case .start: stepOwed = strideCount
      case .send: stepInFlight += 1
      case .demand: stepOwed = saturatingSum(stepOwed, strideCount)
      case .halfClose: stepHalfClosed = true
      default: break
      }
      stride = .none
    }
    inStep = first
  }

  /// The call ends. How many hops, from the top, the status has passed in step: nothing is left to be done for them.
  func endStep() -> Int {
    if stride != .status || strideAt >= 0 { breakStep(at: 0) }
    for index in 0..<inStep {
      hops.at(index)._withUnsafeGuaranteedRef { $0.marks.store(Hop.Mark.over, ordering: .releasing) }
    }
    var left = masks.destroy
    while left != 0 {
      let index = left.trailingZeroBitCount
      guard index < inStep else { break }
      left &= left - 1
      hops.at(index)._withUnsafeGuaranteedRef { hop in
        hop.destroyed = true
        guard let callback = hop.callbacks.pointee.destroy else { return }
        hop.current = .destroy
        watch.begin(hop, .destroy)
        callback(hop.handle, hop.state)
        watch.end()
        hop.current = .none
      }
    }
    stride = .none
    return inStep
  }
}
