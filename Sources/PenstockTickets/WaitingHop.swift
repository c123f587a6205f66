public import PenstockCall
public import PenstockWire
import PenstockLoop

/// A handle of a hop at an event that may wait. A callback in asynchronous style gets such a handle, and the
/// user has to resolve the event with it. `Tickets.hop` makes a handle for a ticket; with that handle the
/// user may resolve the event, but need not.
///
/// If the event is resolved while its callback runs, the callback returns the verdict, and no ticket is
/// needed. If the callback returns before the event is resolved, a ticket is taken and the event is paused, or
/// held if the user has resolved it with HOLD.
/// `@unchecked`: all mutable state is under the lock.
public final class WaitingHop: BoundHop, @unchecked Sendable {
  private enum State {
    /// The callback runs, and the event is not resolved yet.
    case fresh
    /// The event was resolved while the callback was running. The callback returns this verdict.
    case answered(Verdict)
    /// The callback has returned, and the event waits at the hop.
    case waiting(ticket: UInt64)
    case spent
    /// The call has continued or ended without the event.
    case gone
    /// The event is the status of a cancel or a deadline. No hop can stop such an event, so it continues
    /// without a verdict.
    case passing
  }

  private let kind: EventKind
  private let owesEnd: Bool
  /// The objects that the functions of the handle return. The handle holds them, so that the user may use
  /// them as long as the handle.
  private let shownMetadata: Metadata?
  private let shownStatus: Status?
  private let shownMessage: Message?
  private let shownStart: Request?
  private let lock = Lock()
  private var state = State.fresh
  /// The verdict that the callback returns if the event is not resolved yet: `.pause`, or `.hold` if the user has
  /// asked for it.
  private var waits = Verdict.pause
  /// Whether the user has ended the call through this handle.
  private var hasEnded = false

  /// Makes the handle for the user's callback. Called within the ordinary callback of the hop for this event.
  init(_ hop: Hop, _ kind: EventKind) {
    self.kind = kind
    owesEnd = true
    shownMetadata = hop.metadata
    shownStatus = hop.status
    shownMessage = hop.message
    shownStart = hop.editedStart
    super.init(hop)
    if shownStatus?.isLocal ?? false { state = .passing }
    hop.lend()
  }

  /// Makes the handle for a ticket, on any thread. `start`: the request that belongs to the ticket's event.
  init(_ hop: Hop, _ event: Event, ticket: UInt64, start: Request?) {
    kind = event.kind
    shownStart = start
    owesEnd = false
    switch event {
    case .start: (shownMetadata, shownStatus, shownMessage) = (start?.metadata, nil, nil)
    case .headers(let headers): (shownMetadata, shownStatus, shownMessage) = (headers, nil, nil)
    case .status(let status): (shownMetadata, shownStatus, shownMessage) = (status.trailers, status, nil)
    case .send(let message), .receive(let message):
      (shownMetadata, shownStatus, shownMessage) = (nil, nil, message)
    case .halfClose: (shownMetadata, shownStatus, shownMessage) = (nil, nil, nil)
    }
    state = .waiting(ticket: ticket)
    super.init(hop)
  }

  /// If the user had to resolve the event and has not done so, the call ends with INTERNAL (law 7 in
  /// docs/laws.md). The callback has returned by now, because it holds a reference to the handle
  /// while it runs.
  deinit {
    if owesEnd, case .waiting(let ticket) = state {
      _ = Tickets.resolve(ticket, .broken("released an event that it had not resolved"))
    }
  }

  // MARK: - Any thread: the event

  private var isOpen: Bool {
    var isOpen = false
    whileShown { isOpen = true }
    return isOpen
  }

  /// Runs `look` if the event still waits or its callback still runs. During `look` no other thread can
  /// resolve the event.
  private func whileShown(_ look: () -> Void) {
    // In a forked child the lock is not taken, because a thread that exists only in the parent may hold it.
    if hop.isForked { return }
    lock.lock()
    defer { lock.unlock() }
    switch state {
    case .fresh, .passing: look()
    case .waiting(let ticket):
      _ = Tickets.whileOpen(ticket) {
        look()
        return .ok
      }
    case .answered, .spent, .gone: break
    }
  }

  public override var event: EventKind { isOpen ? kind : .none }
  public override var metadata: Metadata? { isOpen ? shownMetadata : nil }
  public override var status: Status? { isOpen ? shownStatus : nil }
  public override var message: Message? { isOpen ? shownMessage : nil }

  public override func setMessage(_ fresh: Message) -> Outcome {
    guard let shownMessage else { return isOpen ? refuse(.noMessage) : .gone }
    // After the exchange `fresh` has the old contents. They are released after the lock, because the release
    // may run user code.
    defer { withExtendedLifetime(fresh) {} }
    return whileOpen {
      guard shownMessage.isObject == fresh.isObject else { return hop.refuseForm() }
      shownMessage.exchange(with: fresh)
      return .ok
    }
  }

  /// A copy of the present request. Hops below change the call's request as soon as the start event
  /// continues.
  public override var request: Request? {
    var seen: Request?
    if let shownStart { whileShown { seen = shownStart.with(shownStart.metadata) } }
    return seen
  }

  /// Changes the request that a RESTART sends again. The event has to be a status. While a start event waits,
  /// this function changes nothing, because other threads may read the request; only its metadata may be
  /// changed, by other functions.
  public override func edit(_ change: (Request) -> Outcome) -> Outcome {
    whileOpen {
      guard kind == .status else { return refuse(kind == .start ? .startWaits : .startOrStatusOnly) }
      return shownStart.map { change($0) } ?? refuse(hop.whyNoStart(shownStatus))
    }
  }

  public override func editRecord(_ edit: (Cut) -> Outcome) -> Outcome {
    whileOpen { kind == .status ? hop.editRecord(shownStart, shownStatus, edit) : refuse(.statusOnly) }
  }

  /// Runs `change` if the event waits or its callback runs, and no other thread can resolve the event in the
  /// meantime. Otherwise returns `.gone`.
  private func whileOpen(_ change: () -> Outcome) -> Outcome {
    lock.lock()
    defer { lock.unlock() }
    switch state {
    case .fresh: return hop.hasEnded ? .gone : change()
    case .waiting(let ticket): return Tickets.whileOpen(ticket, change)
    case .answered, .passing, .spent, .gone: return .gone
    }
  }

  // MARK: - Any thread: its end

  public override func resolve(_ verdict: Verdict) -> Outcome {
    if verdict == .hold { return hold() }
    guard kind.resolves(with: verdict) else { return .invalidArgument }
    let (before, isOver) = noteAnswer(verdict)
    switch before {
    case .answered, .spent: return .already
    case .gone: return .gone
    case .fresh: return isOver ? .gone : .ok
    case .passing: return verdict == .next && !isOver ? .ok : .gone
    case .waiting(let ticket): return Tickets.resolve(ticket, .verdict(verdict))
    }
  }

  /// Lets later events of the lane be shown while this event waits. The callback tells the call how an event
  /// waits, so it has to run still.
  private func hold() -> Outcome {
    lock.lock()
    defer { lock.unlock() }
    switch state {
    case .fresh:
      if hop.hasEnded { return .gone }
      waits = .hold
      return .ok
    case .waiting(let ticket): return Tickets.whileOpen(ticket) { refuse(.callbackHasReturned) }
    case .answered, .spent: return .already
    case .passing, .gone: return .gone
    }
  }

  /// Ends the call with `status`, which the call takes over. Whether the event waits, its callback runs, or it was
  /// resolved before: the end counts, once.
  public override func end(_ status: Status) -> Outcome {
    let (before, isOver) = noteAnswer(nil)
    if lock.withLock({ hasEnded }) { return .already }
    var outcome: Outcome
    switch before {
    case .passing, .gone: return .gone
    case .fresh, .answered, .spent: outcome = isOver ? .gone : hop.finish(status)
    case .waiting(let ticket):
      outcome = Tickets.resolve(ticket, .finish(status))
      // Somebody else has used the ticket.
      if outcome == .already { outcome = hop.finish(status) }
    }
    if outcome == .ok { lock.withLock { hasEnded = true } }
    return outcome
  }

  /// Notes that the event does not wait for an answer any more. `verdict`: the answer; nil: an end. Returns the
  /// state before that, and whether the hop's part in the call is over.
  private func noteAnswer(_ verdict: Verdict?) -> (State, isOver: Bool) {
    let isOver = hop.hasEnded
    lock.lock()
    defer { lock.unlock() }
    let before = state
    switch before {
    case .fresh: state = isOver ? .gone : .answered(verdict ?? .next)
    case .waiting: state = .spent
    case .passing: if verdict == .next { state = .spent }
    case .answered, .spent, .gone: break
    }
    return (before, isOver)
  }

  /// The ticket of the event; 0: no ticket. While the callback runs, this function takes a ticket. If the
  /// callback then returns before the event is resolved, the event waits with this ticket. After the
  /// callback, this function returns the ticket with which the event waits.
  public override func takeTicket() -> UInt64 {
    lock.lock()
    let seen = state
    lock.unlock()
    switch seen {
    case .fresh: return hop.takeTicket()
    case .waiting(let ticket): return ticket
    case .answered, .passing, .spent, .gone: return 0
    }
  }

  public override func becomeShared() { hop.becomeShared() }

  // MARK: - The callback

  /// Called when the callback has returned. Resolves the event if the callback has set an answer, or lets the
  /// event wait with a ticket. Returns the verdict.
  func settle() -> Int32 {
    if let answer = answer() { return answer.rawValue }
    let ticket = hop.takeTicket()
    lock.lock()
    // The ticket is 0 if the call has ended while an executor ran the callback, or if there is no memory.
    // Without memory the call ends with INTERNAL: it does so for PAUSE, but would release a HOLD some time.
    if case .fresh = state { state = ticket == 0 ? .gone : .waiting(ticket: ticket) }
    let wait = ticket == 0 ? .pause : waits
    lock.unlock()
    // If another thread has just resolved the event, that thread's verdict is returned. The call then marks
    // the ticket that was taken as spent.
    return (answer() ?? wait).rawValue
  }

  private func answer() -> Verdict? {
    lock.lock()
    defer { lock.unlock() }
    switch state {
    case .answered(let verdict):
      state = .spent
      return verdict
    case .passing: return .next
    case .fresh, .waiting, .spent, .gone: return nil
    }
  }
}
