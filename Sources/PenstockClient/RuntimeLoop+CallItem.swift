import PenstockCall
import PenstockLoop
import PenstockTickets
import PenstockTransport
import Synchronization

/// The state of a call that belongs to its loop: the call's item in the inbox, its timers, its tickets. The
/// call owns this object.
final class CallItem: InboxItem {
  /// A reference to the call, held while the item is posted and until it has run. Only one thread at a time
  /// posts the item (`Call.submit`).
  var posted: Unmanaged<Call>?
  /// Whether the next run is the first one. In the first run the owner opens the call.
  private var isFirstRun = false
  var deadline: DeadlineTimer?
  var timers: [CallTimer] = []
  /// The call's tickets. The driving thread makes the `TicketBook`. It lives as long as this item, so that
  /// other threads may use it.
  var book: TicketBook?
  /// `pool`: the worker threads that run the call's synchronous interceptors. The reference is not counted,
  /// because a call that has not ended keeps the runtime, which holds the pool. `syncWork`: the call's
  /// synchronous interceptors that are ready to run, and the workers that wait for the call; under the pool's
  /// lock.
  private let pool: Unmanaged<WorkerPool>
  var workers: WorkerPool { pool.takeUnretainedValue() }
  var syncWork: SyncWork?
  /// Where the call's synchronous interceptors run. `assign` in the pool reads it, and the waiting threads do.
  let functions = Atomic<FunctionsPlace>(.workers)

  /// If the calling thread is a worker that may run functions while it waits for this call, registers it. `waiter` is
  /// then set when a function of a synchronous interceptor is ready for it. nil: the thread runs none. Used for all
  /// waits except those in `InterceptedCall.next`.
  func attend(_ waiter: CallWaiter) -> Attendant? {
    pool._withUnsafeGuaranteedRef { $0.attend(self, waiter, isInNext: false) }
  }

  /// Makes an item with `isRetainedElsewhere`. While the item is posted, `posted` holds the call, and the call
  /// holds the item.
  init(_ workers: Unmanaged<WorkerPool>) {
    pool = workers
    super.init(isRetainedElsewhere: true)
  }

  private let lock = Lock()
  /// The `ClientCall` of this call, under the lock. The `ClientCall` holds this item until the call ends, and
  /// then this reference is cleared.
  private var owner: Unmanaged<ClientCall>?

  /// Prepares the first run. Called before the item is posted or run for the first time.
  func awaitFirstRun(_ call: Call) {
    isFirstRun = true
    posted = retainNew(call)
  }

  /// Sets the owner. Called before any other thread has access to the call.
  func attach(_ owner: Unmanaged<ClientCall>) { self.owner = owner }

  /// The `ClientCall` and the chain of `call`; nil: the call has ended. Any thread.
  func live(_ call: Call) -> (owner: ClientCall, chain: Chain)? {
    lock.lock()
    defer { lock.unlock() }
    guard let owner, let chain = call.chain else { return nil }
    return (owner.takeUnretainedValue(), chain)
  }

  /// Clears the owner when the call ends. Other threads can use `owner` only through a hop, so no lock is
  /// needed if no other thread can have a hop.
  func detachOwner(_ call: Call) {
    if call.hopsArePrivate { owner = nil } else { lock.withLock { owner = nil } }
  }

  override func run() {
    guard let call = posted.take() else { return }
    if isFirstRun {
      isFirstRun = false
      // No lock is needed, because only this thread clears `owner`.
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

  /// Called if the runtime ended before the item could run. Ends the call, if it has not ended yet, and
  /// discards the inputs that were posted to the call.
  override func dropped(_ why: Closing) {
    let call = posted.take()?.takeRetainedValue()
    isFirstRun = false
    call?.perform(.endLocally(why.status))
    call?.dropPosted()
  }
}

extension Call {
  /// `attached` is always a `CallItem`: `ClientCall.make` sets it before any other thread has access to the
  /// call.
  private var itemReference: Unmanaged<CallItem> { .fromOpaque(attached) }
  var item: CallItem { itemReference.takeUnretainedValue() }

  /// Calls `body` with the call's item. Counts no reference, because the function is called often.
  @inline(__always)
  func withItem<R>(_ body: (CallItem) -> R) -> R { itemReference._withUnsafeGuaranteedRef(body) }

  /// Resolves a ticket at once, if the ticket is still open. Called on the driving thread.
  func settle(_ ticket: UInt64, _ verdict: Verdict) {
    if item.book?.spend(ticket, for: verdict).0 == .ok { perform(.resolve(ticket, .verdict(verdict))) }
  }
}
