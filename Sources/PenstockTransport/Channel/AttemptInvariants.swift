import PenstockCall
import PenstockHTTP

/// The invariants of an attempt. Test builds (PENSTOCK_CHECKS) check A1 at each event, and the others after each function
/// that starts, ends or moves the attempt or tells the call of it:
///
/// - A1: an event comes only in a state in which the table of `AttemptLife`, `AttemptRequest` or `AttemptAnswer` allows
///   it.
/// - A2: the attempt has its call from its start to its end, and not before or after.
/// - A3: it has a stream while it is streaming, and none before. Pieces of the request are kept here only before that.
/// - A4: an attempt that has stopped has a failure to tell, and a turn in which it tells it; one that waits has none.
/// - A5: a message waits only if the headers have come.
/// - A6: an attempt gathers only while its request is not whole; and while the request is closing, the framing packs.
/// - A7: when it has told what has come, nothing is left that the call may have.
/// - A8: after its end it is not in the channel's list, and keeps neither a message nor pieces.
extension Attempt {
  /// `isTold`: all that has come was told just now.
  @inline(__always)
  func check(isTold: Bool = false) {
    #if PENSTOCK_CHECKS
      if let broken = brokenInvariant ?? (isTold ? untold : nil) { fatalError("invariant \(broken)") }
    #endif
  }

  #if PENSTOCK_CHECKS
    private var brokenInvariant: StaticString? {
      if life.hasCall != (call != nil) { return "A2: an attempt without its call, or a call that has gone" }
      if life.isStreaming ? stream == nil : life != .over && stream != nil { return "A3: the stream" }
      if stream != nil, pieces.bytes > 0 { return "A3: pieces that the stream has not got" }
      if life == .stopped, !answer.hasFailed || !isScheduled {
        return "A4: nothing ends an attempt that has stopped"
      }
      if life.isWaiting, answer.hasFailed { return "A4: an attempt that has failed waits" }
      if answer.waiting != nil, !answer.hasHeaders { return "A5: a message before the headers" }
      if life == .gathering, request == .whole { return "A6: a whole request is gathered" }
      if request == .closing, life.hasCall, !answer.hasFailed, !answer.readsStatus, !isPacking {
        return "A6: nothing ends the request"
      }
      if life == .over, listIndex >= 0 || answer.waiting != nil || pieces.bytes > 0 {
        return "A8: an attempt that is over keeps something"
      }
      return nil
    }

    private var untold: StaticString? {
      guard life.isStreaming, let call = owner else { return nil }
      switch answer.next {
      case .headers, .foreign: return "A7: something is untold"
      // The call may have sent a message that fails while it was told of something else.
      case .failure: return isScheduled ? nil : "A7: a failure is untold"
      case .message: return call.wantsMessage ? "A7: a message is untold" : nil
      case .body, .end: return nil
      }
    }
  #endif
}
