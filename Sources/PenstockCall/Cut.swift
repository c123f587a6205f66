import PenstockWire

/// A point in the chain from which a call can be sent again: below each hop that may RESTART, and above the
/// attempt (`Bottom`). The cut records the start, the messages and the half-close that pass it downward,
/// until an inbound event passes upward. `Call.again` drops everything below the cut, makes it anew, and
/// queues a step that sends the recorded events again (it "plays" them).
///
/// The rows of the table are states of the cut, the columns are inputs:
///
/// | | an event passes down | `again` | the step that plays |
/// |---|---|---|---|
/// | idle, playing | is recorded, goes on | -> waiting | - |
/// | waiting | is recorded, waits behind the events to be sent again | -> waiting | -> playing, then idle |
/// | dropped | goes on | - | - |
///
/// dropped: everything below the cut has been dropped, by the `again` of a cut above it or because the part of
/// the call below has ended. The cut records and plays nothing any more.
public final class Cut {
  struct Entry {
    var event: Event
    /// Whether the hops above are not to be told `sent` for this message, because they were told before or
    /// because the hop has sent the message itself. Then a further `sent` stops at the `Cut`.
    var isTold: Bool
    /// Whether the event stays in the record after it is sent, for a further attempt. If so, the hops below
    /// get a copy, because they may change it.
    var isRecorded = true
  }

  enum State { case idle, waiting, playing, dropped }

  /// The limits of the record: the bytes of messages (an empty one counts one byte), and the number of
  /// events.
  let limit: Int
  let most: Int
  /// Whether there are hops below the `Cut`, which may change the events that pass it.
  let hasHops: Bool
  private(set) var state = State.idle
  private var bytes = 0
  /// The budget that the recorded bytes are taken from; nil: they count for no budget.
  private let budget: ReplayBudget?
  private var taken = 0
  private(set) var entries: [Entry] = []
  /// The index of the first half-close in `entries`.
  private var halfCloseAt = Int.max
  /// Guards the three fields above: while a status waits, any thread may read and replace recorded messages.
  /// The driving thread takes the lock to change them, and needs none to read what only it changes.
  private let recordLock = SpinLock()
  /// The events to be sent again, followed by events that have come to the `Cut` since.
  private var queue = Fifo<Entry>()
  /// Whether the events could not all be sent again, because there was no memory for a copy.
  private(set) var isCutShort = false
  /// A copy of the start when it passed the `Cut`. nil before that, in a closed cut, and if no hop below can
  /// change the start.
  private(set) var start: Request?
  private(set) var below: CallBelow?
  /// Why the `Cut` is closed, so that the call can't be sent again from here; nil: the `Cut` is open, and all
  /// events are recorded.
  private(set) var failure: Outcome?
  /// How often the call has been sent again from this cut.
  private(set) var restarts = 0
  /// How often that was because the server has refused the request (`Repeat.refused`).
  var refusals = 0
  /// How often that was because of the method's retry policy.
  var retries = RetryCount()
  /// Until when the recorded events wait, if it is by that policy that they are sent again; nil: they don't wait.
  var wait: RetryWait?
  /// The number of messages that were asked for below and have not come yet.
  var unanswered = 0
  /// How many messages have passed the `Cut` above the attempt, but were not reported as sent (invariant
  /// I16).
  var untold = 0

  init(limit: Int, most: Int = .max, hasHops: Bool = true, _ budget: ReplayBudget? = nil) {
    self.budget = budget
    self.limit = limit
    self.most = most
    self.hasHops = hasHops
  }

  /// Records a copy of the start as it is now, because hops below may change it.
  func noteStart(_ request: Request, _ below: CallBelow?) {
    guard failure == nil else { return }
    start = request.copy()
    self.below = below
    if start == nil { close(.noMemory) }
  }

  /// Records an event that comes to the `Cut`. Returns true if the event passes at once. Returns false if it
  /// waits behind the events to be sent again; it waits there even if it can't be recorded.
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

  // Adds an event to the record. If that would exceed a limit, or the message can't be copied, it closes the
  // `Cut`: the call goes on, but can't be sent again from here (docs/architecture.md, invariant I15).
  private func keep(_ event: Event, isTold: Bool) {
    guard failure == nil else { return }
    switch event {
    case .send(let message):
      if hasHops, let object = message.codecObject, !object.copies { return close(.unsupported) }
      guard hasRoom(message.room), budget?.take(message.room) ?? true else { return close(.tooLarge) }
      taken += message.room
      guard let kept = hasHops ? message.copied() : message else { return close(.noMemory) }
      if !append(Entry(event: .send(kept), isTold: isTold), room: message.room) { close(.tooLarge) }
    case .halfClose: _ = append(Entry(event: event, isTold: true), room: 0)
    case .start, .headers, .receive, .status: break
    }
  }

  /// Whether one more message, which takes `room` bytes of the limit, may be recorded.
  private func hasRoom(_ room: Int) -> Bool {
    recordLock.lock()
    defer { recordLock.unlock() }
    return room <= limit - bytes && entries.count < most
  }

  /// Appends an entry, whose message takes `room` bytes of the limit. Returns false if there is too little
  /// room. Only memory for more entries is taken without the lock: no other thread changes their number.
  private func append(_ entry: Entry, room: Int) -> Bool {
    var grown: [Entry] = []
    recordLock.lock()
    defer { recordLock.unlock() }
    if entries.count == entries.capacity {
      let capacity = max(entries.count * 2, 4)
      recordLock.unlock()
      grown.reserveCapacity(capacity)
      recordLock.lock()
      for index in entries.indices { grown.append(entries[index]) }
      swap(&entries, &grown)
    }
    guard room <= limit - bytes else { return false }
    if case .halfClose = entry.event { halfCloseAt = min(halfCloseAt, entries.count) }
    entries.append(entry)
    bytes += room
    return true
  }

  // MARK: - The recorded messages, while a status waits: any thread

  /// The index of the entry that has the message at `index`; nil: there is none. No user's message comes after
  /// a half-close, but the call machine would record it, and further half-closes too.
  private func entry(ofMessage index: Int) -> Int? {
    guard index >= 0, index < entries.count else { return nil }
    if index < halfCloseAt { return index }
    var left = index - halfCloseAt
    for entry in halfCloseAt..<entries.count where entries[entry].event.message != nil {
      if left == 0 { return entry }
      left -= 1
    }
    return nil
  }

  /// The recorded message at `index`; nil: there is none. The record never changes this object.
  public func message(at index: Int) -> Message? {
    recordLock.lock()
    defer { recordLock.unlock() }
    return entry(ofMessage: index).flatMap { entries[$0].event.message }
  }

  /// Records `message`, to which nobody else has a reference, instead of the message at `index`. Afterwards
  /// `message` is the old one: the caller releases it where it holds no lock, because that may run user code.
  public func exchangeMessage(at index: Int, with message: inout Message) -> Outcome {
    if let object = message.codecObject, !object.copies { return .unsupported }
    recordLock.lock()
    defer { recordLock.unlock() }
    guard let index = entry(ofMessage: index), case .send(let old) = entries[index].event else {
      return .notFound
    }
    let rest = bytes - old.room
    guard message.room <= limit - rest else { return .tooLarge }
    bytes = rest + message.room
    entries[index].event = .send(message)
    message = old
    return .ok
  }

  /// Closes the `Cut`: the call can't be sent again from here, and nothing is recorded any more. If recorded
  /// events are being sent again at present, the rest of them are still sent.
  func close(_ reason: Outcome) {
    if failure == nil { failure = reason }
    var old: [Entry] = []
    recordLock.lock()
    swap(&entries, &old)
    recordLock.unlock()
    start = nil
    below = nil
    switch state {
    case .idle, .dropped: giveBack()
    // The queue still has the messages.
    case .waiting, .playing: break
    }
  }

  /// Gives the room of the recorded messages back, because they are not kept any more.
  func giveBack() {
    budget?.giveBack(taken)
    taken = 0
  }

  /// Queues all recorded events to be sent again. Their messages are marked as told: `Call.again` tells
  /// `sent` now for each message for which it was not told before, so none is told twice.
  func begin() {
    restarts += 1
    state = .waiting
    queue.removeAll()
    for index in entries.indices {
      entries[index].isTold = true
      queue.append(entries[index])
    }
  }

  /// `play`: the queued events are being sent again now. `rest`: all of them have been sent.
  func play() { state = .playing }
  func rest() {
    state = .idle
    if failure != nil { giveBack() }
  }

  /// Drops the events that wait to be sent again; later events pass at once. Returns how many of the dropped
  /// messages were not reported as `sent`.
  func drop() -> Int {
    state = .dropped
    var abandoned = 0
    while let (event, isTold) = skipNext() {
      if case .send = event, !isTold { abandoned += 1 }
    }
    giveBack()
    return abandoned
  }

  #if PENSTOCK_CHECKS
    /// How many more bytes of messages the record may have.
    var bytesLeft: Int {
      recordLock.lock()
      defer { recordLock.unlock() }
      return limit - bytes
    }

    /// The number of recorded messages.
    var messages: Int {
      var count = 0
      for entry in entries { if case .send = entry.event { count += 1 } }
      return count
    }
  #endif

  /// The number of queued messages that were reported as `sent` in an earlier attempt.
  var toldAgain: Int {
    var count = 0
    for index in 0..<queue.count { if case .send = queue[index].event, queue[index].isTold { count += 1 } }
    return count
  }

  /// Removes the next queued event without copying it, because it will not be sent.
  func skipNext() -> (event: Event, isTold: Bool)? { queue.popFirst().map { ($0.event, $0.isTold) } }

  /// Removes and returns the next event to be sent again. nil: there is none, or no memory for a copy
  /// (`isCutShort`).
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
