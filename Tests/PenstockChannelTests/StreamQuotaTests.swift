import PenstockChannel
import Testing

/// Every cell of the table in StreamQuota.swift, with a clock that always shows 1 s.
@Suite struct StreamQuotaTests {
  typealias Row = (state: StreamQuota, event: StreamQuota.Event, after: StreamQuota)

  static let now: UInt64 = 1_000_000_000
  static let millisecond: UInt64 = 1_000_000
  /// The random number that makes a pause of so many milliseconds neither longer nor shorter.
  static func middle(_ milliseconds: UInt64) -> UInt64 { milliseconds * millisecond / 5 }

  /// A pause of `milliseconds` from `start` on.
  static func pausing(
    _ refusals: Int, newest: Int32, room: Int, most: Int, _ milliseconds: UInt64, from start: UInt64 = now
  ) -> StreamQuota {
    .pausing(
      StreamQuota.Pause(
        refusals: refusals, newest: newest, room: room, most: most, until: start + milliseconds * millisecond)
    )
  }

  static func refused(_ stream: Int32, newest: Int32, open: Int, pause: UInt64 = 1) -> StreamQuota.Event {
    .refused(stream: stream, newest: newest, open: open, random: middle(pause))
  }

  static func time(open: Int, limit: Int, pause: UInt64 = 1) -> StreamQuota.Event {
    .time(open: open, limit: limit, random: middle(pause))
  }

  static let early = now - millisecond
  static let paused = pausing(1, newest: 21, room: 7, most: 7, 1)
  static let over = pausing(1, newest: 21, room: 7, most: 7, 1, from: early)
  static let low = StreamQuota.lowered(most: 7, until: now + 1)
  static let due = StreamQuota.lowered(most: 7, until: now)

  let rows: [Row] = [
    (.unlimited, refused(15, newest: 21, open: 7), paused),
    (.unlimited, refused(15, newest: 15, open: 0), pausing(1, newest: 15, room: 0, most: 1, 1)),
    (.unlimited, .answered(stream: 9), .unlimited),
    (.unlimited, time(open: 3, limit: 8), .unlimited),

    // Streams that were opened together count as one refusal; later ones count further.
    (paused, refused(21, newest: 21, open: 6, pause: 9), pausing(1, newest: 21, room: 6, most: 6, 1)),
    (paused, refused(23, newest: 23, open: 6, pause: 2), pausing(2, newest: 23, room: 5, most: 6, 2)),
    (
      pausing(2, newest: 23, room: 5, most: 6, 2), refused(25, newest: 27, open: 6, pause: 4),
      pausing(3, newest: 27, room: 3, most: 6, 4)
    ),
    (
      pausing(3, newest: 27, room: 3, most: 6, 4), refused(29, newest: 29, open: 3, pause: 8),
      pausing(4, newest: 29, room: 0, most: 3, 8)
    ),
    (
      pausing(10, newest: 31, room: 0, most: 1, 512), refused(33, newest: 33, open: 0, pause: 1024),
      pausing(11, newest: 33, room: 0, most: 1, 1024)
    ),
    (
      pausing(11, newest: 33, room: 0, most: 1, 1024), refused(35, newest: 35, open: 0, pause: 1024),
      pausing(12, newest: 35, room: 0, most: 1, 1024)
    ),
    (
      pausing(.max - 1, newest: 33, room: 0, most: 1, 1024), refused(35, newest: 35, open: 9, pause: 1024),
      pausing(.max, newest: 35, room: 0, most: 1, 1024)
    ),
    (paused, .answered(stream: 21), paused),
    (paused, .answered(stream: 23), .lowered(most: 7, until: now + 20 * millisecond)),
    (paused, time(open: 7, limit: 8), paused),
    (over, time(open: 7, limit: 8), pausing(1, newest: 21, room: 8, most: 7, 1)),
    (
      pausing(2, newest: 21, room: 0, most: 1, 1, from: early), time(open: 0, limit: 1, pause: 2),
      pausing(2, newest: 21, room: 1, most: 1, 2)
    ),

    (low, refused(23, newest: 23, open: 6), pausing(1, newest: 23, room: 6, most: 6, 1)),
    (low, refused(23, newest: 23, open: 9), pausing(1, newest: 23, room: 9, most: 7, 1)),
    (low, .answered(stream: 99), low),
    (low, time(open: 7, limit: 8), low),
    (due, time(open: 7, limit: 8), .unlimited),
    (due, time(open: 7, limit: 9), .lowered(most: 8, until: now + 20 * millisecond)),
    (
      .lowered(most: 800, until: now), time(open: 7, limit: .max),
      .lowered(most: 900, until: now + 20 * millisecond)
    ),
  ]

  @Test func everyCell() {
    for (state, event, after) in rows {
      var quota = state
      quota.handle(event, now: Self.now)
      #expect(quota == after, "\(state) \(event)")
    }
  }

  @Test func limitAndTime() {
    #expect(StreamQuota.unlimited.limit == .max && StreamQuota.unlimited.wakeAt == nil)
    #expect(Self.paused.limit == 7 && Self.paused.wakeAt == Self.now + Self.millisecond)
    #expect(Self.low.limit == 7 && Self.low.wakeAt == Self.now + 1)
  }

  /// Each pause is up to a fifth longer or shorter.
  @Test func pausesVary() {
    for (random, wait) in [(UInt64(0), UInt64(800_000)), (400_000, 1_200_000), (400_001, 800_000)] {
      var quota = StreamQuota.unlimited
      quota.handle(.refused(stream: 1, newest: 1, open: 0, random: random), now: Self.now)
      #expect(quota.wakeAt == Self.now + wait)
    }
  }

  /// While the peer refuses everything, there is always a time at which one more stream may open; and when it
  /// takes streams again, its own limit applies in the end.
  @Test(arguments: [1, 8, 100]) func neverStuck(_ limit: Int) {
    var quota = StreamQuota.unlimited
    var (now, id) = (Self.now, Int32(1))
    for _ in 0..<20 {
      quota.handle(.refused(stream: id, newest: id, open: 0, random: 0), now: now)
      #expect(quota.limit == 0)
      now = quota.wakeAt!
      quota.handle(.time(open: 0, limit: limit, random: 0), now: now)
      #expect(quota.limit == 1)
      id += 2
    }
    quota.handle(.answered(stream: id), now: now)
    var steps = 0
    while let next = quota.wakeAt, steps < 100 {
      now = next
      quota.handle(.time(open: 0, limit: limit, random: 0), now: now)
      steps += 1
    }
    #expect(quota == .unlimited && steps == [1: 1, 8: 7, 100: 32][limit])
  }
}
