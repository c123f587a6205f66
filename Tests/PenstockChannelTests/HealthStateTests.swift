import PenstockChannel
import Testing

/// Every cell of the table in HealthState.swift, with a clock that always shows 100.
@Suite struct HealthStateTests {
  typealias Row = (
    state: HealthState, event: HealthEvent, after: HealthState, actions: Actions<HealthAction>
  )

  static let policy = SubchannelStateTests.policy
  static func tried(_ count: Int) -> Backoff { SubchannelStateTests.tried(count) }

  /// `asking`: the server has not reported yet on the first stream. `again`: it has not reported on the
  /// second stream either.
  static let asking = HealthState.asking(tried(1), retry: 150)
  static let again = HealthState.asking(tried(2), retry: 200)
  /// The server has reported that it is serving: `serving` on the first stream, `young` on a second stream
  /// that has just begun, and `settled` on a stream that has lasted. The three states after these are the
  /// same for a server that is not serving.
  static let serving = HealthState.heard(serves: true, tried(1), retry: 150)
  static let young = HealthState.heard(serves: true, tried(2), retry: 150)
  static let settled = HealthState.heard(serves: true, tried(3), retry: 100)
  static let refusing = HealthState.heard(serves: false, tried(1), retry: 150)
  static let fickle = HealthState.heard(serves: false, tried(2), retry: 150)
  static let steady = HealthState.heard(serves: false, tried(3), retry: 100)
  static let waiting = HealthState.waiting(tried(1), retry: 150)
  static let rested = HealthState.waiting(tried(1), retry: 100)

  let states: [HealthState] = [
    .off, asking, again, serving, young, settled, refusing, fickle, steady, waiting, rested, .unneeded,
  ]
  let events: [HealthEvent] = [
    .connected(random: 7), .heard(serves: true), .heard(serves: false), .unimplemented, .ended(random: 7),
    .time(random: 7),
    .reset(random: 7), .stop,
  ]
  /// The cells of the table that change the state or have actions. In all other cells nothing happens.
  let rows: [Row] = [
    (.off, .connected(random: 7), asking, Actions(.watch)),
    (asking, .heard(serves: true), serving, Actions(.tell(.ready))),
    (asking, .heard(serves: false), refusing, Actions(.tell(.failed))),
    (asking, .unimplemented, .unneeded, Actions(.tell(.ready))),
    (asking, .ended(random: 7), waiting, Actions(.arm(150), .tell(.failed))),
    (asking, .stop, .off, Actions(.cancel)),
    (again, .heard(serves: true), .heard(serves: true, tried(2), retry: 200), Actions(.tell(.ready))),
    (again, .heard(serves: false), .heard(serves: false, tried(2), retry: 200), Actions(.tell(.failed))),
    (again, .unimplemented, .unneeded, Actions(.tell(.ready))),
    (again, .ended(random: 7), .waiting(tried(2), retry: 200), Actions(.arm(200), .tell(.failed))),
    (again, .stop, .off, Actions(.cancel)),
    (serving, .heard(serves: false), refusing, Actions(.tell(.failed))),
    (serving, .unimplemented, .unneeded, .none),
    (serving, .ended(random: 7), again, Actions(.watch, .tell(.gone))),
    (serving, .stop, .off, Actions(.cancel)),
    (young, .heard(serves: false), fickle, Actions(.tell(.failed))),
    (young, .unimplemented, .unneeded, .none),
    (young, .ended(random: 7), .waiting(tried(2), retry: 150), Actions(.arm(150), .tell(.failed))),
    (young, .stop, .off, Actions(.cancel)),
    (settled, .heard(serves: false), steady, Actions(.tell(.failed))),
    (settled, .unimplemented, .unneeded, .none),
    (settled, .ended(random: 7), asking, Actions(.watch, .tell(.gone))),
    (settled, .stop, .off, Actions(.cancel)),
    (refusing, .heard(serves: true), serving, Actions(.tell(.ready))),
    (refusing, .unimplemented, .unneeded, Actions(.tell(.ready))),
    (refusing, .ended(random: 7), again, Actions(.watch)),
    (refusing, .stop, .off, Actions(.cancel)),
    (fickle, .heard(serves: true), young, Actions(.tell(.ready))),
    (fickle, .unimplemented, .unneeded, Actions(.tell(.ready))),
    (fickle, .ended(random: 7), .waiting(tried(2), retry: 150), Actions(.arm(150))),
    (fickle, .stop, .off, Actions(.cancel)),
    (steady, .heard(serves: true), settled, Actions(.tell(.ready))),
    (steady, .unimplemented, .unneeded, Actions(.tell(.ready))),
    (steady, .ended(random: 7), asking, Actions(.watch)),
    (steady, .stop, .off, Actions(.cancel)),
    (waiting, .time(random: 7), waiting, Actions(.arm(150))),
    (waiting, .reset(random: 7), asking, Actions(.watch)),
    (waiting, .stop, .off, Actions(.cancel)),
    (rested, .time(random: 7), again, Actions(.watch)),
    (rested, .reset(random: 7), asking, Actions(.watch)),
    (rested, .stop, .off, Actions(.cancel)),
    (.unneeded, .stop, .off, Actions(.cancel)),
  ]

  @Test func everyCell() {
    for before in states {
      for event in events {
        let row = rows.first { $0.state == before && $0.event == event }
        var state = before
        let actions = state.handle(event, Self.policy, now: 100)
        #expect(state == row?.after ?? before, "\(before), \(event)")
        #expect(actions == row?.actions ?? .none, "\(before), \(event)")
      }
    }
  }

  /// A stream ends without a report when the wait for the next one is over already. The next stream begins at
  /// once, through the timer.
  @Test func aLateEndIsNoFurtherWait() {
    var state = Self.asking
    let ended = state.handle(.ended(random: 7), Self.policy, now: 170)
    #expect(ended == Actions(.arm(170), .tell(.failed)))
    #expect(state == .waiting(Self.tried(1), retry: 170))
  }

  @Test func itSaysWhatItIs() {
    #expect(
      states.map { $0.connectivity } == [
        .connecting, .connecting, .connecting, .ready, .ready, .ready, .transientFailure, .transientFailure,
        .transientFailure, .transientFailure, .transientFailure, .ready,
      ])
  }
}
