import PenstockWire
import Synchronization

// The run: the top hops that count together. Most hops let everything pass, so each has the same counts as
// its neighbours. The hops from the top down share one set of counts (`Run`) until something makes one of
// them differ. An event that goes through the run walks the chain's list of callbacks for it
// (`Chain.Callbacks`) and touches no hop; docs/performance.md says how much that saves.
//
// Any action that could make one hop differ (a verdict other than NEXT, a ticket, an injected message, a
// handle that is kept, an end of the call by a hop of the run) first calls `splitRun`. Then every hop has the
// counts that it would have counted alone.

extension Call {
  /// Passes `event` down through all hops of the `Run`.
  @inline(__always)
  func passRun(down event: Event) -> RunExit {
    switch event {
    case .start:
      run.count = frontierDemand
      wearInRun(.mayAnswer)
      let exit =
        callbacks.startsPlainly && !isCutInRun ? walk(event, .start, callbacks.start) : startRun()
      guard case .through = exit else { return exit }
      wearInRun(.open)
      run.owed = frontierDemand
      startAt = run.length
    case .send:
      let exit = walkDown(event, .send, callbacks.send)
      guard case .through = exit else { return exit }
      run.inFlight += 1
    case .halfClose:
      let exit = walkDown(event, .halfClose, callbacks.halfClose)
      guard case .through = exit else { return exit }
      run.life = .halfClosed
    case .headers, .receive, .status: break
    }
    return .through
  }

  // Whether the hops of the `Run` need not see request messages and the half-close: none has a callback for
  // them, `create` or on_demand. Called only if the `Run` has at least one hop.
  var runPassesMessages: Bool { callbacks.passesMessages }
  var runSeesHeaders: Bool { !callbacks.headers.isEmpty }
  /// Whether the hops of the `Run` have to see a message on its way up: one has a callback for it, or the
  /// caller has not asked for a message, so that the lowest hop has to keep it.
  var runSeesMessages: Bool { run.owed == 0 || !callbacks.receive.isEmpty }

  /// Passes start through the `Run` in the cases that `walk` can't handle. A hop has `create`, which runs
  /// before the hop sees start. Or a hop has on_demand, which sees the demand that goes with start. Or the
  /// `Cut` above the attempt, which records events, is among the hops of the `Run`.
  private func startRun() -> RunExit {
    let demand = frontierDemand
    var isAboveCut = isCutInRun
    let list = callbacks.start
    var next = list.first
    show(.start)
    while next != list.end {
      let entry = next
      let index = entry.pointee.index
      guard index < run.length else { break }
      next += 1
      if isAboveCut, index >= cutAt {
        isAboveCut = false
        _ = passesCut(down: .start)
      }
      switch entry.pointee.kind {
      case .start:
        run.event = .start
        run.at = index
        let answer = invoke(entry)
        guard answer == Verdict.next.rawValue, index < run.length else { return .answered(index, answer) }
      case .create:
        run.event = .create
        run.at = index
        startAt = index
        wearInRun(.waiting)
        let hop = hops[index]
        guard enter(hop) else {
          guard outboundEnd > index, isCurrent(hop) else { return .stays }
          splitRun(at: index)
          return .goesOn(index + 1)
        }
        // The hop has left the `Run` in `create`, for example because it has chosen executors.
        if index >= run.length { return .goesOn(index) }
        wearInRun(.mayAnswer)
      case .demand:
        guard demand > 0 else { continue }
        // A hop sees the demand when start has left it, and before the next hop sees start.
        run.event = .create
        run.at = index + 1
        wearInRun(.open)
        let passed = tell(demand, entry)
        guard passed == demand, index < run.length else {
          splitRun(at: index + 1)
          if run.length > index {
            run.owed = demand
            startAt = index + 1
            run.event = .none
          }
          if finishIfAsked(hops[index]) { return .stays }
          frontierDemand = passed
          return .goesOn(index + 1)
        }
        wearInRun(.mayAnswer)
      case .none, .send, .halfClose, .headers, .receive, .status, .cancel, .sent, .destroy, .pick: break
      }
    }
    if isAboveCut, isCutInRun { _ = passesCut(down: .start) }
    run.event = .none
    return .through
  }

  /// Shows `event` to the hops of the `Run`. If the `Cut` above the attempt is between two of these hops, it
  /// records the event in between.
  @inline(__always)
  private func walkDown(_ event: Event, _ kind: EventKind, _ list: Chain.Callbacks.List) -> RunExit {
    if _slowPath(isCutInRun) { return walkAcross(event, kind, list) }
    return walk(event, kind, list)
  }

  private var isCutInRun: Bool { cutAt < run.length && cutAt > 0 }

  private func walkAcross(_ event: Event, _ kind: EventKind, _ list: Chain.Callbacks.List) -> RunExit {
    let exit = walk(event, kind, list.above(cutAt))
    // If a hop above the `Cut` has left the `Run` meanwhile, the event still has to visit that hop, and
    // passes the `Cut` later.
    guard case .through = exit, isCutInRun else { return exit }
    _ = passesCut(down: event)
    return walk(event, kind, list.from(cutAt))
  }

  @inline(__always)
  private func walk(_ event: Event, _ kind: EventKind, _ list: Chain.Callbacks.List) -> RunExit {
    list.isEmpty ? .through : visit(event, kind, list)
  }

  /// Calls the hops' callbacks for `event`, one after the other, until a hop does more than pass the event
  /// on. A hop costs 12 instructions: values that callbacks do not change are not read again.
  private func visit(_ event: Event, _ kind: EventKind, _ list: Chain.Callbacks.List) -> RunExit {
    let watch = Unmanaged.passUnretained(self.watch)
    let hops = hops
    var rest = run.length == callbacks.runLength ? list : list.above(run.length)
    watch._withUnsafeGuaranteedRef { $0.begin(id) }
    show(event)
    run.event = kind
    run.began = callbackBegins
    while true {
      run.end = UInt(bitPattern: rest.end)
      // The position in the list, as a number: a pointer would take two registers.
      var address = UInt(bitPattern: rest.first)
      while address < run.end {
        let entry = UnsafePointer<Chain.Callbacks.Entry>(bitPattern: address).unsafelyUnwrapped
        let index = entry.pointee.index
        run.at = index
        watch._withUnsafeGuaranteedRef { $0.show(entry.pointee.name) }
        let answer = entry.pointee.function(OpaquePointer(hops.at(index).toOpaque()), entry.pointee.userData)
        if _slowPath(run.began != 0) { run.began = callbackEnded(run.began, entry.pointee.name) }
        guard _fastPath(answer == Verdict.next.rawValue) else {
          watch._withUnsafeGuaranteedRef { $0.end() }
          return .answered(entry.pointee.index, answer)
        }
        address &+= UInt(MemoryLayout<Chain.Callbacks.Entry>.stride)
      }
      // `end` is called before `run.end` is read again: so the compiler needs no register for `watch`, which
      // saves 1 instruction a hop.
      watch._withUnsafeGuaranteedRef { $0.end() }
      if run.end != 0 { break }
      // The callback has made hops leave the `Run`, perhaps its own hop.
      rest.first = UnsafePointer(bitPattern: address).unsafelyUnwrapped
      let index = (rest.first - 1).pointee.index
      guard index < run.length else { return .answered(index, Verdict.next.rawValue) }
      rest = rest.above(run.length)
    }
    run.event = .none
    return .through
  }

  /// Passes `event` up through all hops of the `Run`.
  @inline(__always)
  func passRun(up event: Event) -> RunExit {
    switch event {
    case .headers: return walk(event, .headers, callbacks.headers)
    case .receive:
      // The caller has not asked for the message, so the lowest hop of the `Run` keeps it.
      if run.owed == 0 {
        splitRun(at: run.length - 1)
        return .goesOn(run.length)
      }
      let exit = walk(event, .receive, callbacks.receive)
      guard case .through = exit else { return exit }
      run.owed -= 1
    case .status:
      let exit = walk(event, .status, callbacks.status)
      guard case .through = exit else { return exit }
      // `run.event` stays `.status` until the call's end, which follows.
      run.event = .status
      run.at = -1
      outboundEnd = 0
    case .start, .send, .halfClose: break
    }
    return .through
  }

  /// Calls the hop's callback for demand or `sent`, with the count `n`. Returns the count that the hop passes on.
  private func tell(_ n: Int, _ entry: UnsafePointer<Chain.Callbacks.Entry>) -> Int {
    let hop = hops.at(entry.pointee.index)
    hop._withUnsafeGuaranteedRef {
      $0.count = n
      $0.running = entry.pointee.kind
    }
    _ = invoke(entry)
    return hop._withUnsafeGuaranteedRef {
      $0.running = .none
      return entry.pointee.kind == .demand ? $0.lessSurplus($0.count) : n
    }
  }

  /// Passes demand for `n` messages down through the `Run`. Returns how much is left for the hop at
  /// `run.length`. Returns 0 if nothing is left, or if a hop has left the `Run` and this function has passed
  /// on the rest itself.
  func askRun(_ n: Int) -> Int {
    let list = callbacks.demand
    var next = list.first
    run.event = .demand
    run.count = n
    while next != list.end {
      let entry = next
      let index = entry.pointee.index
      guard index < run.length else { break }
      next += 1
      run.at = index
      let passed = tell(n, entry)
      guard passed == n, index < run.length else {
        splitRun(at: index + 1)
        if run.length > index {
          run.owed = saturatingSum(run.owed, n)
          run.event = .none
        }
        if !finishIfAsked(hops[index]) { runDemand(passed, at: index + 1) }
        return 0
      }
    }
    run.event = .none
    run.owed = saturatingSum(run.owed, n)
    return n
  }

  /// Passes `sent` for `n` messages up through the `Run`. Returns false if a hop has left the `Run`
  /// meanwhile; then this function has told the hops above it one by one.
  func tellRunSent(_ n: Int) -> Bool {
    let list = callbacks.sent
    var next = list.first
    run.event = .sent
    run.count = n
    while next != list.end {
      let entry = next
      let index = entry.pointee.index
      next += 1
      guard index < run.length else { continue }
      run.at = index
      _ = tell(n, entry)
      guard index < run.length else {
        _ = finishIfAsked(hops[index])
        runSent(n, at: index - 1, isCounted: true)
        return false
      }
    }
    run.event = .none
    run.inFlight -= n
    return true
  }

  private var callbacks: Chain.Callbacks {
    @inline(__always) get { table.unsafelyUnwrapped.pointee }
  }

  @inline(__always)
  private func invoke(_ entry: UnsafePointer<Chain.Callbacks.Entry>) -> Int32 {
    watch.begin(id, entry.pointee.name)
    let began = callbackBegins
    let answer = entry.pointee.function(
      OpaquePointer(hops.at(entry.pointee.index).toOpaque()), entry.pointee.userData)
    watch.end()
    if began != 0 { _ = callbackEnded(began, entry.pointee.name) }
    return answer
  }

  /// The callback that runs now at the hop at `index`, if the hop is in the `Run`; otherwise `.none`. Also
  /// `.none` while `create` runs, because the hop itself records that callback.
  func callbackInRun(_ index: Int) -> EventKind {
    index == run.at && index < run.length && run.event != .create ? run.event : .none
  }

  /// Sets the `Face` of all hops of the `Run`: the part of their state that other threads may read.
  private func wearInRun(_ face: Face) {
    row.unsafelyUnwrapped._withUnsafeGuaranteedRef { $0.face.store(face.rawValue, ordering: .releasing) }
  }

  /// Takes the hop out of the `Run` after its callback has returned, so that the callback's verdict can be
  /// applied to this hop alone.
  func setAside(_ index: Int) -> Hop {
    splitRun(at: index)
    let hop = hops[index]
    hop.running = .none
    return hop
  }

  /// Takes the hops from `index` on out of the `Run`: each counts by itself from now on (invariant I8).
  func splitRun(at index: Int) { if index < run.length { setApart(index) } }

  private func setApart(_ first: Int) {
    for index in first..<run.length {
      let hop = hops[index]
      let hasPassed: Bool
      switch run.event {
      case .none: hasPassed = false
      case .create, .start, .send, .halfClose: hasPassed = index < run.at
      // Demand is counted before the callback, so the hop whose callback runs has counted it too.
      case .demand: hasPassed = index <= run.at
      case .sent: hasPassed = index >= run.at
      case .destroy: hasPassed = true
      case .headers, .receive, .status, .cancel, .pick: hasPassed = index > run.at
      }
      if hop.running == .none { hop.running = callbackInRun(index) }
      // No event but start has come to these hops yet.
      if run.event == .start || run.event == .create {
        hop.splitOff(hasPassed ? .passing : hop.running == .start ? .starting : hop.life)
        if hasPassed { hop.owed = run.count }
        continue
      }
      hop.splitOff(run.life == .halfClosed || hasPassed && run.event == .halfClose ? .halfClosed : .passing)
      hop.owed = run.owed
      hop.inFlight = run.inFlight
      guard hasPassed else { continue }
      switch run.event {
      case .send: hop.inFlight += 1
      case .sent: hop.inFlight -= run.count
      case .demand: hop.owed = saturatingSum(run.owed, run.count)
      case .receive: hop.owed -= 1
      case .status: hop.become(.over(.passed))
      case .destroy:
        hop.become(.over(.passed))
        if index <= run.at { hop.become(.gone) } else { hop.wear(.over) }
      case .none, .create, .start, .halfClose, .headers, .cancel, .pick: break
      }
    }
    if run.event == .start || run.event == .create { startAt = run.at }
    if run.event == .status { outboundEnd = min(outboundEnd, run.at + 1) }
    if first <= run.at {
      // Counts the event for the hops that stay in the `Run`. If the event goes down, it has passed all of
      // them; if it goes up, none.
      switch run.event {
      case .create, .start:
        run.owed = run.count
        wearInRun(.open)
      case .send: run.inFlight += 1
      case .demand: run.owed = saturatingSum(run.owed, run.count)
      case .halfClose: run.life = .halfClosed
      case .none, .headers, .receive, .status, .cancel, .sent, .destroy, .pick: break
      }
      run.event = .none
    }
    run.length = first
    door = .queued
    run.end = 0
  }

  /// Ends the `Run` at the call's end. Returns how many hops, from the top, need no further work: the status
  /// has passed them, and their `destroy` has run.
  @inline(__always)
  func endRun() -> Int {
    if run.event != .status || run.at >= 0 { splitRun(at: 0) }
    if run.length > 0 {
      wearInRun(.over)
      if !callbacks.destroy.isEmpty { destroyRun() }
    }
    run.event = .none
    return run.length
  }

  private func destroyRun() {
    let list = callbacks.destroy
    var next = list.first
    run.event = .destroy
    while next != list.end {
      let entry = next
      let index = entry.pointee.index
      guard index < run.length else { return }
      next += 1
      run.at = index
      _ = invoke(entry)
      if index >= run.length { hops[index].running = .none }
    }
  }
}
