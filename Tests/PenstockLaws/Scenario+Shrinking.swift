import PenstockCall

// Makes a scenario smaller, as long as it still breaks the same law.

extension Scenario {
  /// Returns a smaller scenario that breaks the same law.
  func shrunk(_ law: String) -> Scenario {
    var best = self
    var tries = 0
    func attempt(_ candidate: Scenario) -> Bool {
      tries += 1
      guard tries < 4_000, Play.run(candidate, orders: 12)?.law == law else { return false }
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
      for number in best.servers.indices.reversed() {
        var candidate = best
        candidate.servers.remove(at: number)
        if !candidate.servers.isEmpty, attempt(candidate) {
          improved = true
          continue
        }
        for index in best.servers[number].items.indices.reversed() {
          var candidate = best
          candidate.servers[number].items.remove(at: index)
          if attempt(candidate) { improved = true }
        }
      }
      for change in simplifications {
        var candidate = best
        if change(&candidate), attempt(candidate) { improved = true }
      }
    }
    return best
  }

  func shrinkHop(_ scenario: Scenario, _ index: Int, _ attempt: (Scenario) -> Bool) -> Bool {
    var best = scenario
    var improved = false
    func keep(_ candidate: Scenario) {
      if attempt(candidate) {
        best = candidate
        improved = true
      }
    }
    let isBoth = best.hops.count { $0.registration == best.hops[index].registration } > 1
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
      if !isBoth, best.hops[index].callbacks & (1 << UInt32(kind)) != 0 {
        var candidate = best
        candidate.hops[index].callbacks &= ~(1 << UInt32(kind))
        keep(candidate)
      }
    }
    if isBoth { return improved }
    if best.hops[index].replayBytes > 0 {
      var candidate = best
      candidate.hops[index].replayBytes = 0
      keep(candidate)
    }
    if best.hops[index].executors != nil {
      var candidate = best
      candidate.hops[index].executors = nil
      keep(candidate)
    }
    if best.hops[index].create != .none {
      var candidate = best
      candidate.hops[index].create = .none
      keep(candidate)
    }
    return improved
  }

  /// The ways to make a scenario simpler. Each changes the scenario, and returns whether it has found
  /// anything to change.
  private var simplifications: [(inout Scenario) -> Bool] {
    [
      { scenario in
        defer { scenario.firstMessage = nil }
        return scenario.firstMessage != nil
      },
      { scenario in
        defer { scenario.codec = nil }
        return scenario.codec != nil
      },
      { scenario in
        defer { for index in scenario.executors.indices { scenario.executors[index].refusesFrom = 0 } }
        return scenario.executors.contains { $0.refusesFrom > 0 }
      },
      { scenario in
        defer { for index in scenario.executors.indices { scenario.executors[index].isInline = false } }
        return scenario.executors.contains { $0.isInline }
      },
      { scenario in
        defer { scenario.worksOff = true }
        return !scenario.worksOff
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
