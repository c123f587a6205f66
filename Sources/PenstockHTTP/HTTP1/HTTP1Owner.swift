import CPenstockSystem
import PenstockCall
import PenstockLoop
import PenstockWire

/// The pool of HTTP/1.1 connections as its connections and streams see it. A pool is used like one connection, so it is
/// one.
///
/// It is a class, and not a protocol, so that a reference can be borrowed without reference counting.
open class HTTP1Owner: TransportConnection {
  public final let runtime: Runtime
  public final let work: TurnWork
  public final let settings: ConnectionSettings
  public final let rpc: RPCProtocol
  /// The header list of the request that is being written. All connections use it, one after the other.
  public final let fields = FieldList()
  /// The space for the bytes of one read. All connections use it, one after the other.
  public final let scratch: UnsafeMutableRawBufferPointer

  public static let scratchSize = 64 << 10

  /// Takes over `scratch`, which malloc has made.
  public init(
    _ runtime: Runtime, _ work: TurnWork, _ settings: ConnectionSettings, _ rpc: RPCProtocol,
    scratch: UnsafeMutableRawBufferPointer
  ) {
    self.runtime = runtime
    self.work = work
    self.settings = settings
    self.rpc = rpc
    self.scratch = scratch
    super.init()
  }

  deinit { free(scratch.baseAddress) }

  // MARK: For connections

  /// How requests are written if a proxy forwards each of them; nil, as by default: the peer is the server, or
  /// a tunnel to it.
  open var forwarding: ForwardedRequests? { nil }
  /// Whether connections are kept after an answer.
  open var keepsConnections: Bool { mustOverride(false) }
  /// Makes the attempts on a connection count in the same counter as all attempts of the pool.
  open func lend(_ facts: ConnectionFacts) { mustOverride(()) }
  /// Called when a server has answered.
  open func answered() { mustOverride(()) }
  /// Called when a connection has no call any more.
  open func keep(_ connection: HTTP1Connection) { mustOverride(()) }
  /// Called when a connection has closed.
  open func ended(_ connection: HTTP1Connection, _ words: ByteBuffer) { mustOverride(()) }
  /// Called when a call begins on a connection.
  open func watchSilence(_ now: UInt64) { mustOverride(()) }

  // MARK: For streams

  /// Gives the stream an idle connection. If there is none, the stream waits.
  open func add(_ stream: HTTP1Stream) { mustOverride(()) }
  /// Called when the owner of a waiting stream has left.
  open func forget(_ stream: HTTP1Stream) { mustOverride(()) }
}
