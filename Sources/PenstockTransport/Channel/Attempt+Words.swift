import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop

/// What an attempt waits for, in words: for snapshots, traces, and the status of a deadline.
extension Attempt {
  func sayWaiting(for holder: Holder, _ text: ByteBuffer) {
    switch holder {
    case .name:
      text.say("waiting for the addresses of the name")
      if core.nameless.isEmpty { return }
      text.say(": ").say(core.nameless.view)
    case .connection:
      text.say("waiting for a connection to ")
      ConnectReport.say(core.destination.name, core.endpoints, now: core.runtime.now, to: text)
    case .slot:
      text.say("waiting for ")
      core.sayFull(text)
    case .endpoint:
      text.say("waiting for an endpoint that the picker, a hop or the request takes")
      if core.limit.isShort {
        let words = core.limit.words
        withExtendedLifetime(words) { _ = text.say("; ").say(words.view) }
      }
    case .server:
      text.say("waiting for the server")
      if let peer = owner?.connection?.peer { text.say(" ").say(peer.view) }
      if request == .open { text.say(", or for the caller to send") }
    case .running, .hop, .taken, .retry, .demand, .loop, .nobody: break
    }
  }
}

extension ChannelCore {
  /// Appends in words what the calls wait for that find no slot on any connection.
  fileprivate func sayFull(_ text: ByteBuffer) {
    let before = text.count
    for endpoint in endpoints where text.count == before && endpoint.connectivity == .ready {
      endpoint.sayFull(text)
    }
    if text.count == before { text.say("a connection that takes one more call") }
  }
}
