#if PENSTOCK_CHECKS
  import Synchronization

  // The invariants: conditions that hold between any two steps of a call. docs/architecture.md numbers them,
  // and code that keeps one names its number. Test builds check them after each step, and stop at the first
  // that does not hold.

  extension Call {
    func check() {
      if let broken = brokenInvariant { fatalError("invariant \(broken)") }
    }

    private var brokenInvariant: StaticString? {
      if phase == .ended { return brokenAtTheEnd }
      if let broken = brokenCounts ?? brokenHead { return broken }
      var inboundPauses = 0
      for hop in hops {
        if hop.index < run.length {
          if let broken = hop.brokenInRun { return broken }
          continue
        }
        if let broken = hop.brokenLife ?? hop.brokenCounts { return broken }
        if hop.index >= outboundEnd, let lane = hop.outbound, !lane.isEmpty {
          return "I5: an event stands at a hop that nothing from above reaches any more"
        }
        if let lane = hop.outbound, let broken = lane.broken(limit: hop.registration.holdBytes) {
          return broken
        }
        guard let lane = hop.inbound else { continue }
        if let broken = lane.broken(limit: hop.registration.holdBytes) { return broken }
        if lane.isShut { inboundPauses += 1 }
      }
      if inboundPauses != pausesInbound { return "I6: pausesInbound is not the number of shut inbound lanes" }
      return brokenClaims
    }

    /// Checks, after the call's end, that each hop has ended exactly once. The first `passed` hops are in the
    /// run (the hops that count together) and are not checked.
    func checkEnds(_ passed: Int) {
      for hop in hops where hop.index >= passed && hop.isEntered {
        if hop.life != .gone || hop.brokenLife != nil { fatalError("invariant I2: a hop has not ended once") }
      }
      if pausesInbound != 0 { fatalError("invariant I17: a lane is shut after the end") }
    }

    private var brokenAtTheEnd: StaticString? {
      if hops.count != 0 || pausesInbound != 0 || chain != nil {
        return "I17: a call that has ended has hops, pauses or a chain"
      }
      return nil
    }

    private var brokenCounts: StaticString? {
      if frontierDemand < 0 || demandBelow < 0 || run.owed < 0 { return "I9: demand is less than nothing" }
      if inTransport < 0 || run.inFlight < 0 { return "I10: more was told as sent than was sent" }
      if inTransport > outboundCount { return "I10: the transport has more than it was given" }
      if run.length > hops.count { return "I8: the run has more hops than the call" }
      let isDirect = hasOnlyHops && run.length == hops.count && phase == .live && leg == .open
      if isDirect != (door == .direct) { return "I12: the door does not fit the state of the call" }
      if sentAgain < 0 { return "I16: more was told again than was sent again" }
      if let cut = bottomCut {
        if cut.wait != nil, cut.state != .waiting || leg != .unstarted {
          return "I19: a call waits for a retry that has begun"
        }
        return cut.broken ?? cut.brokenAboveAttempt
      }
      return nil
    }

    /// The flaw in the position of start, which is at a hop or has left the last one; nil: nothing.
    private var brokenHead: StaticString? {
      if startAt > hops.count + 1 { return "I11: start is beyond the transport" }
      if leg == .open, startAt != hops.count + 1 {
        return "I11: the transport has the start, and a hop has it too"
      }
      if run.length > startAt, phase == .live { return "I11: a hop of the run has not had the start" }
      for hop in hops where hop.index >= max(startAt + 1, run.length) && hop.isEntered {
        return "I11: start has not come to a hop that was entered"
      }
      for hop in hops where hop.index >= run.length {
        let isBelow: Bool
        switch hop.life {
        case .starting: isBelow = false
        case .passing, .closed, .halfClosed: isBelow = true
        case .waiting, .out, .creating, .answering, .over, .gone: continue
        }
        if isBelow != (startAt > hop.index) { return "I11: the life of a hop does not fit startAt" }
      }
      if startAt > hops.count, frontierDemand != 0 { return "I11: demand waits for a start that has left" }
      return nil
    }

    private var brokenClaims: StaticString? {
      var seen: [UInt64] = []
      for hop in hops where hop.index >= run.length {
        for lane in [hop.outbound, hop.inbound] {
          guard let lane, !lane.isLong else { continue }
          for index in 0..<lane.parked.count {
            switch lane.parked[index].wait {
            case .hold(let ticket), .pause(.ticket(let ticket)):
              if seen.contains(ticket) { return "I13: two events wait for one ticket" }
              seen.append(ticket)
            case .none, .next, .pause(.job), .end: break
            }
          }
        }
      }
      return nil
    }
  }

  extension Life {
    fileprivate var rank: Int {
      switch self {
      case .waiting: 0
      case .creating: 1
      case .starting: 2
      case .passing, .answering: 3
      case .closed, .halfClosed: 4
      case .over: 5
      case .out, .gone: 6
      }
    }
  }

  extension Hop {
    /// Stops the program if a hop's life would go back.
    func checkStep(to next: Life) {
      if next.rank <= life.rank, next != life { fatalError("invariant I1: a hop's life goes back") }
      guard next == .gone else { return }
      if case .over = life { return }
      fatalError("invariant I2: a hop is destroyed without an ending")
    }

    /// The flaw of a hop of the run (the hops that count together); nil: nothing. Such a hop must not
    /// have a value in any member that is for one hop alone.
    fileprivate var brokenInRun: StaticString? {
      let isAsMade =
        outbound == nil && inbound == nil && cut == nil && !hasExecutors && finishRequest == nil
        && life.rank <= Life.starting.rank && face.load(ordering: .relaxed) == Face.asRun.rawValue
        && !isShared
        && ticket == 0 && owed == 0 && reserved == 0 && earlyDemand == 0 && surplus == 0 && inFlight == 0
        && ledger == nil && earlyAnswers.isEmpty
      return isAsMade ? nil : "I8: a hop of the run has something of its own"
    }

    fileprivate var brokenLife: StaticString? {
      if life == .creating { return "I1: create has returned, but the hop's life is still creating" }
      if ticket != 0, running == .none { return "I13: a hop has a callback's ticket, but no callback runs" }
      if finishRequest != nil, running == .none { return "I1: a request to end the call was forgotten" }
      if isSettling { return "I18: the end by a hop was not carried out" }
      if let broken = brokenFace { return broken }
      if life == .gone, outbound != nil || inbound != nil {
        return "I4: something stands at a hop that has gone"
      }
      return nil
    }

    private var brokenFace: StaticString? {
      let isRight: Bool
      switch life {
      // Start has not come to the hop, so no other thread can have the hop. It may have no `Face` of its own
      // yet.
      case .waiting: isRight = seen == .waiting || face.load(ordering: .relaxed) == Face.asRun.rawValue
      case .creating: isRight = seen == .waiting
      case .starting: isRight = seen == .mayAnswer
      case .passing: isRight = seen == .open
      case .closed, .halfClosed: isRight = seen == .halfClosed
      case .answering: isRight = seen == .answering
      // The `Face` stays until `destroy`, so it may have any value.
      case .over: isRight = true
      case .out, .gone: isRight = seen == .over
      }
      return isRight ? nil : "I14: the face of a hop does not fit its life"
    }

    fileprivate var brokenCounts: StaticString? {
      if owed < 0 || reserved < 0 || earlyDemand < 0 || surplus < 0 {
        return "I9: demand is less than nothing"
      }
      if isShared, life != .gone, sharedOwed.load(ordering: .relaxed) > max(owed - reserved, 0) {
        return "I9: other threads may spend more than is owed"
      }
      if inFlight < 0 || untold < 0 { return "I10: more was told as sent than was sent" }
      if let broken = brokenLedger { return broken }
      return cut?.broken
    }

    private var brokenLedger: StaticString? {
      if inFlight > 64 { return nil }
      guard let ledger else { return ownInFlight == 0 ? nil : "I10: own messages in flight, and no ledger" }
      var own = 0
      for index in 0..<ledger.count where ledger[index] { own += 1 }
      if ledger.count != inFlight || own != ownInFlight { return "I10: the ledger does not fit its counts" }
      return untold <= own ? nil : "I10: more messages are untold than are in flight"
    }
  }

  extension Station {
    /// Whether so many events wait here that looking at all of them after each step would take too long.
    fileprivate var isLong: Bool { parked.count + waiting.count > 64 }

    fileprivate func broken(limit: Int) -> StaticString? {
      if isLong { return nil }
      var pauses = 0
      var held = 0
      var heldCount = 0
      var ticketless = 0
      for index in 0..<parked.count {
        let one = parked[index]
        held += one.heldBytes
        if one.heldBytes > 0 { heldCount += 1 }
        switch one.wait {
        case .pause: pauses += 1
        case .next: ticketless += 1
        case .hold, .none, .end: break
        }
        // A message behind the caller's half-close is not checked here: the layer above the call refuses such
        // messages.
        if one.event.kind == .status, index < parked.count - 1 || !waiting.isEmpty {
          return "I4: something stands behind the status"
        }
      }
      for index in 0..<waiting.count where waiting[index].kind == .status && index < waiting.count - 1 {
        return "I4: something waits behind the status"
      }
      if pauses != (isShut ? 1 : 0) { return "I6: a lane is shut, but not by one pause" }
      if !waiting.isEmpty, !isShut { return "I6: events wait in front of a lane that is open" }
      if held != heldBytes { return "I7: heldBytes is not the sum over the held events" }
      if held > limit, heldCount > 1 { return "I7: more is held than hold_bytes" }
      return ticketless == self.ticketless ? nil : "I7: the count of ticketless events is wrong"
    }
  }

  extension Cut {
    fileprivate var broken: StaticString? {
      if bytesLeft < 0 { return "I15: a cut is over its limit" }
      return failure == nil || (entries.isEmpty && start == nil)
        ? nil : "I15: a cut that is closed keeps something"
    }

    fileprivate var brokenAboveAttempt: StaticString? {
      if failure != nil || entries.count > 64 { return nil }
      return untold >= 0 && untold <= messages
        ? nil : "I16: the number of untold messages does not fit the cut's record"
    }
  }
#endif
