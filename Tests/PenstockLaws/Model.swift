import PenstockCall

/// The laws of the chain (docs/laws.md) as a model. It is written from that document, and not from
/// the code. It is meant to be clear, not fast.
///
/// The model gets every input of a call and every action of the call, as it happens, and decides whether the
/// action was allowed. Between two hops there is a queue for each lane; an event that leaves a hop waits in
/// the queue of the next hop until its callback runs. So unrelated events may happen in any order, but the
/// events of one lane keep their order. When the call is at rest (has nothing left to do), everything that
/// could happen must have happened (`checkRest`).
final class Model {
  /// One event on its way.
  final class Item {
    let kind: EventKind
    /// Identifies a message or a status. 0: the message has less than eight bytes, so has no room for an id,
    /// or the library has made the status.
    var id: Int
    var size: Int
    var code: Int32
    /// Whether the message is an object, and not bytes, at this moment: it is one above the codec.
    var isObject = false
    /// The indices of the hops that have changed the metadata.
    var marks: [Int] = []
    var isLocal = false
    /// For a status: whether it says that the server has certainly not processed the request.
    var canRepeat = false
    /// For such a status: whether the request waits before it is sent again.
    var repeatsLater = false

    /// The size that counts for limits. An object counts as 64 bytes, because its real size is not known.
    var charge: Int { isObject ? 64 : size }
    /// The item's part of hold_bytes or replay_bytes. An empty message counts as one byte.
    var room: Int { kind == .send || kind == .receive ? max(charge, 1) : 0 }

    init(_ kind: EventKind, id: Int = 0, size: Int = 0, code: Int32 = 0) {
      self.kind = kind
      self.id = id
      self.size = size
      self.code = code
    }
  }

  enum State: Equatable {
    case ready
    /// The callback has returned HOLD, with this ticket; 0: without a ticket, so the event waits for the
    /// hop's next NEXT.
    case held(UInt64)
    case paused(UInt64)
    /// The event's callback runs on an executor, or will run there.
    case shown
    /// The hop has ended the call, so the event waits for that end.
    case ended
  }

  /// An event that its callback has seen, and that waits to leave the hop in order.
  struct Slot {
    let item: Item
    var state: State
    let isInjected: Bool
    /// Whether the `sent` of the message stops at this hop, and is not told to the hops above.
    let isAnswered: Bool
    var isHeld = false
    /// Not 0: a callback has injected the event, or demand for it has just come, so the event may leave only
    /// after the running callback. These numbers give the order of such events. 0: the event may leave now.
    var fresh = 0
    var isFresh: Bool { fresh != 0 }
  }

  final class Lane {
    /// The events that have left the neighbouring hop and that this hop has not seen yet.
    var queue: [Item] = []
    var slots: [Slot] = []
    /// The callbacks that an executor was given and has not begun.
    var jobs: [Job] = []
    /// Used while a verdict from an executor is applied: the index in `slots` to which the event returns if
    /// it has to wait.
    var gap: Int?

    var isPaused: Bool {
      slots.contains {
        switch $0.state {
        case .paused, .shown: true
        case .ready, .held, .ended: false
        }
      }
    }

    /// Adds an event behind all others, or at the index `gap`.
    func park(_ slot: Slot) { slots.insert(slot, at: gap ?? slots.count) }

    var heldBytes: Int { slots.reduce(0) { $0 + ($1.isHeld ? $1.item.room : 0) } }

    func releaseTicketless() {
      for index in slots.indices where slots[index].state == .held(0) { slots[index].state = .ready }
    }

    func refresh() { for index in slots.indices { slots[index].fresh = 0 } }

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
    /// The number of the attempt: one more with each RESTART above the hop.
    let attempt: UInt32
    var life = Life.notEntered
    var isTaken = false
    /// The events of its own answer that the hop has delivered before TAKE.
    var earlyAnswers: [Item] = []
    /// Whether the status has left the hop upward.
    var hasPassed = false
    var hasFinished = false
    /// Whether the hop has ended the call, and this end has not been carried out yet: no verdict of the hop counts any
    /// more, and no status leaves it.
    var isEnding = false
    var isCancelled = false
    /// Whether on_cancel must come.
    var owesCancel = false
    /// Whether an executor has refused a callback of the hop, so that the call ends here, and the hop sees on_cancel.
    var isLost = false
    var mayDestroy = false
    var isDestroyed = false
    var outbound = Lane()
    var inbound = Lane()
    var startHasLeft = false
    var halfCloseHasLeft = false
    /// Whether the hop has made a half-close itself; outbound events from above are dropped then.
    var hasClosed = false
    /// Whether the hop has asked to half-close.
    var hasAskedToClose = false
    var headersDelivered = false
    var messageDelivered = false
    var statusDelivered = false
    /// How many messages of the hop's own answer have not left the hop, and how many bytes they have.
    var answersWaiting = 0
    var answerBytes = 0
    /// Whether a message of the hop's own answer was refused, and the hop has delivered none since.
    var hasRefusal = false
    /// The callbacks of this hop that executors run now.
    var visiting: [(executor: Int, kind: EventKind)] = []

    /// The demand that has come to the hop from above, and the part of it that on_demand has seen.
    var demandCame = 0
    var demandSeen = 0
    /// The part of the demand that an executor was given, and for which it has not begun on_demand yet.
    var demandShown = 0
    /// `owed`: how many messages the hop may send up. `reserved`: the part of `owed` that is set aside for
    /// messages that the hop has injected.
    var owed = 0
    var reserved = 0
    /// How many messages were asked for below beyond the demand from above, because injected or held messages
    /// have answered demand. The next demand that goes down is reduced by this number.
    var surplus = 0

    /// One number for each message for which the hop will ask again after the running callback, because it
    /// has dropped or held one. The numbers give the order, together with those in `fresh`.
    var renewals: [Int] = []
    /// How many renewals (`renewals`) were dropped because the model had already ended the hop's part in the
    /// call.
    var lateRenewals = 0

    func lessSurplus(_ n: Int) -> Int {
      let spent = min(surplus, n)
      surplus -= spent
      return n - spent
    }
    /// For each message that has left the hop downward: whether its `sent` stops at this hop.
    var ledger: [Bool] = []
    /// How many held messages were not reported as sent yet. One of them is reported each time a `sent` stops
    /// at this hop.
    var untold = 0
    /// How many `sent` have stopped at this hop without reporting a held message in the model, although they
    /// may have reported one in the call. A `sent` of the running step may have done so if the HOLD came
    /// before it. A `sent` of an earlier step may have done so if no callback showed the report.
    var unpaired = 0
    func tellsHeld() -> Bool {
      if ledger[sentCame...].count(where: { $0 }) == untold {
        // Whichever came first, this message and one of those `sent` stand for one reported message, and not
        // for two.
        if unpaired > 0 { unpaired -= 1 }
        return true
      }
      untold += 1
      return false
    }
    var sentCame = 0
    var sentPassed = 0
    var sentSeen = 0

    /// The events that have left the hop, and that a RESTART sends again.
    var recordedStart: (marks: [Int], deadline: UInt64?, channel: Int)?
    var recorded: [Item] = []
    var recordedBytes = 0
    /// Why the recorded events can't be sent again; nil: they can.
    var unreplayable: Outcome?
    var restarts = 0
    /// Of the hop that stands for the library's own repeating: whether it has sent the request again at once, and by
    /// a retry policy. It does each once.
    var hasRepeated = false
    var hasRetried = false
    /// The events that a RESTART still has to send again, followed by events that have left the hop since.
    var again: [(item: Item, isAnswered: Bool)] = []
    /// Whether the first of these events waits for its time.
    var waits = false
    /// How many messages were asked for below and have not come yet.
    var unanswered = 0

    init(_ index: Int, _ plan: HopPlan, attempt: UInt32) {
      self.index = index
      self.plan = plan
      self.attempt = attempt
    }

    var name: String { attempt == 1 ? "hop \(index)" : "hop \(index) (instance \(attempt))" }

    var isActive: Bool {
      life == .entered && !hasPassed && !hasFinished && !isCancelled && !owesCancel && !isDestroyed
    }
    var seesDemand: Bool { startHasLeft || isTaken }
    /// Whether the hop has delivered a part of its own answer.
    var hasBegunToAnswer: Bool { headersDelivered || messageDelivered || statusDelivered }
    var mayDeliver: Bool { isTaken || (life == .entered && !startHasLeft && plan.has(.start)) }
    func has(_ kind: EventKind) -> Bool { plan.has(kind) }
  }

  struct Broken { let law: String, what: String }

  let kind: CallKind
  let codec: CodecPlan?
  /// The codec stands above the hop at this index.
  let codecIndex: Int
  /// The hops. One of them, above the hops per attempt, stands for the library's own repeating of a request.
  /// It has no callbacks, records events, and restarts once if the server has not processed the request, and once by a
  /// retry policy.
  var hops: [Hop]
  /// The index of the hop that stands for the library's own repeating; nil: the call does not need it.
  let cutAt: Int?
  /// The hops that a RESTART above them has replaced and whose `destroy` has still to come, in order.
  var retired: [Hop] = []
  /// The hops that a RESTART above them has replaced and whose `destroy` an executor will run later.
  var leftover: [Hop] = []
  private(set) var broken: Broken?

  var isOpen = false
  /// How often start has reached the server's side.
  var attempts = 0
  // The state of the caller.
  var callerQueue: [Item] = []
  var callerMessages = 0
  var callerHeaders = 0
  var callerStatus: Item?
  var callerSent = 0
  var callerSentCame = 0
  // The state of the server.
  var serverQueue: [Item] = []
  var serverHasStarted = false
  var serverHasEnded = false
  var serverSaidStatus = false
  var serverMessages = 0
  var serverDemandCame = 0
  var serverDemand = 0
  var inTransport = 0
  var wasReset = false
  /// Outbound events that reach the hop at this index, or go beyond it, are dropped.
  var outboundEnd: Int
  var local: Item?
  /// The hop at this index has asked to end the call with this status. The call ends when the events that the
  /// hop has released have gone as far as they can.
  var finishing: (index: Int, status: Item)?
  /// The message and half-close of a call that is opened in one step. They come after start, and after the
  /// operations that hops have asked for meanwhile.
  var whole: [Item] = []
  var wholeIsNext = false
  /// After a cancel or the deadline: the hops that still have to see this end, from the bottom, each with its
  /// callback.
  var localOrder: [(hop: Int, kind: EventKind)] = []
  /// Whether the status has reached the caller's side, so that the call has ended.
  var isOver = false
  var running: Hop?
  var runningKind = EventKind.none
  var runningItem: Item?
  var requestMarks: [Int] = []
  /// The number of the channel to which the request goes; 0: the call's own channel.
  var requestChannel = 0
  var expectedDeadline: UInt64?
  /// The highest number in any `fresh` or `renewals` so far.
  var lastFresh = 0
  /// The callback that an executor is being given, and may refuse.
  var handing: (hop: Hop, kind: EventKind)?
  /// Whether the model now makes moves that it has put off. Then events may leave a hop although others in
  /// front of them have not moved.
  var mayHurry = false
  var order: Order
  /// Uses of tickets that came before the verdict of the callback that has taken the ticket.
  var early: [UInt64: Input] = [:]
  /// The use of a ticket that came while the callback that took the ticket still ran on an executor. The
  /// callback has returned its verdict by now. The events that the verdict releases move first, and then this
  /// use is carried out. nil: there is none.
  var settling: Input?
  let executors: [ExecutorPlan]

  enum TicketState { case open, spent, gone }
  var tickets: [UInt64: (state: TicketState, kind: EventKind, hop: Hop)] = [:]

  init(_ scenario: Scenario, _ order: Order) {
    self.order = order
    kind = scenario.kind
    codec = scenario.codec
    executors = scenario.executors
    codecIndex = scenario.hops.count { $0.isObject }
    var plans = scenario.hops
    cutAt = scenario.refuses ? plans.firstIndex { $0.isPerAttempt } ?? plans.count : nil
    if let cutAt { plans.insert(.cut, at: cutAt) }
    hops = plans.enumerated().map { Hop($0, $1, attempt: 1) }
    outboundEnd = hops.count + 1
  }

  /// The index in `hops` of the call's hop with this index: they differ below the hop that stands for the
  /// library's own repeating.
  func place(of index: Int) -> Int { index >= cutAt ?? .max ? index + 1 : index }

  func require(_ condition: Bool, _ law: String, _ what: @autoclosure () -> String) {
    guard !condition, broken == nil else { return }
    broken = Broken(law: law, what: what())
  }

  func fail(_ law: String, _ what: @autoclosure () -> String) { require(false, law, what()) }
}

extension EventKind {
  var isOutbound: Bool { self == .start || self == .send || self == .halfClose }
}
