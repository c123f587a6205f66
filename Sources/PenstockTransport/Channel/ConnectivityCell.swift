import PenstockChannel
import PenstockWire
import Synchronization

/// The state of a channel, for any thread. The driver writes it, and wakes the threads that wait for another state.
final class ConnectivityCell: @unchecked Sendable {
  private let state = Atomic<Int32>(Connectivity.idle.rawValue)
  private let lock = Lock()
  private var waiters: [WaitCell] = []

  var now: Connectivity { Connectivity(rawValue: state.load(ordering: .acquiring)) ?? .idle }

  /// Called on the driving thread.
  @inline(never) @_optimize(size)
  func set(_ new: Connectivity) {
    guard now != new else { return }
    let woken = lock.withLock { () -> [WaitCell] in
      state.store(new.rawValue, ordering: .releasing)
      let all = waiters
      waiters = []
      return all
    }
    for waiter in woken { waiter.set() }
  }

  /// Waits until the state is another than `old`, or the deadline passes.
  @inline(never) @_optimize(size)
  func wait(for old: Connectivity, on runtime: Runtime, deadline: UInt64?) -> Runtime.WaitResult {
    let cell = WaitCell()
    while true {
      let isWaiting = lock.withLock { () -> Bool in
        guard now == old else { return false }
        waiters.append(cell)
        return true
      }
      if !isWaiting { return .ready }
      let result = runtime.wait(for: cell, deadline: deadline, interruptible: true)
      lock.withLock { waiters.drop(cell) }
      if result != .ready { return now == old ? result : .ready }
      cell.reset()
    }
  }

  /// Makes the state idle in a forked child, and forgets the parent's threads that waited.
  @inline(never) @_optimize(size)
  func becomeChild() {
    state.store(Connectivity.idle.rawValue, ordering: .releasing)
    waiters = []
  }
}
