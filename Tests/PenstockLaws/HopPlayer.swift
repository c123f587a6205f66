import PenstockCall
import PenstockWire

/// Plays one hop of a call: its callbacks do what the hop's plan says, and report each event to the model.
final class HopPlayer {
  unowned(unsafe) let play: Play
  let index: Int
  let plan: HopPlan
  private var done = [Int](repeating: 0, count: 12)
  /// The hop's handle, if the plan keeps it for other threads.
  var kept: Hop?
  /// The states that `create` has made: one for each attempt of the hop.
  private var states: [State] = []

  /// The object behind `user_data`, and for a hop with `create` also behind its state. `player` finds the
  /// player of the hop, and `finalized` is called when the finalizer runs.
  final class State {
    let isCreated: Bool
    let player: (Hop) -> HopPlayer?
    let finalized: () -> Void

    init(isCreated: Bool, player: @escaping (Hop) -> HopPlayer?, finalized: @escaping () -> Void = {}) {
      self.isCreated = isCreated
      self.player = player
      self.finalized = finalized
    }

    static func at(_ pointer: UnsafeMutableRawPointer?) -> State {
      Unmanaged<State>.fromOpaque(pointer!).takeUnretainedValue()
    }
  }

  /// A callback that runs now: its event, and the operations that it has performed.
  final class Context {
    let mine: Model.Hop
    let kind: EventKind
    /// The event as the model knows it. nil: the event is a signal, or the model does not know it.
    let item: Model.Item?
    /// The model's job, if the callback runs on an executor. nil for a signal, and on the driving thread.
    let job: Model.Job?
    let isElsewhere: Bool
    var ticket: UInt64 = 0
    var finishing: Model.Item?
    // In a callback on an executor these take effect only when the call learns of the verdict.
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
  /// The index of this hop in the model's list of hops.
  var place: Int { model.place(of: index) }

  /// Runs a callback of a hop. If no player is found for the hop, that is reported as a failure.
  private static func run(
    _ pointer: UnsafeMutableRawPointer?, _ handle: OpaquePointer?, _ kind: EventKind
  ) -> Int32 {
    let state = State.at(pointer)
    guard let player = state.player(Hop.from(handle!)) else { return 0 }
    let wantsOwn = player.plan.create != .none
    player.model.require(
      state.isCreated == wantsOwn, "state",
      "hop \(player.index) got \(wantsOwn ? "user_data" : "a state of its own")")
    return player.event(kind, handle!)
  }

  /// Makes a registration whose callbacks find their player through `state`. If the registration is for both
  /// levels, `other` is the plan of its hop at the bytes level. `executors`: the outbound and the inbound
  /// executor.
  static func registration(
    _ plan: HopPlan, _ other: HopPlan?, _ state: State, id: Int, executors: (FakeExecutor?, FakeExecutor?)
  ) -> Registration {
    var callbacks = Registration.Callbacks()
    if plan.create != .none {
      callbacks.create = { handle, userData, state in
        let hop = Hop.from(handle!)
        return State.at(userData).player(hop)?.create(hop, state!) ?? 0
      }
    }
    if plan.has(.start) { callbacks.onStart = { HopPlayer.run($1, $0, .start) } }
    if plan.has(.send) { callbacks.onSend = { HopPlayer.run($1, $0, .send) } }
    if plan.has(.halfClose) { callbacks.onHalfClose = { HopPlayer.run($1, $0, .halfClose) } }
    if plan.has(.headers) { callbacks.onHeaders = { HopPlayer.run($1, $0, .headers) } }
    if plan.has(.receive) { callbacks.onReceive = { HopPlayer.run($1, $0, .receive) } }
    if plan.has(.status) { callbacks.onStatus = { HopPlayer.run($1, $0, .status) } }
    if plan.has(.cancel) { callbacks.onCancel = { HopPlayer.run($1, $0, .cancel) } }
    if plan.has(.demand) { callbacks.onDemand = { HopPlayer.run($1, $0, .demand) } }
    if plan.has(.sent) { callbacks.onSent = { HopPlayer.run($1, $0, .sent) } }
    if plan.has(.destroy) { callbacks.destroy = { _ = HopPlayer.run($1, $0, .destroy) } }
    return Registration(
      id: UInt64(id), name: buffer("hop\(id)\0"), filter: MethodFilter(), kinds: 0,
      level: other != nil ? .both : plan.isObject ? .object : .bytes,
      isPerAttempt: (other ?? plan).isPerAttempt, holdBytes: plan.holdBytes,
      userData: UserData(Unmanaged.passRetained(state).toOpaque()) {
        Unmanaged<State>.fromOpaque($0!).takeRetainedValue().finalized()
      }, callbacks: callbacks, replayBytes: plan.replayBytes, maxRestarts: plan.maxRestarts,
      headersWait: plan.headersWait,
      outboundExecutor: executors.0, inboundExecutor: executors.1)
  }

  private func create(_ hop: Hop, _ state: UnsafeMutablePointer<UnsafeMutableRawPointer?>) -> Int32 {
    // The player exists longer than the call, so the reference need not be counted.
    let own = State(isCreated: true, player: { [unowned(unsafe) self] _ in self })
    states.append(own)
    state.pointee = Unmanaged.passUnretained(own).toOpaque()
    guard let mine = instance(hop, .create) else { return 0 }
    model.require(hop.index == index, "registry", "hop \(index) stands at \(hop.index)")
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
    let mine = model.instance(place, hop.attempt)
    model.require(
      mine != nil, "restart", "hop \(index) \(kind.word): there is no instance \(hop.attempt)")
    return mine
  }

  private func event(_ kind: EventKind, _ handle: OpaquePointer) -> Int32 {
    let hop = Hop.from(handle)
    guard let mine = instance(hop, kind) else { return 0 }
    model.require(hop.index == index, "registry", "hop \(index) stands at \(hop.index)")
    play.onEvent()
    let seen: Model.Item? =
      switch kind {
      case .start: startItem(hop)
      case .send, .receive: play.item(kind, hop.message!)
      case .headers: headersItem(hop)
      case .status, .cancel: play.item(hop.status!)
      case .halfClose: Model.Item(.halfClose)
      case .none, .demand, .sent, .create, .destroy, .pick: nil
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
    let ending = seen?.isLocal == true ? plan.ending : nil
    guard let number = ending ?? plan.executor(of: kind) else {
      model.require(play.loop.isDriving, "executors", "hop \(index) \(kind.word) on an executor")
      model.begin(mine, kind, seen, count: n)
      return Context(mine, kind, model.runningItem, nil, isElsewhere: false)
    }
    let executor = play.scenario.executors[number]
    model.require(
      executor.isInline || executor.refusesFrom > 0 || play.loop.thread == UInt(number + 2), "executors",
      "hop \(index) \(kind.word) on thread \(play.loop.thread)")
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
    if context.ticket == 0, fresh != 0 { model.issued(fresh, kind, context.mine) }
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
