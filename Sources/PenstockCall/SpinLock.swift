import CPenstockMemory
import Synchronization

/// A spin lock. It may be held only for a few instructions, which neither call user code nor wait.
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
    cm_exit()
  }
}
