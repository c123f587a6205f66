public import PenstockCall
public import PenstockWire

/// What a callback in asynchronous style owes its event: to be called once, on any thread.
///
/// Called while its callback still runs it costs no ticket: the callback's verdict says all. Only where the callback
/// returns without is a ticket taken, and the event paused.
/// `@unchecked`: what changes is under the lock.
public final class Completion: @unchecked Sendable {
  enum Answer {
    case verdict(Verdict)
    case finish(Status)

    var isNext: Bool {
      if case .verdict(.next) = self { return true }
      return false
    }
  }

  private enum State {
    /// The callback is running.
    case fresh
    /// Called while the callback was running.
    case answered(Answer)
    /// The callback has returned, and the event waits.
    case waiting(ticket: UInt64)
    case spent
    /// The call went on without it.
    case gone
    /// The end of a call that can't be held up: it goes on by itself.
    case passing

    /// Only the first to answer changes the message, and only while its event waits.
    func exchange(_ message: Message, with fresh: ByteBuffer) {
      switch self {
      case .fresh: message.exchange(with: fresh)
      case .waiting(let ticket): Tickets.exchange(message, of: ticket, with: fresh)
      case .answered, .passing, .spent, .gone: break
      }
    }
  }

  private let hop: Hop
  private let kind: EventKind
  /// What the callee was shown, kept for it.
  private let metadata: Metadata?
  private let status: Status?
  private let lock = Lock()
  private var message: Message?
  private var state = State.fresh

  /// In the callback.
  init(_ hop: Hop, _ kind: EventKind) {
    self.hop = hop
    self.kind = kind
    metadata = hop.metadata
    status = hop.status
    message = hop.message
    if status?.isLocal ?? false { state = .passing }
    hop.lend()
  }

  /// The last reference has gone. Within its callback the callback itself has one.
  deinit {
    if case .waiting(let ticket) = state {
      _ = Tickets.resolve(ticket, .broken("dropped its completion"))
    }
  }

  // MARK: - Any thread

  public func next() -> Outcome { end(.verdict(.next), message: nil) }

  public func next(_ bytes: ByteView) -> Outcome {
    guard kind == .send || kind == .receive else { return .state }
    guard let fresh = ByteBuffer(copying: bytes) else { return .noMemory }
    return end(.verdict(.next), message: fresh)
  }

  public func resolve(_ verdict: Verdict) -> Outcome {
    guard kind.resolves(with: verdict) else { return .invalidArgument }
    return end(.verdict(verdict), message: nil)
  }

  /// `status` is the call's from now on.
  public func cancel(_ status: Status) -> Outcome { end(.finish(status), message: nil) }

  /// The hop may be used on any thread from now on, as one that was retained.
  public func shareHop() -> Hop {
    hop.becomeShared()
    return hop
  }

  @inline(never) @_optimize(size)
  private func end(_ answer: Answer, message fresh: ByteBuffer?) -> Outcome {
    if hop.isForked { return .forked }
    let hasEnded = hop.hasEnded
    lock.lock()
    let before = state
    switch before {
    case .fresh: state = hasEnded ? .gone : .answered(answer)
    case .waiting: state = .spent
    case .passing: if answer.isNext { state = .spent }
    case .answered, .spent, .gone: break
    }
    let original = message
    message = nil
    // Under the lock: the callback's thread goes on as soon as it sees the answer.
    if let fresh, let original, !hasEnded { before.exchange(original, with: fresh) }
    lock.unlock()
    switch before {
    case .answered, .spent: return .already
    case .gone: return .gone
    case .fresh: return hasEnded ? .gone : .ok
    case .passing: return answer.isNext && !hasEnded ? .ok : .gone
    case .waiting(let ticket):
      switch answer {
      case .verdict(let verdict): return Tickets.resolve(ticket, .verdict(verdict))
      case .finish(let status): return Tickets.resolve(ticket, .finish(status))
      }
    }
  }

  // MARK: - The callback

  /// The callback has returned: its verdict.
  func settle() -> Int32 {
    if let answer = answer() { return apply(answer) }
    let ticket = hop.takeTicket()
    lock.lock()
    // None: the call has ended while an executor ran the callback; or there is no memory, which is law 7.
    if case .fresh = state { state = ticket == 0 ? .gone : .waiting(ticket: ticket) }
    lock.unlock()
    // NEXT spends a ticket that was taken in vain.
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
    case .finish(let status):
      _ = hop.finish(status)
      return Verdict.next.rawValue
    }
  }
}
