import PenstockChannel
import Testing

/// Every cell of the table in SubchannelState.swift, with a clock that stands at 100.
@Suite struct SubchannelStateTests {
  typealias Row = (
    state: SubchannelState, event: SubchannelEvent, after: SubchannelState, actions: Actions<SubchannelAction>
  )

  /// Waits of 50, then 100, without jitter.
  static let policy: Backoff.Policy = {
    var policy = Backoff.Policy()
    policy.initial = 50
    policy.multiplier = 2
    policy.jitter = 0
    return policy
  }()

  /// A back-off after so many attempts.
  static func tried(_ count: Int) -> Backoff {
    var backoff = Backoff()
    for _ in 0..<count { _ = backoff.begin(policy, now: 0, random: 0) }
    return backoff
  }

  static let connecting = SubchannelState.connecting(tried(1), until: 200, retry: 150)
  static let failed = SubchannelState.failed(tried(1), retry: 150)
  static let first = SubchannelState.ready(tried(1), retry: 150, oldAt: .max)
  /// The connection before it was useless.
  static let ready = SubchannelState.ready(tried(2), retry: 150, oldAt: .max)
  /// As `ready`, but the time of the next attempt has come.
  static let settled = SubchannelState.ready(tried(1), retry: 100, oldAt: 500)
  static let wanted = SubchannelEvent.wanted(until: 300, random: 7)

  let states: [SubchannelState] = [.new, .idle(tried(1)), connecting, first, ready, settled, failed, .closed]
  let events: [SubchannelEvent] = [
    wanted, .connected(oldAt: .max), .full, .room, .draining(answered: false), .draining(answered: true),
    .ended(answered: false), .ended(answered: true), .time, .reset, .unwanted, .removed, .close,
  ]
  /// The cells that change the state or have actions.
  let rows: [Row] = [
    (.new, wanted, .connecting(tried(1), until: 300, retry: 150), Actions(.connect(until: 300))),
    (.new, .close, .closed, Actions(.closeAll)),
    (.idle(tried(1)), wanted, .connecting(tried(2), until: 300, retry: 200), Actions(.connect(until: 300))),
    (.idle(tried(1)), .reset, .new, .none),
    (.idle(tried(1)), .close, .closed, Actions(.closeAll)),
    (connecting, .connected(oldAt: .max), first, Actions(.disarm, .tell(.ready))),
    (connecting, .ended(answered: false), failed, Actions(.fail(until: 150))),
    (connecting, .ended(answered: true), failed, Actions(.fail(until: 150))),
    (connecting, .time, connecting, Actions(.arm(200))),
    (connecting, .reset, .connecting(Backoff(), until: 200, retry: 100), .none),
    (connecting, .unwanted, .new, Actions(.drop)),
    (connecting, .removed, .new, Actions(.drop)),
    (connecting, .close, .closed, Actions(.closeAll)),
    (first, .full, first, Actions(.ask)),
    (first, .room, first, Actions(.tell(.room))),
    (first, .draining(answered: false), .idle(tried(1)), Actions(.retire, .tell(.leftUnused))),
    (first, .draining(answered: true), .new, Actions(.retire, .tell(.left))),
    (first, .ended(answered: false), .idle(tried(1)), Actions(.tell(.leftUnused))),
    (first, .ended(answered: true), .new, Actions(.tell(.left))),
    (first, .reset, .ready(Backoff(), retry: 100, oldAt: .max), .none),
    (first, .unwanted, .new, Actions(.disarm, .retire)),
    (first, .removed, .new, Actions(.disarm, .retire)),
    (first, .close, .closed, Actions(.closeAll)),
    (ready, .full, ready, Actions(.ask)),
    (ready, .room, ready, Actions(.tell(.room))),
    (ready, .draining(answered: false), .failed(tried(2), retry: 150), Actions(.retire, .fail(until: 150))),
    (ready, .draining(answered: true), .new, Actions(.retire, .tell(.left))),
    (ready, .ended(answered: false), .failed(tried(2), retry: 150), Actions(.fail(until: 150))),
    (ready, .ended(answered: true), .new, Actions(.tell(.left))),
    (ready, .reset, .ready(Backoff(), retry: 100, oldAt: .max), .none),
    (ready, .unwanted, .new, Actions(.disarm, .retire)),
    (ready, .removed, .new, Actions(.disarm, .retire)),
    (ready, .close, .closed, Actions(.closeAll)),
    (settled, .full, settled, Actions(.ask)),
    (settled, .room, settled, Actions(.tell(.room))),
    (settled, .draining(answered: false), .new, Actions(.retire, .tell(.leftUnused))),
    (settled, .draining(answered: true), .new, Actions(.retire, .tell(.left))),
    (settled, .ended(answered: false), .new, Actions(.tell(.leftUnused))),
    (settled, .ended(answered: true), .new, Actions(.tell(.left))),
    (settled, .time, settled, Actions(.arm(500))),
    (settled, .reset, .ready(Backoff(), retry: 100, oldAt: 500), .none),
    (settled, .unwanted, .new, Actions(.disarm, .retire)),
    (settled, .removed, .new, Actions(.disarm, .retire)),
    (settled, .close, .closed, Actions(.closeAll)),
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
    // The connection that is given up ends. The wait for the next is over already.
    #expect(state == Self.connecting)
    #expect(state.handle(.ended(answered: false), Self.policy, now: now) == Actions(.fail(until: now)))
  }

  @Test(arguments: [500, 501, UInt64.max])
  func itIsReplacedWhenItIsOld(_ now: UInt64) {
    var state = Self.connecting
    #expect(
      state.handle(.connected(oldAt: 500), Self.policy, now: 100) == Actions(.arm(500), .tell(.ready)))
    #expect(state.handle(.time, Self.policy, now: now) == Actions(.retire, .tell(.left)))
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
        .idle, .idle, .connecting, .ready, .ready, .ready, .transientFailure, .shutdown,
      ])
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
