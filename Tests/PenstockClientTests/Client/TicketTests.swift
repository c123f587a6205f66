import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockTickets
@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// Tests of a call's tickets: each ticket is found among thousands, and is distinguished from spent, lost and
/// invalid tickets.
struct TicketTests {
  private func makeCall() throws -> ClientCall { try #require(TestClient("127.0.0.1:1")).make("/a/b", .bidi) }

  private func makeBook(_ table: TicketTable = TicketTable(after: 0)) throws -> TicketBook {
    TicketBook(table, try makeCall().call)
  }

  @Test func thousandsAreOpenAtOnce() throws {
    let book = try makeBook()
    let tickets = (0..<10_000).map { _ in book.issue(.halfClose, of: nil, start: nil) }
    #expect(Set(tickets).count == 10_000)
    var random = SystemRandomNumberGenerator()
    let clock = ContinuousClock()
    let took = clock.measure {
      for ticket in tickets.shuffled(using: &random) {
        #expect(book.spend(ticket, for: .next).0 == .ok)
        #expect(book.spend(ticket, for: .next).0 == .already)
      }
    }
    // A linear search for each ticket would take minutes in a debug build.
    #expect(took < .seconds(20))
    #expect(try book.issue(.halfClose, of: nil, start: nil) > #require(tickets.last))
  }

  /// Even after more than 65,536 calls, a slot of the table never gives a ticket the number of an earlier
  /// call's ticket.
  @Test func noNumberComesAgainFromCallToCall() throws {
    let table = TicketTable(after: 0)
    let call = try makeCall().call
    var last: UInt64 = 0
    var kept: [(TicketBook, UInt64)] = []
    for round in 0..<100_000 {
      let book = TicketBook(table, call)
      let ticket = book.issue(.halfClose, of: nil, start: nil)
      must(ticket > last, "round \(round): \(ticket) after \(last)")
      last = ticket
      must(table.book(of: ticket) === book, "found")
      // Some books stay open, so that their slots are taken and later books have to use the other slots.
      if round % 997 == 0 { kept.append((book, ticket)) } else { book.close() }
      must(round % 997 == 0 || table.book(of: ticket) == nil, "gone")
    }
    for (book, ticket) in kept {
      #expect(table.book(of: ticket) === book && book.spend(ticket, for: .next).0 == .ok)
      book.close()
      #expect(table.book(of: ticket) == nil)
    }
  }

  /// Within one call no ticket number is used twice, whether the call always has one ticket open or none.
  @Test(arguments: [false, true]) func noNumberComesAgainWithinACall(hasOld: Bool) throws {
    let table = TicketTable(after: 0)
    let book = try makeBook(table)
    let old = book.issue(.halfClose, of: nil, start: nil)
    if !hasOld { _ = book.spend(old, for: .next) }
    var last = old
    for _ in 0..<200_000 {
      let ticket = book.issue(.halfClose, of: nil, start: nil)
      must(ticket > last, "\(ticket) after \(last)")
      last = ticket
      must(table.book(of: ticket)?.spend(ticket, for: .next).0 == .ok, "spent")
    }
    #expect(book.look(last).0 == .already)
    #expect(table.book(of: old)?.look(old).0 == (hasOld ? .ok : nil))
    book.close()
    #expect(table.book(of: old) == nil && table.book(of: last) == nil)
  }

  @Test func whereNumbersEndNoneIsGiven() throws {
    // The process's table is made first, because a new one goes on after the newest number of any table.
    _ = TicketTable.shared
    let table = TicketTable(after: TicketTable.lastNumber - 2)
    let books = try (0..<4).map { _ in try makeBook(table) }
    let tickets = books.map { $0.issue(.halfClose, of: nil, start: nil) }
    #expect(tickets[0] != 0 && tickets[1] > tickets[0] && tickets[2] == 0 && tickets[3] == 0)
    #expect(table.book(of: tickets[1]) === books[1])
    // A call that has a book number may issue 65,535 tickets with it. Then it gets no more tickets, because
    // all numbers are taken.
    for _ in 1..<65535 { must(books[1].issue(.halfClose, of: nil, start: nil) != 0, "there are more") }
    #expect(books[1].issue(.halfClose, of: nil, start: nil) == 0)
    for book in books { book.close() }
    #expect(table.book(of: tickets[1]) == nil)
  }

  @Test func aLostTicketIsGoneAndASpentOneSpent() throws {
    let book = try makeBook()
    let tickets = (0..<4).map { _ in book.issue(.send(ByteBuffer()), of: nil, start: nil) }
    book.lose(tickets[1])
    #expect(book.spend(tickets[1], for: .next).0 == .gone)
    #expect(book.spend(tickets[0], for: .take).0 == .invalidArgument)
    #expect(book.spend(tickets[0], for: .drop).0 == .ok)
    book.lose(tickets[0])
    #expect(book.spend(tickets[0], for: .drop).0 == .already)
    #expect(book.look(tickets[2]).0 == .ok)
    for ticket in [tickets[3], tickets[2]] { #expect(book.spend(ticket, for: nil).0 == .ok) }
    // The lost ticket must still be distinguished from a spent ticket.
    #expect(book.look(tickets[1]).0 == .gone)
  }
}
