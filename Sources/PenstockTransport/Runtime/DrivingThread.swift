import CSystem
import Synchronization

/// Which threads drive a runtime now, whichever it is: for functions that wait and belong to none.
enum DrivingThread {
  /// The key of a count, plus one; 0: not made yet.
  private static let key = Atomic<UInt32>(0)

  private static func madeKey() -> pthread_key_t? {
    let known = key.load(ordering: .acquiring)
    if known != 0 { return known - 1 }
    var fresh: pthread_key_t = 0
    guard pthread_key_create(&fresh, nil) == 0 else { return nil }
    let (done, original) = key.compareExchange(
      expected: 0, desired: fresh + 1, ordering: .acquiringAndReleasing)
    if done { return fresh }
    pthread_key_delete(fresh)
    return original - 1
  }

  static var isCurrent: Bool {
    let known = key.load(ordering: .acquiring)
    return known != 0 && pthread_getspecific(known - 1) != nil
  }

  /// A thread may drive one runtime in a callback of another.
  static func begin() { add(1) }
  static func end() { add(-1) }

  private static func add(_ change: Int) {
    guard let key = madeKey() else { return }
    let count = Int(bitPattern: pthread_getspecific(key)) + change
    pthread_setspecific(key, UnsafeRawPointer(bitPattern: max(count, 0)))
  }
}
