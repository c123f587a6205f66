import PenstockCall
import PenstockWire

/// One random scenario: a chain with a plan for each hop, and the steps of the caller, the server and other
/// threads.
struct Scenario: Sendable {
  var kind: CallKind
  var hops: [HopPlan]
  var steps: [Step]
  /// The plan of the server for each attempt. The last plan also applies to all further attempts.
  var servers: [ServerPlan]
  /// If the call is opened in one step with its only message and the half-close: the size of that message.
  /// nil: the call is opened only with start.
  var firstMessage: Int?
  var firstDemand: Int
  var executors: [ExecutorPlan] = []
  /// Whether the executors run all their jobs before the call is cancelled at the end of the scenario.
  var worksOff = true
  /// Which messages the codec refuses; nil: there is no codec, so all messages are bytes.
  var codec: CodecPlan?
  var deadline: Int?
  /// Whether the caller asks for another message in each callback in which it gets one.
  var demandsWhenServed: Bool

  var refuses: Bool {
    servers.contains { $0.items.contains { if case .refused = $0 { true } else { false } } }
  }
}

/// `cannotEncode`, `cannotDecode`: messages of this size can't be encoded or decoded; 0: every message can
/// be.
struct CodecPlan: Sendable {
  var cannotEncode: Int
  var cannotDecode: Int
  var copies: Bool
}

struct ExecutorPlan: Sendable {
  /// Whether the executor runs a job inside `submit`.
  var isInline: Bool
  /// Whether the newest job runs first, which is possible in a pool of threads.
  var newestFirst: Bool
  /// `refusesFrom`: the number (from 1) of the first job that the executor refuses; 0: it refuses none.
  /// `refusals`: how many jobs it refuses.
  var refusesFrom: Int
  var refusals: Int
}

/// The plan of one hop. The hops are in the order that the chain must have: object level, bytes level, bytes
/// level per attempt.
struct HopPlan: Sendable {
  enum Create: Sendable { case none, next, skip, nonsense }

  /// The number of the registration: registrations are made in the order of these numbers. A registration for
  /// both levels has two hops with its number, one at each level.
  var registration: Int
  var isObject: Bool
  var isPerAttempt: Bool
  var create: Create
  /// The callbacks that the hop has, as a mask of 1 << EventKind.
  var callbacks: UInt32
  var holdBytes: Int
  /// How many message bytes may be recorded for a RESTART; 0: the hop may not RESTART.
  var replayBytes = 0
  var maxRestarts = 1
  /// The kinds of calls in which headers wait at a hop that may RESTART, as a mask of 1 << kind.
  var headersWait = Registration.defaultHeadersWait
  var executors: Executors?
  /// Whether the test keeps the hop's handle, for operations of other threads.
  var shares: Bool
  /// For each EventKind: what the callback does at the first event, the second, and so on. After the last of
  /// these it returns NEXT.
  var reactions: [[Reaction]]

  /// The numbers of the executors for the two lanes; nil: the driving thread runs that lane's callbacks.
  struct Executors: Sendable {
    var outbound: Int?
    var inbound: Int?
    /// Whether `create` chooses these executors. The registration then has them the other way round.
    var inCreate: Bool
  }

  /// A plan for the cut above the attempt (the record from which the library repeats a request): the model
  /// treats the cut as a hop.
  static var cut: HopPlan {
    var plan = HopPlan(
      registration: -1, isObject: false, isPerAttempt: false, create: .none, callbacks: 0, holdBytes: 0,
      replayBytes: 1 << 20, headersWait: 0, shares: false, reactions: Array(repeating: [], count: 12))
    plan.maxRestarts = 2
    return plan
  }

  func has(_ kind: EventKind) -> Bool { callbacks & (1 << UInt32(kind.rawValue)) != 0 }

  /// The executors in force: those that `create` has chosen, or those of the registration.
  var chosen: Executors? {
    guard var executors else { return nil }
    if executors.inCreate, create == .none {
      swap(&executors.outbound, &executors.inbound)
    }
    return executors.outbound == nil && executors.inbound == nil ? nil : executors
  }

  /// The number of the executor that runs this callback; nil: the driving thread runs it.
  func executor(of kind: EventKind) -> Int? {
    switch kind {
    case .start, .send, .halfClose, .sent: chosen?.outbound
    case .headers, .receive, .status, .demand: chosen?.inbound
    case .cancel, .destroy: ending
    case .none, .create, .pick: nil
    }
  }

  /// The number of the executor for on_cancel, for `destroy`, and for on_status after a cancel or the
  /// deadline.
  var ending: Int? { chosen?.inbound ?? chosen?.outbound }
}

/// The plan of a callback for one event: its operations, and the verdict that it returns.
struct Reaction: Sendable {
  var operations: [Operation]
  var verdict: Int32
  var takesTicket: Bool
}

enum Operation: Sendable {
  case change
  case injectOutbound(Int)
  case halfClose
  /// Delivers a message of this size upward. If the hop has returned TAKE, the message is a part of its
  /// answer.
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
  /// Redirects the call to the channel with this number.
  case redirect(Int)
  /// In a callback on an executor: the loop carries out everything that was posted, while the callback runs.
  case turn
}

/// How a ticket is used.
enum End: Sendable {
  case verdict(Verdict)
  case finish(Int32)
  case after(Int)
}

struct ServerPlan: Sendable {
  /// `refused`: the server ends the attempt without processing the request. A plan with `refused` has no
  /// other item.
  enum Item: Sendable { case headers, message(Int), status(Int32), refused }
  var items: [Item]
  /// How many items the server may send as soon as it has got the start.
  var ready = 0
}

/// One step of a scenario. If `runs` is true, the loop then carries out the posted inputs.
struct Step: Sendable {
  enum Act: Sendable {
    case nothing
    case send(Int)
    case halfClose
    case demand(Int)
    case cancel
    /// Allows the server to send this many more items of its plan.
    case server(Int)
    case sent(Int)
    /// The connection is lost.
    case lose
    case tick(Int)
    /// Uses one of the call's open tickets, which the number chooses.
    case resolve(Int, End)
    /// Uses one of all the call's tickets, open or not, which the number chooses.
    case resolveAny(Int, End)
    /// Another thread performs an operation of the hop with this index.
    case hop(Int, Operation)
    /// The function of a synchronous hop, on its worker thread, goes on: it calls `next()`, or `next()`
    /// returns, or it ends the call.
    case goOn(Int, End)
    /// The executor with the first number runs as many of its jobs as the second number says.
    case work(Int, Int)
  }

  var act: Act
  var runs: Bool
}
