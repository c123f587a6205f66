import CMemory
import Synchronization

/// A lock for a few steps that call no code of a user's and wait for nothing.
struct SpinLock: ~Copyable {
  private let isLocked = Atomic<Bool>(false)

  func lock() {
    cm_enter()
    while isLocked.exchange(true, ordering: .acquiring) {
      while isLocked.load(ordering: .relaxed) {}
    }
  }

  func unlock() {
    isLocked.store(false, ordering: .releasing)
    cm_left()
  }
}
