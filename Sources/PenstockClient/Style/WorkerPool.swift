import CPenstockSystem
import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop

/// The workers of one runtime: threads that run the functions of synchronous interceptors.
///
/// A worker that waits for a call runs the ready functions of that call. So one worker can serve all
/// synchronous interceptors of a call. The functions of a call whose own thread waits for it run on that thread
/// (`FunctionsPlace`). Other ready functions wait in the queue, first come, first served. If no worker is free,
/// another thread is started, up to the limit. A thread that has no work for `idleTime` ends.
///
/// No user code runs under the lock. Objects whose release may run a user's finalizer are released outside of
/// the lock.
final class WorkerPool: @unchecked Sendable {
  /// The first loop of the runtime, with a link to the others. The pool holds the loops, so that they exist
  /// as long as a worker.
  private let loop: RuntimeLoop
  private let limit: Int
  /// The time in nanoseconds for which a thread waits for work before it ends.
  private static let idleTime: UInt64 = 2_000_000_000

  private let lock = Lock()
  private var first: InterceptedCall?
  private var last: Unmanaged<InterceptedCall>?
  /// `threads`: the number of threads that will check the queue again before they end. `alive`: the number of
  /// all threads that have not ended.
  private var threads = 0
  private var alive = 0
  /// `idle`: the number of threads that sleep and have no wake-up on its way. `called`: the number of
  /// wake-ups that no thread has noticed yet.
  private var idle = 0
  private var called = 0
  private var isClosed = false
  private var joiners = 0
  private var exited: [UInt64] = []

  private let workWord = Atomic<UInt32>(0)
  private let exitWord = Atomic<UInt32>(0)

  init(_ loop: RuntimeLoop) {
    self.loop = loop
    limit = Int(loop.runtime.options.maxWorkers)
  }

  // MARK: - Ready work

  /// The action that follows `assign`. It is carried out without the lock.
  private enum Followup {
    case nothing, wakeWorker
    case startThread(InterceptedCall)
    case tell(WaitCell)
    case tellWaiters(InterceptedCall)
  }

  /// Called on the driving thread when the function of `call` may run: offers it to the workers. False: the
  /// pool has no thread, and none could be started.
  func offer(_ call: InterceptedCall) -> Bool {
    lock.lock()
    let work = call.item.syncWork ?? SyncWork()
    call.item.syncWork = work
    _ = call.offer.handle(.offered)
    work.ready.append(call)
    let followup = assign(call, work)
    check(work)
    lock.unlock()
    return perform(followup)
  }

  /// Chooses the thread that runs the function of `call`. The caller holds the lock.
  private func assign(_ call: InterceptedCall, _ work: SyncWork) -> Followup {
    if let attendant = work.idle { return .tell(attendant.cell) }
    if call.item.functions.load(ordering: .relaxed) != .workers {
      call.item.functions.store(.waiterIsWanted, ordering: .sequentiallyConsistent)
      return .tellWaiters(call)
    }
    enqueue(call)
    if idle > 0 {
      idle -= 1
      called += 1
      workWord.wrappingAdd(1, ordering: .sequentiallyConsistent)
      return .wakeWorker
    }
    guard threads < limit else { return .nothing }
    threads += 1
    alive += 1
    return .startThread(call)
  }

  /// False: no thread could be started, and the pool has none. The function was withdrawn.
  private func perform(_ followup: Followup) -> Bool {
    switch followup {
    case .nothing: return true
    case .tell(let cell): cell.set()
    case .tellWaiters(let call): ClientCall.of(call.hop)?.wakeWaiters()
    case .wakeWorker: Futex.wake(workWord, 1)
    case .startThread(let call): return startThread() || !withdrawIfStranded(call)
    }
    return true
  }

  /// Called when `call` has ended. Removes its function from the queue, unless a worker has begun to run it.
  func withdraw(_ call: InterceptedCall) {
    lock.withLock { remove(call) }
  }

  #if PENSTOCK_CHECKS
    func offers(_ call: InterceptedCall) -> Bool { lock.withLock { call.offer.isOpen } }
  #endif

  /// Called when a thread could not be started. True: the pool has no thread at all, and `call` was removed
  /// from the queue.
  private func withdrawIfStranded(_ call: InterceptedCall) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    guard threads == 0, call.offer.isOpen else { return false }
    remove(call)
    return true
  }

  /// Takes the function of `call` back, if no thread has begun to run it. The caller holds the lock and a reference to
  /// `call`.
  private func remove(_ call: InterceptedCall) { endOffer(call, .withdrawn) }

  /// Marks the function of `call` as begun. The caller holds the lock, and runs the function after it. A
  /// shutdown of the runtime waits until the function has returned.
  private func begin(_ call: InterceptedCall) {
    endOffer(call, .begun)
    call.runtime.beginPending()
  }

  private func endOffer(_ call: InterceptedCall, _ event: SyncOffer.Event) {
    switch call.offer.handle(event) {
    case .nothing: return
    case .forget: break
    case .unlink(let links): dequeue(links)
    }
    call.item.syncWork?.ready.drop(call)
    if let work = call.item.syncWork { check(work) }
  }

  /// The caller holds the lock.
  private func check(_ work: SyncWork) {
    #if PENSTOCK_CHECKS
      if !work.ready.allSatisfy({ $0.offer.isOpen }) {
        fatalError("invariant F5: a function is ready that is not offered")
      }
    #endif
  }

  // MARK: - Workers that wait for a call

  /// If the calling thread is a worker, and may run functions while it waits for the call of `item`, registers it.
  /// `cell` is then set when a function is ready for `serve`. nil: the thread runs no functions. In `next` a worker
  /// always runs them, because they are those below its own function.
  func attend(_ item: CallItem, _ cell: WaitCell, isInNext: Bool) -> Attendant? {
    (isInNext ? Worker.current : Worker.serving).map { attend(item, $0, cell, isInNext: isInNext) }
  }

  /// Registers the calling thread, which waits for the call of `item`, because a function is ready for it.
  func attendAsWaiter(_ item: CallItem, _ cell: WaitCell) -> Attendant {
    attend(item, Worker.serving ?? Worker(isCallers: true), cell, isInNext: false)
  }

  private func attend(_ item: CallItem, _ worker: Worker, _ cell: WaitCell, isInNext: Bool) -> Attendant {
    let attendant = Attendant(worker, cell, isInNext: isInNext)
    lock.lock()
    let work = item.syncWork ?? SyncWork()
    item.syncWork = work
    work.enter(attendant)
    let place = item.functions.load(ordering: .relaxed)
    if place == .waiterIsWanted { item.functions.store(.waiter, ordering: .relaxed) }
    lock.unlock()
    return attendant
  }

  /// The thread that waits for the call of `item` can't run functions, so the workers run them from now on.
  func takeOver(_ item: CallItem) {
    lock.lock()
    item.functions.store(.workers, ordering: .sequentiallyConsistent)
    let left = assignLeft(item)
    lock.unlock()
    carryOut(left)
  }

  /// Assigns the ready functions that no thread has begun and that do not wait in the queue. The caller holds the
  /// lock.
  private func assignLeft(_ item: CallItem) -> [(InterceptedCall, Followup)] {
    guard let work = item.syncWork else { return [] }
    return work.ready.filter { $0.offer.isReady }.map { ($0, assign($0, work)) }
  }

  private func carryOut(_ left: [(InterceptedCall, Followup)]) {
    for (call, followup) in left where !perform(followup) { call.endForLackOfThreads() }
  }

  /// Runs the ready functions of the call, one after the other, on the calling thread.
  func serve(_ item: CallItem, _ attendant: Attendant) {
    while serveOne(item, attendant) { lock.withLock { item.syncWork?.back(attendant) } }
  }

  private func serveOne(_ item: CallItem, _ attendant: Attendant) -> Bool {
    lock.lock()
    let call = item.syncWork?.take(attendant)
    if let call { begin(call) }
    lock.unlock()
    guard let call else { return false }
    attendant.worker.run(call)
    return true
  }

  /// Called when the worker does not wait any more. Assigns the ready functions that were left for this
  /// worker to other threads.
  func detach(_ item: CallItem, _ attendant: Attendant) {
    lock.lock()
    item.syncWork?.detach(attendant)
    let left = assignLeft(item)
    lock.unlock()
    carryOut(left)
  }

  // MARK: - The queue, with the lock held

  private func enqueue(_ call: InterceptedCall) {
    _ = call.offer.handle(.queued(SyncOffer.Links(next: nil, previous: last)))
    if let last { last.takeUnretainedValue().offer.link(next: call) } else { first = call }
    last = .passUnretained(call)
  }

  private func dequeue(_ links: SyncOffer.Links) {
    if let previous = links.previous {
      previous.takeUnretainedValue().offer.link(next: links.next)
    } else {
      first = links.next
    }
    if let next = links.next { next.offer.link(previous: links.previous) } else { last = links.previous }
  }

  // MARK: - Threads

  /// Starts a thread. The caller has already counted it in `threads` and `alive`. False: the system refused,
  /// and the thread is not counted any more.
  private func startThread() -> Bool {
    var id: UInt64 = 0
    let failure = OwnThread.start(self, &id, detached: false) { argument in
      guard let argument else { return nil }
      let me = Unmanaged<WorkerPool>.fromOpaque(argument)
      me.takeUnretainedValue().main()
      me.release()
      return nil
    }
    if failure == 0 { return true }
    lock.lock()
    threads -= 1
    alive -= 1
    lock.unlock()
    return false
  }

  private func main() {
    cs_thread_name("penstock-worker")
    let worker = Worker(isCallers: false)
    worker.begin()
    while runNext(worker) || rest() {}
    worker.end()
    lock.lock()
    alive -= 1
    // Only a thread in `join` joins the worker's thread. If no thread is in `join`, the worker's thread
    // detaches itself.
    if joiners > 0 { exited.append(cs_thread_self()) } else { cs_thread_detach(cs_thread_self()) }
    exitWord.wrappingAdd(1, ordering: .sequentiallyConsistent)
    Futex.wake(exitWord, .max)
    lock.unlock()
  }

  /// Runs the next function in the queue. False: the queue is empty.
  private func runNext(_ worker: Worker) -> Bool {
    lock.lock()
    let call = first
    if let call { begin(call) }
    lock.unlock()
    guard let call else { return false }
    worker.run(call)
    return true
  }

  /// Sleeps until there may be a function to run. False: no function came for `idleTime`, or the pool is
  /// closed; the thread has to end.
  private func rest() -> Bool {
    let until = Platform.systemClock() + WorkerPool.idleTime
    lock.lock()
    defer { lock.unlock() }
    if first != nil { return true }
    if isClosed {
      threads -= 1
      return false
    }
    idle += 1
    while true {
      let seen = workWord.load(ordering: .sequentiallyConsistent)
      lock.unlock()
      Futex.wait(workWord, while: seen, until: until)
      lock.lock()
      if called > 0 {
        called -= 1
        return true
      }
      if isClosed || Platform.systemClock() >= until {
        idle -= 1
        threads -= 1
        return false
      }
    }
  }

  /// Closes the pool without waiting. A thread ends when no function is left for it to run.
  func close() {
    lock.lock()
    isClosed = true
    workWord.wrappingAdd(1, ordering: .sequentiallyConsistent)
    lock.unlock()
    Futex.wake(workWord, .max)
  }

  /// Called in a forked child: sets the counts to 0, because the parent's workers do not exist here.
  func becomeChild() {
    threads = 0
    alive = 0
    idle = 0
    called = 0
    joiners = 0
    exited = []
  }

  var hasThreads: Bool { lock.withLock { alive > 0 } }

  /// Closes the pool, and waits until every thread has ended. False: a thread had not ended at `deadline`.
  func join(until deadline: UInt64?) -> Bool {
    close()
    lock.lock()
    joiners += 1
    while alive > 0 {
      let seen = exitWord.load(ordering: .sequentiallyConsistent)
      lock.unlock()
      let woken = Futex.wait(exitWord, while: seen, until: deadline)
      lock.lock()
      if woken == .timedOut { break }
    }
    joiners -= 1
    let done = alive == 0
    let ended = exited
    exited = []
    lock.unlock()
    for thread in ended { cs_thread_join(thread) }
    return done
  }
}
