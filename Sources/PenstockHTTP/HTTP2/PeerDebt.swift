import CPenstockNghttp2
import CPenstockSystem
import PenstockWire
import PenstockLink

/// Limits the work that a peer can cause without progress for any call. The work is counted as a debt
/// (`FrameTracker.owed`). Each frame, and each read within a frame, adds one. Progress of a call subtracts
/// four: a piece of a body, a response's head or trailers, or a sent frame of a request's body. Each second
/// subtracts a hundred. Over the limit the connection ends with ENHANCE_YOUR_CALM (RFC 9113 section 10.5). So
/// a server may send a ping with each message, or one per second for years.
///
/// Frames on a stream that this side has ended add no debt, up to the number of bytes that may have been on
/// the network at that time.
extension HTTP2Session {
  /// The time in nanoseconds after which the debt falls by one frame.
  private static let forgivenEach = 1_000_000_000 / Limits.forgivenEachSecond

  /// Called when a call has made progress: reduces the debt by four. `bytes`: the length of a sent frame of a
  /// request, otherwise 0. Each 512 bytes reduce the debt by one more, so that the peer may acknowledge each
  /// KiB.
  @inline(__always)
  func earn(_ bytes: Int = 0) { tracker.owed = max(tracker.owed &- (4 &+ bytes >> 9), 0) }

  /// Called when this side ends a stream, for which up to `bytes` bytes may still arrive.
  func expectLate(_ bytes: Int) {
    lateBytes = min(lateBytes + bytes, Limits.lateBytes + 4 * limits.connectionWindow)
  }

  /// Called when frames of one stream and kind have raised the debt. `count`: the received bytes of these
  /// frames. `before`: the debt before these frames.
  func owe(_ count: Int, since before: Int) {
    let frames = tracker.owed - before
    switch tracker.kind {
    case .call where isLive(tracker.stream): charge(0)
    case .call:
      let bytes = max(count - 9 * frames, frames)
      if bytes <= lateBytes {
        lateBytes -= bytes
        tracker.owed = before
      } else {
        charge(count >> 7)
      }
    case .control: charge(count >> 12)
    }
  }

  /// Whether the stream's owner still waits for the rest of the answer.
  private func isLive(_ id: Int32) -> Bool {
    find(id).map { $0._withUnsafeGuaranteedRef { $0.owner != nil && $0.end == nil } } ?? false
  }

  /// Adds `cost` to the debt. If the debt is over the limit, the session fails.
  func charge(_ cost: Int) {
    tracker.owed += cost
    guard tracker.owed > Limits.framesWithoutUse else { return }
    let now = times.now
    let forgiven = (now &- forgivenAt) / HTTP2Session.forgivenEach
    tracker.owed -= min(tracker.owed, Int(truncatingIfNeeded: forgiven))
    forgivenAt = now
    guard tracker.owed > Limits.framesWithoutUse else { return }
    fail(
      ByteBuffer().say("the connection ended: over ").say(Limits.framesWithoutUse)
        .say(" frames or TLS messages without use for any call (ENHANCE_YOUR_CALM)"),
      NGHTTP2_ENHANCE_YOUR_CALM)
  }
}
