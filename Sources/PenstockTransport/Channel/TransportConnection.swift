import PenstockCall
import PenstockWire
import PenstockLoop

/// A connection as attempts and subchannels see it, independent of the HTTP version. `HTTPVersion` lists the
/// subclasses.
///
/// A connection calls these functions of its subchannel on the driving thread: `connectionReady` when HTTP is
/// established; `connectionHasSlots` when it can open a further stream and `isAsked` is set;
/// `connectionDraining` when it accepts no new streams, while its present streams continue; and
/// `connectionEnded`, last and once. Its streams are told of the end after that.
///
/// It is a class, and not a protocol, so that a reference can be borrowed without reference counting.
class TransportConnection: ReadyHandler {
  /// Whether an attempt waits for this connection, so that it has to tell the subchannel when it can open a
  /// further stream.
  final var isAsked = false

  /// Whether one of the connection's streams belongs to a health check, not to a call.
  final var isWatched = false

  /// Whether the socket has bytes, or the peer's end, that have to be read before the connection can take a stream.
  /// `isAsked` then tells the subchannel when that is done.
  final var hasUnread = false

  /// Whether the connection was ready at some time. Only then its end is reported as the event `lost`.
  final var wasReady = false

  // MARK: For attempts

  /// Data about the connection for the statistics of its calls; nil: the connection is not open yet.
  var facts: ConnectionFacts? { nil }
  /// Whether the peer has answered a call on the connection, or has announced that it will still answer some
  /// call.
  var hasAnswered: Bool { false }
  /// The number of further streams that can be opened now. 0 or less: a call has to wait, or to use another
  /// connection.
  var slots: Int { 0 }
  /// Called before a stream may be made. Notices if the peer has ended an idle connection; `slots` is then 0.
  func look() {}
  /// Makes a stream. The caller has to open it at once.
  func newStream(_ owner: StreamOwner, sending pieces: consuming PieceQueue) -> TransportStream {
    TransportStream(owner, sending: pieces)
  }

  // MARK: For a subchannel

  /// Sets `hasAnswered` back to false. Called when the only answer so far was to a health check.
  func forgetAnswer() {}

  /// Ends a wait before a further attempt to connect.
  func resetBackoff() {}

  /// Takes over the events of the descriptor, and begins to speak HTTP. From now on the connection owns the link,
  /// and the bytes that the connector's steps have left in it. Before this call the connection does not call its
  /// subchannel.
  func begin() {}
  /// The reason why the connection accepts no new streams any more; nil: it accepts them.
  var leaving: ByteBuffer? { nil }
  /// Called at the end of the connect timeout. Closes the connection.
  func timedOut() {}
  /// Accepts no new streams from now on, and closes when the last stream has ended.
  func drain() {}
  /// Tells the peer that the connection ends (in HTTP/2 by GOAWAY), and closes it.
  func closeGracefully() {}
  /// Called in a forked child. Closes only the descriptor, and sends nothing.
  func closeInChild() {}

  // MARK: For the loop

  func ready(_ events: UInt32) {}
}

/// The HTTP version of a connection. To add a version, add a case.
enum HTTPVersion {
  case http2, http1

  /// The version with this name in ALPN (RFC 7301). nil: the library does not support that protocol.
  init?(alpn name: ByteView) {
    if bytesEqual(name, "h2") {
      self = .http2
    } else if bytesEqual(name, "http/1.1") {
      self = .http1
    } else {
      return nil
    }
  }

  /// The version that the peer has chosen in TLS. Without a choice by TLS it is HTTP/2 if only HTTP/2 is
  /// wanted (RFC 9113 section 3.3, "prior knowledge"), and HTTP/1.1 otherwise.
  static func chosen(on link: Link, _ wanted: HTTPChoice) -> HTTPVersion {
    link.engine.flatMap { HTTPVersion(alpn: $0.alpn) } ?? (wanted == .http2 ? .http2 : .http1)
  }

  /// Makes a connection, which takes over `link` after all steps of a connector. nil: no memory.
  func connection(
    on link: Link, _ peer: ByteBuffer, _ channel: ChannelCore, _ owner: Subchannel
  ) -> TransportConnection? {
    switch self {
    case .http2: return HTTP2Connection.make(link, peer, channel, owner)
    case .http1: return HTTP1Pool.make(link, peer, channel, owner)
    }
  }
}
