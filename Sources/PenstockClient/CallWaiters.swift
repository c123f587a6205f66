import CPenstockSystem
import PenstockLoop

/// The change of a call that a thread waits for in a blocking function. Every waiter waits for the end of the
/// call, too.
enum Awaited: UInt8 {
  case headers = 1
  case message = 2
  case room = 4
  case end = 8
}

final class CallWaiter: WaitCell, @unchecked Sendable {
  let awaited: Awaited
  /// The thread that waits.
  fileprivate let thread = UInt(cs_thread_self())
  /// The next waiter in the call's list.
  fileprivate var next: Unmanaged<CallWaiter>?
  /// Whether the waiter was woken, and its thread has not checked the call since then. Such a waiter need not
  /// be woken again.
  fileprivate var isTold = false

  /// The cell holds no reference to the runtime. Each thread that sets the cell holds the call or its worker
  /// pool, and each of these holds the runtime.
  init(_ awaited: Awaited) {
    self.awaited = awaited
    super.init(retainsRuntime: false)
  }
}

/// The threads that wait in a call, under the call's lock. A wake-up costs two context switches, so a thread
/// is woken only for the change that it waits for. The list holds no references. A thread removes its waiter
/// from the list before it returns from the wait, unless the call has ended and no other thread can reach the
/// call.
struct CallWaiters {
  private var first: Unmanaged<CallWaiter>?
  /// A mask of the changes that waiters wait for; waiters that were already woken are left out.
  private var awaited: UInt8 = 0

  mutating func add(_ waiter: CallWaiter) {
    waiter.next = first
    first = .passUnretained(waiter)
    if !waiter.isTold { awaited |= waiter.awaited.rawValue }
  }

  /// Called when the waiter's thread has checked its call after a wake-up, and is about to wait again.
  mutating func renew(_ waiter: CallWaiter) {
    waiter.isTold = false
    awaited |= waiter.awaited.rawValue
  }

  mutating func remove(_ waiter: CallWaiter) {
    var next = first
    first = nil
    awaited = 0
    while let known = next {
      next = known._withUnsafeGuaranteedRef { $0.next }
      if known.toOpaque() != Unmanaged.passUnretained(waiter).toOpaque() {
        known._withUnsafeGuaranteedRef { add($0) }
      }
    }
  }

  func isAwaited(_ news: Awaited) -> Bool { awaited & (news == .end ? .max : news.rawValue) != 0 }

  /// Sets all waiters, without atomic operations. Called if the calling thread drives the loop and owns all
  /// the waiters.
  func setUnshared() {
    var next = first
    while let known = next {
      known._withUnsafeGuaranteedRef {
        $0.setUnshared()
        next = $0.next
      }
    }
  }

  /// Returns the waiters that the caller has to set for the change `news` after it has released the lock.
  /// Usually `one` is the only waiter. The caller has to release `one`. If `isOwn`, the caller must not
  /// release it, because `one` belongs to the calling thread.
  mutating func awaiting(_ news: Awaited) -> (one: Unmanaged<CallWaiter>?, isOwn: Bool, more: [CallWaiter]) {
    var one: Unmanaged<CallWaiter>?
    var isOwn = false
    var more: [CallWaiter] = []
    var next = first
    awaited = 0
    while let known = next {
      known._withUnsafeGuaranteedRef { waiter in
        if !waiter.isTold, news == .end || waiter.awaited == news {
          waiter.isTold = true
          if one != nil {
            more.append(waiter)
          } else {
            isOwn = waiter.thread == UInt(cs_thread_self())
            one = isOwn ? known : known.retain()
          }
        }
        if !waiter.isTold { awaited |= waiter.awaited.rawValue }
        next = waiter.next
      }
    }
    return (one, isOwn, more)
  }
}
