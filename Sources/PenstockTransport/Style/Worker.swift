import CMemory
import CSystem
import PenstockWire
import Synchronization

/// A thread that runs the functions of synchronous interceptors.
///
/// A thread that waits asks for `current`, because a worker can itself run the work that it waits for. Workers are
/// found by thread number in a list of the process: this costs nothing while there is no worker, and needs no
/// thread-local storage.
final class Worker: @unchecked Sendable {
  let thread = cs_thread_self()
  /// The calls whose functions run on this thread, innermost last. Used by its own thread only.
  private var running: [InterceptedCall] = []

  /// Whether a function of `pool`'s runtime runs on this thread. Called on the worker's own thread.
  func runs(_ pool: WorkerPool) -> Bool { running.contains { $0.pool === pool } }

  /// Whether a function of this registration runs on this thread.
  func runs(registration: UInt64) -> Bool { running.contains { $0.registration == registration } }

  /// Runs the function of `call`. Called on the worker's own thread.
  func run(_ call: InterceptedCall) {
    running.append(call)
    cm_callback(1)
    call.execute()
    cm_callback(-1)
    running.removeLast()
    call.runtime.endPending()
  }

  /// The slot of the process's page that has the first worker of the list. The list's links count no
  /// references, because a worker leaves the list before its thread ends. The list is under the page's lock,
  /// and a forked child finds it empty.
  private static let processSlot = 7
  private var next: Unmanaged<Worker>?
  private var previous: Unmanaged<Worker>?
  /// The number of workers. In a forked child that `Fork` has not prepared, it includes the parent's workers,
  /// which are not in the list.
  private static let count = Atomic<Int>(0)

  private static var first: Unmanaged<Worker>? {
    get { UnsafeRawPointer(bitPattern: Process.slot(processSlot).pointee).map { .fromOpaque($0) } }
    set { Process.slot(processSlot).pointee = newValue.map { UInt(bitPattern: $0.toOpaque()) } ?? 0 }
  }

  /// The worker of the calling thread; nil: the thread is no worker.
  static var current: Worker? {
    guard count.load(ordering: .relaxed) > 0 else { return nil }
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
  static func forgetAll() {
    first = nil
    count.store(0, ordering: .relaxed)
  }

  func begin() {
    let me = Unmanaged.passUnretained(self)
    Process.withLock {
      next = Worker.first
      next?.takeUnretainedValue().previous = me
      Worker.first = me
    }
    Worker.count.add(1, ordering: .relaxed)
  }

  func end() {
    Worker.count.subtract(1, ordering: .relaxed)
    Process.withLock {
      if let previous { previous.takeUnretainedValue().next = next } else { Worker.first = next }
      next?.takeUnretainedValue().previous = previous
    }
  }
}

/// A worker that waits for a call and meanwhile runs the functions of the call's synchronous interceptors. Under the
/// lock of the call's pool.
final class Attendant: @unchecked Sendable {
  let worker: Worker
  /// Set when the worker has a function to run, or when its wait is over.
  let cell: WaitCell
  /// Whether the worker waits in `next` of one of the call's functions. Such a worker gets a function before
  /// other waiting workers.
  let isInNext: Bool
  /// Whether the worker runs none of the call's functions now.
  fileprivate(set) var isIdle = true

  init(_ worker: Worker, _ cell: WaitCell, isInNext: Bool) {
    self.worker = worker
    self.cell = cell
    self.isInNext = isInNext
  }
}

/// The synchronous interceptors of one call that wait for a worker, and the workers that wait for the call. Under
/// the lock of the call's pool.
final class SyncWork {
  var ready: [InterceptedCall] = []
  private var attendants: [Attendant] = []

  /// The idle worker that has to run the next ready function; nil: no waiting worker is idle, so any worker
  /// may run it.
  var idle: Attendant? {
    var found: Attendant?
    for attendant in attendants where attendant.isIdle {
      if found == nil || attendant.isInNext || found?.isInNext == false { found = attendant }
    }
    return found
  }

  func enter(_ attendant: Attendant) { attendants.append(attendant) }
  func leave(_ attendant: Attendant) { attendants.drop(attendant) }

  /// Takes a function to run, for `attendant`.
  func take(_ attendant: Attendant) -> InterceptedCall? {
    guard let first = ready.first else { return nil }
    attendant.isIdle = false
    ready.removeLeading(1)
    return first
  }

  func back(_ attendant: Attendant) { attendant.isIdle = true }
}
