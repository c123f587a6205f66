import PenstockCall
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockTransport

/// Tests `AttemptLife`, `AttemptRequest` and `AttemptAnswer`: each cell of their tables, and all sequences of events up
/// to a length.
@Suite struct AttemptStateTests {
  private static func cells(_ table: String) -> [[String]] {
    table.split(separator: "\n").map { $0.split(separator: " | ").map { String($0) } }
  }

  /// Compares each cell of a table with the state that follows; nil: the event can't happen.
  private static func compare<State: Equatable, Event>(
    _ table: String, _ states: [(name: String, state: State)], _ events: [Event],
    _ next: (State, Event) -> State?
  ) {
    let expected = cells(table)
    #expect(expected.count == states.count)
    for ((name, state), row) in zip(states, expected) {
      #expect(row.count == events.count)
      for (event, words) in zip(events, row) {
        let next = next(state, event)
        let cell = next.map { next in
          next == state ? "-" : states.first { $0.state == next }?.name ?? "?"
        }
        #expect(cell ?? "x" == words, "\(name), \(event)")
      }
    }
  }

  // MARK: Life

  static let lives: [(name: String, state: AttemptLife)] = [
    ("new", .new), ("gathering", .gathering),
    ("waiting", .waiting(isAgain: false)), ("waiting, again", .waiting(isAgain: true)),
    ("streaming", .streaming(isAgain: false, takesTurns: false)),
    ("streaming, turns", .streaming(isAgain: false, takesTurns: true)),
    ("streaming, again", .streaming(isAgain: true, takesTurns: false)),
    ("streaming, again, turns", .streaming(isAgain: true, takesTurns: true)),
    ("stopped", .stopped), ("over", .over),
  ]

  static let lifeEvents: [AttemptLife.Event] = [
    .begins(gathers: false), .begins(gathers: true), .gathered, .opens, .joins(takesTurns: false),
    .joins(takesTurns: true), .unsent, .fails, .ends,
  ]

  /// One row for each of `lives`, one cell for each of `lifeEvents`.
  static let lifeTable = """
    waiting | gathering | x | x | x | x | x | x | over
    x | x | waiting | x | x | x | x | stopped | over
    x | x | x | streaming | x | x | x | stopped | over
    x | x | x | streaming, again | x | x | x | stopped | over
    x | x | x | x | - | streaming, turns | waiting, again | - | over
    x | x | x | x | streaming | - | waiting, again | - | over
    x | x | x | x | - | streaming, again, turns | waiting, again | - | over
    x | x | x | x | streaming, again | - | waiting, again | - | over
    x | x | x | x | x | x | x | - | over
    x | x | x | x | x | x | x | x | -
    """

  @Test func eachEventInEachLife() {
    Self.compare(Self.lifeTable, Self.lives, Self.lifeEvents) { state, event in
      guard let next = state.next(event) else { return nil }
      var life = state
      life.handle(event)
      #expect(life == next)
      return next
    }
  }

  /// In each sequence of events the life says the same as single facts: whether there is a call, a stream, a failure.
  @Test func allSequencesOfALife() {
    struct Facts {
      var hasBegun = false
      var isOver = false
      var gathers = false
      var hasStream = false
      var hasFailed = false
      var wasUnsent = false
      var takesTurns = false
    }
    var sequences = 0
    func walk(_ life: AttemptLife, _ facts: Facts, _ depth: Int) {
      sequences += 1
      let isLive = facts.hasBegun && !facts.isOver
      let waits = isLive && !facts.hasStream && !facts.hasFailed
      #expect(life.hasCall == isLive)
      #expect(life.isStreaming == (isLive && facts.hasStream))
      #expect(life.isWaiting == waits)
      #expect(life.mayOpen == (waits && !facts.gathers))
      #expect(life.takesTurns == (isLive && facts.hasStream && facts.takesTurns))
      // Nobody asks an attempt that has stopped.
      #expect(life.wasPickedAgain == (isLive && facts.wasUnsent && (waits || facts.hasStream)))
      #expect((life == .stopped) == (isLive && !facts.hasStream && facts.hasFailed))
      #expect(life.next(.ends) == .over, "an attempt can always end")
      if isLive { #expect(life.next(.fails) != nil, "an attempt that has begun can always fail") }
      #expect((life.next(.opens) != nil) == life.mayOpen)
      if depth == 0 { return }
      for event in Self.lifeEvents {
        guard let next = life.next(event) else { continue }
        var after = facts
        switch event {
        case .begins(let gathers): (after.hasBegun, after.gathers) = (true, gathers)
        case .gathered: after.gathers = false
        case .opens: (after.hasStream, after.takesTurns) = (true, false)
        case .joins(let turns): after.takesTurns = turns
        case .unsent: (after.hasStream, after.wasUnsent) = (false, true)
        case .fails: if !facts.hasStream { after.hasFailed = true }
        case .ends: after.isOver = true
        }
        walk(next, after, depth - 1)
      }
    }
    walk(.new, Facts(), 8)
    #expect(sequences > 4000)
  }

  // MARK: Request

  @Test func eachEventInEachStateOfTheRequest() {
    let table = """
      closing | whole | x
      x | x | whole
      x | x | x
      """
    let states: [(name: String, state: AttemptRequest)] = [
      ("open", .open), ("closing", .closing), ("whole", .whole),
    ]
    let events: [AttemptRequest.Event] = [
      .halfCloses(isPacking: true), .halfCloses(isPacking: false), .packed,
    ]
    Self.compare(table, states, events) { state, event in
      guard let next = state.next(event) else { return nil }
      var request = state
      request.handle(event)
      #expect(request == next)
      return next
    }
  }

  // MARK: Answer

  nonisolated(unsafe) static let metadata = Metadata()
  nonisolated(unsafe) static let foreign = Status(.unavailable, "a page")
  nonisolated(unsafe) static let ended = Status(.unimplemented, "of the head")
  nonisolated(unsafe) static let firstSaid = Status(.notFound, "in the body")
  nonisolated(unsafe) static let lastSaid = Status(.aborted, "in the trailers")
  nonisolated(unsafe) static let firstFailed = Status(.internal, "first")
  nonisolated(unsafe) static let lastFailed = Status(.unknown, "last")

  /// An `AttemptAnswer` without its contents.
  struct Shape: Equatable, CustomStringConvertible {
    var head = "awaited"
    var end = "open"
    var hasMessage = false

    var description: String { "\(head); \(hasMessage ? "message, " : "")\(end)" }

    init(_ answer: AttemptAnswer) {
      switch answer.head {
      case .awaited: head = "awaited"
      case .headers(let headers): head = headers === metadata ? "headers" : "other headers"
      case .foreign(let status): head = status === foreign ? "foreign" : "another foreign"
      case .told: head = "told"
      case .statusInBody: head = "statusInBody"
      }
      switch answer.end {
      case .open: end = "open"
      case .said(let status): end = status === firstSaid ? "said" : status === lastSaid ? "said last" : "?"
      case .failed(let status):
        end =
          status === firstFailed
          ? "failed" : status === lastFailed ? "failed last" : status === ended ? "ended" : "?"
      }
      hasMessage = answer.waiting != nil
    }
  }

  enum AnswerEvent: CaseIterable {
    case headers, foreign, statusInBody, ended, informational, takeHeaders, takeForeign
    case message, says, saysLast, fails, failsLast, takeMessage, takeSaid, drop
  }

  /// The answer after an event; nil: nothing was taken. `x` must not be called.
  private static func after(_ event: AnswerEvent, _ before: AttemptAnswer) -> AttemptAnswer? {
    var answer = before
    switch event {
    case .headers: answer.comes(.headers(metadata))
    case .foreign: answer.comes(.foreign(foreign))
    case .statusInBody: answer.comes(.statusInBody)
    case .ended: answer.comes(.ended(ended))
    case .informational: answer.comes(.informational)
    case .takeHeaders: if answer.takeHeaders() !== metadata { return nil }
    case .takeForeign: if answer.takeForeign() !== foreign { return nil }
    case .message: answer.comes(buffer([1, 2, 3]), size: 2)
    case .says: answer.says(firstSaid)
    case .saysLast: answer.says(lastSaid)
    case .fails: answer.fails(firstFailed)
    case .failsLast: answer.fails(lastFailed)
    case .takeMessage:
      guard let arrived = answer.takeMessage() else { return nil }
      #expect(arrived.message.count == 3 && arrived.size == 2)
    case .takeSaid: if answer.takeSaid() == nil { return nil }
    case .drop: answer.drop()
    }
    return answer
  }

  private static func made(_ events: AnswerEvent...) -> AttemptAnswer {
    events.reduce(AttemptAnswer()) { after($1, $0)! }
  }

  @Test func eachEventOfTheHead() {
    let heads = [
      Self.made(), Self.made(.headers), Self.made(.foreign), Self.made(.headers, .takeHeaders),
      Self.made(.statusInBody),
    ]
    let table = """
      headers; open | foreign; open | statusInBody; open | awaited; ended | awaited; open | x | x
      x | x | x | x | x | told; open | x
      x | x | x | x | x | x | statusInBody; open
      x | x | x | x | x | x | x
      x | x | x | x | x | x | x
      """
    for (answer, row) in zip(heads, Self.cells(table)) {
      #expect(row.count == 7)
      for (event, words) in zip(AnswerEvent.allCases, row) {
        // A second head stops a test build.
        let isHead = ![.takeHeaders, .takeForeign].contains(event)
        let next = isHead && !answer.isAwaited ? nil : Self.after(event, answer)
        #expect(next.map { Shape($0).description } ?? "x" == words, "\(Shape(answer)), \(event)")
      }
    }
    #expect(Shape(Self.after(.ended, Self.made(.fails))!).end == "ended", "the server's status comes first")
  }

  @Test func eachEventOfTheMessageAndTheEnd() {
    let events: [AnswerEvent] = [
      .message, .says, .saysLast, .fails, .failsLast, .takeMessage, .takeSaid, .drop,
    ]
    let ends = [
      Self.made(), Self.made(.says), Self.made(.fails), Self.made(.message), Self.made(.message, .says),
      Self.made(.message, .fails),
    ]
    let table = """
      message, open | said | said last | failed | failed last | x | x | open
      message, said | said | said last | failed | failed last | x | open | said
      message, failed | failed | failed | failed | failed | x | x | failed
      x | message, said | message, said last | message, failed | message, failed last | open | x | open
      x | message, said | message, said last | message, failed | message, failed last | said | message, open | said
      x | message, failed | message, failed | message, failed | message, failed | failed | x | failed
      """
    for (answer, row) in zip(ends, Self.cells(table)) {
      #expect(row.count == events.count)
      for (event, words) in zip(events, row) {
        // A second message stops a test build.
        let next = event == .message && answer.waiting != nil ? nil : Self.after(event, answer)
        #expect(
          next.map { Shape($0).description } ?? "x" == "awaited; \(words)" || words == "x" && next == nil)
      }
    }
  }

  /// In each sequence of events the call is told in order: headers, messages, and the first failure; and nothing is
  /// decoded that nobody may have.
  @Test func allSequencesOfAnAnswer() {
    struct Facts {
      var head = AnswerEvent?.none
      var isHeadTold = false
      var hasMessage = false
      var hasFailed = false
      var hasSaid = false
    }
    var sequences = 0
    func walk(_ answer: AttemptAnswer, _ facts: Facts, _ depth: Int) {
      sequences += 1
      let isRPC = facts.head == .headers
      let readsStatus = facts.head == .statusInBody || facts.head == .foreign && facts.isHeadTold
      let owesHead = !facts.isHeadTold && (isRPC || facts.head == .foreign)
      #expect(answer.hasHeaders == isRPC)
      #expect(answer.isAwaited == (facts.head == nil || facts.head == .ended))
      #expect(answer.readsStatus == readsStatus)
      #expect(answer.hasFailed == facts.hasFailed && (answer.failure != nil) == facts.hasFailed)
      #expect(answer.isPending == (facts.hasMessage || facts.hasFailed))
      #expect((answer.waiting != nil) == facts.hasMessage)
      let next: AttemptAnswer.Next =
        owesHead
        ? isRPC ? .headers : .foreign
        : facts.hasMessage
          ? .message
          : facts.hasFailed
            ? .failure
            : isRPC ? .body(needsDemand: true) : readsStatus ? .body(needsDemand: false) : .end
      #expect(answer.next == next)
      let ahead: AttemptAnswer.Ahead =
        facts.hasFailed || !isRPC
        ? .nothing : facts.hasMessage ? .last : facts.isHeadTold ? .anything : .whole
      #expect(answer.ahead == ahead)
      if depth == 0 { return }
      for event in AnswerEvent.allCases {
        var after = facts
        switch event {
        case .headers, .foreign, .statusInBody, .ended:
          if facts.head != nil && facts.head != .ended { continue }
          after.head = event
          if event == .ended { (after.hasFailed, after.hasSaid) = (true, false) }
        case .informational: if facts.head != nil && facts.head != .ended { continue }
        case .takeHeaders, .takeForeign: after.isHeadTold = true
        case .message:
          if facts.hasMessage { continue }
          after.hasMessage = true
        case .says, .saysLast: if !facts.hasFailed { after.hasSaid = true }
        case .fails, .failsLast: (after.hasFailed, after.hasSaid) = (true, false)
        case .takeMessage, .drop: after.hasMessage = false
        case .takeSaid: after.hasSaid = false
        }
        guard let made = Self.after(event, answer) else {
          let isLacking =
            event == .takeHeaders && (facts.isHeadTold || !isRPC)
            || event == .takeForeign && (facts.isHeadTold || facts.head != .foreign)
            || event == .takeMessage && !facts.hasMessage || event == .takeSaid && !facts.hasSaid
          #expect(isLacking, "\(event) in \(Shape(answer))")
          continue
        }
        walk(made, after, depth - 1)
      }
    }
    walk(AttemptAnswer(), Facts(), 5)
    #expect(sequences > 50_000)
  }
}
