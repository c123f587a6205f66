import CPenstockSystem
import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockNames
import PenstockLink
import PenstockHTTP
import PenstockFraming

/// The HTTP/1.1 connections to one address. The subchannel uses the whole pool like one connection. The pool has a
/// slot for each connection that is allowed, because each connection has at most one call at a time.
///
/// ```
/// open --drain--> draining --no connection left--> closed
/// open --no connection, and none could be made--> closed
/// ```
/// A stream gets the idle connection that was used last. If no connection is idle, the stream waits in the pool,
/// and a connection is made for it, unless the limit is reached. A connection without a call closes after a time. A
/// pool without connections stays open, and makes one for the next stream.
///
/// The subchannel and the owners of waiting streams are told only by `runInTurn`, because no function that a
/// stream's owner calls may call the owner back.
final class HTTP1Pool: HTTP1Owner, TurnTask, ConnectorOwner {
  private enum Phase { case open, draining, closed }

  private let destination: Destination

  var isScheduled = false
  private var phase = Phase.open
  private var isReady = false
  private var owner: Subchannel?
  /// The channel, for further connectors. The reference is not counted: the channel closes its pools before it is
  /// freed, and a closed pool does not use the channel.
  private unowned(unsafe) let channel: ChannelCore
  private let endpoint: Endpoint
  private let ownForwarding: ForwardedRequests?
  private let knownFacts: ConnectionFacts
  private var answeredCalls = false

  /// The list of all connections. `idle`: the list of connections without a call, the last used one first.
  private var connections: HTTP1Connection?
  private var count = 0
  private var idle: HTTP1Connection?
  private var idleCount = 0
  /// The connectors, each of which is making a connection.
  private var connectors: [Connector] = []
  /// The streams that wait for a connection, oldest first.
  private var queue = HTTP1StreamList()
  /// Streams that have ended in the pool, and whose owners were not told yet.
  private var endedStreams = HTTP1StreamList()
  /// The back-off delays between failed attempts to connect. `retryAt`: the time when the next attempt may begin.
  private var backoff = Backoff()
  private var retryAt: UInt64 = 0
  /// The reason why the pool has to close; nil: it stays open.
  private var failure: ByteBuffer?
  /// The reason why the pool itself has decided to accept no more streams. `toldDraining`: the subchannel was told so.
  private var ownReason: ByteBuffer?
  private var toldDraining = false
  /// The time in nanoseconds after which a silent connection with a call is reported to listeners; 0: never.
  private let silence: UInt64
  private var timer: HTTP1PoolTimer?

  /// Makes a pool; nil: no memory. It is not an initializer, because in Embedded Swift an initializer that returns
  /// nil leaks its object.
  static func make(_ link: Link, _ peer: ByteBuffer, _ channel: ChannelCore, _ owner: Subchannel)
    -> HTTP1Pool?
  {
    guard let memory = malloc(scratchSize) else { return nil }
    let scratch = UnsafeMutableRawBufferPointer(start: memory, count: scratchSize)
    return HTTP1Pool(link, scratch, peer, channel, owner)
  }

  private init(
    _ link: Link, _ scratch: UnsafeMutableRawBufferPointer, _ peer: ByteBuffer, _ channel: ChannelCore,
    _ owner: Subchannel
  ) {
    self.channel = channel
    self.owner = owner
    destination = channel.destination
    endpoint = owner.endpoint
    ownForwarding = channel.destination.forwarding(to: owner.endpoint)
    silence = owner.hasListeners ? channel.destination.silence : 0
    knownFacts = ConnectionFacts(
      peer: peer, local: nil, security: link.engine?.facts(), rpc: channel.defaults.rpc, isHTTP1: true)
    super.init(channel.runtime, channel.work, channel.destination, channel.defaults.rpc, scratch: scratch)
    confine(self)
    timer = HTTP1PoolTimer(self)
    add(HTTP1Connection(link, peer, self))
  }

  // MARK: For attempts and the subchannel

  override var facts: ConnectionFacts? { knownFacts }
  override var forwarding: ForwardedRequests? { ownForwarding }
  override var hasAnswered: Bool { answeredCalls }
  override func forgetAnswer() { answeredCalls = false }
  override var drainReason: ByteBuffer? { ownReason }
  override var slots: Int {
    phase == .open ? most - (count - idleCount) - queue.count : 0
  }
  /// How many connections there may be. A health check has one more, for as long as the server is watched.
  private var most: Int { destination.http1Connections + (isWatched ? 1 : 0) }

  override var views: [ConnectionView] {
    var found: [ConnectionView] = []
    var next = connections
    while let connection = next {
      found.append(connection.view)
      if phase != .open { found[found.count - 1].state = .draining }
      next = connection.next
    }
    return found
  }

  override func newStream(_ owner: StreamOwner, sending pieces: consuming PieceQueue) -> TransportStream {
    HTTP1Stream(owner, sending: pieces, in: self)
  }

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

  /// Makes the attempts on a connection count in the same counter (`tally`) as all attempts of the pool.
  override func lend(_ facts: ConnectionFacts) { facts.tally = knownFacts.tally }

  /// Whether connections are kept after an answer.
  override var keepsConnections: Bool { phase == .open && !givesWay }
  /// Whether a connection without a call has to be closed because another address has no room for one. The last connection,
  /// and those for which streams wait, are closed only for an address that has none.
  private var givesWay: Bool {
    if count == 1, !queue.isEmpty { return false }
    return channel.limit.isWanted(besides: self, urgently: count == 1 || !queue.isEmpty)
  }
  var hasConnection: Bool { count > 0 }
  override var isEmpty: Bool { count == 0 && !connectors.contains { $0.place != nil } }
  func connectorBegins() { grow() }

  override func resetBackoff() {
    backoff = Backoff()
    retryAt = 0
    grow()
  }

  override func answered() {
    answeredCalls = true
    backoff = Backoff()
    retryAt = 0
  }

  /// Called when a connection has no call any more. The connection gets the next waiting stream, or becomes idle.
  override func keep(_ connection: HTTP1Connection) {
    if phase != .open { return connection.closeGracefully(HTTP1Pool.unused) }
    if let stream = popQueued() {
      connection.assign(stream)
    } else {
      becomeIdle(connection)
    }
    if isAsked { work.schedule(self) }
  }

  override func idleSince(sparesLast: Bool) -> UInt64? { sparesLast && count == 1 ? nil : longestIdle?.since }
  override func closeLongestIdle() {
    longestIdle?.closeGracefully(ByteBuffer().say("another address needs its place (max_connections)"))
  }

  private var longestIdle: HTTP1Connection? {
    var connection = idle
    while let below = connection?.below { connection = below }
    return connection
  }

  private func becomeIdle(_ connection: HTTP1Connection) {
    connection.below = idle
    idle = connection
    idleCount += 1
    if givesWay { work.schedule(self) }
    arm(at: Time.after(destination.http1IdleTimeout, connection.since))
  }

  /// Called when a connection has closed.
  override func ended(_ connection: HTTP1Connection, _ words: ByteBuffer) {
    remove(connection)
    if isReady { owner?.note(.lost, words) }
    if phase == .open {
      if connection.isUnproven { failed(words) } else { grow() }
    }
    work.schedule(self)
  }

  // MARK: Streams

  /// Gives the stream an idle connection. If there is none, the stream waits.
  override func add(_ stream: HTTP1Stream) {
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

  private func wait(_ stream: HTTP1Stream) {
    guard phase == .open, failure == nil else {
      stream.finish(.neverSent(failure ?? HTTP1Pool.unused))
      endedStreams.append(stream)
      return work.schedule(self)
    }
    queue.append(stream)
    _ = borrow(stream.owner) { $0.streamWaits(stream) }
    grow()
  }

  private func popQueued() -> HTTP1Stream? {
    guard let stream = queue.popFirst() else { return nil }
    _ = borrow(stream.owner) { $0.streamWaits(stream) }
    cancelUnneeded()
    return stream
  }

  /// Gives up the connector that waits for a place among the channel's connections, if no stream needs it any more.
  private func cancelUnneeded() {
    guard queue.count < connectors.count, let last = connectors.last, last.waitsForPlace else { return }
    connectors.removeLast()
    last.close()
  }

  private static var unused: ByteBuffer { ByteBuffer().say("the channel does not use this address any more") }

  /// Called when the owner of a waiting stream has left.
  override func forget(_ stream: HTTP1Stream) {
    queue.remove(stream)
    cancelUnneeded()
    if isAsked { work.schedule(self) }
  }

  private func endQueued(_ words: ByteBuffer) {
    while let stream = popQueued() {
      stream.finish(.neverSent(words))
      endedStreams.append(stream)
    }
  }

  // MARK: Connectors

  /// Begins to make a connection for each waiting stream, up to the limit. If one has to wait for a place among all the
  /// channel's connections, the others begin after it.
  private func grow() {
    while phase == .open, failure == nil, queue.count > connectors.count,
      count + connectors.count < most, connectors.last?.waitsForPlace != true
    {
      if runtime.now < retryAt { return arm(at: retryAt) }
      owner?.note(.connecting)
      switch Connector.start(endpoint, channel, self) {
      case .failed(let words): failed(words)
      case .started(let connector):
        connectors.append(connector)
        arm(at: connector.until)
      }
    }
  }

  /// Called when an attempt to connect has failed, or when a connection has ended without any answer. Begins a
  /// back-off delay, unless one runs: attempts that fail together count once.
  private func failed(_ words: ByteBuffer) {
    if retryAt <= runtime.now {
      retryAt = backoff.begin(destination.backoff, now: runtime.now, random: runtime.platform.random())
    }
    if connectors.isEmpty, !hasConnectionForCalls {
      failure = failure ?? words
      work.schedule(self)
    } else if !queue.isEmpty {
      owner?.note(.backoff, words, milliseconds: (retryAt &- runtime.now) / 1_000_000)
      arm(at: retryAt)
    }
  }

  /// Whether there is a connection that has calls, or can get one. The connection of a health check never can.
  private var hasConnectionForCalls: Bool {
    var connection = connections
    while let one = connection {
      if one.stream?.owner?.isCall != false { return true }
      connection = one.next
    }
    return false
  }

  func connectorDone(_ connector: Connector, _ link: Link, _ peer: ByteBuffer) -> Bool {
    connectors.drop(connector)
    if HTTPVersion.chosen(on: link, destination.http) == .http2 {
      // The server now speaks HTTP/2, so this pool ends. The subchannel makes an HTTP/2 connection instead.
      link.close()
      ownReason = ByteBuffer().say("the server chose HTTP/2 for a further connection")
      drain()
      return true
    }
    let connection = HTTP1Connection(link, peer, self)
    add(connection)
    if let security = connection.facts.security { owner?.note(.secured, security: security) }
    owner?.note(.ready, connection: connection.facts)
    becomeIdle(connection)
    connection.begin()
    if connection.life == .idle, !queue.isEmpty, let first = popIdle() { keep(first) }
    return true
  }

  func connectorFailed(_ connector: Connector, _ words: ByteBuffer) {
    connectors.drop(connector)
    if phase == .open { failed(words) } else { work.schedule(self) }
  }

  // MARK: Lists

  private func add(_ connection: HTTP1Connection) {
    connection.next = connections
    connections = connection
    count += 1
  }

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

  // MARK: The timer

  private func arm(at time: UInt64) {
    guard let timer, !timer.isArmed || timer.deadline > time else { return }
    runtime.arm(timer, at: time)
  }

  func timeIsUp() {
    let now = runtime.now
    for one in connectors {
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
    case .opening, .unsent, .sending, .receiving, .deaf:
      guard silence > 0, connection.stream?.owner?.isCall == true else { break }
      let heard = max(connection.facts.heardAt.value, connection.silentAt)
      if Time.after(silence, heard) <= now {
        owner?.connectionSilent(now &- max(connection.facts.heardAt.value, connection.since))
        connection.silentAt = now
      }
      arm(at: Time.after(silence, max(heard, connection.silentAt)))
    }
  }

  /// Called when a call begins on a connection. Arms the timer for the report of a silent connection.
  override func watchSilence(_ now: UInt64) { if silence > 0 { arm(at: Time.after(silence, now)) } }

  // MARK: The end

  /// Tells the subchannel and the owners of streams the changes of this turn.
  func runInTurn() {
    if phase != .closed {
      if let failure {
        close(failure)
      } else if phase == .draining {
        if ownReason != nil, !toldDraining {
          toldDraining = true
          owner?.connectionDraining(self)
        }
        if count == 0, connectors.isEmpty { close(ByteBuffer().say("the connection is no longer used")) }
      } else {
        if idle != nil, givesWay { closeLongestIdle() }
        if isAsked, slots > 0 {
          isAsked = false
          owner?.connectionHasSlots()
        }
      }
    }
    tell()
  }

  private func tell() {
    while let stream = endedStreams.popFirst() {
      if let owner = stream.owner { owner.streamChanged(stream) }
    }
  }

  override func timedOut() { close(ByteBuffer().say("connect timeout")) }

  override func drain() {
    guard phase == .open else { return }
    phase = .draining
    endQueued(ownReason ?? HTTP1Pool.unused)
    closeConnectors()
    while let connection = idle {
      connection.closeGracefully(ByteBuffer().say("the connection is no longer used"))
    }
    work.schedule(self)
  }

  private func closeConnectors() {
    while let connector = connectors.popLast() { connector.close() }
  }

  override func closeGracefully() {
    close(ByteBuffer().say("the connection is no longer used"))
    tell()
  }

  /// Closes all connections, and tells the subchannel. The caller then tells the owners of ended streams.
  private func close(_ words: ByteBuffer) {
    guard phase != .closed else { return }
    phase = .closed
    endQueued(words)
    closeConnectors()
    channel.limit.forget(self)
    if let timer { runtime.disarm(timer) }
    timer = nil
    let told = owner.take()
    if isReady {
      for _ in 0..<count { told?.note(.lost, words) }
    }
    // The end of each connection was reported just now. So the subchannel must not report `lost` again.
    wasReady = false
    told?.connectionEnded(self, words)
    while let connection = connections { connection.closeGracefully(words) }
  }

  override func closeInChild() {
    var connection = connections
    while let one = connection {
      one.closeInChild()
      connection = one.next
    }
    for connector in connectors { connector.closeInChild() }
  }
}

/// The pool's only timer. It is set for the earliest of these times: the connect timeout of a connector, the next
/// attempt to connect after a failure, and the end of the permitted idle time or silence of a connection.
final class HTTP1PoolTimer: Timer {
  /// The pool. The reference is not counted: the pool disarms the timer before the pool is freed.
  private unowned(unsafe) let pool: HTTP1Pool

  init(_ pool: HTTP1Pool) { self.pool = pool }

  override func fire() { pool.timeIsUp() }
}
