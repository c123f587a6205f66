import PenstockCall

// Generates random scenarios.

extension Scenario {
  static func random(_ seed: UInt64) -> Scenario {
    var scenario = plain(seed)
    var random = Random(~seed)
    if random.chance(30) { scenario.addExecutors(&random) }
    if random.chance(15) { scenario.addRedirects(&random) }
    if random.chance(12) { scenario.addWorkers(&random) }
    if random.chance(15) { scenario.addRefusals(&random) }
    return scenario
  }

  /// Makes a random scenario without executors: every callback runs on the driving thread.
  static func plain(_ seed: UInt64) -> Scenario {
    var random = Random(seed)
    let kind = random.pick([CallKind.unary, .clientStream, .serverStream, .bidi, .bidi])
    let count = random.pick([1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8])
    // The probability, in percent, that a callback returns anything but NEXT. If it is low, events get far.
    let wildness = random.pick([10, 30, 45, 70])
    var hops: [HopPlan] = []
    let levels = random.chance(50)
    for number in 0..<count { hops.append(.random(&random, wildness, number)) }
    // Hops are in the run (the hops that count together) only if none of them needs counts of its own. So in
    // half of the scenarios few hops have callbacks for signals, shared handles or recorded events.
    if random.chance(50) {
      for index in hops.indices where !random.chance(10) {
        hops[index].callbacks &=
          ~(1 << UInt32(EventKind.demand.rawValue) | 1 << UInt32(EventKind.sent.rawValue))
        if random.chance(70) { hops[index].shares = false }
        if random.chance(70) { hops[index].replayBytes = 0 }
      }
    }
    if levels { hops = HopPlan.placed(hops, &random) }

    let restarts = hops.contains { $0.replayBytes > 0 }
    var servers: [ServerPlan] = []
    for number in 0..<(restarts ? 1 + random.below(4) : 1) {
      servers.append(.random(&random, kind, fails: restarts && number < 2))
    }

    let whole = kind.sendsOne && random.chance(60)
    var steps: [Step] = []
    for _ in 0..<(8 + random.below(36)) { steps.append(.random(&random, wildness, count)) }
    // Towards the end the paused events are resumed, so that most scenarios end without a cancel.
    for _ in 0..<random.below(24) {
      let verdict: End = random.chance(85) ? .verdict(.next) : .random(&random)
      steps.append(Step(act: .resolve(random.below(64), verdict), runs: random.chance(70)))
      if random.chance(40) { steps.append(Step(act: .server(1), runs: true)) }
      if random.chance(20) { steps.append(Step(act: .demand(1 + random.below(3)), runs: true)) }
    }
    return Scenario(
      kind: kind, hops: hops, steps: steps, servers: servers,
      firstMessage: whole ? random.size() : nil,
      firstDemand: random.pick([0, 0, 1, 2, 2, 5]),
      codec: levels && random.chance(80)
        ? CodecPlan(
          cannotEncode: random.pick([0, 0, 0, 63, 7]), cannotDecode: random.pick([0, 0, 0, 63, 20]),
          copies: random.chance(70)) : nil,
      deadline: random.chance(15) ? 1 + random.below(30) : nil,
      demandsWhenServed: random.chance(30))
  }
}

extension Scenario {
  /// Makes some hops redirect the call, or the request of a RESTART, to other channels.
  private mutating func addRedirects(_ random: inout Random) {
    for index in hops.indices where random.chance(50) {
      let kind: EventKind = random.chance(70) ? .start : .status
      let redirect = Operation.redirect(1 + random.below(3))
      guard hops[index].has(kind) else { continue }
      if hops[index].reactions[Int(kind.rawValue)].isEmpty {
        hops[index].reactions[Int(kind.rawValue)].append(
          Reaction(operations: [], verdict: 0, takesTicket: false))
      }
      for turn in hops[index].reactions[Int(kind.rawValue)].indices where random.chance(60) {
        hops[index].reactions[Int(kind.rawValue)][turn].operations.append(redirect)
      }
    }
  }

  /// Makes the server refuse some attempts without processing the request.
  private mutating func addRefusals(_ random: inout Random) {
    for _ in 0..<(1 + random.below(3)) {
      let refusal = ServerPlan(items: [.refused], ready: random.pick([0, 1, 1]))
      servers.insert(refusal, at: random.chance(70) ? 0 : random.below(servers.count + 1))
    }
    for _ in 0..<random.below(4) {
      let tick = Step(act: .tick(1 + random.below(3)), runs: true)
      steps.insert(tick, at: random.below(steps.count + 1))
    }
    if !hops.contains(where: { $0.isObject }), random.chance(60) {
      let first = random.below(hops.count)
      hops[first...].sort { $0.registration < $1.registration }
      for index in first..<hops.count {
        hops[index].isPerAttempt = true
        hops[index].replayBytes = 0
      }
    }
    // A request leaves in one step only if no hop looks at its message, so in some of these scenarios no hop
    // does.
    guard random.chance(40) else { return }
    let quiet = [EventKind.send, .halfClose, .demand, .sent].reduce(UInt32(0)) {
      $0 | 1 << UInt32($1.rawValue)
    }
    for index in hops.indices {
      hops[index].callbacks &= ~quiet
      hops[index].reactions[Int(EventKind.start.rawValue)] = []
    }
    if kind.sendsOne {
      codec = nil
      firstMessage = firstMessage ?? 20
    }
  }

  /// Makes some hops behave like synchronous functions on worker threads. The request waits at the hop until
  /// the function calls `next()`. The response, or the first part of a response stream, waits until the
  /// function returns.
  private mutating func addWorkers(_ random: inout Random) {
    for index in hops.indices where random.chance(50) {
      guard hops.count(where: { $0.registration == hops[index].registration }) == 1 else { continue }
      hops[index].create = .next
      for (event, isWhole) in [
        (EventKind.start, kind.sendsOne), (.send, false), (.headers, kind.receivesOne),
        (.receive, kind.receivesOne), (.status, false),
      ] {
        hops[index].callbacks |= 1 << UInt32(event.rawValue)
        var reaction = Reaction(operations: [], verdict: isWhole ? 2 : 1, takesTicket: true)
        if random.chance(20) { reaction.operations.append(.change) }
        let isPassed = event == .send && !kind.sendsOne
        hops[index].reactions[Int(event.rawValue)] = isPassed ? [] : [reaction]
      }
      for _ in 0..<(2 + random.below(4)) {
        let end: End = random.chance(85) ? .verdict(.next) : .finish(Int32(random.below(17)))
        steps.insert(
          Step(act: .goOn(index, end), runs: random.chance(60)), at: random.below(steps.count + 1))
      }
      steps.append(Step(act: .goOn(index, .verdict(.next)), runs: true))
    }
  }

  /// Gives executors to some hops, and adds steps in which the executors run jobs.
  private mutating func addExecutors(_ random: inout Random) {
    let executors = Scenario.executors(&random)
    let share = random.pick([30, 60, 100])
    for index in hops.indices {
      let chosen = HopPlan.Executors.random(&random, executors.count)
      let isOther = hops[..<index].contains { $0.registration == hops[index].registration }
      guard random.chance(share), !isOther else { continue }
      // The two hops of a registration for both levels have the same executors.
      for other in hops.indices where hops[other].registration == hops[index].registration {
        hops[other].executors = chosen
        if random.chance(50) { hops[other].addTurns(&random) }
      }
    }
    worksOff = random.chance(70)
    work(executors, random.pick([20, 50, 80]), &random)
  }

  static func executors(_ random: inout Random) -> [ExecutorPlan] {
    var executors: [ExecutorPlan] = []
    for _ in 0..<(1 + random.below(2)) {
      executors.append(
        ExecutorPlan(
          isInline: random.chance(20), newestFirst: random.chance(30),
          refusesFrom: random.chance(20) ? 1 + random.below(30) : 0,
          refusals: random.pick([1, 1, 3, 1000])))
    }
    return executors
  }

  /// Adds steps in which executors run some of their jobs, before `busy` percent of the steps.
  mutating func work(_ executors: [ExecutorPlan], _ busy: Int, _ random: inout Random) {
    self.executors = executors
    for place in (0...steps.count).reversed() where random.chance(busy) {
      steps.insert(
        Step(act: .work(random.below(executors.count), 1 + random.below(3)), runs: random.chance(60)),
        at: place)
    }
  }
}

extension HopPlan.Executors {
  static func random(_ random: inout Random, _ count: Int) -> HopPlan.Executors {
    let numbers: [Int?] = [nil] + (0..<count).map { $0 } + (0..<count).map { $0 }
    return HopPlan.Executors(
      outbound: random.pick(numbers), inbound: random.pick(numbers), inCreate: random.chance(20))
  }
}

extension ServerPlan {
  /// Makes a random plan for a server. With `fails` its answer is often only a status, so that a hop has a
  /// reason for RESTART.
  static func random(_ random: inout Random, _ kind: CallKind, fails: Bool) -> ServerPlan {
    var items: [ServerPlan.Item] = []
    if fails, random.chance(50) {
      if random.chance(30) { items.append(.headers) }
      items.append(.status(Int32(random.below(17))))
    } else {
      if random.chance(85) { items.append(.headers) }
      let messages = kind.receivesOne ? random.pick([0, 1, 1, 1, 1, 1, 1, 2]) : random.below(6)
      for _ in 0..<messages { items.append(.message(random.size())) }
      if random.chance(90) { items.append(.status(random.chance(60) ? 0 : Int32(random.below(17)))) }
    }
    return ServerPlan(items: items, ready: random.pick([0, 0, 1, 2, 8]))
  }
}

extension HopPlan {
  /// Lets the loop run while callbacks of the hop run on executors, whatever their event, before and after other
  /// operations of theirs.
  fileprivate mutating func addTurns(_ random: inout Random) {
    for kind in reactions.indices where random.chance(60) {
      if reactions[kind].isEmpty {
        reactions[kind].append(Reaction(operations: [], verdict: 0, takesTicket: false))
      }
      for turn in reactions[kind].indices where random.chance(60) {
        let count = reactions[kind][turn].operations.count
        reactions[kind][turn].operations.insert(.turn, at: random.below(count + 1))
        if random.chance(50) { reactions[kind][turn].operations.insert(.injectOutbound(8), at: 0) }
      }
    }
  }

  /// Gives levels to the hops, and puts them in the order of the chain. One plan in twenty becomes two hops,
  /// one at each level.
  static func placed(_ plans: [HopPlan], _ random: inout Random) -> [HopPlan] {
    var places: [[HopPlan]] = [[], [], []]
    for var plan in plans {
      let level = random.below(20)
      if level < 8 {
        plan.isObject = true
        places[0].append(plan)
      }
      if level == 0 || level >= 8 {
        plan.isObject = false
        plan.isPerAttempt = random.chance(30)
        // A hop per attempt cannot restart.
        if plan.isPerAttempt { plan.replayBytes = 0 }
        places[plan.isPerAttempt ? 2 : 1].append(plan)
      }
    }
    return Array((places[0] + places[1] + places[2]).prefix(8))
  }

  static let laneKinds: [EventKind] = [.start, .send, .halfClose, .headers, .receive, .status]
  static let signals: [EventKind] = [.cancel, .demand, .sent, .destroy]

  static func random(_ random: inout Random, _ wildness: Int, _ number: Int) -> HopPlan {
    var callbacks: UInt32 = 0
    for kind in laneKinds + signals where random.chance(72) { callbacks |= 1 << UInt32(kind.rawValue) }
    let create: Create =
      random.chance(50) ? .none : random.chance(80) ? .next : random.chance(85) ? .skip : .nonsense
    let records = random.chance(25)
    if records { callbacks |= 1 << UInt32(EventKind.status.rawValue) }
    var reactions: [[Reaction]] = Array(repeating: [], count: 12)
    for kind in laneKinds + [.cancel, .demand, .sent] {
      for _ in 0..<random.below(4) {
        reactions[Int(kind.rawValue)].append(.random(&random, kind, wildness))
      }
    }
    let statuses = Int(EventKind.status.rawValue)
    if records, random.chance(80) {
      for _ in 0..<(1 + random.below(3)) {
        var operations: [Operation] = []
        while random.chance(20) { operations.append(.random(&random, .status)) }
        reactions[statuses].insert(
          Reaction(
            operations: operations, verdict: random.chance(75) ? 5 : random.pick([1, 2]), takesTicket: true),
          at: 0)
      }
      // The hop returns HOLD for headers and messages, so that nothing has passed it upward when it answers
      // the status with RESTART.
      for kind in [EventKind.headers, .receive] where random.chance(60) {
        reactions[Int(kind.rawValue)] = Array(
          repeating: Reaction(operations: [], verdict: 2, takesTicket: random.chance(20)), count: 6)
      }
    }
    // A hop that returns TAKE may deliver its whole answer in on_start, perhaps with more messages than
    // hold_bytes allows.
    var holdBytes = random.pick([0, 0, 1, 64, 200])
    let starts = Int(EventKind.start.rawValue)
    for index in reactions[starts].indices where reactions[starts][index].verdict == 4 && random.chance(30) {
      for _ in 0...random.below(2) {
        reactions[starts][index].operations.append(.injectInbound(random.size()))
      }
      reactions[starts][index].operations.append(.deliverStatus(random.pick([0, 0, 5])))
      holdBytes = random.pick([0, 1, 64])
    }
    return HopPlan(
      registration: number, isObject: false, isPerAttempt: false, create: create, callbacks: callbacks,
      holdBytes: holdBytes,
      replayBytes: records ? random.pick([1, 20, 100, 1000, 1 << 20]) : 0,
      maxRestarts: random.pick([1, 1, 2, 3]),
      headersWait: random.pick([Registration.defaultHeadersWait, 0, 15]),
      shares: random.chance(40),
      reactions: reactions)
  }
}

extension Reaction {
  static func random(_ random: inout Random, _ kind: EventKind, _ wildness: Int) -> Reaction {
    var operations: [Operation] = []
    while random.chance(wildness / 2) { operations.append(.random(&random, kind)) }
    guard random.chance(wildness) else {
      return Reaction(operations: operations, verdict: 0, takesTicket: false)
    }
    let verdict: Int32
    switch random.below(100) {
    case 0..<10: verdict = 0
    case 10..<38: verdict = 1
    case 38..<66: verdict = 2
    case 66..<88: verdict = kind == .start ? 4 : kind == .send || kind == .receive ? 3 : 0
    case 88..<97: verdict = 0
    default: verdict = random.pick([3, 4, 5, 6, 7, -1, Int32.max, Int32.min])
    }
    // PAUSE without a ticket breaks law 7, so most callbacks that return PAUSE take a ticket.
    let takes = verdict == 1 ? random.chance(96) : verdict == 2 ? random.chance(65) : random.chance(10)
    return Reaction(operations: operations, verdict: verdict, takesTicket: takes)
  }
}

extension Operation {
  static func random(_ random: inout Random, _ kind: EventKind?) -> Operation {
    switch random.below(22) {
    // Outside of callbacks, and in on_sent, there is no metadata or message that `change` could change.
    case 0..<4: kind == nil || kind == .sent ? .halfClose : .change
    case 4..<7: .injectOutbound(random.size())
    case 7..<11: .injectInbound(random.size())
    case 11..<13: .demand(random.pick([1, 1, 2, 3, 1 << 40]))
    case 13: random.chance(40) ? .finish(Int32(random.below(17))) : kind == .send ? .halfClose : .change
    case 14..<17: kind == .demand ? .setCount(random.pick([0, 0, 1, 2, 7])) : .injectInbound(random.size())
    case 17:
      kind == .start
        ? .setDeadline(random.below(20))
        : kind == .status ? .setStartDeadline(random.below(20)) : .deliverHeaders
    case 18: kind == .status ? .changeStart : .deliverHeaders
    case 19: .deliverStatus(Int32(random.below(17)))
    case 20: .resolveEarly(.random(&random))
    default: .injectInbound(random.size())
    }
  }
}

extension End {
  static func random(_ random: inout Random) -> End {
    switch random.below(20) {
    case 0..<10: .verdict(.next)
    case 10..<13: .verdict(.drop)
    case 13: .verdict(.take)
    case 14: .verdict(.restart)
    case 15: .verdict(random.pick([.pause, .hold, .restart, .skip]))
    case 16..<18: .after(random.below(12))
    default: .finish(Int32(random.below(17)))
    }
  }
}

extension Step {
  static func random(_ random: inout Random, _ wildness: Int, _ hops: Int) -> Step {
    let act: Act
    switch random.below(100) {
    case 0..<18: act = .send(random.size())
    case 18..<24: act = .halfClose
    case 24..<38: act = .demand(random.pick([1, 1, 2, 3]))
    case 38..<58: act = .server(1 + random.below(2))
    case 58..<68: act = .sent(1 + random.below(3))
    case 68..<72: act = .tick(1 + random.below(8))
    case 72..<84: act = .resolve(random.below(64), .random(&random))
    case 84..<89: act = .resolveAny(random.below(64), .random(&random))
    case 89..<97: act = .hop(random.below(hops), .random(&random, nil))
    case 97: act = random.chance(wildness / 2) ? .cancel : .nothing
    case 98: act = random.chance(wildness / 2) ? .lose : .nothing
    default: act = .nothing
    }
    return Step(act: act, runs: random.chance(60))
  }
}

extension Random {
  fileprivate mutating func size() -> Int { pick([0, 8, 8, 20, 63, 120]) }
}
