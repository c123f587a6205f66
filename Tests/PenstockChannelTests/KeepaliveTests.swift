import Testing

@testable import PenstockChannel

/// Every cell of the table in Keepalive.swift, with an interval of 100, a timeout of 30, and a clock that the
/// test sets.
@Suite struct KeepaliveTests {
  typealias Row = (
    state: Keepalive.State, event: KeepaliveEvent, now: UInt64, after: Keepalive.State,
    actions: Actions<KeepaliveAction>
  )

  static func seen(_ heard: UInt64, calls: Bool = true, answered: Bool = true) -> KeepaliveView {
    KeepaliveView(heard: heard, hasCalls: calls, isAnswered: answered)
  }

  /// A keepalive that events have brought into `state`.
  static func make(_ state: Keepalive.State, withoutCalls: Bool = false, timeout: UInt64 = 30) -> Keepalive {
    var made = Keepalive(interval: 100, timeout: timeout, withoutCalls: withoutCalls)
    switch state {
    case .asleep: break
    case .listening: _ = made.handle(.opened(seen(1000)), now: 1000)
    case .pinged(let at): _ = made.handle(.opened(seen(at - 100)), now: at)
    case .over: _ = made.handle(.ended, now: 0)
    }
    return made
  }

  let states: [Keepalive.State] = [.asleep, .listening, .pinged(at: 1000), .over]
  let events: [KeepaliveEvent] = [
    .opened(seen(950)), .opened(seen(900)), .opened(seen(900, calls: false)),
    .opened(seen(900, answered: false)),
    .time(seen(950)), .time(seen(900)), .time(seen(900, calls: false)), .time(seen(900, answered: false)),
    .time(seen(1000)), .time(seen(1000, calls: false)), .tooMany, .ended,
  ]
  /// The cells of the table, at time 1000, that change the state or have actions. In all other cells nothing
  /// happens.
  let rows: [Row] = [
    (.asleep, .opened(seen(950)), 1000, .listening, Actions(.arm(1050))),
    (.asleep, .opened(seen(900)), 1000, .pinged(at: 1000), Actions(.ping, .arm(1030))),
    (.asleep, .opened(seen(900, answered: false)), 1000, .pinged(at: 1000), Actions(.arm(1030))),
    (.asleep, .tooMany, 1000, .asleep, Actions(.slow(to: 200))),
    (.asleep, .ended, 1000, .over, .none),
    (.listening, .time(seen(950)), 1000, .listening, Actions(.arm(1050))),
    (.listening, .time(seen(900)), 1000, .pinged(at: 1000), Actions(.ping, .arm(1030))),
    (.listening, .time(seen(900, calls: false)), 1000, .asleep, .none),
    (.listening, .time(seen(900, answered: false)), 1000, .pinged(at: 1000), Actions(.arm(1030))),
    (.listening, .time(seen(1000)), 1000, .listening, Actions(.arm(1100))),
    (.listening, .time(seen(1000, calls: false)), 1000, .asleep, .none),
    (.listening, .tooMany, 1000, .listening, Actions(.slow(to: 200))),
    (.listening, .ended, 1000, .over, Actions(.disarm)),
    (.pinged(at: 1000), .time(seen(950)), 1000, .pinged(at: 1000), Actions(.arm(1030))),
    (.pinged(at: 1000), .time(seen(900)), 1000, .pinged(at: 1000), Actions(.arm(1030))),
    (.pinged(at: 1000), .time(seen(900, calls: false)), 1000, .pinged(at: 1000), Actions(.arm(1030))),
    (.pinged(at: 1000), .time(seen(900, answered: false)), 1000, .pinged(at: 1000), Actions(.arm(1030))),
    (.pinged(at: 1000), .time(seen(1000)), 1000, .listening, Actions(.arm(1100))),
    (.pinged(at: 1000), .time(seen(1000, calls: false)), 1000, .asleep, .none),
    (.pinged(at: 1000), .tooMany, 1000, .pinged(at: 1000), Actions(.slow(to: 200))),
    (.pinged(at: 1000), .ended, 1000, .over, Actions(.disarm)),
  ]

  @Test func everyCell() {
    for before in states {
      for event in events {
        let row = rows.first { $0.state == before && $0.event == event }
        var keepalive = Self.make(before)
        #expect(keepalive.state == before)
        let actions = keepalive.handle(event, now: 1000)
        #expect(keepalive.state == row?.after ?? before, "\(before), \(event)")
        #expect(actions == row?.actions ?? .none, "\(before), \(event)")
      }
    }
  }

  /// With `withoutCalls` a connection without calls is pinged in the same way as one with calls.
  @Test func withoutCalls() {
    for before in states {
      for event in events {
        var busy: KeepaliveEvent
        switch event {
        case .opened(var view):
          view.hasCalls = true
          busy = .opened(view)
        case .time(var view):
          view.hasCalls = true
          busy = .time(view)
        case .tooMany, .ended: busy = event
        }
        var one = Self.make(before, withoutCalls: true)
        var other = Self.make(before)
        #expect(one.handle(event, now: 1000) == other.handle(busy, now: 1000), "\(before), \(event)")
        #expect(one.state == other.state)
      }
    }
  }

  @Test(arguments: [(1029, false), (1030, true), (2000, true)] as [(UInt64, Bool)])
  func theTimeoutPasses(_ now: UInt64, _ dies: Bool) {
    for calls in [true, false] {
      var keepalive = Self.make(.pinged(at: 1000))
      // The last bytes came before the PING, so they are no answer to it.
      let actions = keepalive.handle(.time(Self.seen(999, calls: calls)), now: now)
      #expect(actions == (dies ? Actions(.die) : Actions(.arm(1030))))
      #expect(keepalive.state == (dies ? .over : .pinged(at: 1000)))
    }
  }

  /// Any received byte shows that the connection lives, as the answer to the PING does, because the answer
  /// may come after other bytes.
  @Test func anyByteCounts() {
    var keepalive = Self.make(.pinged(at: 1000))
    #expect(keepalive.handle(.time(Self.seen(1010, answered: false)), now: 1030) == Actions(.arm(1110)))
    #expect(keepalive.handle(.time(Self.seen(1010, answered: false)), now: 1110) == Actions(.arm(1140)))
    #expect(keepalive.handle(.time(Self.seen(1010, answered: false)), now: 1140) == Actions(.die))
  }

  /// Even if the timeout is longer than the interval, the next PING is due one interval after the answer.
  @Test func anIntervalBelowTheTimeout() {
    var keepalive = Self.make(.pinged(at: 1000), timeout: 300)
    #expect(keepalive.handle(.time(Self.seen(1005)), now: 1100) == Actions(.arm(1105)))
    #expect(keepalive.handle(.time(Self.seen(1005)), now: 1105) == Actions(.ping, .arm(1205)))
    #expect(keepalive.handle(.time(Self.seen(1005)), now: 1205) == Actions(.arm(1405)))
    #expect(keepalive.handle(.time(Self.seen(1005)), now: 1405) == Actions(.die))
  }

  /// gRFC A8: if a call begins on a connection that has long been silent, a PING is sent at once.
  @Test func theFirstCallAfterALongTime() {
    var keepalive = Self.make(.listening)
    #expect(keepalive.handle(.time(Self.seen(1000, calls: false)), now: 1100) == .none)
    #expect(keepalive.handle(.opened(Self.seen(1000)), now: 9000) == Actions(.ping, .arm(9030)))
  }

  @Test func complaintsDouble() {
    var keepalive = Self.make(.listening)
    #expect(keepalive.handle(.tooMany, now: 1000) == Actions(.slow(to: 200)))
    #expect(keepalive.handle(.tooMany, now: 1000) == Actions(.slow(to: 400)))
    #expect(keepalive.handle(.time(Self.seen(1000)), now: 1100) == Actions(.arm(1400)))
    for _ in 0..<70 { _ = keepalive.handle(.tooMany, now: 1000) }
    #expect(keepalive.interval == .max)
    #expect(keepalive.handle(.time(Self.seen(1000)), now: 1400) == Actions(.arm(.max)))
  }

  /// The servers of three connections with the same interval complain of too many pings: the channel's
  /// interval doubles only once.
  @Test func aChannelKeepsTheLongest() {
    var channel = Self.make(.asleep)
    for _ in 0..<3 { channel.slow(to: 200) }
    #expect(channel.interval == 200)
    channel.slow(to: 100)
    #expect(channel.interval == 200)
  }
}
