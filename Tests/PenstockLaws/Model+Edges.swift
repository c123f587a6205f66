import PenstockCall

// The part of the model for the caller and the server, and the checks when the call is at rest (has nothing
// left to do).

extension Model {
  func callerSees(_ kind: EventKind, _ seen: Item) {
    let name = "the caller: \(kind.word)"
    noteHanded()
    require(callerStatus == nil, "law 2", "\(name) after the status")
    if kind == .status {
      discoverEnd(nil) { callerQueue.first?.kind == .status }
      let expected = local ?? callerQueue.first
      require(expected?.kind == .status, "law 2", "\(name), but none has come to the top")
      if let expected, expected.kind == .status {
        if local == nil, expected.code == 0, callerMessages == 0, kind == .status, self.kind.receivesOne {
          require(
            seen.code == 12 && seen.id == 0, "cardinality", "OK without the one message is UNIMPLEMENTED")
        } else {
          compare(seen, expected, name)
        }
      }
      for hop in hops where hop.life == .entered && hop.plan.chosen == nil {
        require(hop.isDestroyed || !hop.has(.destroy), "law 2", "\(name) before destroy of hop \(hop.index)")
        require(!hop.owesCancel || !hop.has(.cancel), "law 2", "\(name) before on_cancel of hop \(hop.index)")
      }
      require(
        localOrder.isEmpty, "law 2", "\(name) before hop \(localOrder.first?.hop ?? -1) has seen the end")
      callerStatus = seen
      isOver = true
      for (ticket, entry) in tickets where entry.state == .open { tickets[ticket]?.state = .gone }
      // However the call has ended, none of its tickets can be used any more.
      for ticket in tickets.keys { tickets[ticket]?.state = .gone }
      return
    }
    require(local == nil, "law 3", "\(name) after a local end")
    if callerQueue.first?.kind != kind { hurry(.below(-1)) { self.callerQueue.first?.kind == kind } }
    guard let expected = callerQueue.first, expected.kind == kind else {
      fail("law 1", "\(name), next to come is \(callerQueue.first?.kind.word ?? "nothing")")
      return
    }
    callerQueue.removeFirst()
    compare(seen, expected, name)
    if kind == .receive {
      require(callerMessages == 0 || !self.kind.receivesOne, "cardinality", "a second response message")
    }
    if kind == .receive { callerMessages += 1 } else { callerHeaders += 1 }
    advance()
  }

  func callerSent(_ n: Int) {
    noteHanded()
    require(callerStatus == nil, "law 2", "the caller: sent after the status")
    callerSent += n
    if callerSent > callerSentCame { hurry { callerSent <= callerSentCame } }
    pairSent(below: -1) { callerSent <= callerSentCame }
    require(
      n > 0 && callerSent <= callerSentCame, "sent", "the caller: \(callerSent) sent, \(callerSentCame) were")
  }

  func serverSees(_ kind: EventKind, _ seen: Item) {
    let name = "the server: \(kind.word)"
    noteHanded()
    require(!serverHasEnded, "law 3", "\(name) after the end")
    if serverQueue.first?.kind != kind { hurry(.above(hops.count)) { self.serverQueue.first?.kind == kind } }
    guard let expected = serverQueue.first, expected.kind == kind else {
      fail("law 1", "\(name), next to come is \(serverQueue.first?.kind.word ?? "nothing")")
      return
    }
    serverQueue.removeFirst()
    compare(seen, expected, name)
    switch kind {
    case .start:
      require(!serverHasStarted, "law 1", "\(name) twice")
      serverHasStarted = true
      attempts += 1
    case .send:
      require(serverMessages == 0 || !self.kind.sendsOne, "cardinality", "a second request message")
      serverMessages += 1
      inTransport += 1
    case .halfClose: require(serverMessages > 0 || !self.kind.sendsOne, "cardinality", "no request message")
    default: break
    }
    advance()
  }

  func serverReset() {
    if local == nil { noteHanded() }
    if !serverHasEnded, local == nil { discoverEnd(nil) { serverHasEnded } }
    require(serverHasStarted, "law 3", "reset of what was not opened")
    require(!wasReset, "law 3", "reset twice")
    require(serverHasEnded || local != nil, "law 3", "reset while the call goes on")
    wasReset = true
  }

  var wantsMessage: Bool {
    serverHasStarted && !serverHasEnded && serverDemand > 0 && !isOver && local == nil
      && !hops.contains { $0.inbound.isPaused }
  }

  /// Checks the call when no input is posted and no callback runs. At such a time everything that could
  /// happen must have happened.
  func checkRest(wants: Bool, deadline: UInt64?) {
    guard isOpen, !isOver, local == nil else { return }
    noteHanded()
    hurry()
    require(
      retired.isEmpty, "restart", "\(retired.first?.name ?? ""): destroy did not come before the call went on"
    )
    for hop in hops {
      let name = hop.name
      hop.unpaired = unseenPairs(hop)
      require(!hop.owesCancel || !hop.has(.cancel), "law 2", "\(name): on_cancel did not come")
      require(
        !hop.mayDestroy || hop.isDestroyed || hop.plan.chosen != nil || hop.life != .entered
          || !hop.has(.destroy), "law 2",
        "\(name): destroy did not come")
      guard hop.isActive || hop.life == .notEntered else { continue }
      if let next = hop.outbound.queue.first, !hop.outbound.isPaused, hop.index < outboundEnd {
        fail("law 1", "\(name) was not shown its \(next.kind.word)")
      }
      if let next = hop.inbound.queue.first, !hop.inbound.isPaused {
        fail("law 1", "\(name) was not shown its \(next.kind.word)")
      }
      guard hop.isActive else { continue }
      require(
        !hop.seesDemand || hop.demandSeen == hop.demandCame, "demand",
        "\(name): asked for \(hop.demandCame), told of \(hop.demandSeen)")
      require(
        !hop.has(.sent) || hop.plan.executor(of: .sent) != nil || hop.sentSeen == hop.sentPassed, "sent",
        "\(name): \(hop.sentPassed) were sent, told of \(hop.sentSeen)")
    }
    require(serverQueue.isEmpty, "law 1", "the server did not get its \(serverQueue.first?.kind.word ?? "")")
    require(callerQueue.isEmpty, "law 1", "the caller did not get its \(callerQueue.first?.kind.word ?? "")")
    require(
      callerSent == callerSentCame, "sent", "the caller: \(callerSentCame) were sent, told of \(callerSent)")
    require(
      wants == wantsMessage, "demand",
      "the call \(wants ? "wants" : "does not want") a message, \(serverDemand)")
    require(
      !serverHasEnded || !serverHasStarted || wasReset || serverSaidStatus, "law 3",
      "the stream was not reset")
    require(deadline == expectedDeadline, "law 4", "the deadline is armed for another time")
  }
}
