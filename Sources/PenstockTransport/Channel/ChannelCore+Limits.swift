import PenstockCall
import PenstockChannel
import PenstockHTTP
import PenstockLoop
import PenstockWire

// The channel's own limits: how many calls may wait, and how many connections there may be in all.

extension ChannelCore {
  /// Whether `attempt` may wait for a connection or a free stream. If not, it fails at the end of the turn. An attempt that
  /// has waited before, or that a server has refused, has its place already.
  func admits(_ attempt: Attempt) -> Bool {
    let most = destination.mostPendingCalls
    guard most > 0, !attempt.isAdmitted, attempt.order != .afterRefusal else { return true }
    if waiting.count + parked.count >= most {
      waiting.sweep()
      parked.sweep()
    }
    attempt.isAdmitted = waiting.count + parked.count < most
    guard !attempt.isAdmitted else { return true }
    let words = ByteBuffer().say("the channel has ").say(most)
      .say(" calls that wait already, as many as it may have (max_pending_calls): ")
    words.say(lack == .slot ? "no connection takes one more call" : "there is no connection")
    attempt.failSoon(Status(.resourceExhausted, words: words))
    return false
  }

  /// How many further connections the channel may make. A connection that is being made counts, and one that only ends
  /// its last calls does not.
  var connectionRoom: Int {
    let most = destination.mostConnectionsInAll
    guard most > 0 else { return .max }
    return most - endpoints.reduce(0) { $0 + $1.connectionCount }
  }

  /// The reason why no first connection to a further address may be made; nil: it may. A policy that uses one address alone
  /// always may: it tries the addresses one after the other, and keeps one connection.
  var connectionRefusal: ByteBuffer? {
    guard usesAllEndpoints, connectionRoom <= 0 else { return nil }
    return ByteBuffer().say("the channel has ").say(destination.mostConnectionsInAll)
      .say(" connections, as many as it may have (max_connections)")
  }
}
