import PenstockCall

/// The reasons for which a thread must not simply wait for a call. Most calls have none, and no such object. Used under
/// the call's lock.
final class WaitCare {
  /// How long a thread waits without a message being sent, although the half-close was promised, in nanoseconds.
  private static let patience: UInt64 = 5_000_000_000

  /// Executors that have to run a callback before the call can end.
  private var needed: [any Executor] = []
  /// Whether the call is bidi and its stream half-duplex: no message can be relied on before the half-close.
  var takesTurns = false
  /// Whether another thread half-closes the call, and waits for no message before that.
  var isPromised = false
  /// How many messages had been sent when a waiting thread looked last, and since when nothing has been sent.
  private var sent = -1
  private var idleSince: UInt64 = 0

  /// False: the executor was noted before.
  func note(_ executor: any Executor) -> Bool {
    if needed.contains(where: { $0 === executor }) { return false }
    needed.append(executor)
    return true
  }

  /// Whether the calling thread belongs to an executor that still has to run a callback of the call. The call
  /// can't end while this thread waits.
  var needsThisThread: Bool { needed.contains { $0.isOnThisThread } }

  /// Whether the half-close may still come: it was promised, and messages are sent meanwhile.
  func expectsHalfClose(sent count: Int, inFlight: Int, now: UInt64) -> Bool {
    guard isPromised else { return false }
    if count != sent || inFlight > 0 {
      sent = count
      idleSince = now
    }
    return now &- idleSince < WaitCare.patience
  }
}
