import CPenstockMemory
import PenstockWire
import Synchronization

/// Work for the driving thread. A subclass carries the data for its work, and overrides `run`.
///
/// An item is in at most one inbox, and at most once: posting a queued item again does nothing. So an object
/// can own one item, and post it whenever the driving thread has to check the object. An item may be posted
/// again from within `run`.
open class InboxItem {
  /// The address of the next item in the queue. The inbox owns this field while the item is queued.
  fileprivate final var next: UInt = 0
  fileprivate final let queued = Atomic<Bool>(false)
  fileprivate final let isRetainedElsewhere: Bool

  /// Makes an item. `isRetainedElsewhere`: another object holds a reference to the item until the item has run,
  /// and posts it only while it is not queued. Otherwise the inbox holds a reference while the item is
  /// queued.
  public init(isRetainedElsewhere: Bool = false) { self.isRetainedElsewhere = isRetainedElsewhere }

  /// Calls `body` with the item, and then releases the inbox's reference. An item with `isRetainedElsewhere` may
  /// be freed before `body` returns.
  @inline(__always)
  fileprivate final func begun(_ body: (InboxItem) -> Void) {
    let isRetainedElsewhere = isRetainedElsewhere
    body(self)
    if !isRetainedElsewhere { Unmanaged.passUnretained(self).release() }
  }

  @inline(__always)
  fileprivate final func retained() -> Unmanaged<InboxItem> {
    isRetainedElsewhere ? .passUnretained(self) : .passRetained(self)
  }

  /// Does the item's work. Called on the driving thread, which holds no lock.
  open func run() { mustOverride(()) }

  /// Called instead of `run` if the runtime has ended, so that no thread drives it any more. `why`: the
  /// reason for the runtime's end. Called on any thread, which holds no lock. By default nobody waits for the work.
  open func dropped(_ why: Closing) {}

  /// Called instead of `run`, on the driving thread of a forked child, for an item that was posted in the
  /// parent.
  open func runInChild() { run() }

  /// If the item begins a call, adds that call to `calls`. Called in a forked child for an item that was
  /// posted in the parent. By default it begins none.
  open func count(_ calls: inout InheritedCalls) {}
}

/// The number of calls that a runtime in a forked child has inherited from the parent.
public struct InheritedCalls {
  public var all = 0
  /// The number of those calls that are in callback style.
  public var inBackground = 0
}

/// The items that were posted in the parent and had not run when it forked. A forked child runs them with
/// `runInChild` before any item that is posted in the child.
final class InheritedItems: InboxItem {
  private let items: [Unmanaged<InboxItem>]
  private let runtime: Runtime
  var isEmpty: Bool { items.isEmpty }

  fileprivate init(_ items: [Unmanaged<InboxItem>], _ runtime: Runtime) {
    self.items = items
    self.runtime = runtime
  }

  override func run() {
    runtime.endInherited()
    for item in items {
      item._withUnsafeGuaranteedRef { item in
        item.queued.store(false, ordering: .releasing)
        item.begun { $0.runInChild() }
      }
    }
  }
}

/// A queue with many producers and one consumer: a lock-free stack. The consumer (the driving thread) takes
/// the whole stack at once and reverses it, so that items run in the order in which they were pushed. The
/// queue holds a reference to each item, unless the item has `isRetainedElsewhere`. `@unchecked`: only the
/// consumer uses `taken`; all other state is atomic.
final class Inbox: @unchecked Sendable {
  private let head = Atomic<UInt>(0)
  /// The address of the first item that the consumer has taken off the stack and not yet run. Only the
  /// consumer uses it.
  private var taken: UInt = 0

  /// Pushes an item. The push is sequentially consistent, so that either the driving thread sees the item
  /// before it sleeps, or the pusher sees that the thread sleeps (`Runtime.turn`). False: the item was queued
  /// already.
  func push(_ item: InboxItem) -> Bool {
    if !item.isRetainedElsewhere {
      // Between `cm_enter` and `cm_exit` the process does not fork. So in a forked child each item with
      // `queued` set is on the stack.
      cm_enter()
      defer { cm_exit() }
      if item.queued.exchange(true, ordering: .acquiringAndReleasing) { return false }
      link(item)
    } else {
      link(item)
    }
    return true
  }

  @inline(__always)
  private func link(_ item: InboxItem) {
    let address = UInt(bitPattern: item.retained().toOpaque())
    var seen = head.load(ordering: .relaxed)
    while true {
      item.next = seen
      let (exchanged, original) = head.compareExchange(
        expected: seen, desired: address, ordering: .sequentiallyConsistent)
      if exchanged { return }
      seen = original
    }
  }

  /// Whether there is no item to run, neither in `taken` nor on the stack. Called by the consumer only.
  var isEmpty: Bool { taken == 0 && head.load(ordering: .sequentiallyConsistent) == 0 }
  /// Whether the stack has items, which the consumer has not taken yet. Any thread.
  var hasPushed: Bool { head.load(ordering: .sequentiallyConsistent) != 0 }

  /// Moves all pushed items to `taken`, the oldest first.
  private func refill() {
    if head.load(ordering: .relaxed) == 0 { return }
    var newest = head.exchange(0, ordering: .sequentiallyConsistent)
    while newest != 0, let raw = UnsafeRawPointer(bitPattern: newest) {
      Unmanaged<InboxItem>.fromOpaque(raw)._withUnsafeGuaranteedRef { item in
        let older = item.next
        item.next = taken
        taken = newest
        newest = older
      }
    }
  }

  /// Called in a forked child: takes out all items, which were posted in the parent, and adds the calls that
  /// they begin to `calls`.
  func inherit(_ runtime: Runtime, _ calls: inout InheritedCalls) -> InheritedItems {
    var items: [Unmanaged<InboxItem>] = []
    while true {
      if taken == 0 { refill() }
      guard let raw = UnsafeRawPointer(bitPattern: taken) else { return InheritedItems(items, runtime) }
      let item = Unmanaged<InboxItem>.fromOpaque(raw)
      items.append(item)
      item._withUnsafeGuaranteedRef {
        taken = $0.next
        $0.next = 0
        $0.count(&calls)
      }
    }
  }

  /// Takes out the next item and calls `body` with it. The item may be posted again from within `body`.
  /// False: the inbox is empty.
  @inline(__always)
  func pop(_ body: (InboxItem) -> Void) -> Bool {
    if taken == 0 { refill() }
    guard let raw = UnsafeRawPointer(bitPattern: taken) else { return false }
    Unmanaged<InboxItem>.fromOpaque(raw)._withUnsafeGuaranteedRef { item in
      taken = item.next
      item.next = 0
      item.queued.store(false, ordering: .releasing)
      item.begun(body)
    }
    return true
  }
}
