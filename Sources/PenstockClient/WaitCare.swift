import PenstockCall

/// The conditions that a thread in a blocking function has to check before it waits for a call. Most calls
/// have no conditions, and so no such object. Under the call's lock.
final class WaitCare {
  /// The time in ns for which a thread waits for a promised half-close while no message is sent.
  private static let patience: UInt64 = 5_000_000_000

  /// Executors that still have to run a callback before the call can end.
  private var needed: [any Executor] = []
  /// Whether the call is bidi and its stream is half-duplex: the server may send no message before the
  /// half-close.
  var takesTurns = false
  /// Whether the user has promised that another thread will half-close the call, and will not wait for a
  /// message before that.
  var isPromised = false
  /// `sent`: the number of sent messages when a waiting thread last checked. `idleSince`: the time (monotonic
  /// ns) since when no message has been sent.
  private var sent = -1
  private var idleSince: UInt64 = 0

  /// Adds an executor to `needed`. False: it was in the list already.
  func note(_ executor: any Executor) -> Bool {
    if needed.contains(where: { $0 === executor }) { return false }
    needed.append(executor)
    return true
  }

  /// Whether the calling thread belongs to an executor that still has to run a callback of the call. The call
  /// can't end while this thread waits.
  var needsThisThread: Bool { needed.contains { $0.isOnThisThread } }

  /// Whether a half-close is still expected: it was promised, and a message was sent within the last
  /// `patience`.
  func expectsHalfClose(sent count: Int, inFlight: Int, now: UInt64) -> Bool {
    guard isPromised else { return false }
    if count != sent || inFlight > 0 {
      sent = count
      idleSince = now
    }
    return now &- idleSince < WaitCare.patience
  }
}
