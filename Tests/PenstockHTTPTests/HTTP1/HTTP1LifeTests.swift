import PenstockWire
import Testing

@testable import PenstockHTTP

/// Tests `HTTP1Life` and `HTTP1Reading`: each cell of their tables, and all sequences of events up to a length.
@Suite struct HTTP1LifeTests {
  static let states: [(name: String, life: HTTP1Life)] = [
    ("idle", .idle), ("opening", .opening),
    ("unsent", .unsent(.plain)), ("unsent, chunked", .unsent(.chunked)), ("unsent, ended", .unsent(.ended)),
    ("sending", .sending(.plain)), ("sending, chunked", .sending(.chunked)),
    ("sending, ended", .sending(.ended)),
    ("receiving", .receiving), ("deaf", .deaf(wasSent: false)), ("deaf, sent", .deaf(wasSent: true)),
    ("closed", .closed),
  ]

  static let events: [HTTP1Life.Event] = [
    .assigned, .headGiven(isChunked: false), .headGiven(isChunked: true), .bodyEnded, .sentSome, .sentAll,
    .writeFailed, .answered(keeps: true), .answered(keeps: false), .unwanted, .over,
  ]

  /// One row for each of `states`, one cell for each of `events`.
  static let table = """
    opening | x | x | x | - | - | - | x | x | x | closed
    x | unsent | unsent, chunked | x | - | - | - | x | x | keep -> idle | closed
    x | x | x | unsent, ended | dropCopies -> sending | x | - | x | x | close -> closed | closed
    x | x | x | unsent, ended | dropCopies -> sending, chunked | x | - | x | x | close -> closed | closed
    x | x | x | x | dropCopies -> sending, ended | x | - | x | x | close -> closed | closed
    x | x | x | sending, ended | - | - | deaf | close -> closed | close -> closed | close -> closed | closed
    x | x | x | sending, ended | - | - | deaf | close -> closed | close -> closed | close -> closed | closed
    x | x | x | x | - | receiving | deaf | close -> closed | close -> closed | close -> closed | closed
    x | x | x | x | - | - | deaf, sent | keep -> idle | close -> closed | close -> closed | closed
    x | x | x | x | x | - | x | close -> closed | close -> closed | close -> closed | closed
    x | x | x | x | x | - | x | close -> closed | close -> closed | close -> closed | closed
    x | x | x | x | x | x | x | x | x | x | x
    """

  private static func cells(_ table: String) -> [[String]] {
    table.split(separator: "\n").map { $0.split(separator: " | ").map { String($0) } }
  }

  /// The cell in the words of the table.
  private static func cell<State: Equatable, Action: Equatable>(
    _ step: (next: State, action: Action)?, from state: State, _ nothing: Action,
    _ name: (State) -> String
  ) -> String {
    guard let (next, action) = step else { return "x" }
    if action == nothing { return next == state ? "-" : name(next) }
    return next == state ? "\(action)" : "\(action) -> \(name(next))"
  }

  private static func step<State: StateTable>(
    _ state: State, _ event: State.Event
  ) -> (next: State, action: State.Action)? {
    var next = state
    return next.apply(event).map { (next, $0) }
  }

  static func name(_ life: HTTP1Life) -> String { states.first { $0.life == life }?.name ?? "?" }

  @Test func eachEventOfTheCallInEachState() {
    let expected = Self.cells(Self.table)
    #expect(expected.count == Self.states.count)
    for ((name, state), row) in zip(Self.states, expected) {
      #expect(row.count == Self.events.count)
      for (event, words) in zip(Self.events, row) {
        let step = Self.step(state, event)
        #expect(Self.cell(step, from: state, .nothing, Self.name) == words, "\(name), \(event)")
        guard let step else { continue }
        var life = state
        let action = life.handle(event)
        #expect((life == step.next && action == step.action) == true, "\(name), \(event)")
      }
    }
  }

  /// The facts that are known of a call from its events alone.
  struct Facts {
    var hasCall = false
    var isClosed = false
    var hasHead = false
    var isChunked = false
    var bodyHasEnded = false
    var keepsCopies = false
    var isSent = false
    var writeHasFailed = false

    mutating func note(_ event: HTTP1Life.Event, _ action: HTTP1Life.Action) {
      switch event {
      case .assigned: hasCall = true
      case .headGiven(let chunked): (hasHead, isChunked, keepsCopies) = (true, chunked, true)
      case .bodyEnded: bodyHasEnded = true
      case .sentSome: keepsCopies = false
      case .sentAll: if hasHead, bodyHasEnded { isSent = true }
      case .writeFailed: if hasHead, !keepsCopies { writeHasFailed = true }
      case .answered, .unwanted: break
      case .over: isClosed = true
      }
      if action == .keep { self = Facts() }
      if action == .close { isClosed = true }
    }
  }

  /// In each sequence of events the state says the same as the single facts, and no step does what the facts forbid.
  @Test func allSequencesOfACall() {
    var sequences = 0
    func walk(_ life: HTTP1Life, _ facts: Facts, _ depth: Int) {
      sequences += 1
      #expect(life.hasCall == (facts.hasCall && !facts.isClosed))
      #expect((life == .closed) == facts.isClosed)
      if facts.isClosed {
        for event in Self.events { #expect(Self.step(life, event) == nil) }
        return
      }
      #expect(life.isUnsent == (facts.hasHead && facts.keepsCopies))
      #expect(life.expectsAnswer == (facts.hasHead && !facts.keepsCopies))
      #expect(life.isDeaf == facts.writeHasFailed)
      let mayAdd = facts.hasHead && !facts.bodyHasEnded && !facts.writeHasFailed
      #expect((life.body != nil) == mayAdd)
      if mayAdd { #expect((life.body == .chunked) == facts.isChunked) }
      #expect(Self.step(life, .over) != nil)
      if depth == 0 { return }
      for event in Self.events {
        guard let step = Self.step(life, event) else { continue }
        if step.action == .keep {
          // The next call's request must be the next byte on the connection, and its answer the next that comes.
          let isWhole = facts.isSent && !facts.writeHasFailed && event == .answered(keeps: true)
          #expect(isWhole || !facts.hasHead && event == .unwanted, "\(event) in \(life)")
        }
        #expect((step.action == .dropCopies) == (event == .sentSome && facts.hasHead && facts.keepsCopies))
        var next = facts
        next.note(event, step.action)
        walk(step.next, next, depth - 1)
      }
    }
    walk(.idle, Facts(), 7)
    #expect(sequences > 10_000)
  }

  // MARK: Reading

  static let readingStates: [(name: String, reading: HTTP1Reading)] = [
    ("flowing", .flowing(peerHasEnded: false)), ("flowing, ended", .flowing(peerHasEnded: true)),
    ("paused", .paused(peerHasEnded: false)), ("paused, ended", .paused(peerHasEnded: true)),
    ("due", .due(peerHasEnded: false)), ("due, ended", .due(peerHasEnded: true)),
    ("unwatched", .unwatched(isDue: false)), ("unwatched, due", .unwatched(isDue: true)),
  ]

  /// One row for each of `readingStates`, one cell for each of `HTTP1Reading.Event.allCases`.
  static let readingTable = """
    watch -> paused | - | - | flowing, ended | unwatch -> unwatched, due
    watch -> paused, ended | - | - | - | unwatch -> unwatched, due
    x | schedule -> due | x | paused, ended | unwatch -> unwatched
    x | schedule -> due, ended | x | - | unwatch -> unwatched
    x | - | flowing | due, ended | unwatch -> unwatched, due
    x | - | flowing, ended | - | unwatch -> unwatched, due
    x | schedule -> unwatched, due | x | - | -
    unwatched | - | schedule | - | -
    """

  static func name(_ reading: HTTP1Reading) -> String {
    readingStates.first { $0.reading == reading }?.name ?? "?"
  }

  @Test func eachEventOfReadingInEachState() {
    let expected = Self.cells(Self.readingTable)
    #expect(expected.count == Self.readingStates.count)
    for ((name, state), row) in zip(Self.readingStates, expected) {
      #expect(row.count == HTTP1Reading.Event.allCases.count)
      for (event, words) in zip(HTTP1Reading.Event.allCases, row) {
        let step = Self.step(state, event)
        #expect(Self.cell(step, from: state, .nothing, Self.name) == words, "\(name), \(event)")
        guard let step else { continue }
        var reading = state
        let action = reading.handle(event)
        #expect((reading == step.next && action == step.action) == true, "\(name), \(event)")
      }
    }
  }

  /// In each sequence of events the state says the same as single facts: whether the window is full, whether the loop
  /// still tells, whether a turn is due, whether the peer has ended.
  @Test func allSequencesOfReading() {
    var sequences = 0
    func walk(
      _ reading: HTTP1Reading, isFull: Bool, isWatched: Bool, isDue: Bool, hasEnded: Bool, _ depth: Int
    ) {
      sequences += 1
      #expect(reading.isPaused == isFull)
      #expect(reading.isUnwatched == !isWatched)
      #expect(reading.isDue == isDue)
      #expect(reading.peerHasEnded == hasEnded)
      // Something makes it go on: the loop, a turn, or the owner, which has to take a window of bytes.
      #expect(isFull || isWatched || isDue)
      if depth == 0 { return }
      for event in HTTP1Reading.Event.allCases {
        guard let step = Self.step(reading, event) else {
          #expect(event == .full && (isFull || isDue) || event == .reads && isFull, "\(event) in \(reading)")
          continue
        }
        var (full, watched, due, ended) = (isFull, isWatched, isDue, hasEnded)
        switch event {
        case .full: (full, due) = (true, false)
        case .room: if full { (full, due) = (false, true) }
        case .reads: due = !watched
        case .peerEnds: ended = true
        case .hangsUp: (ended, watched, due) = (true, false, !full)
        }
        #expect((step.action == .watch) == (event == .full && watched))
        #expect((step.action == .unwatch) == (isWatched && !watched))
        #expect((step.action == .schedule) == (due && (event == .room && isFull || event == .reads)))
        walk(step.next, isFull: full, isWatched: watched, isDue: due, hasEnded: ended, depth - 1)
      }
    }
    walk(
      .flowing(peerHasEnded: false), isFull: false, isWatched: true, isDue: false, hasEnded: false, 7)
    #expect(sequences > 10_000)
  }
}
