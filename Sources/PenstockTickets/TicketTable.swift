public import PenstockCall
import PenstockLoop
import PenstockWire
import Synchronization

/// The loop of a call, as its tickets use it. Any thread.
public protocol TicketLoop: AnyObject {
  /// After `nanoseconds`, resolves the ticket with `resolution`, unless it was resolved before.
  func resolve(
    _ ticket: UInt64, of call: Call, _ resolution: Call.Resolution, afterNanoseconds nanoseconds: UInt64)
}

/// Finds tickets by their number, on any thread.
///
/// A ticket is a number: (number of a book) << 16 | (index in that book, from 1). A book (`TicketBook`) has
/// the tickets of one call, and takes a further book number after each 65,535 tickets. Book numbers begin at
/// 1, and are never used again in the process or in its forked children. So a ticket that is resolved late
/// can't be mistaken for another ticket. Spent tickets are not stored. If no book has the ticket's book
/// number, the ticket counts as gone, usually because its call has ended. If the book does not list the
/// ticket, the ticket counts as spent.
public final class TicketTable: @unchecked Sendable {
  private struct Slot {
    var number: UInt64 = 0
    var book: TicketBook?
  }

  static let processSlot = 2
  static let lastNumber: UInt64 = 1 << 48 - 1
  /// The newest book number of this process or an ancestor. It is outside of the memory that a fork wipes, so
  /// that a child continues after its parent's numbers.
  private static let newest = Atomic<UInt64>(0)

  private let lock = Lock()
  /// The ticket books by book number: number n is in slot n modulo the number of slots, which is a power of
  /// 2. If the slot of a new number is taken, the number is skipped. At least half of the slots stay free.
  private var slots = [Slot](repeating: Slot(), count: 64)
  private var taken = 0
  private var last: UInt64

  /// The table of this process. A forked child makes a new table, unless it takes over the parent's handles
  /// (`Fork`).
  public static var shared: TicketTable {
    Process.withLock { () -> TicketTable in
      let slot = Process.slot(processSlot)
      if let raw = UnsafeRawPointer(bitPattern: slot.pointee) {
        return Unmanaged<TicketTable>.fromOpaque(raw).takeUnretainedValue()
      }
      let fresh = TicketTable(after: newest.load(ordering: .relaxed))
      slot.pointee = UInt(bitPattern: Unmanaged.passRetained(fresh).toOpaque())
      return fresh
    }
  }

  init(after last: UInt64) { self.last = last }

  /// Gives `book` the next number whose slot is free; 0: all numbers are used up.
  fileprivate func number(for book: TicketBook) -> UInt64 {
    lock.lock()
    defer { lock.unlock() }
    if taken * 2 >= slots.count { grow() }
    repeat {
      if last >= TicketTable.lastNumber { return 0 }
      last += 1
    } while slots[index(of: last)].book != nil
    slots[index(of: last)] = Slot(number: last, book: book)
    taken += 1
    TicketTable.newest.store(last, ordering: .relaxed)
    return last
  }

  private func index(of number: UInt64) -> Int { Int(truncatingIfNeeded: number) & (slots.count - 1) }

  /// Doubles the number of slots. Two books with different slots before have different slots afterwards, too.
  private func grow() {
    let old = slots
    slots = [Slot](repeating: Slot(), count: old.count * 2)
    for one in old where one.book != nil { slots[index(of: one.number)] = one }
  }

  /// Frees the slots of book numbers. Their book has no open tickets with these numbers any more.
  fileprivate func free(_ numbers: ArraySlice<UInt64>) {
    lock.lock()
    for number in numbers { slots[index(of: number)].book = nil }
    taken -= numbers.count
    lock.unlock()
  }

  /// Returns the book that has the ticket's book number now. nil: the call has ended; or the book has given
  /// the number back, because all tickets with the number were spent; or the number was never used.
  func book(of ticket: UInt64) -> TicketBook? {
    lock.lock()
    defer { lock.unlock() }
    let found = slots[index(of: ticket >> TicketBook.turnBits)]
    return found.number == ticket >> TicketBook.turnBits ? found.book : nil
  }
}

/// The tickets of one call, in the order of issue. Thousands of tickets may be open, so a ticket is found by
/// binary search.
public final class TicketBook: @unchecked Sendable {
  /// The hop and the event for which a ticket was issued, and the request that goes with the event.
  struct Claim {
    /// The hop. The reference is not counted: while the ticket is open, the call has not ended and holds the
    /// hop.
    let hop: Unmanaged<Hop>?
    let event: Event
    /// The request that belongs to the event. For a start event it is the call's request. For a status event
    /// it is the recorded request, if the hop records messages for a RESTART. Otherwise nil.
    let start: Request?
  }

  private enum State {
    case open(Claim)
    /// The call has continued or ended without the ticket's event, so the ticket is gone.
    case lost
    /// The ticket is spent. Spent entries are removed when they are half of all entries. A ticket without an
    /// entry counts as spent.
    case spent
  }

  private struct Entry {
    let ticket: UInt64
    var state: State
  }

  fileprivate static let turnBits: UInt64 = 16
  private static let lastTurn: UInt64 = 1 << turnBits - 1

  private let table: TicketTable
  private let lock = Lock()
  /// The call; nil once it has ended.
  private var call: Call?
  private var loop: (any TicketLoop)?
  /// The tickets, sorted by number.
  private var entries: [Entry] = []
  private var spentCount = 0
  /// The book numbers that the table has given to this book, oldest first. A number that is older than all
  /// entries was given back to the table.
  private var numbers: [UInt64] = []
  private var newest: UInt64 = 0

  public init(_ table: TicketTable, _ call: Call, _ loop: (any TicketLoop)? = nil) {
    self.table = table
    self.call = call
    self.loop = loop
  }

  /// Issues a ticket. Any thread. If the call has ended, returns a ticket that is already gone. 0: the book
  /// numbers are used up.
  public func issue(_ event: Event, of hop: Hop?, start: Request?) -> UInt64 {
    lock.lock()
    defer { lock.unlock() }
    guard call != nil else { return newest | TicketBook.lastTurn }
    if newest == 0 || newest & TicketBook.lastTurn == TicketBook.lastTurn {
      let number = table.number(for: self)
      if number == 0 { return 0 }
      freeNumbers()
      numbers.append(number)
      newest = number << TicketBook.turnBits
    }
    newest += 1
    let claim = Claim(hop: hop.map { .passUnretained($0) }, event: event, start: start)
    entries.append(Entry(ticket: newest, state: .open(claim)))
    return newest
  }

  /// Gives back the book numbers that no entry uses any more. A function that gets a ticket with such a
  /// number returns `.gone`.
  private func freeNumbers() {
    let oldest = (entries.first?.ticket ?? .max) >> TicketBook.turnBits
    let count = numbers.prefix { $0 < oldest }.count
    table.free(numbers[..<count])
    numbers.removeLeading(count)
  }

  /// Spends a ticket, if it is open and its event allows `verdict`. Only the thread that has spent the ticket
  /// may resolve the event.
  public func spend(_ ticket: UInt64, for verdict: Verdict?) -> (Outcome, Call?) {
    lock.lock()
    let (outcome, index, claim) = find(ticket)
    if let claim, let verdict, !claim.event.kind.resolves(with: verdict) {
      lock.unlock()
      return (.invalidArgument, nil)
    }
    let owner = call
    if claim != nil { spend(at: index) }
    lock.unlock()
    // The claim is released after the lock, because it may hold the last reference to an object with a user's
    // finalizer.
    withExtendedLifetime(claim) {}
    return (outcome, owner)
  }

  /// Spends a ticket, if it is open, and returns the hop at which its event waits.
  fileprivate func spendAtHop(_ ticket: UInt64) -> (Outcome, Hop?) {
    lock.lock()
    let (outcome, index, claim) = find(ticket)
    let hop = claim?.hop?.takeUnretainedValue()
    if claim != nil {
      hop?.lend()
      spend(at: index)
    }
    lock.unlock()
    withExtendedLifetime(claim) {}
    return (outcome, hop)
  }

  /// Notes under the lock that the ticket of the entry at `index` is spent.
  private func spend(at index: Int) {
    entries[index].state = .spent
    spentCount += 1
    if spentCount * 2 >= entries.count { dropSpent() }
  }

  public func lose(_ ticket: UInt64) {
    lock.lock()
    let (_, index, claim) = find(ticket)
    if claim != nil { entries[index].state = .lost }
    lock.unlock()
    withExtendedLifetime(claim) {}
  }

  /// Checks, without spending it, whether the ticket is open and its event allows `verdict`.
  public func look(_ ticket: UInt64, for verdict: Verdict? = nil) -> (Outcome, Call?) {
    lock.lock()
    defer { lock.unlock() }
    let (outcome, _, claim) = find(ticket)
    if let claim, let verdict, !claim.event.kind.resolves(with: verdict) { return (.invalidArgument, nil) }
    return (outcome, claim == nil ? nil : call)
  }

  /// Makes a handle of the hop that waits at the ticket's event.
  fileprivate func hop(of ticket: UInt64) -> (Outcome, WaitingHop?) {
    lock.lock()
    defer { lock.unlock() }
    let (outcome, _, claim) = find(ticket)
    guard let claim, let hop = claim.hop?.takeUnretainedValue() else { return (outcome, nil) }
    hop.lend()
    return (.ok, WaitingHop(hop, claim.event, ticket: ticket, start: claim.start))
  }

  /// The loop of the call; nil once the call has ended.
  fileprivate var liveLoop: (any TicketLoop)? { lock.withLock { loop } }

  /// If the ticket is open, runs `change` under the lock, so that no other thread spends the ticket in the
  /// meantime.
  fileprivate func whileOpen(_ ticket: UInt64, _ change: () -> Outcome) -> Outcome {
    lock.withLock { find(ticket).2 == nil ? .gone : change() }
  }

  /// The room that the message of an event takes now. The lock keeps out a thread that replaces the message by
  /// the event's ticket.
  public func room(of message: Message) -> Int { lock.withLock { message.room } }

  public func close() {
    lock.lock()
    let last = (call, loop)
    let rest = entries
    call = nil
    loop = nil
    entries = []
    spentCount = 0
    lock.unlock()
    // The call has ended, so no further tickets are issued, and `numbers` does not change any more.
    table.free(numbers[...])
    withExtendedLifetime((last, rest)) {}
  }

  private func dropSpent() {
    if spentCount == entries.count {
      entries.removeAll(keepingCapacity: spentCount <= 64)
    } else {
      var remaining = 0
      for index in 0..<entries.count {
        if case .spent = entries[index].state { continue }
        if remaining < index { entries.swapAt(remaining, index) }
        remaining += 1
      }
      while entries.count > remaining { entries.removeLast() }
    }
    spentCount = 0
  }

  private func find(_ ticket: UInt64) -> (Outcome, Int, Claim?) {
    guard call != nil else { return (.gone, 0, nil) }
    guard !entries.isEmpty else { return (.already, 0, nil) }
    var low = 0
    var high = entries.count
    while low < high {
      let middle = (low + high) / 2
      if entries[middle].ticket < ticket { low = middle + 1 } else { high = middle }
    }
    guard low < entries.count, entries[low].ticket == ticket else { return (.already, 0, nil) }
    switch entries[low].state {
    case .open(let claim): return (.ok, low, claim)
    case .lost: return (.gone, low, nil)
    case .spent: return (.already, low, nil)
    }
  }
}

/// The ABI's functions for tickets. Any thread.
public enum Tickets {
  public static func resolve(_ ticket: UInt64, _ resolution: Call.Resolution) -> Outcome {
    guard ticket != 0 else { return .invalidArgument }
    guard let book = TicketTable.shared.book(of: ticket) else { return .gone }
    // An end is an end by the hop: it counts even if the callback that took the ticket has not returned yet.
    if case .finish(let status) = resolution {
      let (outcome, hop) = book.spendAtHop(ticket)
      return hop.map { $0.endSoon(status, ticket: ticket) } ?? outcome
    }
    let (outcome, call) = book.spend(ticket, for: resolution.verdict)
    if outcome == .ok, let call { call.submit(.resolve(ticket, resolution)) }
    return outcome
  }

  /// After `nanoseconds`, resolves the ticket with `resolution`, unless the ticket was resolved before.
  public static func resolveAfter(_ ticket: UInt64, _ resolution: Call.Resolution, nanoseconds: UInt64)
    -> Outcome
  {
    guard ticket != 0 else { return .invalidArgument }
    guard let book = TicketTable.shared.book(of: ticket) else { return .gone }
    let (outcome, call) = book.look(ticket, for: resolution.verdict)
    guard outcome == .ok, let call, let loop = book.liveLoop else { return outcome }
    loop.resolve(ticket, of: call, resolution, afterNanoseconds: nanoseconds)
    return .ok
  }

  /// Runs `change` if the ticket is open, and no other thread can spend the ticket in the meantime. Otherwise
  /// returns `.gone`.
  static func whileOpen(_ ticket: UInt64, _ change: () -> Outcome) -> Outcome {
    TicketTable.shared.book(of: ticket)?.whileOpen(ticket, change) ?? .gone
  }

  /// Makes a handle of the hop that waits at the ticket's event.
  public static func hop(_ ticket: UInt64) -> (Outcome, WaitingHop?) {
    guard ticket != 0 else { return (.invalidArgument, nil) }
    return TicketTable.shared.book(of: ticket)?.hop(of: ticket) ?? (.gone, nil)
  }
}

extension Call.Resolution {
  /// The verdict of this resolution; nil: the resolution ends the call instead.
  public var verdict: Verdict? {
    if case .verdict(let verdict) = self { return verdict }
    return nil
  }
}
