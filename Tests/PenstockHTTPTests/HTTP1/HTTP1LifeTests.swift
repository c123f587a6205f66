import PenstockTestSupport
import Testing

@testable import PenstockHTTP

/// Tests the table of `HTTP1Life`: each event in each state.
@Suite struct HTTP1LifeTests {
  typealias Row = (HTTP1Life, [(HTTP1Life.Event, HTTP1Life, HTTP1Life.Action)])

  static let events: [HTTP1Life.Event] = [
    .assigned, .headGiven, .requestSent, .answered(keeps: true), .answered(keeps: false), .left, .over,
  ]

  /// The events that change a state. All other events must change nothing.
  static let table: [Row] = [
    (.idle, [(.assigned, .opening, .nothing), (.over, .closed, .nothing)]),
    (.opening, [(.headGiven, .sending, .nothing), (.left, .idle, .keep), (.over, .closed, .nothing)]),
    (
      .sending,
      [
        (.requestSent, .receiving, .nothing), (.answered(keeps: true), .closed, .close),
        (.answered(keeps: false), .closed, .close), (.left, .closed, .close), (.over, .closed, .nothing),
      ]
    ),
    (
      .receiving,
      [
        (.answered(keeps: true), .idle, .keep), (.answered(keeps: false), .closed, .close),
        (.left, .closed, .close),
        (.over, .closed, .nothing),
      ]
    ),
    (.closed, []),
  ]

  @Test func eachStateWithEachEvent() {
    #expect(Self.table.map { $0.0 } == HTTP1Life.allCases)
    for (state, changes) in Self.table {
      for event in Self.events {
        var life = state
        let action = life.handle(event)
        let change = changes.first { $0.0 == event }
        #expect((life == change?.1 ?? state) == true, "\(state), \(event)")
        #expect((action == change?.2 ?? .nothing) == true, "\(state), \(event)")
      }
    }
  }
}
