import PenstockCall
import PenstockWire

/// One hop: what its callbacks do is its plan.
final class HopPlayer {
  unowned(unsafe) let play: Play
  let index: Int
  let plan: HopPlan
  private var done = [Int](repeating: 0, count: 12)
  /// The handle, for other threads.
  var kept: Hop?
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

  /// A callback that runs: what it is about, and what it has asked for.
  final class Context {
    let mine: Model.Hop
    let kind: EventKind
    /// nil: a signal, or nothing that the model knows.
    let item: Model.Item?
    /// On an executor: the visit, unless it is a signal's.
    let job: Model.Job?
    let isElsewhere: Bool
    var ticket: UInt64 = 0
    var finishing: Model.Item?
    // On an executor these count when the call learns of the verdict.
    var injected: [Model.Item] = []
    var marks: [Int] = []
    var deadline: UInt64?
    var channel: Int?

    init(_ mine: Model.Hop, _ kind: EventKind, _ item: Model.Item?, _ job: Model.Job?, isElsewhere: Bool) {
      self.mine = mine
      self.kind = kind
      self.item = item
      self.job = job
      self.isElsewhere = isElsewhere
    }
  }

  init(_ play: Play, _ index: Int, _ plan: HopPlan) {
    self.play = play
    self.index = index
    self.plan = plan
  }

  var model: Model { play.model }

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
    var executors = plan.executors
    if let chosen = executors, chosen.inCreate {
      executors = .init(outbound: chosen.inbound, inbound: chosen.outbound, inCreate: true)
    }
    let pointer = Unmanaged.passRetained(State(self, other, isCreated: false)).toOpaque()
    return Registration(
      id: UInt64(plan.registration + 1), name: buffer("hop\(index)\0"), filter: MethodFilter(), kinds: 0,
      level: other !== self ? .both : plan.isObject ? .object : .bytes, isPerAttempt: other.plan.isPerAttempt,
      holdBytes: plan.holdBytes,
      userData: UserData(pointer) { pointer in
        let box = Unmanaged<State>.fromOpaque(pointer!).takeRetainedValue()
        box.play.finalized += 1
      }, callbacks: callbacks, replayBytes: plan.replayBytes, maxRestarts: plan.maxRestarts,
      outboundExecutor: play.executor(executors?.outbound),
      inboundExecutor: play.executor(executors?.inbound))
  }

  private func create(_ hop: Hop, _ state: UnsafeMutablePointer<UnsafeMutableRawPointer?>) -> Int32 {
    let own = State(self, self, isCreated: true)
    states.append(own)
    state.pointee = Unmanaged.passUnretained(own).toOpaque()
    guard let mine = instance(hop, .create) else { return 0 }
    model.begin(mine, .create, nil, count: 0)
    play.log("    hop \(index) create: \(plan.create.word)")
    let verdict: Int32 = plan.create == .skip ? 6 : plan.create == .nonsense ? 3 : 0
    if let executors = plan.executors, executors.inCreate {
      let result = hop.chooseExecutors(
        play.executor(executors.outbound), play.executor(executors.inbound))
      model.require(result == .ok, "executors", "create can't choose: \(result.word)")
    }
    model.require(hop.finish(Status(.ok)) == .state, "law 2", "finish from create")
    model.require(hop.takeTicket() == 0, "tickets", "a ticket in create")
    model.end(mine, .create, verdict: verdict, ticket: 0, finishing: nil, count: 0)
    return verdict
  }

  private func instance(_ hop: Hop, _ kind: EventKind) -> Model.Hop? {
    let mine = model.instance(index, hop.attempt)
    model.require(
      mine != nil, "restart", "hop \(index) \(kind.word): there is no instance \(hop.attempt)")
    return mine
  }

  private func event(_ kind: EventKind, _ handle: OpaquePointer) -> Int32 {
    let hop = Hop.from(handle)
    guard let mine = instance(hop, kind) else { return 0 }
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
    let context = begin(mine, kind, seen, n)
    guard model.broken == nil else { return 0 }
    model.require(
      hop.currentEvent == kind, "event", "hop \(index) \(kind.word) says \(hop.currentEvent.word)")
    let turn = done[Int(kind.rawValue)]
    done[Int(kind.rawValue)] = turn + 1
    let reactions = plan.reactions[Int(kind.rawValue)]
    let reaction =
      turn < reactions.count ? reactions[turn] : Reaction(operations: [], verdict: 0, takesTicket: false)
    if plan.shares, kind != .destroy, hop.attempt >= kept?.attempt ?? 0, kept !== hop {
      hop.becomeShared()
      kept = hop
    }
    play.log(
      "    hop \(index) \(kind.word) \(seen?.id ?? n) code \(seen?.code ?? 0)"
        + "\(context.isElsewhere ? " elsewhere" : ""): \(reaction.words)")
    if kind == .status {
      let may = context.job.map { isGone(context, hop) ? .gone : $0.mayRestart } ?? model.mayRestart(mine)
      expect(hop.canRestart, may, "may restart")
    }
    if kind != .destroy {
      for operation in reaction.operations { perform(operation, hop, context) }
      if reaction.takesTicket { takeTicket(hop, context) }
    }
    end(context, reaction.verdict, hop.signalCount)
    return reaction.verdict
  }

  private func begin(_ mine: Model.Hop, _ kind: EventKind, _ seen: Model.Item?, _ n: Int) -> Context {
    guard plan.executor(of: kind) != nil else {
      model.begin(mine, kind, seen, count: n)
      return Context(mine, kind, model.runningItem, nil, isElsewhere: false)
    }
    let job = model.beginVisit(mine, kind, seen, count: n)
    return Context(mine, kind, job?.item, job, isElsewhere: true)
  }

  private func end(_ context: Context, _ verdict: Int32, _ count: Int) {
    let (mine, kind) = (context.mine, context.kind)
    guard context.isElsewhere else {
      model.end(
        mine, kind, verdict: verdict, ticket: context.ticket, finishing: context.finishing, count: count)
      return
    }
    model.endVisit(mine, kind)
    guard context.job?.isAwaited ?? (kind == .demand || kind == .sent) else { return }
    play.mark(
      .visited(
        Model.Visited(
          hop: mine, kind: kind, verdict: verdict, ticket: context.ticket, finishing: context.finishing,
          count: count, injected: context.injected, marks: context.marks, deadline: context.deadline,
          channel: context.channel)))
  }

  func takeTicket(_ hop: Hop, _ context: Context) {
    let kind = context.kind
    let fresh = hop.takeTicket()
    if context.ticket == 0, fresh != 0 { model.issued(fresh, kind) }
    model.require(
      context.ticket == 0 || context.ticket == fresh, "tickets", "another ticket for the same event")
    let pausable =
      HopPlan.laneKinds.contains(kind) && !(kind == .status && hop.status!.isLocal)
      && !(context.isElsewhere && isGone(context, hop) && context.ticket == 0)
    model.require((fresh != 0) == pausable, "tickets", "hop \(index) \(kind.word): ticket \(fresh)")
    context.ticket = fresh
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
}
