import PenstockWire

/// A point in the chain where a call may begin again: below each hop that records, and above the attempt (`Bottom`).
/// The cut records the start as it passes, and every message and half-close behind it, until an inbound event passes
/// upward. `Call.again` drops everything below the cut, makes it anew, and sends the recorded events again.
///
/// The rows of the table are states, the columns are inputs:
///
/// | | passes down | `again` | the step that plays |
/// |---|---|---|---|
/// | idle, playing | is kept, goes on | -> waiting | - |
/// | waiting | is kept, stands behind the events to be sent again | -> waiting | -> playing, and idle at its end |
/// | dropped | goes on | - | - |
public final class Cut {
  struct Entry {
    let event: Event
    /// Whether the hops above have been told `sent` for this message already, or must never be told: then a
    /// further `sent` stops at the cut.
    var isTold: Bool
    /// Whether the cut keeps the event for another replay. If so, the hops below get a copy, if they may change it.
    var isRecorded = true
  }

  enum State { case idle, waiting, playing, dropped }

  /// The bounds of the record: the bytes of messages (an empty one counts one), and the number of events.
  let limit: Int
  let most: Int
  /// Whether there are hops below, which may change the events that pass.
  let hasHops: Bool
  private(set) var state = State.idle
  private(set) var bytes = 0
  private(set) var entries: [Entry] = []
  /// The events to be sent again, and those that have come behind them since.
  private var queue = Fifo<Entry>()
  /// Whether the replay was cut short, because there was no memory for a copy.
  private(set) var isCutShort = false
  /// The start as it passed; nil before that, where no hop below can change the start, and in a closed cut.
  private(set) var start: Request?
  private(set) var below: CallBelow?
  /// The reason why the cut is closed; nil: it is open, and all is recorded.
  private(set) var failure: Outcome?
  /// How often the call has begun again at this cut.
  private(set) var restarts = 0
  /// Demand that has passed downward, less the messages that have come for it.
  var unanswered = 0
  /// How many messages have passed the cut above the attempt without being told as sent (invariant I16).
  var untold = 0

  init(limit: Int, most: Int = .max, hasHops: Bool = true) {
    self.limit = limit
    self.most = most
    self.hasHops = hasHops
  }

  /// Keeps a copy of the start as it is now, because hops below may change it.
  @inline(never) @_optimize(size)
  func noteStart(_ request: Request, _ below: CallBelow?) {
    guard failure == nil else { return }
    start = request.copy()
    self.below = below
    if start == nil { close(.noMemory) }
  }

  /// An event comes to the cut. True: it passes at once. False: it waits behind the events to be sent again, even if
  /// it can't be recorded itself.
  @inline(never) @_optimize(size)
  func passes(_ event: Event, isOwn: Bool) -> Bool {
    if state == .waiting { queue.append(Entry(event: event, isTold: isOwn, isRecorded: false)) }
    keep(event, isTold: isOwn)
    return state != .waiting
  }

  func keepWhole(_ message: Message, isTold: Bool) {
    keep(.send(message), isTold: isTold)
    keep(.halfClose, isTold: true)
    untold = isTold ? 0 : 1
  }

  // Invariant I15: the record stays within its bounds.
  @inline(never) @_optimize(size)
  private func keep(_ event: Event, isTold: Bool) {
    guard failure == nil else { return }
    switch event {
    case .send(let message):
      if hasHops, let object = message.codecObject, !object.copies { return close(.unsupported) }
      let room = max(message.charge, 1)
      guard room <= limit - bytes, entries.count < most else { return close(.tooLarge) }
      guard let kept = hasHops ? message.copied() : message else { return close(.noMemory) }
      bytes += room
      entries.append(Entry(event: .send(kept), isTold: isTold))
    case .halfClose: entries.append(Entry(event: event, isTold: true))
    case .start, .headers, .receive, .status: break
    }
  }

  /// Closes the cut: the call can't begin again here, and nothing is recorded any more. A replay that has begun goes
  /// on.
  @inline(never) @_optimize(size)
  func close(_ reason: Outcome) {
    if failure == nil { failure = reason }
    entries = []
    start = nil
    below = nil
  }

  /// The call begins again: everything recorded is to be sent again. `sent` is not told when a message is
  /// sent again: `Call.again` tells it now for each message for which it was not told before.
  @inline(never) @_optimize(size)
  func begin() {
    restarts += 1
    state = .waiting
    queue.removeAll()
    for index in entries.indices {
      entries[index].isTold = true
      queue.append(entries[index])
    }
  }

  /// `play` begins the replay, which sends the waiting events; `rest` ends it.
  func play() { state = .playing }
  func rest() { state = .idle }

  /// Drops the events that wait to be sent again; later events pass at once. Returns for how many of the dropped
  /// messages `sent` has not been told.
  @inline(never) @_optimize(size)
  func drop() -> Int {
    state = .dropped
    var abandoned = 0
    while let (event, isTold) = skipNext() {
      if case .send = event, !isTold { abandoned += 1 }
    }
    return abandoned
  }

  #if PENSTOCK_CHECKS
    /// The number of messages that are kept.
    var messages: Int {
      var count = 0
      for entry in entries { if case .send = entry.event { count += 1 } }
      return count
    }
  #endif

  /// The number of messages to be sent again for which `sent` has been told already.
  var toldAgain: Int {
    var count = 0
    for index in 0..<queue.count { if case .send = queue[index].event, queue[index].isTold { count += 1 } }
    return count
  }

  /// Takes the next event without copying it, because it is not sent.
  @inline(never) @_optimize(size)
  func skipNext() -> (event: Event, isTold: Bool)? { queue.popFirst().map { ($0.event, $0.isTold) } }

  /// The next event to send again; nil: there are no more, or no memory for a copy (`isCutShort`).
  @inline(never) @_optimize(size)
  func takeNext() -> (event: Event, isTold: Bool)? {
    guard let entry = queue.popFirst() else { return nil }
    guard hasHops, entry.isRecorded, let message = entry.event.message else {
      return (entry.event, entry.isTold)
    }
    guard let copied = message.copied() else {
      isCutShort = true
      close(.noMemory)
      return nil
    }
    return (.send(copied), entry.isTold)
  }
}
