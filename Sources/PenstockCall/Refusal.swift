import Synchronization

/// The reason why a hop's function returned E_STATE. It is kept as a number, and turned into text only when
/// the user asks (`penstock_hop_why`).
public enum Refusal: UInt8 {
  case none
  // The function was called outside the callbacks or threads in which it is allowed.
  case outsideCallback, inDestroy, createOnly, demandOnly, statusOnly, startOrStatusOnly
  case outsideFunction, notSynchronous, ownHandle, callbackHasReturned
  // The function cannot be used for the event that the callback or handle is about.
  case noMessage, takesObjects, takesBytes, isLocal, isToldOnly, startWaits
  // The call has not reached the point from which the function is allowed, or has gone beyond it.
  case startNotCome, startNotPassed, startHasPassed, hasTaken, hasHalfClosed, hasDeliveredStatus, headersLate
  case secondMessage, hasGoneOn, functionHasEnded, streamHasBegun
  // The call can't be sent again by a RESTART.
  case notRecorded, recordGone, overReplayBytes, restartsUsed, noCopies, noMemory
  // The call can't be redirected to the other channel.
  case otherLoop

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
    case .callbackHasReturned: "the callback has returned, and its event waits without HOLD"
    case .noMessage: "there is no message at this event"
    case .takesObjects: "messages are objects of the call's codec at this hop"
    case .takesBytes: "messages are bytes at this hop"
    case .isLocal: "a cancel or a deadline has ended the call: its status can't be changed"
    case .isToldOnly: "this callback can't end the call"
    case .startWaits: "while start waits, only its metadata can be changed outside of the callback"
    case .startNotCome: "start has not come to this hop yet"
    case .startNotPassed: "start has not left this hop yet"
    case .startHasPassed: "start has left this hop, which can't answer the call any more"
    case .hasTaken: "the hop has taken the call: nothing goes below"
    case .hasHalfClosed: "half-close has left this hop"
    case .hasDeliveredStatus: "the hop has delivered its status"
    case .headersLate: "a message has been delivered, and headers go first"
    case .secondMessage: "the call has one response message, which has been delivered"
    case .hasGoneOn: "next has been called: the call has gone on"
    case .functionHasEnded: "the function has ended or answered the call"
    case .streamHasBegun: "next has returned no status, because the headers of the response have come"
    case .notRecorded: "the hop records nothing that could be sent again: it has no replay_bytes"
    case .recordGone: "headers or a message have gone above this hop: the call can't begin again"
    case .overReplayBytes: "the request is over replay_bytes: the call can't begin again"
    case .restartsUsed: "max_restarts is used up"
    case .noCopies: "the request has objects that can't be copied: the call can't begin again"
    case .noMemory: "there is no memory to begin the call again"
    case .otherLoop: "the channel is on another loop of the runtime, and a call stays on its loop"
    }
  }
}

extension HopHandle {
  /// The reason for the E_STATE of the last function called with this handle. Any thread.
  public final var why: Refusal { Refusal(rawValue: refusal.load(ordering: .relaxed)) ?? .none }

  /// Forgets the reason. Each function that can give E_STATE begins with this, so that `why` is about the last
  /// function. Any thread.
  public final func forgetRefusal() { refusal.store(Refusal.none.rawValue, ordering: .relaxed) }
}

extension Hop {
  /// Notes the reason for an E_STATE, and returns E_STATE. Any thread.
  public func refuse(_ why: Refusal) -> Outcome {
    refusal.store(why.rawValue, ordering: .relaxed)
    return .state
  }
}

extension BoundHop {
  public final func refuse(_ why: Refusal) -> Outcome { hop.refuse(why) }

  /// Copies the reason for an E_STATE from the hop to this handle, because the function was called with this
  /// handle.
  public final func noteRefusal() { refusal.store(hop.why.rawValue, ordering: .relaxed) }
}
