import PenstockCall
import PenstockFraming

/// The parts of the answer to an attempt that have come and that the call has not been told. The call is told in this order:
/// headers, messages, end.
///
/// The head:
///
/// | | comes: headers | foreign | statusInBody | ended | informational | takeHeaders, takeForeign |
/// |---|---|---|---|---|---|---|
/// | awaited | headers | foreign | statusInBody | awaited, failed | - | x |
/// | headers | x | x | x | x | x | told |
/// | foreign | x | x | x | x | x | statusInBody |
/// | told, statusInBody | x | x | x | x | x | x |
///
/// The message that waits, and the end:
///
/// | | message | says | fails | takeMessage |
/// |---|---|---|---|---|
/// | open | message | said | failed | x |
/// | said | message, said | said | failed | x |
/// | failed | message, failed | - | - | x |
/// | message | x | message, said | message, failed | open |
/// | message, said | x | message, said | message, failed | said |
/// | message, failed | x | - | - | failed |
///
/// In each cell: the next state; "-" changes nothing; "x" can't happen (A1), and a `take` gives nil there. A message
/// comes only when the head is in `headers` or `told` (A5). The first failure counts, except that of a head (`ended`),
/// which is told before all others.
struct AttemptAnswer {
  enum Head {
    case awaited
    /// The headers have come, and the call is told of them next.
    case headers(Metadata)
    /// The head belongs to no RPC. The first bytes of its body are read for this status (`ForeignFraming`).
    case foreign(Status)
    /// The call has been told of the headers.
    case told
    /// The body contains the call's status, and no message. So it is read even if the call asks for no message.
    case statusInBody
  }

  enum End {
    case open
    /// The trailers have come, or the status in the body that stands for them. They count when the stream ends.
    case said(Status)
    /// This status ends the call once the message that waits was delivered. No more of the body is read; only a message
    /// that is being decompressed may still come.
    case failed(Status)
  }

  struct Waiting {
    let message: Message
    /// The size of the message in bytes as it was received; it may have been compressed.
    let size: UInt32
  }

  private(set) var head = Head.awaited
  private(set) var end = End.open
  /// The message that the call has not taken; nil: none.
  private(set) var waiting: Waiting?

  // MARK: Events

  mutating func comes(_ start: ResponseStart) {
    guard case .awaited = head else { return broken("A1: a second head") }
    switch start {
    case .informational: break
    case .headers(let metadata): head = .headers(metadata)
    case .foreign(let status): head = .foreign(status)
    case .statusInBody: head = .statusInBody
    case .ended(let status): end = .failed(status)
    }
  }

  /// The headers, of which the call is told now.
  mutating func takeHeaders() -> Metadata? {
    guard case .headers(let metadata) = head else { return nil }
    head = .told
    return metadata
  }

  /// The status of an answer that belongs to no RPC, whose body is read from now on.
  mutating func takeForeign() -> Status? {
    guard case .foreign(let status) = head else { return nil }
    head = .statusInBody
    return status
  }

  mutating func comes(_ message: Message, size: Int) {
    guard waiting == nil else { return broken("A1: a second message") }
    waiting = Waiting(message: message, size: UInt32(clamping: size))
  }

  /// The message, which the call gets now.
  mutating func takeMessage() -> Waiting? { waiting.take() }

  /// The attempt is over, and its call takes no message any more.
  mutating func drop() {
    if waiting != nil { waiting = nil }
  }

  mutating func says(_ status: Status) {
    switch end {
    case .open, .said: end = .said(status)
    case .failed: break
    }
  }

  mutating func fails(_ status: Status) {
    switch end {
    case .open, .said: end = .failed(status)
    case .failed: break
    }
  }

  /// The stream has ended. Returns the status that the server has said.
  mutating func takeSaid() -> Status? {
    guard case .said(let status) = end else { return nil }
    end = .open
    return status
  }

  // MARK: Questions

  var hasFailed: Bool {
    switch end {
    case .failed: true
    case .open, .said: false
    }
  }

  /// A status that ends the call; nil: there is none.
  var failure: Status? {
    switch end {
    case .failed(let status): status
    case .open, .said: nil
    }
  }

  /// Whether messages may come.
  var hasHeaders: Bool {
    switch head {
    case .headers, .told: true
    case .awaited, .foreign, .statusInBody: false
    }
  }

  /// Whether something waits that is not told at once.
  var isPending: Bool { waiting != nil || hasFailed }

  /// Whether no head has come, or one that ends the call at once (`ended`).
  var isAwaited: Bool {
    switch head {
    case .awaited: true
    case .headers, .foreign, .told, .statusInBody: false
    }
  }

  /// Whether the body has the status in place of messages.
  var readsStatus: Bool {
    switch head {
    case .statusInBody: true
    case .awaited, .headers, .foreign, .told: false
    }
  }

  /// The part of the body that may be decoded as its bytes arrive, if the call wants a message.
  enum Ahead: Equatable, Sendable {
    case nothing
    /// The frame with the status, which needs no demand, as trailers need none.
    case last
    /// That, or a message that has arrived as a whole: the call may be paused at the headers, and until it knows of them
    /// nothing is decoded that needs further memory.
    case whole
    case anything
  }

  var ahead: Ahead {
    if hasFailed { return .nothing }
    switch head {
    case .headers: return waiting == nil ? .whole : .last
    case .told: return waiting == nil ? .anything : .last
    case .awaited, .foreign, .statusInBody: return .nothing
    }
  }

  /// The part that the call is told next.
  enum Next: Equatable, Sendable {
    case headers, foreign, message, failure
    /// The next part of the body is decoded. `needsDemand`: only if the call wants a message.
    case body(needsDemand: Bool)
    /// The head has not come, so only the stream's end may follow.
    case end
  }

  var next: Next {
    switch head {
    case .headers: return .headers
    case .foreign: return .foreign
    case .awaited, .told, .statusInBody: break
    }
    if waiting != nil { return .message }
    if hasFailed { return .failure }
    switch head {
    case .told: return .body(needsDemand: true)
    case .statusInBody: return .body(needsDemand: false)
    case .awaited, .headers, .foreign: return .end
    }
  }

  /// Test builds stop here.
  private func broken(_ invariant: StaticString) {
    #if PENSTOCK_CHECKS
      fatalError("invariant \(invariant)")
    #endif
  }
}
