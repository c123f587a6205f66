import Synchronization

/// Why a hop did not do what it was asked for: kept as a number where a function gives E_STATE, and told in words only when
/// somebody asks (`penstock_hop_why`).
public enum Refusal: UInt8 {
  case none
  // The wrong place.
  case outsideCallback, inDestroy, createOnly, demandOnly, statusOnly, startOrStatusOnly
  case outsideFunction, notSynchronous, ownHandle
  // The event.
  case noMessage, takesObjects, takesBytes, isLocal, isToldOnly, otherEvent, startWaits
  // The call's course.
  case startNotCome, startNotLeft, startHasLeft, hasTaken, hasHalfClosed, hasDeliveredStatus, headersLate
  case secondMessage, hasGoneOn, beforeNext, functionHasEnded, streamHasBegun
  // A RESTART.
  case notRecorded, recordGone, overReplayBytes, restartsUsed, noCopies, noMemory

  public var text: StaticString {
    switch self {
    case .none: ""
    case .outsideCallback: "allowed only in a callback of this hop, on its thread"
    case .inDestroy: "not allowed in destroy"
    case .createOnly: "allowed in create only"
    case .demandOnly: "allowed in on_demand only"
    case .statusOnly: "allowed in on_status only"
    case .startOrStatusOnly:
      "the start can be changed in on_start, and in the on_status of an interceptor with replay_bytes"
    case .outsideFunction:
      "allowed only in the function of the synchronous interceptor, on its thread, until it returns"
    case .notSynchronous: "not the hop of a synchronous interceptor's function"
    case .ownHandle: "no event waits at a callback's own hop: return a verdict, or resolve a ticket"
    case .noMessage: "there is no message at this event"
    case .takesObjects: "messages are objects of the call's codec at this hop"
    case .takesBytes: "messages are bytes at this hop"
    case .isLocal: "a cancel or a deadline has ended the call, and that status stays"
    case .isToldOnly: "this callback can't end the call"
    case .otherEvent: "this event has no such part"
    case .startWaits: "of a start that waits only the metadata can be changed outside of its callback"
    case .startNotCome: "start has not come to this hop yet"
    case .startNotLeft: "start has not left this hop yet"
    case .startHasLeft: "start has left this hop, which can't answer the call any more"
    case .hasTaken: "the hop has taken the call: nothing goes below"
    case .hasHalfClosed: "half-close has left this hop"
    case .hasDeliveredStatus: "the hop has delivered its status"
    case .headersLate: "a message has been delivered, and headers go first"
    case .secondMessage: "the call has one response message, which has been delivered"
    case .hasGoneOn: "the call has gone on with next"
    case .beforeNext: "there is no response before next"
    case .functionHasEnded: "the function has ended or answered the call"
    case .streamHasBegun: "next has given no status: the headers of the response have come"
    case .notRecorded: "the hop keeps nothing to begin again with: it has no replay_bytes"
    case .recordGone: "headers or a message have gone above this hop: the call can't begin again"
    case .overReplayBytes: "the request is over replay_bytes: the call can't begin again"
    case .restartsUsed: "max_restarts is used up"
    case .noCopies: "the request has objects that can't be copied: the call can't begin again"
    case .noMemory: "there is no memory to begin again with"
    }
  }
}

extension HopHandle {
  /// Why a function that got this handle gave E_STATE last; any thread.
  public final var why: Refusal { Refusal(rawValue: refusal.load(ordering: .relaxed)) ?? .none }
}

extension Hop {
  /// E_STATE, and why; any thread.
  public func refuse(_ why: Refusal) -> Outcome {
    refusal.store(why.rawValue, ordering: .relaxed)
    return .state
  }
}

extension BoundHop {
  public final func refuse(_ why: Refusal) -> Outcome { hop.refuse(why) }

  /// A function that got this handle gave E_STATE: its reason is the hop's last.
  public final func noteRefusal() { refusal.store(hop.why.rawValue, ordering: .relaxed) }
}
