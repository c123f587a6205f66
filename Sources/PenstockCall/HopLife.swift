import Synchronization

// The life of a hop: what has happened to it in its call. Its `Face` is the part that other threads may see.

/// A hop's life in one call. It never goes back (invariant I1). `Hop.become` changes it. While a hop is in
/// the run (the top hops, which count together) its life is not kept up to date; `splitOff` sets it. Before
/// the next call `renew` sets it to `waiting` again. A hop without `create` goes from `waiting` to `starting`
/// at once.
///
/// ```
///            comes to it        create: NEXT       leaves it        leaves it
///  waiting ---- start ----> creating --------> starting -- start --> passing -- half-close --> halfClosed
///                              | SKIP, law 7       | TAKE              | its own half-close
///                              v                   v                   v
///                             out              answering            closed
///
///  starting, passing, halfClosed, closed, answering -- an ending --> over -- destroy --> gone
/// ```
enum Life: Equatable {
  /// Start has not come.
  case waiting
  /// `create` has returned SKIP or has broken law 7: the hop takes no part in this call.
  case out
  /// `create` runs: the hop may choose its executors.
  case creating
  /// The hop sees start, or start waits at it; the hop may still return TAKE.
  case starting
  /// Start has left downward.
  case passing
  /// The hop has made a half-close itself: outbound events from above are dropped at the hop.
  case closed
  /// The caller's half-close has left the hop downward.
  case halfClosed
  /// The hop has returned TAKE for start: it answers instead of the server.
  case answering
  /// The hop sees no more events; only `destroy` follows.
  case over(Ending)
  /// `destroy` has been called.
  case gone
}

extension Life {
  /// The `Face` that belongs to this life; nil: the `Face` stays as it is.
  fileprivate var face: Face? {
    switch self {
    case .waiting, .creating: .waiting
    case .starting: .mayAnswer
    case .passing: .open
    case .closed, .halfClosed: .halfClosed
    case .answering: .answering
    // The `Face` stays until `destroy`, so other threads may use the hop as before.
    case .over: nil
    case .out, .gone: .over
    }
  }
}

/// The ways in which a hop's part in a call ends (law 2 in docs/laws.md).
enum Ending: Equatable {
  /// The status has left the hop upward.
  case passed
  /// The hop has ended the call itself.
  case own
  /// The hop has learned of the call's end by on_cancel.
  case told
}

/// The part of a hop's state that any thread may read, as one byte: it says which actions the hop may take
/// now (invariant I14). Only the driving thread writes it.
enum Face: UInt8 {
  /// The value of all hops of the `Run`: their common `Face` is in the `HopRow`, which holds the call's hops.
  case asRun
  case waiting
  /// The hop may still return TAKE; only then the events that it delivers count.
  case mayAnswer
  /// Start has left the hop downward: the hop may inject messages and half-close.
  case open
  case halfClosed
  case answering
  /// The hop can do nothing in the call any more.
  case over
}

/// Which kinds of events a hop has delivered as its own answer; that decides which kinds may still follow.
/// "bare" means without headers. Any thread.
enum Answer: UInt8 {
  case nothing, headers, bareMessages, messages, bareEnd, end

  var hasEnded: Bool { self == .bareEnd || self == .end }
  private var hasHeaders: Bool { self == .headers || self == .messages || self == .end }

  /// The state after one more event of the answer, or the reason why that event is not allowed now.
  func after(_ kind: EventKind) -> (Answer, Outcome) {
    switch kind {
    case .headers:
      if self == .nothing { return (.headers, .ok) }
      return (self, hasHeaders ? .already : .state)
    case .receive:
      if hasEnded { return (self, .state) }
      return (hasHeaders ? .messages : .bareMessages, .ok)
    case .status, .none, .start, .send, .halfClose, .cancel, .demand, .sent, .create, .destroy, .pick:
      if hasEnded { return (self, .already) }
      return (hasHeaders ? .end : .bareEnd, .ok)
    }
  }
}

/// Who decides how the hop's part in the call ends. Any thread moves it from `open` to `ending`; only the driving
/// thread makes the other moves. So an end by the hop and the status that passes the hop exclude each other.
enum Fate: UInt8 {
  case open
  /// The hop has ended the call, and the driving thread has not carried this out yet. Meanwhile no verdict of the
  /// hop counts, and no status leaves it (invariant I18).
  case ending
  /// The driving thread carries the hop's end out: events leave the hop before its status.
  case settling
  /// The hop's part is over.
  case over
}

/// The hop's last act that limits its next acts. One value is enough for both acts, because a hop either
/// answers in the server's place or sends its own events to the server, never both.
enum Deed: UInt8 {
  case none
  /// A message of the hop's own answer was refused, and the hop has delivered none since.
  case refused
  /// The hop has asked to half-close toward the server.
  case halfClosed
}

extension Hop {
  /// Whether a message of the hop's own answer was refused, and the hop has delivered none since. Any thread.
  var hasRefused: Bool { deed.load(ordering: .acquiring) == Deed.refused.rawValue }

  /// Notes that the hop ends the call. From now on nothing else decides about the hop's events, until the driving
  /// thread has carried out the end. `.already`: the hop has ended the call before. `.gone`: its part is over. Any
  /// thread.
  func claimEnd() -> Outcome {
    let (isFirst, seen) = fate.compareExchange(
      expected: Fate.open.rawValue, desired: Fate.ending.rawValue, ordering: .acquiringAndReleasing)
    if isFirst { return .ok }
    return seen == Fate.ending.rawValue ? .already : .gone
  }

  /// Whether the hop has ended the call, and the driving thread has not carried this out yet. Any thread.
  public var isEnding: Bool { fate.load(ordering: .acquiring) == Fate.ending.rawValue }

  /// Whether the driving thread carries the hop's end out.
  var isSettling: Bool { fate.load(ordering: .relaxed) == Fate.settling.rawValue }
  func settleEnd() { fate.store(Fate.settling.rawValue, ordering: .releasing) }

  /// Notes that the status leaves the hop. Returns false if the hop has ended the call before.
  func claimPassing() -> Bool {
    fate.compareExchange(
      expected: Fate.open.rawValue, desired: Fate.over.rawValue, ordering: .acquiringAndReleasing
    ).exchanged
  }

  /// Notes that the hop half-closes toward the server. Returns false if it has half-closed before. Any
  /// thread.
  func noteHalfClose() -> Bool {
    deed.exchange(Deed.halfClosed.rawValue, ordering: .acquiringAndReleasing) != Deed.halfClosed.rawValue
  }

  /// Whether start has come to the hop, and `create`, if the interceptor has it, has returned NEXT.
  var isEntered: Bool {
    switch life {
    case .waiting, .out, .creating: false
    case .starting, .passing, .closed, .halfClosed, .answering, .over, .gone: true
    }
  }

  /// Whether the hop sees events: start has come to it, and its part in the call is not over.
  var isActive: Bool {
    switch life {
    case .starting, .passing, .closed, .halfClosed, .answering: true
    case .waiting, .out, .creating, .over, .gone: false
    }
  }

  /// Whether start has come to the hop, and `destroy` has not been called yet.
  var isPresent: Bool { isEntered && life != .gone }

  /// Changes the hop's life, and its `Face` with it, on the driving thread. The `Face` of a hop in the run
  /// (the hops that count together) is common to all of them, so it does not change.
  func become(_ next: Life) {
    #if PENSTOCK_CHECKS
      checkStep(to: next)
    #endif
    life = next
    if case .over = next { fate.store(Fate.over.rawValue, ordering: .releasing) }
    if face.load(ordering: .relaxed) != Face.asRun.rawValue, let face = next.face { wear(face) }
  }

  /// Takes the hop out of the run (the hops that count together), with this life: from now on it has its own
  /// counts and its own `Face`.
  func splitOff(_ life: Life) {
    self.life = life
    wear(life.face ?? .waiting)
  }

  /// Sets the hop's own `Face`, which replaces the common one of the `Run`.
  func wear(_ face: Face) { self.face.store(face.rawValue, ordering: .releasing) }

  /// The hop's `Face` now: its own one, or the common one of the `Run`. Any thread.
  var seen: Face {
    // The common `Face` is read first. It changes again only after the hop has got its own; so a thread that
    // sees the later common `Face` also sees the hop's own.
    let shared = row.face.load(ordering: .acquiring)
    let own = face.load(ordering: .acquiring)
    return Face(rawValue: own == Face.asRun.rawValue ? shared : own) ?? .waiting
  }

  var isOver: Bool { seen == .over }
  public var mayDeliver: Bool {
    switch seen {
    case .mayAnswer, .answering: true
    case .asRun, .waiting, .open, .halfClosed, .over: false
    }
  }

  /// Notes that start has left the hop downward, so that the hop can't answer the call itself any more.
  func startPassed() {
    become(.passing)
    forgetAnswers()
    answer.store(Answer.nothing.rawValue, ordering: .releasing)
    // `Deed.halfClosed` stays, because after a RESTART the half-close is sent again.
    if hasRefused { deed.store(Deed.none.rawValue, ordering: .releasing) }
  }

  /// Which events the hop has delivered as its own answer. Any thread.
  var answered: Answer { Answer(rawValue: answer.load(ordering: .acquiring)) ?? .nothing }

  /// Notes that the hop delivers an event of its own answer. Returns `.ok`, or the reason why the event is
  /// not allowed now. Any thread.
  func noteDelivered(_ kind: EventKind) -> Outcome {
    var seen = answer.load(ordering: .acquiring)
    while true {
      let (next, outcome) = (Answer(rawValue: seen) ?? .nothing).after(kind)
      if outcome != .ok { return outcome }
      let (done, now) = answer.weakCompareExchange(
        expected: seen, desired: next.rawValue, ordering: .acquiringAndReleasing)
      if done { return .ok }
      seen = now
    }
  }
}
