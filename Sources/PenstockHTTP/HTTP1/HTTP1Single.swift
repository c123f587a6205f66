import CPenstockSystem
import PenstockCall
import PenstockLink
import PenstockLoop
import PenstockWire

/// One connection of HTTP/1.1, for an owner that wants one connection of any version: it has a slot while it has no call.
/// (A channel has a pool of them instead.)
///
/// The owner, and the owners of streams that got no connection, are told at the end of a turn.
public final class HTTP1Single: HTTP1Owner, TurnTask {
  public var isScheduled = false
  private let peer: ByteBuffer
  /// nil: the connection has ended.
  private var connection: HTTP1Connection?
  private var owner: (any ConnectionOwner)?
  /// The reason why the connection accepts no new streams any more; nil: it accepts them.
  private var reason: ByteBuffer?
  private var answeredCalls = false
  /// Streams that got no connection, and whose owners were not told yet.
  private var endedStreams = HTTP1StreamList()

  /// Makes a connection, which takes over `link`; nil: no memory.
  public static func make(
    _ link: Link, _ peer: ByteBuffer, _ runtime: Runtime, _ work: TurnWork, _ settings: ConnectionSettings,
    _ rpc: RPCProtocol, _ owner: any ConnectionOwner
  ) -> HTTP1Single? {
    guard let memory = malloc(scratchSize) else { return nil }
    let scratch = UnsafeMutableRawBufferPointer(start: memory, count: scratchSize)
    let single = HTTP1Single(peer, runtime, work, settings, rpc, scratch, owner)
    single.connection = HTTP1Connection(link, peer, single)
    return single
  }

  private init(
    _ peer: ByteBuffer, _ runtime: Runtime, _ work: TurnWork, _ settings: ConnectionSettings,
    _ rpc: RPCProtocol, _ scratch: UnsafeMutableRawBufferPointer, _ owner: any ConnectionOwner
  ) {
    self.peer = peer
    self.owner = owner
    super.init(runtime, work, settings, rpc, scratch: scratch)
    confine(self)
  }

  // MARK: For attempts and the owner

  public override var facts: ConnectionFacts? { connection?.facts }
  public override var hasAnswered: Bool { answeredCalls }
  public override func forgetAnswer() { answeredCalls = false }
  public override var drainReason: ByteBuffer? { reason }
  public override var slots: Int { reason == nil && connection?.life == .idle ? 1 : 0 }

  public override func newStream(_ owner: StreamOwner, sending pieces: consuming PieceQueue)
    -> TransportStream
  {
    HTTP1Stream(owner, sending: pieces, in: self)
  }

  public override func begin() {
    connection?.begin()
    if connection != nil { owner?.connectionReady(self) }
  }

  public override func drain() {
    guard reason == nil else { return }
    reason = HTTP1Single.unused
    if connection?.life == .idle { connection?.closeGracefully(HTTP1Single.unused) }
  }

  public override func closeGracefully() { connection?.closeGracefully(HTTP1Single.unused) }
  public override func timedOut() { connection?.close(ByteBuffer().say("connect timeout")) }
  public override func closeInChild() { connection?.closeInChild() }

  private static var unused: ByteBuffer { ByteBuffer().say("the connection is no longer used") }

  // MARK: For the connection

  public override var keepsConnections: Bool { reason == nil }
  public override func lend(_ facts: ConnectionFacts) {}
  public override func answered() { answeredCalls = true }
  public override func watchSilence(_ now: UInt64) {}

  public override func keep(_ connection: HTTP1Connection) {
    if reason != nil { return connection.closeGracefully(HTTP1Single.unused) }
    if isAsked { work.schedule(self) }
  }

  public override func ended(_ connection: HTTP1Connection, _ words: ByteBuffer) {
    self.connection = nil
    reason = words
    work.schedule(self)
  }

  // MARK: Streams

  public override func add(_ stream: HTTP1Stream) {
    if slots > 0, let connection {
      if connection.lookIfUsable() { return connection.assign(stream) }
      connection.close(ByteBuffer().say("the server has ended the connection, which had no call"))
    }
    stream.finish(.neverSent(reason ?? ByteBuffer().say("the connection has a call")))
    endedStreams.append(stream)
    work.schedule(self)
  }

  /// Called when the owner of a stream that got no connection leaves it.
  public override func forget(_ stream: HTTP1Stream) { endedStreams.remove(stream) }

  public func runInTurn() {
    if connection == nil {
      owner.take()?.connectionEnded(self, reason ?? HTTP1Single.unused)
    } else if isAsked, slots > 0 {
      isAsked = false
      owner?.connectionHasSlots()
    }
    while let stream = endedStreams.popFirst() {
      if let owner = stream.owner { owner.streamChanged(stream) }
    }
  }
}
