import Glibc

/// A value that one thread at a time reads or changes. The lock is held for a few lines, and never while code of the
/// program runs.
///
/// It is a POSIX mutex, and not the Mutex of Synchronization, which ThreadSanitizer does not know as a lock.
package struct Locked<Value>: ~Copyable, @unchecked Sendable {
  // Sendable: the value behind the pointer is only reached under the mutex beside it, and Value's own parts are handed
  // from thread to thread whole.
  private struct Storage {
    var mutex = pthread_mutex_t()
    var value: Value
  }
  private let storage: UnsafeMutablePointer<Storage>

  package init(_ value: sending Value) {
    storage = .allocate(capacity: 1)
    storage.initialize(to: Storage(value: value))
    pthread_mutex_init(&storage.pointee.mutex, nil)
  }

  deinit {
    pthread_mutex_destroy(&storage.pointee.mutex)
    storage.deinitialize(count: 1)
    storage.deallocate()
  }

  package borrowing func withLock<Result>(_ body: (inout Value) -> Result) -> Result {
    pthread_mutex_lock(&storage.pointee.mutex)
    defer { pthread_mutex_unlock(&storage.pointee.mutex) }
    return body(&storage.pointee.value)
  }
}
