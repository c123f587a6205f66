import PenstockCall

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
    /// A message above the codec.
    var isObject = false
    /// The hops that have changed the metadata.
    var marks: [Int] = []
    var isLocal = false
    /// The server has not processed the request.
    var canRepeat = false

    /// Of replay_bytes: the size of an object is not known.
    var charge: Int { isObject ? 64 : size }
    /// Of hold_bytes: an empty message takes one.
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
    /// By ticket; 0: until the next NEXT.
    case held(UInt64)
    case paused(UInt64)
    /// Its callback runs on an executor, or will.
    case shown
  }

  /// An event that stands behind its callback, to leave in order.
  struct Slot {
    let item: Item
    var state: State
    let isInjected: Bool
    /// Its `sent` stops here.
    let isAnswered: Bool
    var isHeld = false
    /// It may leave only after what runs: a callback has injected it, or demand for it has just come. Numbered as that
    /// happened; 0: it may leave.
    var fresh = 0
    var isFresh: Bool { fresh != 0 }
  }

  final class Lane {
    /// Has left the neighbour; not shown yet.
    var queue: [Item] = []
    var slots: [Slot] = []
    /// Callbacks that an executor has not begun.
    var jobs: [Job] = []
    /// Where the event stood whose verdict has come from an executor.
    var gap: Int?

    var isPaused: Bool {
      slots.contains {
        switch $0.state {
        case .paused, .shown: true
        case .ready, .held: false
        }
      }
    }

    /// Behind everything, or in the gap.
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
    /// Which instance it is: one more with each RESTART above.
    let attempt: UInt32
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
    /// By itself: what comes from above goes no further.
    var hasClosed = false
    /// It has asked to half-close.
    var hasAskedToClose = false
    var headersDelivered = false
    var messageDelivered = false
    var statusDelivered = false
    /// Messages of its answer that have not left it: how many, and their bytes.
    var answersWaiting = 0
    var answerBytes = 0
    /// A message of its answer was refused, and none has been taken since.
    var hasRefusal = false
    /// The callbacks that run on executors now.
    var visiting: [(executor: Int, kind: EventKind)] = []

    /// Demand that has come to it, and how much of that it has seen.
    var demandCame = 0
    var demandSeen = 0
    /// How much of that its executor has not begun to show.
    var demandShown = 0
    /// What it may send up, and how much of that is spoken for by what it has injected.
    var owed = 0
    var reserved = 0
    /// What below was asked for and above was not: messages that were injected, or were held, have gone up.
    var surplus = 0

    /// Demand that it asks for anew after what runs, for messages that it has dropped or held: numbered as `fresh`.
    var renewals: [Int] = []
    /// Those that came when the hop was out of the call already, as far as the model knew.
    var lateRenewals = 0

    func lessSurplus(_ n: Int) -> Int {
      let spent = min(surplus, n)
      surplus -= spent
      return n - spent
    }
    /// Messages that have left downward: does the `sent` of each stop here.
    var ledger: [Bool] = []
    /// Messages that were held and not told as sent: each is when one comes that stops here.
    var untold = 0
    /// How many came that stop here and told none that was held, but may have: those of this step, if the message was held
    /// before they came, and those of earlier ones where nobody could see it.
    var unpaired = 0
    func tellsHeld() -> Bool {
      if ledger[sentCame...].count(where: { $0 }) == untold {
        // In either order, this message and one of those tell one held message, not two.
        if unpaired > 0 { unpaired -= 1 }
        return true
      }
      untold += 1
      return false
    }
    var sentCame = 0
    var sentPassed = 0
    var sentSeen = 0

    /// What RESTART sends again: what has left it.
    var recordedStart: (marks: [Int], deadline: UInt64?, channel: Int)?
    var recorded: [Item] = []
    var recordedBytes = 0
    /// Why it may not.
    var unreplayable: Outcome?
    var restarts = 0
    /// What is sent again, and what has left it since.
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
    /// It is the far end, or may become it yet.
    var hasBegunToAnswer: Bool { headersDelivered || messageDelivered || statusDelivered }
    var mayDeliver: Bool { isTaken || (life == .entered && !startHasLeft && plan.has(.start)) }
    func has(_ kind: EventKind) -> Bool { plan.has(kind) }
  }

  struct Broken { let law: String, what: String }

  let kind: CallKind
  let codec: CodecPlan?
  /// It works above the hop at this index.
  let codecIndex: Int
  /// With the library's own, above those that are made for each attempt: it looks at nothing, records, and answers with
  /// RESTART, once, what the server has not processed.
  var hops: [Hop]
  /// Where that one stands. nil: it is not needed.
  let cutAt: Int?
  /// Below a RESTART: what has not seen destroy yet, in order.
  var retired: [Hop] = []
  /// The same, where an executor destroys them some time.
  var leftover: [Hop] = []
  private(set) var broken: Broken?

  var isOpen = false
  /// How many times start has come to the server.
  var attempts = 0
  // The caller.
  var callerQueue: [Item] = []
  var callerMessages = 0
  var callerHeaders = 0
  var callerStatus: Item?
  var callerSent = 0
  var callerSentCame = 0
  // The server.
  var serverQueue: [Item] = []
  var serverHasStarted = false
  var serverHasEnded = false
  var serverSaidStatus = false
  var serverMessages = 0
  var serverDemandCame = 0
  var serverDemand = 0
  var inTransport = 0
  var wasReset = false
  /// What comes to this hop or beyond is discarded.
  var outboundEnd: Int
  var local: Item?
  /// The hop at this index ends the call once what it has let go has gone as far as it can.
  var finishing: (index: Int, status: Item)?
  /// The message and half-close of a call that is opened whole: after start, and what hops have asked for meanwhile.
  var whole: [Item] = []
  var wholeIsNext = false
  /// After a local end: the hops that see it, from the bottom, and as what.
  var localOrder: [(hop: Int, kind: EventKind)] = []
  /// The status has come to the caller's side.
  var isOver = false
  var running: Hop?
  var runningKind = EventKind.none
  var runningItem: Item?
  var requestMarks: [Int] = []
  /// Where the request goes; 0: the call's own channel.
  var requestChannel = 0
  var expectedDeadline: UInt64?
  /// How much has been put off until after what ran.
  var lastFresh = 0
  /// The callback that an executor is asked to take, and may refuse.
  var handing: (hop: Hop, kind: EventKind)?
  /// Everything may leave, though something is moving in front of it.
  var mayHurry = false
  var order: Order
  /// Tickets that were used before the call has the verdict that goes with them.
  var early: [UInt64: Input] = [:]
  /// That of the last verdict: what the verdict lets go goes first.
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

  /// Of the call's hop at this index.
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
