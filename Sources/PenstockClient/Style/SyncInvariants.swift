import PenstockCall

/// The invariants of the synchronous interceptors. Test builds (PENSTOCK_CHECKS) check them:
///
/// - F1: an event comes only in a state in which the table of `SyncStage`, `SyncFunction`, `SyncNews` or `SyncOffer`
///   allows it. At each event.
/// - F2: the hop has a ticket for each event that waits at it, and for no other. After each event of the hop.
/// - F3: the function is told of a response that has what its kind of call needs: a status if there is one response
///   message, otherwise the first event of the stream. After each event of the hop.
/// - F4: once the hop's part is over, the function is neither offered nor waited for: its `next` returns. At that end.
/// - F5: the ready functions of a call are those that are offered and that no thread has begun. After each change.
extension SyncStage {
  #if PENSTOCK_CHECKS
    func brokenInvariant(_ kind: CallKind) -> StaticString? {
      switch self {
      case .collecting(let open):
        if open.start == 0 || open.request != 0 || open.halfClose != 0 { return "F2: only start waits" }
        return kind.sendsOne ? nil : "F2: a stream waits for its request"
      case .closing(let open):
        if open.start == 0 || open.request == 0 || open.halfClose != 0 {
          return "F2: start and the request message wait"
        }
        return kind.sendsOne ? nil : "F2: a stream waits for its request"
      case .offered(let open):
        return open.start == 0 || kind.sendsOne != (open.request != 0) ? "F2: start and request wait" : nil
      case .passed(let open, _):
        if open.status != 0 { return "F2: the function is not told of the status" }
        if kind.receivesOne { return nil }
        return open.headers == 0 && open.message == 0 ? nil : "F2: a stream's response waits"
      case .responded(let open, let response):
        if kind.receivesOne { return open.status != 0 && response.status != nil ? nil : "F3: no status" }
        let waiting = [open.headers, open.message, open.status].count { $0 != 0 }
        if waiting != 1 { return "F3: not one first event of a stream" }
        return (open.status != 0) == (response.status != nil) ? nil : "F3: a status that does not wait"
      case .short, .fresh, .giving, .delivering, .passing, .over: return nil
      }
    }
  #endif

  /// For error texts of test builds.
  var name: StaticString {
    switch self {
    case .short: "short"
    case .fresh: "fresh"
    case .collecting: "collecting"
    case .closing: "closing"
    case .offered: "offered"
    case .passed: "passed"
    case .responded: "responded"
    case .giving: "giving"
    case .delivering: "delivering"
    case .passing: "passing"
    case .over: "over"
    }
  }
}

extension SyncFunction {
  var name: StaticString {
    switch self {
    case .beforeNext: "beforeNext"
    case .inNext: "inNext"
    case .afterNext: "afterNext"
    case .gone: "gone"
    case .ended: "ended"
    }
  }
}

extension SyncNews {
  var name: StaticString {
    switch self {
    case .none: "none"
    case .awaited: "awaited"
    case .response: "response"
    case .over: "over"
    }
  }
}

extension SyncOffer {
  var name: StaticString {
    switch self {
    case .early: "early"
    case .ready: "ready"
    case .queued: "queued"
    case .closed: "closed"
    }
  }
}

extension SyncStage.Event {
  /// For error texts of test builds.
  var name: StaticString {
    switch self {
    case .start: "start"
    case .request: "request"
    case .halfClose: "halfClose"
    case .headers: "headers"
    case .message: "message"
    case .status: "status"
    case .gone: "gone"
    case .next: "next"
    case .again: "again"
    case .answer: "answer"
    case .end: "end"
    case .letGo: "letGo"
    case .demand: "demand"
    case .left: "left"
    case .delivered: "delivered"
    }
  }
}
