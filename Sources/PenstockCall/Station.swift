import PenstockWire

/// The events of one lane that stand at one hop: in front of it, unseen (`waiting`), and behind its callback,
/// to leave in order (`parked`). A station is made when the first event has to wait.
final class Station {
  /// The condition under which an event may leave.
  enum Wait: Equatable {
    case none
    /// HOLD without a ticket: the event may leave with the hop's next NEXT in this lane.
    case next
    /// HOLD with a ticket: the event may leave when this ticket is resolved.
    case hold(UInt64)
    /// PAUSE, or a callback that runs on an executor: the event waits, and later events wait unseen, until the claim
    /// is given up.
    case pause(Claim)
  }

  /// The reason why a lane is shut. A callback on an executor is a pause that the library resolves.
  enum Claim: Equatable { case ticket(UInt64), job }

  struct Parked {
    var event: Event
    var wait: Wait
    /// Whether the event's `sent` stops at this hop: the hop has injected the event, or `sent` was told when
    /// the event was held.
    var isOwn = false
    /// The event's part of `heldBytes`, until it leaves.
    var heldBytes = 0
    /// The ticket that the event waits for, or has waited for. 0: none.
    var ticket: UInt64 = 0
    /// The time when the event was paused, held or handed to an executor; 0: it was not.
    var since: UInt64 = 0

    init(event: Event, wait: Wait, isOwn: Bool = false, heldBytes: Int = 0, since: UInt64 = 0) {
      self.event = event
      self.wait = wait
      self.isOwn = isOwn
      self.heldBytes = heldBytes
      self.since = since
      switch wait {
      case .hold(let number), .pause(.ticket(let number)): ticket = number
      case .none, .next, .pause(.job): break
      }
    }
  }

  var waiting = Fifo<Event>()
  var parked = Fifo<Parked>()
  var heldBytes = 0
  /// The number of events that are held without a ticket.
  var ticketless = 0
  /// Whether an event here is paused, or its callback is on an executor. There is at most one such event, since later
  /// ones are not shown; injected events may stand behind it.
  var isShut = false

  var isEmpty: Bool { parked.isEmpty && waiting.isEmpty }

  /// Whether the first event that stands here may leave; a response message may only if somebody has asked for it.
  func mayLetGo(hasDemand: Bool) -> Bool {
    !parked.isEmpty && parked[0].wait == .none && (hasDemand || parked[0].event.kind != .receive)
  }

  /// Puts an event behind those that are parked here, but before the last event of the lane.
  func inject(_ event: Event) {
    let own = Parked(event: event, wait: .none, isOwn: true)
    if let last = parked.last, last.event.isLast {
      parked.insert(own, at: parked.count - 1)
    } else {
      parked.append(own)
    }
  }

  /// The index of the event that waits for `ticket`. Thousands may wait, so this is a binary search: ticket numbers
  /// rise along the lane.
  func index(of ticket: UInt64) -> Int? {
    var low = 0
    var high = parked.count
    while low < high, parked[low].ticket == 0 { low += 1 }
    while low < high, parked[high - 1].ticket == 0 { high -= 1 }
    while high - low > Station.few {
      let middle = (low + high) / 2
      var next = middle
      while next < high, parked[next].ticket == 0 { next += 1 }
      if next < high, parked[next].ticket <= ticket { low = next } else { high = middle }
    }
    for index in low..<high {
      switch parked[index].wait {
      case .hold(let its), .pause(.ticket(let its)): if its == ticket { return index }
      case .none, .next, .pause(.job): break
      }
    }
    return nil
  }
  private static let few = 16

  var jobIndex: Int? {
    for index in 0..<parked.count where parked[index].wait == .pause(.job) { return index }
    return nil
  }

  /// The hop has returned NEXT: the events that it holds without a ticket may leave.
  func releaseTicketless() {
    guard ticketless > 0 else { return }
    ticketless = 0
    for index in 0..<parked.count where parked[index].wait == .next { parked[index].wait = .none }
  }

  var holdsStatus: Bool {
    for index in 0..<parked.count { if case .status = parked[index].event { return true } }
    return false
  }
}
