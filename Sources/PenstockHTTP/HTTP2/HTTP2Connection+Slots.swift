import CPenstockSystem
import PenstockChannel
import PenstockWire
import PenstockLoop
import PenstockLink

/// When a connection can take a further stream.
extension HTTP2Connection {
  /// An idle connection is asked for its end if it was neither polled nor read for this many nanoseconds.
  private static let lately: UInt64 = 5_000

  /// Called when the connection, which has no calls, may get one. The peer may have ended it, or sent a GOAWAY,
  /// since the loop has polled its descriptor. A request that is written after that is lost, and must not be sent
  /// again. So the socket itself is asked. What has come is read at the end of the turn; until then the connection
  /// has no slots.
  func askSocket() {
    let now = runtime.now
    guard now > max(runtime.polledAt, lookedAt) + HTTP2Connection.lately else { return }
    lookedAt = now
    if link.socket.isQuiet { return }
    hasUnread = true
    wantsWrite()
  }

  /// Reads what `look` has found.
  func readUnread() {
    hasUnread = false
    if phase == .closed { return }
    receiveAll()
    if phase == .closed { return }
    session.dispatch()
    tellOwner()
  }

  /// Sets the timer for the session's quota.
  func watchQuota() {
    guard phase != .closed, let time = session.quota.wakeAt else { return }
    let timer = quotaTimer ?? QuotaTimer(self)
    quotaTimer = timer
    runtime.arm(timer, at: time)
  }

  /// Called when the timer of the quota is due.
  func quotaDue() {
    session.quotaDue()
    tellOwner()
    wantsWrite()
  }
}

/// Lets a connection whose peer has refused streams take more of them.
final class QuotaTimer: Timer {
  /// The connection, which disarms the timer before it is freed; so the reference is not counted.
  private unowned(unsafe) let connection: HTTP2Connection

  init(_ connection: HTTP2Connection) {
    self.connection = connection
    super.init()
  }

  override func fire() { connection.quotaDue() }
}
