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
  func makeBook(_ call: Call) -> TicketBook? {
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
    let book = TicketBook(call, prefix: UInt64(index + 1) << 40 | slots[index].generation << 24)
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

/// The tickets of one call.
final class TicketBook: @unchecked Sendable {
  private struct Entry {
    let sequence: UInt64
    let event: Event
    var isLost: Bool
  }

  let prefix: UInt64
  private let lock = Lock()
  /// nil once the call has ended.
  private var call: Call?
  private var entries: [Entry] = []
  private var sequence: UInt64 = 0

  init(_ call: Call, prefix: UInt64) {
    self.call = call
    self.prefix = prefix
  }

  /// The driving thread only.
  func issue(_ event: Event) -> UInt64 {
    lock.lock()
    defer { lock.unlock() }
    sequence = (sequence + 1) & 0xff_ffff
    entries.append(Entry(sequence: sequence, event: event, isLost: false))
    return prefix | sequence
  }

  /// Ends a ticket, if it is open and allows `verdict`; whoever does has the right to resolve it.
  func spend(_ ticket: UInt64, for verdict: Verdict?) -> (Outcome, Call?) {
    // Freed after the lock: an event may be the last reference to what a user finalizes.
    var spent: Entry?
    lock.lock()
    let (outcome, index) = find(ticket)
    if outcome == .ok, let verdict, !entries[index].event.kind.resolves(with: verdict) {
      lock.unlock()
      return (.invalidArgument, nil)
    }
    let owner = call
    if outcome == .ok { spent = entries.remove(at: index) }
    lock.unlock()
    withExtendedLifetime(spent) {}
    return (outcome, owner)
  }

  func lose(_ ticket: UInt64) {
    lock.lock()
    let (outcome, index) = find(ticket)
    if outcome == .ok { entries[index].isLost = true }
    lock.unlock()
  }

  /// Is it open still; without spending it.
  func look(_ ticket: UInt64) -> (Outcome, Call?, Event?) {
    lock.lock()
    defer { lock.unlock() }
    let (outcome, index) = find(ticket)
    return outcome == .ok ? (.ok, call, entries[index].event) : (outcome, nil, nil)
  }

  fileprivate func close() {
    lock.lock()
    let last = call
    let rest = entries
    call = nil
    entries = []
    lock.unlock()
    withExtendedLifetime((last, rest)) {}
  }

  private func find(_ ticket: UInt64) -> (Outcome, Int) {
    guard call != nil else { return (.gone, 0) }
    for index in 0..<entries.count where entries[index].sequence == ticket & 0xff_ffff {
      return (entries[index].isLost ? .gone : .ok, index)
    }
    return (.already, 0)
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
    let (outcome, call, _) = book.look(ticket)
    if outcome == .ok, let call { call.submit(.resumeAfter(ticket, nanoseconds: nanoseconds)) }
    return outcome
  }

  public static func event(_ ticket: UInt64) -> (Outcome, TicketEvent?) {
    guard ticket != 0 else { return (.invalidArgument, nil) }
    guard let book = TicketTable.shared.book(of: ticket) else { return (.gone, nil) }
    let (outcome, call, event) = book.look(ticket)
    guard outcome == .ok, let call, let event else { return (outcome, nil) }
    return (.ok, TicketEvent(ticket, book, event, call.request))
  }
}

/// The event of a ticket, kept by whoever asked for it; the call may go on or end without it.
public final class TicketEvent {
  private let ticket: UInt64
  private let book: TicketBook
  private let event: Event
  /// The metadata of a start: after a RESTART the request has others.
  private let startMetadata: Metadata

  init(_ ticket: UInt64, _ book: TicketBook, _ event: Event, _ request: Request) {
    self.ticket = ticket
    self.book = book
    self.event = event
    startMetadata = request.metadata
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

  public func setMessage(_ bytes: ByteView) -> Outcome {
    guard let message else { return .state }
    guard book.look(ticket).0 == .ok else { return .gone }
    guard let fresh = ByteBuffer(copying: bytes) else { return .noMemory }
    message.exchange(with: fresh)
    return .ok
  }
}
