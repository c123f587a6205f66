import CPenstockSystem
import PenstockWire
import Synchronization

/// The owner of a watched descriptor. `ready` is called on the driving thread, with the epoll bits of the
/// events.
public protocol ReadyHandler: AnyObject {
  func ready(_ events: UInt32)
}

/// The epoll instance of a runtime, with the watched descriptors and their handlers. `wakeFD` wakes a driving
/// thread that sleeps in `wait`. A host-driven runtime also has `outer`, the descriptor that the host program
/// polls, and `timerFD`. The poller calls no handler itself.
public class Poller {
  private struct Watch {
    let fd: Int32
    /// Distinguishes this watch from an earlier watch of the same descriptor number, because one batch of
    /// events may contain events of both watches.
    let serial: UInt32
    var handler: any ReadyHandler
  }

  private final var inner: Int32 = -1
  private final var wakeFD: Int32 = -1
  private final var timerFD: Int32 = -1
  private(set) final var outer: Int32 = -1
  /// The monotonic time in ns at which `timerFD` fires; 0: the timer was not set, or has fired.
  private final var timerAt: UInt64 = 0
  private final var isAttached = false
  /// Whether `wakeFD` was signalled, and no `wait` has seen the signal yet. The value may be out of date, so
  /// it only serves to save a system call (`takeKick`).
  private final let isKicked = Atomic<Bool>(false)

  /// Whether other code in the program has closed a descriptor of the poller. Any descriptor number here may
  /// then belong to another file, so the poller neither uses nor closes its descriptors any more. Any thread
  /// may set this flag; only the driving thread acts on it.
  final let isLost = Atomic<Bool>(false)

  /// The watches, sorted by descriptor number.
  private final var watches: [Watch] = []
  /// The serial number of the latest watch. It wraps around. Two watches in one batch of events are never
  /// 2^32 watches apart, so their numbers differ.
  final var serial: UInt32 = 0
  private final let events: UnsafeMutableRawPointer?
  private static let capacity: Int32 = 128

  private static let wakeToken = UInt64.max
  private static let timerToken = UInt64.max - 1

  /// The errno and the name of the step that failed in `init`; nil: none failed.
  private(set) final var failure: (Int32, StaticString)?

  public init(host: Bool) {
    events = malloc(Int(Poller.capacity) * cs_epoll_event_size())
    failure = events == nil ? (ENOMEM, "memory for events") : open(host)
  }

  /// A poller without descriptors, for a subclass that finds events elsewhere.
  init() { events = nil }

  private final func open(_ host: Bool) -> (Int32, StaticString)? {
    inner = cs_epoll_create()
    if inner < 0 { return (-inner, "epoll_create1") }
    wakeFD = cs_eventfd()
    if wakeFD < 0 { return (-wakeFD, "eventfd") }
    // `wakeFD` is edge-triggered: each signal gives one event, and the counter of the eventfd need not be
    // read.
    var r = cs_epoll_ctl(inner, EPOLL_CTL_ADD, wakeFD, CS_EPOLLIN | CS_EPOLL_EDGE, Poller.wakeToken)
    if r < 0 { return (-r, "epoll_ctl") }
    guard host else { return nil }
    timerFD = cs_timerfd()
    if timerFD < 0 { return (-timerFD, "timerfd_create") }
    r = cs_epoll_ctl(inner, EPOLL_CTL_ADD, timerFD, CS_EPOLLIN | CS_EPOLL_EDGE, Poller.timerToken)
    if r < 0 { return (-r, "epoll_ctl") }
    outer = cs_epoll_create()
    if outer < 0 { return (-outer, "epoll_create1") }
    r = cs_epoll_ctl(outer, EPOLL_CTL_ADD, inner, CS_EPOLLIN, 0)
    if r < 0 { return (-r, "epoll_ctl") }
    isAttached = true
    return nil
  }

  deinit {
    close()
    closeOuter()
    free(events)
  }

  /// Closes all descriptors of the poller except `outer`, which the host program may keep in a poll set until
  /// it releases the runtime's handle. Does not call epoll_ctl, because a forked child shares the epoll
  /// instances with its parent.
  func close() {
    if !isLost.load(ordering: .relaxed) {
      cs_close(inner)
      cs_close(wakeFD)
      cs_close(timerFD)
    }
    forget()
  }

  /// Forgets the poller's descriptors without closing them.
  func forget() {
    inner = -1
    wakeFD = -1
    timerFD = -1
  }

  func closeOuter() {
    if !isLost.load(ordering: .relaxed) { cs_close(outer) }
    outer = -1
  }

  /// Called in a forked child: closes the child's copies of the parent's descriptors, and opens new
  /// descriptors. `outer` keeps its number, because the host program knows that number.
  func renew(host: Bool) {
    let dropped = watches
    watches = []
    let known = outer
    close()
    outer = -1
    timerAt = 0
    isKicked.store(false, ordering: .relaxed)
    isAttached = false
    if isLost.load(ordering: .relaxed) || open(host) != nil {
      isLost.store(true, ordering: .relaxed)
    } else if known >= 0 {
      outer = cs_replace_descriptor(outer, known)
    }
    withExtendedLifetime(dropped) {}
  }

  // MARK: Watches

  /// The index of `fd` in `watches`, or the index at which it has to be inserted.
  private final func index(_ fd: Int32) -> Int {
    var low = 0
    var high = watches.count
    while low < high {
      let middle = (low + high) / 2
      if watches[middle].fd < fd { low = middle + 1 } else { high = middle }
    }
    return low
  }

  private final func token(_ fd: Int32, _ serial: UInt32) -> UInt64 {
    UInt64(serial) << 32 | UInt64(UInt32(bitPattern: fd))
  }

  func watch(_ fd: Int32, _ bits: UInt32, _ handler: any ReadyHandler) -> Bool {
    let i = index(fd)
    guard fd >= 0, inner >= 0, i == watches.count || watches[i].fd != fd else { return false }
    serial &+= 1
    if cs_epoll_ctl(inner, EPOLL_CTL_ADD, fd, bits, token(fd, serial)) < 0 { return false }
    watches.put(Watch(fd: fd, serial: serial, handler: handler), at: i)
    return true
  }

  func rewatch(_ fd: Int32, _ bits: UInt32) {
    let i = index(fd)
    guard i < watches.count, watches[i].fd == fd else { return }
    _ = cs_epoll_ctl(inner, EPOLL_CTL_MOD, fd, bits, token(fd, watches[i].serial))
  }

  func hand(_ fd: Int32, to handler: any ReadyHandler) {
    let i = index(fd)
    if i < watches.count, watches[i].fd == fd { watches[i].handler = handler }
  }

  /// Stops watching `fd`. Returns the handler, which the caller then releases.
  func unwatch(_ fd: Int32) -> (any ReadyHandler)? {
    let i = index(fd)
    guard i < watches.count, watches[i].fd == fd else { return nil }
    _ = cs_epoll_ctl(inner, EPOLL_CTL_DEL, fd, 0, 0)
    return watches.remove(at: i).handler
  }

  func unwatchAny() -> (any ReadyHandler)? { watches.isEmpty ? nil : watches.removeLast().handler }

  // MARK: Waiting

  /// Waits for events; returns their number, or -EINTR.
  func wait(milliseconds: Int32) -> Int32 {
    guard let events, inner >= 0 else {
      // The inner epoll instance is lost, so no descriptor can wake this thread. A short sleep lets the
      // caller check its state again soon.
      if milliseconds != 0 { cs_sleep_milliseconds(10) }
      return 0
    }
    let count = cs_epoll_wait(inner, events, Poller.capacity, milliseconds)
    if count >= 0 || count == -EINTR { return count }
    isLost.store(true, ordering: .relaxed)
    return 0
  }

  /// Checks that the wake descriptor still is the one that this poller watches. Without it no other thread can
  /// wake the driver, and as long as none has to, nothing else would find that out. Called on the driving
  /// thread after a long sleep. If the descriptor was ever signalled this causes one more event, so the next
  /// wait returns at once.
  func checkWake() {
    guard inner >= 0, wakeFD >= 0 else { return }
    let result = cs_epoll_ctl(
      inner, EPOLL_CTL_MOD, wakeFD, CS_EPOLLIN | CS_EPOLL_EDGE, Poller.wakeToken)
    if result < 0 { isLost.store(true, ordering: .relaxed) }
  }

  /// The handler of event `i` of the last `wait`, and the epoll bits. nil: the event is of `wakeFD` or
  /// `timerFD`, or its descriptor is not watched any more.
  func event(_ i: Int32) -> (handler: any ReadyHandler, bits: UInt32)? {
    guard let events else { return nil }
    let token = cs_epoll_token(events, i)
    if token == Poller.wakeToken {
      isKicked.store(false, ordering: .relaxed)
      return nil
    }
    if token == Poller.timerToken {
      timerAt = 0
      return nil
    }
    let fd = Int32(truncatingIfNeeded: token)
    let at = index(fd)
    guard at < watches.count, watches[at].fd == fd,
      watches[at].serial == UInt32(truncatingIfNeeded: token >> 32)
    else { return nil }
    return (watches[at].handler, cs_epoll_bits(events, i))
  }

  /// Wakes the thread that is in `wait`. If no thread is in `wait`, the next `wait` returns at once. Called
  /// under the runtime's lock, so that no other thread closes `wakeFD` during the call.
  func kick() {
    guard wakeFD >= 0 else { return }
    isKicked.store(true, ordering: .relaxed)
    if !cs_eventfd_signal(wakeFD) { isLost.store(true, ordering: .relaxed) }
  }

  // MARK: Host mode

  /// Takes back a signal of `wakeFD` that no `wait` has seen, so that `outer` does not become readable for
  /// work that has been done. Called under the runtime's lock, so that no other thread closes `wakeFD` during
  /// the call.
  func takeKick() {
    if isKicked.exchange(false, ordering: .relaxed), wakeFD >= 0 { cs_eventfd_clear(wakeFD) }
  }

  /// Host mode: makes `outer`, the descriptor that the host program polls, readable at the monotonic time
  /// `at` (ns). nil: changes nothing. A timer that is already set for an earlier time stays: this saves a
  /// system call, and costs one early wake-up.
  func setTimer(_ at: UInt64?) {
    guard let at, timerFD >= 0, timerAt == 0 || at < timerAt else { return }
    timerAt = at
    if !cs_timerfd_set(timerFD, at) { isLost.store(true, ordering: .relaxed) }
  }

  /// Sets whether `outer`, the descriptor that the host program polls, is readable while the inner epoll
  /// instance has events.
  func attach(_ on: Bool) {
    guard outer >= 0, inner >= 0, on != isAttached else { return }
    isAttached = on
    _ = cs_epoll_ctl(outer, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, inner, CS_EPOLLIN, 0)
  }
}
