import Testing

@testable import PenstockChannel

/// Every cell of the table in SubchannelState.swift, with a clock that stands at 100.
@Suite struct SubchannelStateTests {
  typealias Row = (
    state: SubchannelState, event: SubchannelEvent, after: SubchannelState, actions: Actions<SubchannelAction>
  )

  let states: [SubchannelState] = [.idle, .connecting(until: 200), .ready, .closed]
  let events: [SubchannelEvent] = [
    .wanted(until: 300), .connected, .full, .room, .draining, .ended, .time, .close,
  ]
  /// The cells with a change or an action.
  let rows: [Row] = [
    (.idle, .wanted(until: 300), .connecting(until: 300), Actions(.connect(until: 300))),
    (.idle, .close, .closed, Actions(.closeAll)),
    (.connecting(until: 200), .connected, .ready, Actions(.disarm, .tell(.ready))),
    (.connecting(until: 200), .ended, .idle, Actions(.disarm, .tell(.failed))),
    (.connecting(until: 200), .time, .connecting(until: 200), Actions(.arm(200))),
    (.connecting(until: 200), .close, .closed, Actions(.closeAll)),
    (.ready, .full, .ready, Actions(.ask)),
    (.ready, .room, .ready, Actions(.tell(.room))),
    (.ready, .draining, .idle, Actions(.retire, .tell(.left))),
    (.ready, .ended, .idle, Actions(.tell(.left))),
    (.ready, .close, .closed, Actions(.closeAll)),
  ]

  @Test func everyCell() {
    for before in states {
      for event in events {
        let row = rows.first { $0.state == before && $0.event == event }
        var state = before
        let actions = state.handle(event, now: 100)
        #expect(state == row?.after ?? before, "\(before), \(event)")
        #expect(actions == row?.actions ?? .none, "\(before), \(event)")
      }
    }
  }

  @Test(arguments: [200, 201, UInt64.max])
  func itsTimeIsOver(_ now: UInt64) {
    var state = SubchannelState.connecting(until: 200)
    #expect(state.handle(.time, now: now) == Actions(.giveUp))
    // The connection that is given up ends.
    #expect(state == .connecting(until: 200))
    #expect(state.handle(.ended, now: now) == Actions(.disarm, .tell(.failed)))
  }

  @Test func actionsComeInOrder() {
    var actions = Actions(1, 2)
    var seen: [Int] = []
    while let action = actions.next() { seen.append(action) }
    #expect(seen == [1, 2])
    #expect(actions == .none)
  }
}
