import CPenstockMemory
import CPenstockSystem
import Synchronization

/// A mutual exclusion lock of one word. 0: free; 1: held; 2: held, and a thread may sleep until it is free.
/// All zeros is a free lock, so a lock may live in zeroed memory (see `Process`). No thread holds a lock
/// while the process forks with `Fork`.
///
/// A lock is held for a few lines only, and never while user code runs. So no object whose `deinit` could run
/// user code is released under a lock.
public struct Lock: ~Copyable, @unchecked Sendable {
  public let word: Atomic<UInt32>

  public init() { word = Atomic(0) }

  @inline(__always)
  public borrowing func lock() {
    let isCounted = cm_count()
    if isCounted != 0, cm_is_open() != 0,
      word.compareExchange(expected: 0, desired: 1, ordering: .acquiring).exchanged
    {
      return
    }
    lockSlow(isCounted)
  }

  /// Waits while the process forks (Sources/CPenstockEmbedded/gate.c), and then waits for the lock. `isCounted`: not
  /// 0 if this lock is already in the calling thread's count of the locks that it holds (`cm_count`).
  borrowing func lockSlow(_ isCounted: Int32) {
    if isCounted != 0 { cm_pass() } else { cm_enter() }
    while word.exchange(2, ordering: .acquiring) != 0 {
      Futex.wait(word, while: 2, until: nil)
    }
  }

  @inline(__always)
  public borrowing func unlock() {
    if word.exchange(0, ordering: .releasing) == 2 { wakeOne() }
    cm_exit()
  }

  borrowing func wakeOne() { Futex.wake(word, 1) }

  @inline(__always)
  public borrowing func withLock<R, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
    lock()
    defer { unlock() }
    return try body()
  }
}

/// Lets threads sleep on an atomic word (the futex system call). An `Atomic` is never moved, so the address
/// of the `Atomic` is the address of its word.
public enum Futex {
  public enum Wake: Equatable { case woken, timedOut, interrupted }

  /// Sleeps while `word` is `value`, at most until `deadline` (monotonic ns; nil: without limit). The result
  /// is `.woken` even if `word` was another value from the start.
  @discardableResult
  public static func wait(_ word: borrowing Atomic<UInt32>, while value: UInt32, until deadline: UInt64?)
    -> Wake
  {
    let r = withUnsafePointer(to: word) { cs_futex_wait(UnsafeRawPointer($0), value, deadline ?? .max) }
    if r == -ETIMEDOUT { return .timedOut }
    if r == -EINTR { return .interrupted }
    return .woken
  }

  public static func wake(_ word: borrowing Atomic<UInt32>, _ count: Int32) {
    withUnsafePointer(to: word) { cs_futex_wake(UnsafeRawPointer($0), count) }
  }
}
