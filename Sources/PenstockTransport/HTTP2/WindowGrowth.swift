import CNghttp2

/// Windows that follow bandwidth times delay: whether the peer could send more in a round trip than the windows let it.
///
/// A round trip is the time from a PING to its answer, as the server that ends the HTTP/2 connection gives
/// it. If at least a third of a window comes in one round trip, the windows become at least twice as large.
/// (Credit goes back in halves of a window, so a peer that is held back sends half a window or more in a
/// round trip, a part of it before the PING.) After a PING that has not led to larger windows, the next PING
/// leaves only after a whole window of bytes, because servers count pings.
struct WindowGrowth: Equatable {
  private enum Phase: Equatable {
    /// No PING is under way. The next PING leaves when `bytes` more bytes have come.
    case resting(bytes: Int)
    /// A PING is under way; `bytes` bytes have come since it left.
    case timing(bytes: Int)
  }

  /// The content of the PINGs. Those of keepalive are numbers from 1 on.
  static let ping = UInt64.max

  /// The size that the windows have at most; 0: they do not grow.
  let most: Int
  private var phase = Phase.resting(bytes: 0)

  init(most: Int) { self.most = most }

  /// Called when `count` bytes have come. `size`: the present size of the windows. True: a PING has to be
  /// sent.
  @inline(never) @_optimize(size)
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

  /// Called when the PING has been answered. Returns the new size of the windows; nil: it stays `size`.
  @inline(never) @_optimize(size)
  mutating func answered(size: Int) -> Int? {
    guard case .timing(let bytes) = phase else { return nil }
    let isFull = bytes >= size / 3
    phase = .resting(bytes: isFull ? 0 : size)
    return isFull ? min(max(bytes, size) * 2, most) : nil
  }
}

extension HTTP2Session {
  /// Counts received bytes, and sends a PING when it is time. Called if the windows may grow.
  @inline(never) @_optimize(size)
  func measureDelay(_ count: Int) {
    if growth.came(count, size: limits.streamWindow) { ping(WindowGrowth.ping) }
  }

  /// Called when the peer has answered the PING that times a round trip. If the windows have to grow, those
  /// of open streams grow, too (SETTINGS).
  @inline(never) @_optimize(size)
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
