import CPenstockSystem
public import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop
import PenstockHTTP
import PenstockTransport

/// The state of a call that belongs to its loop: the call's item in the inbox, its timers, its tickets. The
/// call owns this object.
final class CallItem: InboxItem {
  /// A reference to the call, held while the item is posted and until it has run. Only one thread at a time
  /// posts the item (`Call.submit`).
  fileprivate var posted: Unmanaged<Call>?
  /// Whether the next run is the first one. In the first run the owner opens the call.
  private var isFirstRun = false
  fileprivate var deadline: DeadlineTimer?
  fileprivate var timers: [CallTimer] = []
  /// The call's tickets. The driving thread makes the `TicketBook`. It lives as long as this item, so that
  /// other threads may use it.
  fileprivate var book: TicketBook?
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

  /// Makes an item with `isKeptElsewhere`. While the item is posted, `posted` holds the call, and the call
  /// holds the item.
  init(_ workers: Unmanaged<WorkerPool>) {
    pool = workers
    super.init(isKeptElsewhere: true)
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
  fileprivate func detachOwner(_ call: Call) {
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

/// A timer that fires at the call's deadline. The reference to the call is not counted: the timer is disarmed
/// when the call ends, before the call can be freed.
private final class DeadlineTimer: Timer {
  unowned(unsafe) let call: Call

  init(_ call: Call) { self.call = call }

  override func fire() {
    withExtendedLifetime(call) { call.deadlinePassed() }
  }
}

/// A timer of a call, which is disarmed when the call ends.
private final class CallTimer: Timer {
  enum Action {
    case resolve(UInt64, Call.Resolution)
    case perform(Call.Input)
    case run(() -> Void)
  }

  unowned(unsafe) let call: Call
  let action: Action
  /// The index of this timer in the call's `timers`.
  var slot: Int

  init(_ call: Call, _ action: Action) {
    self.call = call
    self.action = action
    slot = call.item.timers.count
    super.init()
    call.item.timers.append(self)
  }

  override func fire() {
    let call = self.call
    let last = call.item.timers.removeLast()
    if last !== self {
      last.slot = slot
      call.item.timers[slot] = last
    }
    switch action {
    case .resolve(let ticket, let resolution): _ = Tickets.resolve(ticket, resolution)
    case .perform(let input): withExtendedLifetime(call) { call.perform(input) }
    case .run(let work): withExtendedLifetime(call) { work() }
    }
  }
}

/// An item that arms a timer on the driving thread. The timer resolves a ticket.
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
    runtime.arm(CallTimer(call, .resolve(ticket, resolution)), at: time)
  }
}

/// An item that arms a timer on the driving thread. The timer runs a function, unless the call ends before.
private final class DelayedWork: InboxItem {
  private let call: Call
  private let time: UInt64
  private let work: () -> Void

  init(_ call: Call, at time: UInt64, _ work: @escaping () -> Void) {
    self.call = call
    self.time = time
    self.work = work
  }

  override func run() {
    guard !call.isEnded, let (owner, _) = call.item.live(call) else { return }
    owner.runtime.arm(CallTimer(call, .run(work)), at: time)
  }
}

extension Hop {
  /// Runs `work` on the driving thread: at once if the calling thread drives, otherwise soon, unless the call ends
  /// before. Any thread that has the hop.
  public func onDriver(_ work: @escaping () -> Void) {
    guard !hasEnded, let (owner, _) = call.item.live(call) else { return }
    if owner.runtime.isDriving { work() } else { later(nanoseconds: 0, work) }
  }

  /// Runs `work` on the driving thread after `nanoseconds`, unless the call ends before. Any thread that has
  /// the hop.
  public func later(nanoseconds: UInt64, _ work: @escaping () -> Void) {
    guard !hasEnded, let (owner, _) = call.item.live(call) else { return }
    let runtime = owner.runtime
    _ = runtime.post(DelayedWork(call, at: runtime.time(after: nanoseconds), work))
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

/// The values that a call and its hops share, with a lock, because several threads may use them.
private final class LockedValues: CallValues {
  private let word = Lock()

  override func lock() { word.lock() }
  override func unlock() { word.unlock() }
}

/// One event loop of a user's runtime, with the calls that run on it. A channel and all its calls are on one
/// loop.
public final class RuntimeLoop: CallLoop, @unchecked Sendable {
  public let runtime: Runtime
  let live = LiveCalls()
  /// The next loop of the same user's runtime; nil: this is the last one.
  let next: RuntimeLoop?
  /// The number of channels on this loop that are not closed.
  fileprivate let channels = Atomic<Int>(0)

  /// Shows other threads which user callback runs on the driving thread, for diagnosis.
  let watch: CallWatch

  init(_ runtime: Runtime, _ watch: CallWatch, next: RuntimeLoop?) {
    self.runtime = runtime
    self.watch = watch
    self.next = next
    super.init()
  }

  var isClosed: Bool { runtime.closed.load(ordering: .acquiring) }

  // The functions from here to `withFewestChannels` act on this loop and on all later loops (`next`).

  func begin(_ workers: Unmanaged<WorkerPool>) {
    live.workers = workers
    runtime.post(LiveCalls.Registering(live, runtime))
    next?.begin(workers)
  }

  var areAllClosed: Bool { isClosed && next?.areAllClosed != false }

  /// Whether the calling thread drives this loop or a later one.
  var isOneDriven: Bool { runtime.isDriving || next?.isOneDriven == true }

  func releaseHandles() {
    runtime.releaseHandle()
    next?.releaseHandles()
  }

  /// Shuts down this loop and all later ones (`Runtime.shutdown`). All loops begin to shut down before this
  /// thread waits for any of them.
  func shutdown(timeoutMilliseconds: Int64) -> Runtime.ShutdownResult {
    runtime.closed.store(true, ordering: .releasing)
    var others = Runtime.ShutdownResult.already
    let own = runtime.shutdown(timeoutMilliseconds: timeoutMilliseconds) {
      if let next { others = next.shutdown(timeoutMilliseconds: timeoutMilliseconds) }
    }
    return own == .already || others == .timedOut ? others : own
  }

  /// Chooses the loop for a new channel, and adds the channel to that loop's count. The choice is the first
  /// loop with the fewest channels. A loop that has lost its descriptors is chosen only if all loops have
  /// lost theirs.
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

  // The functions from here on act on this loop only.

  /// Subtracts the channel that `withFewestChannels` has added to this loop's count. Called when the channel
  /// is closed, or could not be made.
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
    runtime.arm(CallTimer(call, .resolve(ticket, .verdict(.next))), at: time)
  }

  public override func perform(_ input: Call.Input, of call: Call, at time: UInt64) {
    runtime.arm(CallTimer(call, .perform(input)), at: time)
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

  public override func room(of message: Message, of call: Call) -> Int {
    call.item.book?.room(of: message) ?? message.room
  }

  public override func keepUntilRest(_ call: Call) -> Bool { runtime.keepUntilRest(call) }

  public override func closeTickets(of call: Call) {
    call.withItem { item in
      if !item.timers.isEmpty {
        for timer in item.timers { runtime.disarm(timer) }
        item.timers = []
      }
      item.detachOwner(call)
      item.book?.close()
    }
  }
}

extension Hop {
  /// The platform of the call's runtime, with the clocks by which the call lives. Any thread.
  public var platform: Platform {
    // The cast is safe, because `RuntimeLoop` is the only subclass of `CallLoop`.
    unsafeDowncast(call.loop, to: RuntimeLoop.self).runtime.platform
  }
}

extension ClientChannel {
  public var platform: Platform { loop.runtime.platform }
}
