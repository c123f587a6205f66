import PenstockWire

/// Whether the function of a synchronous interceptor in one call waits for a thread that runs it. Under the lock of the
/// worker pool.
///
/// | | offered | queued | begun | withdrawn |
/// |---|---|---|---|---|
/// | early | ready | x | x | closed |
/// | ready | x | queued | forget -> closed | forget -> closed |
/// | queued | x | x | unlink -> closed | unlink -> closed |
/// | closed | x | x | x | - |
///
/// In each cell: what has to be done, then the state that follows; "-" changes nothing; "x" can't happen (F1). So a
/// function begins at most once, and never after the end of its call.
enum SyncOffer: StateTable {
  /// The function may not run yet.
  case early
  /// A thread that waits for the call will run the function, or was asked to.
  case ready
  /// The next free worker of the pool will run it. Waiting threads of the call still may.
  case queued(Links)
  /// The function has begun, or will never run.
  case closed

  /// The neighbours in the pool's queue.
  struct Links {
    var next: InterceptedCall?
    var previous: Unmanaged<InterceptedCall>?
  }

  enum Event {
    case offered
    case queued(Links)
    /// A thread begins to run the function.
    case begun
    /// The call has ended.
    case withdrawn
  }

  enum Action {
    case nothing
    /// The function is no more among the ready ones of its call.
    case forget
    /// As `forget`, and it leaves the pool's queue.
    case unlink(Links)
  }

  static var invariant: StaticString { "F1" }
  static var ignored: Action { .nothing }

  /// Carries out the cell of the table; nil: the event can't happen.
  @inline(__always)
  mutating func apply(_ event: Event) -> Action? {
    switch event {
    case .offered: if case .early = self { return become(.ready, .nothing) }
    case .queued(let links): if case .ready = self { return become(.queued(links), .nothing) }
    case .begun, .withdrawn:
      switch self {
      case .ready: return become(.closed, .forget)
      case .queued(let links): return become(.closed, .unlink(links))
      case .early, .closed: if case .withdrawn = event { return become(.closed, .nothing) }
      }
    }
    return nil
  }

  /// Whether a thread has still to be found that runs the function.
  var isReady: Bool { if case .ready = self { true } else { false } }
  /// Whether the function may begin.
  var isOpen: Bool {
    switch self {
    case .ready, .queued: true
    case .early, .closed: false
    }
  }

  /// Sets a neighbour of a function in the queue.
  mutating func link(next: InterceptedCall?) {
    guard case .queued(var links) = self else { return }
    links.next = next
    self = .queued(links)
  }

  mutating func link(previous: Unmanaged<InterceptedCall>?) {
    guard case .queued(var links) = self else { return }
    links.previous = previous
    self = .queued(links)
  }
}
