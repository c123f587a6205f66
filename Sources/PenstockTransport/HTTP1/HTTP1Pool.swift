import CSystem
import PenstockCall
import PenstockChannel
import PenstockWire

/// The connections of HTTP/1.1 to one address. To the subchannel it is one connection, with a slot for each connection
/// that there may be: each has one call at a time.
///
/// ```
/// open --drain--> draining --no connection left--> closed
/// open --no connection, and none could be made--> closed
/// ```
/// A stream gets the connection that was used last. If none is free, it waits here, and a connection is made for it,
/// unless there are as many as there may be. Connections without a call close after a time, and the pool stays open
/// without any: the next stream has one made.
///
/// All that the subchannel and the owners of waiting streams have to be told is told by `runInTurn`, because a stream's
/// verbs tell nobody anything.
final class HTTP1Pool: TransportConnection, TurnTask, ConnectorOwner {
  private enum Phase { case open, draining, closed }

  let runtime: Runtime
  let work: TurnWork
  let destination: Destination
  /// The header list of the request that is being written.
  let fields = FieldList()
  /// The space for received bytes, for one read of one connection.
  let scratch: UnsafeMutableRawBufferPointer
  static let scratchSize = 64 << 10

  var isScheduled = false
  private var phase = Phase.open
  private var isReady = false
  private var owner: Subchannel?
  /// The channel, for further connectors. It closes its pools before it goes, and a closed one does not use it, so the
  /// reference is not counted.
  private unowned(unsafe) let channel: ChannelCore
  private let address: SocketAddress
  private let knownFacts: ConnectionFacts
  let rpc: RPCProtocol
  private var answeredCalls = false

  /// All connections, and those without a call, the one that was used last first.
  private var connections: HTTP1Connection?
  private var count = 0
  private var idle: HTTP1Connection?
  private var idleCount = 0
  /// The connections that are being made.
  private var connectors: Connector?
  private var connecting = 0
  /// The streams that wait for a connection, oldest first.
  private var queue = HTTP1StreamList()
  /// Streams that have ended here; their owners have to be told.
  private var ended = HTTP1StreamList()
  /// The waits between attempts to connect that have failed, and when the next one may begin.
  private var backoff = Backoff()
  private var retryAt: UInt64 = 0
  /// The reason why the pool has to end; nil: it goes on.
  private var failure: ByteBuffer?
  /// The reason why the pool takes no more streams, if that is its own decision, and whether the subchannel knows.
  private var left: ByteBuffer?
  private var isLeaving = false
  /// How long a connection with a call is silent before listeners are told; 0: they are not told.
  private let silence: UInt64
  private var timer: HTTP1PoolTimer?

  /// Makes a pool; nil: no memory. (In Embedded Swift an initializer that returns nil leaks its object.)
  @inline(never) @_optimize(size)
  static func make(_ link: Link, _ peer: ByteBuffer, _ channel: ChannelCore, _ owner: Subchannel)
    -> HTTP1Pool?
  {
    guard let memory = malloc(scratchSize) else { return nil }
    let scratch = UnsafeMutableRawBufferPointer(start: memory, count: scratchSize)
    return HTTP1Pool(link, scratch, peer, channel, owner)
  }

  @inline(never) @_optimize(size)
  private init(
    _ link: Link, _ scratch: UnsafeMutableRawBufferPointer, _ peer: ByteBuffer, _ channel: ChannelCore,
    _ owner: Subchannel
  ) {
    self.scratch = scratch
    self.channel = channel
    self.owner = owner
    runtime = channel.runtime
    work = channel.work
    destination = channel.destination
    address = owner.address
    silence = owner.hasListeners ? channel.destination.silence : 0
    rpc = channel.defaults.rpc
    knownFacts = ConnectionFacts(
      peer: peer, local: nil, security: link.engine?.facts(), rpc: rpc, isHTTP1: true)
    super.init()
    confine(self)
    timer = HTTP1PoolTimer(self)
    add(HTTP1Connection(link, peer, self))
  }

  deinit { free(scratch.baseAddress) }

  // MARK: For attempts and the subchannel

  override var facts: ConnectionFacts? { knownFacts }
  override var hasAnswered: Bool { answeredCalls }
  override func forgetAnswer() { answeredCalls = false }
  override var leaving: ByteBuffer? { left }
  override var slots: Int {
    phase == .open ? destination.http1Connections - (count - idleCount) - queue.count : 0
  }

  override func newStream(_ owner: StreamOwner, sending pieces: consuming PieceQueue) -> TransportStream {
    HTTP1Stream(owner, sending: pieces, in: self)
  }

  @inline(never) @_optimize(size)
  override func begin() {
    if let first = connections {
      becomeIdle(first)
      first.begin()
    }
    guard failure == nil else { return }
    isReady = true
    owner?.connectionReady(self)
  }

  // MARK: For connections

  /// The connection's next call is counted where the pool's calls are.
  func lend(_ facts: ConnectionFacts) { facts.tally = knownFacts.tally }

  /// Whether a connection is kept after its answer.
  var keepsConnections: Bool { phase == .open }

  @inline(never) @_optimize(size)
  func answered() {
    answeredCalls = true
    backoff = Backoff()
    retryAt = 0
  }

  /// The connection has no call any more, and can have the next one.
  func keep(_ connection: HTTP1Connection) {
    if let stream = queue.popFirst() {
      connection.assign(stream)
    } else {
      becomeIdle(connection)
    }
    if isAsked { work.schedule(self) }
  }

  private func becomeIdle(_ connection: HTTP1Connection) {
    connection.below = idle
    idle = connection
    idleCount += 1
    arm(at: Time.after(destination.http1IdleTimeout, connection.since))
  }

  /// The connection is closed.
  @inline(never) @_optimize(size)
  func ended(_ connection: HTTP1Connection, _ words: ByteBuffer) {
    remove(connection)
    if isReady { owner?.noteFurther(.lost, words) }
    if phase == .open {
      if connection.hasAnswered || connection.wasGivenUp { grow() } else { failed(words) }
    }
    work.schedule(self)
  }

  // MARK: Streams

  /// Gives the stream a connection, or lets it wait for one.
  func add(_ stream: HTTP1Stream) {
    while let connection = popIdle() {
      if connection.lookIfUsable() { return connection.assign(stream) }
      connection.close(ByteBuffer().say("the server has ended the connection, which had no call"))
    }
    wait(stream)
  }

  private func popIdle() -> HTTP1Connection? {
    guard let connection = idle else { return nil }
    idle = connection.below.take()
    idleCount -= 1
    return connection
  }

  @inline(never) @_optimize(size)
  private func wait(_ stream: HTTP1Stream) {
    guard phase == .open, failure == nil else {
      stream.finish(.neverSent(failure ?? HTTP1Pool.unused))
      ended.append(stream)
      return work.schedule(self)
    }
    queue.append(stream)
    grow()
  }

  private static var unused: ByteBuffer { ByteBuffer().say("the channel does not use this address any more") }

  /// The owner of a stream that waits here has left.
  @inline(never) @_optimize(size)
  func forget(_ stream: HTTP1Stream) {
    queue.remove(stream)
    if isAsked { work.schedule(self) }
  }

  @inline(never) @_optimize(size)
  private func endQueued(_ words: ByteBuffer) {
    while let stream = queue.popFirst() {
      stream.finish(.neverSent(words))
      ended.append(stream)
    }
  }

  // MARK: Connectors

  /// Begins as many connections as streams wait for, as far as there may be more.
  @inline(never) @_optimize(size)
  private func grow() {
    while phase == .open, failure == nil, queue.count > connecting,
      count + connecting < destination.http1Connections
    {
      if runtime.now < retryAt { return arm(at: retryAt) }
      owner?.noteFurther(.connecting, nil)
      switch Connector.start(address, channel, self) {
      case .failed(let words): failed(words)
      case .started(let connector):
        connector.until = Time.after(destination.connectTimeout, runtime.now)
        connector.next = connectors
        connectors = connector
        connecting += 1
        arm(at: connector.until)
      }
    }
  }

  /// An attempt to connect has failed, or has given a connection of no use.
  @inline(never) @_optimize(size)
  private func failed(_ words: ByteBuffer) {
    retryAt = backoff.begin(destination.backoff, now: runtime.now, random: runtime.platform.random())
    if count == 0, connecting == 0 {
      failure = failure ?? words
      work.schedule(self)
    } else if !queue.isEmpty {
      owner?.noteFurther(.backoff, words, milliseconds: (retryAt &- runtime.now) / 1_000_000)
      arm(at: retryAt)
    }
  }

  @inline(never) @_optimize(size)
  func connectorDone(_ connector: Connector, _ link: Link, _ peer: ByteBuffer) -> Bool {
    remove(connector)
    if HTTPVersion.chosen(on: link, destination.http) == .http2 {
      // The server speaks another version by now: the subchannel makes a connection of that kind.
      link.close()
      left = ByteBuffer().say("the server chose HTTP/2 for a further connection")
      drain()
      return true
    }
    let connection = HTTP1Connection(link, peer, self)
    add(connection)
    if let security = connection.facts.security { owner?.noteFurther(.secured, nil, security: security) }
    owner?.noteFurther(.ready, nil, connection.facts)
    becomeIdle(connection)
    connection.begin()
    if connection.life == .idle, !queue.isEmpty, let first = popIdle() { keep(first) }
    return true
  }

  @inline(never) @_optimize(size)
  func connectorFailed(_ connector: Connector, _ words: ByteBuffer) {
    remove(connector)
    if phase == .open { failed(words) } else { work.schedule(self) }
  }

  // MARK: Lists

  private func add(_ connection: HTTP1Connection) {
    connection.next = connections
    connections = connection
    count += 1
  }

  @inline(never) @_optimize(size)
  private func remove(_ connection: HTTP1Connection) {
    if idle === connection {
      _ = popIdle()
    } else {
      var above = idle
      while let one = above, one.below !== connection { above = one.below }
      if let above {
        above.below = connection.below.take()
        idleCount -= 1
      }
    }
    if connections === connection {
      connections = connection.next.take()
    } else {
      var before = connections
      while let one = before, one.next !== connection { before = one.next }
      guard let before else { return }
      before.next = connection.next.take()
    }
    count -= 1
  }

  @inline(never) @_optimize(size)
  private func remove(_ connector: Connector) {
    if connectors === connector {
      connectors = connector.next.take()
    } else {
      var before = connectors
      while let one = before, one.next !== connector { before = one.next }
      guard let before else { return }
      before.next = connector.next.take()
    }
    connecting -= 1
  }

  // MARK: The timer

  private func arm(at time: UInt64) {
    guard let timer, !timer.isArmed || timer.deadline > time else { return }
    runtime.arm(timer, at: time)
  }

  @inline(never) @_optimize(size)
  func timeIsUp() {
    let now = runtime.now
    var connector = connectors
    while let one = connector {
      connector = one.next
      if one.until <= now { one.timedOut() } else { arm(at: one.until) }
    }
    var connection = connections
    while let one = connection {
      connection = one.next
      look(at: one, now)
    }
    if !queue.isEmpty { grow() }
  }

  private func look(at connection: HTTP1Connection, _ now: UInt64) {
    switch connection.life {
    case .closed: break
    case .idle:
      let until = Time.after(destination.http1IdleTimeout, connection.since)
      if until <= now {
        connection.closeGracefully(ByteBuffer().say("the connection had no call for too long"))
      } else {
        arm(at: until)
      }
    case .opening, .sending, .receiving:
      guard silence > 0 else { break }
      let heard = max(connection.facts.heardAt.value, connection.silentAt)
      if Time.after(silence, heard) <= now {
        owner?.connectionSilent(now &- max(connection.facts.heardAt.value, connection.since))
        connection.silentAt = now
      }
      arm(at: Time.after(silence, max(heard, connection.silentAt)))
    }
  }

  /// A call has begun on a connection: its silence is told.
  func watchSilence(_ now: UInt64) { if silence > 0 { arm(at: Time.after(silence, now)) } }

  // MARK: The end

  /// Tells the subchannel and the owners of streams what has happened.
  func runInTurn() {
    if phase != .closed {
      if let failure {
        close(failure)
      } else if phase == .draining {
        if left != nil, !isLeaving {
          isLeaving = true
          owner?.connectionDraining(self)
        }
        if count == 0, connecting == 0 { close(ByteBuffer().say("the connection is no longer used")) }
      } else if isAsked, slots > 0 {
        isAsked = false
        owner?.connectionHasSlots()
      }
    }
    tell()
  }

  @inline(never) @_optimize(size)
  private func tell() {
    while let stream = ended.popFirst() {
      if let owner = stream.owner { owner.streamChanged(stream) }
    }
  }

  @inline(never) @_optimize(size)
  override func timedOut() { close(ByteBuffer().say("connect timeout")) }

  @inline(never) @_optimize(size)
  override func drain() {
    guard phase == .open else { return }
    phase = .draining
    endQueued(left ?? HTTP1Pool.unused)
    closeConnectors()
    while let connection = idle {
      connection.closeGracefully(ByteBuffer().say("the connection is no longer used"))
    }
    work.schedule(self)
  }

  @inline(never) @_optimize(size)
  private func closeConnectors() {
    while let connector = connectors {
      remove(connector)
      connector.close()
    }
  }

  @inline(never) @_optimize(size)
  override func closeGracefully() {
    close(ByteBuffer().say("the connection is no longer used"))
    tell()
  }

  /// Closes everything, and tells the subchannel; the owners of streams are told by the caller, or have been.
  @inline(never) @_optimize(size)
  private func close(_ words: ByteBuffer) {
    guard phase != .closed else { return }
    phase = .closed
    endQueued(words)
    closeConnectors()
    if let timer { runtime.disarm(timer) }
    timer = nil
    let told = owner.take()
    if isReady {
      for _ in 0..<count { told?.noteFurther(.lost, words) }
    }
    // The end of each connection is told already.
    wasReady = false
    told?.connectionEnded(self, words)
    while let connection = connections { connection.closeGracefully(words) }
  }

  @inline(never) @_optimize(size)
  override func closeInChild() {
    var connection = connections
    while let one = connection {
      one.closeInChild()
      connection = one.next
    }
    var connector = connectors
    while let one = connector {
      one.closeInChild()
      connector = one.next
    }
  }
}

/// The one timer of a pool: for connections that are kept too long, or silent, for connectors that take too long, and for
/// the next one after a failure.
final class HTTP1PoolTimer: Timer {
  /// The pool disarms the timer before it goes.
  private unowned(unsafe) let pool: HTTP1Pool

  init(_ pool: HTTP1Pool) { self.pool = pool }

  override func fire() { pool.timeIsUp() }
}
