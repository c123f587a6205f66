import CPenstockNghttp2
import PenstockChannel
import PenstockWire

/// How many streams a session may open.
extension HTTP2Session {
  /// The number of streams that may be added now.
  public var slots: Int { streamLimit - open.count - opening.count }

  /// The limit in the peer's SETTINGS.
  private var peerLimit: Int {
    Int(nghttp2_session_get_remote_settings(session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS))
  }

  /// Called when SETTINGS of the peer were received, or when the quota has changed: applies the limits.
  func limitStreams() {
    if phase == .open { streamLimit = min(peerLimit, quota.limit) }
  }

  /// The reason why the session accepts no new streams any more; nil: it accepts them.
  public var drainReason: ByteBuffer? {
    phase == .draining ? goAway ?? failure ?? ByteBuffer().say("the connection has no stream ids left") : nil
  }

  public func drain() {
    switch phase {
    case .beginning: phase = .stillborn
    case .open: phase = .draining
    case .draining, .stillborn, .abandoned: break
    }
    streamLimit = 0
  }

  // MARK: After REFUSED_STREAM

  /// Whether the peer has refused streams lately. The connection then calls `quotaDue` at `quota.wakeAt`.
  var hasQuota: Bool {
    if case .unlimited = quota { return false }
    return true
  }

  /// Whether fewer streams may be open than the peer allows, because it has refused some.
  var isLowered: Bool { quota.limit < peerLimit }

  /// Called when the peer has refused the stream `id`, which is not in `open` any more.
  public func refused(_ id: Int32) {
    let newest = Int32(clamping: nghttp2_session_get_next_stream_id(session)) - 2
    follow(.refused(stream: id, newest: newest, open: open.count, random: times.random))
  }

  public func answered(_ id: Int32) { follow(.answered(stream: id)) }

  func quotaDue() { follow(.time(open: open.count, limit: peerLimit, random: times.random)) }

  private func follow(_ event: StreamQuota.Event) {
    quota.handle(event, now: times.now)
    limitStreams()
  }
}
