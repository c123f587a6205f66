import PenstockWire

@testable import PenstockCall

/// Plays one scenario on a real call and tells the model everything.
final class Play {
  struct Failure { let law: String, what: String, trace: [String] }

  private let scenario: Scenario
  private let model: Model
  private let loop = FakeLoop()
  private let below = FakeBelow()
  private let above = FakeAbove()
  private var call: Call?
  private var players: [HopPlayer] = []
  private var inputs: [UInt64: Model.Input] = [:]
  private var nested: Set<UInt64> = []
  private var nextMarker = FakeLoop.marker
  private var nextID = 1
  private let isVerbose: Bool
  private var trace: [String] = []
  // The server.
  private var served = 0
  private var available = 0
  private var isPulled = false
  private var isStopped = true
  private var untold = 0
  private(set) var hasEndedByItself = false
  private(set) var isEnded = false
  private var discards = 0
  private var finalized = 0

  private init(_ scenario: Scenario, _ patience: Model.Patience, isVerbose: Bool) {
    self.scenario = scenario
    self.isVerbose = isVerbose
    model = Model(scenario, patience)
  }

  /// nil: every law held.
  static func run(_ scenario: Scenario, isVerbose: Bool = false, undecided: inout Int) -> Failure? {
    var failure: Failure?
    for patience in Model.Patience.allCases {
      guard let found = run(scenario, patience, isVerbose, &undecided) else { return nil }
      failure = failure ?? found
    }
    return failure
  }

  private static func run(
    _ scenario: Scenario, _ patience: Model.Patience, _ isVerbose: Bool, _ undecided: inout Int
  ) -> Failure? {
    let play = Play(scenario, patience, isVerbose: isVerbose)
    weak let call = play.play()
    if play.model.broken == nil, !play.model.isUndecided {
      play.model.require(call == nil, "memory", "the call is still there after its end")
      play.model.require(
        play.finalized == scenario.hops.count, "law 6", "\(play.finalized) finalizers have run")
    }
    if play.model.isUndecided { undecided += 1 }
    return play.model.broken.map { Failure(law: $0.law, what: $0.what, trace: play.trace) }
  }

  func log(_ line: @autoclosure () -> String) { if isVerbose { trace.append(line()) } }

  // MARK: - The story

  private func play() -> Call? {
    let request = Request(
      kind: scenario.kind, path: ("/a.B/C" as StaticString).bytes, metadata: Metadata(),
      deadline: scenario.deadline.map { loop.now + UInt64($0) * 1_000_000 })!
    model.expectedDeadline = request.deadline
    var registrations: [Registration] = []
    for (index, plan) in scenario.hops.enumerated() {
      let player = HopPlayer(self, index, plan)
      players.append(player)
      registrations.append(player.registration())
    }
    let chain = registrations.isEmpty ? nil : Chain(registrations)
    registrations = []
    let fresh = Call(
      id: 7, request: request, chain: chain, target: buffer("t\0"), defaultAuthority: buffer("a\0"),
      loop: loop,
      attachment: loop)
    connect(fresh)
    call = fresh

    open(fresh)
    rest()
    for (index, step) in scenario.steps.enumerated() {
      guard model.broken == nil else { break }
      log("step \(index): \(step.act)")
      perform(step.act, fresh)
      if step.runs { rest() }
    }
    rest()
    hasEndedByItself = isEnded
    if !isEnded, model.broken == nil {
      log("at last: cancel")
      cancel(fresh)
      rest()
    }
    if model.broken == nil { afterTheEnd() }
    disconnect()
    call = nil
    return fresh
  }

  private func open(_ call: Call) {
    var input: Model.Input = .open(demand: scenario.firstDemand, message: nil)
    var message: Message?
    if let size = scenario.firstMessage {
      let item = Model.Item(.send, id: identity(size), size: size)
      message = self.message(item)
      input = .open(demand: scenario.firstDemand, message: item)
    }
    // A mark has no meaning before the call is opened.
    model.apply(input)
    call.submit(.open(demand: scenario.firstDemand, message: message))
  }

  private func perform(_ act: Step.Act, _ call: Call) {
    switch act {
    case .nothing: break
    case .send(let size):
      let item = Model.Item(.send, id: identity(size), size: size)
      submit(.send(message(item)), .send(item))
    case .halfClose: submit(.halfClose, .halfClose)
    case .demand(let n): submit(.demand(n), .demand(n))
    case .cancel: cancel(call)
    case .server(let n):
      available = min(available + n, scenario.server.items.count)
      isPulled = true
      pump()
    case .sent(let n):
      let told = min(n, model.inTransport)
      guard told > 0, !isStopped else { break }
      log("  server: \(told) sent")
      model.apply(.sent(told))
      call.transportSent(told)
    case .lose:
      guard !isStopped else { break }
      let item = status(14)
      log("  connection lost")
      isStopped = true
      model.apply(.status(item))
      call.inboundStatus(statusObject(item))
    case .tick(let ms):
      loop.now += UInt64(ms) * 1_000_000
      if let deadline = loop.deadline, deadline <= loop.now {
        let item = Model.Item(.status, code: 4)
        log("  deadline")
        model.apply(.end(item))
        call.deadlinePassed()
      }
      for ticket in loop.takeDue() {
        let expected = model.use(ticket, .verdict(.next))
        let result = loop.claim(ticket, for: .next, spends: true)
        model.require(result == expected, "tickets", "ticket \(ticket) by time: \(result), not \(expected)")
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
      elsewhere { players[index].perform(operation, hop) }
    }
  }

  private func cancel(_ call: Call) {
    submit(.endLocally(Status(.cancelled, "cancelled")), .end(Model.Item(.status, code: 1)))
  }

  /// As another thread.
  private func elsewhere(_ body: () -> Void) {
    let before = loop.isDriving
    loop.isDriving = false
    body()
    loop.isDriving = before
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
        let item = status(code)
        submit(.resolve(ticket, .finish(statusObject(item))), .finish(ticket, item))
      }
    case .after(let ms):
      result = loop.claim(ticket, for: nil, spends: false)
      if result == .ok { call.submit(.resumeAfter(ticket, nanoseconds: UInt64(ms) * 1_000_000)) }
    }
    log("  ticket \(ticket), \(end): \(result)")
    model.require(result == expected, "tickets", "ticket \(ticket), \(end): \(result), not \(expected)")
  }

  /// Everything that was posted, and everything that the server has to say.
  private func rest() {
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

  /// A message is there and could go up, but nobody pulled.
  private func late() -> String? {
    guard !isStopped, served < available, !isEnded, let call, call.wantsMessage else { return nil }
    guard case .message = scenario.server.items[served] else { return nil }
    return "a message is wanted, but nobody pulled"
  }

  private func afterTheEnd() {
    model.require(loop.deadline == nil, "law 4", "the deadline is armed after the end")
    model.require(loop.isClosed, "tickets", "the tickets were not closed")
    for ticket in loop.entries.indices { use(UInt64(ticket + 1), .verdict(.next)) }
    for player in players {
      guard let hop = player.kept else { continue }
      let entered = model.hops[player.index].life == .entered
      if entered { model.require(hop.hasEnded, "law 2", "hop \(player.index) has not ended") }
      elsewhere {
        let message = Message()
        for result in [
          hop.injectInbound(message), hop.injectOutbound(message), hop.demand(1), hop.finish(Status(.ok)),
        ]
        where entered && result != .gone {
          model.fail("law 2", "hop \(player.index) gives \(result) after its end")
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

  private func pump() {
    guard let call else { return }
    isPulled = false
    while !isStopped, served < available, model.broken == nil {
      switch scenario.server.items[served] {
      case .headers:
        served += 1
        let item = Model.Item(.headers)
        log("  server: headers")
        model.apply(.headers(item))
        call.inboundHeaders(Metadata())
      case .message(let size):
        guard call.wantsMessage else { return }
        model.require(model.wantsMessage, "demand", "a message is pulled that was not asked for")
        served += 1
        let item = Model.Item(.receive, id: identity(size), size: size)
        log("  server: message \(item.id)")
        model.apply(.message(item))
        call.inboundMessage(message(item))
      case .status(let code):
        served += 1
        isStopped = true
        let item = status(code)
        log("  server: status \(item.id) code \(code)")
        model.apply(.status(item))
        call.inboundStatus(statusObject(item))
      }
    }
  }

  // MARK: - Steps with a mark before them

  private func mark(_ input: Model.Input) -> UInt64 {
    nextMarker += 1
    inputs[nextMarker] = input
    return nextMarker
  }

  private func submit(_ step: Call.Step, _ input: Model.Input) {
    call?.submit(.resumeAfter(mark(input), nanoseconds: 0))
    call?.submit(step)
  }

  /// For what the call submits itself: the mark goes first, and counts if the result is OK.
  func submitting(_ input: Model.Input, _ body: () -> Outcome) -> Outcome {
    let marker = mark(input)
    call?.submit(.resumeAfter(marker, nanoseconds: 0))
    let result = body()
    if result != .ok { inputs[marker] = nil }
    return result
  }

  // MARK: - Both ends of the chain

  private func connect(_ call: Call) {
    call.attach(below: below)
    call.attach(above: above)
    loop.onMarker = { [unowned self] marker in
      if let input = inputs.removeValue(forKey: marker) {
        model.apply(input, isNested: nested.remove(marker) != nil)
      }
    }
    below.onStart = { [unowned self] call in
      let item = Model.Item(.start)
      item.marks = marks(call.request.metadata)
      log("  server sees start")
      model.require(call.request.metadata.isReadOnly, "law 5", "the request can be changed after it has left")
      isStopped = false
      isPulled = true
      model.serverSees(.start, item)
    }
    below.onSend = { [unowned self] message in
      let item = self.item(.send, message)
      log("  server sees message \(item.id)")
      model.serverSees(.send, item)
    }
    below.onHalfClose = { [unowned self] in
      log("  server sees half-close")
      model.serverSees(.halfClose, Model.Item(.halfClose))
    }
    below.onPull = { [unowned self] in isPulled = true }
    below.onReset = { [unowned self] in
      log("  server sees reset")
      isStopped = true
      model.serverReset()
    }
    above.onHeaders = { [unowned self] headers in
      let item = Model.Item(.headers)
      item.marks = marks(headers)
      log("  caller sees headers")
      model.callerSees(.headers, item)
    }
    above.onMessage = { [unowned self] message in
      let item = self.item(.receive, message)
      log("  caller sees message \(item.id)")
      model.callerSees(.receive, item)
      if scenario.demandsWhenServed, let call = self.call {
        let marker = mark(.demand(1))
        nested.insert(marker)
        call.perform(.resumeAfter(marker, nanoseconds: 0))
        call.perform(.demand(1))
      }
    }
    above.onSent = { [unowned self] n in
      log("  caller sees \(n) sent")
      model.callerSent(n)
    }
    above.onDiscard = { [unowned self] in
      log("  the caller's messages are discarded")
      discards += 1
    }
    above.onStatus = { [unowned self] status in
      let item = self.item(status)
      log("  caller sees status \(item.id) code \(item.code) \(text(status.message))")
      model.callerSees(.status, item)
      model.require(status.isReadOnly, "law 5", "a reply's status can be changed")
      if item.isLocal { model.require(discards == 1, "law 3", "a local end left \(discards) discards") }
      isEnded = true
      isStopped = true
    }
  }

  private func disconnect() {
    loop.onMarker = { _ in }
    players = []
  }

  // MARK: - What events look like

  func identity(_ size: Int) -> Int {
    nextID += 1
    return size >= 8 ? nextID : 0
  }

  func status(_ code: Int32) -> Model.Item {
    nextID += 1
    return Model.Item(.status, id: nextID, code: code)
  }

  func message(_ item: Model.Item) -> Message {
    var content = [UInt8](repeating: 0x2e, count: item.size)
    if item.size >= 8 {
      for index in 0..<8 { content[index] = UInt8(truncatingIfNeeded: item.id >> (8 * index)) }
    }
    return with(content) { ByteBuffer(copying: $0)! }
  }

  func item(_ kind: EventKind, _ message: Message) -> Model.Item {
    let view = message.view
    var id = 0
    if view.count >= 8 { for index in 0..<8 { id |= Int(view[index]) << (8 * index) } }
    return Model.Item(kind, id: id, size: view.count)
  }

  func statusObject(_ item: Model.Item) -> Status {
    let status = Status(StatusCode(rawValue: item.code)!)
    _ = with("s\(item.id)") { status.setMessage($0) }
    return status
  }

  func item(_ status: Status) -> Model.Item {
    let message = text(status.message)
    let id = message.first == "s" ? Int(message.dropFirst()) ?? 0 : 0
    let item = Model.Item(.status, id: id, code: status.code.rawValue)
    item.marks = marks(status.trailers)
    item.isLocal = status.isLocal
    return item
  }

  func marks(_ metadata: Metadata) -> [Int] {
    (0..<metadata.count).map { Int(text(metadata.value(at: $0))) ?? -1 }
  }

  // MARK: - For the hops

  func finalizerHasRun() { finalized += 1 }
  var theModel: Model { model }
  var time: UInt64 { loop.now }
  var isDriving: Bool { loop.isDriving }
}

/// One hop: what its callbacks do is its plan.
final class HopPlayer {
  private unowned let play: Play
  let index: Int
  private let plan: HopPlan
  private var done = [Int](repeating: 0, count: 12)
  /// The handle, for other threads.
  var kept: Hop?
  private var finishing: Model.Item?
  private var isInCallback = false
  private lazy var box = Box(self)
  private var isCreated = false

  /// What stands behind `user_data`; with `create` the state is the player itself.
  final class Box {
    unowned let player: HopPlayer
    unowned let play: Play

    init(_ player: HopPlayer) {
      self.player = player
      play = player.play
    }
  }

  init(_ play: Play, _ index: Int, _ plan: HopPlan) {
    self.play = play
    self.index = index
    self.plan = plan
  }

  private var model: Model { play.theModel }

  private static func from(_ state: UnsafeMutableRawPointer?) -> HopPlayer {
    let object = Unmanaged<AnyObject>.fromOpaque(state!).takeUnretainedValue()
    if let box = object as? Box {
      let player = box.player
      player.model.require(
        player.plan.create == .none, "state", "hop \(player.index) got user_data, not its state")
      return player
    }
    let player = object as! HopPlayer
    player.model.require(player.isCreated, "state", "hop \(player.index) got a state before create")
    return player
  }

  func registration() -> Registration {
    var callbacks = Registration.Callbacks()
    if plan.create != .none {
      callbacks.create = { handle, userData, state in
        let box = Unmanaged<Box>.fromOpaque(userData!).takeUnretainedValue()
        return box.player.create(Hop.from(handle!), state!)
      }
    }
    if plan.has(.start) { callbacks.onStart = { HopPlayer.from($1).event(.start, $0!) } }
    if plan.has(.send) { callbacks.onSend = { HopPlayer.from($1).event(.send, $0!) } }
    if plan.has(.halfClose) { callbacks.onHalfClose = { HopPlayer.from($1).event(.halfClose, $0!) } }
    if plan.has(.headers) { callbacks.onHeaders = { HopPlayer.from($1).event(.headers, $0!) } }
    if plan.has(.receive) { callbacks.onReceive = { HopPlayer.from($1).event(.receive, $0!) } }
    if plan.has(.status) { callbacks.onStatus = { HopPlayer.from($1).event(.status, $0!) } }
    if plan.has(.cancel) { callbacks.onCancel = { HopPlayer.from($1).event(.cancel, $0!) } }
    if plan.has(.demand) { callbacks.onDemand = { HopPlayer.from($1).event(.demand, $0!) } }
    if plan.has(.sent) { callbacks.onSent = { HopPlayer.from($1).event(.sent, $0!) } }
    if plan.has(.destroy) { callbacks.destroy = { _ = HopPlayer.from($1).event(.destroy, $0!) } }
    let pointer = Unmanaged.passRetained(box).toOpaque()
    return Registration(
      id: UInt64(index + 1), name: buffer("hop\(index)\0"), filter: MethodFilter(), kinds: 0,
      holdBytes: plan.holdBytes,
      userData: UserData(pointer) { pointer in
        let box = Unmanaged<Box>.fromOpaque(pointer!).takeRetainedValue()
        box.play.finalizerHasRun()
      }, callbacks: callbacks)
  }

  private func create(_ hop: Hop, _ state: UnsafeMutablePointer<UnsafeMutableRawPointer?>) -> Int32 {
    model.begin(index, .create, nil, count: 0)
    play.log("    hop \(index) create: \(plan.create)")
    isCreated = true
    state.pointee = Unmanaged.passUnretained(self).toOpaque()
    let verdict: Int32 = plan.create == .skip ? 6 : plan.create == .nonsense ? 3 : 0
    model.require(hop.finish(Status(.ok)) == .state, "law 2", "finish from create")
    model.require(hop.takeTicket() == 0, "tickets", "a ticket in create")
    model.end(index, .create, verdict: verdict, ticket: 0, finishing: nil, count: 0)
    return verdict
  }

  private func event(_ kind: EventKind, _ handle: OpaquePointer) -> Int32 {
    let hop = Hop.from(handle)
    let seen: Model.Item? =
      switch kind {
      case .start: startItem(hop)
      case .send, .receive: play.item(kind, hop.message!)
      case .headers: headersItem(hop)
      case .status, .cancel: play.item(hop.status!)
      case .halfClose: Model.Item(.halfClose)
      case .none, .demand, .sent, .create, .destroy: nil
      }
    let n = hop.signalCount
    model.begin(index, kind, seen, count: n)
    guard model.broken == nil else { return 0 }
    model.require(hop.currentEvent == kind, "event", "hop \(index) \(kind.word) says \(hop.currentEvent)")
    let turn = done[Int(kind.rawValue)]
    done[Int(kind.rawValue)] = turn + 1
    let reactions = plan.reactions[Int(kind.rawValue)]
    let reaction =
      turn < reactions.count ? reactions[turn] : Reaction(operations: [], verdict: 0, takesTicket: false)
    if plan.shares, kept == nil, kind != .destroy {
      hop.becomeShared()
      kept = hop
    }
    play.log("    hop \(index) \(kind.word) \(seen?.id ?? n) code \(seen?.code ?? 0): \(reaction)")
    finishing = nil
    isInCallback = true
    for operation in reaction.operations where kind != .destroy { perform(operation, hop) }
    var ticket = hop.ticket
    if reaction.takesTicket, kind != .destroy {
      let fresh = hop.takeTicket()
      if ticket == 0, fresh != 0 { model.issued(fresh, kind) }
      model.require(ticket == 0 || ticket == fresh, "tickets", "another ticket for the same event")
      ticket = fresh
      let pausable = HopPlan.laneKinds.contains(kind) && !(kind == .status && hop.status!.isLocal)
      model.require((fresh != 0) == pausable, "tickets", "hop \(index) \(kind.word): ticket \(fresh)")
    }
    isInCallback = false
    model.end(
      index, kind, verdict: reaction.verdict, ticket: ticket, finishing: finishing, count: hop.signalCount)
    return reaction.verdict
  }

  private func startItem(_ hop: Hop) -> Model.Item {
    let item = Model.Item(.start)
    item.marks = play.marks(hop.metadata!)
    return item
  }

  private func headersItem(_ hop: Hop) -> Model.Item {
    let item = Model.Item(.headers)
    item.marks = play.marks(hop.metadata!)
    return item
  }

  private func expect(_ result: Outcome, _ expected: Outcome, _ what: String) {
    play.log("      hop \(index) \(what): \(result)")
    model.require(result == expected, "results", "hop \(index) \(what): \(result), not \(expected)")
  }

  /// In a callback, or as another thread.
  func perform(_ operation: Operation, _ hop: Hop) {
    guard model.broken == nil else { return }
    switch operation {
    case .change: if isInCallback { change(hop) }
    case .injectOutbound(let size):
      guard isInCallback else { break }
      let expected = model.resultOfInjectOutbound(index)
      let item = Model.Item(.send, id: play.identity(size), size: size)
      let result = hop.injectOutbound(play.message(item))
      expect(result, expected, "sends message \(item.id)")
      if result == .ok { model.injectOutbound(index, item) }
    case .injectInbound(let size): injectInbound(size, hop)
    case .demand(let n):
      let expected: Outcome = model.isGone(index) ? .gone : .ok
      let result = play.submitting(.hopDemand(index, n)) { hop.demand(n) }
      expect(result, expected, "demands \(n)")
    case .finish(let code):
      let item = play.status(code)
      let mine = model.hops[index]
      let allowed = isInCallback && mine.isActive && (hop.status?.isLocal ?? false) == false
      let result = hop.finish(play.statusObject(item))
      let first: Outcome = finishing == nil ? .ok : .already
      expect(result, allowed ? first : model.isGone(index) ? .gone : .state, "finishes with \(code)")
      if result == .ok { finishing = item }
    case .setCount(let n):
      if isInCallback, hop.currentEvent == .demand { expect(hop.setSignalCount(n), .ok, "count") }
    case .setDeadline(let ms):
      guard isInCallback else { break }
      let result = hop.setRemaining(UInt64(ms) * 1_000_000)
      expect(result, hop.currentEvent == .start ? .ok : .state, "sets a deadline")
      if result == .ok { model.expectedDeadline = play.time + UInt64(ms) * 1_000_000 }
    case .resolveEarly(let end):
      guard isInCallback else { break }
      let kind = hop.currentEvent
      let before = hop.ticket
      let ticket = hop.takeTicket()
      guard ticket != 0 else { break }
      if before == 0 { model.issued(ticket, kind) }
      play.use(ticket, end)
    case .deliverHeaders:
      let mine = model.hops[index]
      let isOpen = mine.mayDeliver && !mine.messageDelivered && !mine.statusDelivered
      let expected: Outcome =
        model.isGone(index)
        ? .gone : !mine.mayDeliver ? .state : mine.headersDelivered ? .already : isOpen ? .ok : .state
      let result = play.submitting(.deliver(index, Model.Item(.headers))) { hop.deliverHeaders(Metadata()) }
      expect(result, expected, "delivers headers")
      if result == .ok { mine.headersDelivered = true }
    case .deliverStatus(let code):
      let mine = model.hops[index]
      let expected: Outcome =
        model.isGone(index) ? .gone : !mine.mayDeliver ? .state : mine.statusDelivered ? .already : .ok
      let item = play.status(code)
      let result = play.submitting(.deliver(index, item)) { hop.deliverStatus(play.statusObject(item)) }
      expect(result, expected, "delivers status \(item.id)")
      if result == .ok { mine.statusDelivered = true }
    }
  }

  private func injectInbound(_ size: Int, _ hop: Hop) {
    let mine = model.hops[index]
    guard isInCallback || kept != nil else { return }
    let expected = model.resultOfInjectInbound(index)
    let item = Model.Item(.receive, id: play.identity(size), size: size)
    let isPosted = mine.isTaken || !play.isDriving
    let message = play.message(item)
    let result =
      isPosted
      ? play.submitting(.deliver(index, item)) { hop.injectInbound(message) } : hop.injectInbound(message)
    // Another thread may ask when the hop's part is over but its end is not there yet.
    let isRace = !play.isDriving && expected == .state && !mine.statusDelivered
    let isLate = model.renewed && expected == .ok && result == .wouldBlock
    if expected == .wouldBlock, result == .ok, model.mayDiffer() { return }
    if !isRace, !isLate { expect(result, expected, "delivers message \(item.id)") }
    if result == .ok, expected == .ok { model.injectInbound(index, item, isPosted: isPosted) }
  }

  private func change(_ hop: Hop) {
    switch hop.currentEvent {
    case .start:
      mark(hop.metadata!)
      model.requestMarks.marks.append(index)
    case .headers:
      mark(hop.metadata!)
      model.change { $0.marks.append(index) }
    case .status:
      let status = hop.status!
      guard !status.isLocal else { return }
      mark(status.trailers)
      status.setCode(StatusCode(rawValue: (status.code.rawValue + 1) % 17)!)
      model.change {
        $0.marks.append(index)
        $0.code = ($0.code + 1) % 17
      }
    case .send, .receive:
      let size = hop.message!.count == 0 ? 8 : hop.message!.count - 1
      let item = Model.Item(.send, id: play.identity(size), size: size)
      // Ids stand in eight bytes or more.
      let fresh = play.message(item)
      expect(hop.setMessage(fresh.view), .ok, "replaces the message by \(item.id)")
      model.change {
        $0.id = item.id
        $0.size = size
      }
    case .none, .halfClose, .cancel, .demand, .sent, .create, .destroy: break
    }
  }

  private func mark(_ metadata: Metadata) {
    _ = with("\(index)") { metadata.add(("mark" as StaticString).bytes, $0) }
  }
}
