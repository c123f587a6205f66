import Testing

@testable import PenstockCall

/// Random chains against the model: PENSTOCK_SCENARIOS of them (5,000), from PENSTOCK_SEED. The scenario that breaks
/// a law is cut down to what breaks it still, and printed.
///
/// The seed is the same every time unless it is set: the model leaves open in which order unrelated things are done,
/// and in one scenario of some hundred thousand it takes another order to its end than the call does.
@Suite struct LawTests {
  static let seed: UInt64 = 1

  @Test func lawsHoldInRandomScenarios() {
    let shrinks = environmentNumber("PENSTOCK_SHRINK") != 0
    let count = Int(environmentNumber("PENSTOCK_SCENARIOS") ?? 5_000)
    var failures = 0
    var undecided = 0
    let seed = environmentNumber("PENSTOCK_SEED") ?? LawTests.seed
    for number in 0..<count where failures < (shrinks ? 3 : 1) {
      let scenario = Scenario.random(seed &+ UInt64(number))
      guard let failure = Play.run(scenario, undecided: &undecided) else { continue }
      failures += 1
      let small = shrinks ? shrunk(scenario, failure.law) : scenario
      let shown = Play.run(small, isVerbose: true, undecided: &undecided)
      Issue.record(
        """
        PENSTOCK_SEED=\(seed &+ UInt64(number)) PENSTOCK_SCENARIOS=1 breaks \(failure.law): \
        \(shown?.what ?? failure.what)
        \(small)
        what happened:
        \((shown?.trace ?? []).joined(separator: "\n"))
        """)
    }
    print("\(count) scenarios from PENSTOCK_SEED=\(seed), \(undecided) undecided")
    #expect(undecided * 500 <= count + 500)
  }

  /// Smaller as long as the same law breaks.
  private func shrunk(_ scenario: Scenario, _ law: String) -> Scenario {
    var best = scenario
    var tries = 0
    func attempt(_ candidate: Scenario) -> Bool {
      tries += 1
      var undecided = 0
      guard tries < 4_000, Play.run(candidate, undecided: &undecided)?.law == law else { return false }
      best = candidate
      return true
    }
    var improved = true
    while improved, tries < 4_000 {
      improved = false
      var size = best.steps.count / 2
      while size > 0 {
        var start = 0
        while start + size <= best.steps.count {
          var candidate = best
          candidate.steps.removeSubrange(start..<start + size)
          if attempt(candidate) { improved = true } else { start += size }
        }
        size /= 2
      }
      for index in best.hops.indices.reversed() {
        var candidate = best
        candidate.hops.remove(at: index)
        if attempt(candidate) { improved = true }
      }
      for index in best.hops.indices { improved = shrinkHop(best, index, attempt) || improved }
      for index in best.server.items.indices.reversed() {
        var candidate = best
        candidate.server.items.remove(at: index)
        if attempt(candidate) { improved = true }
      }
      for change in simplifications {
        var candidate = best
        if change(&candidate), attempt(candidate) { improved = true }
      }
    }
    return best
  }

  private func shrinkHop(_ scenario: Scenario, _ index: Int, _ attempt: (Scenario) -> Bool) -> Bool {
    var best = scenario
    var improved = false
    func keep(_ candidate: Scenario) {
      if attempt(candidate) {
        best = candidate
        improved = true
      }
    }
    for kind in best.hops[index].reactions.indices {
      for turn in best.hops[index].reactions[kind].indices.reversed() {
        var candidate = best
        candidate.hops[index].reactions[kind].remove(at: turn)
        keep(candidate)
      }
      for turn in best.hops[index].reactions[kind].indices {
        for place in best.hops[index].reactions[kind][turn].operations.indices.reversed() {
          var candidate = best
          candidate.hops[index].reactions[kind][turn].operations.remove(at: place)
          keep(candidate)
        }
      }
      if best.hops[index].callbacks & (1 << UInt32(kind)) != 0 {
        var candidate = best
        candidate.hops[index].callbacks &= ~(1 << UInt32(kind))
        keep(candidate)
      }
    }
    if best.hops[index].create != .none {
      var candidate = best
      candidate.hops[index].create = .none
      keep(candidate)
    }
    return improved
  }

  /// Each says whether it has changed anything.
  private var simplifications: [(inout Scenario) -> Bool] {
    [
      { scenario in
        defer { scenario.firstMessage = nil }
        return scenario.firstMessage != nil
      },
      { scenario in
        defer { scenario.deadline = nil }
        return scenario.deadline != nil
      },
      { scenario in
        defer { scenario.firstDemand = 0 }
        return scenario.firstDemand != 0
      },
      { scenario in
        defer { scenario.demandsWhenServed = false }
        return scenario.demandsWhenServed
      },
    ]
  }
}
