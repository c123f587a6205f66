import PenstockChannel
import PenstockLoop

/// Carries out the actions of a `Keepalive` for one connection, until the connection ends. In a channel
/// without keepalive the timer sends no pings. It then only tells the channel's listeners when the connection
/// is silent.
final class KeepaliveTimer: Timer {
  private var keepalive: Keepalive
  /// The connection that owns this timer; nil: the connection has ended.
  private var connection: HTTP2Connection?
  private let settings: ConnectionSettings
  private let runtime: Runtime
  private let pings: Bool
  /// Whether the peer has complained about too many pings. A second complaint on one connection has no
  /// effect.
  private var isSlowed = false

  init(
    _ keepalive: Keepalive, _ connection: HTTP2Connection, _ settings: ConnectionSettings, _ runtime: Runtime
  ) {
    self.keepalive = keepalive
    self.connection = connection
    self.settings = settings
    self.runtime = runtime
    pings = true
    super.init()
  }

  /// Makes a timer that sends no pings. It reports silence to the listeners after `time` nanoseconds in which
  /// calls were open and no byte was received, and again after each further `time`.
  init(
    listening time: UInt64, _ connection: HTTP2Connection, _ settings: ConnectionSettings, _ runtime: Runtime
  ) {
    keepalive = Keepalive(interval: time, timeout: time, withoutCalls: false)
    self.connection = connection
    self.settings = settings
    self.runtime = runtime
    pings = false
    super.init()
  }

  override func fire() { connection?.keepaliveDue() }

  /// Passes an event to the `Keepalive`, and carries out the actions that it returns. False: the `Keepalive`
  /// is asleep, so the connection has to report the next stream with `.opened`.
  func follow(_ event: KeepaliveEvent) -> Bool {
    var event = event
    if !pings, case .opened(var view) = event {
      // Time without calls does not count as silence, so the silence begins now.
      view.heard = runtime.now
      event = .opened(view)
    }
    var actions = keepalive.handle(event, now: runtime.now)
    while let action = actions.next() {
      switch action {
      case .ping: if pings { connection?.ping() } else { connection?.tellSilence() }
      case .arm(let time): runtime.arm(self, at: time)
      case .disarm: runtime.disarm(self)
      case .slow(let interval): settings.keepalive?.slow(to: interval)
      case .die:
        guard let connection else { break }
        if pings {
          connection.die(keepalive.timeout)
        } else {
          keepalive = Keepalive(interval: keepalive.interval, timeout: keepalive.timeout, withoutCalls: false)
          actions = keepalive.handle(.opened(connection.keepaliveView), now: runtime.now)
        }
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
