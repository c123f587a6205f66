import PenstockWire

/// The events of one lane that wait at one hop: those that the hop has not seen yet (`waiting`), and those
/// that it has seen and that leave in order (`parked`). A station is made when the first event has to wait.
final class Station {
  /// The condition under which a parked event may leave the hop.
  enum Wait: Equatable {
    case none
    /// HOLD without a ticket: the event may leave with the hop's next NEXT in this lane.
    case next
    /// HOLD with a ticket: the event may leave when the ticket with this number is resolved.
    case hold(UInt64)
    /// PAUSE, or a callback that runs on an executor: the event waits until the ticket is resolved or the
    /// callback returns. Meanwhile the hop does not see later events.
    case pause(Claim)
    /// The hop has ended the call, and the driving thread has not carried this out yet: nothing leaves the hop until
    /// then (invariant I18).
    case end
  }

  /// The reason why a lane is shut: the ticket of a paused event, or a job that runs a callback on an executor.
  enum Claim: Equatable { case ticket(UInt64), job }

  struct Parked {
    var event: Event
    var wait: Wait
    /// Whether the event's `sent` stops at this hop. That is so if the hop has injected the event, or if
    /// `sent` was told early because the event is held.
    var isOwn = false
    /// How many bytes of `heldBytes` the event counts for, until it leaves.
    var heldBytes = 0
    /// The ticket with which the event waits or has waited; 0: none.
    var ticket: UInt64 = 0
    /// When the event was paused, held or given to an executor, in monotonic nanoseconds; 0: it was not.
    var since: UInt64 = 0

    init(event: Event, wait: Wait, isOwn: Bool = false, heldBytes: Int = 0, since: UInt64 = 0) {
      self.event = event
      self.wait = wait
      self.isOwn = isOwn
      self.heldBytes = heldBytes
      self.since = since
      switch wait {
      case .hold(let number), .pause(.ticket(let number)): ticket = number
      case .none, .next, .pause(.job), .end: break
      }
    }
  }

  var waiting = Fifo<Event>()
  var parked = Fifo<Parked>()
  var heldBytes = 0
  /// The number of events that are held without a ticket.
  var ticketless = 0
  /// Whether an event here is paused, or its callback runs on an executor. There is at most one such event,
  /// because the hop does not see later ones; events that the hop has injected may wait behind it.
  var isShut = false

  var isEmpty: Bool { parked.isEmpty && waiting.isEmpty }

  /// Whether the first parked event may leave the hop. A response message also needs demand from above.
  func mayLetGo(hasDemand: Bool) -> Bool {
    !parked.isEmpty && parked[0].wait == .none && (hasDemand || parked[0].event.kind != .receive)
  }

  /// Adds an event of the hop's own: behind the parked events, but before a half-close or status among them.
  func inject(_ event: Event) {
    let own = Parked(event: event, wait: .none, isOwn: true)
    if let last = parked.last, last.event.isLast {
      parked.insert(own, at: parked.count - 1)
    } else {
      parked.append(own)
    }
  }

  /// The index of the parked event that waits with `ticket`. Thousands may wait, so this is a binary search:
  /// ticket numbers rise along the lane.
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
      case .none, .next, .pause(.job), .end: break
      }
    }
    return nil
  }
  private static let few = 16

  var jobIndex: Int? {
    for index in 0..<parked.count where parked[index].wait == .pause(.job) { return index }
    return nil
  }

  /// Lets the events that are held without a ticket leave, because the hop has returned NEXT.
  func releaseTicketless() {
    guard ticketless > 0 else { return }
    ticketless = 0
    for index in 0..<parked.count where parked[index].wait == .next { parked[index].wait = .none }
  }

  /// Whether the hop has returned NEXT for an event that stands behind the one at `index`.
  func hasPassed(behind index: Int) -> Bool {
    for later in (index + 1)..<max(parked.count, index + 1)
    where parked[later].wait == .none && !parked[later].isOwn { return true }
    return false
  }

  /// Drops a status that waits only for the events in front of it.
  func dropStatus() {
    guard let last = parked.last, last.event.kind == .status, last.wait == .none else { return }
    _ = parked.remove(at: parked.count - 1)
  }

  var holdsStatus: Bool {
    for index in 0..<parked.count { if case .status = parked[index].event { return true } }
    return false
  }
}
