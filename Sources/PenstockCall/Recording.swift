import PenstockWire

/// What a hop keeps so that it may RESTART: the start as it left the hop, and every message and half-close
/// behind it. It is let go as soon as something inbound has gone above the hop.
final class Recording {
  struct Entry {
    let event: Event
    /// Its `sent` has gone up already, or was never to: it stops at the hop when it comes again.
    var isTold: Bool
    /// The recording keeps it: what is sent is a copy.
    var isKept = true
  }

  let limit: Int
  private(set) var bytes = 0
  private(set) var entries: [Entry] = []
  /// What is sent again, and what has come behind it since RESTART.
  private var again = Fifo<Entry>()
  /// Nothing more of it could be copied.
  private(set) var isCutShort = false
  /// nil until start has left the hop.
  private(set) var start: Request?
  private(set) var below: (any CallBelow)?
  /// Why it cannot be replayed.
  private(set) var failure: Outcome?
  var restarts = 0
  /// Demand that has left the hop downward and that no message has answered.
  var unanswered = 0
  /// A restart waits for the step that replays: what comes to leave the hop goes with it.
  var isReplaying = false

  init(limit: Int) { self.limit = limit }

  func noteStart(_ request: Request, _ below: (any CallBelow)?) {
    guard failure == nil else { return }
    start = request.copy()
    self.below = below
    if start == nil { close(.noMemory) }
  }

  /// It leaves the hop. Between RESTART and the step that replays it waits behind what is sent again, also if it can't
  /// be recorded itself.
  @inline(never) @_optimize(size)
  func note(_ event: Event, isOwn: Bool) {
    if isReplaying { again.append(Entry(event: event, isTold: isOwn, isKept: false)) }
    guard failure == nil else { return }
    switch event {
    case .send(let message):
      if let object = message.codecObject, !object.copies { return close(.unsupported) }
      guard message.charge <= limit - bytes else { return close(.tooLarge) }
      guard let copied = message.copied() else { return close(.noMemory) }
      bytes += message.charge
      entries.append(Entry(event: .send(copied), isTold: isOwn))
    case .halfClose: entries.append(Entry(event: event, isTold: true))
    case .start, .headers, .receive, .status: break
    }
  }

  /// Nothing can be replayed any more, and nothing is kept.
  func close(_ reason: Outcome) {
    if failure == nil { failure = reason }
    entries = []
    start = nil
    below = nil
  }

  @inline(never) @_optimize(size)
  func begin() {
    restarts += 1
    isReplaying = true
    for index in entries.indices {
      entries[index].isTold = true
      again.append(entries[index])
    }
  }

  /// The same without a copy, for what is not to be sent.
  func skipNext() -> (event: Event, isTold: Bool)? { again.popFirst().map { ($0.event, $0.isTold) } }

  /// The next event to send again; nil at the end, and without memory (`isCutShort`).
  func takeNext() -> (event: Event, isTold: Bool)? {
    guard let entry = again.popFirst() else { return nil }
    guard entry.isKept, let message = entry.event.message else { return (entry.event, entry.isTold) }
    guard let copied = message.copied() else {
      isCutShort = true
      close(.noMemory)
      return nil
    }
    return (.send(copied), entry.isTold)
  }
}

extension Hop {
  /// May the status that the hop looks at, or holds, be answered with RESTART.
  func mayRestart(_ status: Status) -> Outcome {
    guard let recording, !status.isLocal, call.phase == .live else { return .state }
    if let failure = recording.failure { return failure }
    guard recording.start != nil else { return .state }
    return recording.restarts < registration.maxRestarts ? .ok : .already
  }
}

extension Call {
  /// What is below the hop goes, and everything that left the hop is sent again. False: it may not, and the
  /// status passes.
  @inline(never) @_optimize(size)
  func restart(_ hop: Hop, _ status: Status) -> Bool {
    let allowed = hop.mayRestart(status)
    guard allowed == .ok, let recording = hop.recording, let start = recording.start, request.become(start)
    else {
      if trace != nil {
        note(.notRestarted, hop, .status, detail: Int((allowed == .ok ? .noMemory : allowed).rawValue))
      }
      return false
    }
    if trace != nil { note(.restarted, hop, .status, detail: recording.restarts + 1) }
    let owed = discardInbound(hop)
    recording.unanswered = saturatingSum(recording.unanswered, owed)
    // What an earlier replay has not come to has left the hop all the same.
    while let (event, isTold) = recording.skipNext() {
      if case .send = event { hop.countInFlight(isOwn: isTold) }
    }
    recording.begin()
    epoch += 1
    // What those below have asked for dies with them; what they have not told as `sent` is told now.
    pending.removeAll { step in
      switch step {
      case .sentFrom(let index, _): index >= hop.index
      case .flush(let index, _): index > hop.index
      default: false
      }
    }
    tellSent(hop.inFlight, from: hop.index)
    for index in (hop.index + 1)..<max(hops.count, hop.index + 1) {
      let old = hops[index]
      if old.isPresent {
        discardStations(old)
        destroy(old)
      }
      hops[index] = Hop(again: old)
    }
    below = recording.below?.another()
    loop.setDeadline(self, request.deadline)
    leg = .unstarted
    startAt = hop.index + 1
    outboundEnd = hops.count + 1
    outboundCount = 0
    inTransport = 0
    demandBelow = 0
    frontierDemand = recording.unanswered
    measures.headersAt.set(0)
    measures.firstMessageAt.set(0)
    pending.append(.replay(hop))
    return true
  }

  @inline(never) @_optimize(size)
  func replay(_ hop: Hop) {
    guard let recording = hop.recording, recording.isReplaying, hop.isActive else { return }
    recording.isReplaying = false
    let restarts = recording.restarts
    move(.start, beyond: hop)
    // A RESTART below goes on with what this one sends; another one here, or above, sends everything itself.
    while phase == .live, recording.restarts == restarts, hop.life != .gone,
      let (event, isTold) = recording.takeNext()
    {
      if case .send = event { hop.countInFlight(isOwn: isTold) }
      move(event, beyond: hop)
    }
    if recording.isCutShort, phase == .live, recording.restarts == restarts, hop.life != .gone {
      endBetween(hop.index + 1, Status(.resourceExhausted, "no memory to send the request again"))
    }
  }

  /// Everything inbound that stands at the hop goes. How much demand it leaves unanswered.
  @inline(never) @_optimize(size)
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
