import PenstockCall

/// A random scenario with several calls whose interceptors are in one registry. The registry changes while
/// the calls run.
struct LiveScenario: Sendable {
  enum Act: Sendable {
    /// Opens the next of `calls`.
    case open
    /// A hop makes the next of `sides`, a call of its own. The numbers choose the hop's call and the hop.
    case side(Int, Int)
    /// Does the next step of one of the open calls, or ends the call if it has done its last step.
    case step(Int)
    case add(Int, Int32)
    // These cases change or remove a registered interceptor; the first number chooses it.
    case remove(Int)
    case setPriority(Int, Int32)
    case setFilter(Int, UInt32)
    case replace(Int, Int)
  }

  /// The interceptors that can be registered: each has one hop, or one for each level.
  var plans: [[HopPlan]]
  /// The calls that the caller makes. Their hops come from the registry.
  var calls: [Scenario]
  /// The side calls: calls that hops make.
  var sides: [Scenario]
  /// The executors that all calls share.
  var executors: [ExecutorPlan]
  var acts: [Act]
  /// The changes that are made inside callbacks. `event` counts the callbacks of all calls: the change is
  /// made in the callback with this number, or in the first later one in which no other change is made.
  var nested: [(event: Int, act: Act)]

  static func random(_ seed: UInt64) -> LiveScenario {
    var random = Random(seed ^ 0x6c69_7665)
    var plans: [[HopPlan]] = []
    while plans.count < 4 {
      let hops = Scenario.plain(random.next()).hops
      for number in Set(hops.map { $0.registration }).sorted() {
        plans.append(hops.filter { $0.registration == number })
      }
    }
    var calls: [Scenario] = []
    for _ in 0..<(2 + random.below(5)) { calls.append(.bare(&random)) }
    var sides: [Scenario] = []
    for _ in 0..<random.pick([0, 0, 2, 4]) { sides.append(.bare(&random)) }
    var acts: [Act] = []
    for _ in 0..<random.pick([0, 1, 2, 3]) { acts.append(.add(random.below(plans.count), random.priority())) }
    var opened = 0
    let churn = random.pick([0, 3, 10, 30])
    while opened < calls.count || !random.chance(4) {
      if opened < calls.count, random.chance(8) {
        acts.append(.open)
        opened += 1
      } else if !sides.isEmpty, random.chance(4) {
        acts.append(.side(random.below(64), random.below(64)))
      } else if random.chance(churn) {
        acts.append(.change(&random, plans.count))
      } else {
        acts.append(.step(random.below(64)))
      }
    }
    var nested: [(event: Int, act: Act)] = []
    var event = 0
    for _ in 0..<random.pick([0, 0, 2, 6]) {
      event += 1 + random.below(20)
      let isSide = !sides.isEmpty && random.chance(40)
      nested.append(
        (event, isSide ? .side(random.below(64), random.below(64)) : .change(&random, plans.count)))
    }
    var scenario = LiveScenario(
      plans: plans, calls: calls, sides: sides, executors: [], acts: acts, nested: nested)
    if random.chance(40) { scenario.addExecutors(&random) }
    return scenario
  }

  /// Gives executors to some interceptors; all calls share the executors.
  private mutating func addExecutors(_ random: inout Random) {
    executors = Scenario.executors(&random)
    let share = random.pick([30, 60, 100])
    for index in plans.indices where random.chance(share) {
      let chosen = HopPlan.Executors.random(&random, executors.count)
      for hop in plans[index].indices { plans[index][hop].executors = chosen }
    }
    let busy = random.pick([20, 50, 80])
    for index in calls.indices { calls[index].work(executors, busy, &random) }
    for index in sides.indices { sides[index].work(executors, busy, &random) }
  }

  /// Returns a smaller scenario that breaks the same law. Parts without which the law is still broken are
  /// removed.
  func shrunk(_ law: String) -> LiveScenario {
    var best = self
    var tries = 0
    func keep(_ candidate: LiveScenario) -> Bool {
      tries += 1
      guard tries < 2_000, LivePlay.run(candidate, orders: 12)?.law == law else { return false }
      best = candidate
      return true
    }
    var size = best.acts.count / 2
    while size > 0 {
      var start = 0
      while start + size <= best.acts.count {
        var candidate = best
        candidate.acts.removeSubrange(start..<start + size)
        if !keep(candidate) { start += size }
      }
      size /= 2
    }
    for index in best.nested.indices.reversed() {
      var candidate = best
      candidate.nested.remove(at: index)
      _ = keep(candidate)
    }
    return best
  }

  var words: String {
    var lines = acts.map { $0.words } + nested.map { "in callback \($0.event): \($0.act.words)" }
    lines += Scenario.words(executors)
    for (number, plan) in plans.enumerated() { lines.append("plan \(number): \(plan.count) hops") }
    for (number, call) in (calls + sides).enumerated() { lines.append("call \(number): \(call.words)") }
    return lines.joined(separator: "\n")
  }
}

extension Scenario {
  /// A random scenario without hops, because the hops of the call come from the registry.
  fileprivate static func bare(_ random: inout Random) -> Scenario {
    var scenario = Scenario.plain(random.next())
    scenario.hops = []
    if random.chance(50) { scenario.steps.removeSubrange((scenario.steps.count / 3)...) }
    return scenario
  }
}

extension LiveScenario.Act {
  fileprivate static func change(_ random: inout Random, _ plans: Int) -> LiveScenario.Act {
    switch random.below(8) {
    case 0..<3: .add(random.below(plans), random.priority())
    case 3, 4: .remove(random.below(64))
    case 5: .setPriority(random.below(64), random.priority())
    case 6: .setFilter(random.below(64), UInt32(1 + random.below(15)))
    default: .replace(random.below(64), random.below(plans))
    }
  }

  var words: String {
    switch self {
    case .open: "open the next call"
    case .side(let pick, let hop): "hop (\(hop)) of call (\(pick)) makes a call"
    case .step(let pick): "a step (\(pick))"
    case .add(let plan, let priority): "add plan \(plan) with priority \(priority)"
    case .remove(let pick): "remove (\(pick))"
    case .setPriority(let pick, let priority): "set priority (\(pick)): \(priority)"
    case .setFilter(let pick, let kinds): "set filter (\(pick)): kinds \(kinds)"
    case .replace(let pick, let plan): "replace (\(pick)) by plan \(plan)"
    }
  }
}

extension Random {
  fileprivate mutating func priority() -> Int32 { pick([0, 0, 1, -1, 7, Int32.max, Int32.min]) }
}
