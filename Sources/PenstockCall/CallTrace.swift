import PenstockWire

/// One entry of a call's trace: something that happened in the call. A note never contains messages or
/// metadata.
public struct TraceNote {
  public enum What: Int, Sendable {
    /// A hop's callback has returned.
    case callback
    /// A callback was given to its hop's executor, which will run it.
    case executor
    /// A ticket was resolved with a verdict, or with a status, whose code is then `detail`.
    case resolved
    /// The hop has ended the call; `detail` is the status code.
    case endedByHop
    /// The call is sent again: after a RESTART by the hop, or, if there is no hop, because the server has not
    /// processed the request. `detail` says how often the call has been sent again from this hop, or from the
    /// attempt.
    case restarted
    /// The request will be sent again by its method's retry policy, after a wait.
    case retries
    /// A RESTART was not possible; `detail` is the `Outcome` that says why.
    case notRestarted
    /// The call was sent to another channel.
    case redirected
    /// The hop has started a call of its own; `detail` is the new call's id.
    case sideCall
    /// The event has come from the caller, or has reached the caller.
    case caller
    /// The event has gone to the transport, or has come from it.
    case transport
    /// The attempt begins to wait; `detail` is the `Lack` that says for what.
    case waiting
    /// A cancel or the deadline has ended the call; `detail` is the status code.
    case endedLocally
    /// The call has ended, and the caller gets the status; `detail` is its code.
    case ended
  }

  public let what: What
  public let event: EventKind
  /// The index of the hop in the chain; -1 if the note is about no hop.
  public let hop: Int
  public let attempt: UInt32
  /// The verdict of the callback or the ticket; nil for notes about anything else.
  public var verdict: Int32?
  public var detail: Int
  /// The time of the note in monotonic nanoseconds; for a callback, when it began.
  public var time: UInt64
  public var took: UInt64 = 0
  public let thread: UInt
  public let isDriving: Bool
}

/// Keeps the notes of one call. `note` is called on any thread, because callbacks run on executors too.
public protocol CallTrace: AnyObject {
  func note(_ note: TraceNote)
}

extension Call {
  /// Adds a note about the hop to the call's trace. Call it only if `trace != nil`, so that a call without a
  /// trace pays for that test only.
  public func note(
    _ what: TraceNote.What, _ hop: Hop? = nil, _ event: EventKind = .none, verdict: Int32? = nil,
    detail: Int = 0, since: UInt64? = nil
  ) {
    guard let trace else { return }
    let now = loop.clock
    var note = TraceNote(
      what: what, event: event, hop: hop?.index ?? -1, attempt: hop?.attempt ?? 0, verdict: verdict,
      detail: detail, time: since ?? now, thread: loop.thread, isDriving: loop.isDriving)
    if let since { note.took = now > since ? now - since : 0 }
    trace.note(note)
  }

  func noteResolved(_ hop: Hop, _ event: EventKind, _ resolution: Resolution) {
    switch resolution {
    case .verdict(let verdict): note(.resolved, hop, event, verdict: verdict.rawValue)
    case .finish(let status): note(.resolved, hop, event, detail: Int(status.code.rawValue))
    case .broken: note(.resolved, hop, event, detail: Int(StatusCode.internal.rawValue))
    }
  }

  /// Adds a note about an input that comes from outside the hops to the trace.
  func note(_ input: Input) {
    switch input {
    case .open: note(.caller, nil, .start)
    case .send: note(.caller, nil, .send)
    case .halfClose: note(.caller, nil, .halfClose)
    case .demand(let n): note(.caller, nil, .demand, detail: n)
    case .headersFromBelow: note(.transport, nil, .headers)
    case .messageFromBelow: note(.transport, nil, .receive)
    case .statusFromBelow(let status): note(.transport, nil, .status, detail: Int(status.code.rawValue))
    case .sentFromBelow(let n): note(.transport, nil, .sent, detail: n)
    case .endLocally(let status): note(.endedLocally, nil, .status, detail: Int(status.code.rawValue))
    case .sentFrom, .resolve, .resume, .answer, .put, .finish, .demandBelow, .flush, .replay, .ran,
      .executorLost, .awaited:
      break
    }
  }
}

extension Hop {
  func runTraced(_ kind: EventKind, _ body: () -> Int32) -> Int32 {
    let began = call.loop.clock
    let answer = body()
    var verdict: Int32?
    switch kind {
    case .start, .send, .halfClose, .headers, .receive, .status, .create, .pick: verdict = answer
    case .none, .cancel, .demand, .sent, .destroy: break
    }
    call.note(.callback, self, kind, verdict: verdict, since: began)
    return answer
  }
}
