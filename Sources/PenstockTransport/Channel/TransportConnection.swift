import PenstockCall
import PenstockWire

/// A connection as attempts and subchannels know it, independent of its protocol. `HTTPVersion` lists the kinds.
///
/// A connection calls its subchannel on the driving thread: `connectionReady` when HTTP is established,
/// `connectionHasSlots` when it has a free slot and the subchannel has asked (`isAsked`),
/// `connectionDraining` when it takes no new streams while its present streams go on, and `connectionEnded`,
/// last and once. Its streams are told of the end after that.
///
/// It is a class, and not a protocol, so that it can be borrowed without counting a reference.
class TransportConnection: ReadyHandler {
  /// Whether the connection has to tell the subchannel of the next free slot, because an attempt waits for one.
  final var isAsked = false

  /// Whether one of the connection's streams belongs to a health check and not to a call.
  final var isWatched = false

  /// Whether the connection has been ready. If so, its end is reported as an event of the channel (`lost`).
  final var wasReady = false

  // MARK: For attempts

  /// The facts about the connection for the statistics of its calls; nil before it is open.
  var facts: ConnectionFacts? { nil }
  /// Whether the peer has answered a call on the connection, or has said that it will answer one before the
  /// connection ends.
  var hasAnswered: Bool { false }
  /// How many streams may still be opened now; 0 or less: a call has to wait, or to look for another connection.
  var slots: Int { 0 }
  /// Makes a stream, which the caller opens at once.
  func newStream(_ owner: StreamOwner, sending pieces: consuming PieceQueue) -> TransportStream {
    TransportStream(owner, sending: pieces)
  }

  // MARK: For a subchannel

  /// Sets `hasAnswered` back to false, because the only answer so far was that to a health check.
  func forgetAnswer() {}

  /// Begins to speak HTTP. The connection owns the link from now on, with the bytes that the connector's
  /// steps have left in it. Before this call the connection does not call its subchannel.
  func begin() {}
  /// The reason why the connection takes no new streams any more; nil: it takes them.
  var leaving: ByteBuffer? { nil }
  /// Called when the time for connecting is over: the connection closes.
  func timedOut() {}
  /// Takes no new streams, and closes when the last one has ended.
  func drain() {}
  /// Closes the connection, and tells the peer first.
  func closeGracefully() {}
  /// Closes only the descriptor; called in a forked child.
  func closeInChild() {}

  // MARK: For the loop

  func ready(_ events: UInt32) {}
}

/// The version of HTTP that a connection speaks. To add a version, add a case.
enum HTTPVersion {
  case http2

  /// The version that TLS calls `name` (ALPN, RFC 7301). nil: the library does not speak it.
  init?(alpn name: ByteView) {
    guard bytesEqual(name, "h2") else { return nil }
    self = .http2
  }

  /// The version that the peer has chosen in TLS. Without a choice it is HTTP/2 (RFC 9113 section 3.3, "prior
  /// knowledge").
  @inline(never) @_optimize(size)
  static func chosen(on link: Link) -> HTTPVersion {
    link.engine.flatMap { HTTPVersion(alpn: $0.alpn) } ?? .http2
  }

  /// Makes a connection, which takes over `link` after all steps of a connector. nil: no memory.
  @inline(never) @_optimize(size)
  func connection(
    on link: Link, _ peer: ByteBuffer, _ channel: ChannelCore, _ owner: Subchannel
  ) -> TransportConnection? {
    switch self {
    case .http2: return HTTP2Connection.make(link, peer, channel, owner)
    }
  }
}
