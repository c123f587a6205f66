import PenstockCall
import PenstockLink
import PenstockWire

/// The limit on the connections of a channel to all its addresses together (`max_connections`), and the connectors that
/// wait for a place. A place is taken from the beginning of an attempt to connect until the socket is closed. The
/// attempts that race for the one connection of pick_first have one place together. Driving thread only.
///
/// | | a place is free | no place is free |
/// |---|---|---|
/// | a connector enters | it takes the place | it waits, until the connect timeout of its owner |
/// | a connector enters that races with others | it shares their place | it shares their place |
/// | a connector or a connection leaves | | the connectors that wait enter, the first one first |
final class ConnectionLimit {
  /// The most connections; 0: no limit.
  private let most: Int
  private var taken = 0
  /// How many connectors, and connections that are not ready yet, share a place.
  private var racing = 0
  private var waiting: [Connector] = []

  init(_ most: Int) { self.most = most }

  /// Gives the connector a place, or lets it wait for one. False: it waits.
  func enter(_ connector: Connector) -> Bool {
    if most == 0 { return true }
    if connector.races, racing > 0 {
      racing += 1
    } else if taken < most {
      taken += 1
      if connector.races { racing += 1 }
    } else {
      waiting.append(connector)
      return false
    }
    connector.place = ConnectionPlace(self, isShared: connector.races)
    return true
  }

  /// Called when a connector makes no connection.
  func leave(_ connector: Connector) {
    if let place = connector.place.take() { place.giveBack() } else { waiting.drop(connector) }
  }

  /// Called when a connector or a connection has closed.
  fileprivate func left(isShared: Bool) {
    if isShared {
      racing -= 1
      if racing > 0 { return }
    }
    taken -= 1
    let before = waiting
    waiting = []
    for connector in before where enter(connector) { connector.goOn() }
  }

  /// Called when a connection has won a race. The others keep the place that they have shared: there is one connection
  /// too many until they are closed, in the same turn.
  fileprivate func won() {
    racing -= 1
    if racing > 0 { taken += 1 }
  }

  /// Whether a connector waits that is not for `owner`.
  func isWanted(besides owner: any ConnectorOwner) -> Bool { waiting.contains { !$0.isFor(owner) } }

  /// Whether a connector for `owner` waits.
  func delays(_ owner: AnyObject) -> Bool { waiting.contains { $0.isFor(owner) } }

  /// The reason why a connector waits.
  var words: ByteBuffer {
    ByteBuffer().say("the channel has ").say(most)
      .say(most == 1 ? " connection" : " connections").say(" already, as many as it may have (max_connections)")
  }

  /// Appends in words what a call waits for.
  func say(to text: ByteBuffer) {
    text.say("one of the channel's ").say(most).say(" connections (max_connections)")
  }
}

/// The place of one connector, and then of its connection.
final class ConnectionPlace: LinkPlace {
  private let limit: ConnectionLimit
  private var isShared: Bool

  init(_ limit: ConnectionLimit, isShared: Bool) {
    self.limit = limit
    self.isShared = isShared
    super.init()
  }

  override func isReady() {
    guard isShared else { return }
    isShared = false
    limit.won()
  }

  override func giveBack() { limit.left(isShared: isShared) }
}
