import PenstockWire
import Testing

@testable import PenstockCall

/// Tests of the record of a request that may be sent again: its limits, its order, and changes of its messages.
@Suite struct CutTests {
  private func message(_ size: Int) -> Message { CallBench.message(size) }

  private func send(_ cut: Cut, _ size: Int, isOwn: Bool = false) -> Bool {
    cut.passes(.send(message(size)), isOwn: isOwn)
  }

  private func sizes(_ cut: Cut) -> [Int] {
    var found: [Int] = []
    while let message = cut.message(at: found.count) { found.append(message.count) }
    return found
  }

  private func exchange(_ cut: Cut, _ index: Int, _ size: Int) -> Outcome {
    var given = message(size)
    return cut.exchangeMessage(at: index, with: &given)
  }

  @Test func messagesAreKeptUpToTheLimit() {
    let cut = Cut(limit: 10)
    #expect(send(cut, 4) && send(cut, 6) && cut.failure == nil && sizes(cut) == [4, 6])
    #expect(send(cut, 1) && cut.failure == .tooLarge && sizes(cut) == [])
    // An empty message counts as one byte.
    let small = Cut(limit: 2)
    #expect(send(small, 0) && send(small, 0) && small.failure == nil && sizes(small) == [0, 0])
    #expect(send(small, 0) && small.failure == .tooLarge)
    let few = Cut(limit: 100, most: 2)
    #expect(send(few, 1) && send(few, 1) && few.failure == nil)
    #expect(send(few, 1) && few.failure == .tooLarge)
  }

  @Test func aMessageIsExchangedWithinTheLimit() {
    let cut = Cut(limit: 10)
    #expect(send(cut, 4) && send(cut, 4))
    #expect(exchange(cut, 0, 7) == .tooLarge && sizes(cut) == [4, 4])
    #expect(exchange(cut, 0, 6) == .ok && sizes(cut) == [6, 4])
    #expect(exchange(cut, 1, 5) == .tooLarge && sizes(cut) == [6, 4])
    #expect(exchange(cut, 0, 1) == .ok && sizes(cut) == [1, 4])
    // The room of the smaller message is there for another.
    #expect(send(cut, 5) && cut.failure == nil && sizes(cut) == [1, 4, 5])
    #expect(send(cut, 1) && cut.failure == .tooLarge)
    for index in [-1, 0, 3] { #expect(exchange(cut, index, 1) == .notFound) }
    var given = message(3)
    let other = Cut(limit: 10)
    #expect(send(other, 2))
    #expect(other.exchangeMessage(at: 0, with: &given) == .ok && given.count == 2)
    #expect(other.exchangeMessage(at: 1, with: &given) == .notFound && given.count == 2)
  }

  @Test func messagesAreCountedOverHalfCloses() {
    let cut = Cut(limit: 100)
    #expect(send(cut, 1) && send(cut, 2) && cut.passes(.halfClose, isOwn: false))
    #expect(cut.message(at: -1) == nil && cut.message(at: 2) == nil && sizes(cut) == [1, 2])
    #expect(send(cut, 3) && cut.passes(.halfClose, isOwn: false) && send(cut, 4))
    #expect(sizes(cut) == [1, 2, 3, 4])
    #expect(cut.message(at: 4) == nil)
    #expect(exchange(cut, 2, 7) == .ok && exchange(cut, 3, 8) == .ok && sizes(cut) == [1, 2, 7, 8])
    for index in 5..<40 { #expect(send(cut, 1) && sizes(cut).count == index) }
  }

  @Test func theBudgetLendsTheRoom() {
    let budget = ReplayBudget(ofCall: 100, ofAll: 10)
    let cut = Cut(limit: 100, budget)
    #expect(send(cut, 6) && budget.left == 4)
    #expect(send(cut, 5) && cut.failure == .tooLarge && budget.left == 10)
    let other = Cut(limit: 100, budget)
    #expect(send(other, 7) && budget.left == 3)
    #expect(other.drop() == 0 && budget.left == 10 && other.state == .dropped)
  }

  /// The events that are sent again, each with its size and whether it was told before.
  private func played(_ cut: Cut) -> [String] {
    var found: [String] = []
    while let (event, isTold) = cut.takeNext() {
      found.append("\(event.kind.name) \(event.message?.count ?? 0) \(isTold)")
    }
    return found
  }

  @Test func recordedEventsAreSentAgainBeforeNewOnes() {
    let cut = Cut(limit: 100)
    #expect(send(cut, 1) && send(cut, 2, isOwn: true))
    cut.begin()
    #expect(cut.state == .waiting && cut.restarts == 1 && cut.toldAgain == 2)
    #expect(!send(cut, 3) && !send(cut, 4, isOwn: true) && !cut.passes(.halfClose, isOwn: false))
    #expect(cut.toldAgain == 3)
    cut.play()
    #expect(cut.state == .playing)
    #expect(
      played(cut) == ["send 1 true", "send 2 true", "send 3 false", "send 4 true", "half_close 0 false"])
    cut.rest()
    #expect(cut.state == .idle && sizes(cut) == [1, 2, 3, 4])
    cut.begin()
    cut.play()
    #expect(
      played(cut) == ["send 1 true", "send 2 true", "send 3 true", "send 4 true", "half_close 0 true"])
    #expect(cut.restarts == 2)
  }

  @Test func droppedEventsAreCountedIfTheyWereNotTold() {
    let cut = Cut(limit: 100)
    #expect(send(cut, 1))
    cut.begin()
    #expect(
      !send(cut, 2) && !send(cut, 3, isOwn: true) && !send(cut, 4) && !cut.passes(.halfClose, isOwn: false))
    #expect(cut.drop() == 2 && cut.toldAgain == 0)
    #expect(send(cut, 5) && cut.state == .dropped)
  }

  /// A cut that closes while events are sent again sends the rest of them still.
  @Test func aClosedCutSendsTheRest() {
    let budget = ReplayBudget(ofCall: 100, ofAll: 100)
    let cut = Cut(limit: 5, budget)
    #expect(send(cut, 5))
    cut.begin()
    #expect(!send(cut, 1) && cut.failure == .tooLarge && budget.left == 95)
    cut.play()
    #expect(played(cut) == ["send 5 true", "send 1 false"] && budget.left == 95)
    cut.rest()
    #expect(budget.left == 100)
    cut.close(.noMemory)
    #expect(cut.failure == .tooLarge)
  }

  @Test func hopsBelowGetCopies() {
    for hasHops in [false, true] {
      let cut = Cut(limit: 10, hasHops: hasHops)
      let given = message(3)
      #expect(cut.passes(.send(given), isOwn: false))
      #expect((cut.message(at: 0) === given) == !hasHops)
      cut.begin()
      cut.play()
      let again = cut.takeNext()?.event.message
      #expect(again?.count == 3 && (again === cut.message(at: 0)) == !hasHops)
    }
  }

  @Test(arguments: [false, true]) func aWholeRequest(isTold: Bool) {
    let cut = Cut(limit: 10)
    cut.keepWhole(message(4), isTold: isTold)
    #expect(cut.untold == (isTold ? 0 : 1) && sizes(cut) == [4])
    cut.begin()
    cut.play()
    #expect(played(cut) == ["send 4 true", "half_close 0 true"])
  }
}
