import CSystem
import PenstockCall
import PenstockWire
import Synchronization

/// The workers of one runtime: threads that run the functions of synchronous interceptors.
///
/// If a worker waits for a call, it runs the call's functions that are ready: so one worker can serve all
/// synchronous interceptors of a call. Otherwise a ready function waits in the queue, first come, first
/// served. If no worker is free, another thread is started, up to the limit; a thread that has nothing to do
/// for `idleTime` ends.
///
/// No user code runs under the lock; objects that may finalize a user's data are released outside of it.
final class WorkerPool: @unchecked Sendable {
  /// The loops of the runtime. The pool keeps them, so that they exist as long as a worker.
  private let loop: RuntimeLoop
  private let limit: Int
  /// How long a thread waits for work before it ends, in nanoseconds.
  private static let idleTime: UInt64 = 2_000_000_000

  private let lock = Lock()
  private var first: InterceptedCall?
  private var last: Unmanaged<InterceptedCall>?
  /// `threads`: the number of threads that will look at the queue again before they end. `alive`: the number of all
  /// threads that have not ended.
  private var threads = 0
  private var alive = 0
  /// `idle`: the number of threads that sleep and were not woken. `called`: the number of wake-ups that no thread has
  /// taken yet.
  private var idle = 0
  private var called = 0
  private var isClosed = false
  private var joiners = 0
  private var exited: [pthread_t] = []

  private let workWord = Atomic<UInt32>(0)
  private let exitWord = Atomic<UInt32>(0)

  init(_ loop: RuntimeLoop) {
    self.loop = loop
    limit = Int(loop.runtime.options.maxWorkers)
  }

  // MARK: - Ready work

  /// The step that follows `assign`. It is done without the lock.
  private enum Followup {
    case nothing, wakeWorker, startThread
    case tell(WaitCell)
  }

  /// Offers `call`'s function, which may run now. The driving thread only. False: no thread could run it, and none
  /// can be started.
  @inline(never) @_optimize(size)
  func offer(_ call: InterceptedCall) -> Bool {
    lock.lock()
    let work = call.item.syncWork ?? SyncWork()
    call.item.syncWork = work
    call.offer = .open
    work.ready.append(call)
    let followup = assign(call, work)
    lock.unlock()
    return perform(followup, call)
  }

  /// Decides, with the lock held, which thread runs the function of `call`.
  private func assign(_ call: InterceptedCall, _ work: SyncWork) -> Followup {
    if let attendant = work.idle { return .tell(attendant.cell) }
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
    return .startThread
  }

  private func perform(_ followup: Followup, _ call: InterceptedCall?) -> Bool {
    switch followup {
    case .nothing: return true
    case .tell(let cell): cell.set()
    case .wakeWorker: Futex.wake(workWord, 1)
    case .startThread: return startThread() || !withdrawIfStranded(call)
    }
    return true
  }

  /// Called when `call` has ended: takes its function out of the queue, unless a worker has begun it.
  func withdraw(_ call: InterceptedCall) {
    lock.lock()
    let wasOffered = call.offer == .open
    if wasOffered { remove(call) }
    lock.unlock()
  }

  /// Called when a thread could not be started. True: the pool has no thread at all, and `call` was taken out
  /// of the queue.
  private func withdrawIfStranded(_ call: InterceptedCall?) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    guard let call, threads == 0, call.offer == .open else { return false }
    remove(call)
    return true
  }

  /// Takes `call` out of the queue, with the lock held. The caller has a reference.
  private func remove(_ call: InterceptedCall) {
    call.offer = .closed
    call.item.syncWork?.ready.drop(call)
    dequeue(call)
  }

  /// Begins to run `call`'s function, with the lock held. A shutdown waits until the function has returned.
  private func begin(_ call: InterceptedCall) {
    call.offer = .closed
    dequeue(call)
    call.runtime.beginPending()
  }

  // MARK: - Workers that wait for a call

  /// If the calling thread is a worker, registers it as waiting for `item`'s call: `cell` is set when there
  /// is a function to `serve`. nil: the thread is no worker.
  func attend(_ item: CallItem, _ cell: WaitCell, isInNext: Bool) -> Attendant? {
    guard let worker = Worker.current else { return nil }
    let attendant = Attendant(worker, cell, isInNext: isInNext)
    lock.lock()
    let work = item.syncWork ?? SyncWork()
    item.syncWork = work
    work.enter(attendant)
    lock.unlock()
    return attendant
  }

  /// Runs the call's functions that are ready, one after the other, on the calling thread.
  @inline(never) @_optimize(size)
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

  /// Called when the thread does not wait any more: ready functions that were meant for it go to other
  /// threads.
  @inline(never) @_optimize(size)
  func leave(_ item: CallItem, _ attendant: Attendant) {
    var followups: [Followup] = []
    lock.lock()
    if let work = item.syncWork {
      work.leave(attendant)
      for call in work.ready where !call.isQueued { followups.append(assign(call, work)) }
    }
    lock.unlock()
    for followup in followups { _ = perform(followup, nil) }
  }

  // MARK: - The queue, with the lock held

  private func enqueue(_ call: InterceptedCall) {
    call.isQueued = true
    call.previousQueued = last
    if let last { last.takeUnretainedValue().nextQueued = call } else { first = call }
    last = .passUnretained(call)
  }

  private func dequeue(_ call: InterceptedCall) {
    guard call.isQueued else { return }
    call.isQueued = false
    let next = call.nextQueued
    let previous = call.previousQueued
    if let previous { previous.takeUnretainedValue().nextQueued = next } else { first = next }
    if let next { next.previousQueued = previous } else { last = previous }
    call.nextQueued = nil
    call.previousQueued = nil
  }

  // MARK: - Threads

  /// Starts a thread that has been counted already. False: the system refused.
  private func startThread() -> Bool {
    var id: pthread_t = 0
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

  @inline(never) @_optimize(size)
  private func main() {
    cs_thread_name("penstock-worker")
    let worker = Worker()
    worker.begin()
    while runNext(worker) || rest() {}
    worker.end()
    lock.lock()
    alive -= 1
    // Only a thread in `join` joins a worker's thread. If none is there, this thread detaches itself.
    if joiners > 0 { exited.append(pthread_self()) } else { pthread_detach(pthread_self()) }
    exitWord.wrappingAdd(1, ordering: .sequentiallyConsistent)
    Futex.wake(exitWord, .max)
    lock.unlock()
  }

  /// Runs the next function in the queue. False: there is none.
  private func runNext(_ worker: Worker) -> Bool {
    lock.lock()
    let call = first
    if let call {
      call.item.syncWork?.ready.drop(call)
      begin(call)
    }
    lock.unlock()
    guard let call else { return false }
    worker.run(call)
    return true
  }

  /// Sleeps until there may be a function to run. False: there was none for `idleTime`, or the pool is
  /// closed: the thread has to end.
  @inline(never) @_optimize(size)
  private func rest() -> Bool {
    let until = cs_monotonic() + WorkerPool.idleTime
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
      if isClosed || cs_monotonic() >= until {
        idle -= 1
        threads -= 1
        return false
      }
    }
  }

  /// Closes the pool, without waiting: threads end when they have nothing left to run.
  func close() {
    lock.lock()
    isClosed = true
    workWord.wrappingAdd(1, ordering: .sequentiallyConsistent)
    lock.unlock()
    Futex.wake(workWord, .max)
  }

  /// Called in a forked child, in which the parent's workers do not exist: sets the counts back to 0.
  func becomeChild() {
    threads = 0
    alive = 0
    idle = 0
    called = 0
    joiners = 0
    exited = []
  }

  var hasThreads: Bool { lock.withLock { alive > 0 } }

  /// Closes the pool, and waits until every thread has ended. False: `deadline` came first.
  @inline(never) @_optimize(size)
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
    for thread in ended { pthread_join(thread, nil) }
    return done
  }
}
