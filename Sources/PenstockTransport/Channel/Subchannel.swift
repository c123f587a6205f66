import PenstockCall
import PenstockChannel
import PenstockWire

/// One endpoint: an address, and the connection to it while there is one. `SubchannelState` makes the decisions, and
/// this class carries them out. As a timer it limits the time for connecting.
///
/// A connection that drains (GOAWAY) goes on beside the present one until its streams have ended.
final class Subchannel: Timer {
  private let address: SocketAddress
  /// The index among the channel's endpoints.
  let endpointIndex: Int
  /// The channel. It closes its subchannels before it goes, and a closed one does not use it, so the reference is not
  /// counted.
  private unowned(unsafe) let channel: ChannelCore
  private var state = SubchannelState.idle
  /// The connector, while it connects; later the connection takes its work over.
  private var connector: Connector?
  /// The connection, while the subchannel is ready, and before that while HTTP begins.
  private var connection: TransportConnection?
  private var draining: [TransportConnection] = []

  init(_ address: SocketAddress, _ index: Int, _ channel: ChannelCore) {
    self.address = address
    endpointIndex = index
    self.channel = channel
    super.init()
  }

  /// Whether there is any connection, or one being made.
  var isInUse: Bool { connector != nil || connection != nil || !draining.isEmpty }

  /// Gives `attempt` a stream. False: there is no slot; the balancer is told of the next one.
  @inline(__always)
  func open(_ attempt: Attempt) -> Bool {
    let isOpen = borrow(connection) { connection in
      guard connection.slots > 0 else { return false }
      attempt.open(on: connection)
      return true
    }
    if isOpen == true { return true }
    lackSlot()
    return false
  }

  /// Whether the connection has a slot. False: the balancer is told of the next one.
  @inline(never) @_optimize(size)
  var hasSlot: Bool {
    if let connection, connection.slots > 0 { return true }
    lackSlot()
    return false
  }

  @inline(never) @_optimize(size)
  private func lackSlot() {
    if let words = connection?.leaving { tell(follow(.draining), words) } else { tell(follow(.full)) }
  }

  /// Connects. Returns news that results at once: a connection that can't be begun has failed.
  func connect(until: UInt64) -> EndpointNews? { follow(.wanted(until: until)) }

  /// Carries out the decisions on an event, and returns the news for the balancer. `words`: the reason why a
  /// connection has ended.
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
      case .giveUp:
        connector?.timedOut()
        connection?.timedOut()
      case .ask: connection?.isAsked = true
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
  private func tell(_ news: EndpointNews?, _ words: ByteBuffer? = nil) {
    if let news { channel.hears(news, self, words) }
  }

  /// Begins a connection. Returns the reason if it could not.
  @inline(never) @_optimize(size)
  private func begin() -> ByteBuffer? {
    switch Connector.start(address, channel, self) {
    case .started(let connector):
      self.connector = connector
      return nil
    case .failed(let words): return words
    }
  }

  @inline(never) @_optimize(size)
  override func fire() { tell(follow(.time)) }

  // MARK: News from connector and connection

  @inline(never) @_optimize(size)
  func connectorMade(_ connection: TransportConnection) {
    connector = nil
    self.connection = connection
  }

  @inline(never) @_optimize(size)
  func connectorFailed(_ words: ByteBuffer) {
    connector = nil
    tell(follow(.ended, words))
  }

  func connectionReady(_ connection: TransportConnection) {
    if self.connection === connection { tell(follow(.connected)) }
  }

  func connectionHasSlots(_ connection: TransportConnection) {
    if self.connection === connection { tell(follow(.room)) }
  }

  func connectionDraining(_ connection: TransportConnection) {
    if self.connection === connection { tell(follow(.draining), connection.leaving) }
  }

  @inline(never) @_optimize(size)
  func connectionEnded(_ connection: TransportConnection, _ words: ByteBuffer) {
    if self.connection === connection {
      self.connection = nil
      return tell(follow(.ended, words), words)
    }
    draining.drop(connection)
    if draining.isEmpty, state != .closed { channel.isDone(self) }
  }

  // MARK: The end

  /// Ends the connections, which end the attempts on them.
  func close() { _ = follow(.close) }

  @inline(never) @_optimize(size)
  private func closeAll() {
    channel.disarm(self)
    connector.take()?.close()
    connection.take()?.closeGracefully()
    let retired = draining
    draining = []
    for connection in retired { connection.closeGracefully() }
  }

  @inline(never) @_optimize(size)
  func closeInChild() {
    connector?.closeInChild()
    connection?.closeInChild()
    for connection in draining { connection.closeInChild() }
  }
}
