import PenstockChannel
import Testing

/// Every cell of the table in SubchannelState.swift, with a clock that always shows 100.
@Suite struct SubchannelStateTests {
  typealias Row = (
    state: SubchannelState, event: SubchannelEvent, after: SubchannelState, actions: Actions<SubchannelAction>
  )

  /// The first wait is 50 and the second 100; there is no jitter.
  static let policy: Backoff.Policy = {
    var policy = Backoff.Policy()
    policy.initial = 50
    policy.multiplier = 2
    policy.jitter = 0
    return policy
  }()

  /// A back-off with which `count` attempts were begun.
  static func tried(_ count: Int) -> Backoff {
    var backoff = Backoff()
    for _ in 0..<count { _ = backoff.begin(policy, now: 0, random: 0) }
    return backoff
  }

  static let connecting = SubchannelState.connecting(tried(1), until: 200, retry: 150)
  static let failed = SubchannelState.failed(tried(1), retry: 150)
  static let first = SubchannelState.ready(tried(1), retry: 150, oldAt: .max)
  /// There is a connection; the connection before it was useless (it ended early, without answering a call).
  static let ready = SubchannelState.ready(tried(2), retry: 150, oldAt: .max)
  /// There is a connection that has lasted: the time has passed at which the next attempt would have begun if
  /// this one had failed.
  static let settled = SubchannelState.ready(tried(1), retry: 100, oldAt: 500)
  /// `growing`: the first attempt to make a further connection goes on. `struggling`: such an attempt goes
  /// on, and the connection before it was useless (it ended early, without answering a call).
  static let growing = SubchannelState.growing(tried(1), until: 200, retry: 150, oldAt: .max, pauses: false)
  static let struggling = SubchannelState.growing(tried(2), until: 200, retry: 90, oldAt: 500, pauses: false)
  /// An attempt to make a further connection goes on, and a connection was useless meanwhile (it ended early,
  /// without answering a call).
  static let doubting = SubchannelState.growing(tried(1), until: 200, retry: 150, oldAt: .max, pauses: true)
  /// `pausing`: an attempt to make a further connection has failed, and the next one has to wait. `due`: the
  /// wait is over at 100, which is now. `paused`: the wait was over earlier.
  static let pausing = SubchannelState.pausing(tried(1), retry: 150, oldAt: .max)
  static let due = SubchannelState.pausing(tried(2), retry: 100, oldAt: 500)
  static let paused = SubchannelState.ready(tried(2), retry: nil, oldAt: 500)
  static let full = SubchannelEvent.full(until: nil, random: 7)
  static let grow = SubchannelEvent.full(until: 300, random: 7)
  static let wanted = SubchannelEvent.wanted(until: 300, random: 7)

  let states: [SubchannelState] = [
    .new, .idle(tried(1)), connecting, first, ready, settled, growing, struggling, doubting, pausing, due,
    paused, failed,
    .closed,
  ]
  let events: [SubchannelEvent] = [
    wanted, .connected(oldAt: .max), .failed, full, grow, .room, .lessened(answered: false),
    .lessened(answered: true), .lost(answered: false), .lost(answered: true), .time, .reset, .unwanted,
    .removed, .close,
  ]
  /// The cells of the table that change the state or have actions. In all other cells nothing happens.
  let rows: [Row] = [
    (.new, wanted, .connecting(tried(1), until: 300, retry: 150), Actions(.connect(until: 300))),
    (.new, .close, .closed, Actions(.closeAll)),
    (.idle(tried(1)), wanted, .connecting(tried(2), until: 300, retry: 200), Actions(.connect(until: 300))),
    (.idle(tried(1)), .reset, .new, .none),
    (.idle(tried(1)), .close, .closed, Actions(.closeAll)),
    (connecting, .connected(oldAt: .max), first, Actions(.disarm, .tell(.ready))),
    (connecting, .failed, failed, Actions(.fail(until: 150))),
    (connecting, .time, connecting, Actions(.arm(200))),
    (connecting, .reset, .connecting(Backoff(), until: 200, retry: 100), .none),
    (connecting, .unwanted, .new, Actions(.drop)),
    (connecting, .removed, .new, Actions(.drop)),
    (connecting, .close, .closed, Actions(.closeAll)),
    (first, full, first, Actions(.ask)),
    (
      first, grow, .growing(tried(1), until: 300, retry: 150, oldAt: .max, pauses: false),
      Actions(.ask, .connect(until: 300))
    ),
    (first, .room, first, Actions(.tell(.room))),
    (first, .lessened(answered: false), .ready(tried(1), retry: nil, oldAt: .max), Actions(.tell(.room))),
    (first, .lessened(answered: true), first, Actions(.tell(.room))),
    (first, .lost(answered: false), .idle(tried(1)), Actions(.retire, .tell(.goneUnused))),
    (first, .lost(answered: true), .idle(.afterUse), Actions(.retire, .tell(.gone))),
    (first, .reset, .ready(Backoff(), retry: 100, oldAt: .max), .none),
    (first, .unwanted, .new, Actions(.disarm, .retire)),
    (first, .removed, .new, Actions(.disarm, .retire)),
    (first, .close, .closed, Actions(.closeAll)),
    (ready, full, ready, Actions(.ask)),
    (
      ready, grow, .growing(tried(2), until: 300, retry: 200, oldAt: .max, pauses: false),
      Actions(.ask, .connect(until: 300))
    ),
    (ready, .room, ready, Actions(.tell(.room))),
    (
      ready, .lessened(answered: false), .pausing(tried(2), retry: 150, oldAt: .max), Actions(.arm(150))
    ),
    (ready, .lessened(answered: true), ready, Actions(.tell(.room))),
    (ready, .lost(answered: false), .failed(tried(2), retry: 150), Actions(.retire, .fail(until: 150))),
    (ready, .lost(answered: true), .idle(.afterUse), Actions(.retire, .tell(.gone))),
    (ready, .reset, .ready(Backoff(), retry: 100, oldAt: .max), .none),
    (ready, .unwanted, .new, Actions(.disarm, .retire)),
    (ready, .removed, .new, Actions(.disarm, .retire)),
    (ready, .close, .closed, Actions(.closeAll)),
    (settled, full, settled, Actions(.ask)),
    (
      settled, grow, .growing(tried(1), until: 300, retry: 150, oldAt: 500, pauses: false),
      Actions(.ask, .connect(until: 300))
    ),
    (settled, .room, settled, Actions(.tell(.room))),
    (settled, .lessened(answered: false), settled, Actions(.tell(.room))),
    (settled, .lessened(answered: true), settled, Actions(.tell(.room))),
    (settled, .lost(answered: false), .new, Actions(.retire, .tell(.goneUnused))),
    (settled, .lost(answered: true), .idle(.afterUse), Actions(.retire, .tell(.gone))),
    (settled, .time, settled, Actions(.arm(500))),
    (settled, .reset, .ready(Backoff(), retry: 100, oldAt: 500), .none),
    (settled, .unwanted, .new, Actions(.disarm, .retire)),
    (settled, .removed, .new, Actions(.disarm, .retire)),
    (settled, .close, .closed, Actions(.closeAll)),
    (growing, .lessened(answered: false), doubting, .none),
    (growing, .connected(oldAt: .max), first, Actions(.disarm, .tell(.room))),
    (growing, .failed, pausing, Actions(.arm(150))),
    (growing, full, growing, Actions(.ask)),
    (growing, grow, growing, Actions(.ask)),
    (growing, .room, growing, Actions(.tell(.room))),
    (growing, .lost(answered: false), connecting, Actions(.retire, .tell(.gone))),
    (growing, .lost(answered: true), connecting, Actions(.retire, .tell(.gone))),
    (growing, .time, growing, Actions(.arm(200))),
    (growing, .reset, .growing(Backoff(), until: 200, retry: 100, oldAt: .max, pauses: false), .none),
    (growing, .unwanted, .new, Actions(.drop, .retire)),
    (growing, .removed, .new, Actions(.drop, .retire)),
    (growing, .close, .closed, Actions(.closeAll)),
    (doubting, .connected(oldAt: .max), pausing, Actions(.arm(150), .tell(.room))),
    (doubting, .failed, pausing, Actions(.arm(150))),
    (doubting, full, doubting, Actions(.ask)),
    (doubting, grow, doubting, Actions(.ask)),
    (doubting, .room, doubting, Actions(.tell(.room))),
    (doubting, .lost(answered: false), connecting, Actions(.retire, .tell(.gone))),
    (doubting, .lost(answered: true), connecting, Actions(.retire, .tell(.gone))),
    (doubting, .time, doubting, Actions(.arm(200))),
    (doubting, .reset, .growing(Backoff(), until: 200, retry: 100, oldAt: .max, pauses: false), .none),
    (doubting, .unwanted, .new, Actions(.drop, .retire)),
    (doubting, .removed, .new, Actions(.drop, .retire)),
    (doubting, .close, .closed, Actions(.closeAll)),
    (
      struggling, .connected(oldAt: .max), .ready(tried(2), retry: 90, oldAt: 500),
      Actions(.arm(500), .tell(.room))
    ),
    (struggling, .failed, due, Actions(.arm(100))),
    (struggling, full, struggling, Actions(.ask)),
    (struggling, grow, struggling, Actions(.ask)),
    (struggling, .room, struggling, Actions(.tell(.room))),
    (
      struggling, .lost(answered: false), .connecting(tried(2), until: 200, retry: 90),
      Actions(.retire, .tell(.gone))
    ),
    (
      struggling, .lost(answered: true), .connecting(tried(2), until: 200, retry: 90),
      Actions(.retire, .tell(.gone))
    ),
    (struggling, .time, struggling, Actions(.arm(200))),
    (struggling, .reset, .growing(Backoff(), until: 200, retry: 100, oldAt: 500, pauses: false), .none),
    (struggling, .unwanted, .new, Actions(.drop, .retire)),
    (struggling, .removed, .new, Actions(.drop, .retire)),
    (struggling, .close, .closed, Actions(.closeAll)),
    (pausing, full, pausing, Actions(.ask)),
    (pausing, grow, pausing, Actions(.ask)),
    (pausing, .room, pausing, Actions(.tell(.room))),
    (pausing, .lost(answered: false), failed, Actions(.retire, .fail(until: 150))),
    (pausing, .lost(answered: true), failed, Actions(.retire, .fail(until: 150))),
    (pausing, .time, pausing, Actions(.arm(150))),
    (pausing, .reset, .ready(Backoff(), retry: 100, oldAt: .max), Actions(.disarm, .tell(.room))),
    (pausing, .unwanted, .new, Actions(.disarm, .retire)),
    (pausing, .removed, .new, Actions(.disarm, .retire)),
    (pausing, .close, .closed, Actions(.closeAll)),
    (due, full, due, Actions(.ask)),
    (due, grow, due, Actions(.ask)),
    (due, .room, due, Actions(.tell(.room))),
    (
      due, .lost(answered: false), .failed(tried(2), retry: 100), Actions(.retire, .fail(until: 100))
    ),
    (due, .lost(answered: true), .failed(tried(2), retry: 100), Actions(.retire, .fail(until: 100))),
    (due, .time, paused, Actions(.arm(500), .tell(.room))),
    (due, .reset, .ready(Backoff(), retry: 100, oldAt: 500), Actions(.arm(500), .tell(.room))),
    (due, .unwanted, .new, Actions(.disarm, .retire)),
    (due, .removed, .new, Actions(.disarm, .retire)),
    (due, .close, .closed, Actions(.closeAll)),
    (paused, full, paused, Actions(.ask)),
    // The back-off goes on.
    (
      paused, grow, .growing(tried(3), until: 300, retry: 300, oldAt: 500, pauses: false),
      Actions(.ask, .connect(until: 300))
    ),
    (paused, .room, paused, Actions(.tell(.room))),
    (paused, .lessened(answered: false), paused, Actions(.tell(.room))),
    (paused, .lessened(answered: true), paused, Actions(.tell(.room))),
    (paused, .lost(answered: false), .idle(tried(2)), Actions(.retire, .tell(.goneUnused))),
    (paused, .lost(answered: true), .idle(.afterUse), Actions(.retire, .tell(.gone))),
    (paused, .time, paused, Actions(.arm(500))),
    (paused, .reset, .ready(Backoff(), retry: 100, oldAt: 500), .none),
    (paused, .unwanted, .new, Actions(.disarm, .retire)),
    (paused, .removed, .new, Actions(.disarm, .retire)),
    (paused, .close, .closed, Actions(.closeAll)),
    (failed, .time, failed, Actions(.arm(150))),
    (failed, .reset, .new, Actions(.disarm, .tell(.rested))),
    (failed, .removed, .new, Actions(.disarm)),
    (failed, .close, .closed, Actions(.closeAll)),
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

  @Test(arguments: [200, 201, UInt64.max])
  func itsTimeIsOver(_ now: UInt64) {
    var state = Self.connecting
    #expect(state.handle(.time, Self.policy, now: now) == Actions(.giveUp))
    // The attempt is given up, so its connection ends. The wait for the next attempt is over already.
    #expect(state == Self.connecting)
    #expect(state.handle(.failed, Self.policy, now: now) == Actions(.fail(until: now)))
  }

  @Test(arguments: [500, 501, UInt64.max])
  func itIsReplacedWhenItIsOld(_ now: UInt64) {
    var state = Self.connecting
    #expect(
      state.handle(.connected(oldAt: 500), Self.policy, now: 100) == Actions(.arm(500), .tell(.ready)))
    #expect(state.handle(.time, Self.policy, now: now) == Actions(.retire, .tell(.gone)))
    #expect(state == .new)
  }

  @Test func itRestsUntilTheNextAttempt() {
    var state = Self.failed
    #expect(state.handle(.time, Self.policy, now: 150) == Actions(.tell(.rested)))
    #expect(state == .idle(Self.tried(1)))
  }

  @Test func itSaysWhatItIs() {
    #expect(
      states.map { $0.connectivity } == [
        .idle, .idle, .connecting, .ready, .ready, .ready, .ready, .ready, .ready, .ready, .ready, .ready,
        .transientFailure, .shutdown,
      ])
    #expect(states.filter { $0.isGrowing } == [Self.growing, Self.struggling, Self.doubting])
    #expect(Self.failed.failures.map { [UInt64($0.count), $0.retry] } == [1, 150])
    #expect(Self.ready.failures == nil)
  }

  @Test func actionsComeInOrder() {
    var actions = Actions(1, 2)
    var seen: [Int] = []
    while let action = actions.next() { seen.append(action) }
    #expect(seen == [1, 2])
    #expect(actions == .none)
  }
}
