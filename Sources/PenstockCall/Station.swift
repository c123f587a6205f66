import PenstockWire

/// What travels along a lane.
public enum Event {
  // Outbound.
  case start
  case send(Message)
  case halfClose
  // Inbound.
  case headers(Metadata)
  case receive(Message)
  case status(Status)

  /// The ABI's PENSTOCK_EVENT_...
  public var kind: EventKind {
    switch self {
    case .start: .start
    case .send: .send
    case .halfClose: .halfClose
    case .headers: .headers
    case .receive: .receive
    case .status: .status
    }
  }

  var message: Message? {
    switch self {
    case .send(let message), .receive(let message): message
    case .start, .halfClose, .headers, .status: nil
    }
  }

  /// Nothing can come after it in its lane.
  var isLast: Bool { kind == .halfClose || kind == .status }
}

public enum EventKind: Int32, Sendable {
  case none = 0
  case start = 1
  case send = 2
  case halfClose = 3
  case headers = 4
  case receive = 5
  case status = 6
  case cancel = 7
  case demand = 8
  case sent = 9
  case create = 10
  case destroy = 11

  /// Of an event.
  var lane: Lane { rawValue <= EventKind.halfClose.rawValue ? .outbound : .inbound }

  /// May a callback answer this event with `verdict`.
  func allows(_ verdict: Verdict) -> Bool {
    switch verdict {
    case .next, .pause, .hold: true
    case .drop: self == .send || self == .receive
    case .take: self == .start
    case .restart: self == .status
    case .skip: false
    }
  }

  /// May a ticket for this event be resolved with `verdict`.
  public func resolves(with verdict: Verdict) -> Bool {
    verdict != .pause && verdict != .hold && allows(verdict)
  }
}

public enum Lane { case outbound, inbound }

/// The events of one lane that stand at one hop: in front of it, unseen (`waiting`), and behind its callback,
/// to leave in order (`parked`). Made when the first one has to wait.
final class Station {
  /// What has to come before an event may leave.
  enum Wait: Equatable {
    case none
    /// HOLD without a ticket: the hop's next NEXT in this lane.
    case next
    /// HOLD: this ticket.
    case hold(UInt64)
    /// Later events wait unseen.
    case pause(Claim)
  }

  /// Who keeps a lane shut. A callback on an executor is a pause that the library resolves.
  enum Claim: Equatable { case ticket(UInt64), job }

  struct Parked {
    var event: Event
    var wait: Wait
    /// Its `sent` stops at this hop: it was injected here, or `sent` was already told when it was held.
    var isOwn = false
    /// How much of `heldBytes` is its, until it leaves.
    var heldBytes = 0
    /// The one it waited for, once it does no more too. 0: none.
    var ticket: UInt64 = 0
    /// When it was paused, held or handed on; 0: not at all.
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
  /// How many are held without a ticket.
  var ticketless = 0
  /// A pause is open: at most one can be, for later events are not shown. Injected ones may stand behind it.
  var isShut = false

  var isEmpty: Bool { parked.isEmpty && waiting.isEmpty }

  /// The first that stands here may leave; a message only where somebody has asked for it.
  func mayLetGo(hasDemand: Bool) -> Bool {
    !parked.isEmpty && parked[0].wait == .none && (hasDemand || parked[0].event.kind != .receive)
  }

  /// Behind what is parked here, but before the last event of the lane.
  func inject(_ event: Event) {
    let own = Parked(event: event, wait: .none, isOwn: true)
    if let last = parked.last, last.event.isLast {
      parked.insert(own, at: parked.count - 1)
    } else {
      parked.append(own)
    }
  }

  /// Thousands may wait: among many it is found by halving, for tickets rise along the lane.
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

  /// The hop said NEXT: what it holds without a ticket may go.
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

/// A queue on an array: popping moves a head index, and storage is let go when it runs empty.
struct Fifo<Element> {
  private var elements: [Element?] = []
  private var head = 0

  var count: Int { elements.count - head }
  var isEmpty: Bool { count == 0 }
  var first: Element? { isEmpty ? nil : elements[head] }
  var last: Element? { isEmpty ? nil : elements[elements.count - 1] }

  subscript(index: Int) -> Element {
    get { elements[head + index]! }
    set { elements[head + index] = newValue }
  }

  mutating func insert(_ element: Element, at index: Int) { elements.place(element, at: head + index) }

  mutating func append(_ element: Element) { elements.append(element) }

  mutating func popFirst() -> Element? {
    guard !isEmpty else { return nil }
    let element = elements[head]
    elements[head] = nil
    head += 1
    if head == elements.count {
      elements.clear()
      head = 0
    } else if head >= 32, head * 2 >= elements.count {
      elements.removeLeading(head)
      head = 0
    }
    return element
  }

  mutating func remove(at index: Int) -> Element { elements.remove(at: head + index)! }

  mutating func removeAll(where isGone: (Element) -> Bool) {
    elements = elements[head...].filter { element in element.map { !isGone($0) } ?? false }
    head = 0
  }

  mutating func removeAll() {
    elements = []
    head = 0
  }
}
