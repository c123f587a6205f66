import PenstockWire

// The two signals: demand, which goes down, and `sent`, which goes up. A signal never waits in a queue of
// events.

extension Call {
  /// Passes demand for `n` more messages down the chain, beginning with the hop at `index`.
  func runDemand(_ n: Int, at index: Int) {
    var n = n
    var index = index
    guard n > 0, phase == .live || phase == .created else { return }
    if index < run.length {
      if index > 0 {
        splitRun(at: index)
      } else {
        n = askRun(n)
        index = run.length
      }
    }
    while n > 0 {
      // Demand does not overtake start: it waits where start is, and moves on with start.
      if index >= startAt, startAt <= hops.count {
        addFrontierDemand(n)
        return
      }
      if index == hops.count {
        addDemandBelow(n)
        return
      }
      let hop = hops[index]
      if hop.isActive {
        n = showDemand(n, to: hop)
        if finishIfAsked(hop) || hop.life == .answering { return }
        hop.noteAsked(n)
      }
      index += 1
    }
  }

  func addFrontierDemand(_ n: Int) { frontierDemand = saturatingSum(frontierDemand, n) }

  /// Passes to the hops below the demand that the hop itself has made. Before start has left the hop, this
  /// demand waits with start.
  func runDemand(_ n: Int, below hop: Hop) {
    splitRun(at: hop.index)
    guard hop.isActive, n > 0 else { return }
    if startAt <= hop.index {
      hop.earlyDemand = saturatingSum(hop.earlyDemand, n)
    } else {
      hop.noteAsked(n)
      runDemand(n, at: hop.index + 1)
    }
  }

  /// Shows demand for `n` messages to the hop, and returns how much the hop passes on. The caller of this
  /// function then checks whether the hop has asked to end the call, or its part in the call is over.
  func showDemand(_ n: Int, to hop: Hop) -> Int {
    hop.addOwed(n)
    if let station = hop.inbound, !station.parked.isEmpty { pending.append(.flush(hop.index, .inbound)) }
    guard let callback = hop.callbacks.pointee.onDemand else { return hop.lessSurplus(n) }
    if let queue = hop.inboundJobs {
      if !dispatch(.demand, .start, n, to: hop, callback, queue, isAwaited: true) { executorLost(hop) }
      return 0
    }
    hop.count = n
    _ = hop.invoke(callback, .demand)
    return hop.lessSurplus(hop.count)
  }

  func addDemandBelow(_ n: Int) {
    guard n > 0, leg != .ended else { return }
    demandBelow = saturatingSum(demandBelow, n)
    if wantsMessage { tellBelow { $0.pull() } }
  }

  /// Queues `sent` for `n` messages for the hops from `index` up. The hops are told after the running step,
  /// so `sent` never comes between an event's callback and the use of its verdict.
  func tellSent(_ n: Int, from index: Int) {
    if n > 0, phase == .live { pending.append(.sentFrom(index, n)) }
  }

  /// Whether the caller, a hop or a trace has to be told that the transport has taken messages. In most unary
  /// calls nobody has to be.
  public var hearsSent: Bool {
    manner == .toldSent || table.map { !$0.pointee.sent.isEmpty } ?? false || run.length < hops.count
      || trace != nil
  }

  /// Tells `sent` for `n` messages to the hop at `index` and those above it, because the part of the call
  /// below has taken them. `isCounted`: `sentAtCut` has counted these messages already.
  func runSent(_ n: Int, at index: Int, isCounted: Bool = false) {
    var n = n
    var index = index
    var isCounted = isCounted || index < cutAt - 1
    while n > 0, phase == .live {
      if !isCounted, index < max(cutAt, run.length) {
        isCounted = true
        n = sentAtCut(n)
      }
      guard index >= 0, n > 0 else { break }
      if index < run.length {
        splitRun(at: index + 1)
        guard tellRunSent(n) else { return }
        break
      }
      let hop = hops[index]
      if hop.isEntered {
        let (passed, held) = hop.countSent(n)
        n = passed
        if n > 0, hop.isActive, let callback = hop.callbacks.pointee.onSent {
          if let queue = hop.outboundJobs {
            if !dispatch(.sent, .start, n, to: hop, callback, queue, isAwaited: true) { executorLost(hop) }
          } else {
            hop.count = n
            _ = hop.invoke(callback, .sent)
            _ = finishIfAsked(hop)
          }
          // If a RESTART has replaced this hop meanwhile, that RESTART has also told `sent` for these
          // messages to the hops above.
          guard isCurrent(hop) else { return }
        }
        n += held
      }
      index -= 1
    }
    if n > 0, phase == .live { tellAbove { $0.callSent(n) } }
  }

  /// Ends the call if the callback that has just returned has asked for it; then the callback's verdict is
  /// ignored. Returns false if the callback has not asked.
  func finishIfAsked(_ hop: Hop) -> Bool {
    guard let status = hop.finishRequest else { return false }
    hop.finishRequest = nil
    finish(at: hop.index, status)
    return true
  }
}
