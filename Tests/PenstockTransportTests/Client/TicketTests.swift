import PenstockCall
import PenstockWire
import Testing

@testable import PenstockTransport

/// The tickets of one call: found among thousands, told from those that are spent, lost or made up.
struct TicketTests {
  private func makeCall() throws -> ClientCall { try #require(TestClient("127.0.0.1:1")).make("/a/b", .bidi) }

  private static let prefix: UInt64 = 7 << 40

  @Test func thousandsAreOpenAtOnce() throws {
    let book = TicketBook(try makeCall().call, prefix: Self.prefix)
    let tickets = (0..<10_000).map { _ in book.issue(.halfClose, start: nil) }
    #expect(Set(tickets).count == 10_000)
    var random = SystemRandomNumberGenerator()
    let clock = ContinuousClock()
    let took = clock.measure {
      for ticket in tickets.shuffled(using: &random) {
        #expect(book.spend(ticket, for: .next).0 == .ok)
        #expect(book.spend(ticket, for: .next).0 == .already)
      }
    }
    // Looking through all of them for each would take minutes in a debug build.
    #expect(took < .seconds(20))
    #expect(book.issue(.halfClose, start: nil) == Self.prefix | 10_001)
  }

  /// Numbers go round; one that is open is never given out again, and no other is mistaken for it.
  @Test func numbersGoRound() throws {
    let book = TicketBook(try makeCall().call, prefix: Self.prefix, lastSequence: 9)
    var open: [UInt64] = []
    var random = SystemRandomNumberGenerator()
    for _ in 0..<2000 {
      if Bool.random(using: &random) {
        let ticket = book.issue(.halfClose, start: nil)
        if ticket == 0 {
          #expect(!open.isEmpty)
          continue
        }
        #expect(ticket & 0xff_ffff > 0 && !open.contains(ticket))
        open.append(ticket)
      } else if let index = open.indices.randomElement(using: &random) {
        let ticket = open.remove(at: index)
        #expect(book.spend(ticket, for: nil).0 == .ok)
      }
      for sequence: UInt64 in 0...12 {
        let ticket = Self.prefix | sequence
        #expect(book.look(ticket).0 == (open.contains(ticket) ? .ok : .already))
      }
    }
  }

  @Test func aLostTicketIsGoneAndASpentOneSpent() throws {
    let book = TicketBook(try makeCall().call, prefix: Self.prefix)
    let tickets = (0..<4).map { _ in book.issue(.send(ByteBuffer()), start: nil) }
    book.lose(tickets[1])
    #expect(book.spend(tickets[1], for: .next).0 == .gone)
    #expect(book.spend(tickets[0], for: .take).0 == .invalidArgument)
    #expect(book.spend(tickets[0], for: .drop).0 == .ok)
    book.lose(tickets[0])
    #expect(book.spend(tickets[0], for: .drop).0 == .already)
    #expect(book.look(tickets[2]).0 == .ok)
    for ticket in [tickets[3], tickets[2]] { #expect(book.spend(ticket, for: nil).0 == .ok) }
    // The lost one is still told from a spent one.
    #expect(book.look(tickets[1]).0 == .gone)
  }
}
