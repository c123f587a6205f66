import PenstockCall

/// The state of the hop of a synchronous interceptor: which events it stops, and what the orders of the function do.
/// Only the driving thread uses it (InterceptedCall.swift).
///
/// The events that come to the hop, and `gone`: a cancel or a deadline has come, or the hop has ended.
///
/// | | start | request (1) | halfClose | headers (2) | message (2) | status | gone |
/// |---|---|---|---|---|---|---|---|
/// | short | fail -> passing | x | x | x | x | x | over |
/// | fresh | hold -> collecting; offer -> offered (3) | x | x | x | x | x | over |
/// | collecting | x | offer -> offered; hold -> closing (4) | offer -> offered | x | x | x | over |
/// | closing | x | pass | offer -> offered | x | x | x | over |
/// | offered | x | pass (8) | pass (8) | x | x | x | over |
/// | passed | x | pass | pass | hold; tell -> responded | hold; tell -> responded | tell -> responded | over |
/// | responded | x | pass | pass | pass (8) | pass (8) | pass (8) | over |
/// | giving, delivering | x | pass | pass | x | x | x | over |
/// | passing | x | pass | pass | pass | pass | pass | over |
/// | over | x | x | x | x | x | x | - |
///
/// The orders of the function, `demand`: the caller asks for messages, and what becomes of a message that the function
/// gives: `left`, because nobody has asked for it, or `delivered`, as all of them are.
///
/// | | next | again | answer | end | letGo | demand | left | delivered |
/// |---|---|---|---|---|---|---|---|---|
/// | short, fresh | x | x | x | x | x | - | x | x |
/// | collecting, closing | x | x | x | x | x | - | x | x |
/// | offered | pass -> passed | x | take -> delivering; finish -> passing (5) | finish -> passing | x | - | x | x |
/// | passed | x | x | x | x | x | - | x | x |
/// | responded | x | restart -> passed; tell (6) | x | finish -> passing | settle -> passing, delivering (7) | - | x | x |
/// | giving | x | x | x | x | x | deliver -> delivering | x | x |
/// | delivering | x | x | x | x | x | - | giving | passing |
/// | passing | x | x | x | x | x | - | x | x |
/// | over | - | - | - | - | - | - | - | - |
///
/// In each cell: the action, if there is one, then the state that follows if it is another; "-" changes nothing; "x"
/// can't happen (F1). Orders come only from the function's own thread: any other thread that has the hop's handle can
/// put events into the lanes beyond the hop, and ask for the end of the call at the hop, which comes as `gone`.
///
/// (1): a second request message passes, because the call itself rejects it. (2): they are held if the call has
/// only one response message, and a second one passes; the headers or the first message of a stream are told.
/// Headers come once, but a hop below may put a message in front of them. (3): held if the call has only one
/// request message, which the function sees with the start. (4): held if the thread that will wait for the response
/// has still to half-close the call. (5): finish if the answer has neither headers nor messages. (6): tell if the
/// call can't begin again; x without a status. (7): delivering if the server has sent no message, and the function
/// gives one. (8): the lane is open although the event before waits, because another thread has asked for the end
/// of the call at the hop, and the hop's verdicts do not count until that end. x once the status has come.
enum SyncStage {
  /// The start could not be copied, for lack of memory, so the call will end.
  case short
  /// The start has not come.
  case fresh
  /// The start waits at the hop until the only request message comes, or the half-close without one.
  case collecting(Outbound)
  /// The start and the request message wait at the hop until the call is half-closed: the thread that does so runs
  /// the function.
  case closing(Outbound)
  /// The function is offered to the threads that may run it, or runs.
  case offered(Outbound)
  /// The function has called `next`, and the start was passed on.
  case passed(Inbound, SyncResponse)
  /// The function has been told of the response, which waits at the hop.
  case responded(Inbound, SyncResponse)
  /// Messages of the function wait at the hop until the caller asks for them.
  case giving(Given)
  /// Messages of the function are on their way to the caller. Meanwhile the caller may ask for more.
  case delivering
  /// The function has no more say. All events pass the hop.
  case passing
  case over

  /// The tickets of the events that wait at the hop on their way out; 0: there is no such event.
  struct Outbound {
    let start: UInt64
    /// The ticket of the request message; if there is no message, the ticket of the half-close.
    var request: UInt64 = 0
    /// The ticket of a half-close behind a message.
    var halfClose: UInt64 = 0
  }

  /// The tickets of the events of the response that wait at the hop; 0: there is no such event.
  struct Inbound {
    var headers: UInt64 = 0
    var message: UInt64 = 0
    var status: UInt64 = 0
  }

  /// The function's answer to the caller: messages, and behind them a status.
  struct Given {
    var messages: [Message]
    let end: End

    enum End {
      /// The status of the function's own answer.
      case own(Status)
      /// The ticket of the server's status, which waits at the hop.
      case waiting(UInt64)
    }
  }

  /// An event that comes to the hop has its ticket, if the stage stops events of its lane.
  enum Event {
    case start(UInt64)
    /// `isClosing`: the thread that will wait for the response has still to half-close the call.
    case request(UInt64, isClosing: Bool)
    case halfClose(UInt64)
    case headers(UInt64)
    case message(UInt64)
    case status(UInt64)
    case gone
    case next
    /// `isRefused`: the call can't begin again.
    case again(isRefused: Bool)
    case answer(SyncAnswer)
    case end
    case letGo
    case demand
    case left(Given)
    case delivered
  }

  enum Action {
    case nothing
    /// The event passes the hop.
    case pass
    /// The event waits at the hop, and later events of its lane come to the hop.
    case hold
    /// The event waits at the hop, and shuts its lane. The function is offered to the threads that may run it.
    case offer
    /// The event waits at the hop, and shuts its lane. The function is told of the response.
    case tell(SyncResponse)
    /// Memory is lacking: the hop ends the call.
    case fail
    /// The hop ends the call with the function's status.
    case finish
    /// Start and request are passed on.
    case passOn(Outbound)
    /// The call begins again below the hop, by the ticket of its status.
    case restart(UInt64)
    /// The hop answers the call.
    case take(Outbound, Metadata?, Given)
    /// The response is passed on. `late`: a message that is delivered before its status.
    case settle(Inbound, SyncResponse, late: Given?)
    case deliver(Given)
  }

  /// Inlined with the table: each caller has one event, and so needs one column of it.
  @inline(__always)
  mutating func handle(_ event: Event, _ kind: CallKind) -> Action {
    guard let action = apply(event, kind) else {
      #if PENSTOCK_CHECKS
        fatalError("invariant F1: \(event.name) at a synchronous interceptor's hop in the state \(name)")
      #else
        // An event that can't happen passes.
        return .pass
      #endif
    }
    #if PENSTOCK_CHECKS
      if let broken = brokenInvariant(kind) { fatalError("invariant \(broken)") }
    #endif
    return action
  }

  /// Carries out the cell of the table; nil: the event can't happen.
  @inline(__always)
  mutating func apply(_ event: Event, _ kind: CallKind) -> Action? {
    switch event {
    case .start(let ticket):
      switch self {
      case .short: become(.passing, .fail)
      case .fresh:
        kind.sendsOne
          ? become(.collecting(Outbound(start: ticket)), .hold)
          : become(.offered(Outbound(start: ticket)), .offer)
      case .collecting, .closing, .offered, .passed, .responded, .giving, .delivering, .passing, .over: nil
      }
    case .request(let ticket, let isClosing):
      switch self {
      case .collecting(let open):
        isClosing
          ? become(.closing(Outbound(start: open.start, request: ticket)), .hold)
          : become(.offered(Outbound(start: open.start, request: ticket)), .offer)
      case .closing, .offered, .passed, .responded, .giving, .delivering, .passing: .pass
      case .short, .fresh, .over: nil
      }
    case .halfClose(let ticket):
      switch self {
      case .collecting(let open): become(.offered(Outbound(start: open.start, request: ticket)), .offer)
      case .closing(let open):
        become(.offered(Outbound(start: open.start, request: open.request, halfClose: ticket)), .offer)
      case .offered, .passed, .responded, .giving, .delivering, .passing: .pass
      case .short, .fresh, .over: nil
      }
    case .headers(let ticket):
      switch self {
      case .passed(let open, let response):
        open.headers != 0
          ? nil
          : respond(Inbound(headers: ticket, message: open.message, status: open.status), response, kind)
      case .responded(let open, _): open.status == 0 ? .pass : nil
      case .passing: .pass
      case .short, .fresh, .collecting, .closing, .offered, .giving, .delivering, .over: nil
      }
    case .message(let ticket):
      switch self {
      case .passed(let open, let response):
        open.message != 0
          ? .pass
          : respond(Inbound(headers: open.headers, message: ticket, status: open.status), response, kind)
      case .responded(let open, _): open.status == 0 ? .pass : nil
      case .passing: .pass
      case .short, .fresh, .collecting, .closing, .offered, .giving, .delivering, .over: nil
      }
    case .status(let ticket):
      switch self {
      case .passed(let open, let response):
        respond(Inbound(headers: open.headers, message: open.message, status: ticket), response, kind)
      case .responded(let open, _): open.status == 0 ? .pass : nil
      case .passing: .pass
      case .short, .fresh, .collecting, .closing, .offered, .giving, .delivering, .over: nil
      }
    case .gone: become(.over, .nothing)
    case .next:
      switch self {
      case .offered(let open): become(.passed(Inbound(), SyncResponse()), .passOn(open))
      case .over: .nothing
      case .short, .fresh, .collecting, .closing, .passed, .responded, .giving, .delivering, .passing: nil
      }
    case .again(let isRefused):
      switch self {
      case .responded(let open, let response):
        if open.status == 0 {
          nil
        } else if isRefused {
          .tell(response)
        } else {
          become(.passed(Inbound(), SyncResponse()), .restart(open.status))
        }
      case .over: .nothing
      case .short, .fresh, .collecting, .closing, .offered, .passed, .giving, .delivering, .passing: nil
      }
    case .answer(let answer):
      switch self {
      case .offered(let open):
        answer.isBare
          ? become(.passing, .finish)
          : become(
            .delivering,
            .take(open, answer.headers, Given(messages: answer.messages, end: .own(answer.status))))
      case .over: .nothing
      case .short, .fresh, .collecting, .closing, .passed, .responded, .giving, .delivering, .passing: nil
      }
    case .end:
      switch self {
      case .offered, .responded: become(.passing, .finish)
      case .over: .nothing
      case .short, .fresh, .collecting, .closing, .passed, .giving, .delivering, .passing: nil
      }
    case .letGo:
      switch self {
      case .responded(let open, let response): settle(open, response)
      case .over: .nothing
      case .short, .fresh, .collecting, .closing, .offered, .passed, .giving, .delivering, .passing: nil
      }
    case .demand:
      switch self {
      case .giving(let given): become(.delivering, .deliver(given))
      case .short, .fresh, .collecting, .closing, .offered, .passed, .responded, .delivering, .passing, .over:
        .nothing
      }
    case .left(let given):
      switch self {
      case .delivering: become(.giving(given), .nothing)
      case .over: .nothing
      case .short, .fresh, .collecting, .closing, .offered, .passed, .responded, .giving, .passing: nil
      }
    case .delivered:
      switch self {
      case .delivering: become(.passing, .nothing)
      case .over: .nothing
      case .short, .fresh, .collecting, .closing, .offered, .passed, .responded, .giving, .passing: nil
      }
    }
  }

  @inline(__always)
  private mutating func become(_ next: SyncStage, _ action: Action) -> Action {
    self = next
    return action
  }

  /// A part of the response has come: it waits for the status if the call has only one response message, and otherwise
  /// the function is told.
  @inline(__always)
  private mutating func respond(_ open: Inbound, _ response: SyncResponse, _ kind: CallKind) -> Action {
    if kind.receivesOne, open.status == 0 { return become(.passed(open, response), .hold) }
    return become(.responded(open, response), .tell(response))
  }

  /// The function lets the response go. A message of its own comes before the status if the server has sent none.
  private mutating func settle(_ open: Inbound, _ response: SyncResponse) -> Action {
    guard open.message == 0, let late = response.replacement else {
      return become(.passing, .settle(open, response, late: nil))
    }
    let given = Given(messages: [late], end: .waiting(open.status))
    return become(.delivering, .settle(open, response, late: given))
  }

  /// Whether the hop takes a ticket for an event of this lane, because the event will probably wait.
  func stops(_ lane: Lane) -> Bool {
    switch self {
    case .fresh, .collecting, .closing: lane == .outbound
    case .passed: lane == .inbound
    case .short, .offered, .responded, .giving, .delivering, .passing, .over: false
    }
  }
}
