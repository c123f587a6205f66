import PenstockCall
import PenstockWire

/// Plays several calls at the same time. Their registry changes between the steps of the calls, and inside
/// their callbacks. Each call must have the chain that the registry gave when the call was made. A side call
/// (a call that a hop makes) must have the part of that chain below its hop. When a side call has ended, a
/// ticket of the call whose hop has made it is resolved.
final class LivePlay {
  struct Failure { let law: String, what: String, call: Int?, trace: [String] }

  /// A registered interceptor as the test knows it. The list of these entries is in no particular order.
  private struct Entry {
    let id: Int
    /// The plan of each of its hops.
    let plans: [HopPlan]
    var priority: Int32
    /// The number that orders entries of equal priority.
    let sequence: Int
    var kinds: UInt32
  }

  /// The place that a hop had in the chain when its call was made. `story` is 0 for the object level, 1 for
  /// the bytes level, and 2 for hops per attempt.
  private struct Place {
    let story: Int
    let priority: Int32
    let sequence: Int

    /// Whether a hop at this place is below a hop at `other`, and of another interceptor.
    func isBelow(_ other: Place) -> Bool {
      if sequence == other.sequence { return false }
      if story != other.story { return story > other.story }
      return priority != other.priority ? priority < other.priority : sequence > other.sequence
    }
  }

  private let scenario: LiveScenario
  private let orders: [Int]
  private let isVerbose: Bool
  private var registry = Registry(.channel)
  private var cache = ChainCache()
  private var entries: [Entry] = []
  private var plays: [Play] = []
  /// The executors that all calls share.
  private var executors: [FakeExecutor] = []
  /// For each call, the ids of the interceptors with which it was made (`members`), and the places of its
  /// hops (`places`).
  private var members: [Set<Int>] = []
  private var places: [[Place]] = []
  /// For each call, the index of the call whose hop has made it; nil: no hop has made it.
  private var parents: [Int?] = []
  private var nextStep: [Int] = []
  private var isThrough: [Bool] = []
  private var lastID = 0
  private var finalized: [Int: Int] = [:]
  private var events = 0
  private var nextNested = 0
  private var nextCall = 0
  private var nextSide = 0
  private var broken: Failure?
  private var trace: [String] = []

  private init(_ scenario: LiveScenario, _ orders: [Int], isVerbose: Bool) {
    self.scenario = scenario
    self.orders = orders
    self.isVerbose = isVerbose
    for (number, plan) in scenario.executors.enumerated() {
      let executor = FakeExecutor(plan, thread: UInt(number + 2)) { [unowned(unsafe) self] in
        play(of: $0)?.loop
      }
      executor.onRefusal = { [unowned(unsafe) self] in play(of: $0)?.refused($0) }
      executors.append(executor)
    }
  }

  private func play(of job: Job) -> Play? {
    let play = plays.first { $0.call === job.hop.call }
    if play == nil { fail("executors", "a job of no call") }
    return play
  }

  /// Plays the scenario, and returns the law that was broken; nil: no law. The model chooses an order of
  /// events for each call. If a failure depends on the order of one call, the scenario is played again with
  /// the next order for this call.
  static func run(_ scenario: LiveScenario, isVerbose: Bool = false, orders limit: Int) -> Failure? {
    var orders = [Int](repeating: 0, count: scenario.calls.count + scenario.sides.count)
    while true {
      let live = LivePlay(scenario, orders, isVerbose: isVerbose)
      guard let found = live.play() else { return nil }
      guard let call = found.call, orders[call] + 1 < limit else { return found }
      orders[call] += 1
    }
  }

  /// Notes a failure, if it is the first one. `call`: the failure depends on the order of events that the
  /// model has chosen for this call, and another order may be right.
  private func fail(_ law: String, _ what: String, call: Int? = nil) {
    guard broken == nil else { return }
    broken = Failure(law: law, what: what, call: call, trace: trace + (call.map { plays[$0].trace } ?? []))
  }

  private func log(_ line: @autoclosure () -> String) { if isVerbose { trace.append(line()) } }

  private func play() -> Failure? {
    for act in scenario.acts where broken == nil {
      log(act.words)
      perform(act)
      look()
    }
    for index in plays.indices where broken == nil { end(index) }
    look()
    // Removes all interceptors; `look` then expects that each of them is finalized.
    entries = []
    var gone = registry.removeAll()
    var remains: ChainCache.Remains? = cache.invalidate()
    gone = []
    remains = nil
    withExtendedLifetime((gone, remains)) {}
    look()
    // If a law was broken, some calls may not have ended. They are released here, because their finalizers
    // call this object.
    let old = plays
    plays = []
    return withExtendedLifetime(old) { broken }
  }

  private func perform(_ act: LiveScenario.Act) {
    switch act {
    case .open: if nextCall < scenario.calls.count { openCall() }
    case .side(let pick, let hop): openSide(pick, hop)
    case .step(let pick):
      let going = plays.indices.filter { !isThrough[$0] }
      guard !going.isEmpty else { return }
      let index = going[pick % going.count]
      guard nextStep[index] < plays[index].scenario.steps.count else { return end(index) }
      plays[index].step(nextStep[index])
      nextStep[index] += 1
    case .add, .remove, .setPriority, .setFilter, .replace: change(act)
    }
  }

  /// Changes the registry or makes a side call, between two steps or in a callback.
  private func change(_ act: LiveScenario.Act) {
    switch act {
    case .add(let plans, let priority):
      let (id, registration) = make(plans)
      registry.add(registration, priority: priority)
      entries.append(
        Entry(id: id, plans: scenario.plans[plans], priority: priority, sequence: id, kinds: 0xf))
    case .remove(let pick):
      guard let index = pickEntry(pick) else { return }
      let id = entries.remove(at: index).id
      var gone = registry.remove(UInt64(id))
      if gone == nil { fail("registry", "\(id) can't be removed") }
      let remains = cache.invalidate()
      gone = nil
      withExtendedLifetime(remains) {}
    case .setPriority(let pick, let priority):
      guard let index = pickEntry(pick) else { return }
      entries[index].priority = priority
      if !registry.setPriority(UInt64(entries[index].id), priority) { fail("registry", "no priority") }
    case .setFilter(let pick, let kinds):
      guard let index = pickEntry(pick) else { return }
      entries[index].kinds = kinds
      if !registry.setFilter(UInt64(entries[index].id), CallFilter(kinds: kinds)) {
        fail("registry", "no filter")
      }
    case .replace(let pick, let plans):
      guard let index = pickEntry(pick) else { return }
      let (id, registration) = make(plans)
      let old = entries[index]
      entries[index] = Entry(
        id: id, plans: scenario.plans[plans], priority: old.priority, sequence: old.sequence, kinds: 0xf)
      var gone = registry.replace(UInt64(old.id), by: registration)
      if gone == nil { fail("registry", "\(old.id) can't be replaced") }
      let remains = cache.invalidate()
      gone = nil
      withExtendedLifetime(remains) {}
    case .side(let pick, let hop): openSide(pick, hop)
    case .open, .step: break
    }
  }

  private func pickEntry(_ pick: Int) -> Int? { entries.isEmpty ? nil : pick % entries.count }

  private func make(_ plans: Int) -> (Int, Registration) {
    lastID += 1
    let id = lastID
    let own = scenario.plans[plans]
    let state = HopPlayer.State(
      isCreated: false, player: { [unowned(unsafe) self] in player($0, id) },
      finalized: { [unowned(unsafe) self] in finalize(id) })
    return (
      id,
      HopPlayer.registration(
        own[0], own.count > 1 ? own[1] : nil, state, id: id,
        executors: FakeExecutor.registered(own[0], executors))
    )
  }

  /// Finds the player of a hop with this registration, in the play whose call has the hop.
  private func player(_ hop: Hop, _ id: Int) -> HopPlayer? {
    guard let play = plays.first(where: { $0.call === hop.call }) else {
      fail("registry", "\(id) is called for no call")
      return nil
    }
    let player = play.players.first {
      $0.plan.registration == id && $0.plan.isObject == (hop.level == .object)
    }
    play.model.require(player != nil, "registry", "\(id) is in a call that was made without it")
    return player
  }

  private func finalize(_ id: Int) {
    log("  finalizer of \(id)")
    finalized[id, default: 0] += 1
    if finalized[id] != 1 { fail("law 6", "the finalizer of \(id) runs again") }
    if entries.contains(where: { $0.id == id }) {
      fail("law 6", "the finalizer of \(id), which is registered")
    }
    for index in plays.indices where members[index].contains(id) && !isEnded(plays[index], id) {
      if plays[index].model.broken == nil {
        // With `call: index` another order of events is tried first: the model may have chosen an order that
        // the call did not have. If destroy is a hop's only callback, only the model says whether start has
        // reached the hop.
        fail("law 6", "the finalizer of \(id) while call \(index) has it", call: index)
      }
    }
  }

  /// Whether the interceptor gets no further callback in this call.
  private func isEnded(_ play: Play, _ id: Int) -> Bool {
    guard play.call?.isEnded ?? true else { return false }
    return play.model.hops.allSatisfy {
      $0.plan.registration != id || $0.life != .entered || $0.isDestroyed || !$0.has(.destroy)
    }
  }

  /// The hops, from the top, that a call must have if it is made now.
  private func expected(_ kind: CallKind, below: Place? = nil) -> [(plan: HopPlan, place: Place)] {
    let sorted = entries.filter { $0.kinds & (1 << UInt32(kind.rawValue)) != 0 }.sorted { a, b in
      a.priority != b.priority ? a.priority > b.priority : a.sequence < b.sequence
    }
    var found: [(plan: HopPlan, place: Place)] = []
    for story in 0..<3 {
      for entry in sorted {
        for var plan in entry.plans where story == (plan.isObject ? 0 : plan.isPerAttempt ? 2 : 1) {
          plan.registration = entry.id
          let place = Place(story: story, priority: entry.priority, sequence: entry.sequence)
          if below.map({ place.isBelow($0) }) ?? true { found.append((plan, place)) }
        }
      }
    }
    return found
  }

  private func openCall() {
    let own = scenario.calls[nextCall]
    nextCall += 1
    if !cache.isCurrent(registry.generation, 0) {
      let remains = cache.rebuild(registry.ordered(newestFirst: false), registry.generation, 0)
      withExtendedLifetime(remains) {}
    }
    open(own, cache.chain(Play.path.bytes, own.kind), expected(own.kind), parent: nil)
  }

  /// Makes a side call: a call that a hop of another call makes, and whose chain has only interceptors below
  /// that hop.
  private func openSide(_ pick: Int, _ hop: Int) {
    let going = plays.indices.filter { plays[$0].call?.chain != nil }
    guard !going.isEmpty, nextSide < scenario.sides.count else { return }
    let parent = going[pick % going.count]
    guard let entries = plays[parent].call?.chain?.entries, entries.count == places[parent].count else {
      return
    }
    let index = hop % entries.count
    let own = scenario.sides[nextSide]
    nextSide += 1
    log("hop \(index) of call \(parent) makes call \(plays.count)")
    let wanted = registry.ordered(newestFirst: false).filter { $0.filter.matches(Play.path.bytes, own.kind) }
    let chain = Chain(wanted, below: entries[index], newestFirst: false)
    open(
      own, chain.entries.isEmpty ? nil : chain, expected(own.kind, below: places[parent][index]),
      parent: parent)
  }

  private func open(
    _ scenario: Scenario, _ chain: Chain?, _ expected: [(plan: HopPlan, place: Place)], parent: Int?
  ) {
    var own = scenario
    own.hops = expected.map { $0.plan }
    let play = Play(own, Order(orders[plays.count]), isVerbose: isVerbose)
    play.executors = executors
    play.onEvent = { [unowned(unsafe) self] in event() }
    let count = chain?.entries.count ?? 0
    if count != own.hops.count { fail("registry", "a chain of \(count), not \(own.hops.count)") }
    places.append(expected.map { $0.place })
    parents.append(parent)
    members.append(Set(own.hops.map { $0.registration }))
    nextStep.append(0)
    isThrough.append(false)
    plays.append(play)
    play.begin(chain)
  }

  private func end(_ index: Int) {
    guard !isThrough[index] else { return }
    isThrough[index] = true
    log("end of call \(index)")
    plays[index].end()
    // If a hop has made this call, it waits for the reply: a ticket of the hop's own call is resolved.
    if let parent = parents[index], let call = plays[parent].call {
      plays[parent].perform(.resolve(0, .verdict(.next)), call)
      plays[parent].rest()
    }
  }

  /// Called in each callback: changes the registry if the scenario says so.
  private func event() {
    events += 1
    guard nextNested < scenario.nested.count, scenario.nested[nextNested].event <= events else { return }
    nextNested += 1
    log("  in a callback: \(scenario.nested[nextNested - 1].act.words)")
    change(scenario.nested[nextNested - 1].act)
  }

  /// Checks, while nothing runs, that an interceptor is finalized if it was removed and no call uses it any
  /// more.
  private func look() {
    for index in plays.indices where plays[index].model.broken != nil && broken == nil {
      let found = plays[index].model.broken!
      fail(found.law, "call \(index): \(found.what)", call: index)
    }
    guard broken == nil, lastID > 0 else { return }
    // While an executor has a job, or the call has not learned yet that a job has run, the job keeps its
    // interceptor. So nothing is checked then.
    guard executors.allSatisfy({ $0.isIdle }),
      !plays.contains(where: { $0.call != nil && $0.loop.isPosted })
    else { return }
    for id in 1...lastID where finalized[id] == nil && !entries.contains(where: { $0.id == id }) {
      if !plays.indices.contains(where: { members[$0].contains(id) && !isEnded(plays[$0], id) }) {
        fail("law 6", "the finalizer of \(id) has not run")
      }
    }
  }
}
