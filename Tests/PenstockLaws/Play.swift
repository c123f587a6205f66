import PenstockCall
import PenstockWire

/// Plays one scenario on a real `Call`, and reports everything to the model.
final class Play {
  struct Failure { let law: String, what: String, trace: [String] }

  let scenario: Scenario
  let model: Model
  let loop = FakeLoop()
  let replays = ReplayBudget(ofAll: Play.replayBytes)
  var below: FakeBelow
  let newBelow: () -> FakeBelow
  let above = FakeAbove()
  var call: Call?
  var players: [HopPlayer] = []
  var inputs: [UInt64: Model.Input] = [:]
  var nested: Set<UInt64> = []
  var nextMarker = FakeLoop.marker
  var nextID = 1
  private let isVerbose: Bool
  private(set) var trace: [String] = []
  /// Called in each callback, before the model checks its event.
  var onEvent: () -> Void = {}
  // The state of the server.
  var attempts = 0
  var served = 0
  var available = 0
  var isPulled = false
  var isStopped = true
  var isEnded = false
  var discards = 0
  var finalized = 0
  var registrationCount = 0
  let freed = Counter()
  var codec: Codec?
  /// The executors of the call. They are set before `begin` if other plays use them too.
  var executors: [FakeExecutor] = []
  let things = Counter()

  /// Counts objects: those that exist (`things`), or those that were freed (`freed`).
  final class Counter { var count = 0 }

  /// An object that the call owns, so that it is freed together with the call.
  private final class Attachment {
    let freed: Counter
    init(_ freed: Counter) { self.freed = freed }
    deinit { freed.count += 1 }
  }

  init(
    _ scenario: Scenario, _ order: Order, isVerbose: Bool,
    below newBelow: @escaping () -> FakeBelow = { FakeBelow() }
  ) {
    self.newBelow = newBelow
    below = newBelow()
    self.scenario = scenario
    self.isVerbose = isVerbose
    model = Model(scenario, order)
  }

  /// Plays the scenario again and again, with another order of the model's moves each time, until no law is
  /// broken. Returns nil if that is so in one of the first `orders` orders.
  static func run(
    _ scenario: Scenario, isVerbose: Bool = false, orders: Int = 300,
    below: @escaping () -> FakeBelow = { FakeBelow() }
  ) -> Failure? {
    var failure: Failure?
    for number in 0..<orders {
      guard let found = run(scenario, Order(number), isVerbose, below: below) else { return nil }
      failure = failure ?? found
    }
    return failure
  }

  static func run(
    _ scenario: Scenario, _ order: Order, _ isVerbose: Bool, below: @escaping () -> FakeBelow
  ) -> Failure? {
    let play = Play(scenario, order, isVerbose: isVerbose, below: below)
    play.begin(play.chain())
    for index in scenario.steps.indices { play.step(index) }
    play.end()
    play.model.require(
      play.finalized == play.registrationCount, "law 6", "\(play.finalized) finalizers have run")
    return play.model.broken.map { Failure(law: $0.law, what: $0.what, trace: play.trace) }
  }

  /// The plan of the server for the present attempt.
  var server: ServerPlan { scenario.servers[min(max(attempts, 1), scenario.servers.count) - 1] }

  func log(_ line: @autoclosure () -> String) { if isVerbose { trace.append(line()) } }

  // MARK: - The story

  /// Makes the chain of the scenario's interceptors; only this call has it.
  private func chain() -> Chain? {
    var registrations: [Registration] = []
    for (number, plan) in scenario.executors.enumerated() {
      executors.append(FakeExecutor(plan, thread: UInt(number + 2)) { [unowned(unsafe) self] _ in loop })
      executors[number].onRefusal = { [unowned(unsafe) self] in refused($0) }
    }
    let numbers = scenario.hops.map { $0.registration }
    for number in 0..<((numbers.max() ?? -1) + 1) {
      let own = scenario.hops.indices.filter { numbers[$0] == number }
      if !own.isEmpty { registrations.append(registration(own)) }
    }
    registrationCount = registrations.count
    return registrations.isEmpty ? nil : Chain(registrations)
  }

  /// Makes the registration of the hops at these indices: one hop, or one for each level.
  private func registration(_ places: [Int]) -> Registration {
    let plan = scenario.hops[places[0]]
    let state = HopPlayer.State(
      isCreated: false,
      player: { [unowned(unsafe) self] hop in
        players[hop.level == .object ? places[0] : places[places.count - 1]]
      }, finalized: { [unowned(unsafe) self] in finalized += 1 })
    return HopPlayer.registration(
      plan, places.count > 1 ? scenario.hops[places[1]] : nil, state, id: plan.registration + 1,
      executors: FakeExecutor.registered(plan, executors))
  }

  func begin(_ chain: Chain?) {
    let request = Request(
      kind: scenario.kind, path: Play.path.bytes, metadata: Metadata(),
      deadline: scenario.deadline.map { loop.now + UInt64($0) * 1_000_000 })!
    model.expectedDeadline = request.deadline
    for (index, plan) in scenario.hops.enumerated() { players.append(HopPlayer(self, index, plan)) }
    let fresh = Call(
      id: 7, request: request, chain: chain,
      origin: CallOrigin(
        target: buffer("t\0"), defaultAuthority: buffer("a\0"), loop: loop, replays: replays),
      attachment: Attachment(freed))
    codec = scenario.codec.map { CodecState($0, things).codec() }
    fresh.codec = codec
    connect(fresh)
    call = fresh

    open(fresh)
    rest()
  }

  static let path: StaticString = "/a.B/C"
  /// How many bytes the calls of a channel may keep for further attempts.
  static let replayBytes = 64 << 20

  func step(_ index: Int) {
    guard let call, model.broken == nil else { return }
    let step = scenario.steps[index]
    log("step \(index): \(step.act.words)")
    perform(step.act, call)
    if step.runs { rest() }
  }

  func end() {
    rest()
    if scenario.worksOff { workOff() }
    if !isEnded, model.broken == nil, let call {
      log("at last: cancel")
      cancel(call)
      rest()
    }
    if model.broken == nil { afterTheEnd() }
    workOff()
    disconnect()
    call = nil
    model.require(freed.count == 1, "memory", "the call is still there after its end")
    model.require(things.count == 0, "memory", "\(things.count) objects were not let go")
    model.require(
      replays.left == Play.replayBytes, "memory",
      "\(Play.replayBytes - replays.left) bytes count as kept for further attempts after the call's end")
  }

  func open(_ call: Call) {
    var input: Model.Input = .open(demand: scenario.firstDemand, message: nil)
    var message: Message?
    if let size = scenario.firstMessage {
      let item = Model.Item(.send, id: identity(size), size: size)
      item.isObject = codec != nil
      message = self.message(item)
      input = .open(demand: scenario.firstDemand, message: item)
    }
    // The model gets this input at once, and not by `mark`: a call that is not open yet does not carry out
    // marks.
    model.apply(input)
    call.submit(.open(demand: scenario.firstDemand, message: message))
  }

  func perform(_ act: Step.Act, _ call: Call) {
    switch act {
    case .nothing: break
    case .send(let size):
      let item = Model.Item(.send, id: identity(size), size: size)
      item.isObject = codec != nil
      submit(.send(message(item)), .send(item))
    case .halfClose: submit(.halfClose, .halfClose)
    case .demand(let n): submit(.demand(n), .demand(n))
    case .cancel: cancel(call)
    case .server(let n):
      available = min(available + n, server.items.count)
      isPulled = true
      pump()
    case .sent(let n):
      let told = min(n, model.inTransport)
      guard told > 0, !isStopped, below.isOpen else { break }
      sent(told, call)
    case .lose:
      guard !isStopped, below.isOpen else { break }
      let item = status(14)
      log("  connection lost")
      isStopped = true
      model.apply(.status(item))
      below.lose(call, statusObject(item))
    case .tick(let ms):
      loop.now += UInt64(ms) * 1_000_000
      if let deadline = loop.deadline, deadline <= loop.now {
        let item = Model.Item(.status, code: 4)
        log("  deadline")
        model.apply(.end(item))
        call.deadlinePassed()
      }
      for input in loop.takeDueInputs() {
        log("  time sends the request again")
        model.resumeRepeats()
        call.perform(input)
      }
      for ticket in loop.takeDue() {
        let expected = model.use(ticket, .verdict(.next))
        let result = loop.claim(ticket, for: .next, spends: true)
        model.require(
          result == expected, "tickets", "ticket \(ticket) by time: \(result.word), not \(expected.word)")
        guard result == .ok else { continue }
        log("  time resumes ticket \(ticket)")
        model.apply(.resolve(ticket, verdict: .next))
        call.perform(.resolve(ticket, .verdict(.next)))
      }
    case .resolve(let pick, let end):
      let open = model.tickets.filter { $0.value.state == .open }.keys.sorted()
      if !open.isEmpty { use(open[pick % open.count], end) }
    case .resolveAny(let pick, let end):
      if !loop.entries.isEmpty { use(UInt64(pick % loop.entries.count + 1), end) }
    case .hop(let index, let operation):
      guard scenario.hops.indices.contains(index), let hop = players[index].kept else { break }
      elsewhere {
        if hop.attempt == model.hops[model.place(of: index)].attempt {
          players[index].perform(operation, hop, nil)
        } else {
          model.require(
            hop.demand(1) == .gone, "restart", "hop \(index): an instance below a RESTART still works")
        }
      }
    case .goOn(let index, let end):
      // Resolves the open tickets of this hop, in the order in which they were taken.
      let own = model.tickets.filter { $0.value.state == .open }.keys.sorted()
        .filter { model.place(of: $0)?.0.index == model.place(of: index) }
      elsewhere { for ticket in own { use(ticket, ticket == own.last ? end : .verdict(.next)) } }
    case .work(let number, let n):
      for _ in 0..<n where number < executors.count && !executors[number].isIdle {
        log("  executor \(number) runs")
        executors[number].runOne()
      }
    }
  }

  func executor(_ number: Int?) -> FakeExecutor? { number.map { executors[$0] } }

  /// Called when an executor has refused a callback.
  func refused(_ job: Job) {
    log("    refused: hop \(job.hop.index) \(job.kind.word)")
    if loop.isDriving {
      model.executorRefused(model.place(of: job.hop.index), job.hop.attempt, job.kind, count: job.count)
    } else if let hop = model.instance(model.place(of: job.hop.index), job.hop.attempt) {
      mark(.executorLost(hop))
    }
  }

  /// Runs the jobs of all executors, until none is left.
  func workOff() {
    while model.broken == nil, let busy = executors.first(where: { !$0.isIdle }) {
      log("  executor \(busy.thread) runs")
      busy.runOne()
      rest()
    }
    guard model.broken == nil else { return executors.forEach { $0.drop() } }
    model.checkIdle()
  }

  func cancel(_ call: Call) {
    submit(.endLocally(Status(.cancelled, "cancelled")), .end(Model.Item(.status, code: 1)))
  }

  /// Calls `body` as if another thread than the driving thread ran it.
  func elsewhere(_ body: () -> Void) {
    let before = (loop.isDriving, loop.thread)
    (loop.isDriving, loop.thread) = (false, 1000)
    body()
    (loop.isDriving, loop.thread) = before
  }

  /// Lets the call come to rest while a callback runs on an executor.
  func turn() {
    let before = (loop.isDriving, loop.thread)
    (loop.isDriving, loop.thread) = (true, 1)
    log("      the loop runs")
    rest()
    (loop.isDriving, loop.thread) = before
  }

  func use(_ ticket: UInt64, _ end: End) {
    guard let call else { return }
    let expected = model.use(ticket, end)
    let result: Outcome
    switch end {
    case .verdict(let verdict):
      result = loop.claim(ticket, for: verdict, spends: true)
      if result == .ok { submit(.resolve(ticket, .verdict(verdict)), .resolve(ticket, verdict: verdict)) }
    case .finish(let code):
      result = loop.claim(ticket, for: nil, spends: true)
      if result == .ok {
        // The end of a call by a ticket is an end by the hop that has taken it.
        let hop = loop.entries[Int(ticket) - 1].hop.takeUnretainedValue()
        let item = status(code)
        let ended = submitting(.finish(ticket, item)) { hop.endSoon(statusObject(item), ticket: ticket) }
        log("  ticket \(ticket) ends the call: \(ended.word)")
        if let mine = model.tickets[ticket]?.hop { model.ended(mine, code: code, ended) }
      }
    case .after(let ms):
      result = loop.claim(ticket, for: nil, spends: false)
      if result == .ok { call.submit(.resume(ticket, at: loop.now + UInt64(ms) * 1_000_000)) }
    }
    log("  ticket \(ticket), \(end.words): \(result.word)")
    model.require(
      result == expected, "tickets", "ticket \(ticket), \(end.words): \(result.word), not \(expected.word)")
  }

  /// Lets the call carry out everything that was posted, and deliver everything that the server sends. Then
  /// checks that the call is at rest (has nothing left to do).
  func rest() {
    guard let call, model.broken == nil else { return }
    var turns = 0
    while loop.isPosted || isPulled {
      turns += 1
      guard turns < 1_000 else {
        model.fail("rest", "the call does not come to rest")
        return
      }
      if loop.isPosted {
        loop.isPosted = false
        call.runPosted()
      }
      if isPulled { pump() }
    }
    model.checkRest(wants: call.wantsMessage, deadline: loop.deadline)
    if let late = late() { model.fail("demand", late) }
  }

  /// The error text if the call wants a message that the server has, and has not been given it; otherwise
  /// nil.
  func late() -> String? {
    guard !isStopped, below.isOpen, served < available, !isEnded, let call, call.wantsMessage else {
      return nil
    }
    guard case .message = server.items[served] else { return nil }
    return "a message is wanted, but nobody pulled"
  }

  func afterTheEnd() {
    model.require(loop.deadline == nil, "law 4", "the deadline is armed after the end")
    model.require(loop.isClosed, "tickets", "the tickets were not closed")
    for ticket in loop.entries.indices { use(UInt64(ticket + 1), .verdict(.next)) }
    for player in players {
      guard let hop = player.kept else { continue }
      let mine = model.hops[player.place]
      let entered = mine.life == .entered || hop.attempt < mine.attempt
      if entered { model.require(hop.hasEnded, "law 2", "hop \(player.index) has not ended") }
      elsewhere {
        let message = Message()
        let isObject = model.isObject(at: player.place)
        if isObject, let codec { message.attachment = object(Model.Item(.send), codec) }
        for result in [
          hop.injectInbound(message), hop.injectOutbound(message), hop.demand(1), hop.finish(Status(.ok)),
        ]
        where entered && result != .gone {
          model.fail("law 2", "hop \(player.index) gives \(result.word) after its end")
        }
      }
      player.kept = nil
    }
    let before = trace.count
    loop.isDriving = true
    call?.perform(.demand(1))
    call?.perform(.endLocally(Status(.cancelled)))
    call?.inboundStatus(Status(.ok))
    call?.runPosted()
    if trace.count != before { model.fail("law 2", "something happened after the end") }
  }

  // MARK: - Steps with a mark before them

  func marker(_ input: Model.Input) -> UInt64 {
    nextMarker += 1
    inputs[nextMarker] = input
    return nextMarker
  }

  /// Puts a mark into the call's queue of inputs. When the call reaches the mark, the model gets `input`. The
  /// real input has to be submitted next.
  func mark(_ input: Model.Input) { call?.submit(.resume(marker(input), at: 0)) }

  func submit(_ step: Call.Input, _ input: Model.Input) {
    mark(input)
    call?.submit(step)
  }

  /// Calls `body`, in which the call submits an input by itself. The mark that gives `input` to the model is
  /// put before it. If the result is not OK, the mark is made ineffective.
  func submitting(_ input: Model.Input, isNested: Bool = false, _ body: () -> Outcome) -> Outcome {
    let marker = marker(input)
    if isNested {
      nested.insert(marker)
      call?.perform(.resume(marker, at: 0))
    } else {
      call?.submit(.resume(marker, at: 0))
    }
    let result = body()
    if result != .ok { inputs[marker] = nil }
    return result
  }
}
