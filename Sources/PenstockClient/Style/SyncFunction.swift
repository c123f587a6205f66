import PenstockCall
import PenstockWire

/// How far the function of a synchronous interceptor has come in one call. Only the function's thread uses it, and
/// before that the driving thread (InterceptedCall.swift).
///
/// | | next | responded | lost | end | answer | returned (1) |
/// |---|---|---|---|---|---|---|
/// | beforeNext | next -> inNext | x | x | end -> ended | answer -> ended | broken -> ended |
/// | inNext | E_GONE | afterNext | gone | endElsewhere | hasGoneOn | x |
/// | afterNext (2) | again -> inNext; streamHasBegun | x | x | end -> ended | hasGoneOn | letGo -> ended |
/// | gone | E_GONE | x | x | end -> ended | hasGoneOn | nothing -> ended |
/// | ended | functionHasEnded | x | x | E_ALREADY | E_ALREADY | nothing |
///
/// In each cell: the action, the refusal or the result, then the state that follows if it is another; "x" can't happen
/// (F1). A function that waits in `next` may be called from all the same: its thread runs other functions meanwhile, and
/// they may have its hop.
///
/// (1): with NEXT; with another value broken, where the table has letGo. (2): again if `next` has returned a status.
///
/// | | answer's headers and messages | start, deadline | recorded messages | set message |
/// |---|---|---|---|---|
/// | beforeNext | yes | yes | startNotPassed | request (3) |
/// | inNext, gone | hasGoneOn | streamHasBegun | streamHasBegun | noMessage |
/// | afterNext | hasGoneOn | with a status: yes; streamHasBegun | with a status: yes; streamHasBegun | response (3) |
/// | ended | functionHasEnded | functionHasEnded | functionHasEnded | functionHasEnded |
///
/// (3): if the kind of call has just one such message; otherwise noMessage.
enum SyncFunction: StateTable {
  case beforeNext(Draft)
  /// `next` waits for the response.
  case inNext
  /// `next` has returned with this response.
  case afterNext(SyncResponse)
  /// `next` has returned without a response, because the call has ended.
  case gone
  /// The function has ended or answered the call, or has returned. The response is the one that it has seen; nil: none.
  case ended(SyncResponse?)

  /// The values that the function has prepared before `next`.
  struct Draft {
    /// The request message that has come; nil: there is none, or the request is a stream.
    var message: Message?
    /// The message that the function has set in its place.
    var replacement: Message?
    var answerHeaders: Metadata?
    var answers: [Message] = []

    var change: Change? { replacement.map { Change(of: message, to: $0) } }
  }

  /// The function has set the request message in place of the one that has come, or although none has.
  struct Change {
    let of: Message?
    let to: Message
  }

  enum Event {
    case next
    case responded(SyncResponse)
    case lost
    case end
    case answer
    case returned(isNext: Bool)
  }

  enum Action {
    case nothing
    /// The start is passed on, and the function waits. nil: the request message is as it has come.
    case next(Change?)
    /// The call begins again below the hop, and the function waits.
    case again(SyncResponse)
    case end
    /// The call is ended as by any other thread.
    case endElsewhere
    case answer(Draft)
    case letGo
    /// The interceptor has broken law 7.
    case broken(StaticString)
    case gives(Outcome)
    case refuses(Refusal)
  }

  static var invariant: StaticString { "F1" }
  static var ignored: Action { .gives(.state) }

  /// Carries out the cell of the table; nil: the event can't happen.
  @inline(__always)
  mutating func apply(_ event: Event) -> Action? {
    switch event {
    case .next:
      switch self {
      case .beforeNext(let draft): return become(.inNext, .next(draft.change))
      case .inNext, .gone: return .gives(.gone)
      case .afterNext(let response):
        return response.status == nil ? .refuses(.streamHasBegun) : become(.inNext, .again(response))
      case .ended: return .refuses(.functionHasEnded)
      }
    case .responded(let response):
      switch self {
      case .inNext: return become(.afterNext(response), .nothing)
      case .beforeNext, .afterNext, .gone, .ended: return nil
      }
    case .lost:
      switch self {
      case .inNext: return become(.gone, .nothing)
      case .beforeNext, .afterNext, .gone, .ended: return nil
      }
    case .end:
      switch self {
      case .beforeNext, .gone: return become(.ended(nil), .end)
      case .inNext: return .endElsewhere
      case .afterNext(let response): return become(.ended(response), .end)
      case .ended: return .gives(.already)
      }
    case .answer:
      switch self {
      case .beforeNext(let draft): return become(.ended(nil), .answer(draft))
      case .inNext, .afterNext, .gone: return .refuses(.hasGoneOn)
      case .ended: return .gives(.already)
      }
    case .returned(let isNext):
      switch self {
      case .beforeNext:
        return become(
          .ended(nil),
          .broken(
            isNext ? "returned without calling next, ending the call or answering it" : SyncFunction.badValue)
        )
      case .afterNext(let response):
        return become(.ended(response), isNext ? .letGo : .broken(SyncFunction.badValue))
      case .gone: return become(.ended(nil), .nothing)
      case .ended: return .nothing
      case .inNext: return nil
      }
    }
  }

  private static var badValue: StaticString { "returned a value that its function may not return" }

  // MARK: What the function may do

  /// Why the function can't add headers or a message to an answer of its own; nil: it can.
  var refusesAnswer: Refusal? {
    switch self {
    case .beforeNext: nil
    case .inNext, .afterNext, .gone: .hasGoneOn
    case .ended: .functionHasEnded
    }
  }

  /// Why the function can't change the start; nil: it can, because it may still call `next`.
  var refusesEdit: Refusal? {
    switch self {
    case .beforeNext: nil
    case .afterNext(let response): response.status == nil ? .streamHasBegun : nil
    case .inNext, .gone: .streamHasBegun
    case .ended: .functionHasEnded
    }
  }

  /// Why the function can't change the recorded messages of the request; nil: it can.
  var refusesEditOfRecord: Refusal? {
    if case .beforeNext = self { .startNotPassed } else { refusesEdit }
  }

  /// Sets the request message or the response message. Returns why there is none to set; nil: it was set.
  mutating func setMessage(_ message: Message, _ kind: CallKind) -> Refusal? {
    switch self {
    case .beforeNext:
      guard kind.sendsOne else { return .noMessage }
      edit { $0.replacement = message }
      return nil
    case .afterNext(let response):
      guard kind.receivesOne else { return .noMessage }
      response.replacement = message
      return nil
    case .inNext, .gone: return .noMessage
    case .ended: return .functionHasEnded
    }
  }

  /// The request message before `next`, the response message after it. nil: that is a stream, or has no message.
  func message(_ kind: CallKind) -> Message? {
    switch self {
    case .beforeNext(let draft): draft.replacement ?? draft.message
    case .afterNext(let response): kind.receivesOne ? response.replacement ?? response.message : nil
    case .inNext, .gone, .ended: nil
    }
  }

  /// Changes what the function has prepared, before `next`. The draft is not in `self` meanwhile, so its array has no
  /// second reference and need not be copied.
  mutating func edit<Result>(_ change: (inout Draft) -> Result) -> Result? {
    guard case .beforeNext(var draft) = self else { return nil }
    self = .gone
    defer { self = .beforeNext(draft) }
    return change(&draft)
  }

  var isBeforeNext: Bool { if case .beforeNext = self { true } else { false } }

  /// The response that the function may change; nil: there is none.
  var response: SyncResponse? {
    if case .afterNext(let response) = self { response } else { nil }
  }
}

/// The response of one `next`. The driving thread fills it while the function waits. From then on only the function's
/// thread uses it, until it has given its next order.
final class SyncResponse {
  /// nil: a trailers-only response has no headers.
  var headers: Metadata?
  var message: Message?
  /// nil: the response is a stream that has begun.
  var status: Status?
  /// The message that the function has set in place of the server's, or although the server has sent none.
  var replacement: Message?
  /// Why the `next` that followed could not begin the call again; nil: it could.
  var refusedAgain: Refusal?
}

/// An answer of the function instead of the server's.
struct SyncAnswer {
  var headers: Metadata?
  var messages: [Message]
  var status: Status

  /// Whether it is a status alone.
  var isBare: Bool { headers == nil && messages.isEmpty }
}
