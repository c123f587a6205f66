import PenstockWire

// Moves events through a call, from place to place. A place is a hop, the codec, or the run. The run is the
// group of top hops that all have the same counts so far, and that therefore behave like one hop
// (`Call+Run`). `Call+Settle` handles an event at one hop.

extension Call {
  /// Where an event is after `advanceDown` or `advanceUp` has moved it.
  enum Exit {
    /// The event is past the last hop, and belongs to the transport.
    case below
    /// The event has passed the top hop, and belongs to the caller.
    case above
    /// The event waits at a place of the chain, or was dropped or ended there: nothing is left to do for it
    /// now.
    case stays
  }

  /// The result of passing an event through the run (the top hops, which count together).
  enum RunExit {
    case through
    /// The hop at this index has left the `Run`, because its callback has returned this value.
    case answered(Int, Int32)
    /// The event goes on to the hop at this index.
    case goesOn(Int)
    case stays
  }

  /// Moves `event` down, beginning with the hop at `index`. If the event passes the last hop, the transport
  /// gets it.
  func moveDown(_ event: Event, at index: Int) {
    if advanceDown(event, at: index) == .below { leaveForTransport(event) }
  }

  /// Moves `event` up, beginning with the hop at `index`. If the event passes the top hop, or `index` is -1,
  /// the caller gets it.
  func moveUp(_ event: Event, at index: Int) {
    if advanceUp(event, at: index) == .above { arrive(event) }
  }

  /// Moves `event` on after it has passed `hop`, beginning with the next hop in the event's direction.
  func move(_ event: Event, beyond hop: Hop) {
    if event.kind.lane == .outbound {
      moveDown(event, at: hop.index + 1)
    } else {
      moveUp(event, at: hop.index - 1)
    }
  }

  func advanceDown(_ event: Event, at index: Int) -> Exit { advance(event, at: index, goesDown: true) }

  private func advanceUp(_ event: Event, at index: Int) -> Exit { advance(event, at: index, goesDown: false) }

  /// Moves `event` from place to place until a place keeps it or it has left the chain. This function is
  /// compiled once for each direction, which saves 30 instructions an event.
  @inline(__always)
  private func advance(_ event: Event, at first: Int, goesDown: Bool) -> Exit {
    // If the event begins or ends inside the run (the top hops, which count together), the hops below that
    // point leave the run first.
    if goesDown {
      if _slowPath(outboundEnd < run.length) { splitRun(at: outboundEnd) }
    } else {
      splitRun(at: first + 1)
    }
    var index = first
    while true {
      if codec != nil, !translates(event, at: index) { return .stays }
      if index == (goesDown ? cutAt : cutAt - 1) {
        guard goesDown ? passesCut(down: event) : passesCut(up: event) else { return .stays }
      }
      switch goesDown ? placeBelow(index) : placeAbove(index) {
      case .below: return .below
      case .above: return .above
      case .nowhere:
        // Invariant I5: an event from above goes no further than `outboundEnd`, below which the chain has
        // ended.
        discardOutbound(event, at: index)
        return .stays
      case .run:
        let hasCut = !goesDown && cutAt < run.length
        switch goesDown ? passRun(down: event) : passRun(up: event) {
        case .through:
          if !goesDown {
            if _slowPath(hasCut) { commit() }
            return .above
          }
          index = run.length
        case .goesOn(let next): index = next
        case .stays: return .stays
        case .answered(let next, let answer):
          if hasCut, next < cutAt { commit() }
          guard comesBack(answer, event, setAside(next)) else { return .stays }
          index = goesDown ? next + 1 : next - 1
        }
      case .hop:
        // No reference to the hop is counted here: the `HopRow` keeps the hop, even if a RESTART replaces it
        // meanwhile.
        guard hops.at(index)._withUnsafeGuaranteedRef({ passes(event, $0) }) else { return .stays }
        index += goesDown ? 1 : -1
      }
    }
  }

  private enum Place { case run, hop, below, above, nowhere }

  @inline(__always)
  private func placeBelow(_ index: Int) -> Place {
    if index < run.length { return .run }
    if index >= outboundEnd { return .nowhere }
    return index == hops.count ? .below : .hop
  }

  @inline(__always)
  private func placeAbove(_ index: Int) -> Place { index < 0 ? .above : index < run.length ? .run : .hop }

  /// Encodes or decodes the event's message, if the event is at the codec now. The codec stands above the hop
  /// at `codecIndex`. Returns false if the codec has failed and so has ended the call.
  private func translates(_ event: Event, at index: Int) -> Bool {
    guard let codec else { return true }
    if event.kind.lane == .outbound {
      guard index == codecIndex, index < outboundEnd, let message = event.message else { return true }
      return encode(message, codec)
    }
    guard index == codecIndex - 1 else { return true }
    // The status has come to the codec, so outbound messages go no further than the codec from now on: a
    // message that could not be encoded would end the call with another status.
    if case .status = event { outboundEnd = min(outboundEnd, codecIndex) }
    return event.message.map { decode($0, codec) } ?? true
  }

  /// Handles an event at a hop that is not in the run (the hops that count together), and so has its own
  /// counts. Returns true if the event has passed the hop.
  private func passes(_ event: Event, _ hop: Hop) -> Bool {
    if event.kind.lane == .inbound { return !hop.isActive || meet(event, hop) }
    if case .start = event {
      startAt = hop.index
      if hop.life == .waiting, !enter(hop) {
        return outboundEnd > hop.index && isCurrent(hop)
      }
    }
    return !hop.isEntered || meet(event, hop)
  }

  /// Applies `answer`, which the hop's callback has returned for `event`. The hop has just left the run (the
  /// hops that count together). Returns true if the event has passed the hop.
  private func comesBack(_ answer: Int32, _ event: Event, _ hop: Hop) -> Bool {
    if answered(answer, event, hop), leave(event, hop) { return true }
    drain(hop, event.kind.lane)
    return false
  }
}
