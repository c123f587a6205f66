import PenstockCall
import PenstockLink
import PenstockLoop
import PenstockWire

/// The invariants of a connection of HTTP/1.1. Test builds (PENSTOCK_CHECKS) check H1 at each event, and the others
/// after each event of the descriptor and after each turn:
///
/// - H1: an event comes only in a state in which the table of `HTTP1Life` or of `HTTP1Reading` allows it.
/// - H2: the connection has a stream exactly while it has a call, and that stream has this connection.
/// - H3: while no byte of a request was sent, its head waits in the output. Only then are copies of the body kept.
/// - H4: the connection has its pool until it closes.
/// - H5: reading is paused only while the stream keeps more than half a window. So the owner, which has still to
///   take those bytes, lets it go on.
/// - H6: a read that is due has a turn.
/// - H7: the stream's owner was told all changes.
extension HTTP1Connection {
  func check() {
    #if PENSTOCK_CHECKS
      if let broken = brokenInvariant { fatalError("invariant \(broken)") }
    #endif
  }

  #if PENSTOCK_CHECKS
    private var brokenInvariant: StaticString? {
      if hasUntold { return "H7: an owner was not told of a change" }
      if unsent.bytes > 0, !life.isUnsent { return "H3: copies of pieces that were sent" }
      if life == .closed {
        if stream != nil { return "H2: a closed connection has a stream" }
        return pool == nil ? nil : "H4: a closed connection has a pool"
      }
      guard let pool else { return "H4: a connection without a pool" }
      if life.hasCall != (stream != nil) { return "H2: a call without a stream, or a stream without a call" }
      if let stream, stream.connection !== self || stream.isQueued { return "H2: the stream is elsewhere" }
      if life.isUnsent, link.isSent { return "H3: the head of a request has gone" }
      if reading.isPaused, stream.map({ $0.body.count }) ?? 0 <= pool.settings.limits.streamWindow / 2 {
        return "H5: nothing ends a pause"
      }
      if reading.isDue, !isScheduled { return "H6: a read that is due has no turn" }
      return nil
    }
  #endif
}
