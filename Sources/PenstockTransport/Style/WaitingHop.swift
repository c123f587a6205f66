public import PenstockCall
public import PenstockWire

/// A handle of a hop at an event that may wait. A callback in asynchronous style gets such a handle, with
/// which the user has to resolve the event. `Tickets.hop` makes a handle for a ticket, which the user need
/// not use.
///
/// An event that is resolved while its callback still runs needs no ticket: the callback's verdict is enough.
/// A ticket is taken, and the event paused, only if the callback returns before the event is resolved.
/// `@unchecked`: all mutable state is under the lock.
public final class WaitingHop: BoundHop, @unchecked Sendable {
  enum Answer {
    case verdict(Verdict)
    case end(Status)

    var isNext: Bool {
      if case .verdict(.next) = self { return true }
      return false
    }
  }

  private enum State {
    /// The callback is running.
    case fresh
    /// The event was resolved while the callback was running.
    case answered(Answer)
    /// The callback has returned, and the event waits.
    case waiting(ticket: UInt64)
    case spent
    /// The call went on without the event.
    case gone
    /// The event is the status of a cancel or a deadline, which no hop can hold up: the event goes on by
    /// itself.
    case passing
  }

  private let kind: EventKind
  private let owesEnd: Bool
  /// The objects that the handle shows. The handle keeps them, so that the user may use them as long as the
  /// handle.
  private let shownMetadata: Metadata?
  private let shownStatus: Status?
  private let shownMessage: Message?
  private let shownStart: Request?
  private let lock = Lock()
  private var state = State.fresh
  /// Whether the call was ended through this handle.
  private var hasEnded = false

  /// Makes the handle that the callback of the event gets. Called within the ordinary callback of the hop.
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

  /// Makes the handle for a ticket, on any thread. `start`: the request that goes with the ticket's event.
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

  /// If the user had to resolve the event, and it still waits, the call ends by law 7. The callback has
  /// returned by now, because it holds a reference to the handle while it runs.
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

  /// Runs `look` if the handle still shows its event, so that no other thread ends the wait of the event
  /// meanwhile.
  private func whileShown(_ look: () -> Void) {
    // In a forked child the lock may be held by a thread that exists only in the parent.
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
    // `fresh` gets the old contents. They are released after the lock, because user code may free them.
    defer { withExtendedLifetime(fresh) {} }
    return whileOpen {
      guard shownMessage.isObject == fresh.isObject else { return hop.refuseForm() }
      shownMessage.exchange(with: fresh)
      return .ok
    }
  }

  /// A copy of the request as it is now, because hops below change the call's request as soon as start goes
  /// on.
  public override var request: Request? {
    var seen: Request?
    if let shownStart { whileShown { seen = shownStart.with(shownStart.metadata) } }
    return seen
  }

  /// Changes the request that a RESTART sends; the event has to be a status. While a start waits, only its
  /// metadata may be changed, and not by this function, because other threads may read the rest.
  public override func edit(_ change: (Request) -> Outcome) -> Outcome {
    whileOpen {
      guard kind == .status else { return refuse(kind == .start ? .startWaits : .startOrStatusOnly) }
      return shownStart.map { change($0) } ?? refuse(hop.whyNoStart(shownStatus))
    }
  }

  /// Runs `change` if the event waits, so that no other thread ends the wait meanwhile; otherwise returns
  /// `.gone`.
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
    guard kind.resolves(with: verdict) else { return .invalidArgument }
    return finish(.verdict(verdict))
  }

  /// Ends the call with `status`, which the call takes over. If the event does not wait any more, the call is
  /// ended as by any thread that has kept a hop (`Hop.finish`).
  public override func end(_ status: Status) -> Outcome {
    let outcome = finish(.end(status))
    guard outcome == .already, !lock.withLock({ hasEnded }) else { return note(outcome) }
    return note(hop.finish(status))
  }

  /// If `outcome` is `.ok`, notes that this handle has ended the call, because it may do so only once.
  private func note(_ outcome: Outcome) -> Outcome {
    if outcome == .ok { lock.withLock { hasEnded = true } }
    return outcome
  }

  @inline(never) @_optimize(size)
  private func finish(_ answer: Answer) -> Outcome {
    let hasEnded = hop.hasEnded
    lock.lock()
    let before = state
    switch before {
    case .fresh: state = hasEnded ? .gone : .answered(answer)
    case .waiting: state = .spent
    case .passing: if answer.isNext { state = .spent }
    case .answered, .spent, .gone: break
    }
    lock.unlock()
    switch before {
    case .answered, .spent: return .already
    case .gone: return .gone
    case .fresh: return hasEnded ? .gone : .ok
    case .passing: return answer.isNext && !hasEnded ? .ok : .gone
    case .waiting(let ticket):
      switch answer {
      case .verdict(let verdict): return Tickets.resolve(ticket, .verdict(verdict))
      case .end(let status): return Tickets.resolve(ticket, .finish(status))
      }
    }
  }

  /// The ticket of the event; 0: there is none. While the callback runs, this function takes a ticket, with
  /// which the event waits if the callback returns before the event is resolved. Later it returns the ticket
  /// with which the event waits.
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

  /// Called when the callback has returned: settles the event, or lets it wait with a ticket. Returns the verdict.
  func settle() -> Int32 {
    if let answer = answer() { return apply(answer) }
    let ticket = hop.takeTicket()
    lock.lock()
    // There is no ticket if the call has ended while an executor ran the callback, or if there is no memory.
    // Without memory the call ends by law 7.
    if case .fresh = state { state = ticket == 0 ? .gone : .waiting(ticket: ticket) }
    lock.unlock()
    // If another thread has resolved the event meanwhile, its verdict is returned. The call then spends the
    // ticket that was taken.
    if let answer = answer() { return apply(answer) }
    return Verdict.pause.rawValue
  }

  private func answer() -> Answer? {
    lock.lock()
    defer { lock.unlock() }
    switch state {
    case .answered(let answer):
      state = .spent
      return answer
    case .passing: return .verdict(.next)
    case .fresh, .waiting, .spent, .gone: return nil
    }
  }

  private func apply(_ answer: Answer) -> Int32 {
    switch answer {
    case .verdict(let verdict): return verdict.rawValue
    case .end(let status):
      _ = hop.finish(status)
      return Verdict.next.rawValue
    }
  }
}
