import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockNames
import PenstockLink
import PenstockHTTP

/// One endpoint: an address, and the connections to it. `SubchannelState` makes the decisions; this class
/// carries them out. As a timer, it fires at the time that `SubchannelState` has set: the connect timeout,
/// the end of a back-off delay, or the greatest age of a connection. Usually there is one connection. Another
/// connection is made if no present connection can open a stream, and the service config allows more (gRFC
/// A105).
///
/// After a GOAWAY, or when the subchannel is not wanted any more, a connection accepts no new streams. It
/// then stays in `draining` until its streams have ended.
final class Subchannel: Timer, ConnectorOwner, ConnectionOwner {
  /// The address, with the weight, priority and attributes that the resolver gave with its last answer.
  var endpoint: Endpoint
  var address: SocketAddress { endpoint.address }
  /// The index in the channel's list of endpoints; -1: the resolver no longer gives this address.
  var endpointIndex = -1
  /// The channel. The reference is not counted: the channel closes its subchannels before it is freed, and a
  /// closed subchannel does not use the channel.
  private unowned(unsafe) let channel: ChannelCore
  private var state = SubchannelState.new
  /// The connector, until the socket is connected and its steps are done. A connection then takes over the
  /// socket.
  private var connector: Connector?
  /// A new connection that is not ready yet, because the peer's SETTINGS have not been received.
  private var fresh: TransportConnection?
  /// The place of the new connection among those of the channel; nil: their number has no limit.
  private var freshPlace: LinkPlace?
  /// The time when the new connection is given up.
  private var freshUntil: UInt64 = 0
  /// The oldest connection that accepts streams; nil: the subchannel is not ready.
  private var connection: TransportConnection?
  /// The other connections that accept streams, oldest first.
  private var others: [TransportConnection] = []
  private var draining: [TransportConnection] = []
  /// The reason why the last attempt to connect has failed; nil after an attempt has succeeded.
  private(set) var failure: ByteBuffer?
  /// Whether a connection to the address has worked: the peer has completed a TLS handshake, or has answered in HTTP.
  private(set) var hasWorked = false
  /// The counter of attempts for outlier detection; nil: attempts are not counted.
  private var tally: AttemptTally?
  private var record = OutlierRecord()
  /// The health check, which asks the server for its health while there is a connection; nil: no health
  /// check.
  private var health: HealthCheck?

  init(_ endpoint: Endpoint, _ channel: ChannelCore) {
    self.endpoint = endpoint
    self.channel = channel
    super.init()
  }

  /// The reason why calls wait for a connection to the address; nil: no reason is known.
  var trouble: ByteBuffer? {
    let waits = connector?.waitsForPlace == true || connection.map(channel.limit.delays) == true
    return waits ? channel.limit.words : failure
  }

  var hasConnection: Bool { connection != nil }
  /// Whether there is a connection that takes calls, or one is being made.
  var isConnected: Bool { connection?.isEmpty == false || fresh != nil || connector?.place != nil }

  func idleSince(sparesLast: Bool) -> UInt64? { connection?.idleSince(sparesLast: sparesLast) }
  func closeLongestIdle() { connection?.closeLongestIdle() }

  /// Whether there is any connection, or an attempt to connect.
  var isInUse: Bool { connector != nil || fresh != nil || connection != nil || !draining.isEmpty }
  var connectivity: Connectivity {
    if state.connectivity == .ready, let health { return health.connectivity }
    return state.connectivity
  }
  /// The number of attempts to connect that have failed in a row, and the time when the next attempt begins.
  var failures: (count: Int, retry: UInt64)? { state.failures }

  /// Gives `attempt` a stream. False: no connection can open a further stream. The balancer gets an event
  /// when a connection can, or when the connections are lost.
  @inline(__always)
  func open(_ attempt: Attempt) -> Bool {
    let isOpen = borrow(connection) { connection in
      connection.look()
      guard connection.slots > 0 else { return false }
      attempt.open(on: connection)
      return true
    }
    return isOpen == true || openElsewhere(attempt)
  }

  private func openElsewhere(_ attempt: Attempt) -> Bool {
    if let free {
      attempt.open(on: free)
      return true
    }
    _ = lackSlot(grows: true)
    return false
  }

  /// The oldest connection that can open a further stream.
  private var free: TransportConnection? {
    if let connection, isFree(connection) { return connection }
    for other in others where isFree(other) { return other }
    return nil
  }

  private func isFree(_ connection: TransportConnection) -> Bool {
    connection.look()
    return connection.slots > 0
  }

  var hasSlot: Bool { free != nil }

  var view: EndpointView {
    var views: [ConnectionView] = []
    for one in [fresh, connection] { if let one { views += one.views } }
    for other in others { views += other.views }
    for gone in draining { views += gone.views }
    return EndpointView(
      address: ByteBuffer().say(address.text()), state: connectivity, isEjected: isEjected,
      isCurrent: endpointIndex >= 0, failure: trouble, failures: failures?.count ?? 0, next: failures?.retry,
      weight: Int(endpoint.weight), connections: views)
  }

  /// Appends in words what a call waits for that finds no slot here.
  func sayFull(_ text: ByteBuffer) {
    guard let connection, let facts = connection.facts else { return }
    if !facts.isHTTP1 {
      connection.sayFull(text)
      if connector?.waitsForPlace == true { channel.limit.say(to: text.say(", or for ")) }
    } else if channel.limit.delays(connection) {
      channel.limit.say(to: text)
    } else {
      text.say("one of the channel's ").say(channel.destination.http1Connections)
        .say(" connections to the server (http1_max_connections)")
    }
  }

  /// Called when no connection can open a stream for an attempt. The balancer will get an event when a
  /// connection can, or when the connections are lost. `grows`: begins a further connection, if the limit
  /// allows. Returns whether a further connection is being made.
  func lackSlot(grows: Bool) -> Bool {
    if let connection, connection.drainReason != nil { connectionDraining(connection) }
    // `connectionDraining` may have made another connection the oldest. This connection also has to report
    // when it can open a stream.
    if connection != nil {
      let mayGrow =
        grows && connection?.hasUnread == false && others.count + 1 < channel.destination.mostConnections
      let until = Time.after(channel.destination.connectTimeout, channel.runtime.now)
      tell(follow(.full(until: mayGrow ? until : nil, random: channel.runtime.platform.random())))
    }
    return state.isGrowing
  }

  /// Begins to connect. Returns the news for the balancer if the attempt fails at once.
  func connect(until: UInt64) -> EndpointNews? {
    follow(.wanted(until: until, random: channel.runtime.platform.random()))
  }

  /// Called when no new calls will use this subchannel. Stops an attempt to connect, and lets the streams of
  /// the connections end.
  func unwanted() { _ = follow(.unwanted) }

  /// Called when the resolver no longer gives this address.
  func remove() {
    endpointIndex = -1
    channel.limit.forget(self)
    _ = follow(.removed)
  }

  func resetBackoff() {
    health?.resetBackoff()
    connection?.resetBackoff()
    tell(follow(.reset))
  }

  /// The time at which a connection that begins now is replaced. It is the age in the options, changed at
  /// random by up to a tenth, so that many clients do not replace their connections at the same time.
  private var connectionAge: UInt64 {
    let most = channel.destination.maxConnectionAge
    guard most > 0 else { return .max }
    let spread = channel.runtime.platform.random() % (most / 5 + 1)
    return Time.after(most - most / 10 + spread, channel.runtime.now)
  }

  /// Passes an event to `state`, and carries out the resulting actions. Returns the news for the balancer.
  /// `words`: the reason why a connection has ended.
  private func follow(_ event: SubchannelEvent, _ words: ByteBuffer? = nil) -> EndpointNews? {
    var words = words
    var told: EndpointNews?
    let policy = channel.destination.backoff
    let wasReady = connectivity == .ready
    var actions = state.handle(event, policy, now: channel.runtime.now)
    if state.connectivity != .ready { health?.stop() }
    while let action = actions.next() {
      switch action {
      case .connect(let until):
        words = begin()
        if words == nil {
          channel.runtime.arm(self, at: until)
        } else {
          actions = state.handle(.failed, policy, now: channel.runtime.now)
        }
      case .arm(let time): channel.runtime.arm(self, at: time)
      case .fail(let time):
        channel.runtime.arm(self, at: time)
        if let words { failure = words }
        note(.backoff, failure, milliseconds: (time &- channel.runtime.now) / 1_000_000)
        told = .failed
      case .disarm: channel.runtime.disarm(self)
      case .giveUp:
        // A connector that has waited for its place has more time.
        let until = connector?.until ?? freshUntil
        if until > channel.runtime.now {
          channel.runtime.arm(self, at: until)
          break
        }
        connector?.timedOut()
        fresh?.timedOut()
      case .drop: drop()
      case .ask:
        connection?.isAsked = true
        for other in others { other.isAsked = true }
      case .retire: retire()
      case .tell(let news):
        told = news
        if news == .gone || news == .goneUnused {
          if connectivity == .idle { channel.runtime.disarm(self) }
          // The health check has kept the endpoint from becoming ready for the balancer. The news `.rested`
          // makes the balancer connect the endpoint again.
          if !wasReady { told = .rested }
        }
        if news == .ready { told = becomeReady() }
        if news == .room { placeHealth() }
      case .closeAll: closeAll()
      }
    }
    return told
  }

  /// Called when there is a connection. Returns the news that the endpoint is ready. nil: the health check
  /// asks the server first.
  private func becomeReady() -> EndpointNews? {
    if let health {
      health.begin(on: connection)
      return nil
    }
    failure = nil
    return .ready
  }

  private func tell(_ news: EndpointNews?) {
    if let news { channel.hears(news, self) }
  }

  /// Called when an attempt to connect has failed, or when the last connection that accepted streams has
  /// ended or drains.
  private func lose(_ event: SubchannelEvent, _ words: ByteBuffer) { tell(follow(event, words)) }

  /// Begins to connect. Returns the reason if this fails at once, otherwise nil.
  private func begin() -> ByteBuffer? {
    note(.connecting)
    let races = connection == nil && !channel.usesAllEndpoints
    switch Connector.start(endpoint, channel, self, races: races) {
    case .started(let connector):
      self.connector = connector
      return nil
    case .failed(let words): return words
    }
  }

  private func retire() {
    while let oldest = connection {
      _ = detach(oldest)
      letDrain(oldest)
    }
  }

  private func letDrain(_ gone: TransportConnection) {
    note(.draining, gone.drainReason)
    draining.append(gone)
    gone.drain()
  }

  /// Removes a connection from those that accept streams. Returns whether any are left; nil: `gone` was not
  /// among them.
  private func detach(_ gone: TransportConnection) -> Bool? {
    if connection === gone {
      connection = others.first
      if let connection { others.drop(connection) } else { channel.limit.serveSoon() }
    } else {
      let before = others.count
      others.drop(gone)
      if others.count == before { return nil }
    }
    return connection != nil
  }

  private func drop() {
    channel.runtime.disarm(self)
    connector.take()?.close()
    fresh.take()?.closeGracefully()
  }

  override func fire() { tell(follow(.time)) }

  // MARK: News from connector and connection

  func connectorDone(_ connector: Connector, _ link: Link, _ peer: ByteBuffer) -> Bool {
    let version = HTTPVersion.chosen(on: link, channel.destination.http)
    guard let connection = version.connection(on: link, peer, channel, self) else { return false }
    self.connector = nil
    fresh = connection
    freshPlace = link.place
    freshUntil = connector.until
    if let security = connection.facts?.security {
      hasWorked = true
      note(.secured, security: security)
    }
    connection.begin()
    return true
  }

  func connectorFailed(_ connector: Connector, _ words: ByteBuffer) {
    self.connector = nil
    lose(.failed, words)
  }

  func connectionReady(_ ready: TransportConnection) {
    ready.facts?.tally = tally
    ready.wasReady = true
    hasWorked = true
    note(.ready, connection: ready.facts)
    guard fresh === ready else { return }
    fresh = nil
    freshPlace.take()?.isReady()
    if connection == nil { connection = ready } else { others.append(ready) }
    tell(follow(.connected(oldAt: connectionAge)))
  }

  /// Called when a connection can open a stream again, if it was asked to report this. A draining connection
  /// never reports it.
  func connectionHasSlots() { tell(follow(.room)) }

  func connectionDraining(_ gone: TransportConnection) {
    let answered = gone.hasAnswered
    if connection === gone, others.isEmpty {
      if let words = gone.drainReason { lose(.lost(answered: answered), words) }
    } else if detach(gone) != nil {
      letDrain(gone)
      lessen(answered)
    }
  }

  /// Called when one of several connections no longer accepts streams.
  private func lessen(_ answered: Bool) {
    health?.move(to: connection)
    tell(follow(.lessened(answered: answered)))
    placeHealth()
  }

  func connectionEnded(_ connection: TransportConnection, _ words: ByteBuffer) {
    if connection.wasReady { note(.lost, words) }
    if fresh === connection {
      fresh = nil
      return lose(.failed, words)
    }
    let answered = connection.hasAnswered
    if let hasOthers = detach(connection) {
      return hasOthers ? lessen(answered) : lose(.lost(answered: answered), words)
    }
    draining.drop(connection)
    if draining.isEmpty, endpointIndex < 0, connectivity != .shutdown { channel.isDone(self) }
  }

  /// Whether any interceptor listens to the channel's connection events.
  var hasListeners: Bool { channel.listeners?.isAnybody ?? false }

  /// Reports an event of a connection. An HTTP/1.1 pool, which is one connection to the subchannel, also calls this
  /// function for each connection within it.
  func note(
    _ kind: ConnectionNews.Kind, _ words: ByteBuffer? = nil, milliseconds: UInt64 = 0,
    security: SecurityFacts? = nil, connection: ConnectionFacts? = nil
  ) {
    channel.note(kind, address, words, milliseconds: milliseconds, security, connection)
  }

  /// Called when a connection with calls has been silent for `time` nanoseconds.
  func connectionSilent(_ time: UInt64) { note(.silent, milliseconds: time / 1_000_000) }

  // MARK: Health

  /// Asks the server for the health of `service` from now on; nil: asks no more. The caller then tells the
  /// balancer the states of all endpoints.
  func watchHealth(of service: ByteBuffer?) {
    if let service, let health, bytesEqual(health.service.view, service.view) { return }
    let old = health.take()
    old?.stop()
    health = service.map { HealthCheck($0, self, channel) }
    if state.connectivity == .ready, old != nil || service != nil { _ = becomeReady() }
    placeHealth()
  }

  /// If the health check's stream waits on a full connection, moves it to a connection that can open a
  /// stream. If there is none, begins a further connection, if the limit allows.
  private func placeHealth() {
    guard let health, health.isQueued else { return }
    if let free { health.move(to: free) } else { _ = lackSlot(grows: true) }
  }

  /// Called when the server's health has changed. `words`: the reason why the endpoint does not count as
  /// ready.
  func hears(_ news: EndpointNews, _ words: ByteBuffer?) {
    failure = news == .ready ? nil : words ?? failure
    note(news == .ready ? .healthy : .unhealthy, words)
    tell(news)
  }

  // MARK: Outliers

  /// Whether outlier detection has ejected the endpoint, so that it gets no calls.
  var isEjected: Bool { record.isEjected }
  /// The state for a balancer that uses all endpoints. A failed endpoint stays in TRANSIENT_FAILURE until it
  /// is ready. An ejected endpoint is in TRANSIENT_FAILURE, too.
  var stickyConnectivity: Connectivity {
    if isEjected { return .transientFailure }
    return connectivity != .ready && failure != nil ? .transientFailure : connectivity
  }

  /// Begins or stops counting attempts for outlier detection.
  func countsAttempts(_ on: Bool) {
    guard on != (tally != nil) else { return }
    tally = on ? AttemptTally() : nil
    connection?.facts?.tally = tally
    for other in others { other.facts?.tally = tally }
    guard !on else { return }
    if isEjected { failure = nil }
    record.restore()
  }

  /// The record for `OutlierDetection.judge`. It has the attempts since the last call of this function.
  func takeRecord() -> OutlierRecord {
    var all = record
    if let tally {
      all.succeeded = tally.succeeded
      all.failed = tally.failed
      tally.succeeded = 0
      tally.failed = 0
    }
    return all
  }

  /// Stores the record that `OutlierDetection.judge` has changed. Returns the news for the balancer.
  func judged(_ new: OutlierRecord) -> EndpointNews? {
    let wasEjected = isEjected
    record = new
    guard isEjected != wasEjected else { return nil }
    switch (isEjected, connectivity) {
    case (_, .transientFailure), (_, .shutdown), (false, .connecting): return nil
    case (true, .idle), (true, .connecting), (true, .ready):
      note(.ejected)
      failure = ByteBuffer().say("its calls have failed (outlier detection)")
      return .failed
    case (false, .idle):
      note(.restored)
      failure = nil
      return .rested
    case (false, .ready):
      note(.restored)
      failure = nil
      return .ready
    }
  }

  // MARK: The end

  /// Closes the connections, which ends the attempts on them.
  func close() { _ = follow(.close) }

  private func closeAll() {
    drop()
    var all = draining
    draining = []
    while let oldest = connection {
      _ = detach(oldest)
      all.append(oldest)
    }
    for connection in all { connection.closeGracefully() }
  }

  func closeInChild() {
    connector?.closeInChild()
    fresh?.closeInChild()
    connection?.closeInChild()
    for connection in others { connection.closeInChild() }
    for connection in draining { connection.closeInChild() }
  }
}
