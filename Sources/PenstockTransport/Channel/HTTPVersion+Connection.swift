import PenstockHTTP
import PenstockLink
import PenstockWire
import PenstockFraming

extension HTTPVersion {
  /// Makes a connection, which takes over `link` after all steps of a connector. nil: no memory.
  func connection(
    on link: Link, _ peer: ByteBuffer, _ channel: ChannelCore, _ owner: Subchannel
  ) -> TransportConnection? {
    switch self {
    case .http2:
      return HTTP2Connection.make(
        link, peer, channel.runtime, channel.work, channel.destination, channel.defaults.rpc, owner)
    case .http1: return HTTP1Pool.make(link, peer, channel, owner)
    }
  }
}
