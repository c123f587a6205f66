import PenstockChannel
import Testing

/// Every cell of the table in PickFirst.swift, through `Balancer`, with a clock that the test sets.
@Suite struct PickFirstTests {
  static let timeout: UInt64 = 90
  static let three: [Connectivity] = [.idle, .idle, .idle]
  static let second = 30 + ConnectPass.delay

  /// For each state, the events that lead to it from the beginning; all of them come at time 0.
  static let ways: [(name: String, events: [BalancerEvent])] = [
    ("idle", []),
    ("naming", [.wanted]),
    ("connecting", [.wanted, .named(three)]),
    ("ready", [.wanted, .named(three), .endpoint(0, .failed), .endpoint(1, .ready)]),
    ("failing", [.wanted, .named([.idle, .transientFailure]), .endpoint(0, .failed)]),
    ("nameless", [.wanted, .nameless]),
    ("closed", [.close]),
  ]
  static let news: [EndpointNews] = [.ready, .failed, .rested, .gone, .goneUnused, .room]
  static let events: [BalancerEvent] =
    [
      .wanted, .named([.idle, .idle]), .named([.idle]), .named([.transientFailure]), .named([.idle, .ready]),
    ]
    + [.nameless, .time, .rest, .close] + news.map { .endpoint(1, $0) }
    + [.endpoint(0, .gone), .endpoint(0, .goneUnused), .endpoint(0, .room)]

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
      case .failing(_, let failures): return failures == 0 ? "failing" : "failing, \(failures)"
      case .nameless: return "nameless"
      case .closed: return "closed"
      }
    case .roundRobin: return "round robin"
    }
  }

  typealias Cell = (String, BalancerEvent, String, Actions<BalancerAction>)

  /// The cells for new addresses, for each state in which new addresses begin a pass (an attempt at each
  /// address in turn).
  static func pass(from state: String, isFailing: Bool = false) -> [Cell] {
    let name = isFailing ? "failing" : "connecting"
    let none: Actions<BalancerAction> = isFailing ? .none : Actions(.resolve, .fail(.unconnected))
    return [
      (state, .named([.idle, .idle]), name, Actions(.connect(0, until: 120), .arm(second))),
      (state, .named([.idle]), name, Actions(.connect(0, until: 120))),
      (state, .named([.transientFailure]), "failing", none),
    ]
  }

  /// The cells of the table at time 30: a state, an event, the state that follows, and the actions. In a cell
  /// that is not here nothing happens.
  static var cells: [Cell] {
    var all: [Cell] = [
      ("idle", .wanted, "naming", Actions(.resolve)),
      ("naming", .nameless, "nameless", Actions(.fail(.nameless))),
      ("connecting", .endpoint(1, .ready), "ready(1)", Actions(.useOnly(1), .serve)),
      ("connecting", .endpoint(1, .failed), "connecting", Actions(.connect(1, until: 120), .arm(second))),
      ("connecting", .endpoint(1, .rested), "connecting", Actions(.connect(1, until: 120))),
      ("connecting", .time, "connecting", Actions(.connect(1, until: 120), .arm(second))),
      ("ready", .endpoint(1, .gone), "naming", Actions(.resolve)),
      ("ready", .endpoint(1, .failed), "naming", Actions(.resolve)),
      ("ready", .endpoint(1, .goneUnused), "idle", Actions(.useOnly(nil))),
      ("ready", .endpoint(1, .room), "ready(1)", Actions(.serve)),
      ("failing", .endpoint(1, .ready), "ready(1)", Actions(.useOnly(1), .serve)),
      ("failing", .endpoint(1, .failed), "failing, 1", Actions(.fail(.unconnected))),
      ("failing", .endpoint(1, .rested), "failing", Actions(.connect(1, until: 120))),
      ("nameless", .nameless, "nameless", Actions(.fail(.nameless))),
      ("closed", .wanted, "closed", Actions(.fail(.closed))),
    ]
    for state in ["naming", "connecting", "ready", "failing", "nameless"] {
      all += pass(from: state, isFailing: state == "failing")
      all.append((state, .named([.idle, .ready]), "ready(1)", Actions(.useOnly(1), .serve)))
      all.append((state, .rest, "idle", Actions(.useOnly(nil))))
    }
    for way in ways where way.name != "closed" { all.append((way.name, .close, "closed", .none)) }
    return all
  }

  @Test func everyCell() {
    for way in Self.ways {
      for event in Self.events {
        let before = Self.balancer(way.events)
        let cell = Self.cells.first { $0.0 == way.name && $0.1 == event }
        var balancer = before
        let actions = balancer.handle(event, now: 30)
        #expect(Self.name(balancer) == cell?.2 ?? Self.name(before), "\(way.name), \(event)")
        #expect(actions == cell?.3 ?? .none, "\(way.name), \(event)")
        if cell == nil { #expect(balancer == before, "\(way.name), \(event)") }
      }
    }
  }

  @Test func picks() {
    let all = Self.ways.map { Self.balancer($0.events) }
    #expect(all.map { $0.pick } == [.wait, .wait, .wait, .endpoint(1), .fail, .fail, .fail])
    #expect(
      all.map { $0.connectivity }
        == [.idle, .connecting, .connecting, .ready, .transientFailure, .transientFailure, .shutdown])
    #expect(all.suffix(3).map { $0.failure } == [.unconnected, .nameless, .closed])
  }

  /// Attempts to connect begin 250 ms apart and run in parallel, and the first connection that succeeds is
  /// used (RFC 8305 section 5).
  @Test func theFirstConnectionWins() {
    let delay = ConnectPass.delay
    var balancer = Self.balancer([.wanted])
    #expect(
      balancer.handle(.named(Self.three), now: 0) == Actions(.connect(0, until: 90), .arm(delay)))
    #expect(
      balancer.handle(.time, now: delay) == Actions(.connect(1, until: delay + 90), .arm(2 * delay)))
    #expect(balancer.handle(.time, now: 2 * delay) == Actions(.connect(2, until: 2 * delay + 90)))
    #expect(balancer.handle(.time, now: 3 * delay) == .none)
    #expect(balancer.handle(.endpoint(1, .failed), now: 3 * delay) == .none)
    #expect(balancer.handle(.endpoint(0, .ready), now: 4 * delay) == Actions(.useOnly(0), .serve))
  }

  @Test func allAddressesFailAndOneComesBack() {
    var balancer = Self.balancer([.wanted, .named([.idle, .idle])])
    #expect(balancer.handle(.endpoint(0, .failed), now: 10) == Actions(.connect(1, until: 100)))
    #expect(balancer.pick == .wait)
    #expect(balancer.handle(.endpoint(1, .failed), now: 20) == Actions(.resolve, .fail(.unconnected)))
    #expect(balancer.pick == .fail)
    // Each address is tried again after its own wait. When as many attempts have failed as there are
    // addresses, the name is looked up again.
    #expect(balancer.handle(.endpoint(0, .rested), now: 30) == Actions(.connect(0, until: 120)))
    #expect(balancer.handle(.endpoint(0, .failed), now: 40) == Actions(.fail(.unconnected)))
    #expect(balancer.handle(.endpoint(0, .rested), now: 50) == Actions(.connect(0, until: 140)))
    #expect(balancer.handle(.endpoint(0, .failed), now: 60) == Actions(.resolve, .fail(.unconnected)))
    // New addresses do not end the failure; only a connection does.
    #expect(balancer.handle(.named([.idle]), now: 70) == Actions(.connect(0, until: 160)))
    #expect(balancer.connectivity == .transientFailure)
    #expect(balancer.handle(.endpoint(0, .ready), now: 80) == Actions(.useOnly(0), .serve))
    #expect(balancer.connectivity == .ready)
  }

  @Test func addressesChangeUnderAConnection() {
    var balancer = Self.balancer([.wanted, .named([.idle]), .endpoint(0, .ready)])
    #expect(balancer.handle(.named([.idle, .ready]), now: 10) == Actions(.useOnly(1), .serve))
    #expect(balancer.pick == .endpoint(1))
    #expect(balancer.handle(.named([.idle]), now: 20) == Actions(.connect(0, until: 110)))
    #expect(balancer.pick == .wait)
  }
}
