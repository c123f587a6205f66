import PenstockCall
import PenstockWire

/// One random story: a chain with what each hop will do, and what the caller, the server and other threads do.
struct Scenario: Sendable {
  var kind: CallKind
  var hops: [HopPlan]
  var steps: [Step]
  /// What the server says, attempt by attempt; the last one for all that follow.
  var servers: [ServerPlan]
  /// The message of a call that is opened whole, with its half-close.
  var firstMessage: Int?
  var firstDemand: Int
  var executors: [ExecutorPlan] = []
  /// The executors have nothing left to do when the call is cancelled at last.
  var worksOff = true
  /// nil: both levels see bytes.
  var codec: CodecPlan?
  var deadline: Int?
  /// The caller asks for one more in the callback that brings a message.
  var demandsWhenServed: Bool

  var refuses: Bool {
    servers.contains { $0.items.contains { if case .refused = $0 { true } else { false } } }
  }
}

/// Messages of this size cannot be encoded, or decoded; 0: all can.
struct CodecPlan: Sendable {
  var cannotEncode: Int
  var cannotDecode: Int
  var copies: Bool
}

struct ExecutorPlan: Sendable {
  /// Its jobs run in `submit`.
  var isInline: Bool
  /// As a pool of threads may: the job that came last runs first.
  var newestFirst: Bool
  /// From which job on, counted from 1, it takes none, and how many of them; 0: it takes all.
  var refusesFrom: Int
  var refusals: Int
}

/// One hop. They stand in the order that the chain has to have: the object level, the bytes level, the bytes level per
/// attempt.
struct HopPlan: Sendable {
  enum Create: Sendable { case none, next, skip, nonsense }

  /// Registrations are made in this order. Two hops with the same number are one, for both levels.
  var registration: Int
  var isObject: Bool
  var isPerAttempt: Bool
  var create: Create
  /// 1 << EventKind: the callbacks that are there.
  var callbacks: UInt32
  var holdBytes: Int
  /// 0: no recording.
  var replayBytes = 0
  var maxRestarts = 1
  var executors: Executors?
  /// Its handle is kept for other threads.
  var shares: Bool
  /// By EventKind: what it does the first time, the second... After that it says NEXT.
  var reactions: [[Reaction]]

  /// By their numbers; nil: the driving thread.
  struct Executors: Sendable {
    var outbound: Int?
    var inbound: Int?
    /// `create` chooses them: the registration has the opposite.
    var inCreate: Bool
  }

  /// The cut above the attempt, as a hop.
  static var cut: HopPlan {
    HopPlan(
      registration: -1, isObject: false, isPerAttempt: false, create: .none, callbacks: 0, holdBytes: 0,
      replayBytes: 1 << 20, shares: false, reactions: Array(repeating: [], count: 12))
  }

  func has(_ kind: EventKind) -> Bool { callbacks & (1 << UInt32(kind.rawValue)) != 0 }

  /// What `create` chose, or what it was registered with.
  var chosen: Executors? {
    guard var executors else { return nil }
    if executors.inCreate, create == .none {
      swap(&executors.outbound, &executors.inbound)
    }
    return executors.outbound == nil && executors.inbound == nil ? nil : executors
  }

  /// nil: the driving thread.
  func executor(of kind: EventKind) -> Int? {
    switch kind {
    case .start, .send, .halfClose, .sent: chosen?.outbound
    case .headers, .receive, .status, .demand: chosen?.inbound
    case .cancel, .destroy: ending
    case .none, .create: nil
    }
  }

  /// Where a hop is told of the call's end by another hand.
  var ending: Int? { chosen?.inbound ?? chosen?.outbound }
}

/// What a callback does before it returns, and what it returns.
struct Reaction: Sendable {
  var operations: [Operation]
  var verdict: Int32
  var takesTicket: Bool
}

enum Operation: Sendable {
  case change
  case injectOutbound(Int)
  case halfClose
  /// Also the answer of a hop that has taken the call.
  case injectInbound(Int)
  case demand(Int)
  case finish(Int32)
  case setCount(Int)
  case setDeadline(Int)
  case resolveEarly(End)
  case deliverHeaders
  /// The request that a RESTART sends: its metadata, its deadline.
  case changeStart
  case setStartDeadline(Int)
  case deliverStatus(Int32)
  /// To the channel of this number.
  case redirect(Int)
}

/// How a ticket is used.
enum End: Sendable {
  case verdict(Verdict)
  case finish(Int32)
  case after(Int)
}

struct ServerPlan: Sendable {
  /// `refused`: alone, and instead of all others.
  enum Item: Sendable { case headers, message(Int), status(Int32), refused }
  var items: [Item]
  /// How many of them are there at once.
  var ready = 0
}

/// What happens next; then, perhaps, the loop runs what was posted.
struct Step: Sendable {
  enum Act: Sendable {
    case nothing
    case send(Int)
    case halfClose
    case demand(Int)
    case cancel
    /// So many more things of its plan are there.
    case server(Int)
    case sent(Int)
    /// The connection is lost.
    case lose
    case tick(Int)
    /// A ticket that is open.
    case resolve(Int, End)
    /// Any ticket there ever was.
    case resolveAny(Int, End)
    /// Another thread.
    case hop(Int, Operation)
    /// The worker of a synchronous hop goes on: its `next()` is called, or returns; or its function ends the call.
    case goOn(Int, End)
    /// An executor does so many of its jobs.
    case work(Int, Int)
  }

  var act: Act
  var runs: Bool
}
