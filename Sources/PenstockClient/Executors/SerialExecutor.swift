import CPenstockSystem
public import PenstockCall
import Synchronization
import PenstockLoop

/// An executor with one thread, which runs jobs in the order in which they were submitted.
///
/// The thread holds a reference to the queue, but not to the executor. So the executor's last reference may
/// be released on any thread, even on the executor's own thread. That thread then runs the jobs that are
/// queued and exits; no other thread joins it.
public final class SerialExecutor: HostExecutor {
  private let queue: SerialQueue

  private init(_ changes: UInt32) {
    queue = SerialQueue(changes)
    super.init()
  }

  /// Makes an executor. nil: the thread could not be started; `errno` is the system's error.
  public static func make() -> (SerialExecutor?, errno: Int32) { make(after: 0) }

  /// Makes an executor whose counter (`SerialQueue.changes`) begins at `changes`, an even number. Tests use
  /// it to make the counter wrap around.
  static func make(after changes: UInt32) -> (SerialExecutor?, errno: Int32) {
    let made = SerialExecutor(changes)
    let failure = made.queue.start()
    return failure == 0 ? (made, 0) : (nil, -failure)
  }

  deinit { if !Process.isForked(generation) { queue.close() } }

  public override func submit(_ job: ExecutorJob) -> Bool { !isForked && queue.append(job) }

  public override var isOnThisThread: Bool { !isForked && queue.isOnThisThread }
}

/// The queue of a `SerialExecutor`, and its thread. `@unchecked`: all state that is not atomic is under the
/// lock.
private final class SerialQueue: @unchecked Sendable {
  private let lock = Lock()
  private var first: ExecutorJob?
  private var last: ExecutorJob?
  private var isClosed = false
  /// Bit 0: the thread sleeps, or is about to sleep. The other bits are a counter, which wraps around. The
  /// counter goes up with each new job, and when the queue is closed.
  private let changes: Atomic<UInt32>
  private let thread = Atomic<UInt64>(0)
  /// The value of `Process.forks` when the thread was started. If `Process.forks` differs now, this process
  /// is a forked child, which starts another thread for its first job. Under the lock.
  private var forks = Process.forks

  init(_ changes: UInt32) { self.changes = Atomic(changes) }

  /// Starts the thread. Returns 0 or -errno.
  func start() -> Int32 {
    var id: UInt64 = 0
    return OwnThread.start(self, &id, detached: true) { argument in
      guard let argument else { return nil }
      Unmanaged<SerialQueue>.fromOpaque(argument).takeRetainedValue().work()
      return nil
    }
  }

  var isOnThisThread: Bool { thread.load(ordering: .relaxed) == cs_thread_self() }

  func append(_ job: ExecutorJob) -> Bool {
    lock.lock()
    let isChild = forks != Process.forks
    if isChild {
      forks = Process.forks
      thread.store(0, ordering: .relaxed)
      if start() != 0 {
        forks &-= 1
        lock.unlock()
        return false
      }
    }
    if let last { last.next = job } else { first = job }
    last = job
    lock.unlock()
    tell()
    return true
  }

  func close() {
    lock.lock()
    isClosed = true
    lock.unlock()
    tell()
  }

  /// Makes the thread check the queue again. If bit 0 of `changes` was set, first clears the bit and then
  /// wakes the thread. In this order a thread that has just gone to sleep again is woken, too.
  private func tell() {
    if changes.wrappingAdd(2, ordering: .sequentiallyConsistent).oldValue & 1 != 0 {
      changes.bitwiseAnd(~1, ordering: .sequentiallyConsistent)
      Futex.wake(changes, 1)
    }
  }

  private func work() {
    cs_thread_name("penstock-exec")
    thread.store(cs_thread_self(), ordering: .relaxed)
    while true {
      let seen = changes.load(ordering: .sequentiallyConsistent) & ~1
      if runNext() { continue }
      if lock.withLock({ isClosed && first == nil }) { return }
      if changes.compareExchange(expected: seen, desired: seen | 1, ordering: .sequentiallyConsistent)
        .exchanged
      {
        Futex.wait(changes, while: seen | 1, until: nil)
        changes.bitwiseAnd(~1, ordering: .sequentiallyConsistent)
      }
    }
  }

  /// Runs the next job. False: the queue is empty. The job is freed before this function returns, and not
  /// under the lock.
  private func runNext() -> Bool {
    lock.lock()
    let job = first
    first = job?.next
    if first == nil { last = nil }
    lock.unlock()
    guard let job else { return false }
    job.next = nil
    job.runOnce()
    return true
  }
}
