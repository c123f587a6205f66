import PenstockCall
import PenstockChannel
import PenstockLoop
import PenstockWire

/// The owner of a connection. The connection calls these functions on the driving thread.
public protocol ConnectionOwner: AnyObject {
  /// Called when HTTP is established.
  func connectionReady(_ connection: TransportConnection)
  /// Called when the connection can open a further stream, if `isAsked` is set.
  func connectionHasSlots()
  /// Called when the connection accepts no new streams, while its present streams continue.
  func connectionDraining(_ connection: TransportConnection)
  /// Called last, and once. The connection's streams are told of the end after that.
  func connectionEnded(_ connection: TransportConnection, _ words: ByteBuffer)
  /// Called when nothing has come for `time` nanoseconds although there are calls.
  func connectionSilent(_ time: UInt64)
  /// Whether anybody wants to hear of silence.
  var hasListeners: Bool { get }
  /// Whether a connection to the same address has worked. If so, TLS or its lack is no likely reason for a failure.
  var hasWorked: Bool { get }
}

/// The settings of a channel that its connections need.
open class ConnectionSettings {
  /// The limits of later connections. Driving thread only.
  public final var limits: TransportLimits
  /// The time in nanoseconds after which a silent connection with calls is reported; 0: never.
  public final let silence: UInt64
  public final let backoff: Backoff.Policy
  /// The keepalive settings for later connections; nil: no keepalive. Driving thread only.
  public final var keepalive: Keepalive?

  public init(_ limits: TransportLimits, silence: UInt64, _ backoff: Backoff.Policy, _ keepalive: Keepalive?)
  {
    self.limits = limits
    self.silence = silence
    self.backoff = backoff
    self.keepalive = keepalive
  }
}

/// A connection as attempts and subchannels see it, independent of the HTTP version. It tells its `ConnectionOwner` what
/// changes.
///
/// It is a class, and not a protocol, so that a reference can be borrowed without reference counting.
open class TransportConnection: ReadyHandler {
  public init() {}

  /// Whether an attempt waits for this connection, so that it has to tell the subchannel when it can open a
  /// further stream.
  public final var isAsked = false

  /// Whether one of the connection's streams belongs to a health check, not to a call.
  public final var isWatched = false

  /// Whether the socket has bytes, or the peer's end, that have to be read before the connection can take a stream.
  /// `isAsked` then tells the subchannel when that is done.
  public final var hasUnread = false

  /// Whether the connection was ready at some time. Only then its end is reported as the event `lost`.
  public final var wasReady = false

  // MARK: For attempts

  /// Data about the connection for the statistics of its calls; nil: the connection is not open yet.
  open var facts: ConnectionFacts? { mustOverride(nil) }
  /// Whether the peer has answered a call on the connection, or has announced that it will still answer some
  /// call.
  open var hasAnswered: Bool { mustOverride(false) }
  /// The number of further streams that can be opened now. 0 or less: a call has to wait, or to use another
  /// connection.
  open var slots: Int { mustOverride(0) }
  /// Appends in words what a stream waits for while `slots` is 0. By default it waits for the peer.
  open func sayFull(_ text: ByteBuffer) { text.say("the server to allow one more call on the connection") }
  /// Called before a stream may be made. Notices if the peer has ended an idle connection; `slots` is then 0. By default
  /// this is noticed elsewhere.
  open func look() {}
  /// Makes a stream. The caller has to open it at once.
  open func newStream(_ owner: StreamOwner, sending pieces: consuming PieceQueue) -> TransportStream {
    mustOverride(TransportStream(owner, sending: pieces))
  }

  /// Copies the figures of the connection for diagnosis; those of each connection, if the object stands for several.
  /// By default there are none.
  open var views: [ConnectionView] { [] }

  // MARK: For a subchannel

  /// Whether the object has no socket, and is making none. By default it has one.
  open var isEmpty: Bool { false }
  /// The time since which the connection could have been closed without a loss; of several connections that the object
  /// stands for, the earliest. `sparesLast`: the only one of them does not count. nil, as by default: there is no such
  /// connection.
  open func idleSince(sparesLast: Bool) -> UInt64? { nil }
  /// Closes that connection. By default there is none.
  open func closeLongestIdle() {}

  /// Sets `hasAnswered` back to false. Called when the only answer so far was to a health check.
  open func forgetAnswer() { mustOverride(()) }

  /// Ends a wait before a further attempt to connect. By default the connection does not connect by itself.
  open func resetBackoff() {}

  /// Takes over the events of the descriptor, and begins to speak HTTP. From now on the connection owns the link,
  /// and the bytes that the connector's steps have left in it. Before this call the connection does not call its
  /// subchannel.
  open func begin() { mustOverride(()) }
  /// The reason why the connection accepts no new streams any more; nil: it accepts them.
  open var drainReason: ByteBuffer? { mustOverride(nil) }
  /// Called at the end of the connect timeout. Closes the connection.
  open func timedOut() { mustOverride(()) }
  /// Accepts no new streams from now on, and closes when the last stream has ended.
  open func drain() { mustOverride(()) }
  /// Tells the peer that the connection ends (in HTTP/2 by GOAWAY), and closes it.
  open func closeGracefully() { mustOverride(()) }
  /// Called in a forked child. Closes only the descriptor, and sends nothing.
  open func closeInChild() { mustOverride(()) }

  // MARK: For the loop

  /// Does nothing by default: the connection watches no descriptor of its own.
  open func ready(_ events: UInt32) {}
}
