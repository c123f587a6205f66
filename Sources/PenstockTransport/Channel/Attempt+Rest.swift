import PenstockCall
import PenstockChannel
import PenstockHTTP
import PenstockLoop
import PenstockFraming

/// How an attempt sends the last bytes of a message that its framing keeps, because their form depends on what comes
/// behind them. They go with the next message, or at the half-close; but if the server may answer before that, they wait
/// for a short time only.
extension Attempt {
  /// Nanoseconds for which these bytes wait.
  private static let restWait: UInt64 = 10_000_000

  /// Whether the framing keeps bytes that the server may wait for.
  private var hasRest: Bool {
    guard request == .open, let stream, !stream.isHalfDuplex else { return false }
    return borrow(framing) { $0.sendsRest && $0.rest == .bytes } ?? false
  }

  /// Lets the bytes that the framing keeps go soon: at the end of this turn, or when the timer is due.
  @inline(__always)
  func scheduleRest() {
    if borrow(framing, { $0.sendsRest }) == true { planRest() }
  }

  private func planRest() {
    guard hasRest, let framing else { return }
    guard framing.mayWaitWithRest else { return core.work.schedule(self) }
    let timer = framing.timer ?? ChannelTimer(.send(.passUnretained(self)))
    framing.store(timer)
    core.runtime.arm(timer, at: Time.after(Attempt.restWait, core.runtime.now))
  }

  func sendRestInTurn() {
    if borrow(framing, { $0.sendsRest && !$0.mayWaitWithRest }) == true { sendRest() }
  }

  /// Sends the bytes that the framing keeps.
  func sendRest() {
    guard hasRest, !answer.hasFailed, let call, let framing else { return }
    send(framing.lastPiece(), call)
    check()
  }

  /// Disarms the timer of the framing, which the attempt does not need any more.
  func disarm() {
    guard answer.readsStatus || borrow(framing, { $0.sendsRest }) == true else { return }
    if let timer = framing?.timer { core.runtime.disarm(timer) }
  }
}
