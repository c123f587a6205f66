import PenstockCall
import PenstockWire

/// One hop: what its callbacks do is its plan.
final class HopPlayer {
  private unowned(unsafe) let play: Play
  let index: Int
  let plan: HopPlan
  private var done = [Int](repeating: 0, count: 12)
  /// The handle, for other threads.
  var kept: Hop?
  private var finishing: Model.Item?
  private var isInCallback = false
  /// That the running callback has taken.
  private var ticket: UInt64 = 0
  /// One for each instance.
  private var states: [State] = []

  /// What stands behind `user_data` and, with `create`, behind the hop's state.
  final class State {
    /// Both outlive it: a play keeps them until its call is gone.
    unowned(unsafe) let first: HopPlayer
    unowned(unsafe) let last: HopPlayer
    unowned(unsafe) let play: Play
    let isCreated: Bool

    init(_ first: HopPlayer, _ last: HopPlayer, isCreated: Bool) {
      self.first = first
      self.last = last
      play = first.play
      self.isCreated = isCreated
    }

    /// One for each level.
    func player(_ hop: Hop) -> HopPlayer { hop.level == .object ? first : last }
  }

  init(_ play: Play, _ index: Int, _ plan: HopPlan) {
    self.play = play
    self.index = index
    self.plan = plan
  }

  private var model: Model { play.model }

  private static func from(_ pointer: UnsafeMutableRawPointer?, _ handle: OpaquePointer) -> HopPlayer {
    let state = Unmanaged<State>.fromOpaque(pointer!).takeUnretainedValue()
    let player = state.player(Hop.from(handle))
    let wantsOwn = player.plan.create != .none
    player.model.require(
      state.isCreated == wantsOwn, "state",
      "hop \(player.index) got \(wantsOwn ? "user_data" : "a state of its own")")
    return player
  }

  /// `other`: that of the bytes level, where a registration has both.
  func registration(_ other: HopPlayer) -> Registration {
    var callbacks = Registration.Callbacks()
    if plan.create != .none {
      callbacks.create = { handle, userData, state in
        let box = Unmanaged<State>.fromOpaque(userData!).takeUnretainedValue()
        return box.player(Hop.from(handle!)).create(Hop.from(handle!), state!)
      }
    }
    if plan.has(.start) { callbacks.onStart = { HopPlayer.from($1, $0!).event(.start, $0!) } }
    if plan.has(.send) { callbacks.onSend = { HopPlayer.from($1, $0!).event(.send, $0!) } }
    if plan.has(.halfClose) { callbacks.onHalfClose = { HopPlayer.from($1, $0!).event(.halfClose, $0!) } }
    if plan.has(.headers) { callbacks.onHeaders = { HopPlayer.from($1, $0!).event(.headers, $0!) } }
    if plan.has(.receive) { callbacks.onReceive = { HopPlayer.from($1, $0!).event(.receive, $0!) } }
    if plan.has(.status) { callbacks.onStatus = { HopPlayer.from($1, $0!).event(.status, $0!) } }
    if plan.has(.cancel) { callbacks.onCancel = { HopPlayer.from($1, $0!).event(.cancel, $0!) } }
    if plan.has(.demand) { callbacks.onDemand = { HopPlayer.from($1, $0!).event(.demand, $0!) } }
    if plan.has(.sent) { callbacks.onSent = { HopPlayer.from($1, $0!).event(.sent, $0!) } }
    if plan.has(.destroy) { callbacks.destroy = { _ = HopPlayer.from($1, $0!).event(.destroy, $0!) } }
    let pointer = Unmanaged.passRetained(State(self, other, isCreated: false)).toOpaque()
    return Registration(
      id: UInt64(plan.registration + 1), name: buffer("hop\(index)\0"), filter: MethodFilter(), kinds: 0,
      level: other !== self ? .both : plan.isObject ? .object : .bytes, isPerAttempt: other.plan.isPerAttempt,
      holdBytes: plan.holdBytes,
      userData: UserData(pointer) { pointer in
        let box = Unmanaged<State>.fromOpaque(pointer!).takeRetainedValue()
        box.play.finalized += 1
      }, callbacks: callbacks, replayBytes: plan.replayBytes, maxRestarts: plan.maxRestarts)
  }

  private func create(_ hop: Hop, _ state: UnsafeMutablePointer<UnsafeMutableRawPointer?>) -> Int32 {
    model.begin(index, hop.attempt, .create, nil, count: 0)
    play.log("    hop \(index) create: \(plan.create.word)")
    let own = State(self, self, isCreated: true)
    states.append(own)
    state.pointee = Unmanaged.passUnretained(own).toOpaque()
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
    model.begin(index, hop.attempt, kind, seen, count: n)
    guard model.broken == nil else { return 0 }
    model.require(
      hop.currentEvent == kind, "event", "hop \(index) \(kind.word) says \(hop.currentEvent.word)")
    let turn = done[Int(kind.rawValue)]
    done[Int(kind.rawValue)] = turn + 1
    let reactions = plan.reactions[Int(kind.rawValue)]
    let reaction =
      turn < reactions.count ? reactions[turn] : Reaction(operations: [], verdict: 0, takesTicket: false)
    if plan.shares, kept !== hop, kind != .destroy {
      hop.becomeShared()
      kept = hop
    }
    play.log("    hop \(index) \(kind.word) \(seen?.id ?? n) code \(seen?.code ?? 0): \(reaction.words)")
    if kind == .status { expect(hop.canRestart, model.mayRestart(model.hops[index]), "may restart") }
    finishing = nil
    isInCallback = true
    ticket = 0
    for operation in reaction.operations where kind != .destroy { perform(operation, hop) }
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
    play.log("      hop \(index) \(what): \(result.word)")
    model.require(result == expected, "results", "hop \(index) \(what): \(result.word), not \(expected.word)")
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
      if play.codec != nil {
        item.isObject = !model.isObject(at: index)
        let result = hop.injectOutbound(play.message(item))
        model.require(
          result == .state || result == .gone, "levels", "hop \(index) sends across levels: \(result.word)")
      }
      item.isObject = model.isObject(at: index)
      let result = hop.injectOutbound(play.message(item))
      expect(result, expected, "sends message \(item.id)")
      if result == .ok { model.injectOutbound(index, item) }
    case .injectInbound(let size): injectInbound(size, hop)
    case .demand(let n):
      let expected: Outcome = model.isGone(index) ? .gone : .ok
      let result = play.submitting(.hopDemand(model.hops[index], n)) { hop.demand(n) }
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
      if result == .ok { model.expectedDeadline = play.loop.now + UInt64(ms) * 1_000_000 }
    case .resolveEarly(let end):
      guard isInCallback else { break }
      let kind = hop.currentEvent
      let before = ticket
      ticket = hop.takeTicket()
      guard ticket != 0 else { break }
      if before == 0 { model.issued(ticket, kind) }
      play.use(ticket, end)
    case .changeStart:
      guard isInCallback, hop.currentEvent == .status else { break }
      let mine = model.hops[index]
      let recorded = mine.unreplayable == nil && mine.plan.replayBytes > 0 && mine.recordedStart != nil
      model.require(
        (hop.requestMetadata != nil) == recorded, "restart",
        "\(mine.name): the recorded start is there: \(!recorded)")
      if let metadata = hop.requestMetadata {
        mark(metadata)
        mine.recordedStart?.marks.append(index)
      }
    case .setStartDeadline(let ms):
      guard isInCallback, hop.currentEvent == .status else { break }
      let mine = model.hops[index]
      let recorded = mine.unreplayable == nil && mine.plan.replayBytes > 0 && mine.recordedStart != nil
      let result = hop.setRemaining(UInt64(ms) * 1_000_000)
      expect(result, recorded ? .ok : .state, "sets the recorded deadline")
      if result == .ok { mine.recordedStart?.deadline = play.loop.now + UInt64(ms) * 1_000_000 }
    case .deliverHeaders:
      let mine = model.hops[index]
      let isOpen = mine.mayDeliver && !mine.messageDelivered && !mine.statusDelivered
      let expected: Outcome =
        model.isGone(index)
        ? .gone : !mine.mayDeliver ? .state : mine.headersDelivered ? .already : isOpen ? .ok : .state
      let result = play.submitting(.deliver(mine, Model.Item(.headers))) { hop.deliverHeaders(Metadata()) }
      expect(result, expected, "delivers headers")
      if result == .ok { mine.headersDelivered = true }
    case .deliverStatus(let code):
      let mine = model.hops[index]
      let expected: Outcome =
        model.isGone(index) ? .gone : !mine.mayDeliver ? .state : mine.statusDelivered ? .already : .ok
      let item = play.status(code)
      let result = play.submitting(.deliver(mine, item)) { hop.deliverStatus(play.statusObject(item)) }
      expect(result, expected, "delivers status \(item.id)")
      if result == .ok { mine.statusDelivered = true }
    }
  }

  private func injectInbound(_ size: Int, _ hop: Hop) {
    let mine = model.hops[index]
    guard isInCallback || kept != nil else { return }
    let expected = model.resultOfInjectInbound(index)
    let item = Model.Item(.receive, id: play.identity(size), size: size)
    item.isObject = model.isObject(at: index)
    let isPosted = mine.isTaken || !play.loop.isDriving
    let message = play.message(item)
    let result =
      isPosted
      ? play.submitting(.deliver(mine, item)) { hop.injectInbound(message) } : hop.injectInbound(message)
    // Another thread may ask when the hop's part is over but its end is not there yet.
    let isRace = !play.loop.isDriving && expected == .state && !mine.statusDelivered
    if isRace, result == .ok { mine.messageDelivered = true }
    if !isRace { expect(result, expected, "delivers message \(item.id)") }
    if result == .ok, expected == .ok { model.injectInbound(index, item, isPosted: isPosted) }
  }

  private func change(_ hop: Hop) {
    switch hop.currentEvent {
    case .start:
      mark(hop.metadata!)
      model.requestMarks.append(index)
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
      let message = hop.message!
      let old = play.item(hop.currentEvent, message)
      let size = old.size == 0 ? 8 : old.size - 1
      let item = Model.Item(.send, id: play.identity(size), size: size)
      // Ids stand in eight bytes or more.
      let fresh = play.bytes(item)
      if old.isObject {
        expect(hop.setMessage(fresh.view), .state, "puts bytes in an object's place")
        let thing = Thing(item.id, size, play.things)
        let another = message.codecObject!.another(Unmanaged.passRetained(thing).toOpaque())
        expect(hop.setObject(another), .ok, "replaces the object by \(item.id)")
      } else {
        expect(hop.setMessage(fresh.view), .ok, "replaces the message by \(item.id)")
      }
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
