import CPenstockSystem
import PenstockWire
import Synchronization
import PenstockLink

/// An object that the loop calls when its descriptor is ready, when its timer is due, or at the end of a turn.
class Source {
  /// The descriptor; -1: the loop watches none for this source.
  final var fd: Int32 = -1
  /// The time when `timeIsUp` is due. Only the loop's heap of timers sets it.
  fileprivate(set) final var dueAt: UInt64 = 0
  fileprivate final var slot = -1
  fileprivate final var isMarked = false

  /// Does nothing by default: the source has no descriptor.
  func ready(_ bits: UInt32) {}
  /// Does nothing by default: the source arms no timer.
  func timeIsUp(_ now: UInt64) {}
  /// Called at the end of the turn if the source was marked in it (`Loop.mark`). Does nothing by default: it is
  /// never marked.
  func turnEnds() {}
  /// Called before the process ends. Does nothing by default.
  func stop() {}
}

/// The event loop. It has an epoll, a heap of timers, and a list of marked sources, whose `turnEnds` is called at
/// the end of the turn to read on, or to write.
final class Loop {
  private let epoll: Int32
  private var sources: [Source?] = []
  private var heap: [Source] = []
  private var marked: [Source] = []
  private var marking: [Source] = []
  private var ends = false
  private let events: UnsafeMutableRawPointer
  private static let capacity: Int32 = 256

  /// The buffer for received bytes. All connections use it, one after the other.
  let receiveBuffer: UnsafeMutableRawBufferPointer
  private(set) var now: UInt64 = cs_monotonic()

  init?() {
    epoll = cs_epoll_create()
    guard epoll >= 0, let events = malloc(Int(Loop.capacity) * cs_epoll_event_size()),
      let space = malloc(256 << 10)
    else { return nil }
    self.events = events
    receiveBuffer = UnsafeMutableRawBufferPointer(start: space, count: 256 << 10)
  }

  deinit {
    cs_close(epoll)
    free(events)
    free(receiveBuffer.baseAddress)
  }

  // MARK: Descriptors

  func watch(_ source: Source, _ bits: UInt32) -> Bool {
    let fd = Int(source.fd)
    guard fd >= 0, cs_epoll_ctl(epoll, EPOLL_CTL_ADD, source.fd, bits, UInt64(fd)) == 0 else { return false }
    while sources.count <= fd { sources.append(nil) }
    sources[fd] = source
    return true
  }

  func rewatch(_ source: Source, _ bits: UInt32) {
    _ = cs_epoll_ctl(epoll, EPOLL_CTL_MOD, source.fd, bits, UInt64(source.fd))
  }

  /// Stops watching the source's descriptor, and disarms its timer. The source closes the descriptor itself.
  func forget(_ source: Source) {
    disarm(source)
    let fd = Int(source.fd)
    guard fd >= 0, fd < sources.count, sources[fd] === source else { return }
    _ = cs_epoll_ctl(epoll, EPOLL_CTL_DEL, source.fd, 0, 0)
    sources[fd] = nil
  }

  /// Marks a source, so that its `turnEnds` is called before the loop sleeps again.
  func mark(_ source: Source) {
    if source.isMarked { return }
    source.isMarked = true
    marked.append(source)
  }

  func stop() { ends = true }

  func closeAll() {
    for source in sources { source?.stop() }
  }

  func run() {
    while !ends {
      let n = cs_epoll_wait(epoll, events, Loop.capacity, timeout())
      now = cs_monotonic()
      if n > 0 {
        for i in 0..<n {
          let fd = Int(cs_epoll_token(events, i))
          if fd < sources.count, let source = sources[fd] { source.ready(cs_epoll_bits(events, i)) }
        }
      }
      fire()
      // The lists are exchanged first. So a source that is marked during a `turnEnds` is called in the next
      // turn.
      swap(&marked, &marking)
      for source in marking {
        source.isMarked = false
        source.turnEnds()
      }
      marking.removeAll(keepingCapacity: true)
      if !Console.out.isEmpty { Console.out.flush() }
    }
  }

  private func timeout() -> Int32 {
    if !marked.isEmpty { return 0 }
    guard let first = heap.first else { return -1 }
    if first.dueAt <= now { return 0 }
    return Int32(truncatingIfNeeded: min((first.dueAt - now + 999_999) / 1_000_000, 1_000_000))
  }

  // MARK: Time

  private func fire() {
    while let first = heap.first, first.dueAt <= now {
      disarm(first)
      first.timeIsUp(now)
    }
  }

  func arm(_ source: Source, at: UInt64) {
    if source.slot < 0 {
      source.dueAt = at
      source.slot = heap.count
      heap.append(source)
      rise(source)
    } else {
      let earlier = at < source.dueAt
      source.dueAt = at
      if earlier { rise(source) } else { sink(source) }
    }
  }

  func disarm(_ source: Source) {
    let slot = source.slot
    guard slot >= 0 else { return }
    source.slot = -1
    let last = heap.removeLast()
    if last === source { return }
    heap[slot] = last
    last.slot = slot
    rise(last)
    sink(last)
  }

  private func rise(_ source: Source) {
    while source.slot > 0 {
      let parent = heap[(source.slot - 1) / 2]
      if parent.dueAt <= source.dueAt { return }
      exchange(source, parent)
    }
  }

  private func sink(_ source: Source) {
    while true {
      let left = source.slot * 2 + 1
      if left >= heap.count { return }
      var child = heap[left]
      if left + 1 < heap.count, heap[left + 1].dueAt < child.dueAt { child = heap[left + 1] }
      if source.dueAt <= child.dueAt { return }
      exchange(source, child)
    }
  }

  private func exchange(_ a: Source, _ b: Source) {
    heap.swapAt(a.slot, b.slot)
    swap(&a.slot, &b.slot)
  }
}

// MARK: When to end

/// Handles SIGTERM and SIGINT. The signal handler only writes to an eventfd, which the loop watches.
enum Signals {
  static let descriptor = Atomic<Int32>(-1)

  static func install() {
    descriptor.store(cs_eventfd(), ordering: .sequentiallyConsistent)
    let handler: @convention(c) (Int32) -> Void = { _ in
      cs_eventfd_signal(Signals.descriptor.load(ordering: .relaxed))
    }
    signal(SIGTERM, handler)
    signal(SIGINT, handler)
    signal(SIGPIPE) { _ in }  // If stdout or a socket has no reader any more, write() returns an error.
  }
}

extension Loop {
  private final class Stopper: Source {
    unowned(unsafe) let loop: Loop  // The loop holds its sources.
    let isStdin: Bool

    init(_ loop: Loop, _ fd: Int32, isStdin: Bool) {
      self.loop = loop
      self.isStdin = isStdin
      super.init()
      self.fd = fd
    }

    override func ready(_ bits: UInt32) {
      if isStdin {
        let n = withUnsafeTemporaryAllocation(byteCount: 512, alignment: 1) { read(fd, $0.baseAddress, 512) }
        if n > 0 || (n < 0 && cs_errno() == EINTR) { return }
      }
      loop.stop()
    }
  }

  func watchSignals() -> ByteBuffer? {
    let source = Stopper(self, Signals.descriptor.load(ordering: .relaxed), isStdin: false)
    return watch(source, CS_EPOLLIN) ? nil : Text("eventfd is not to be had")
  }

  func watchStdin() -> Bool { watch(Stopper(self, 0, isStdin: true), CS_EPOLLIN) }
}
