import PenstockCall
import PenstockChannel
import PenstockWire
import Synchronization
import PenstockLoop

/// The connectivity state of a channel, for any thread. The driving thread writes it, and wakes the threads
/// that wait for another state.
final class ConnectivityCell: @unchecked Sendable {
  private let state = Atomic<Int32>(Connectivity.idle.rawValue)
  private let lock = Lock()
  private var waiters: [WaitCell] = []
  /// The first watch of a linked list. Driving thread only.
  private var watches: ConnectivityWatch?

  var now: Connectivity { Connectivity(rawValue: state.load(ordering: .acquiring)) ?? .idle }

  /// Sets the state. Called on the driving thread. True: there are watches, whose functions have to be called
  /// with the new state.
  func set(_ new: Connectivity) -> Bool {
    guard now != new else { return false }
    let woken = lock.withLock { () -> [WaitCell] in
      state.store(new.rawValue, ordering: .releasing)
      let all = waiters
      waiters = []
      return all
    }
    for waiter in woken { waiter.set() }
    return watches != nil
  }

  /// Waits until the state differs from `old`, or until `deadline` (monotonic ns).
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

  /// Adds a watch. Its function is called with all states from now on. Driving thread only.
  func add(_ watch: ConnectivityWatch) {
    watch.next = watches
    watches = watch
  }

  /// Calls the function of each watch that was last called with another state. Driving thread only, after the
  /// channel's work.
  func tellWatches() {
    var rest = watches
    watches = nil
    while let watch = rest {
      rest = watch.next.take()
      if watch.goesOn(with: now) { add(watch) }
    }
  }

  /// Called in a forked child. Makes the state IDLE, and drops the list of waiting threads, which exist only
  /// in the parent.
  func becomeChild() {
    state.store(Connectivity.idle.rawValue, ordering: .releasing)
    waiters = []
  }
}

extension ChannelCore {
  /// Adds a watch. Its function is called with all states of the channel from now on.
  public func add(_ watch: ConnectivityWatch) {
    connectivity.add(watch)
    if closedBecause == nil { work.schedule(self) } else { connectivity.tellWatches() }
  }
}

/// A user's function that is called with the connectivity states of a channel.
public final class ConnectivityWatch {
  /// The function. Its arguments are the user data and the state. The result 0 ends the watch.
  public typealias Function = @convention(c) (UnsafeMutableRawPointer?, Int32) -> Int32

  private let function: Function
  private let userData: UserData
  private var told: Connectivity?
  fileprivate var next: ConnectivityWatch?

  public init(_ function: @escaping Function, _ userData: UserData) {
    self.function = function
    self.userData = userData
  }

  /// Calls the function with `state`, unless its last call had the same state. False: the watch has ended.
  fileprivate func goesOn(with state: Connectivity) -> Bool {
    if told == state { return true }
    told = state
    return function(userData.pointer, state.rawValue) != 0 && state != .shutdown
  }
}
