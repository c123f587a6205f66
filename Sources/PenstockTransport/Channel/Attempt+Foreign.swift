import PenstockCall
import PenstockChannel
import PenstockLoop
import PenstockLink
import PenstockHTTP
import PenstockFraming

/// How an attempt ends whose answer belongs to no RPC, such as a proxy's page.
extension Attempt {
  /// Reads the first bytes of the answer for `status`, which then ends the call. A server that does not send them is
  /// not awaited for long.
  func takeForeign(_ status: Status) {
    disarm()
    let foreign = ForeignFraming(status, ChannelTimer(.page(.passUnretained(self))))
    framing = foreign
    core.runtime.arm(foreign.patience, at: Time.after(Limits.foreignBodyNanoseconds, core.runtime.now))
  }

  /// Ends the call, although not all of these bytes have come.
  func pageIsLate() {
    if call != nil, let framing { failSoon(framing.status(.body, trailers: nil, deadlineHasPassed: false)) }
  }
}
