import CPenstockSystem
import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop

/// A thread that runs the functions of synchronous interceptors: a thread of a worker pool, or a thread of the
/// program that waits for its own call, while it runs the call's functions.
///
/// A blocking function asks for `current`, because a worker must run other functions of the call while it
/// waits. Workers are found by their thread id in a list of the process. Only a thread in a callback looks there.
public final class Worker: @unchecked Sendable {
  let thread = cs_thread_self()
  /// Whether the thread is the program's own, and not of a pool. Such a thread may drive a host-driven loop while
  /// it waits.
  let isCallers: Bool
  /// The process that this thread is of. A forked child's list has no worker of its parent.
  private let generation = Process.generation
  /// The calls whose functions run on this thread. A function may wait and so run another function: the
  /// innermost call is the last. Only this worker's thread uses the list.
  private var running: [InterceptedCall] = []

  /// Whether a function of an interceptor of `pool`'s runtime runs on this thread. Called on the worker's own
  /// thread.
  func runs(_ pool: WorkerPool) -> Bool { running.contains { $0.pool === pool } }

  /// Whether a function of the interceptor with this registration number runs on this thread.
  func runs(registration: UInt64) -> Bool { running.contains { $0.registration == registration } }

  init(isCallers: Bool) { self.isCallers = isCallers }

  /// Runs the function of `call`. Called on the worker's own thread.
  func run(_ call: InterceptedCall) {
    let isVisit = isCallers && running.isEmpty
    if isVisit { begin() }
    running.append(call)
    CallbackThread.begin()
    call.execute()
    CallbackThread.end()
    running.removeLast()
    if isVisit { end() }
    call.runtime.endPending()
  }

  /// Whether the calling thread, which has made a call and waits for it, may run the functions of the call: it is
  /// not in a callback. A thread of the program that runs a function already may run further ones within it.
  static var mayServe: Bool {
    !DrivingThread.isCurrent() && (!CallbackThread.isCurrent || serving?.isCallers == true)
  }

  /// The worker of the calling thread, if the thread may run functions of a call that it waits for. A thread of the
  /// program may not in a callback within its function: in an executor's job that the function runs, or in a callback
  /// of a loop that it drives while it waits. A worker of a pool may, because the pool may have no other.
  static var serving: Worker? {
    guard let worker = current else { return nil }
    let isInCallback = DrivingThread.isCurrent() || CallbackThread.count > worker.running.count
    return worker.isCallers && isInCallback ? nil : worker
  }

  /// The slot of the process's page (`Process`) that has the first worker of the list. The links of the list
  /// hold no references, because a worker leaves the list before its thread ends. The list is under the
  /// page's lock, and is empty in a forked child.
  private static let processSlot = 7
  private var next: Unmanaged<Worker>?
  private var previous: Unmanaged<Worker>?
  /// The number of workers. In a forked child without `Fork.prepare`, the number still includes the parent's
  /// workers, which are not in the list.
  private static let count = Atomic<Int>(0)

  private static var first: Unmanaged<Worker>? {
    get { UnsafeRawPointer(bitPattern: Process.slot(processSlot).pointee).map { .fromOpaque($0) } }
    set { Process.slot(processSlot).pointee = newValue.map { UInt(bitPattern: $0.toOpaque()) } ?? 0 }
  }

  /// The worker of the calling thread; nil: the thread is not a worker.
  static var current: Worker? {
    guard CallbackThread.isCurrent, count.load(ordering: .relaxed) > 0 else { return nil }
    let me = cs_thread_self()
    return Process.withLock { () -> Worker? in
      var current = first
      while let worker = current?.takeUnretainedValue() {
        if worker.thread == me { return worker }
        current = worker.next
      }
      return nil
    }
  }

  /// Empties the list. Called in a forked child, in which the parent's workers do not exist.
  public static func forgetAll() {
    first = nil
    count.store(0, ordering: .relaxed)
  }

  func begin() {
    let me = Unmanaged.passUnretained(self)
    Process.withLock {
      // The worker of a thread that waits for its call is in the list once for each of its functions.
      previous = nil
      next = Worker.first
      next?.takeUnretainedValue().previous = me
      Worker.first = me
    }
    Worker.count.add(1, ordering: .relaxed)
  }

  func end() {
    if Process.isForked(generation) { return }
    Worker.count.subtract(1, ordering: .relaxed)
    Process.withLock {
      if let previous { previous.takeUnretainedValue().next = next } else { Worker.first = next }
      next?.takeUnretainedValue().previous = previous
    }
  }
}

/// Where the functions of a call's synchronous interceptors run.
enum FunctionsPlace: UInt8, AtomicRepresentable {
  /// On the workers of the runtime.
  case workers
  /// On a thread that waits for the call in a blocking function: the thread that has made the call.
  case waiter
  /// As `waiter`; and a function is ready, but no waiting thread has said that it runs it.
  case waiterIsWanted
}

/// A worker that waits for a call, and runs functions of the call's synchronous interceptors while it waits.
/// Under the lock of the call's worker pool.
final class Attendant: @unchecked Sendable {
  let worker: Worker
  /// Set when a function is ready for the worker, or when the worker's wait is over.
  let cell: WaitCell
  /// Whether the worker waits in `InterceptedCall.next` of this call. Such a worker gets a function before
  /// workers that wait elsewhere.
  let isInNext: Bool
  /// Whether the worker runs none of the call's functions now.
  fileprivate(set) var isIdle = true

  init(_ worker: Worker, _ cell: WaitCell, isInNext: Bool) {
    self.worker = worker
    self.cell = cell
    self.isInNext = isInNext
  }
}

/// The synchronous interceptors of one call that are ready to run, and the workers that wait for the call.
/// Under the lock of the call's worker pool.
final class SyncWork {
  var ready: [InterceptedCall] = []
  private var attendants: [Attendant] = []

  /// The waiting worker that should run the next ready function. nil: no waiting worker is idle, so any
  /// worker of the pool may run it.
  var idle: Attendant? {
    var found: Attendant?
    for attendant in attendants where attendant.isIdle {
      if found == nil || attendant.isInNext || found?.isInNext == false { found = attendant }
    }
    return found
  }

  func enter(_ attendant: Attendant) { attendants.append(attendant) }
  func detach(_ attendant: Attendant) { attendants.drop(attendant) }

  /// The next ready function, which `attendant` then runs. nil: no function is ready.
  func take(_ attendant: Attendant) -> InterceptedCall? {
    guard let first = ready.first else { return nil }
    attendant.isIdle = false
    return first
  }

  func back(_ attendant: Attendant) { attendant.isIdle = true }
}
