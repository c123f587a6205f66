import CPenstockSystem
public import PenstockCall
import PenstockWire
import Synchronization
import PenstockLoop
public import PenstockTickets
import PenstockHTTP
import PenstockTransport

/// The values that a call and its hops share, with a lock, because several threads may use them.
private final class LockedValues: CallValues {
  private let word = Lock()

  override func lock() { word.lock() }
  override func unlock() { word.unlock() }
}

/// One event loop of a user's runtime, with the calls that run on it. A channel and all its calls are on one
/// loop.
public final class RuntimeLoop: CallLoop, @unchecked Sendable {
  public let runtime: Runtime
  let live = LiveCalls()
  /// The next loop of the same user's runtime; nil: this is the last one.
  let next: RuntimeLoop?
  /// The number of channels on this loop that are not closed.
  fileprivate let channels = Atomic<Int>(0)

  /// Shows other threads which user callback runs on the driving thread, for diagnosis.
  let watch: CallWatch

  init(_ runtime: Runtime, _ watch: CallWatch, next: RuntimeLoop?) {
    self.runtime = runtime
    self.watch = watch
    self.next = next
    super.init()
  }

  var isClosed: Bool { runtime.closed.load(ordering: .acquiring) }

  // The functions from here to `withFewestChannels` act on this loop and on all later loops (`next`).

  func begin(_ workers: Unmanaged<WorkerPool>) {
    live.workers = workers
    runtime.post(LiveCalls.Registering(live, runtime))
    next?.begin(workers)
  }

  var areAllClosed: Bool { isClosed && next?.areAllClosed != false }

  /// Whether the calling thread drives this loop or a later one.
  var isOneDriven: Bool { runtime.isDriving || next?.isOneDriven == true }

  func releaseHandles() {
    runtime.releaseHandle()
    next?.releaseHandles()
  }

  /// Shuts down this loop and all later ones (`Runtime.shutdown`). All loops begin to shut down before this
  /// thread waits for any of them.
  func shutdown(timeoutMilliseconds: Int64) -> Runtime.ShutdownResult {
    runtime.closed.store(true, ordering: .releasing)
    var others = Runtime.ShutdownResult.already
    let own = runtime.shutdown(timeoutMilliseconds: timeoutMilliseconds) {
      if let next { others = next.shutdown(timeoutMilliseconds: timeoutMilliseconds) }
    }
    return own == .already || others == .timedOut ? others : own
  }

  /// Chooses the loop for a new channel, and adds the channel to that loop's count. The choice is the first
  /// loop with the fewest channels. A loop that has lost its descriptors is chosen only if all loops have
  /// lost theirs.
  func withFewestChannels() -> RuntimeLoop {
    var best = self
    var next = self.next
    while let loop = next {
      let isBetter =
        best.isClosed || loop.channels.load(ordering: .relaxed) < best.channels.load(ordering: .relaxed)
      if isBetter, !loop.isClosed { best = loop }
      next = loop.next
    }
    best.channels.wrappingAdd(1, ordering: .relaxed)
    return best
  }

  // The functions from here on act on this loop only.

  /// Subtracts the channel that `withFewestChannels` has added to this loop's count. Called when the channel
  /// is closed, or could not be made.
  public func hasOneChannelLess() { channels.wrappingSubtract(1, ordering: .relaxed) }

  public override var now: UInt64 { runtime.now }
  public override func newValues() -> CallValues { LockedValues() }
  public override var isForked: Bool { Process.isForked(runtime.generation) }
  public override var isDriving: Bool { runtime.isDriving }
  public override var thread: UInt { UInt(cs_thread_self()) }
  public override var clock: UInt64 { runtime.clock }

  public override func setDeadline(_ call: Call, _ time: UInt64?) {
    call.withItem { item in
      if let timer = item.deadline { runtime.disarm(timer) }
      guard let time else {
        if item.deadline != nil { item.deadline = nil }
        return
      }
      let timer = item.deadline ?? DeadlineTimer(call)
      item.deadline = timer
      runtime.arm(timer, at: time)
    }
  }

  public override func resume(_ ticket: UInt64, of call: Call, at time: UInt64) {
    runtime.arm(CallTimer(call, .resolve(ticket, .verdict(.next))), at: time)
  }

  public override func perform(_ input: Call.Input, of call: Call, at time: UInt64) {
    runtime.arm(CallTimer(call, .perform(input)), at: time)
  }

  public override func post(_ call: Call) {
    call.withItem { item in
      item.posted = .passRetained(call)
      _ = runtime.post(item)
    }
  }

  public override func issueTicket(_ event: Event, of hop: Hop, start: Request?) -> UInt64 {
    book(of: hop.call).issue(event, of: hop, start: start)
  }

  public override func shareTickets(of call: Call) { _ = book(of: call) }

  private func book(of call: Call) -> TicketBook {
    let item = call.item
    if let book = item.book { return book }
    let book = TicketBook(.shared, call, self)
    item.book = book
    return book
  }

  public override func spendTicket(_ ticket: UInt64, of call: Call) {
    _ = call.item.book?.spend(ticket, for: nil)
  }

  public override func loseTicket(_ ticket: UInt64, of call: Call) { call.item.book?.lose(ticket) }

  public override func room(of message: Message, of call: Call) -> Int {
    call.item.book?.room(of: message) ?? message.room
  }

  public override func releaseAtRest(_ call: Call) -> Bool { runtime.releaseAtRest(call) }

  public override func closeTickets(of call: Call) {
    call.withItem { item in
      if !item.timers.isEmpty {
        for timer in item.timers { runtime.disarm(timer) }
        item.timers = []
      }
      item.detachOwner(call)
      item.book?.close()
    }
  }
}

extension RuntimeLoop: TicketLoop {
  public func resolve(
    _ ticket: UInt64, of call: Call, _ resolution: Call.Resolution, afterNanoseconds nanoseconds: UInt64
  ) {
    let time = runtime.time(after: nanoseconds)
    if resolution.verdict == .next {
      call.submit(.resume(ticket, at: time))
    } else {
      _ = runtime.post(DelayedResolution(call, ticket, resolution, at: time))
    }
  }
}

extension Hop {
  /// The platform of the call's runtime, with the clocks by which the call lives. Any thread.
  public var platform: Platform {
    // The cast is safe, because `RuntimeLoop` is the only subclass of `CallLoop`.
    unsafeDowncast(call.loop, to: RuntimeLoop.self).runtime.platform
  }
}

extension ClientChannel {
  public var platform: Platform { loop.runtime.platform }
}
