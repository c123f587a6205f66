/// Decides how many streams a connection is asked to carry, after its peer has refused streams that were within
/// the limit of its SETTINGS (REFUSED_STREAM, RFC 9113 section 8.7). A server may count a stream for some time
/// after it has sent the stream's last frame. No I/O, no clock, no source of random numbers.
///
/// | | refused | answered | time |
/// |---|---|---|---|
/// | unlimited | -> pausing | - | - |
/// | pausing | -> pausing: longer, with less room | a later stream: -> lowered | room for one more; pauses again |
/// | lowered | -> pausing | - | more by an eighth; at the peer's limit -> unlimited |
///
/// In `pausing` the connection takes another stream when one of the others has ended, or when the pause is
/// over. Each refusal of a stream that was opened after the last one doubles the pause, and lowers the room by
/// twice as much as before.
public enum StreamQuota: Equatable, Sendable {
  /// Only the limit in the peer's SETTINGS applies.
  case unlimited
  case pausing(Pause)
  /// The peer has answered a stream since the last refusal. At most `most` streams are open, and more from
  /// `until` on.
  case lowered(most: Int, until: UInt64)

  public struct Pause: Equatable, Sendable {
    /// How often in a row the peer has refused a stream. Streams that were opened together count once.
    var refusals: Int
    /// The newest stream when the last of these refusals came. Only later streams show whether the peer takes
    /// streams again.
    var newest: Int32
    /// How many streams may be open now.
    var room: Int
    /// How many streams may be open once the peer has answered a later stream.
    var most: Int
    /// The end of the pause.
    var until: UInt64

    public init(refusals: Int, newest: Int32, room: Int, most: Int, until: UInt64) {
      self.refusals = refusals
      self.newest = newest
      self.room = room
      self.most = most
      self.until = until
    }
  }

  public enum Event: Equatable, Sendable {
    /// The peer has refused `stream`. `newest`: the newest stream of the connection. `open`: the number of
    /// streams that are open now. `random`: a uniformly distributed random number.
    case refused(stream: Int32, newest: Int32, open: Int, random: UInt64)
    /// The headers of an answer have come on `stream`.
    case answered(stream: Int32)
    /// The time `wakeAt` may have come. `open`: the number of streams that are open now. `limit`: the limit in
    /// the peer's SETTINGS. `random`: a uniformly distributed random number.
    case time(open: Int, limit: Int, random: UInt64)
  }

  /// The first pause in nanoseconds. Each further one is twice as long, up to `longestPause`; each is a fifth
  /// longer or shorter at random.
  static let firstPause: UInt64 = 1_000_000
  static let longestPause: UInt64 = 1_024_000_000
  /// How long `most` stays as it is, in nanoseconds.
  static let step: UInt64 = 20_000_000

  /// The most streams that may be open.
  public var limit: Int {
    switch self {
    case .unlimited: .max
    case .pausing(let pause): pause.room
    case .lowered(let most, _): most
    }
  }

  /// The time at which the event `time` has to come; nil: it need not come.
  public var wakeAt: UInt64? {
    switch self {
    case .unlimited: nil
    case .pausing(let pause): pause.until
    case .lowered(_, let until): until
    }
  }

  public mutating func handle(_ event: Event, now: UInt64) {
    switch (self, event) {
    case (.unlimited, .refused(_, let newest, let open, let random)):
      pause(1, newest, open, most: max(open, 1), now, random)
    case (.lowered(let most, _), .refused(_, let newest, let open, let random)):
      pause(1, newest, open, most: min(most, max(open, 1)), now, random)
    case (.pausing(var pause), .refused(let stream, let newest, let open, let random)):
      pause.most = min(pause.most, max(open, 1))
      if stream > pause.newest {
        self.pause(pause.refusals + 1, newest, open, most: pause.most, now, random)
      } else {
        // This stream was opened before the peer's last refusal was known.
        pause.room = StreamQuota.room(pause.refusals, open)
        self = .pausing(pause)
      }
    case (.pausing(let pause), .answered(let stream)):
      if stream > pause.newest { self = .lowered(most: pause.most, until: Time.after(StreamQuota.step, now)) }
    case (.pausing(var pause), .time(let open, _, let random)):
      guard now >= pause.until else { return }
      pause.room = open + 1
      pause.until = StreamQuota.end(of: pause.refusals, now, random)
      self = .pausing(pause)
    case (.lowered(let most, let until), .time(_, let limit, _)):
      guard now >= until else { return }
      let more = most + max(most / 8, 1)
      self = more >= limit ? .unlimited : .lowered(most: more, until: Time.after(StreamQuota.step, now))
    case (.unlimited, .answered), (.unlimited, .time), (.lowered, .answered): return
    }
  }

  private mutating func pause(
    _ refusals: Int, _ newest: Int32, _ open: Int, most: Int, _ now: UInt64, _ random: UInt64
  ) {
    self = .pausing(
      Pause(
        refusals: refusals, newest: newest, room: StreamQuota.room(refusals, open), most: most,
        until: StreamQuota.end(of: refusals, now, random)))
  }

  /// The room after `refusals` refusals in a row, while `open` streams are open: the first refusal leaves no
  /// room for another stream, and each further one less, because a peer may still count several ended streams.
  private static func room(_ refusals: Int, _ open: Int) -> Int {
    max(open + 1 - 1 << min(refusals - 1, 30), 0)
  }

  private static func end(of refusals: Int, _ now: UInt64, _ random: UInt64) -> UInt64 {
    let pause = min(firstPause << UInt64(min(refusals - 1, 10)), longestPause)
    return Time.after(pause - pause / 5 + random % (pause / 5 * 2 + 1), now)
  }
}
