import PenstockWire
import Synchronization

// Hops in step. Most hops let everything pass, so that each has counted what its neighbours have: those from the top
// down to `inStep`, which nothing has set apart yet, count together. What goes through them walks the chain's list of
// callbacks for it (`CallbackTable`) and touches no hop; docs/performance.md has what that saves. Whatever could make one
// differ (a verdict other than NEXT, a ticket, an injected message, a handle that is kept, the call's end from within)
// first calls `breakStep`, and then finds every hop as if it had counted by itself.

extension Call {
  /// `event` goes down through all hops in step.
  @inline(__always)
  func runInStep(down event: Event) -> RunExit {
    switch event {
    case .start:
      strideCount = frontierDemand
      wearInStep(.mayAnswer)
      let exit =
        callbacks.startsPlainly && !isCutInStep ? walk(event, .start, callbacks.start) : startInStep()
      guard case .through = exit else { return exit }
      wearInStep(.open)
      stepOwed = frontierDemand
      startAt = inStep
    case .send:
      let exit = walkDown(event, .send, callbacks.send)
      guard case .through = exit else { return exit }
      stepInFlight += 1
    case .halfClose:
      let exit = walkDown(event, .halfClose, callbacks.halfClose)
      guard case .through = exit else { return exit }
      stepLife = .halfClosed
    case .headers, .receive, .status: break
    }
    return .through
  }

  // What hops in step look at. There are some.
  var stepPassesMessages: Bool { callbacks.passesMessages }
  var stepSeesHeaders: Bool { !callbacks.headers.isEmpty }
  /// The lowest keeps what nobody has asked for.
  var stepSeesMessages: Bool { stepOwed == 0 || !callbacks.receive.isEmpty }

  /// Start, where `create` goes before it or demand with it.
  @inline(never)
  private func startInStep() -> RunExit {
    let demand = frontierDemand
    var isAboveCut = isCutInStep
    let list = callbacks.start
    var next = list.first
    show(.start)
    while next != list.end {
      let entry = next
      let index = entry.pointee.index
      guard index < inStep else { break }
      next += 1
      if isAboveCut, index >= cutAt {
        isAboveCut = false
        _ = passesCut(down: .start)
      }
      switch entry.pointee.kind {
      case .start:
        stride = .start
        strideAt = index
        let answer = run(entry)
        guard answer == Verdict.next.rawValue, index < inStep else { return .answered(index, answer) }
      case .create:
        stride = .create
        strideAt = index
        startAt = index
        wearInStep(.waiting)
        let hop = hops[index]
        guard enter(hop) else {
          guard outboundEnd > index, isCurrent(hop) else { return .stays }
          breakStep(at: index)
          return .goesOn(index + 1)
        }
        // It has chosen executors.
        if index >= inStep { return .goesOn(index) }
        wearInStep(.mayAnswer)
      case .demand:
        guard demand > 0 else { continue }
        // It is shown when start has left the hop, and has not been shown to the next.
        stride = .create
        strideAt = index + 1
        wearInStep(.open)
        let passed = tell(demand, entry)
        guard passed == demand, index < inStep else {
          breakStep(at: index + 1)
          if inStep > index {
            stepOwed = demand
            startAt = index + 1
            stride = .none
          }
          if finishIfAsked(hops[index]) { return .stays }
          frontierDemand = passed
          return .goesOn(index + 1)
        }
        wearInStep(.mayAnswer)
      case .none, .send, .halfClose, .headers, .receive, .status, .cancel, .sent, .destroy: break
      }
    }
    if isAboveCut, isCutInStep { _ = passesCut(down: .start) }
    stride = .none
    return .through
  }

  /// Where the cut above the attempt is among the hops in step, the event passes it between two of them.
  @inline(__always)
  private func walkDown(_ event: Event, _ kind: EventKind, _ list: CallbackTable.List) -> RunExit {
    if _slowPath(isCutInStep) { return walkAcross(event, kind, list) }
    return walk(event, kind, list)
  }

  private var isCutInStep: Bool { cutAt < inStep && cutAt > 0 }

  @inline(never) @_optimize(size)
  private func walkAcross(_ event: Event, _ kind: EventKind, _ list: CallbackTable.List) -> RunExit {
    let exit = walk(event, kind, list.above(cutAt))
    // Where a hop above the cut was set apart meanwhile, the event has yet to come to that one, and passes the cut later.
    guard case .through = exit, isCutInStep else { return exit }
    _ = passesCut(down: event)
    return walk(event, kind, list.from(cutAt))
  }

  @inline(__always)
  private func walk(_ event: Event, _ kind: EventKind, _ list: CallbackTable.List) -> RunExit {
    list.isEmpty ? .through : visit(event, kind, list)
  }

  /// Shows `event` to the hops in step that want it, until one has not just passed it on. 13 instructions a hop: nothing
  /// is read again that callbacks do not change.
  @inline(never)
  private func visit(_ event: Event, _ kind: EventKind, _ list: CallbackTable.List) -> RunExit {
    let watch = Unmanaged.passUnretained(self.watch)
    let hops = hops
    var rest = inStep == callbacks.inStep ? list : list.above(inStep)
    watch._withUnsafeGuaranteedRef { $0.begin(id) }
    show(event)
    stride = kind
    while true {
      visitEnd = UInt(bitPattern: rest.end)
      // One number to count with: as a pointer it stands in two registers.
      var place = UInt(bitPattern: rest.first)
      while place < visitEnd {
        let entry = UnsafePointer<CallbackTable.Entry>(bitPattern: place).unsafelyUnwrapped
        let index = entry.pointee.index
        strideAt = index
        watch._withUnsafeGuaranteedRef { $0.show(entry.pointee.name) }
        let answer = entry.pointee.function(OpaquePointer(hops.at(index).toOpaque()), entry.pointee.userData)
        guard _fastPath(answer == Verdict.next.rawValue) else {
          watch._withUnsafeGuaranteedRef { $0.end() }
          return .answered(entry.pointee.index, answer)
        }
        place &+= UInt(MemoryLayout<CallbackTable.Entry>.stride)
      }
      if visitEnd != 0 { break }
      // The callback has set hops apart, perhaps its own.
      rest.first = UnsafePointer(bitPattern: place).unsafelyUnwrapped
      let index = (rest.first - 1).pointee.index
      guard index < inStep else {
        watch._withUnsafeGuaranteedRef { $0.end() }
        return .answered(index, Verdict.next.rawValue)
      }
      rest = rest.above(inStep)
    }
    watch._withUnsafeGuaranteedRef { $0.end() }
    stride = .none
    return .through
  }

  /// `event` goes up through all hops in step.
  @inline(__always)
  func runInStep(up event: Event) -> RunExit {
    switch event {
    case .headers: return walk(event, .headers, callbacks.headers)
    case .receive:
      // The lowest keeps it.
      if stepOwed == 0 {
        breakStep(at: inStep - 1)
        return .goesOn(inStep)
      }
      let exit = walk(event, .receive, callbacks.receive)
      guard case .through = exit else { return exit }
      stepOwed -= 1
    case .status:
      let exit = walk(event, .status, callbacks.status)
      guard case .through = exit else { return exit }
      // Until the call's end, which follows.
      stride = .status
      strideAt = -1
      outboundEnd = 0
    case .start, .send, .halfClose: break
    }
    return .through
  }

  /// A signal, whose count the hop has to know. What is left of it when it leaves the hop.
  private func tell(_ n: Int, _ entry: UnsafePointer<CallbackTable.Entry>) -> Int {
    let hop = hops.at(entry.pointee.index)
    hop._withUnsafeGuaranteedRef {
      $0.count = n
      $0.running = entry.pointee.kind
    }
    _ = run(entry)
    return hop._withUnsafeGuaranteedRef {
      $0.running = .none
      return entry.pointee.kind == .demand ? $0.lessSurplus($0.count) : n
    }
  }

  /// Demand goes down through all hops in step. How much is left for the hop at `inStep`; 0: nothing, or the call has
  /// been ended.
  func askInStep(_ n: Int) -> Int {
    let list = callbacks.demand
    var next = list.first
    stride = .demand
    strideCount = n
    while next != list.end {
      let entry = next
      let index = entry.pointee.index
      guard index < inStep else { break }
      next += 1
      strideAt = index
      let passed = tell(n, entry)
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
    let list = callbacks.sent
    var next = list.first
    stride = .sent
    strideCount = n
    while next != list.end {
      let entry = next
      let index = entry.pointee.index
      next += 1
      guard index < inStep else { continue }
      strideAt = index
      _ = tell(n, entry)
      guard index < inStep else {
        _ = finishIfAsked(hops[index])
        runSent(n, at: index - 1, isCounted: true)
        return false
      }
    }
    stride = .none
    stepInFlight -= n
    return true
  }

  private var callbacks: CallbackTable {
    @inline(__always) get { table.unsafelyUnwrapped.pointee }
  }

  @inline(__always)
  private func run(_ entry: UnsafePointer<CallbackTable.Entry>) -> Int32 {
    watch.begin(id, entry.pointee.name)
    let answer = entry.pointee.function(
      OpaquePointer(hops.at(entry.pointee.index).toOpaque()), entry.pointee.userData)
    watch.end()
    return answer
  }

  /// The callback that runs of a hop, if it is in step and in none of those that are noted in the hop itself.
  func runningInStep(_ index: Int) -> EventKind {
    index == strideAt && index < inStep && stride != .create ? stride : .none
  }

  /// For all hops in step.
  private func wearInStep(_ face: Face) {
    row.unsafelyUnwrapped._withUnsafeGuaranteedRef { $0.face.store(face.rawValue, ordering: .releasing) }
  }

  /// The hop's callback has returned, and what becomes of the event is its own affair.
  func setAside(_ index: Int) -> Hop {
    breakStep(at: index)
    let hop = hops[index]
    hop.running = .none
    return hop
  }

  /// From the hop at `index` on each counts by itself from now on (I8).
  func breakStep(at index: Int) { if index < inStep { setApart(index) } }

  @inline(never)
  private func setApart(_ first: Int) {
    for index in first..<inStep {
      let hop = hops[index]
      let hasPassed: Bool
      switch stride {
      case .none: hasPassed = false
      case .create, .start, .send, .halfClose: hasPassed = index < strideAt
      // Counted before the callback.
      case .demand: hasPassed = index <= strideAt
      case .sent: hasPassed = index >= strideAt
      case .destroy: hasPassed = true
      case .headers, .receive, .status, .cancel: hasPassed = index > strideAt
      }
      if hop.running == .none { hop.running = runningInStep(index) }
      // Before start has come nothing else has.
      if stride == .start || stride == .create {
        hop.leaveStep(hasPassed ? .passing : hop.running == .start ? .starting : hop.life)
        if hasPassed { hop.owed = strideCount }
        continue
      }
      hop.leaveStep(stepLife == .halfClosed || hasPassed && stride == .halfClose ? .halfClosed : .passing)
      hop.owed = stepOwed
      hop.inFlight = stepInFlight
      guard hasPassed else { continue }
      switch stride {
      case .send: hop.inFlight += 1
      case .sent: hop.inFlight -= strideCount
      case .demand: hop.owed = saturatingSum(stepOwed, strideCount)
      case .receive: hop.owed -= 1
      case .status: hop.become(.over(.passed))
      case .destroy:
        hop.become(.over(.passed))
        if index <= strideAt { hop.become(.gone) } else { hop.wear(.over) }
      case .none, .create, .start, .halfClose, .headers, .cancel: break
      }
    }
    if stride == .start || stride == .create { startAt = strideAt }
    if stride == .status { outboundEnd = min(outboundEnd, strideAt + 1) }
    if first <= strideAt {
      // Those above have all passed it, or none.
      switch stride {
      case .create, .start:
        stepOwed = strideCount
        wearInStep(.open)
      case .send: stepInFlight += 1
      case .demand: stepOwed = saturatingSum(stepOwed, strideCount)
      case .halfClose: stepLife = .halfClosed
      case .none, .headers, .receive, .status, .cancel, .sent, .destroy: break
      }
      stride = .none
    }
    inStep = first
    door = .queued
    visitEnd = 0
  }

  /// The call ends. How many hops, from the top, the status has passed in step: nothing is left to be done for them.
  @inline(__always)
  func endStep() -> Int {
    if stride != .status || strideAt >= 0 { breakStep(at: 0) }
    if inStep > 0 {
      wearInStep(.over)
      if !callbacks.destroy.isEmpty { destroyInStep() }
    }
    stride = .none
    return inStep
  }

  @inline(never) @_optimize(size)
  private func destroyInStep() {
    let list = callbacks.destroy
    var next = list.first
    stride = .destroy
    while next != list.end {
      let entry = next
      let index = entry.pointee.index
      guard index < inStep else { return }
      next += 1
      strideAt = index
      _ = run(entry)
      if index >= inStep { hops[index].running = .none }
    }
  }
}
