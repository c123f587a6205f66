import Synchronization

// The life of a hop, and its face: the part of it that other threads may see.

/// A hop's life in one call. It never goes back (invariant I1). `Hop.become` changes it; `leaveRun` sets the
/// life of a hop that leaves the run, and before the next call `renew` sets it to `waiting` again. A hop
/// without `create` goes from `waiting` to `starting` at once.
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
  /// `create` runs: executors may be chosen.
  case creating
  /// Start is shown to the hop or waits at it, and the hop may take the call.
  case starting
  /// Start has left downward.
  case passing
  /// The hop itself has half-closed: events from above go no further.
  case closed
  /// The half-close has left downward.
  case halfClosed
  /// The hop's verdict on start was TAKE: it answers instead of the server.
  case answering
  /// The hop's part is over: only `destroy` follows.
  case over(Ending)
  /// `destroy` has been called.
  case gone
}

extension Life {
  /// The hop's face in this life; nil: the face does not change.
  fileprivate var face: Face? {
    switch self {
    case .waiting, .creating: .waiting
    case .starting: .mayAnswer
    case .passing: .open
    case .closed, .halfClosed: .halfClosed
    case .answering: .answering
    // The face stays until `destroy`, so other threads may use the hop as before.
    case .over: nil
    case .out, .gone: .over
    }
  }
}

/// The ways in which a hop's part in a call ends (law 2 in docs/interceptors.md).
enum Ending: Equatable {
  /// The status has left the hop upward.
  case passed
  /// The hop ended the call itself.
  case own
  /// The hop was told by on_cancel.
  case told
}

/// The part of a hop's state that any thread may read, in one byte: which actions the hop may take now
/// (invariant I14). Only the driving thread writes it.
enum Face: UInt8 {
  /// The hop has no face of its own yet: the row's face counts, as for all hops of the run.
  case asRun
  case waiting
  /// The hop may still take the call: its deliveries count if its verdict is TAKE.
  case mayAnswer
  /// Start has left downward: the hop may inject messages.
  case open
  case halfClosed
  case answering
  /// The hop can do nothing in the call any more.
  case over
}

/// The kinds of events that a hop has delivered as its answer; they decide which kinds may still follow.
/// "bare": without headers. Any thread.
enum Answer: UInt8 {
  case nothing, headers, bareMessages, messages, bareEnd, end

  var hasEnded: Bool { self == .bareEnd || self == .end }
  private var hasHeaders: Bool { self == .headers || self == .messages || self == .end }

  /// The state after one more inbound event, or the reason why that event may not come.
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

/// The last action of a hop that decides what it may do next. One state is enough for both actions, because a
/// hop either answers in the server's place or sends events of its own to the server, never both.
enum Deed: UInt8 {
  case none
  /// A message of the hop's answer was refused, and no later message was accepted.
  case refused
  /// The hop has asked to half-close.
  case halfClosed
}

extension Hop {
  /// Whether a message of the hop's answer was refused, and no later message was accepted. Any thread.
  var hasRefused: Bool { deed.load(ordering: .acquiring) == Deed.refused.rawValue }

  /// Notes the hop's half-close. False: it has half-closed before. Any thread.
  func noteHalfClose() -> Bool {
    deed.exchange(Deed.halfClosed.rawValue, ordering: .acquiringAndReleasing) != Deed.halfClosed.rawValue
  }

  /// Whether start has come to the hop, and `create`, if there is one, has returned NEXT.
  var isEntered: Bool {
    switch life {
    case .waiting, .out, .creating: false
    case .starting, .passing, .closed, .halfClosed, .answering, .over, .gone: true
    }
  }

  /// Whether the hop sees events: it has been entered, and its part in the call is not over.
  var isActive: Bool {
    switch life {
    case .starting, .passing, .closed, .halfClosed, .answering: true
    case .waiting, .out, .creating, .over, .gone: false
    }
  }

  /// Whether the hop was entered, and is not destroyed.
  var isPresent: Bool { isEntered && life != .gone }

  /// Changes the hop's life, on the driving thread. A hop of the run has no face of its own, so its face
  /// stays.
  func become(_ next: Life) {
    #if PENSTOCK_CHECKS
      checkStep(to: next)
    #endif
    life = next
    if face.load(ordering: .relaxed) != Face.asRun.rawValue, let face = next.face { wear(face) }
  }

  /// Takes the hop out of the run, with this life: from now on it has counts of its own.
  func leaveRun(_ life: Life) {
    self.life = life
    wear(life.face ?? .waiting)
  }

  /// Gives the hop a face of its own.
  func wear(_ face: Face) { self.face.store(face.rawValue, ordering: .releasing) }

  /// The face that the hop shows to other threads. Any thread.
  var seen: Face {
    // The row's face is read first: a thread that sees a face that the row got after the hop was set apart
    // also sees the hop's own face.
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

  /// Called when start leaves the hop downward.
  func startLeft() {
    become(.passing)
    forgetAnswers()
    answer.store(Answer.nothing.rawValue, ordering: .releasing)
    // The note of a half-close stays, because after a RESTART the half-close leaves again.
    if hasRefused { deed.store(Deed.none.rawValue, ordering: .releasing) }
  }

  /// The events that the hop has delivered as its answer. Any thread.
  var answered: Answer { Answer(rawValue: answer.load(ordering: .acquiring)) ?? .nothing }

  /// Notes that an event of this kind is delivered, if it may be. Any thread.
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
