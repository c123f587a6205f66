import PenstockWire

/// Work to be done at a given time. Only the driving thread uses a timer. The runtime holds a reference while
/// the timer is armed.
open class Timer {
  /// The timer's index in the heap; -1: it is not in the heap.
  public fileprivate(set) final var index = -1
  public private(set) final var deadline: UInt64 = 0
  public final var isArmed: Bool { index >= 0 }

  public init() {}

  /// Called on the driving thread when the timer is due. The timer is disarmed by then, and may arm itself again.
  open func fire() { mustOverride(()) }

  fileprivate final func set(_ at: UInt64) { deadline = at }
}

/// A binary heap of armed timers, ordered by time. It does not call `fire` itself.
struct TimerHeap {
  private struct Entry {
    var at: UInt64
    /// The heap's reference, retained and released by hand, so that moving an entry costs no reference
    /// counting.
    var timer: Unmanaged<Timer>
  }
  private var entries: [Entry] = []

  var count: Int { entries.count }
  var earliest: UInt64? { entries.first?.at }

  /// Arms `timer` for the monotonic time `at` (ns). A timer that is armed already is moved to `at`.
  mutating func arm(_ timer: Timer, at: UInt64) {
    timer.set(at)
    if timer.index >= 0 {
      let i = timer.index
      let before = entries[i].at
      entries[i].at = at
      if at < before { up(i) } else { down(i) }
      return
    }
    entries.append(Entry(at: at, timer: .passRetained(timer)))
    up(entries.count - 1)
  }

  /// Removes `timer` from the heap. Returns the heap's reference, which the caller releases outside of the
  /// heap's functions; nil: the timer was not armed.
  mutating func disarm(_ timer: Timer) -> Timer? {
    let i = timer.index
    guard i >= 0, i < entries.count else { return nil }
    return remove(i)
  }

  /// Removes and returns the earliest timer, if it is due at `now`; otherwise returns nil.
  mutating func popDue(_ now: UInt64) -> Timer? {
    guard let first = entries.first, first.at <= now else { return nil }
    return remove(0)
  }

  /// Removes and returns any timer; nil: the heap is empty.
  mutating func popAny() -> Timer? {
    entries.isEmpty ? nil : remove(entries.count - 1)
  }

  private mutating func remove(_ i: Int) -> Timer {
    let timer = entries[i].timer.takeRetainedValue()
    timer.index = -1
    let last = entries.removeLast()
    if i < entries.count {
      let before = entries[i].at
      entries[i] = last
      last.timer._withUnsafeGuaranteedRef { $0.index = i }
      if last.at < before { up(i) } else { down(i) }
    }
    return timer
  }

  private mutating func up(_ start: Int) {
    var i = start
    let entry = entries[i]
    while i > 0 {
      let parent = (i - 1) / 2
      if entries[parent].at <= entry.at { break }
      put(entries[parent], i)
      i = parent
    }
    put(entry, i)
  }

  private mutating func down(_ start: Int) {
    var i = start
    let entry = entries[i]
    while true {
      var child = 2 * i + 1
      if child >= entries.count { break }
      if child + 1 < entries.count, entries[child + 1].at < entries[child].at { child += 1 }
      if entry.at <= entries[child].at { break }
      put(entries[child], i)
      i = child
    }
    put(entry, i)
  }

  private mutating func put(_ entry: Entry, _ i: Int) {
    entries[i] = entry
    entry.timer._withUnsafeGuaranteedRef { $0.index = i }
  }
}
