import PenstockChannel

/// Carries out what a `Keepalive` decides for one connection, until the connection ends.
final class KeepaliveTimer: Timer {
  private var keepalive: Keepalive
  /// The connection, which has this timer; nil once the connection has ended.
  private var connection: HTTP2Connection?
  private let destination: Destination
  private let runtime: Runtime
  /// Whether the peer has complained of too many pings. A second complaint on one connection says nothing new.
  private var isSlowed = false

  init(_ keepalive: Keepalive, _ connection: HTTP2Connection, _ destination: Destination, _ runtime: Runtime)
  {
    self.keepalive = keepalive
    self.connection = connection
    self.destination = destination
    self.runtime = runtime
    super.init()
  }

  override func fire() { connection?.keepaliveDue() }

  /// Tells the `Keepalive` of an event, and carries out its actions. False: it is asleep, and has to be told of the
  /// next stream.
  @inline(never) @_optimize(size)
  func follow(_ event: KeepaliveEvent) -> Bool {
    var actions = keepalive.handle(event, now: runtime.now)
    while let action = actions.next() {
      switch action {
      case .ping: connection?.ping()
      case .arm(let time): runtime.arm(self, at: time)
      case .disarm: runtime.disarm(self)
      case .slow(let interval): destination.keepalive?.slow(to: interval)
      case .die: connection?.die(keepalive.timeout)
      }
    }
    return keepalive.state != .asleep
  }

  func slowDown() {
    if isSlowed { return }
    isSlowed = true
    _ = follow(.tooMany)
  }

  func end() {
    _ = follow(.ended)
    connection = nil
  }
}
