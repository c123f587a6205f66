import PenstockCall
import PenstockWire

/// One random story: a chain with the plan of each hop, and the steps of the caller, the server and other
/// threads.
struct Scenario: Sendable {
  var kind: CallKind
  var hops: [HopPlan]
  var steps: [Step]
  /// The server's plan for each attempt; the last one also applies to all later attempts.
  var servers: [ServerPlan]
  /// The size of the message, if the call is opened in one step with its one message and the half-close. nil: it is
  /// opened with start alone.
  var firstMessage: Int?
  var firstDemand: Int
  var executors: [ExecutorPlan] = []
  /// Whether the executors run all their jobs before the call is cancelled at the end.
  var worksOff = true
  /// The plan of the codec; nil: there is no codec, and both levels see bytes.
  var codec: CodecPlan?
  var deadline: Int?
  /// Whether the caller asks for one more message in the callback that gives it a message.
  var demandsWhenServed: Bool

  var refuses: Bool {
    servers.contains { $0.items.contains { if case .refused = $0 { true } else { false } } }
  }
}

/// `cannotEncode` and `cannotDecode`: messages of this size can't be encoded or decoded; 0: all can.
struct CodecPlan: Sendable {
  var cannotEncode: Int
  var cannotDecode: Int
  var copies: Bool
}

struct ExecutorPlan: Sendable {
  /// Whether the executor's jobs run in `submit`.
  var isInline: Bool
  /// Whether the newest job runs first, as in a pool of threads.
  var newestFirst: Bool
  /// The first job, counted from 1, that the executor refuses, and the number of refused jobs; 0: it accepts
  /// all.
  var refusesFrom: Int
  var refusals: Int
}

/// One hop. Hops are in the order that the chain must have: the object level, the bytes level, the bytes
/// level per attempt.
struct HopPlan: Sendable {
  enum Create: Sendable { case none, next, skip, nonsense }

  /// Registrations are made in the order of these numbers. A registration for both levels, objects and bytes, has two
  /// hops with its number, one at each level.
  var registration: Int
  var isObject: Bool
  var isPerAttempt: Bool
  var create: Create
  /// The callbacks that are not NULL: a mask of 1 << EventKind.
  var callbacks: UInt32
  var holdBytes: Int
  /// The bytes that may be recorded for RESTART; 0: the hop does not record.
  var replayBytes = 0
  var maxRestarts = 1
  var executors: Executors?
  /// Whether the hop's handle is kept for other threads.
  var shares: Bool
  /// For each EventKind: the reactions to the first event, to the second and so on. After the last reaction
  /// the callback returns NEXT.
  var reactions: [[Reaction]]

  /// The executors of the two lanes, by number; nil: the driving thread.
  struct Executors: Sendable {
    var outbound: Int?
    var inbound: Int?
    /// Whether `create` chooses these executors; then the registration has them the other way round.
    var inCreate: Bool
  }

  /// The cut above the attempt, which the model treats as a hop.
  static var cut: HopPlan {
    HopPlan(
      registration: -1, isObject: false, isPerAttempt: false, create: .none, callbacks: 0, holdBytes: 0,
      replayBytes: 1 << 20, shares: false, reactions: Array(repeating: [], count: 12))
  }

  func has(_ kind: EventKind) -> Bool { callbacks & (1 << UInt32(kind.rawValue)) != 0 }

  /// The executors that `create` chose, or those of the registration.
  var chosen: Executors? {
    guard var executors else { return nil }
    if executors.inCreate, create == .none {
      swap(&executors.outbound, &executors.inbound)
    }
    return executors.outbound == nil && executors.inbound == nil ? nil : executors
  }

  /// The executor that runs this callback; nil: the driving thread.
  func executor(of kind: EventKind) -> Int? {
    switch kind {
    case .start, .send, .halfClose, .sent: chosen?.outbound
    case .headers, .receive, .status, .demand: chosen?.inbound
    case .cancel, .destroy: ending
    case .none, .create, .pick: nil
    }
  }

  /// The executor of on_cancel, `destroy`, and the on_status of a local end.
  var ending: Int? { chosen?.inbound ?? chosen?.outbound }
}

/// The operations that a callback performs, and the verdict that it returns.
struct Reaction: Sendable {
  var operations: [Operation]
  var verdict: Int32
  var takesTicket: Bool
}

enum Operation: Sendable {
  case change
  case injectOutbound(Int)
  case halfClose
  /// Delivers a message upward; a hop that has taken the call delivers it as a part of its answer.
  case injectInbound(Int)
  case demand(Int)
  case finish(Int32)
  case setCount(Int)
  case setDeadline(Int)
  case resolveEarly(End)
  case deliverHeaders
  /// Changes the metadata of the request that a RESTART sends.
  case changeStart
  case setStartDeadline(Int)
  case deliverStatus(Int32)
  /// Sends the call to the channel of this number.
  case redirect(Int)
}

/// How a ticket is used.
enum End: Sendable {
  case verdict(Verdict)
  case finish(Int32)
  case after(Int)
}

struct ServerPlan: Sendable {
  /// A plan with `refused` has no other item.
  enum Item: Sendable { case headers, message(Int), status(Int32), refused }
  var items: [Item]
  /// The number of items that the server may send as soon as it has the start.
  var ready = 0
}

/// One step; if `runs`, the loop carries out the posted inputs after it.
struct Step: Sendable {
  enum Act: Sendable {
    case nothing
    case send(Int)
    case halfClose
    case demand(Int)
    case cancel
    /// The server may send this many more items of its plan.
    case server(Int)
    case sent(Int)
    /// The connection is lost.
    case lose
    case tick(Int)
    /// Uses one of the open tickets.
    case resolve(Int, End)
    /// Uses one of all tickets of the call, open or not.
    case resolveAny(Int, End)
    /// Another thread performs an operation of this hop.
    case hop(Int, Operation)
    /// The worker of a synchronous hop goes on: its `next()` is called, or returns; or its function ends the call.
    case goOn(Int, End)
    /// An executor runs this many of its jobs.
    case work(Int, Int)
  }

  var act: Act
  var runs: Bool
}
