import PenstockChannel
import Testing
@testable import PenstockLoop

/// Every cell of the tables in RoundRobin.swift, through `Balancer`, with a clock that the test sets.
@Suite struct RoundRobinTests {
  typealias Part = RoundRobin.Part
  typealias Cell = (before: String, event: BalancerEvent, after: String, actions: Actions<BalancerAction>)

  static var all: Actions<BalancerAction> { Actions(.connectAll(until: 120), .serve) }
  static var failAll: Actions<BalancerAction> { Actions(.connectAll(until: 120), .fail(.unconnected)) }

  /// For each state, the events that lead to it; all of them come at time 0. In the name of a state each
  /// letter stands for an endpoint: c connecting, r ready, f failed.
  static let ways: [(name: String, events: [BalancerEvent])] = [
    ("idle", []),
    ("naming", [.wanted]),
    ("cc", [.wanted, .named([.idle, .idle])]),
    ("cr", [.wanted, .named([.idle, .ready])]),
    ("fr", [.wanted, .named([.transientFailure, .ready])]),
    ("fc", [.wanted, .named([.idle, .connecting]), .endpoint(0, .failed)]),
    ("ff", [.wanted, .named([.transientFailure, .idle]), .endpoint(1, .failed)]),
    ("nameless", [.wanted, .nameless]),
    ("closed", [.close]),
  ]
  static let events: [BalancerEvent] =
    [.wanted, .named([.idle, .ready]), .named([.transientFailure]), .nameless, .time, .rest, .close]
    + [EndpointNews.ready, .failed, .rested, .gone, .goneUnused, .room].map { .endpoint(1, $0) }
    + [.endpoint(2, .ready)]

  static func balancer(_ events: [BalancerEvent], random: UInt64 = 0) -> Balancer {
    var balancer = Balancer.make(.roundRobin, timeout: 90, random: random)
    for event in events { _ = balancer.handle(event, now: 0) }
    return balancer
  }

  static func name(_ balancer: Balancer) -> String {
    guard case .roundRobin(let robin) = balancer else { return "another balancer" }
    switch robin.state {
    case .idle: return "idle"
    case .naming: return "naming"
    case .spread(let parts):
      return parts.map { $0 == .connecting ? "c" : $0 == .ready ? "r" : "f" }.joined()
    case .nameless: return "nameless"
    case .closed: return "closed"
    }
  }

  /// The cells of the tables in RoundRobin.swift, with the clock at 30 ns: a state, an event, the state that
  /// follows, and the actions. In a cell that is not here nothing happens.
  static var cells: [Cell] {
    var all: [Cell] = [
      ("idle", .wanted, "naming", Actions(.resolve)),
      ("closed", .wanted, "closed", Actions(.fail(.closed))),
      ("naming", .nameless, "nameless", Actions(.fail(.nameless))),
      ("nameless", .nameless, "nameless", Actions(.fail(.nameless))),
    ]
    for name in ["naming", "cc", "cr", "fr", "fc", "ff", "nameless"] {
      all.append((name, .named([.idle, .ready]), "cr", Self.all))
      all.append((name, .named([.transientFailure]), "f", Self.failAll))
      all.append((name, .rest, "idle", Actions(.useOnly(nil))))
    }
    for way in ways where way.name != "closed" { all.append((way.name, .close, "closed", .none)) }
    for (name, after) in [("cc", "cr"), ("fc", "fr"), ("ff", "fr")] {
      all.append((name, .endpoint(1, .ready), after, Actions(.serve)))
      all.append((name, .endpoint(1, .rested), name, Actions(.connect(1, until: 120))))
    }
    for (name, after) in [("cc", "cf"), ("cr", "cf")] {
      all.append((name, .endpoint(1, .failed), after, Actions(.refresh)))
    }
    for name in ["fr", "fc", "ff"] {
      all.append((name, .endpoint(1, .failed), "ff", Actions(.refresh, .fail(.unconnected))))
    }
    for (name, after) in [("cr", "cc"), ("fr", "fc")] {
      for news in [EndpointNews.gone, .goneUnused] {
        all.append((name, .endpoint(1, news), after, Actions(.connect(1, until: 120), .refresh)))
      }
      all.append((name, .endpoint(1, .room), name, Actions(.serve)))
    }
    return all
  }

  @Test func everyCell() {
    for way in Self.ways {
      let before = Self.balancer(way.events)
      #expect(Self.name(before) == way.name)
      for event in Self.events {
        let cell = Self.cells.first { $0.before == way.name && $0.event == event }
        var balancer = before
        let actions = balancer.handle(event, now: 30)
        #expect(Self.name(balancer) == cell?.after ?? way.name, "\(way.name), \(event)")
        #expect(actions == cell?.actions ?? .none, "\(way.name), \(event)")
        if cell == nil { #expect(balancer == before, "\(way.name), \(event)") }
      }
    }
  }

  @Test func picks() {
    let all = Self.ways.map { Self.balancer($0.events) }
    #expect(all.map { $0.pick } == [.wait, .wait, .wait, .choose, .choose, .wait, .fail, .fail, .fail])
    #expect(
      all.map { $0.connectivity } == [
        .idle, .connecting, .connecting, .ready, .ready, .connecting, .transientFailure, .transientFailure,
        .shutdown,
      ])
    #expect(all.suffix(3).map { $0.failure } == [.unconnected, .nameless, .closed])
    #expect(all.map { $0.choices } == [[], [], [], [1], [1], [], [], [], []])
  }

  /// All ready endpoints get the same number of calls.
  @Test func inTurn() {
    var balancer = Self.balancer([.wanted, .named([.ready, .idle, .ready, .ready])])
    let first = balancer.choose()
    let order = [0, 2, 3]
    let start = order.firstIndex(of: first)!
    for n in 1...20 { #expect(balancer.choose() == order[(start + n) % 3]) }
    _ = balancer.handle(.endpoint(2, .gone), now: 0)
    let next = (0..<20).map { _ in balancer.choose() }
    #expect(next.filter { $0 == 0 }.count == 10 && next.filter { $0 == 3 }.count == 10)
  }

  /// The endpoint of the first call is random, so that clients do not all begin with the same one.
  @Test func theFirstIsRandom() {
    let firsts = (0..<4).map { random -> Int in
      var balancer = Self.balancer(
        [.wanted, .named([.ready, .ready, .ready, .ready])], random: UInt64(random) << 32)
      return balancer.choose()
    }
    #expect(Set(firsts) == [0, 1, 2, 3])
  }

  /// Each endpoint gets calls in proportion to its weight.
  @Test(
    arguments: [[1, 1], [1, 2, 3], [5, 0, 5], [1, 100], [4_000_000_000, 1_000_000_000]] as [[UInt32]])
  func byWeight(_ weights: [UInt32]) {
    var balancer = Self.balancer([
      .wanted, .named(weights.map { _ in .ready }, weights: weights),
    ])
    let picks = 6000
    var counts = weights.map { _ in 0 }
    for _ in 0..<picks { counts[balancer.choose()] += 1 }
    let sum = Double(weights.map { Double(max($0, 1)) }.reduce(0, +))
    for (count, weight) in zip(counts, weights) {
      let expected = Double(picks) * Double(max(weight, 1)) / sum
      #expect(abs(Double(count) - expected) <= max(expected * 0.02, 3), "\(weights): \(counts)")
    }
  }
}
