import CPenstockNghttp2

/// The receive window of a connection. It is wide (the option `initial_connection_window_bytes`), or narrow
/// while only bidi streams with small messages are open.
///
/// With a wide window a peer sends each small answer by itself, and each answer wakes this side. A peer whose
/// window is used up goes on reading, and packs its later answers together. The server of grpc++ then sends
/// 16-byte echoes 2.5 times as fast, with a tenth of the system calls. The narrow window delays no message by
/// more than a round trip. The window becomes wide if the peer could send more than the narrow window in a
/// round trip, or if messages are not small.
struct ConnectionWindow {
  /// RFC 9113 section 6.9.2: the initial window of a connection, in bytes.
  static let narrow = 65535
  private static let half = 32 << 10

  private(set) var isWide = false
  private var since: UInt64 = 0
  private var taken = 0

  /// Called when a stream opens. `alone`: no other stream is open. True: the window has changed, and the
  /// caller has to announce the new size to nghttp2.
  mutating func opens(duplex: Bool, alone: Bool) -> Bool {
    if duplex ? !(isWide && alone) : isWide { return false }
    set(wide: !isWide)
    return true
  }

  mutating func set(wide: Bool) {
    isWide = wide
    since = 0
    taken = 0
  }

  /// Adds `count` received bytes, and measures the time for each half of a narrow window. True: half a window
  /// was received in less than two round trips, so the narrow window slows the peer down.
  mutating func isFelt(_ count: Int, now: () -> UInt64, roundTrip: () -> UInt64) -> Bool {
    taken += count
    if taken < ConnectionWindow.half { return false }
    let (time, last) = (now(), since)
    taken = 0
    since = time
    return last != 0 && (time &- last) / 2 < roundTrip()
  }
}

extension HTTP2Session {
  /// Makes the window wide or narrow for a stream that opens with `request`.
  func fitWindow() {
    if window.opens(duplex: request.isDuplex, alone: open.isEmpty) { announceWindow() }
  }

  func widenWindow() {
    window.set(wide: true)
    announceWindow()
  }

  func announceWindow() {
    let size = window.isWide ? max(limits.connectionWindow, ConnectionWindow.narrow) : ConnectionWindow.narrow
    credited(nghttp2_session_set_local_window_size(session, 0, 0, Int32(clamping: size)))
    // nghttp2 has held back credit in order to make the window narrow. This call gives that credit to the
    // peer at once.
    credited(nghttp2_session_consume_connection(session, 0))
  }

  /// Called with each `count` of received bytes while the window is narrow. Makes it wide if it slows the
  /// peer down.
  func timeWindow(_ count: Int) {
    if window.isFelt(count, now: { times.now }, roundTrip: { times.roundTrip }) { widenWindow() }
  }
}
