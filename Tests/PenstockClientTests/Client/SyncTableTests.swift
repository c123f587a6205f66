import PenstockCall
import PenstockLoop
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockClient

/// Every cell of the tables of the synchronous interceptors: SyncStage.swift, SyncFunction.swift, SyncNews.swift and
/// SyncOffer.swift. A ticket is written as its number: 1 for start, 2 and 3 for the request, 4 to 6 for the response; 9
/// is that of the event itself.
@Suite struct SyncTableTests {
  // MARK: The form of the tables

  /// For each state, what the events do, with one line for the events that do the same.
  private static func rows<Event>(
    _ events: [(name: String, event: Event)], _ step: (Event) -> String
  ) -> [String] {
    var rows: [(words: String, events: String)] = []
    for (name, event) in events {
      let words = step(event)
      if let i = rows.firstIndex(where: { $0.words == words }) {
        rows[i].events += "; " + name
      } else {
        rows.append((words, name))
      }
    }
    return rows.map { "  \($0.words) | \($0.events)" }
  }

  private static func compare(_ actual: [String], _ expected: String) {
    let expected = expected.split(separator: "\n").map(String.init)
    for (one, other) in zip(actual, expected) { #expect(one == other) }
    #expect(actual.count == expected.count)
  }

  /// The words of a cell: the action, and the state that follows if it is another.
  private static func cell(_ action: String, _ next: String, from state: String) -> String {
    let words = [action == "nothing" ? "" : action, next == state ? "" : "-> " + next].filter { !$0.isEmpty }
    return words.isEmpty ? "-" : words.joined(separator: " ")
  }

  // Nothing changes these objects.
  nonisolated(unsafe) static let message: Message = bytes("message")
  nonisolated(unsafe) static let other: Message = bytes("other")
  nonisolated(unsafe) static let status = Status(.ok, "")
  nonisolated(unsafe) static let headers = Metadata()

  // MARK: The hop

  static func words(_ stage: SyncStage) -> String {
    switch stage {
    case .collecting(let open), .closing(let open), .offered(let open): "\(stage.name) \(words(open))"
    case .passed(let open, _), .responded(let open, _): "\(stage.name) \(words(open))"
    case .giving(let given): "giving \(words(given))"
    case .short, .fresh, .delivering, .passing, .over: "\(stage.name)"
    }
  }

  static func words(_ open: SyncStage.Outbound) -> String {
    "\(open.start)\(open.request)\(open.halfClose)"
  }

  static func words(_ open: SyncStage.Inbound) -> String { "\(open.headers)\(open.message)\(open.status)" }

  static func words(_ given: SyncStage.Given) -> String {
    switch given.end {
    case .own: "\(given.messages.count), own"
    case .waiting(let ticket): "\(given.messages.count), \(ticket)"
    }
  }

  private static func words(_ action: SyncStage.Action) -> String {
    switch action {
    case .nothing: "nothing"
    case .pass: "pass"
    case .hold: "hold"
    case .offer: "offer"
    case .tell: "tell"
    case .fail: "fail"
    case .finish: "finish"
    case .passOn(let open): "passOn(\(words(open)))"
    case .restart(let ticket): "restart(\(ticket))"
    case .take(let open, let headers, let given):
      "take(\(words(open)), \(headers == nil ? "" : "headers, ")\(words(given)))"
    case .settle(let open, _, let late): "settle(\(words(open))\(late.map { "; " + words($0) } ?? ""))"
    case .deliver(let given): "deliver(\(words(given)))"
    }
  }

  private static func out(_ request: UInt64 = 0, _ halfClose: UInt64 = 0) -> SyncStage.Outbound {
    SyncStage.Outbound(start: 1, request: request, halfClose: halfClose)
  }

  private static func passed(_ headers: UInt64 = 0, _ message: UInt64 = 0) -> SyncStage {
    .passed(SyncStage.Inbound(headers: headers, message: message), SyncResponse())
  }

  private static func responded(
    _ headers: UInt64 = 0, _ message: UInt64 = 0, _ status: UInt64 = 0, replaced: Bool = false
  ) -> SyncStage {
    let response = SyncResponse()
    if status != 0 { response.status = Self.status }
    if replaced { response.replacement = other }
    return .responded(SyncStage.Inbound(headers: headers, message: message, status: status), response)
  }

  /// The action of an event, and the state after it; nil: the event can't happen.
  private static func step(_ stage: SyncStage, _ event: SyncStage.Event, _ kind: CallKind)
    -> (action: SyncStage.Action, next: SyncStage)?
  {
    var next = stage
    return next.apply(event, kind).map { ($0, next) }
  }

  static var given: SyncStage.Given { SyncStage.Given(messages: [other], end: .own(status)) }

  private static func stages(_ kind: CallKind) -> [SyncStage] {
    let common: [SyncStage] = [.short, .fresh]
    let rest: [SyncStage] = [.giving(given), .delivering, .passing, .over]
    return kind == .unary
      ? common + [
        .collecting(out()), .closing(out(2)), .offered(out(2)), .offered(out(2, 3)),
        passed(), passed(4), passed(0, 5), passed(4, 5),
        responded(4, 5, 6), responded(4, 5, 6, replaced: true), responded(0, 0, 6, replaced: true),
      ] + rest
      : common + [
        .offered(out()), passed(), responded(4), responded(0, 5), responded(0, 0, 6),
      ] + rest
  }

  static var events: [(name: String, event: SyncStage.Event)] {
    [
      ("start", .start(9)), ("request", .request(9, isClosing: false)),
      ("request, closing", .request(9, isClosing: true)), ("halfClose", .halfClose(9)),
      ("headers", .headers(9)), ("message", .message(9)), ("status", .status(9)), ("gone", .gone),
      ("next", .next), ("again", .again(isRefused: false)), ("again, refused", .again(isRefused: true)),
      ("answer", .answer(SyncAnswer(headers: headers, messages: [other], status: status))),
      ("answer, headers", .answer(SyncAnswer(headers: headers, messages: [], status: status))),
      ("answer, message", .answer(SyncAnswer(headers: nil, messages: [other], status: status))),
      ("answer, bare", .answer(SyncAnswer(headers: nil, messages: [], status: status))),
      ("end", .end), ("letGo", .letGo), ("demand", .demand), ("left", .left(given)),
      ("delivered", .delivered),
    ]
  }

  private static func stageTable(_ kind: CallKind) -> [String] {
    stages(kind).flatMap { stage in
      ["\(words(stage)):"]
        + rows(events) { event in
          step(stage, event, kind).map { cell(words($0.action), words($0.next), from: words(stage)) } ?? "x"
        }
    }
  }

  @Test func theHopOfAUnaryCall() { Self.compare(Self.stageTable(.unary), SyncTables.unary) }
  @Test func theHopOfABidiCall() { Self.compare(Self.stageTable(.bidi), SyncTables.bidi) }

  /// The consequences of the kind of call: the way out depends on the number of requests, the way in on that of responses.
  @Test func theHopOfTheOtherKinds() {
    for kind in [CallKind.clientStream, .serverStream] {
      let start = Self.step(.fresh, .start(9), kind).map { Self.words($0.next) }
      #expect(start == (kind == .serverStream ? "collecting 900" : "offered 900"))
      for event in [SyncStage.Event.headers(9), .message(9)] {
        let next = Self.step(Self.passed(), event, kind)?.next.name.description
        #expect(next == (kind == .clientStream ? "passed" : "responded"))
      }
    }
  }

  /// A hop takes a ticket for each event that may wait, and for no other.
  @Test func ticketsAreTakenForEventsThatMayWait() {
    for kind in [CallKind.unary, .bidi] {
      for stage in Self.stages(kind) {
        for (name, event) in Self.events {
          let lane: Lane
          switch event {
          case .start, .request, .halfClose: lane = .outbound
          case .headers, .message, .status: lane = .inbound
          default: continue
          }
          switch Self.step(stage, event, kind)?.action {
          case .hold, .offer, .tell: #expect(stage.stops(lane), "\(name), \(Self.words(stage))")
          case .pass, .fail:
            // A second message passes, though it comes when others are still expected.
            let isSecond =
              name.hasPrefix("request") && stage.name.description == "closing"
              || name == "message" && stage.name.description == "passed"
            #expect(stage.stops(lane) == isSecond, "\(name), \(Self.words(stage))")
          default: break
          }
        }
      }
    }
  }

  // MARK: The function

  private static func words(_ function: SyncFunction) -> String {
    switch function {
    case .beforeNext(let draft):
      "beforeNext\(draft.message == nil ? "" : ", message")\(draft.replacement == nil ? "" : ", replaced")"
        + (draft.answers.isEmpty ? "" : ", answers")
    case .afterNext(let response): "afterNext\(response.status == nil ? "" : ", status")"
    case .ended(let response): "ended\(response == nil ? "" : ", response")"
    case .inNext, .gone: "\(function.name)"
    }
  }

  private static func words(_ action: SyncFunction.Action) -> String {
    switch action {
    case .nothing: "nothing"
    case .next(let change):
      change.map { $0.of == nil ? "next(new message)" : "next(other message)" } ?? "next"
    case .again: "again"
    case .end: "end"
    case .endElsewhere: "endElsewhere"
    case .answer(let draft): "answer(\(draft.answers.count))"
    case .letGo: "letGo"
    case .broken(let what): "broken(\(what))"
    case .gives(let outcome): "gives \(outcome)"
    case .refuses(let why): "refuses \(why)"
    }
  }

  private static var wholeResponse: SyncResponse {
    let response = SyncResponse()
    response.status = status
    return response
  }

  private static func functions() -> [SyncFunction] {
    let whole = wholeResponse
    return [
      .beforeNext(SyncFunction.Draft()),
      .beforeNext(SyncFunction.Draft(replacement: other, answers: [other])),
      .beforeNext(SyncFunction.Draft(message: message, replacement: other)),
      .inNext, .afterNext(SyncResponse()), .afterNext(whole), .gone, .ended(nil), .ended(whole),
    ]
  }

  @Test func theFunction() {
    let events: [(name: String, event: SyncFunction.Event)] = [
      ("next", .next), ("responded", .responded(Self.wholeResponse)), ("lost", .lost),
      ("end", .end),
      ("answer", .answer), ("returned", .returned(isNext: true)), ("returned 77", .returned(isNext: false)),
    ]
    let table = Self.functions().flatMap { state in
      ["\(Self.words(state)):"]
        + Self.rows(events) { event in
          var next = state
          return next.apply(event).map {
            Self.cell(Self.words($0), Self.words(next), from: Self.words(state))
          } ?? "x"
        }
    }
    Self.compare(table, SyncTables.function)
  }

  @Test func whatTheFunctionMayDo() {
    let table = Self.functions().flatMap { state -> [String] in
      func words(_ why: Refusal?) -> String { why.map { "\($0)" } ?? "yes" }
      func setMessage(_ kind: CallKind) -> String {
        var state = state
        let why = state.setMessage(Self.message, kind)
        let seen = state.message(kind)
        return words(why) + (why == nil && seen !== Self.message ? ", and has another" : "")
      }
      return [
        "\(Self.words(state)):",
        "  answer \(words(state.refusesAnswer)), start \(words(state.refusesEdit)), record \(words(state.refusesEditOfRecord))",
        "  message: \(CallKind.unary.words(setMessage)), \(CallKind.clientStream.words(setMessage)), "
          + "\(CallKind.serverStream.words(setMessage)), \(CallKind.bidi.words(setMessage))",
      ]
    }
    Self.compare(table, SyncTables.rights)
  }

  /// The message that the function sees: the one it has set, or the one that has come.
  @Test func theMessageOfTheFunction() {
    var before = SyncFunction.beforeNext(SyncFunction.Draft(message: Self.message))
    #expect(before.message(.unary) === Self.message)
    #expect(before.setMessage(Self.other, .unary) == nil)
    #expect(before.message(.unary) === Self.other)
    guard case .next(let change?) = before.handle(.next) else { return #expect(Bool(false)) }
    #expect(change.of === Self.message && change.to === Self.other)
    #expect(before.message(.unary) == nil)
    let response = SyncResponse()
    response.message = Self.message
    _ = before.handle(.responded(response))
    #expect(before.message(.unary) === Self.message)
    #expect(before.message(.serverStream) == nil)
    #expect(before.response === response)
    #expect(before.setMessage(Self.other, .unary) == nil)
    #expect(before.message(.unary) === Self.other && response.message === Self.message)
    _ = before.handle(.end)
    #expect(before.message(.unary) == nil && before.response == nil)
  }

  @Test func whatTheFunctionPrepares() {
    var before = SyncFunction.beforeNext(SyncFunction.Draft(message: Self.message))
    #expect(before.edit { $0.answers.append(Self.other) } != nil)
    #expect(before.isBeforeNext && before.message(.unary) === Self.message)
    guard case .answer(let draft) = before.handle(.answer) else { return #expect(Bool(false)) }
    #expect(draft.answers.count == 1 && draft.message === Self.message)
    #expect(before.edit { $0.answers.append(Self.other) } == nil)
    #expect(!before.isBeforeNext)
  }

  // MARK: The news

  private static func words(_ news: SyncNews) -> String {
    if case .over(let status?) = news {
      "over, \(status.code == .aborted ? "aborted" : "cancelled")"
    } else {
      "\(news.name)"
    }
  }

  @Test func theNews() {
    let cell = WaitCell()
    let response = SyncResponse()
    let states: [SyncNews] = [
      .none, .awaited(cell), .response(response), .over(nil), .over(Status(.cancelled)),
    ]
    let events: [(name: String, event: SyncNews.Event)] = [
      ("asked", .asked(WaitCell())), ("responded", .responded(SyncResponse())),
      ("ended", .ended(Status(.aborted))), ("ended without", .ended(nil)), ("dropped", .dropped),
      ("givenUp", .givenUp),
    ]
    let table = states.flatMap { state in
      ["\(Self.words(state)):"]
        + Self.rows(events) { event in
          var next = state
          switch next.apply(event) {
          case nil: return "x"
          case .nothing: return Self.cell("nothing", Self.words(next), from: Self.words(state))
          case .wake(let woken):
            #expect(woken === cell)
            return Self.cell("wake", Self.words(next), from: Self.words(state))
          }
        }
    }
    Self.compare(table, SyncTables.news)
    for state in states {
      let name = state.name.description
      #expect(state.isAwaited == (name == "awaited") && state.isOver == (name == "over"))
      #expect((state.response === response) == (name == "response"))
    }
    #expect(SyncNews.over(Self.status).endStatus === Self.status)
    #expect(SyncNews.none.endStatus == nil && SyncNews.awaited(cell).response == nil)
  }

  // MARK: The offer

  @Test func theOffer() {
    let links = SyncOffer.Links(next: nil, previous: nil)
    let states: [SyncOffer] = [.early, .ready, .queued(links), .closed]
    let events: [(name: String, event: SyncOffer.Event)] = [
      ("offered", .offered), ("queued", .queued(links)), ("begun", .begun), ("withdrawn", .withdrawn),
    ]
    let table = states.flatMap { state in
      ["\(state.name):"]
        + Self.rows(events) { event in
          var next = state
          return next.apply(event).map { done in
            let action: String
            switch done {
            case .nothing: action = "nothing"
            case .forget: action = "forget"
            case .unlink: action = "unlink"
            }
            return Self.cell(action, "\(next.name)", from: "\(state.name)")
          } ?? "x"
        }
    }
    Self.compare(table, SyncTables.offer)
    #expect(states.map { $0.isOpen } == [false, true, true, false])
    #expect(states.map { $0.isReady } == [false, true, false, false])
  }
}

extension CallKind {
  fileprivate func words(_ told: (CallKind) -> String) -> String { told(self) }
}
