import PenstockCall
import PenstockHTTP
import PenstockLink
import PenstockLoop
import PenstockWire

/// The limit on the connections of a channel to all its addresses together (`max_connections`), and the connectors that
/// wait for a place. A place is taken from the beginning of an attempt to connect until the socket is closed. The
/// attempts that race for the one connection of pick_first have one place together. Driving thread only.
///
/// | | there is room | there is none |
/// |---|---|---|
/// | a connector enters | it takes a place | it waits, until the connect timeout of its owner |
/// | a connector enters that races with others | it shares their place | it shares their place |
/// | a connector or a connection leaves | connectors that wait enter; then owners that have waited in vain try again | |
///
/// A further connection to an address has room only if a place is left for each address without a connection, and it
/// enters after those. Otherwise a busy address might keep another one out for ever.
final class ConnectionLimit: TurnTask {
  var isScheduled = false
  /// The most connections; 0: no limit.
  private let most: Int
  private let work: TurnWork
  private var taken = 0
  /// The places of connectors, and of connections that are not ready yet, that count as one.
  private var racers: [ConnectionPlace] = []
  private var waiting: [Connector] = []
  /// The owners of connectors that have waited in vain. `hasGot`: a place was given back, so that they can try again.
  private var refused: [any ConnectorOwner] = []
  private var hasGot = false

  init(_ most: Int, _ work: TurnWork) {
    self.most = most
    self.work = work
  }

  /// Gives the connector a place, or lets it wait for one. False: it waits.
  func enter(_ connector: Connector) -> Bool {
    if most == 0 { return true }
    let sharesPlace = connector.races && !racers.isEmpty
    guard sharesPlace || hasRoom(for: connector) else {
      waiting.append(connector)
      return false
    }
    let place = ConnectionPlace(self)
    if !sharesPlace { taken += 1 }
    if connector.races { racers.append(place) }
    connector.place = place
    refused.removeAll { connector.isFor($0) }
    return true
  }

  /// Whether there is room for the connector, also for those that wait and come before it.
  private func hasRoom(for connector: Connector) -> Bool {
    if waiting.contains(where: { !$0.isFurther }) { return false }
    return taken + (connector.isFurther ? connector.channel.unconnected : 0) < most
  }

  /// Called when a connector makes no connection.
  func release(_ connector: Connector) {
    if let place = connector.place.take() { return place.giveBack() }
    waiting.drop(connector)
    serveSoon()
  }

  /// Called when a connector of `owner` has waited in vain.
  func refuse(_ owner: any ConnectorOwner) {
    if !refused.contains(where: { $0 === owner }) { refused.append(owner) }
  }

  /// Called when `owner` makes no more connections.
  func forget(_ owner: any ConnectorOwner) { refused.removeAll { $0 === owner } }

  /// Called when a connector or a connection has closed.
  fileprivate func freed(_ place: ConnectionPlace) {
    if endsRace(place), !racers.isEmpty { return }
    taken -= 1
    hasGot = true
    serveSoon()
  }

  /// Called when a connection is ready. If it has won a race, the others keep the place that they have shared: there is
  /// one connection too many until they are closed, in the same turn.
  fileprivate func isReady(_ place: ConnectionPlace) {
    if endsRace(place), !racers.isEmpty { taken += 1 }
  }

  /// Takes the place out of the race. False: it was in none.
  private func endsRace(_ place: ConnectionPlace) -> Bool {
    let before = racers.count
    racers.drop(place)
    return racers.count < before
  }

  /// Looks at the end of the turn for those that may enter. Called also when the channel's addresses have changed, or when
  /// an address has lost its connection.
  func serveSoon() { if !waiting.isEmpty || !refused.isEmpty { work.schedule(self) } }

  func runInTurn() {
    let before = waiting
    waiting = []
    for connector in before where !connector.isFurther && enter(connector) { connector.goOn() }
    for connector in before where connector.isFurther && enter(connector) { connector.goOn() }
    while hasGot, taken < most, !refused.isEmpty { refused.removeFirst().roomIsLeft() }
    hasGot = false
  }

  /// Forgets all that wait, because the channel is closed.
  func close() {
    waiting = []
    refused = []
  }

  // MARK: Questions

  /// Whether several attempts have one place together.
  var hasRace: Bool { racers.count > 1 }

  /// Whether more connectors wait that are not for `owner` than places are free. `urgently`: only those for addresses
  /// without a connection count.
  func isWanted(besides owner: any ConnectorOwner, urgently: Bool) -> Bool {
    guard let first = waiting.first else { return false }
    var (wanted, needed, neededByOthers) = (0, 0, 0)
    for connector in waiting {
      if !connector.isFor(owner) { wanted += 1 }
      if connector.isFurther { continue }
      needed += 1
      if !connector.isFor(owner) { neededByOthers += 1 }
    }
    let free = max(0, most - taken)
    if neededByOthers > free { return true }
    // A place that is reserved for an address without a connection is free only for a connector of this address.
    let reserved = max(0, first.channel.unconnected - needed)
    return !urgently && wanted > max(0, free - reserved)
  }

  /// Whether a connector for `owner` waits.
  func delays(_ owner: AnyObject) -> Bool { waiting.contains { $0.isFor(owner) } }

  /// Whether anything waits, or has waited in vain.
  var isShort: Bool { !waiting.isEmpty || !refused.isEmpty }

  /// The reason why a connector waits.
  var words: ByteBuffer {
    ByteBuffer().say("no room for one more connection of the channel, which may have ").say(most)
      .say(" (max_connections)")
  }

  /// Appends in words what a call waits for.
  func say(to text: ByteBuffer) {
    text.say("one of the channel's ").say(most).say(" connections (max_connections)")
  }
}

/// The place of one connector, and then of its connection.
final class ConnectionPlace: LinkPlace {
  private let limit: ConnectionLimit

  init(_ limit: ConnectionLimit) {
    self.limit = limit
    super.init()
  }

  override func isReady() { limit.isReady(self) }

  override func giveBack() { limit.freed(self) }
}
