import PenstockCall

/// The laws of the chain as a model. It is written after docs/interceptors.md, not after the code, and to be clear,
/// not fast.
///
/// The model gets every input of a call and every action of the call, as it happens, and decides whether the action
/// was allowed. Between two hops there is a queue for each lane; an event that leaves a hop waits in the queue of the
/// next hop until its callback runs. So unrelated events may happen in any order, and the events of one lane in their
/// own order only. When the call is at rest, nothing that could happen may be left undone (`checkRest`).
final class Model {
  /// One event on its way.
  final class Item {
    let kind: EventKind
    /// Identifies a message or a status; 0: a message of fewer than eight bytes, which have no room for it, or a status
    /// that the library made.
    var id: Int
    var size: Int
    var code: Int32
    /// Whether a message is an object, as it is above the codec.
    var isObject = false
    /// The hops that have changed the metadata.
    var marks: [Int] = []
    var isLocal = false
    /// Of a status: whether the server has certainly not processed the request.
    var canRepeat = false

    /// The size that counts for limits; an object counts 64, because its size is not known.
    var charge: Int { isObject ? 64 : size }
    /// The item's share of hold_bytes or replay_bytes; an empty message takes one byte.
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
    /// Held with this ticket; 0: without a ticket, until the hop's next NEXT.
    case held(UInt64)
    case paused(UInt64)
    /// The event's callback runs on an executor, or will run there.
    case shown
  }

  /// An event that stands behind its callback, to leave in order.
  struct Slot {
    let item: Item
    var state: State
    let isInjected: Bool
    /// Whether the message's `sent` stops at this hop.
    let isAnswered: Bool
    var isHeld = false
    /// Not 0: the event may leave only after the running callback, because a callback has injected it, or
    /// demand for it has just come. The numbers give the order of such events. 0: the event may leave now.
    var fresh = 0
    var isFresh: Bool { fresh != 0 }
  }

  final class Lane {
    /// The events that have left the neighbour and were not shown yet.
    var queue: [Item] = []
    var slots: [Slot] = []
    /// Callbacks that an executor has not begun.
    var jobs: [Job] = []
    /// While the call carries out a verdict that has come from an executor: the index in `slots` at which the event is
    /// put if it stays.
    var gap: Int?

    var isPaused: Bool {
      slots.contains {
        switch $0.state {
        case .paused, .shown: true
        case .ready, .held: false
        }
      }
    }

    /// Adds an event behind all others, or in the gap.
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
    /// The number of the instance: one more with each RESTART above.
    let attempt: UInt32
    var life = Life.notEntered
    var isTaken = false
    /// The events that the hop has delivered before TAKE.
    var earlyAnswers: [Item] = []
    /// Whether the status has left the hop upward.
    var hasPassed = false
    var hasFinished = false
    var isCancelled = false
    /// Whether on_cancel must come.
    var owesCancel = false
    var mayDestroy = false
    var isDestroyed = false
    var outbound = Lane()
    var inbound = Lane()
    var startHasLeft = false
    var halfCloseHasLeft = false
    /// Whether the hop has half-closed by itself: then events from above go no further.
    var hasClosed = false
    /// Whether the hop has asked to half-close.
    var hasAskedToClose = false
    var headersDelivered = false
    var messageDelivered = false
    var statusDelivered = false
    /// The number and the bytes of the messages of the hop's answer that have not left the hop.
    var answersWaiting = 0
    var answerBytes = 0
    /// Whether a message of the hop's answer was refused, and no later message was accepted.
    var hasRefusal = false
    /// The callbacks that run on executors now.
    var visiting: [(executor: Int, kind: EventKind)] = []

    /// The demand that has come to the hop, and the part that its callback has seen.
    var demandCame = 0
    var demandSeen = 0
    /// The part of the demand that was handed to an executor, which has not begun on_demand for it.
    var demandShown = 0
    /// `owed`: the messages that the hop may send up. `reserved`: the part of them that is set aside for its
    /// injections.
    var owed = 0
    var reserved = 0
    /// Demand that was passed down without demand from above, because injected or held messages have gone up.
    var surplus = 0

    /// Demand that the hop renews after the running callback, for dropped or held messages; numbered like
    /// `fresh`.
    var renewals: [Int] = []
    /// The number of renewals dropped because the model took the hop for ended.
    var lateRenewals = 0

    func lessSurplus(_ n: Int) -> Int {
      let spent = min(surplus, n)
      surplus -= spent
      return n - spent
    }
    /// For each message that has left downward: whether its `sent` stops here.
    var ledger: [Bool] = []
    /// The number of held messages that were not reported as sent: each is reported when a `sent` comes that stops
    /// here.
    var untold = 0
    /// The number of `sent` that have stopped here, and have reported no held message in the model, although
    /// they may have done so in the call. A `sent` of this step may have, if the message was held before the
    /// `sent` came; a `sent` of an earlier step may have, if nobody could see the report.
    var unpaired = 0
    func tellsHeld() -> Bool {
      if ledger[sentCame...].count(where: { $0 }) == untold {
        // In either order, this message and one of those `sent` report one held message, not two.
        if unpaired > 0 { unpaired -= 1 }
        return true
      }
      untold += 1
      return false
    }
    var sentCame = 0
    var sentPassed = 0
    var sentSeen = 0

    /// The events that RESTART sends again: those that have left the hop.
    var recordedStart: (marks: [Int], deadline: UInt64?, channel: Int)?
    var recorded: [Item] = []
    var recordedBytes = 0
    /// The reason why the recording can't be sent again.
    var unreplayable: Outcome?
    var restarts = 0
    /// The events that are sent again, and those that have left the hop since.
    var again: [(item: Item, isAnswered: Bool)] = []
    /// Demand that has gone below and that no message has answered.
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
    /// Whether the hop has delivered a part of an answer.
    var hasBegunToAnswer: Bool { headersDelivered || messageDelivered || statusDelivered }
    var mayDeliver: Bool { isTaken || (life == .entered && !startHasLeft && plan.has(.start)) }
    func has(_ kind: EventKind) -> Bool { plan.has(kind) }
  }

  struct Broken { let law: String, what: String }

  let kind: CallKind
  let codec: CodecPlan?
  /// The codec is above the hop at this index.
  let codecIndex: Int
  /// The hops, including one that stands for the library's own retry, above the hops per attempt: it has no
  /// callbacks, records, and restarts once if the server has not processed the request.
  var hops: [Hop]
  /// The index of the hop for the library's own retry; nil: none is needed.
  let cutAt: Int?
  /// The hops that a RESTART above them has replaced, and whose destroy has not come yet, in order.
  var retired: [Hop] = []
  /// The hops that a RESTART above them has replaced, and whose destroy an executor will run later.
  var leftover: [Hop] = []
  private(set) var broken: Broken?

  var isOpen = false
  /// How many times start has come to the server.
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
  /// Outbound events that come to this hop or beyond are discarded.
  var outboundEnd: Int
  var local: Item?
  /// The hop at this index ends the call once the events that it has released have gone as far as they can.
  var finishing: (index: Int, status: Item)?
  /// The message and half-close of a call that is opened in one step: they come after start, and after the operations
  /// that hops have asked for meanwhile.
  var whole: [Item] = []
  var wholeIsNext = false
  /// After a local end: the hops that see it, from the bottom, each with its callback.
  var localOrder: [(hop: Int, kind: EventKind)] = []
  /// Whether the status has come to the caller's side.
  var isOver = false
  var running: Hop?
  var runningKind = EventKind.none
  var runningItem: Item?
  var requestMarks: [Int] = []
  /// The channel of the request; 0: the call's own channel.
  var requestChannel = 0
  var expectedDeadline: UInt64?
  /// The highest number that was given to a `fresh` or a renewal.
  var lastFresh = 0
  /// The callback that an executor is asked to take, and may refuse.
  var handing: (hop: Hop, kind: EventKind)?
  /// Whether the model now makes moves that it had put off: events may leave although others still move in
  /// front of them.
  var mayHurry = false
  var order: Order
  /// Uses of tickets that came before the verdict of the callback that took the ticket.
  var early: [UInt64: Input] = [:]
  /// A use of a ticket (a resolve or a finish) that came while the callback that took the ticket still ran on an executor.
  /// The callback has returned its verdict by now: the events that the verdict releases move first, and then this input
  /// is carried out. nil: there is none.
  var settling: Input?
  let executors: [ExecutorPlan]

  enum TicketState { case open, spent, gone }
  var tickets: [UInt64: (state: TicketState, kind: EventKind)] = [:]

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

  /// The index in `hops` of the call's hop number `index`.
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
