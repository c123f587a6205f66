import PenstockWire

// A call is sent again because a hop returns RESTART, because the server has certainly not processed the request, or
// because its method's retry policy says so. All cases call `again` with a `Cut`: the point of the chain from which the
// call is sent again. A redirect in on_status is a RESTART whose start has another route.

/// The state of the `Cut` above the attempt: the point from which the call is sent again if the server has
/// not processed it. Most calls need no `Cut` object there, because their request leaves in one step
/// (`leavesWhole`).
///
/// A case owns one reference to its object, which `Call.setBottom` or `Call.commit` releases. References that
/// the compiler counts would cost a call 30 instructions more.
enum Bottom {
  /// No event has passed the `Cut` yet, or only a start, which needs no copy because no hop below can change
  /// it.
  case start
  /// Start, this message and the half-close have passed the `Cut`. The hops above it have not been told
  /// `sent` for the message.
  case whole(Unmanaged<Message>)
  case wholeTold(Unmanaged<Message>)
  case cut(Unmanaged<Cut>)
  /// No further attempt may follow: a response has begun to arrive, the message is too large to be kept, or
  /// the call has ended.
  case committed
}

/// Whether a failed request may be repeated without harm (gRFC A6, "Transparent Retries").
public enum Repeat: Equatable, Sendable {
  /// The request may not be repeated: the server may have acted on it, or a hop has made the status itself.
  case no
  /// The request was sent, and the server has certainly not processed it.
  case unprocessed
  /// The server has certainly not processed the request, and has ended the connection, on which it still
  /// serves earlier requests. A server or a proxy that takes only a few requests on each connection may do so
  /// any number of times. Each time it serves some requests of this client, so the attempts come to an end.
  case passedOver
  /// The server has refused the request (REFUSED_STREAM), which it has certainly not processed. It may take the
  /// request when other requests have ended, so the request may be repeated several times.
  case refused
  /// The server may have acted on the request, or could not be reached. The request is repeated only if its method's
  /// retry policy wants that.
  case byPolicy
}

/// Decides whether another attempt follows at once. It does no I/O and reads no clock. A further attempt by the method's
/// retry policy is decided below (`CallBelow.waitToRetry`), because the policy is the channel's.
enum RetryPolicy {
  /// Allows one more attempt for a request that is `unprocessed`, any number of attempts for a request that is
  /// `passedOver`, and `mostRefusals` for one that is `refused`. Attempts after a refusal are not counted
  /// otherwise. This goes beyond gRFC A6, which allows one attempt (docs/channel.md, "Requests that are sent
  /// again").
  case transparent

  static let mostRefusals = 10

  enum Advice: Equatable { case pass, again }

  /// `restarts`: the number of repetitions so far. `refusals`: how many of them have followed a refusal.
  func ended(_ how: Repeat, after restarts: Int, refusals: Int) -> Advice {
    switch (self, how) {
    case (.transparent, .unprocessed): restarts == refusals ? .again : .pass
    case (.transparent, .passedOver): .again
    case (.transparent, .refused): refusals < RetryPolicy.mostRefusals ? .again : .pass
    case (.transparent, .no), (.transparent, .byPolicy): .pass
    }
  }
}

extension Hop {
  /// Whether the hop may answer RESTART to `status`, which it sees or holds. Returns `.ok`, or the reason why
  /// not.
  func mayRestart(_ status: Status) -> Outcome {
    guard let cut, !status.isLocal, call.phase == .live else { return .state }
    if let failure = cut.failure { return failure }
    guard cut.start != nil else { return .state }
    return cut.restarts < registration.maxRestarts ? .ok : .already
  }

  /// Whether response headers wait at the hop for its verdict on the next message or on the status, because
  /// it may RESTART the call only as long as they have not left it. A caller that still sends may wait for
  /// the headers before it goes on, so they wait only in calls that have half-closed.
  public var holdsHeaders: Bool {
    guard let cut, cut.failure == nil, cut.start != nil, cut.restarts < registration.maxRestarts else {
      return false
    }
    let kind = call.request.kind
    guard registration.headersWait & (1 << UInt32(kind.rawValue)) != 0 else { return false }
    return kind.sendsOne || life == .halfClosed || life == .closed
  }
}

extension Call {
  /// The most events in the record of those that may have to be sent again, because each takes more room than its
  /// message. The limits of the messages' bytes are those of the `ReplayBudget`.
  private static let bottomMost = 4096

  // MARK: - The cut above the attempt

  /// Whether the call has hops per attempt: the hops from index `cutAt` on.
  var hasHopsBelowCut: Bool { cutAt < hops.count }

  /// Records `event`, which is on its way down to the attempt, so that a further attempt can send it again.
  /// Returns false if the event has to wait, because recorded events are to be sent again first.
  @inline(__always)
  func passesCut(down event: Event) -> Bool {
    if case .start = event, !hasHopsBelowCut { return true }
    return passesOpenBottom(event)
  }

  private func passesOpenBottom(_ event: Event) -> Bool {
    openBottom.map { passes(event, $0) } ?? true
  }

  private func passes(_ event: Event, _ cut: Cut) -> Bool {
    // This event is sent again from the record, so it is not recorded once more.
    if cut.state == .playing { return true }
    switch event {
    case .start:
      cut.noteStart(request, below)
      return true
    case .send: cut.untold += 1
    case .halfClose, .headers, .receive, .status: break
    }
    return cut.passes(event, isOwn: false)
  }

  /// Records the start, the message and the half-close of a request that leaves in one step, so that a
  /// further attempt can send them again.
  @inline(__always)
  func passesCutWhole(_ message: Message) {
    if case .start = bottom, borrow(origin.replays, { $0.takeWhole(message.count) }) {
      bottom = .whole(.passRetained(message))
    } else {
      _ = passesCut(down: .send(message))
      _ = passesCut(down: .halfClose)
    }
  }

  /// Whether `event`, which comes from the attempt, goes on upward. False: `event` is a status after which
  /// the call is sent again, so no hop sees it except the hops per attempt.
  @inline(__always)
  func passesCut(up event: Event) -> Bool {
    if case .committed = bottom { return true }
    return !isOverBelow(event)
  }

  private func isOverBelow(_ event: Event) -> Bool {
    if case .status(let status) = event, retries(status) { return true }
    commit()
    return false
  }

  /// From now on no further attempt can follow, so no events are recorded for one any more. If recorded
  /// events are being sent again at present, the rest of them are still sent.
  @inline(__always)
  func commit() {
    switch bottom {
    case .committed: break
    case .whole(let message), .wholeTold(let message):
      bottom = .committed
      forget(message)
    case .start, .cut: commitNow()
    }
  }

  /// The call has ended: releases the events that were kept for another attempt. Most calls have kept none.
  @inline(__always)
  func forgetBottom() {
    if case .committed = bottom { return }
    setBottom(.committed)
  }

  private func commitNow() {
    if let cut = bottomCut, cut.state == .waiting || cut.state == .playing {
      cut.close(.state)
    } else {
      setBottom(.committed)
    }
  }

  /// The object with the events that a further attempt would send again. nil: no further attempt may follow,
  /// or no object is needed yet.
  var bottomCut: Cut? {
    guard case .cut(let cut) = bottom else { return nil }
    return cut.takeUnretainedValue()
  }

  private func setBottom(_ next: Bottom) {
    let last = bottom
    bottom = next
    switch last {
    case .whole(let message), .wholeTold(let message): forget(message)
    case .cut(let cut):
      cut._withUnsafeGuaranteedRef { $0.giveBack() }
      cut.release()
    case .start, .committed: break
    }
  }

  /// Gives the room of the call's only message back. The message is not kept any more, unless the caller does.
  @discardableResult
  private func forget(_ whole: Unmanaged<Message>) -> Message {
    let message = whole.takeRetainedValue()
    borrow(origin.replays) { $0.giveBack(message.count) }
    return message
  }

  /// Drops the events that were recorded for a further attempt, also those that wait to be sent again.
  /// Returns how many of the waiting messages were not reported as `sent`.
  func dropBottom() -> Int {
    let cut = bottomCut
    setBottom(.committed)
    cut?.close(.gone)
    return cut?.drop() ?? 0
  }

  /// The transport has taken `n` messages. Returns how many of them are new. The others were reported as
  /// `sent` in an earlier attempt, and are not reported again.
  func sentAtCut(_ n: Int) -> Int {
    let again = min(sentAgain, n)
    sentAgain -= again
    switch bottom {
    case .whole(let message): if n > again { bottom = .wholeTold(message) }
    case .cut(let cut): cut._withUnsafeGuaranteedRef { $0.untold -= n - again }
    case .start, .wholeTold, .committed: break
    }
    return n - again
  }

  private func retries(_ status: Status) -> Bool {
    guard status.canRepeat != .no, phase == .live, let cut = openBottom else { return false }
    if let failure = cut.failure {
      if status.canRepeat == .refused { say(failure, in: status) }
      return false
    }
    var wait: RetryWait?
    let repeats = cut.restarts - Int(cut.retries.previous)
    switch RetryPolicy.transparent.ended(status.canRepeat, after: repeats, refusals: cut.refusals) {
    case .again: if status.canRepeat == .refused { cut.refusals += 1 }
    case .pass:
      guard let retry = below?.waitToRetry(after: status, of: self, &cut.retries) else {
        if status.canRepeat == .refused {
          // `mostRefusals`
          status.add(", and ten times more when the request was sent again")
        }
        return false
      }
      let (until, isOver) = loop.now.addingReportingOverflow(retry)
      wait = RetryWait(until: isOver ? .max : until, status: status)
    }
    if let start = cut.start, !request.become(start) { return false }
    if trace != nil, let wait { note(.retries, nil, .status, detail: Int(clamping: wait.until - loop.now)) }
    request.previousAttempts = request.attemptsBefore &+ cut.retries.previous
    request.isTransparentRetry = wait == nil
    cut.wait = wait
    var asked = demandBelow
    for hop in hops[cutAt...].reversed() where hop.isEntered { asked = hop.owed }
    cut.unanswered = asked
    sentAgain = 0
    again(
      cut, from: cutAt, untold: hearsSent ? cut.untold : 0,
      (cut.below ?? below)?.another(isRepeat: wait == nil))
    if trace != nil { note(.restarted, nil, .status, detail: cut.restarts) }
    return true
  }

  /// Adds to the status of a refused request why it is not sent again.
  func say(_ failure: Outcome, in status: Status) {
    status.add("; the request is not sent again, because ")
    switch failure {
    // `bottomMost`
    case .tooLarge:
      status.add("its messages are over replay_bytes or channel_replay_bytes, or more than 4096")
    case .unsupported: status.add("its codec can't copy a message for the hops of another attempt")
    case .noMemory: status.add("there is no memory for a copy")
    case .ok, .invalidArgument, .invalidJSON, .already, .gone, .wouldBlock, .wouldDeadlock, .busy, .timedOut,
      .interrupted, .forked, .closed, .notFound, .state, .system, .end:
      status.add("a hop per attempt has answered already")
    }
  }

  /// The object with the events that a further attempt would send again, made here if there was none. nil: no
  /// further attempt can follow.
  private var openBottom: Cut? {
    switch bottom {
    case .committed: return nil
    case .cut: return bottomCut
    case .start, .whole, .wholeTold:
      let cut = Cut(
        limit: origin.replays.bytesOfCall, most: Call.bottomMost, hasHops: hasHopsBelowCut, origin.replays)
      let last = bottom
      bottom = .cut(.passRetained(cut))
      switch last {
      case .whole(let message): cut.keepWhole(forget(message), isTold: false)
      case .wholeTold(let message): cut.keepWhole(forget(message), isTold: true)
      case .start, .cut, .committed: break
      }
      return cut
    }
  }

  /// Whether the hop still belongs to the live call, and not to an earlier attempt that a newer one has
  /// replaced.
  func isCurrent(_ hop: Hop) -> Bool { phase == .live && hops[hop.index] === hop }

  // MARK: - Again

  /// Carries out the verdict RESTART: drops everything below the hop, and sends all events that have left the
  /// hop again. Returns false if RESTART is not possible, and `status` passes the hop instead.
  func restart(_ hop: Hop, _ status: Status) -> Bool {
    let allowed = hop.mayRestart(status)
    guard allowed == .ok, let cut = hop.cut, let start = cut.start, request.become(start) else {
      if trace != nil {
        note(.notRestarted, hop, .status, detail: Int((allowed == .ok ? .noMemory : allowed).rawValue))
      }
      return false
    }
    if trace != nil { note(.restarted, hop, .status, detail: cut.restarts + 1) }
    let owed = discardInbound(hop)
    cut.unanswered = saturatingSum(cut.unanswered, owed)
    // An earlier RESTART may not have sent all recorded events again yet. Those left the hop before it, so
    // the messages among them count as in flight.
    while let (event, isTold) = cut.skipNext() {
      if case .send = event { hop.countInFlight(isOwn: isTold) }
    }
    _ = dropBottom()
    setBottom(.start)
    sentAgain = 0
    request.previousAttempts = request.attemptsBefore
    request.isTransparentRetry = false
    again(cut, from: hop.index + 1, untold: hop.inFlight, cut.below?.another(isRepeat: false))
    return true
  }

  /// Drops everything below `cut`, makes the hops from index `first` on and the attempt anew, and queues a
  /// step that sends the events recorded in `cut` again. `untold` is the number of messages for which the
  /// hops above have not been told `sent`; `next` is the new attempt.
  private func again(_ cut: Cut, from first: Int, untold: Int, _ next: CallBelow?) {
    cut.begin()
    // Queued steps of the dropped hops are removed, and their demand is dropped too. Instead, `sent` is told
    // now for all messages that have left the hop above them and were not reported yet.
    pending.removeAll { step in
      switch step {
      case .sentFrom(let index, _): index >= first - 1
      case .flush(let index, _): index >= first
      case .open, .send, .halfClose, .demand, .endLocally, .headersFromBelow, .messageFromBelow,
        .statusFromBelow, .sentFromBelow, .resolve, .resume, .answer, .put, .finish, .demandBelow, .replay,
        .ran,
        .executorLost, .awaited:
        false
      }
    }
    tellSent(untold, from: first - 1)
    for index in first..<max(hops.count, first) {
      let old = hops[index]
      if old.isPresent {
        discardStations(old)
        destroy(old)
      }
      old.row.replace(old, by: Hop(again: old))
    }
    below = next
    loop.setDeadline(self, request.deadline)
    leg = .unstarted
    door = .queued
    startAt = first
    outboundEnd = hops.count + 1
    outboundCount = 0
    inTransport = 0
    demandBelow = 0
    frontierDemand = cut.unanswered
    measures.headersAt.set(0)
    measures.firstMessageAt.set(0)
    if let wait = cut.wait {
      loop.perform(.replay(cut, first), of: self, at: wait.until)
    } else {
      pending.append(.replay(cut, first))
    }
  }

  /// Sends the events recorded in `cut` again, unless they have been dropped since the step was queued
  /// (invariant I3).
  func replay(_ cut: Cut, _ first: Int) {
    guard cut.state == .waiting else { return }
    cut.wait = nil
    row?._withUnsafeGuaranteedRef { $0.forgetReplaced() }
    let hop = first > 0 && hops[first - 1].cut === cut ? hops[first - 1] : nil
    let restarts = cut.restarts
    if hop == nil { sentAgain = cut.toldAgain }
    cut.play()
    moveDown(.start, at: first)
    // If a hop below `cut` restarts meanwhile, this loop goes on. If the hop above `cut`, or a hop further
    // up, restarts, this loop stops, because the newer RESTART sends everything itself.
    while phase == .live, cut.state == .playing, cut.restarts == restarts,
      let (event, isTold) = cut.takeNext()
    {
      if case .send = event { hop?.countInFlight(isOwn: isTold) }
      moveDown(event, at: first)
    }
    guard phase == .live, cut.state == .playing, cut.restarts == restarts else { return }
    cut.rest()
    if cut.isCutShort {
      endBetween(first, Status(.resourceExhausted, "no memory to send the request again"))
    }
  }

  /// Drops all inbound events that wait at the hop. Returns how many of the dropped messages the hop has to
  /// ask for again.
  private func discardInbound(_ hop: Hop) -> Int {
    guard let station = hop.inbound else { return 0 }
    var owed = 0
    for index in 0..<station.parked.count {
      let parked = station.parked[index]
      guard case .receive = parked.event else { continue }
      if parked.isOwn {
        hop.unreserve()
      } else if parked.heldBytes == 0 {
        owed += 1
      }
    }
    discardInboundStation(hop)
    return owed
  }
}
