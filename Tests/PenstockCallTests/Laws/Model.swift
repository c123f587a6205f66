@testable import PenstockCall

/// The laws of the chain as a model: written from the design's words, for clarity alone.
///
/// It is told everything that goes into a call and everything that the call does, as it happens, and says whether that
/// was allowed. Between two hops there is a queue for each lane; whatever leaves a hop stands in the next one's queue
/// until it is shown. So any order of unrelated things is fine, and only that; and when the call has come to rest
/// nothing that could happen may be left undone (`checkRest`).
final class Model {
  /// One event on its way.
  final class Item {
    let kind: EventKind
    /// Tells messages and statuses apart; 0: an empty message, a status that the library made.
    var id: Int
    var size: Int
    var code: Int32
    /// The hops that have changed the metadata.
    var marks: [Int] = []
    var isLocal = false

    /// Of hold_bytes: an empty message takes one.
    var room: Int { kind == .send || kind == .receive ? max(size, 1) : 0 }

    init(_ kind: EventKind, id: Int = 0, size: Int = 0, code: Int32 = 0) {
      self.kind = kind
      self.id = id
      self.size = size
      self.code = code
    }
  }

  enum State: Equatable {
    case ready
    /// By ticket; 0: until the next NEXT.
    case held(UInt64)
    case paused(UInt64)
  }

  /// An event that stands behind its callback, to leave in order.
  struct Slot {
    let item: Item
    var state: State
    let isInjected: Bool
    /// Its `sent` stops here.
    let isAnswered: Bool
    var isHeld = false
    /// It may leave only after what runs: a callback has injected it, or demand for it has just come.
    var isFresh = false
  }

  final class Lane {
    /// Has left the neighbour; not shown yet.
    var queue: [Item] = []
    var slots: [Slot] = []

    var isPaused: Bool {
      slots.contains { if case .paused = $0.state { true } else { false } }
    }

    var heldBytes: Int { slots.reduce(0) { $0 + ($1.isHeld ? $1.item.room : 0) } }

    func releaseTicketless() {
      for index in slots.indices where slots[index].state == .held(0) { slots[index].state = .ready }
    }

    func refresh() { for index in slots.indices { slots[index].isFresh = false } }

    func index(of ticket: UInt64) -> Int? {
      slots.firstIndex { $0.state == .held(ticket) || $0.state == .paused(ticket) }
    }

    func removeAll() {
      queue = []
      slots = []
    }
  }

  enum Life { case notEntered, skipped, refused, entered }

  final class Hop {
    let index: Int
    let plan: HopPlan
    var life = Life.notEntered
    var isTaken = false
    /// What it has delivered before TAKE.
    var earlyAnswers: [Item] = []
    /// The status has left it upward.
    var hasPassed = false
    var hasFinished = false
    var isCancelled = false
    /// on_cancel has to come.
    var owesCancel = false
    var mayDestroy = false
    var isDestroyed = false
    var outbound = Lane()
    var inbound = Lane()
    var startHasLeft = false
    var halfCloseHasLeft = false
    var headersDelivered = false
    var messageDelivered = false
    var statusDelivered = false

    /// Demand that has come to it, and how much of that it has seen.
    var demandCame = 0
    var demandSeen = 0
    /// What it may send up, and how much of that is spoken for by what it has injected.
    var owed = 0
    var reserved = 0
    /// Messages that have left downward: does the `sent` of each stop here.
    var ledger: [Bool] = []
    var sentCame = 0
    var sentPassed = 0
    var sentSeen = 0

    init(_ index: Int, _ plan: HopPlan) {
      self.index = index
      self.plan = plan
    }

    var isActive: Bool {
      life == .entered && !hasPassed && !hasFinished && !isCancelled && !owesCancel && !isDestroyed
    }
    var seesDemand: Bool { startHasLeft || isTaken }
    /// It is the far end, or may become it yet.
    var mayDeliver: Bool { isTaken || (life == .entered && !startHasLeft && plan.has(.start)) }
    func has(_ kind: EventKind) -> Bool { plan.has(kind) }
  }

  struct Broken { let law: String, what: String }

  let kind: CallKind
  let hops: [Hop]
  private(set) var broken: Broken?
  /// Two orders of unrelated things are fine and lead to different ends, and the model took the other one: rare, and
  /// from here on nothing is said.
  private(set) var isUndecided = false
  private var hasHurried = false
  /// How many hands have ended the call since it was at rest.
  private var ends = 0

  var isOpen = false
  /// The caller.
  var callerQueue: [Item] = []
  var callerMessages = 0
  var callerHeaders = 0
  var callerStatus: Item?
  var callerSent = 0
  var callerSentCame = 0
  /// The server.
  var serverQueue: [Item] = []
  var serverHasStarted = false
  var serverHasEnded = false
  var serverMessages = 0
  var serverDemandCame = 0
  var serverDemand = 0
  var inTransport = 0
  var wasReset = false
  /// What comes to this hop or beyond is discarded.
  private var outboundEnd: Int
  private var local: Item?
  /// The hop at this index ends the call once what it has let go has gone as far as it can.
  private var finishing: (index: Int, status: Item)?
  /// The message and half-close of a call that is opened whole: after start, and what hops have asked for meanwhile.
  private var whole: [Item] = []
  private var wholeIsNext = false
  /// A status may leave though something is moving above.
  private var mayHurry = false
  /// After a local end: the hops that see it, from the bottom, and as what.
  private var localOrder: [(hop: Int, kind: EventKind)] = []
  /// The status has come to the caller's side.
  var isOver = false
  private var running: Hop?
  private var runningKind = EventKind.none
  private var runningItem: Item?
  let requestMarks = Item(.start)
  var expectedDeadline: UInt64?
  /// Demand was renewed in this turn: that a hop below does not have it yet is fine.
  var renewed = false

  enum TicketState { case open, spent, gone }
  var tickets: [UInt64: (state: TicketState, kind: EventKind)] = [:]

  /// What hops ask for in a callback is done after what runs, and how long after is open. The model takes one time; a
  /// scenario breaks a law only if it does so with each.
  enum Patience: CaseIterable { case some, more, none }
  private let patience: Patience

  init(_ scenario: Scenario, _ patience: Patience) {
    self.patience = patience
    kind = scenario.kind
    hops = scenario.hops.enumerated().map { Hop($0, $1) }
    outboundEnd = hops.count + 1
  }

  func require(_ condition: Bool, _ law: String, _ what: @autoclosure () -> String) {
    guard !condition, broken == nil, !isUndecided else { return }
    // Two hands that end the call at the same time, one of them a message too many: either may be the first.
    if hasEndedTwice {
      isUndecided = true
    } else {
      broken = Broken(law: law, what: what())
    }
  }

  private var hasEndedTwice: Bool { ends > 0 && (isTooMuch || ends > 1) }

  func fail(_ law: String, _ what: @autoclosure () -> String) { require(false, law, what()) }

  // MARK: - What goes in, as the call comes to it

  enum Input {
    case open(demand: Int, message: Item?)
    case send(Item)
    case halfClose
    case demand(Int)
    case end(Item)
    case headers(Item)
    case message(Item)
    case status(Item)
    case sent(Int)
    case resolve(UInt64, verdict: Verdict)
    case finish(UInt64, Item)
    case deliver(Int, Item)
    case hopDemand(Int, Int)
  }

  /// `isNested`: asked for while something ran; what hops have asked for earlier may be done later.
  func apply(_ input: Input, isNested: Bool = false) {
    guard !isOver, local == nil else { return }
    if !isNested, patience != .more {
      refreshAll()
      advance()
    }
    switch input {
    case .open(let demand, let message):
      isOpen = true
      arriveDemand(demand, at: 0)
      pushOutbound(Item(.start), 0)
      if let message {
        whole = [message, Item(.halfClose)]
      }
    case .send(let item): pushOutbound(item, 0)
    case .halfClose: pushOutbound(Item(.halfClose), 0)
    case .demand(let n): arriveDemand(n, at: 0)
    case .end(let item): endLocally(item)
    case .headers(let item): pushInbound(item, hops.count - 1)
    case .message(let item):
      serverDemand -= 1
      pushInbound(item, hops.count - 1)
    case .status(let item):
      endServer()
      pushInbound(item, hops.count - 1)
    case .sent(let n):
      inTransport -= n
      arriveSent(n, at: hops.count - 1)
    case .resolve(let ticket, let verdict): resolve(ticket, verdict)
    case .finish(let ticket, let item):
      guard let (hop, _, _) = place(of: ticket) else { break }
      finish(hop.index, item)
    case .deliver(let index, let item):
      let hop = hops[index]
      guard hop.isActive else { break }
      guard hop.isTaken || item.kind == .receive else {
        if hop.mayDeliver { hop.earlyAnswers.append(item) }
        break
      }
      switch item.kind {
      case .status: finish(index, item)
      case .receive: inject(item, hop, hop.inbound)
      default: pushInbound(item, index - 1)
      }
    case .hopDemand(let index, let n): if hops[index].isActive { arriveDemand(n, at: index + 1) }
    }
    advance()
  }

  // MARK: - What callbacks see

  func begin(_ index: Int, _ kind: EventKind, _ seen: Item?, count: Int) {
    let hop = hops[index]
    let name = "hop \(index) \(kind.word)"
    require(running == nil, "one at a time", "\(name) inside \(runningKind.word)")
    require(!hop.isDestroyed, "law 2", "\(name) after destroy")
    require(hop.plan.has(kind) || kind == .create, "callbacks", "\(name) is NULL")
    runningItem = nil
    defer {
      running = hop
      runningKind = kind
    }
    switch kind {
    case .create:
      if hop.outbound.queue.isEmpty { hurry(.above(index)) { !hop.outbound.queue.isEmpty } }
      require(
        hop.life == .notEntered && hop.outbound.queue.first?.kind == .start, "law 1",
        "\(name): no start there")
    case .start, .send, .halfClose:
      if kind == .start, hop.life == .notEntered, hop.plan.create == .none { hop.life = .entered }
      require(hop.isActive, "law 2", "\(name): not in the call any more")
      runningItem = take(hop.outbound, kind, seen, name, .above(index))
    case .headers, .receive: runningItem = seeInbound(hop, kind, seen, name)
    case .status:
      if local != nil {
        expectLocal(hop, .status, name)
        runningItem = local
        if let local, let seen { compare(seen, local, name) }
      } else {
        runningItem = seeInbound(hop, kind, seen, name)
      }
    case .cancel:
      discoverEnd(hop)
      if local != nil {
        expectLocal(hop, .cancel, name)
      } else {
        require(hop.owesCancel, "law 2", "\(name): no hand above has ended the call, or a status has passed")
      }
      hop.owesCancel = false
      hop.isCancelled = true
    case .demand:
      if !hop.seesDemand || count > hop.demandCame - hop.demandSeen { hurry() }
      require(hop.isActive, "law 2", "\(name): not in the call any more")
      require(hop.seesDemand, "demand", "\(name) before start has left the hop")
      require(
        count > 0 && count <= hop.demandCame - hop.demandSeen, "demand",
        "\(name) of \(count), asked \(hop.demandCame), seen \(hop.demandSeen)")
      hop.demandSeen = saturating(hop.demandSeen, count)
      addOwed(count, hop)
    case .sent:
      require(hop.isActive, "law 2", "\(name): not in the call any more")
      if count > hop.sentPassed - hop.sentSeen { hurry() }
      require(
        count > 0 && count <= hop.sentPassed - hop.sentSeen, "sent",
        "\(name) of \(count), told \(hop.sentPassed), seen \(hop.sentSeen)")
      hop.sentSeen += count
    case .destroy:
      discoverEnd(hop)
      require(hop.life == .entered, "law 2", "\(name), but never entered")
      require(!hop.owesCancel, "law 2", "\(name) before on_cancel")
      if local == nil, !hop.mayDestroy, !isOver { hurry() }
      if local != nil {
        require(localOrder.isEmpty, "law 2", "\(name) before every hop has seen the end")
      } else {
        require(hop.mayDestroy || isOver, "law 2", "\(name) while the call goes on")
        require(
          hop.hasPassed || hop.hasFinished || hop.isCancelled, "law 2",
          "\(name) without a status, a finish of its own or on_cancel")
      }
      hop.isDestroyed = true
    case .none: break
    }
  }

  /// The callback returns `verdict`; it has asked for `finishing`.
  func end(_ index: Int, _ kind: EventKind, verdict: Int32, ticket: UInt64, finishing: Item?, count: Int) {
    let hop = hops[index]
    let item = runningItem
    running = nil
    runningItem = nil
    defer { advance() }
    switch kind {
    case .create:
      switch hop.plan.create {
      case .none, .next: hop.life = .entered
      case .skip: hop.life = .skipped
      case .nonsense:
        hop.life = .refused
        if !hop.outbound.queue.isEmpty { hop.outbound.queue.removeFirst() }
        finish(index, Item(.status, code: 13))
      }
    case .start, .send, .halfClose, .headers, .receive, .status:
      guard let item, local == nil else { return }
      let lane = item.kind.isOutbound ? hop.outbound : hop.inbound
      lane.refresh()
      let answered = judge(hop, lane, item, verdict, ticket, finishing)
      // A message that is not to go on is still told as sent: nobody waits for it.
      if answered, kind == .send { arriveSent(1, at: index - 1) }
    case .demand:
      if let finishing {
        finish(index, finishing)
      } else if !hop.isTaken {
        arriveDemand(count, at: index + 1)
      }
    case .sent: if let finishing { finish(index, finishing) }
    case .cancel, .destroy, .none: break
    }
  }

  /// True: a message that was swallowed.
  private func judge(
    _ hop: Hop, _ lane: Lane, _ item: Item, _ answer: Int32, _ ticket: UInt64, _ finishing: Item?
  ) -> Bool {
    if let finishing {
      spend(ticket)
      finish(hop.index, finishing)
      return true
    }
    let isMessage = item.kind == .send || item.kind == .receive
    let isLast = item.kind == .halfClose || item.kind == .status
    switch Verdict(rawValue: answer) {
    case .next:
      spend(ticket)
      next(hop, lane, item)
      return false
    case .restart where item.kind == .status:
      // Nothing is recorded here: it passes.
      spend(ticket)
      next(hop, lane, item)
      return false
    case .pause where ticket != 0:
      lane.slots.append(Slot(item: item, state: .paused(ticket), isInjected: false, isAnswered: false))
      return false
    case .hold where ticket != 0 || !isLast:
      if lane.heldBytes + item.room > (hop.plan.holdBytes == 0 ? 65536 : hop.plan.holdBytes) {
        spend(ticket)
        finish(hop.index, Item(.status, code: 8))
        return true
      }
      let outbound = item.kind == .send
      lane.slots.append(
        Slot(item: item, state: .held(ticket), isInjected: false, isAnswered: outbound, isHeld: true))
      if item.kind == .receive { renew(hop) }
      return outbound
    case .drop where isMessage:
      spend(ticket)
      if item.kind == .receive { renew(hop) }
      return true
    case .take where item.kind == .start:
      spend(ticket)
      hop.isTaken = true
      return false
    default:
      spend(ticket)
      finish(hop.index, Item(.status, code: 13))
      return true
    }
  }

  // MARK: - What the caller and the server see

  func callerSees(_ kind: EventKind, _ seen: Item) {
    let name = "the caller: \(kind.word)"
    require(callerStatus == nil, "law 2", "\(name) after the status")
    if kind == .status {
      discoverEnd(nil)
      let expected = local ?? callerQueue.first
      require(expected?.kind == .status, "law 2", "\(name), but none has come to the top")
      if let expected, expected.kind == .status {
        if local == nil, expected.code == 0, callerMessages == 0, kind == .status, self.kind.receivesOne {
          require(
            seen.code == 12 && seen.id == 0, "cardinality", "OK without the one message is UNIMPLEMENTED")
        } else {
          compare(seen, expected, name)
        }
      }
      for hop in hops where hop.life == .entered {
        require(hop.isDestroyed || !hop.has(.destroy), "law 2", "\(name) before destroy of hop \(hop.index)")
        require(!hop.owesCancel || !hop.has(.cancel), "law 2", "\(name) before on_cancel of hop \(hop.index)")
      }
      require(
        localOrder.isEmpty, "law 2", "\(name) before hop \(localOrder.first?.hop ?? -1) has seen the end")
      callerStatus = seen
      isOver = true
      for (ticket, entry) in tickets where entry.state == .open { tickets[ticket]?.state = .gone }
      // However the call ended, all of its tickets are gone.
      for ticket in tickets.keys { tickets[ticket]?.state = .gone }
      return
    }
    require(local == nil, "law 3", "\(name) after a local end")
    if callerQueue.first?.kind != kind { hurry(.below(-1)) { self.callerQueue.first?.kind == kind } }
    guard let expected = callerQueue.first, expected.kind == kind else {
      fail("law 1", "\(name), next to come is \(callerQueue.first?.kind.word ?? "nothing")")
      return
    }
    callerQueue.removeFirst()
    compare(seen, expected, name)
    if kind == .receive {
      require(callerMessages == 0 || !self.kind.receivesOne, "cardinality", "a second response message")
    }
    if kind == .receive { callerMessages += 1 } else { callerHeaders += 1 }
    advance()
  }

  func callerSent(_ n: Int) {
    require(callerStatus == nil, "law 2", "the caller: sent after the status")
    callerSent += n
    if callerSent > callerSentCame { hurry() }
    require(
      n > 0 && callerSent <= callerSentCame, "sent", "the caller: \(callerSent) sent, \(callerSentCame) were")
  }

  func serverSees(_ kind: EventKind, _ seen: Item) {
    let name = "the server: \(kind.word)"
    require(!serverHasEnded, "law 3", "\(name) after the end")
    if serverQueue.first?.kind != kind { hurry(.above(hops.count)) { self.serverQueue.first?.kind == kind } }
    guard let expected = serverQueue.first, expected.kind == kind else {
      fail("law 1", "\(name), next to come is \(serverQueue.first?.kind.word ?? "nothing")")
      return
    }
    serverQueue.removeFirst()
    compare(seen, expected, name)
    switch kind {
    case .start:
      require(!serverHasStarted, "law 1", "\(name) twice")
      serverHasStarted = true
    case .send:
      require(serverMessages == 0 || !self.kind.sendsOne, "cardinality", "a second request message")
      serverMessages += 1
      inTransport += 1
    case .halfClose: require(serverMessages > 0 || !self.kind.sendsOne, "cardinality", "no request message")
    default: break
    }
    advance()
  }

  func serverReset() {
    if !serverHasEnded, local == nil { discoverEnd(nil) }
    require(serverHasStarted, "law 3", "reset of what was not opened")
    require(!wasReset, "law 3", "reset twice")
    require(serverHasEnded || local != nil, "law 3", "reset while the call goes on")
    wasReset = true
  }

  var wantsMessage: Bool {
    serverHasStarted && !serverHasEnded && serverDemand > 0 && !isOver && local == nil
      && !hops.contains { $0.inbound.isPaused }
  }

  // MARK: - What hops ask for

  /// Destroyed, whether it wants to know or not.
  func isGone(_ index: Int) -> Bool {
    let hop = hops[index]
    if hop.isDestroyed { return true }
    return !hop.has(.destroy) && hop !== running && (isOver || (hop.mayDestroy && !hop.owesCancel))
  }

  func resultOfInjectOutbound(_ index: Int) -> Outcome {
    let hop = hops[index]
    if isGone(index) { return .gone }
    let allowed = hop.isActive && local == nil && hop.startHasLeft && !hop.isTaken && !hop.halfCloseHasLeft
    return allowed ? .ok : .state
  }

  func injectOutbound(_ index: Int, _ item: Item) {
    inject(item, hops[index], hops[index].outbound)
    advance()
  }

  /// Injected on the driving thread, or asked for on another one.
  func resultOfInjectInbound(_ index: Int) -> Outcome {
    let hop = hops[index]
    if isGone(index) { return .gone }
    if !hop.isActive || local != nil || !hop.seesDemand || hop.statusDelivered { return .state }
    return hop.owed > hop.reserved ? .ok : .wouldBlock
  }

  /// `isPosted`: it comes later, by `deliver`.
  func injectInbound(_ index: Int, _ item: Item, isPosted: Bool) {
    hops[index].reserved += 1
    hops[index].messageDelivered = true
    guard !isPosted else { return }
    inject(item, hops[index], hops[index].inbound)
    advance()
  }

  /// A hop's message was taken, and there was no demand for it here. False: that cannot be.
  func mayDiffer() -> Bool {
    isUndecided = hasHurried
    return hasHurried
  }

  /// The running callback changes its event.
  func change(_ body: (Item) -> Void) { if let runningItem { body(runningItem) } }

  func issued(_ ticket: UInt64, _ kind: EventKind) { tickets[ticket] = (.open, kind) }

  /// What using a ticket gives; it is spent if that is OK.
  func use(_ ticket: UInt64, _ end: End) -> Outcome {
    guard let entry = tickets[ticket] else { return .gone }
    switch entry.state {
    case .gone: return .gone
    case .spent: return .already
    case .open: break
    }
    switch end {
    case .after: return .ok
    case .finish: break
    case .verdict(let verdict):
      switch verdict {
      case .next: break
      case .drop where entry.kind == .send || entry.kind == .receive: break
      case .take where entry.kind == .start: break
      case .restart where entry.kind == .status: break
      default: return .invalidArgument
      }
    }
    tickets[ticket]?.state = .spent
    return .ok
  }

  // MARK: - At rest

  /// Nothing is posted, no one is running: whatever could happen has happened.
  func checkRest(wants: Bool, deadline: UInt64?) {
    guard isOpen, !isOver, local == nil else { return }
    renewed = false
    hurry()
    hasHurried = false
    ends = 0
    for hop in hops {
      let name = "hop \(hop.index)"
      require(!hop.owesCancel || !hop.has(.cancel), "law 2", "\(name): on_cancel did not come")
      require(
        !hop.mayDestroy || hop.isDestroyed || hop.life != .entered || !hop.has(.destroy), "law 2",
        "\(name): destroy did not come")
      guard hop.isActive || hop.life == .notEntered else { continue }
      if let next = hop.outbound.queue.first, !hop.outbound.isPaused, hop.index < outboundEnd {
        fail("law 1", "\(name) was not shown its \(next.kind.word)")
      }
      if let next = hop.inbound.queue.first, !hop.inbound.isPaused {
        fail("law 1", "\(name) was not shown its \(next.kind.word)")
      }
      guard hop.isActive else { continue }
      require(
        !hop.seesDemand || hop.demandSeen == hop.demandCame, "demand",
        "\(name): asked for \(hop.demandCame), told of \(hop.demandSeen)")
      require(
        !hop.has(.sent) || hop.sentSeen == hop.sentPassed, "sent",
        "\(name): \(hop.sentPassed) were sent, told of \(hop.sentSeen)")
    }
    require(serverQueue.isEmpty, "law 1", "the server did not get its \(serverQueue.first?.kind.word ?? "")")
    require(callerQueue.isEmpty, "law 1", "the caller did not get its \(callerQueue.first?.kind.word ?? "")")
    require(
      callerSent == callerSentCame, "sent", "the caller: \(callerSentCame) were sent, told of \(callerSent)")
    require(
      wants == wantsMessage, "demand",
      "the call \(wants ? "wants" : "does not want") a message, \(serverDemand)")
    require(
      !serverHasEnded || !serverHasStarted || wasReset || serverSaidStatus, "law 3",
      "the stream was not reset")
    require(deadline == expectedDeadline, "law 4", "the deadline is armed for another time")
  }

  private var serverSaidStatus = false

  // MARK: - How things move

  private func pushOutbound(_ item: Item, _ index: Int) {
    if index < hops.count { hops[index].outbound.queue.append(item) } else { serverQueue.append(item) }
  }

  private func pushInbound(_ item: Item, _ index: Int) {
    if index >= 0 { hops[index].inbound.queue.append(item) } else { callerQueue.append(item) }
  }

  private func next(_ hop: Hop, _ lane: Lane, _ item: Item) {
    lane.releaseTicketless()
    lane.refresh()
    lane.slots.append(Slot(item: item, state: .ready, isInjected: false, isAnswered: false))
  }

  /// Behind what is parked there, but before the lane's last event.
  private func inject(_ item: Item, _ hop: Hop, _ lane: Lane) {
    let slot = Slot(
      item: item, state: .ready, isInjected: true, isAnswered: true,
      isFresh: running != nil && patience != .none)
    if let last = lane.slots.last, last.item.kind == .halfClose || last.item.kind == .status {
      lane.slots.insert(slot, at: lane.slots.count - 1)
    } else {
      lane.slots.append(slot)
    }
  }

  private func take(_ lane: Lane, _ kind: EventKind, _ seen: Item?, _ name: String, _ part: Part) -> Item? {
    require(!lane.isPaused, "law 1", "\(name) behind a paused event")
    if lane.queue.first?.kind != kind { hurry(part) { lane.queue.first?.kind == kind } }
    guard let item = lane.queue.first, item.kind == kind else {
      fail("law 1", "\(name), next to come is \(lane.queue.first?.kind.word ?? "nothing")")
      return nil
    }
    lane.queue.removeFirst()
    if let seen { compare(seen, item, name) }
    return item
  }

  private func seeInbound(_ hop: Hop, _ kind: EventKind, _ seen: Item?, _ name: String) -> Item? {
    require(hop.isActive, "law 2", "\(name): not in the call any more")
    return take(hop.inbound, kind, seen, name, .below(hop.index))
  }

  private func compare(_ seen: Item, _ expected: Item, _ name: String) {
    require(
      seen.id == expected.id && seen.size == expected.size, "law 1",
      "\(name) is \(seen.id) of \(seen.size) bytes, next to come is \(expected.id) of \(expected.size)")
    require(seen.code == expected.code, "law 3", "\(name) says \(seen.code), not \(expected.code)")
    let marks = expected.kind == .start ? requestMarks.marks : expected.marks
    require(seen.marks == marks, "law 5", "\(name) was changed by \(seen.marks), not \(marks)")
    require(seen.isLocal == expected.isLocal, "law 2", "\(name) local: \(seen.isLocal)")
  }

  private func resolve(_ ticket: UInt64, _ verdict: Verdict) {
    guard let (hop, lane, index) = place(of: ticket) else { return }
    switch verdict {
    case .drop:
      let slot = lane.slots.remove(at: index)
      if slot.item.kind == .send, !slot.isAnswered { arriveSent(1, at: hop.index - 1) }
      if slot.item.kind == .receive, !slot.isHeld { renew(hop) }
    case .take:
      lane.slots.remove(at: index)
      hop.isTaken = true
    default:
      lane.slots[index].state = .ready
      lane.releaseTicketless()
    }
  }

  private func place(of ticket: UInt64) -> (Hop, Lane, Int)? {
    for hop in hops {
      if let index = hop.outbound.index(of: ticket) { return (hop, hop.outbound, index) }
      if let index = hop.inbound.index(of: ticket) { return (hop, hop.inbound, index) }
    }
    return nil
  }

  private func spend(_ ticket: UInt64) {
    if ticket != 0, tickets[ticket]?.state == .open { tickets[ticket]?.state = .spent }
  }

  private func renew(_ hop: Hop) {
    renewed = true
    arriveDemand(1, at: hop.index + 1)
  }

  private func arriveDemand(_ n: Int, at index: Int) {
    guard n > 0 else { return }
    if index == hops.count {
      serverDemandCame = saturating(serverDemandCame, n)
    } else {
      hops[index].demandCame = saturating(hops[index].demandCame, n)
    }
  }

  private func arriveSent(_ n: Int, at index: Int) {
    guard n > 0 else { return }
    guard index >= 0 else {
      callerSentCame += n
      return
    }
    let hop = hops[index]
    guard hop.life == .entered else { return arriveSent(n, at: index - 1) }
    require(hop.sentCame + n <= hop.ledger.count, "model", "hop \(index): more sent than it has passed on")
    guard hop.sentCame + n <= hop.ledger.count else { return }
    let passed = hop.ledger[hop.sentCame..<hop.sentCame + n].count { !$0 }
    hop.sentCame += n
    hop.sentPassed += passed
    arriveSent(passed, at: index - 1)
  }

  private func saturating(_ a: Int, _ b: Int) -> Int {
    let (sum, overflow) = a.addingReportingOverflow(b)
    return overflow ? Int.max : sum
  }

  /// Moves what moves by itself: out of hops in order, past callbacks that are not there.
  private func advance() {
    guard local == nil, !isOver else { return }
    var moved = true
    while moved, !isOver {
      moved = false
      for hop in hops where hop !== running {
        if leaveDown(hop) || leaveUp(hop) || passDown(hop) || passUp(hop) || passDemand(hop) { moved = true }
      }
      if serverHasEnded || outboundEnd <= hops.count { moved = discard(&serverQueue, hops.count) || moved }
      if serverHasStarted, !serverHasEnded, serverDemandCame > 0 {
        serverDemand = saturating(serverDemand, serverDemandCame)
        serverDemandCame = 0
      }
      if callerQueue.first?.kind == .status { isOver = true }
      if !whole.isEmpty, mayHurry || (!moved && finishing == nil && !isMoving(below: -1)) {
        moved = true
        if wholeIsNext || mayHurry {
          hops.first?.outbound.queue.append(contentsOf: whole)
          if hops.isEmpty { serverQueue.append(contentsOf: whole) }
          whole = []
        } else {
          wholeIsNext = true
          refreshAll()
        }
      }
      if let hop = hops.first(where: { $0.isTaken && !$0.earlyAnswers.isEmpty && $0.isActive }),
        mayHurry || (!moved && finishing == nil && !isMoving(below: -1))
      {
        moved = true
        let answer = hop.earlyAnswers.removeFirst()
        if answer.kind == .status { finish(hop.index, answer) } else { pushInbound(answer, hop.index - 1) }
      }
      if let (index, status) = finishing, !mayLeaveUp(hops[index]), !isMoving(above: index) {
        finishing = nil
        moved = true
        if hops[index].isActive { finishNow(index, status) }
      }
    }
  }

  private func leaveDown(_ hop: Hop) -> Bool {
    guard finishing == nil, let slot = hop.outbound.slots.first, slot.state == .ready else { return false }
    if slot.item.kind == .start, !hop.startHasLeft {
      // The demand that waits with it goes first.
      hop.startHasLeft = true
      if !hop.isTaken {
        hop.headersDelivered = false
        hop.statusDelivered = false
        hop.earlyAnswers = []
      }
      return true
    }
    guard mayHurry || (!isMoving(below: hop.index) && !slot.isFresh) else { return false }
    hop.outbound.slots.removeFirst()
    switch slot.item.kind {
    case .halfClose: hop.halfCloseHasLeft = true
    default: break
    }
    if hop.isTaken {
      if slot.item.kind == .send, !slot.isAnswered { arriveSent(1, at: hop.index - 1) }
      return true
    }
    if slot.item.kind == .send { hop.ledger.append(slot.isAnswered) }
    pushOutbound(slot.item, hop.index + 1)
    return true
  }

  private func mayLeaveUp(_ hop: Hop) -> Bool {
    guard let first = hop.inbound.slots.first, first.state == .ready, !first.isFresh else { return false }
    return first.item.kind != .receive || hop.owed > 0
  }

  private func leaveUp(_ hop: Hop) -> Bool {
    guard hop.index <= finishing?.index ?? Int.max, let slot = hop.inbound.slots.first, slot.state == .ready,
      mayHurry || !slot.isFresh && !isMoving(above: hop.index)
    else { return false }
    switch slot.item.kind {
    case .receive:
      guard hop.owed > 0 else { return false }
      hop.owed -= 1
      if slot.isInjected { hop.reserved -= 1 }
    case .status:
      hop.hasPassed = true
      endOutbound(hop.index)
      discardOutbound(hop)
    default: break
    }
    hop.inbound.slots.removeFirst()
    pushInbound(slot.item, hop.index - 1)
    return true
  }

  /// Where what was not to leave yet may have left: it is fine if unrelated things are done in another order.
  private enum Part {
    case everywhere
    /// In front of this hop on the way out, on the way in.
    case above(Int)
    case below(Int)
  }

  /// The nearest place first, and no more of them than it takes.
  private func hurry(_ part: Part = .everywhere, until done: () -> Bool = { false }) {
    hasHurried = true
    switch part {
    case .everywhere:
      refreshAll()
      advance()
      if done() { return }
    case .above(let index):
      for hop in hops[..<index].reversed() {
        hop.outbound.refresh()
        advance()
        if done() { return }
      }
    case .below(let index):
      for hop in hops[(index + 1)...] {
        hop.inbound.refresh()
        advance()
        if done() { return }
      }
    }
    mayHurry = true
    advance()
    mayHurry = false
  }

  private func refreshAll() {
    for hop in hops {
      hop.outbound.refresh()
      hop.inbound.refresh()
    }
  }

  /// An event goes as far as it can, with the demand that start takes along and with all that follows from it, before
  /// the next one leaves.
  private func isMoving(below index: Int) -> Bool {
    if serverQueue.contains(where: { $0.kind != .start || !serverHasEnded }) || isMoving(above: hops.count) {
      return true
    }
    return hops[max(index, 0)...].contains { hop in
      if hop.isActive, hop.seesDemand, hop.demandCame > hop.demandSeen { return true }
      guard hop.index > index else { return false }
      if let first = hop.outbound.slots.first, first.state == .ready, !first.isFresh { return true }
      return !hop.outbound.isPaused && !hop.outbound.queue.isEmpty
    }
  }

  private func isMoving(above index: Int) -> Bool {
    if running != nil || !callerQueue.isEmpty { return true }
    return hops[..<max(index, 0)].contains { hop in
      if mayLeaveUp(hop) { return true }
      return !hop.inbound.isPaused && !hop.inbound.queue.isEmpty
    }
  }

  private func passDown(_ hop: Hop) -> Bool {
    if hop.index >= outboundEnd { return discard(&hop.outbound.queue, hop.index) }
    guard finishing == nil, let item = hop.outbound.queue.first, !hop.outbound.isPaused else { return false }
    guard mayHurry || !isMoving(below: hop.index),
      mayHurry || hop.outbound.slots.first?.item.kind != .start
        || hop.outbound.slots.first?.state != .ready
    else { return false }
    if hop.life == .skipped {
      hop.outbound.queue.removeFirst()
      pushOutbound(item, hop.index + 1)
      return true
    }
    if hop.life == .notEntered {
      guard hop.plan.create == .none, !hop.has(.start) else { return false }
      hop.life = .entered
    }
    guard hop.isActive, !hop.has(item.kind) else { return false }
    hop.outbound.queue.removeFirst()
    next(hop, hop.outbound, item)
    return true
  }

  private func passUp(_ hop: Hop) -> Bool {
    guard hop.index < finishing?.index ?? Int.max else { return false }
    guard let item = hop.inbound.queue.first, !hop.inbound.isPaused, mayHurry || !isMoving(above: hop.index)
    else {
      return false
    }
    if !hop.isActive {
      hop.inbound.queue.removeFirst()
      pushInbound(item, hop.index - 1)
      return true
    }
    guard !hop.has(item.kind) else { return false }
    hop.inbound.queue.removeFirst()
    next(hop, hop.inbound, item)
    return true
  }

  private func passDemand(_ hop: Hop) -> Bool {
    let pending = hop.demandCame - hop.demandSeen
    guard pending > 0, hop.life != .notEntered else { return false }
    if hop.life == .skipped || (!hop.isActive && hop.seesDemand) {
      hop.demandSeen = hop.demandCame
      arriveDemand(pending, at: hop.index + 1)
      return true
    }
    guard hop.seesDemand, !hop.has(.demand) else { return false }
    hop.demandSeen = hop.demandCame
    addOwed(pending, hop)
    if !hop.isTaken { arriveDemand(pending, at: hop.index + 1) }
    return true
  }

  /// What has waited for demand leaves after what runs.
  private func addOwed(_ n: Int, _ hop: Hop) {
    let hadNone = hop.owed == 0
    hop.owed = saturating(hop.owed, n)
    if hadNone, patience != .none, finishing?.index != hop.index, !hop.inbound.slots.isEmpty {
      hop.inbound.slots[0].isFresh = true
    }
  }

  private func discard(_ queue: inout [Item], _ index: Int) -> Bool {
    guard !queue.isEmpty else { return false }
    let messages = queue.count { $0.kind == .send }
    queue = []
    arriveSent(messages, at: index - 1)
    return true
  }

  // MARK: - How it ends

  private func endOutbound(_ index: Int) { outboundEnd = min(outboundEnd, max(index, 0)) }

  private func lose(_ lane: Lane) {
    for slot in lane.slots {
      switch slot.state {
      case .held(let ticket), .paused(let ticket):
        if tickets[ticket]?.state == .open { tickets[ticket]?.state = .gone }
      case .ready: break
      }
    }
  }

  private func discardOutbound(_ hop: Hop) {
    lose(hop.outbound)
    let abandoned =
      hop.outbound.queue.count { $0.kind == .send }
      + hop.outbound.slots.count { $0.item.kind == .send && !$0.isAnswered }
    hop.outbound.removeAll()
    arriveSent(abandoned, at: hop.index - 1)
  }

  private func discardInbound(_ hop: Hop) {
    lose(hop.inbound)
    hop.inbound.removeAll()
  }

  private func endServer() {
    guard !serverHasEnded else { return }
    serverHasEnded = true
    serverSaidStatus = true
    endOutbound(hops.count)
    let n = inTransport
    inTransport = 0
    arriveSent(n, at: hops.count - 1)
  }

  /// The hop at `index` ends the call; hops.count: below the last one, -1: above the top one.
  private func finish(_ index: Int, _ status: Item) {
    guard index >= 0, index < hops.count else { return finishNow(index, status) }
    // What may leave the hop leaves it before the status, and has its own consequences first.
    hops[index].inbound.refresh()
    guard mayLeaveUp(hops[index]) else { return finishNow(index, status) }
    finishing = (index, status)
    advance()
  }

  private var isTooMuch: Bool {
    kind.receivesOne && callerMessages + callerQueue.count(where: { $0.kind == .receive }) > 1
  }

  private func finishNow(_ index: Int, _ status: Item) {
    ends += 1
    if !serverHasEnded {
      endServer()
      serverSaidStatus = false
    }
    endOutbound(index)
    for hop in hops where hop.index > index {
      discardOutbound(hop)
      discardInbound(hop)
      guard hop.life == .entered else { continue }
      if hop.isActive {
        if hop.has(.cancel) { hop.owesCancel = true } else { hop.isCancelled = true }
      }
      hop.mayDestroy = true
    }
    if index >= 0, index < hops.count {
      let hop = hops[index]
      discardOutbound(hop)
      discardInbound(hop)
      hop.hasFinished = true
    }
    pushInbound(status, index - 1)
  }

  private func endLocally(_ status: Item) {
    local = status
    status.isLocal = true
    serverHasEnded = true
    callerQueue = []
    for hop in hops.reversed() {
      let overtakes = hop.isTaken || hop.inbound.slots.contains { $0.item.kind == .status }
      lose(hop.outbound)
      lose(hop.inbound)
      hop.outbound.removeAll()
      hop.inbound.removeAll()
      guard hop.isActive else { continue }
      let kind: EventKind = overtakes ? .cancel : .status
      if hop.has(kind) { localOrder.append((hop.index, kind)) }
    }
  }

  private func expectLocal(_ hop: Hop, _ kind: EventKind, _ name: String) {
    guard let first = localOrder.first, first.hop == hop.index, first.kind == kind else {
      let next = localOrder.first.map { "hop \($0.hop) \($0.kind.word)" } ?? "nothing"
      fail("law 4", "\(name) of a local end, next to come is \(next)")
      return
    }
    localOrder.removeFirst()
    hop.isCancelled = true
  }

  /// A message too many or too few ends the call by itself, once it has come to the end of the chain; that shows in
  /// what is seen next.
  private func discoverEnd(_ hop: Hop?) {
    guard local == nil, !isOver, hop?.owesCancel != true, hop?.mayDestroy != true else { return }
    if discover(hop) { return }
    var found = false
    hurry {
      found = self.isOver || self.discover(hop)
      return found
    }
    if !found, !isOver { _ = discover(hop) }
  }

  private func discover(_ hop: Hop?) -> Bool {
    if let first = serverQueue.first, !serverHasEnded, kind.sendsOne {
      let isWrong =
        first.kind == .send ? serverMessages == 1 : first.kind == .halfClose && serverMessages == 0
      if isWrong {
        endByItself(hops.count)
        return true
      }
    }
    if isTooMuch {
      endByItself(-1)
      return true
    }
    guard let (index, status) = finishing, hop.map({ $0.index >= index }) ?? true else { return false }
    finishing = nil
    guard hops[index].isActive else { return false }
    finishNow(index, status)
    return true
  }

  private func endByItself(_ index: Int) {
    // One that has come too late to be seen may have been the first.
    if index < 0, kind.sendsOne { ends += 1 }
    if index < 0 {
      callerQueue.removeSubrange(min(max(1 - callerMessages, 0), callerQueue.count)...)
    } else {
      let discarded = serverQueue.count { $0.kind == .send }
      serverQueue = []
      arriveSent(discarded, at: hops.count - 1)
    }
    finishing = nil
    finishNow(index, Item(.status, code: index < 0 ? 12 : 13))
    advance()
  }
}

extension EventKind {
  var isOutbound: Bool { self == .start || self == .send || self == .halfClose }
}
