/// What a thread waits for in a blocking function of a call. The end of the call is awaited by every one.
enum Awaited: Equatable { case headers, message, room, end }

final class CallWaiter: WaitCell, @unchecked Sendable {
  let awaited: Awaited
  /// The list's.
  fileprivate var next: CallWaiter?

  init(_ awaited: Awaited) { self.awaited = awaited }
}

/// The threads that wait in a call: a wake-up costs two of a processor's switches, so nobody is woken for what others
/// wait for. Under the call's lock.
struct CallWaiters {
  private var first: CallWaiter?

  mutating func add(_ waiter: CallWaiter) {
    waiter.next = first
    first = waiter
  }

  mutating func remove(_ waiter: CallWaiter) {
    if first === waiter {
      first = waiter.next
    } else {
      var before = first
      while let known = before, known.next !== waiter { before = known.next }
      before?.next = waiter.next
    }
    waiter.next = nil
  }

  /// Those to set for `news`, outside of the lock: mostly one, or none.
  func awaiting(_ news: Awaited) -> (CallWaiter?, [CallWaiter]) {
    var one: CallWaiter?
    var more: [CallWaiter] = []
    var next = first
    while let waiter = next {
      if news == .end || waiter.awaited == news {
        if one == nil { one = waiter } else { more.append(waiter) }
      }
      next = waiter.next
    }
    return (one, more)
  }
}
