import PenstockCall
import PenstockWire

/// What a subchannel needs to know to connect, besides the address.
final class Destination {
  let target: Target
  /// As the user wrote it, for error texts.
  let name: ByteBuffer
  let tls: TLSContext?
  let limits: HTTP2Limits
  let connectTimeout: UInt64

  init(
    _ target: Target, _ name: ByteBuffer, _ tls: TLSContext?, _ limits: HTTP2Limits, _ connectTimeout: UInt64
  ) {
    self.target = target
    self.name = name
    self.tls = tls
    self.limits = limits
    self.connectTimeout = connectTimeout
  }
}

/// One endpoint: an address, and the connection to it while there is one. What it does when is `SubchannelState`'s;
/// this carries it out. The timer is the one for connecting.
///
/// A connection that drains (GOAWAY) goes on beside it until its streams have ended.
final class Subchannel: Timer, ConnectionOwner {
  private let address: SocketAddress
  /// Which of its channel's endpoints it is.
  let place: Int
  /// A channel closes its subchannels before it goes, and a closed one tells it nothing: the reference needs no count.
  private unowned(unsafe) let channel: ChannelCore
  private var state = SubchannelState.idle
  /// There is one while it connects, and while it is ready.
  private var connection: HTTP2Connection?
  private var draining: [HTTP2Connection] = []

  init(_ address: SocketAddress, _ place: Int, _ channel: ChannelCore) {
    self.address = address
    self.place = place
    self.channel = channel
    super.init()
  }

  /// Some connection is there.
  var isInUse: Bool { connection != nil || !draining.isEmpty }

  /// Gives `attempt` a stream. False: the connection takes no more.
  @inline(__always)
  func open(_ attempt: Attempt) -> Bool {
    let isOpen = borrow(connection) { connection in
      guard connection.session.canOpen else { return false }
      attempt.open(on: connection)
      return true
    }
    if isOpen == true { return true }
    tell(follow(.draining))
    return false
  }

  /// What has come of it at once: a connection that can't be begun has failed.
  func connect(until: UInt64) -> EndpointNews? { follow(.wanted(until: until)) }

  /// Carries out what is to be done, and returns what the balancer has to hear of. `words`: why a connection has ended.
  @inline(never) @_optimize(size)
  private func follow(_ event: SubchannelEvent, _ words: ByteBuffer? = nil) -> EndpointNews? {
    var words = words
    var told: EndpointNews?
    var actions = state.handle(event, now: channel.runtime.now)
    while let action = actions.next() {
      switch action {
      case .connect(let until):
        words = begin()
        if words == nil {
          channel.arm(self, at: until)
        } else {
          actions = state.handle(.ended, now: channel.runtime.now)
        }
      case .arm(let time): channel.arm(self, at: time)
      case .disarm: channel.disarm(self)
      case .giveUp: connection?.timedOut()
      case .retire: if let connection = connection.take() { draining.append(connection) }
      case .tell(let news):
        told = news
        if news == .failed, let words { channel.failed(address, words) }
      case .closeAll: closeAll()
      }
    }
    return told
  }

  @inline(never) @_optimize(size)
  private func tell(_ news: EndpointNews?) {
    if let news { channel.hears(news, self) }
  }

  /// Why not, if it could not begin a connection.
  @inline(never) @_optimize(size)
  private func begin() -> ByteBuffer? {
    let destination = channel.destination
    switch HTTP2Connection.start(
      address, tls: destination.tls, host: destination.target.host, limits: destination.limits,
      runtime: channel.runtime, work: channel.work, owner: self)
    {
    case .started(let connection):
      self.connection = connection
      return nil
    case .failed(let words): return words
    }
  }

  @inline(never) @_optimize(size)
  override func fire() { tell(follow(.time)) }

  // MARK: What a connection tells

  func connectionReady(_ connection: HTTP2Connection) {
    if self.connection === connection { tell(follow(.connected)) }
  }

  func connectionDraining(_ connection: HTTP2Connection) {
    if self.connection === connection { tell(follow(.draining)) }
  }

  @inline(never) @_optimize(size)
  func connectionEnded(_ connection: HTTP2Connection, _ words: ByteBuffer) {
    if self.connection === connection {
      self.connection = nil
      return tell(follow(.ended, words))
    }
    draining.drop(connection)
    if draining.isEmpty, state != .closed { channel.isDone(self) }
  }

  // MARK: The end

  /// Ends the connections, which end what is on them.
  func close() { _ = follow(.close) }

  @inline(never) @_optimize(size)
  private func closeAll() {
    channel.disarm(self)
    connection.take()?.closeGracefully()
    let retired = draining
    draining = []
    for connection in retired { connection.closeGracefully() }
  }

  @inline(never) @_optimize(size)
  func closeInChild() {
    connection?.closeInChild()
    for connection in draining { connection.closeInChild() }
  }
}
