import PenstockCall
import PenstockWire

/// A loop with a virtual clock, and with tickets like those of the real loop. All code runs on one thread:
/// the test sets `thread` and `isDriving` to say on which thread it seems to run.
final class FakeLoop: CallLoop {
  struct Entry {
    let kind: EventKind
    /// The hop, which the call keeps while the ticket is open.
    let hop: Unmanaged<Hop>
    var isSpent = false
    var isLost = false
  }

  private var time: UInt64 = 1_000
  private var drives = true
  private var played: UInt = 1
  override var now: UInt64 {
    get { time }
    set { time = newValue }
  }
  override var isDriving: Bool {
    get { drives }
    set { drives = newValue }
  }
  /// The number of the thread on which code seems to run; 1 is the driving thread.
  override var thread: UInt {
    get { played }
    set { played = newValue }
  }
  var isPosted = false
  var isClosed = false
  private(set) var deadline: UInt64?
  private(set) var entries: [Entry] = []
  private(set) var timers: [(ticket: UInt64, time: UInt64)] = []
  /// The inputs that wait for their time.
  private var waiting: [(input: Call.Input, time: UInt64)] = []
  /// Numbers from this one on are not tickets but marks. An input `resume` with a mark calls `onMarker` when
  /// the call takes that input from its queue.
  static let marker: UInt64 = 1 << 40
  var onMarker: (UInt64) -> Void = { _ in }

  override func setDeadline(_ call: Call, _ time: UInt64?) { deadline = time }
  override func perform(_ input: Call.Input, of call: Call, at time: UInt64) { waiting.append((input, time)) }

  override func resume(_ ticket: UInt64, of call: Call, at time: UInt64) {
    if ticket >= FakeLoop.marker {
      onMarker(ticket)
    } else {
      timers.append((ticket, time))
    }
  }

  override func issueTicket(_ event: Event, of hop: Hop, start: Request?) -> UInt64 {
    entries.append(Entry(kind: event.kind, hop: .passUnretained(hop)))
    return UInt64(entries.count)
  }

  override func spendTicket(_ ticket: UInt64, of call: Call) { entries[Int(ticket) - 1].isSpent = true }
  override func loseTicket(_ ticket: UInt64, of call: Call) { entries[Int(ticket) - 1].isLost = true }
  override func closeTickets(of call: Call) {
    isClosed = true
    timers = []
    waiting = []
  }
  override func post(_ call: Call) { isPosted = true }

  /// Whether the ticket may be resolved with `verdict`, or if `verdict` is nil, whether it may be used at
  /// all. `spends`: a ticket that may be used counts as used from now on. Any thread.
  func claim(_ ticket: UInt64, for verdict: Verdict?, spends: Bool) -> Outcome {
    guard !isClosed else { return .gone }
    let entry = entries[Int(ticket) - 1]
    if entry.isSpent { return .already }
    if entry.isLost { return .gone }
    if let verdict, !entry.kind.resolves(with: verdict) { return .invalidArgument }
    if spends { entries[Int(ticket) - 1].isSpent = true }
    return .ok
  }

  /// Removes and returns the inputs whose time has come.
  func takeDueInputs() -> [Call.Input] {
    let due = waiting.filter { $0.time <= now }.map { $0.input }
    waiting.removeAll { $0.time <= now }
    return due
  }

  /// Removes and returns the tickets that were to be resolved by now, the oldest first.
  func takeDue() -> [UInt64] {
    let due = timers.filter { $0.time <= now }.map { $0.ticket }
    timers.removeAll { $0.time <= now }
    return due
  }
}

/// The server's side of a call. Its functions report to the call at once. A subclass with a real transport
/// lets the transport report.
class FakeBelow: CallBelow {
  var onStart: (Call) -> Void = { _ in }
  var onSend: (Message) -> Void = { _ in }
  var onHalfClose: () -> Void = {}
  var onPull: () -> Void = {}
  var onReset: () -> Void = {}
  var hasStarted = false
  /// The number of the channel on which the attempt runs; 0: the call's own channel.
  var channel = 0
  /// Makes the server's side for the next attempt; nil: this object is used for it too.
  var onAnother: (() -> FakeBelow)?

  override func start(_ call: Call) { onStart(call) }
  override func send(_ message: Message) { onSend(message) }
  override func halfClose() { onHalfClose() }
  override func pull() { onPull() }
  override func reset() { onReset() }
  override func another(isRepeat: Bool) -> CallBelow { onAnother?() ?? self }
  /// Whether an attempt may be followed by another because of a policy.
  var knowsPolicies: Bool { true }
  /// Whether a policy lets the request be sent again once, after a wait.
  private var hasPolicy = false
  override func waitToRetry(after status: Status, of call: Call, _ count: inout RetryCount) -> UInt64? {
    guard hasPolicy, count.previous == 0 else { return nil }
    count.previous = 1
    return 1_000_000
  }

  // The actions of the server: the functions below report it to the call.

  /// Whether the stream is open, so that the server can respond.
  var isOpen: Bool { true }
  /// Called between two steps of the call. Opens the stream, if that is possible now. Returns how many
  /// messages have left when it was opened.
  func settle() -> Int { 0 }
  func headers(_ call: Call) { call.inboundHeaders(Metadata()) }
  func message(_ call: Call, _ message: Message) { call.inboundMessage(message) }
  func status(_ call: Call, _ status: Status) { call.inboundStatus(status) }
  func sent(_ call: Call, _ count: Int) { call.transportSent(count) }
  func lose(_ call: Call, _ status: Status) { call.inboundStatus(status) }
  /// Ends the attempt with a status after which the request is sent again, because the server has certainly not processed
  /// it, or by the policy above.
  func refuse(_ call: Call, _ status: Status, byPolicy: Bool) {
    hasPolicy = byPolicy
    status.canRepeat = byPolicy ? .byPolicy : .unprocessed
    call.inboundStatus(status)
  }
}

/// The route by which a hop redirects a call to another channel.
final class FakeRoute: CallRoute {
  private let below: () -> FakeBelow

  init(_ channel: Int, _ below: @escaping () -> FakeBelow) {
    self.below = below
    super.init(target: buffer("t\(channel)\0"), authority: buffer("a\0"))
  }

  override func newBelow() -> CallBelow? { below() }
}

final class FakeAbove: CallAbove {
  var onHeaders: (Metadata) -> Void = { _ in }
  var onMessage: (Message) -> Void = { _ in }
  var onSent: (Int) -> Void = { _ in }
  var onStatus: (Status) -> Void = { _ in }
  var onDiscard: () -> Void = {}

  override func callHeaders(_ headers: Metadata) { onHeaders(headers) }
  override func callMessage(_ message: Message) { onMessage(message) }
  override func callSent(_ count: Int) { onSent(count) }
  override func callStatus(_ status: Status) { onStatus(status) }
  override func callDiscardsMessages() { onDiscard() }
}
