import CPenstockNghttp2

/// Makes windows grow with the product of bandwidth and delay: they grow if the peer could send more in a
/// round trip than the windows allow.
///
/// A round trip is the time from a PING to its answer, from the server at the other end of the HTTP/2
/// connection. If at least a third of a window arrives in one round trip, the windows become at least twice
/// as large. (Credit is returned in halves of a window. So a peer that waits for credit sends at least half a
/// window in a round trip, a part of it before the PING.) After a PING that has not led to larger windows,
/// the next PING is sent only after a whole window of bytes, because servers count pings.
struct WindowGrowth: Equatable {
  private enum Phase: Equatable {
    /// No PING is under way. The next PING is sent when `bytes` more bytes were received.
    case resting(bytes: Int)
    /// A PING is under way; `bytes` bytes were received since it was sent.
    case timing(bytes: Int)
  }

  /// The content of these PINGs. The PINGs of keepalive contain numbers from 1 on.
  static let ping = UInt64.max

  /// The largest size of the windows in bytes; 0: they do not grow.
  let most: Int
  private var phase = Phase.resting(bytes: 0)

  init(most: Int) { self.most = most }

  /// Called when `count` bytes were received. `size`: the present size of the windows. True: the caller has
  /// to send a PING.
  mutating func came(_ count: Int, size: Int) -> Bool {
    switch phase {
    case .timing(let bytes): phase = .timing(bytes: bytes + count)
    case .resting(let bytes) where bytes > count: phase = .resting(bytes: bytes - count)
    case .resting:
      if size >= most { return false }
      phase = .timing(bytes: 0)
      return true
    }
    return false
  }

  /// Called when the PING was answered. Returns the new size of the windows; nil: the size stays.
  mutating func answered(size: Int) -> Int? {
    guard case .timing(let bytes) = phase else { return nil }
    let isFull = bytes >= size / 3
    phase = .resting(bytes: isFull ? 0 : size)
    return isFull ? min(max(bytes, size) * 2, most) : nil
  }
}

extension HTTP2Session {
  /// Called with each `count` of received bytes if the windows may grow. Sends a PING when `growth` asks for
  /// one.
  func measureDelay(_ count: Int) {
    if growth.came(count, size: limits.streamWindow) { ping(WindowGrowth.ping) }
  }

  /// Called when the peer has answered the PING that measures a round trip. If the windows have to grow, new
  /// SETTINGS also enlarge the windows of open streams.
  func growWindows() {
    guard let size = growth.answered(size: limits.streamWindow) else { return }
    limits.streamWindow = size
    limits.connectionWindow = max(size, limits.connectionWindow)
    var entry = nghttp2_settings_entry(
      settings_id: Int32(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE.rawValue), value: UInt32(clamping: size))
    credited(nghttp2_submit_settings(session, 0, &entry, 1))
    if window.isWide { announceWindow() }
  }
}
