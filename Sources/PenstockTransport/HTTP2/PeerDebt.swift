import CSystem
import PenstockChannel
import PenstockWire

/// Limits the work that a peer causes without progress for any call. Each frame, and each read within a frame, adds
/// one to the debt (`FrameTracker.owed`). Progress of a call takes off four (a piece of a body, an answer's head or
/// trailers, a frame of a request's body that leaves), and each second takes off a hundred. Over the limit the
/// connection ends with ENHANCE_YOUR_CALM (RFC 9113 section 10.5). So a server may send a ping with each message, or
/// one a second for years.
///
/// Frames on a stream that this side has given up add no debt, up to as many bytes as may have been on their way by
/// then.
extension HTTP2Session {
  /// The time in nanoseconds after which one frame is forgiven.
  private static let forgivenEach = 1_000_000_000 / Limits.forgivenEachSecond

  /// Called when a call has made progress: reduces the debt by four. If the progress is a frame of a request
  /// that has left, each 512 of its `bytes` reduce the debt by one more, so that the peer may acknowledge
  /// each KiB.
  @inline(__always)
  func earn(_ bytes: Int = 0) { tracker.owed = max(tracker.owed &- (4 &+ bytes >> 9), 0) }

  /// Called when this side ends a stream of which up to `bytes` bytes may still come.
  func expectLate(_ bytes: Int) {
    lateBytes = min(lateBytes + bytes, Limits.lateBytes + 4 * limits.connectionWindow)
  }

  /// Called when `count` bytes have come in frames of one stream and kind, and these frames have raised the
  /// debt. `before`: the debt before them.
  @inline(never) @_optimize(size)
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

  /// Whether the stream's answer is still wanted, and not complete.
  private func isLive(_ id: Int32) -> Bool {
    find(id).map { $0._withUnsafeGuaranteedRef { $0.owner != nil && $0.end == nil } } ?? false
  }

  /// Adds to the debt. Over the limit the session fails.
  @inline(never) @_optimize(size)
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
        .say(" frames or TLS messages without use for any call (ENHANCE_YOUR_CALM)"))
  }
}
