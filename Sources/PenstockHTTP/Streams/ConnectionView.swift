import PenstockCall
import PenstockWire

/// A copy of a connection's figures at one moment, for diagnosis.
public struct ConnectionView {
  public enum State { case connecting, ready, draining, closed }

  public var state: State
  public var facts: ConnectionFacts
  /// How many streams are open, how many wait in the connection for one more, and how many the peer allows at
  /// a time.
  public var streams: Int
  public var waiting = 0
  public var allowed: Int
  /// How many streams were opened since the connection began.
  public var opened: UInt64
  /// How many bytes the socket has sent and received; with TLS those of its records.
  public var sentBytes: UInt64
  public var receivedBytes: UInt64
  /// Flow control and pings; nil: the connection has HTTP/1.1.
  public var http2: HTTP2?

  public struct HTTP2 {
    /// How many bytes the peer still lets this side send on all streams together, and this side the peer.
    public var sendWindow: Int
    public var receiveWindow: Int
    /// How many keepalive pings were sent, and how many of them answered.
    public var pings: UInt64
    public var answeredPings: UInt64
  }

  public init(
    _ state: State, _ facts: ConnectionFacts, streams: Int, allowed: Int, opened: UInt64, sentBytes: UInt64,
    receivedBytes: UInt64
  ) {
    self.state = state
    self.facts = facts
    self.streams = streams
    self.allowed = allowed
    self.opened = opened
    self.sentBytes = sentBytes
    self.receivedBytes = receivedBytes
  }
}
