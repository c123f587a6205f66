import PenstockCall
import PenstockWire
import Synchronization

/// Tickets by number, for any thread.
///
/// A ticket is a number: (number of a book) << 16 | (index in that book, from 1). Books are numbered from 1, and no
/// number is used again within the process, nor in a child that a fork makes of it: so a ticket that is resolved late
/// never meets another ticket. A book belongs to one call, and takes another number after each 65,535
/// tickets. Spent tickets are not kept: a ticket whose number no book has counts as gone (usually its call
/// has ended), and a ticket that its book does not list counts as spent.
final class TicketTable: @unchecked Sendable {
  private struct Slot {
    var number: UInt64 = 0
    var book: TicketBook?
  }

  static let processSlot = 2
  static let lastNumber: UInt64 = 1 << 48 - 1
  /// The newest number of this process or an ancestor. It is outside of the memory that a fork wipes, so that a child
  /// goes on counting from there.
  private static let newest = Atomic<UInt64>(0)

  private let lock = Lock()
  /// The ticket books (a `TicketBook` has the tickets of one call) by book number: number n is in slot n modulo the number
  /// of slots, a power of 2. A new number whose slot is taken is not used, and the next one is tried. At least half of the
  /// slots stay free.
  private var slots = [Slot](repeating: Slot(), count: 64)
  private var taken = 0
  private var last: UInt64

  /// The table of this process. A forked child makes its own, unless it takes over the parent's (`Fork`).
  static var shared: TicketTable {
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

  /// Gives `book` the next free number; 0: there are no more.
  @inline(never) @_optimize(size)
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

  /// Doubles the slots. Books whose slots differ have different slots afterwards, too.
  private func grow() {
    let old = slots
    slots = [Slot](repeating: Slot(), count: old.count * 2)
    for one in old where one.book != nil { slots[index(of: one.number)] = one }
  }

  /// Frees numbers of a book. The book has no open tickets with these numbers any more.
  fileprivate func free(_ numbers: ArraySlice<UInt64>) {
    lock.lock()
    for number in numbers { slots[index(of: number)].book = nil }
    taken -= numbers.count
    lock.unlock()
  }

  /// The book that has the ticket's book number now. nil: none has. Then the call has ended, or the book has given the
  /// number back because all tickets with it were spent, or the number was never given out.
  func book(of ticket: UInt64) -> TicketBook? {
    lock.lock()
    defer { lock.unlock() }
    let found = slots[index(of: ticket >> TicketBook.turnBits)]
    return found.number == ticket >> TicketBook.turnBits ? found.book : nil
  }
}

/// The tickets of one call, in the order of their issue: thousands may be open, and each is found by binary search.
final class TicketBook: @unchecked Sendable {
  /// The hop and the event for which a ticket was issued, and the request that goes with the event.
  struct Claim {
    /// The hop. The reference is not counted: while the ticket is open the call goes on, and keeps the hop.
    let hop: Unmanaged<Hop>?
    let event: Event
    /// The request that goes with the event: for a start the call's request; for a status, if the hop records what a
    /// RESTART sends again, the recorded request; otherwise nil.
    let start: Request?
  }

  private enum State {
    case open(Claim)
    /// The call went on without the event, so the ticket is gone.
    case lost
    /// The ticket is spent. Such entries are dropped when half of all are spent; a ticket without an entry counts as
    /// spent.
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
  private var runtime: Runtime?
  /// The tickets, in rising order.
  private var entries: [Entry] = []
  private var spentCount = 0
  /// The numbers that the table has given to this book, oldest first. Numbers older than all entries were given back.
  private var numbers: [UInt64] = []
  private var newest: UInt64 = 0

  init(_ table: TicketTable, _ call: Call, _ runtime: Runtime? = nil) {
    self.table = table
    self.call = call
    self.runtime = runtime
  }

  /// Issues a ticket. Any thread; if the call has ended, the ticket is gone from the start. 0: there are no more
  /// numbers.
  func issue(_ event: Event, of hop: Hop?, start: Request?) -> UInt64 {
    lock.lock()
    defer { lock.unlock() }
    guard call != nil else { return newest | TicketBook.lastTurn }
    if newest == 0 || newest & TicketBook.lastTurn == TicketBook.lastTurn {
      let number = table.number(for: self)
      if number == 0 { return 0 }
      leaveNumbers()
      numbers.append(number)
      newest = number << TicketBook.turnBits
    }
    newest += 1
    let claim = Claim(hop: hop.map { .passUnretained($0) }, event: event, start: start)
    entries.append(Entry(ticket: newest, state: .open(claim)))
    return newest
  }

  /// Gives back the numbers that no entry has any more. A function that gets a ticket with such a number returns
  /// "gone".
  private func leaveNumbers() {
    let oldest = (entries.first?.ticket ?? .max) >> TicketBook.turnBits
    let count = numbers.prefix { $0 < oldest }.count
    table.free(numbers[..<count])
    numbers.removeLeading(count)
  }

  /// Spends a ticket, if it is open and its event allows `verdict`. The thread that spends it has the right to
  /// resolve the event.
  func spend(_ ticket: UInt64, for verdict: Verdict?) -> (Outcome, Call?) {
    lock.lock()
    let (outcome, index, claim) = find(ticket)
    if let claim, let verdict, !claim.event.kind.resolves(with: verdict) {
      lock.unlock()
      return (.invalidArgument, nil)
    }
    let owner = call
    if claim != nil {
      entries[index].state = .spent
      spentCount += 1
      if spentCount * 2 >= entries.count { dropSpent() }
    }
    lock.unlock()
    // The claim is released after the lock, because it may hold the last reference to an object with a user's
    // finalizer.
    withExtendedLifetime(claim) {}
    return (outcome, owner)
  }

  func lose(_ ticket: UInt64) {
    lock.lock()
    let (_, index, claim) = find(ticket)
    if claim != nil { entries[index].state = .lost }
    lock.unlock()
    withExtendedLifetime(claim) {}
  }

  /// Whether the ticket is still open and allows `verdict`, without spending it.
  func look(_ ticket: UInt64, for verdict: Verdict? = nil) -> (Outcome, Call?) {
    lock.lock()
    defer { lock.unlock() }
    let (outcome, _, claim) = find(ticket)
    if let claim, let verdict, !claim.event.kind.resolves(with: verdict) { return (.invalidArgument, nil) }
    return (outcome, claim == nil ? nil : call)
  }

  /// A handle of the hop at the ticket's event.
  fileprivate func hop(of ticket: UInt64) -> (Outcome, WaitingHop?) {
    lock.lock()
    defer { lock.unlock() }
    let (outcome, _, claim) = find(ticket)
    guard let claim, let hop = claim.hop?.takeUnretainedValue() else { return (outcome, nil) }
    hop.lend()
    return (.ok, WaitingHop(hop, claim.event, ticket: ticket, start: claim.start))
  }

  /// The runtime that drives the call; nil once the call has ended.
  var driver: Runtime? { lock.withLock { runtime } }

  /// Runs `change` if the ticket is open, under the lock, so that no other thread spends the ticket
  /// meanwhile.
  fileprivate func whileOpen(_ ticket: UInt64, _ change: () -> Outcome) -> Outcome {
    lock.withLock { find(ticket).2 == nil ? .gone : change() }
  }

  func close() {
    lock.lock()
    let last = (call, runtime)
    let rest = entries
    call = nil
    runtime = nil
    entries = []
    spentCount = 0
    lock.unlock()
    // The call has ended, so no more tickets are issued, and `numbers` stays as it is.
    table.free(numbers[...])
    withExtendedLifetime((last, rest)) {}
  }

  private func dropSpent() {
    if spentCount == entries.count {
      entries.removeAll(keepingCapacity: spentCount <= 64)
    } else {
      var kept = 0
      for index in 0..<entries.count {
        if case .spent = entries[index].state { continue }
        if kept < index { entries.swapAt(kept, index) }
        kept += 1
      }
      while entries.count > kept { entries.removeLast() }
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
    let (outcome, call) = book.spend(ticket, for: resolution.verdict)
    if outcome == .ok, let call { call.submit(.resolve(ticket, resolution)) }
    return outcome
  }

  /// Resolves the ticket with `resolution` in `nanoseconds`, unless it has been resolved by then.
  @inline(never) @_optimize(size)
  public static func resolveAfter(_ ticket: UInt64, _ resolution: Call.Resolution, nanoseconds: UInt64)
    -> Outcome
  {
    guard ticket != 0 else { return .invalidArgument }
    guard let book = TicketTable.shared.book(of: ticket) else { return .gone }
    let (outcome, call) = book.look(ticket, for: resolution.verdict)
    guard outcome == .ok, let call, let runtime = book.driver else { return outcome }
    let time = runtime.time(after: nanoseconds)
    if resolution.verdict == .next {
      call.submit(.resume(ticket, at: time))
    } else {
      _ = runtime.post(DelayedResolution(call, ticket, resolution, at: time))
    }
    return .ok
  }

  /// Runs `change` if the ticket is open, so that no other thread spends the ticket meanwhile; otherwise
  /// returns `.gone`.
  static func whileOpen(_ ticket: UInt64, _ change: () -> Outcome) -> Outcome {
    TicketTable.shared.book(of: ticket)?.whileOpen(ticket, change) ?? .gone
  }

  /// A handle of the hop at the ticket's event.
  public static func hop(_ ticket: UInt64) -> (Outcome, WaitingHop?) {
    guard ticket != 0 else { return (.invalidArgument, nil) }
    return TicketTable.shared.book(of: ticket)?.hop(of: ticket) ?? (.gone, nil)
  }
}

extension Call.Resolution {
  /// The verdict; nil where the resolution ends the call.
  var verdict: Verdict? {
    if case .verdict(let verdict) = self { return verdict }
    return nil
  }
}
