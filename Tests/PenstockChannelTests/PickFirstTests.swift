import Testing

@testable import PenstockChannel

/// Every cell of the table in PickFirst.swift, through the enum that a channel has, with a false clock.
@Suite struct PickFirstTests {
  static let timeout: UInt64 = 90

  /// Events that lead to each state, at time 0.
  let ways: [(name: String, events: [BalancerEvent])] = [
    ("idle", []),
    ("naming", [.wanted]),
    ("connecting", [.wanted, .named(3)]),
    ("ready", [.wanted, .named(3), .endpoint(0, .failed), .endpoint(1, .ready)]),
    ("closed", [.close]),
  ]
  let events: [BalancerEvent] = [
    .wanted, .named(2), .named(0), .nameless, .endpoint(1, .ready), .endpoint(1, .failed),
    .endpoint(1, .left),
    .endpoint(0, .left), .endpoint(1, .room), .endpoint(0, .room), .close,
  ]

  static func balancer(_ events: [BalancerEvent]) -> Balancer {
    var balancer = Balancer.pickFirst(PickFirst(timeout: timeout))
    for event in events { _ = balancer.handle(event, now: 0) }
    return balancer
  }

  static func name(_ balancer: Balancer) -> String {
    switch balancer {
    case .pickFirst(let first):
      switch first.state {
      case .idle: return "idle"
      case .naming: return "naming"
      case .connecting: return "connecting"
      case .ready(let endpoint): return "ready(\(endpoint))"
      case .closed: return "closed"
      }
    }
  }

  static func tried(_ count: Int, _ failures: Int, now: UInt64) -> ConnectPlan {
    var plan = ConnectPlan(now: 0, timeout: timeout)
    _ = plan.resolved(count, now: 0)
    for _ in 0..<failures { _ = plan.failed(now: now) }
    return plan
  }

  /// The event at time 30, the state after it, and the actions. Events that are not listed change nothing.
  var cells: [(String, BalancerEvent, String, Actions<BalancerAction>)] {
    [
      ("idle", .wanted, "naming", Actions(.resolve(until: 120))),
      ("idle", .close, "closed", .none),
      ("naming", .named(2), "connecting", Actions(.connect(0, until: 60))),
      ("naming", .named(0), "idle", Actions(.fail(.unconnected(Self.tried(0, 0, now: 30))))),
      ("naming", .nameless, "idle", Actions(.fail(.nameless))),
      ("naming", .close, "closed", .none),
      ("connecting", .endpoint(1, .ready), "ready(1)", Actions(.serve)),
      ("connecting", .endpoint(1, .failed), "connecting", Actions(.connect(1, until: 60))),
      ("connecting", .close, "closed", .none),
      ("ready", .endpoint(1, .left), "idle", .none),
      ("ready", .endpoint(1, .room), "ready(1)", Actions(.serve)),
      ("ready", .close, "closed", .none),
      ("closed", .wanted, "closed", Actions(.fail(.closed))),
    ]
  }

  @Test func everyCell() {
    for way in ways {
      for event in events {
        let before = Self.balancer(way.events)
        let cell = cells.first { $0.0 == way.name && $0.1 == event }
        var balancer = before
        let actions = balancer.handle(event, now: 30)
        #expect(Self.name(balancer) == cell?.2 ?? Self.name(before), "\(way.name), \(event)")
        #expect(actions == cell?.3 ?? .none, "\(way.name), \(event)")
        if cell == nil { #expect(balancer == before, "\(way.name), \(event)") }
      }
    }
  }

  @Test func picks() {
    let picks = ways.map { Self.balancer($0.events).pick }
    #expect(picks == [.wait, .wait, .wait, .endpoint(1), .fail])
    #expect(ways.map { Self.balancer($0.events).isIdle } == [true, false, false, false, false])
  }

  @Test func allAddressesFail() {
    var balancer = Self.balancer([.wanted, .named(2)])
    #expect(balancer.handle(.endpoint(0, .failed), now: 10) == Actions(.connect(1, until: 90)))
    let actions = balancer.handle(.endpoint(1, .failed), now: 20)
    #expect(actions == Actions(.fail(.unconnected(Self.tried(2, 2, now: 20)))))
    #expect(Self.name(balancer) == "idle")
  }

  @Test func namesTakeOfTheTimeToConnect() {
    var balancer = Self.balancer([.wanted])
    #expect(balancer.handle(.named(2), now: 70) == Actions(.connect(0, until: 80)))
    #expect(
      balancer.handle(.endpoint(0, .failed), now: 90)
        == Actions(.fail(.unconnected(Self.tried(2, 1, now: 90)))))
  }

  @Test func itBeginsAgainWithNewNames() {
    var balancer = Self.balancer([.wanted, .named(1), .endpoint(0, .ready), .endpoint(0, .left)])
    #expect(balancer.pick == .wait)
    #expect(balancer.handle(.wanted, now: 1000) == Actions(.resolve(until: 1090)))
    #expect(balancer.handle(.named(1), now: 1000) == Actions(.connect(0, until: 1090)))
  }
}
