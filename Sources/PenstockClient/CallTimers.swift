public import PenstockCall
import PenstockLoop
import PenstockTickets

/// A timer that fires at the call's deadline. The reference to the call is not counted: the timer is disarmed
/// when the call ends, before the call can be freed.
final class DeadlineTimer: Timer {
  unowned(unsafe) let call: Call

  init(_ call: Call) { self.call = call }

  override func fire() {
    withExtendedLifetime(call) { call.deadlinePassed() }
  }
}

/// A timer of a call, which is disarmed when the call ends.
final class CallTimer: Timer {
  enum Action {
    case resolve(UInt64, Call.Resolution)
    case perform(Call.Input)
    case run(() -> Void)
  }

  unowned(unsafe) let call: Call
  let action: Action
  /// The index of this timer in the call's `timers`.
  var slot: Int

  init(_ call: Call, _ action: Action) {
    self.call = call
    self.action = action
    slot = call.item.timers.count
    super.init()
    call.item.timers.append(self)
  }

  override func fire() {
    let call = self.call
    let last = call.item.timers.removeLast()
    if last !== self {
      last.slot = slot
      call.item.timers[slot] = last
    }
    switch action {
    case .resolve(let ticket, let resolution): _ = Tickets.resolve(ticket, resolution)
    case .perform(let input): withExtendedLifetime(call) { call.perform(input) }
    case .run(let work): withExtendedLifetime(call) { work() }
    }
  }
}

/// An item that arms a timer on the driving thread. The timer resolves a ticket.
final class DelayedResolution: InboxItem {
  private let call: Call
  private let ticket: UInt64
  private let resolution: Call.Resolution
  private let time: UInt64

  init(_ call: Call, _ ticket: UInt64, _ resolution: Call.Resolution, at time: UInt64) {
    self.call = call
    self.ticket = ticket
    self.resolution = resolution
    self.time = time
  }

  override func run() {
    guard let (owner, _) = call.item.live(call), call.item.book?.look(ticket).0 == .ok else { return }
    owner.runtime.arm(CallTimer(call, .resolve(ticket, resolution)), at: time)
  }
}

/// An item that arms a timer on the driving thread. The timer runs a function, unless the call ends before.
private final class DelayedWork: InboxItem {
  private let call: Call
  private let time: UInt64
  private let work: () -> Void

  init(_ call: Call, at time: UInt64, _ work: @escaping () -> Void) {
    self.call = call
    self.time = time
    self.work = work
  }

  override func run() {
    guard !call.isEnded, let (owner, _) = call.item.live(call) else { return }
    owner.runtime.arm(CallTimer(call, .run(work)), at: time)
  }
}

extension Hop {
  /// Runs `work` on the driving thread: at once if the calling thread drives, otherwise soon, unless the call ends
  /// before. Any thread that has the hop.
  public func onDriver(_ work: @escaping () -> Void) {
    guard !hasEnded, let (owner, _) = call.item.live(call) else { return }
    if owner.runtime.isDriving { work() } else { later(nanoseconds: 0, work) }
  }

  /// Runs `work` on the driving thread after `nanoseconds`, unless the call ends before. Any thread that has
  /// the hop.
  public func later(nanoseconds: UInt64, _ work: @escaping () -> Void) {
    guard !hasEnded, let (owner, _) = call.item.live(call) else { return }
    let runtime = owner.runtime
    _ = runtime.post(DelayedWork(call, at: runtime.time(after: nanoseconds), work))
  }
}
