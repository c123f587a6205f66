import PenstockCall
import PenstockWire

/// Tickets by number, for any thread.
///
/// A ticket is (slot + 1) << 40 | slot generation << 24 | sequence: the slot names the book of one call, its
/// generation tells a book from those that had the slot before, and the sequence is the book's own. So a
/// ticket of an ended call is told from a spent one, and a made-up number from both, without keeping spent
/// tickets.
final class TicketTable: @unchecked Sendable {
  private struct Slot {
    var book: TicketBook?
    var generation: UInt64 = 0
  }

  static let processSlot = 2
  private static let slotLimit = 1 << 23

  private let lock = Lock()
  private var slots: [Slot] = []
  /// Oldest first, so that a number comes back as late as possible.
  private var free: [Int] = []
  private var freeHead = 0

  /// The table of this process: a forked child has its own.
  static var shared: TicketTable {
    Process.withLock { () -> TicketTable in
      let slot = Process.slot(processSlot)
      if let raw = UnsafeRawPointer(bitPattern: slot.pointee) {
        return Unmanaged<TicketTable>.fromOpaque(raw).takeUnretainedValue()
      }
      let fresh = TicketTable()
      slot.pointee = UInt(bitPattern: Unmanaged.passRetained(fresh).toOpaque())
      return fresh
    }
  }

  /// nil: all numbers are in use.
  @inline(never) @_optimize(size)
  func makeBook(_ call: Call, _ runtime: Runtime? = nil) -> TicketBook? {
    lock.lock()
    defer { lock.unlock() }
    let index: Int
    if freeHead < free.count, free.count - freeHead > 64 || slots.count >= TicketTable.slotLimit {
      index = free[freeHead]
      freeHead += 1
      if freeHead * 2 > free.count, freeHead > 1024 {
        free.removeFirst(freeHead)
        freeHead = 0
      }
    } else if slots.count < TicketTable.slotLimit {
      index = slots.count
      slots.append(Slot())
    } else {
      return nil
    }
    let book = TicketBook(
      call, prefix: UInt64(index + 1) << 40 | slots[index].generation << 24, runtime: runtime)
    slots[index].book = book
    return book
  }

  func close(_ book: TicketBook) {
    let index = Int(book.prefix >> 40) - 1
    lock.lock()
    slots[index].book = nil
    slots[index].generation = (slots[index].generation + 1) & 0xffff
    free.append(index)
    lock.unlock()
    book.close()
  }

  /// nil: the call has ended, or there never was such a ticket.
  func book(of ticket: UInt64) -> TicketBook? {
    let index = Int(truncatingIfNeeded: ticket >> 40) - 1
    lock.lock()
    defer { lock.unlock() }
    guard index >= 0, index < slots.count, slots[index].generation == (ticket >> 24) & 0xffff else {
      return nil
    }
    return slots[index].book
  }
}

/// The tickets of one call, in the order of their issue: thousands may be open, and each is found by halving.
final class TicketBook: TicketIssuer, @unchecked Sendable {
  private enum State {
    /// With the metadata of a start: after a RESTART the request has others.
    case open(Event, Metadata?)
    /// The call went on without the event.
    case lost
    /// Told from one that never was only by where it stands; let go when half of the entries are.
    case spent
  }

  private struct Entry {
    let sequence: UInt64
    var state: State
  }

  private static let sequenceMask: UInt64 = 0xff_ffff

  let prefix: UInt64
  /// Sequences go from 1 to this, and then round.
  private let lastSequence: UInt64
  private let lock = Lock()
  /// nil once the call has ended.
  private var call: Call?
  private var runtime: Runtime?
  private var entries: [Entry] = []
  private var spentCount = 0
  private var sequence: UInt64 = 0

  init(
    _ call: Call, prefix: UInt64, lastSequence: UInt64 = TicketBook.sequenceMask, runtime: Runtime? = nil
  ) {
    self.call = call
    self.runtime = runtime
    self.prefix = prefix
    self.lastSequence = lastSequence
  }

  /// Any thread; once the call has ended, the ticket is gone from the start. 0: one is open that is older than
  /// all the numbers there are.
  func issue(_ event: Event, start: Metadata?) -> UInt64 {
    lock.lock()
    defer { lock.unlock() }
    let next = sequence == lastSequence ? 1 : sequence + 1
    if !isFree(next) { dropSpent() }
    guard isFree(next) else { return 0 }
    sequence = next
    if call != nil { entries.append(Entry(sequence: next, state: .open(event, start))) }
    return prefix | next
  }

  /// Ends a ticket, if it is open and allows `verdict`; whoever does has the right to resolve it.
  func spend(_ ticket: UInt64, for verdict: Verdict?) -> (Outcome, Call?) {
    lock.lock()
    let (outcome, index, event) = find(ticket)
    if let event = event?.0, let verdict, !event.kind.resolves(with: verdict) {
      lock.unlock()
      return (.invalidArgument, nil)
    }
    let owner = call
    if event != nil {
      entries[index].state = .spent
      spentCount += 1
      if spentCount * 2 >= entries.count { dropSpent() }
    }
    lock.unlock()
    // Freed after the lock: it may be the last reference to what a user finalizes.
    withExtendedLifetime(event) {}
    return (outcome, owner)
  }

  func lose(_ ticket: UInt64) {
    lock.lock()
    let (_, index, event) = find(ticket)
    if event != nil { entries[index].state = .lost }
    lock.unlock()
    withExtendedLifetime(event) {}
  }

  /// Is it open still; without spending it.
  func look(_ ticket: UInt64) -> (Outcome, Call?, Event?, Metadata?) {
    lock.lock()
    defer { lock.unlock() }
    let (outcome, _, opened) = find(ticket)
    return (outcome, opened == nil ? nil : call, opened?.0, opened?.1)
  }

  /// The one that drives the call; nil once it has ended.
  var driver: Runtime? { lock.withLock { runtime } }

  /// Changes what the ticket is for: whoever ends it at the same time comes before or after.
  fileprivate func whileOpen(_ ticket: UInt64, _ change: () -> Outcome) -> Outcome {
    lock.withLock { find(ticket).2 == nil ? .gone : change() }
  }

  fileprivate func close() {
    lock.lock()
    let last = (call, runtime)
    let rest = entries
    call = nil
    runtime = nil
    entries = []
    spentCount = 0
    lock.unlock()
    withExtendedLifetime((last, rest)) {}
  }

  /// How far behind the oldest entry.
  private func distance(_ sequence: UInt64) -> UInt64 {
    let oldest = entries[0].sequence
    return sequence >= oldest ? sequence - oldest : sequence + lastSequence - oldest
  }

  /// Nothing is kept that has this number.
  private func isFree(_ next: UInt64) -> Bool { entries.isEmpty || next != entries[0].sequence }

  private func dropSpent() {
    if spentCount == entries.count {
      entries.removeAll(keepingCapacity: spentCount <= 64)
    } else {
      entries.removeAll { if case .spent = $0.state { true } else { false } }
    }
    spentCount = 0
  }

  private func find(_ ticket: UInt64) -> (Outcome, Int, (Event, Metadata?)?) {
    guard call != nil else { return (.gone, 0, nil) }
    guard !entries.isEmpty else { return (.already, 0, nil) }
    let sequence = ticket & TicketBook.sequenceMask
    let wanted = distance(sequence)
    var low = 0
    var high = entries.count
    while low < high {
      let middle = (low + high) / 2
      if distance(entries[middle].sequence) < wanted { low = middle + 1 } else { high = middle }
    }
    guard low < entries.count, entries[low].sequence == sequence else { return (.already, 0, nil) }
    switch entries[low].state {
    case .open(let event, let start): return (.ok, low, (event, start))
    case .lost: return (.gone, low, nil)
    case .spent: return (.already, low, nil)
    }
  }
}

/// What the ABI does with tickets. Any thread.
public enum Tickets {
  public static func resolve(_ ticket: UInt64, _ resolution: Call.Resolution) -> Outcome {
    guard ticket != 0 else { return .invalidArgument }
    guard let book = TicketTable.shared.book(of: ticket) else { return .gone }
    var wanted: Verdict?
    if case .verdict(let verdict) = resolution { wanted = verdict }
    let (outcome, call) = book.spend(ticket, for: wanted)
    if outcome == .ok, let call { call.submit(.resolve(ticket, resolution)) }
    return outcome
  }

  public static func resumeAfter(_ ticket: UInt64, nanoseconds: UInt64) -> Outcome {
    guard ticket != 0 else { return .invalidArgument }
    guard let book = TicketTable.shared.book(of: ticket) else { return .gone }
    let (outcome, call, _, _) = book.look(ticket)
    if outcome == .ok, let call { call.submit(.resumeAfter(ticket, nanoseconds: nanoseconds)) }
    return outcome
  }

  /// Ends it so after a time, unless it has ended by then.
  public static func resolveAfter(_ ticket: UInt64, _ resolution: Call.Resolution, nanoseconds: UInt64)
    -> Outcome
  {
    guard ticket != 0 else { return .invalidArgument }
    guard let book = TicketTable.shared.book(of: ticket) else { return .gone }
    let (outcome, call, _, _) = book.look(ticket)
    if outcome == .ok, let call, let runtime = book.driver {
      let (time, overflow) = Runtime.monotonicNow().addingReportingOverflow(nanoseconds)
      _ = runtime.post(DelayedResolution(call, ticket, resolution, at: overflow ? UInt64.max : time))
    }
    return outcome
  }

  /// Changes the ticket's message, unless the call has gone on without it.
  static func exchange(_ message: Message, of ticket: UInt64, with fresh: ByteBuffer) {
    _ = TicketTable.shared.book(of: ticket)?.whileOpen(ticket) {
      message.exchange(with: fresh)
      return .ok
    }
  }

  public static func event(_ ticket: UInt64) -> (Outcome, TicketEvent?) {
    guard ticket != 0 else { return (.invalidArgument, nil) }
    guard let book = TicketTable.shared.book(of: ticket) else { return (.gone, nil) }
    let (outcome, _, event, start) = book.look(ticket)
    guard outcome == .ok, let event else { return (outcome, nil) }
    return (.ok, TicketEvent(ticket, book, event, start))
  }
}

/// The event of a ticket, kept by whoever asked for it; the call may go on or end without it.
public final class TicketEvent {
  private let ticket: UInt64
  private let book: TicketBook
  private let event: Event
  private let startMetadata: Metadata?

  init(_ ticket: UInt64, _ book: TicketBook, _ event: Event, _ startMetadata: Metadata?) {
    self.ticket = ticket
    self.book = book
    self.event = event
    self.startMetadata = startMetadata
  }

  public var kind: EventKind { event.kind }

  public var metadata: Metadata? {
    switch event {
    case .start: startMetadata
    case .headers(let headers): headers
    case .status(let status): status.trailers
    case .send, .receive, .halfClose: nil
    }
  }

  public var status: Status? {
    guard case .status(let status) = event else { return nil }
    return status
  }

  public var message: Message? {
    switch event {
    case .send(let message), .receive(let message): message
    case .start, .headers, .status, .halfClose: nil
    }
  }

  public func setObject(_ object: UnsafeMutableRawPointer?) -> Outcome {
    guard let message else { return .state }
    // Let go after the lock: what frees it is the user's.
    var old: CodecObject?
    let outcome = book.whileOpen(ticket) {
      old = message.codecObject
      guard let old else { return .state }
      message.attachment = old.another(object)
      return .ok
    }
    withExtendedLifetime(old) {}
    return outcome
  }

  public func setMessage(_ bytes: ByteView) -> Outcome {
    guard let message else { return .state }
    guard let fresh = ByteBuffer(copying: bytes) else { return .noMemory }
    // As above: the message's bytes may be another's.
    defer { withExtendedLifetime(fresh) {} }
    return book.whileOpen(ticket) {
      guard !message.isObject else { return .state }
      message.exchange(with: fresh)
      return .ok
    }
  }
}
