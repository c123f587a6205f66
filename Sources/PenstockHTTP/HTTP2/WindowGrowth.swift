import CPenstockNghttp2

/// Makes windows grow with the product of bandwidth and delay. A window limits the rate if the bytes that it
/// permits arrive long before a round trip is over.
///
/// Bytes count when the calls take them, and not when they arrive. So the windows do not grow for a slow
/// reader, though they are the same for all streams of a connection. A measurement begins with a PING, and
/// ends with the answer from the server at the other end of the HTTP/2 connection:
///
/// ```
///   PING ---------------------------------------------------------------> answer
///    | a quarter of a window | ...                     (silence)             |
///    |<------ quarter ------>|                                               |
///    |<--------------------- at least one round trip ----------------------->|
/// ```
///
/// The shortest round trip counts, because an answer may have waited behind data. The first one is that of
/// the connection's first SETTINGS.
///
/// If the calls take a third of a window or more in a round trip, the windows become at least twice as large,
/// and twice as large as a whole round trip at the rate of the first quarter needs. (Credit is returned in
/// parts of a window. So in a round trip a peer sends less than the window permits.)
///
/// Servers count PINGs. So no PING is sent before data has come that the server has sent after its last
/// answer, and each PING that does not lead to larger windows doubles the number of bytes before the next. If a
/// server complains all the same, the windows of the channel's later connections do not grow.
struct WindowGrowth: Equatable {
  private enum Phase: Equatable {
    /// No PING is under way. The next PING is sent when `bytes` more bytes were taken.
    case resting(bytes: Int)
    /// A PING was sent at the time `since`. `bytes` bytes were taken since then. `quarter`: the time that the
    /// first quarter of a window has taken; 0: it is not complete.
    case timing(since: UInt64, bytes: Int, quarter: UInt64)
  }

  /// The content of these PINGs. The PINGs of keepalive contain numbers from 1 on.
  static let ping = UInt64.max

  /// The number of windows that are taken at most between two PINGs.
  private static let longestRest = 8
  /// The number near by, where no PING leads to larger windows.
  private static let longestRestNearBy = 1024
  /// A quarter of a window counts as at least this part of a round trip. So the windows become at most 32
  /// times as large at once.
  private static let mostQuarters: UInt64 = 64

  /// The largest size of the windows in bytes; 0: they do not grow.
  let most: Int
  /// The shortest round trip that was measured, in nanoseconds; 0: none so far.
  private(set) var roundTrip: UInt64 = 0
  /// The time at which the first SETTINGS were made.
  private let begun: UInt64
  private var phase: Phase
  /// The number of windows to be taken before the next PING, if this PING leads to no larger windows.
  private var rest = 1
  /// Whether data came since the last PING was answered.
  private var hasNews = false

  init(most: Int, size: Int, now: UInt64) {
    self.most = most
    begun = now
    phase = .resting(bytes: size / 4)
  }

  /// Called when data came.
  mutating func came() {
    if case .resting = phase { hasNews = true }
  }

  /// Called when the peer has acknowledged SETTINGS. The first time this completes a round trip.
  mutating func settled(now: UInt64) {
    if roundTrip == 0 { roundTrip = max(now &- begun, 1) }
  }

  /// Called when calls have taken `count` bytes. `size`: the present size of the windows. True: the caller has
  /// to send a PING.
  mutating func took(_ count: Int, size: Int, now: () -> UInt64) -> Bool {
    switch phase {
    case .timing(let since, var bytes, var quarter):
      bytes += count
      if quarter == 0, bytes >= size / 4 { quarter = max(now() &- since, 1) }
      phase = .timing(since: since, bytes: bytes, quarter: quarter)
    case .resting(let bytes) where bytes > count: phase = .resting(bytes: bytes - count)
    case .resting:
      let isTimed = hasNews && size < most
      phase = isTimed ? .timing(since: now(), bytes: 0, quarter: 0) : .resting(bytes: 0)
      if isTimed { hasNews = false }
      return isTimed
    }
    return false
  }

  /// Called when the PING was answered. Returns the new size of the windows; nil: the size stays.
  mutating func answered(size: Int, now: UInt64) -> Int? {
    guard case .timing(let since, let bytes, let quarter) = phase else { return nil }
    let time = max(now &- since, 1)
    roundTrip = roundTrip == 0 ? time : min(roundTrip, time)
    let product = Int(Double(bytes) * Double(roundTrip) / Double(time))
    guard product >= size / 3, !isWide(size) else {
      phase = .resting(bytes: size * rest)
      rest = min(rest * 2, isWide(size) ? WindowGrowth.longestRestNearBy : WindowGrowth.longestRest)
      return nil
    }
    // The peer has sent the next bytes, up to the size so far, before it hears of the new size.
    phase = .resting(bytes: size)
    rest = 1
    let quarters = min(roundTrip / max(quarter, 1), WindowGrowth.mostQuarters)
    return min(max(size, size / 4 * Int(quarters)) * 2, most)
  }

  /// Whether a window of `size` bytes in each round trip is 512 bytes per microsecond or more. That suffices
  /// near by, where large windows only fill the processor's cache.
  private func isWide(_ size: Int) -> Bool { UInt64(size) * 2 >= roundTrip }
}

extension HTTP2Session {
  /// Called when the owner of `stream` has taken `count` bytes of the body: returns their credit to the peer.
  func consumed(_ stream: HTTP2Stream, _ count: Int) {
    guard count > 0, stream.life.isOpen, let credit = stream.credit(count) else { return }
    credited(nghttp2_session_consume_stream(session, stream.id, credit))
    if growth.most == 0 { return }
    if growth.took(credit, size: limits.streamWindow, now: { times.now }) { ping(WindowGrowth.ping) }
    if hasGrown { hurryCredit(stream) }
  }

  /// Returns the credit of `stream` if it is an eighth of a window. nghttp2 waits for a half, so it would leave
  /// half of a window unused on a long path.
  private func hurryCredit(_ stream: HTTP2Stream) {
    let unreturned = Int(nghttp2_session_get_stream_effective_recv_data_length(session, stream.id))
    let credit = unreturned - stream.body.count
    guard credit >= limits.streamWindow / 8 else { return }
    credited(nghttp2_submit_window_update(session, 0, stream.id, Int32(clamping: credit)))
  }

  /// Called when the peer has answered the PING that measures a round trip. If the windows have to grow, new
  /// SETTINGS also enlarge the windows of open streams.
  func growWindows() {
    guard let size = growth.answered(size: limits.streamWindow, now: times.now) else { return }
    hasGrown = true
    limits.streamWindow = size
    // The connection's credit is returned in halves of its window.
    limits.connectionWindow = max(2 * size, limits.connectionWindow)
    var entry = nghttp2_settings_entry(
      settings_id: Int32(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE.rawValue), value: UInt32(clamping: size))
    credited(nghttp2_submit_settings(session, 0, &entry, 1))
    if window.isWide { announceWindow() }
  }
}
