import CSystem
public import PenstockCall
import PenstockWire
import Synchronization

/// The loop's part of a call's state: the call's item in the inbox, its timers, its tickets. The call owns this
/// object.
final class CallItem: InboxItem {
  /// A reference that keeps the call while the item is posted, until it has run. One thread posts at a time
  /// (`Call.submit`).
  fileprivate var posted: Unmanaged<Call>?
  /// Whether the next run is the first: the owner then opens the call.
  private var isFirstRun = false
  fileprivate var deadline: DeadlineTimer?
  fileprivate var resumes: [ResumeTimer] = []
  /// The call's tickets. The driving thread makes the book, which then lives as long as this item, so that
  /// other threads may use it.
  fileprivate var book: TicketBook?
  /// The workers that run the call's synchronous interceptors. The reference is not counted, because a call that has
  /// not ended keeps the runtime. `syncWork`: the call's synchronous interceptors that are ready to run, and the
  /// workers that wait for the call; under the pool's lock.
  private let pool: Unmanaged<WorkerPool>
  var workers: WorkerPool { pool.takeUnretainedValue() }
  var syncWork: SyncWork?

  /// If the calling thread is a worker, registers it as waiting for this call: `waiter` is set when the
  /// worker has a function of a synchronous interceptor to run. nil: the thread is no worker. Used for waits
  /// outside of `InterceptedCall.next`.
  func attend(_ waiter: CallWaiter) -> Attendant? {
    pool._withUnsafeGuaranteedRef { $0.attend(self, waiter, isInNext: false) }
  }

  /// Makes an item that the inbox need not keep: while the item is posted, `posted` keeps the call, and the
  /// call keeps the item.
  init(_ workers: Unmanaged<WorkerPool>) {
    pool = workers
    super.init(isKeptElsewhere: true)
  }

  private let lock = Lock()
  /// The call as its user sees it, under the lock. The ClientCall keeps this item until the call ends, and the end
  /// clears this reference.
  private var owner: Unmanaged<ClientCall>?

  /// Called before the item is posted, or run, for the first time.
  func awaitFirstRun(_ call: Call) {
    isFirstRun = true
    posted = retainNew(call)
  }

  /// Sets the owner. Called before another thread has the call.
  func attach(_ owner: Unmanaged<ClientCall>) { self.owner = owner }

  /// The owner and the chain of `call`; nil once the call has ended. Any thread.
  func live(_ call: Call) -> (owner: ClientCall, chain: Chain)? {
    lock.lock()
    defer { lock.unlock() }
    guard let owner, let chain = call.chain else { return nil }
    return (owner.takeUnretainedValue(), chain)
  }

  /// Called as the call ends. Another thread can use `owner` only through a hop, so no lock is needed if no other
  /// thread can have a hop.
  fileprivate func detachOwner(_ call: Call) {
    if call.hopsArePrivate { owner = nil } else { lock.withLock { owner = nil } }
  }

  override func run() {
    guard let call = posted.take() else { return }
    if isFirstRun {
      isFirstRun = false
      // No lock is needed: only this thread clears the owner, at the call's end.
      owner?._withUnsafeGuaranteedRef { $0.firstRun() }
    }
    call._withUnsafeGuaranteedRef { $0.runPosted() }
    call.release()
  }

  override func runInChild() { isFirstRun ? dropped(.forked) : run() }

  override func count(_ calls: inout InheritedCalls) {
    guard isFirstRun else { return }
    calls.all += 1
    if owner?.takeUnretainedValue().isCallbackStyle == true { calls.inBackground += 1 }
  }

  /// Called if the runtime has ended before the item ran: ends the call, if it has not ended yet, and
  /// discards the inputs that were posted to the call.
  override func dropped(_ why: Closing) {
    let call = posted.take()?.takeRetainedValue()
    isFirstRun = false
    call?.perform(.endLocally(why.status))
    call?.dropPosted()
  }
}

/// Fires at the call's deadline. The reference to the call is not counted: the timer is disarmed when the call ends,
/// before the call can be freed.
private final class DeadlineTimer: Timer {
  unowned(unsafe) let call: Call

  init(_ call: Call) { self.call = call }

  override func fire() {
    withExtendedLifetime(call) { call.deadlinePassed() }
  }
}

private final class ResumeTimer: Timer {
  unowned(unsafe) let call: Call
  let ticket: UInt64
  let resolution: Call.Resolution
  /// The index of this timer in the call's `resumes`.
  var slot: Int

  init(_ call: Call, _ ticket: UInt64, _ resolution: Call.Resolution = .verdict(.next)) {
    self.call = call
    self.ticket = ticket
    self.resolution = resolution
    slot = call.item.resumes.count
    super.init()
    call.item.resumes.append(self)
  }

  override func fire() {
    let call = self.call
    let last = call.item.resumes.removeLast()
    if last !== self {
      last.slot = slot
      call.item.resumes[slot] = last
    }
    var verdict: Verdict?
    if case .verdict(let wanted) = resolution { verdict = wanted }
    if call.item.book?.spend(ticket, for: verdict).0 == .ok { call.perform(.resolve(ticket, resolution)) }
  }
}

/// Arms, on the driving thread, a timer that resolves a ticket.
final class DelayedResolution: InboxItem {
  private let call: Call
  private let ticket: UInt64
  private let resolution: Call.Resolution
  private let time: UInt64

  init(_ call: Call, _ ticket: UInt64, _ resolution: Call.Resolution, at time: UInt64) {
    self.call = call
    self.ticket = ticket
    self.resolution = resolution
    self.time = time
  }

  override func run() {
    guard let book = call.item.book, let runtime = book.driver, book.look(ticket).0 == .ok else { return }
    runtime.arm(ResumeTimer(call, ticket, resolution), at: time)
  }
}

extension Call {
  /// The attached object is always a CallItem: `ClientCall.make` sets it before any other thread has the call.
  private var itemReference: Unmanaged<CallItem> { .fromOpaque(attached) }
  var item: CallItem { itemReference.takeUnretainedValue() }

  /// Calls `body` with the call's item, without counting a reference; for code that runs often.
  @inline(__always)
  func withItem<R>(_ body: (CallItem) -> R) -> R { itemReference._withUnsafeGuaranteedRef(body) }

  /// Resolves a ticket at once if it is still open. The driving thread only.
  func settle(_ ticket: UInt64, _ resolution: Resolution) {
    var wanted: Verdict?
    if case .verdict(let verdict) = resolution { wanted = verdict }
    if item.book?.spend(ticket, for: wanted).0 == .ok { perform(.resolve(ticket, resolution)) }
  }
}

/// The values of a call, with a lock, because several threads may use them.
private final class LockedValues: CallValues {
  private let word = Lock()

  override func lock() { word.lock() }
  override func unlock() { word.unlock() }
}

/// One loop of a user's runtime, with the calls that run on it. A channel is on one loop, with all of its
/// calls.
public final class RuntimeLoop: CallLoop, @unchecked Sendable {
  public let runtime: Runtime
  let live = LiveCalls()
  /// The next loop of the same runtime.
  let next: RuntimeLoop?
  /// The number of channels on this loop that are not closed.
  fileprivate let channels = Atomic<Int>(0)

  init(_ runtime: Runtime, next: RuntimeLoop?) {
    self.runtime = runtime
    self.next = next
    super.init()
  }

  var isClosed: Bool { runtime.closed.load(ordering: .acquiring) }

  // The functions from here to `withFewestChannels` act on this loop and on all loops behind it (`next`).

  @inline(never) @_optimize(size)
  func begin(_ workers: Unmanaged<WorkerPool>) {
    live.workers = workers
    runtime.post(LiveCalls.Registering(live, runtime))
    next?.begin(workers)
  }

  @inline(never) @_optimize(size)
  var areAllClosed: Bool { isClosed && next?.areAllClosed != false }

  /// Whether the calling thread drives one of the loops.
  @inline(never) @_optimize(size)
  var isOneDriven: Bool { runtime.isDriving || next?.isOneDriven == true }

  @inline(never) @_optimize(size)
  func releaseHandles() {
    runtime.releaseHandle()
    next?.releaseHandles()
  }

  /// Shuts the loops down (`Runtime.shutdown`). All loops begin to shut down before this thread waits for any
  /// of them.
  @inline(never) @_optimize(size)
  func shutdown(timeoutMilliseconds: Int64) -> Runtime.ShutdownResult {
    runtime.closed.store(true, ordering: .releasing)
    var others = Runtime.ShutdownResult.already
    let own = runtime.shutdown(timeoutMilliseconds: timeoutMilliseconds) {
      if let next { others = next.shutdown(timeoutMilliseconds: timeoutMilliseconds) }
    }
    return own == .already || others == .timedOut ? others : own
  }

  /// Chooses the loop for a new channel, and counts the channel on it: the first loop that has the fewest
  /// channels. A loop that has lost its descriptors is chosen only if all have lost theirs.
  @inline(never) @_optimize(size)
  func withFewestChannels() -> RuntimeLoop {
    var best = self
    var next = self.next
    while let loop = next {
      let isBetter =
        best.isClosed || loop.channels.load(ordering: .relaxed) < best.channels.load(ordering: .relaxed)
      if isBetter, !loop.isClosed { best = loop }
      next = loop.next
    }
    best.channels.wrappingAdd(1, ordering: .relaxed)
    return best
  }

  // The functions from here on act on this loop alone.

  /// Takes back the count of `withFewestChannels`. Called when the channel is closed, or could not be made.
  public func hasOneChannelLess() { channels.wrappingSubtract(1, ordering: .relaxed) }

  public override var now: UInt64 { runtime.now }
  public override func newValues() -> CallValues { LockedValues() }
  public override var isForked: Bool { Process.isForked(runtime.generation) }
  public override var isDriving: Bool { runtime.isDriving }
  public override var thread: UInt { UInt(cs_thread_self()) }
  public override var clock: UInt64 { runtime.clock }

  public override func setDeadline(_ call: Call, _ time: UInt64?) {
    call.withItem { item in
      if let timer = item.deadline { runtime.disarm(timer) }
      guard let time else {
        if item.deadline != nil { item.deadline = nil }
        return
      }
      let timer = item.deadline ?? DeadlineTimer(call)
      item.deadline = timer
      runtime.arm(timer, at: time)
    }
  }

  public override func resume(_ ticket: UInt64, of call: Call, at time: UInt64) {
    runtime.arm(ResumeTimer(call, ticket), at: time)
  }

  public override func post(_ call: Call) {
    call.withItem { item in
      item.posted = .passRetained(call)
      _ = runtime.post(item)
    }
  }

  public override func issueTicket(_ event: Event, of hop: Hop, start: Request?) -> UInt64 {
    book(of: hop.call).issue(event, of: hop, start: start)
  }

  public override func shareTickets(of call: Call) { _ = book(of: call) }

  private func book(of call: Call) -> TicketBook {
    let item = call.item
    if let book = item.book { return book }
    let book = TicketBook(.shared, call, runtime)
    item.book = book
    return book
  }

  public override func spendTicket(_ ticket: UInt64, of call: Call) {
    _ = call.item.book?.spend(ticket, for: nil)
  }

  public override func loseTicket(_ ticket: UInt64, of call: Call) { call.item.book?.lose(ticket) }

  public override func keepUntilRest(_ call: Call) -> Bool { runtime.keepUntilRest(call) }

  public override func closeTickets(of call: Call) {
    call.withItem { item in
      if !item.resumes.isEmpty {
        for timer in item.resumes { runtime.disarm(timer) }
        item.resumes = []
      }
      item.detachOwner(call)
      item.book?.close()
    }
  }
}
