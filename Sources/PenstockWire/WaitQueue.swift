public protocol Queued: AnyObject {
  /// Whether the element still waits, so that the queue must not skip it.
  var isWaiting: Bool { get }
}

/// A queue of waiting elements, oldest first. An element may stop waiting while it is in the queue. The queue
/// then skips it, and removes it later.
public struct WaitQueue<Element: Queued> {
  /// The elements. An entry is nil after its element was removed.
  private var all: [Element?] = []
  private var next = 0
  private var gone = 0

  public init() {}

  /// The number of elements, including those that no longer wait and were not removed yet.
  public var count: Int { all.count - next }
  public var isEmpty: Bool { next == all.count }

  public mutating func append(_ one: Element) { all.append(one) }

  /// Adds an element that goes before all others: it has waited before.
  public mutating func prepend(_ one: Element) {
    if next > 0 {
      next -= 1
      all[next] = one
    } else {
      all.insert(one, at: 0)
    }
  }

  /// Removes and returns the oldest element that still waits.
  @inline(__always)
  public mutating func popFirst() -> Element? { isEmpty ? nil : findFirst() }

  private mutating func findFirst() -> Element? {
    while !isEmpty {
      let oldest = all[next].take()
      next += 1
      if isEmpty {
        all.clear()
        next = 0
      } else if next >= 256, next * 2 >= all.count {
        sweep()
      }
      if let oldest, oldest.isWaiting { return oldest }
    }
    return nil
  }

  /// Called when an element no longer waits. The caller need not know which queue has the element, and may tell
  /// several queues. So `gone` may be too high; then the queue is only swept earlier.
  public mutating func forget() {
    gone += 1
    if gone >= 64, gone * 2 > count { sweep() }
  }

  /// Calls `body` with each element that still waits.
  public func forEach(_ body: (Element) -> Void) {
    for index in next..<all.count {
      if let one = all[index], one.isWaiting { body(one) }
    }
  }

  /// Removes the elements that no longer wait, if there are any, so that `count` is exact.
  public mutating func sweepGone() { if gone > 0 { sweep() } }

  public mutating func sweep() {
    var remaining = 0
    for index in next..<all.count where all[index]?.isWaiting ?? false {
      all.swapAt(remaining, index)
      remaining += 1
    }
    while all.count > remaining { all.removeLast() }
    next = 0
    gone = 0
  }
}
