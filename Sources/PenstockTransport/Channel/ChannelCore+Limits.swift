import PenstockCall
import PenstockChannel
import PenstockHTTP
import PenstockWire

// The channel's own limits on its connections and on the calls that wait.

extension ChannelCore {
  /// How many of the addresses that are to have a connection have none, and are making none.
  var unconnected: Int {
    usesAllEndpoints ? endpoints.reduce(0) { $0 + ($1.isConnected ? 0 : 1) } : 0
  }

  /// Called when a connector waits for a place: closes the connection that has been without a call for the longest time.
  /// `sparesLast`: not the last one to its address.
  func closeLongestIdle(sparesLast: Bool) {
    var found: Subchannel?
    var since = UInt64.max
    for subchannel in endpoints {
      if let time = subchannel.idleSince(sparesLast: sparesLast), time < since {
        (found, since) = (subchannel, time)
      }
    }
    found?.closeLongestIdle()
  }

  /// Whether `attempt` may wait for a connection or a free stream. If not, it fails at the end of the turn. An attempt that
  /// has waited before, or that a server has not taken, has its place already.
  func admits(_ attempt: Attempt) -> Bool {
    let most = destination.mostPendingCalls
    guard most > 0, !attempt.isAdmitted, attempt.order != .afterRefusal else { return true }
    if waiting.count + parked.count >= most {
      waiting.sweepGone()
      parked.sweepGone()
    }
    attempt.isAdmitted = waiting.count + parked.count < most
    guard !attempt.isAdmitted else { return true }
    let words = ByteBuffer().say("the channel has ").say(most)
      .say(" calls that wait already, as many as it may have (max_pending_calls): ")
    words.say(lack == .slot ? "no connection takes one more call" : "there is no connection")
    attempt.failSoon(Status(.resourceExhausted, words: words))
    return false
  }
}
