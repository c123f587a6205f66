import CNghttp2

/// The receive window of a connection: wide, as the options say, or narrow while only bidi streams with small
/// messages are open.
///
/// A peer that is not slowed down sends each small answer by itself, and each of them wakes this side. A peer
/// whose window is used up goes on reading, and packs its later answers together: grpc++'s server then sends
/// 16-byte echoes 2.5 times as fast, with a tenth of the system calls. This delays no message by more than a
/// round trip. If the peer could send more than the narrow window in a round trip, or if messages are not
/// small, the window is wide.
struct ConnectionWindow {
  /// RFC 9113 section 6.9.2: the initial window of a connection.
  static let narrow = 65535
  private static let half = 32 << 10

  private(set) var isWide = false
  private var since: UInt64 = 0
  private var taken = 0

  /// Called when a stream opens. `alone`: no other stream is open. True: the window has changed, and nghttp2
  /// has to be told.
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

  /// Counts received bytes, and times each half of a narrow window. True: the bytes came so fast that the
  /// narrow window costs round trips.
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
  /// Adapts the window to `request`, whose stream opens.
  func fitWindow() {
    if window.opens(duplex: request.isDuplex, alone: open.isEmpty) { announceWindow() }
  }

  @inline(never) @_optimize(size)
  func widenWindow() {
    window.set(wide: true)
    announceWindow()
  }

  @inline(never) @_optimize(size)
  func announceWindow() {
    let size = window.isWide ? max(limits.connectionWindow, ConnectionWindow.narrow) : ConnectionWindow.narrow
    credited(nghttp2_session_set_local_window_size(session, 0, 0, Int32(clamping: size)))
    // Gives the peer at once the credit that nghttp2 has held back in order to make the window narrow.
    credited(nghttp2_session_consume_connection(session, 0))
  }

  /// Counts received bytes while the window is narrow, and widens it if it costs round trips.
  @inline(never) @_optimize(size)
  func timeWindow(_ count: Int) {
    if window.isFelt(count, now: { times.now }, roundTrip: { times.roundTrip }) { widenWindow() }
  }
}
