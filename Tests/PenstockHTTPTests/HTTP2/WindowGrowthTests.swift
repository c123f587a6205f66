import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP

private let kib = 1 << 10
private let mib = 1 << 20
private let ms: UInt64 = 1_000_000

/// Tests of windows that grow with the product of bandwidth and delay.
@Suite struct WindowGrowthTests {
  /// A measurement: the size of the windows, the round trip in ms that the first SETTINGS have shown, the bytes that
  /// the calls have taken between the PING and its answer, the time in ms that the first quarter of a window has
  /// taken, the time in ms from the PING to its answer, and the expected new size.
  struct Row {
    let size: Int
    let roundTrip: UInt64
    let bytes: Int
    let quarter: UInt64
    let time: UInt64
    let grown: Int?
  }

  @Test(arguments: [
    // The quarter has come in a tenth of the round trip. So 2.5 windows would come in a whole one.
    Row(size: mib, roundTrip: 50, bytes: mib, quarter: 5, time: 50, grown: 5 * mib),
    Row(size: mib, roundTrip: 20, bytes: mib, quarter: 5, time: 20, grown: 2 * mib),
    Row(size: mib, roundTrip: 20, bytes: mib, quarter: 4, time: 20, grown: 5 * mib / 2),
    // The bytes have come evenly, so the windows become twice as large.
    Row(size: mib, roundTrip: 50, bytes: mib, quarter: 12, time: 50, grown: 2 * mib),
    Row(size: mib, roundTrip: 50, bytes: mib / 3, quarter: 40, time: 50, grown: 2 * mib),
    // Several streams have taken more than the window of one.
    Row(size: mib, roundTrip: 50, bytes: 4 * mib, quarter: 10, time: 50, grown: 5 * mib / 2),
    // The most.
    Row(size: mib, roundTrip: 50, bytes: mib, quarter: 1, time: 50, grown: 16 * mib),
    Row(size: 10 * mib, roundTrip: 50, bytes: 10 * mib, quarter: 12, time: 50, grown: 16 * mib),
    // Small windows become 32 times as large, and not more.
    Row(size: 64 * kib, roundTrip: 100, bytes: 64 * kib, quarter: 1, time: 100, grown: 2 * mib),
    // The reader, or the path, is slower than the window lets it be.
    Row(size: mib, roundTrip: 50, bytes: mib / 3 - 1, quarter: 5, time: 50, grown: nil),
    Row(size: mib, roundTrip: 50, bytes: 0, quarter: 0, time: 50, grown: nil),
    // The answer has waited behind data: a third of a window has come in 200 ms, which is four round trips.
    Row(size: mib, roundTrip: 50, bytes: mib, quarter: 5, time: 200, grown: nil),
    // The answer was faster than the SETTINGS.
    Row(size: mib, roundTrip: 90, bytes: mib, quarter: 5, time: 50, grown: 5 * mib),
    // Near by.
    Row(size: mib, roundTrip: 1, bytes: mib, quarter: 0, time: 1, grown: nil),
    Row(size: mib, roundTrip: 2, bytes: mib, quarter: 1, time: 2, grown: nil),
    Row(size: 64 * kib, roundTrip: 1, bytes: 64 * kib, quarter: 1, time: 1, grown: 128 * kib),
    // A millisecond near by in which the server had no time to answer.
    Row(size: mib, roundTrip: 1, bytes: mib, quarter: 1, time: 30, grown: nil),
  ])
  func aMeasurement(_ row: Row) {
    var growth = WindowGrowth(most: 16 * mib, size: row.size, now: 0)
    growth.settled(now: row.roundTrip * ms)
    growth.came()
    let sent: UInt64 = 1_000 * ms
    #expect(growth.took(row.size / 4, size: row.size) { sent })
    let first = min(row.bytes, row.size / 4)
    #expect(!growth.took(first, size: row.size) { sent + row.quarter * ms })
    #expect(!growth.took(row.bytes - first, size: row.size) { sent + row.time * ms })
    let grown = growth.answered(size: row.size, now: sent + row.time * ms)
    #expect(grown == row.grown)
    // A second answer to the same PING has no effect.
    let again = growth.answered(size: row.size, now: sent + row.time * ms)
    #expect(again == nil)
  }

  /// Takes pieces of 64 KiB until a PING is due. Returns the number of pieces; nil: more than a thousand.
  private func pieces(_ growth: inout WindowGrowth, size: Int = mib) -> Int? {
    (1...1000).first { _ in growth.took(64 * kib, size: size) { 0 } }
  }

  /// Each PING that has not led to larger windows doubles the number of bytes before the next, up to eight windows.
  @Test func pingsBecomeRare() {
    var growth = WindowGrowth(most: 16 * mib, size: mib, now: 0)
    growth.settled(now: 50 * ms)
    var found: [Int?] = []
    for _ in 0..<7 {
      growth.came()
      found.append(pieces(&growth))
      let grown = growth.answered(size: mib, now: 50 * ms)
      #expect(grown == nil)
    }
    #expect(found == [4, 16, 32, 64, 128, 128, 128])
    // The windows grow once, and the peer has sent a window of the size before it hears of that.
    growth.came()
    _ = pieces(&growth)
    _ = growth.took(mib, size: mib) { 50 * ms }
    let grown = growth.answered(size: mib, now: 50 * ms)
    #expect(grown == 2 * mib)
    for expected in [16, 32, 64] {
      growth.came()
      let taken = pieces(&growth, size: 2 * mib)
      #expect(taken == expected)
      _ = growth.answered(size: 2 * mib, now: 50 * ms)
    }
  }

  /// Near by no PING leads to larger windows, so they become ever rarer.
  @Test func pingsEndNearBy() {
    var growth = WindowGrowth(most: 16 * mib, size: mib, now: 0)
    growth.settled(now: ms)
    var found: [Int?] = []
    for _ in 0..<7 {
      growth.came()
      found.append(pieces(&growth))
      _ = growth.took(mib, size: mib) { ms }
      let grown = growth.answered(size: mib, now: ms)
      #expect(grown == nil)
    }
    #expect(found == [4, 16, 32, 64, 128, 256, 512])
  }

  /// Servers count the PINGs that come while they send no data. So there is at most one after each piece of data.
  @Test func noDataNoPing() {
    var growth = WindowGrowth(most: 16 * mib, size: mib, now: 0)
    let early = pieces(&growth)
    growth.came()
    let first = pieces(&growth)
    // These data may have been sent before the PING.
    growth.came()
    _ = growth.answered(size: mib, now: 50 * ms)
    let second = pieces(&growth)
    growth.came()
    let third = pieces(&growth)
    #expect(early == nil && first == 1 && second == nil && third == 1)
  }

  /// Windows that can't grow need no PING.
  @Test(arguments: [0, 65535, 1 << 20]) func noPingAtTheMost(_ most: Int) {
    var growth = WindowGrowth(most: most, size: mib, now: 0)
    growth.came()
    let first = pieces(&growth)
    #expect(first == nil)
  }
}

/// A server with a round trip of 50 ms, after which it sends as many bytes as the windows permit, at 400 MB/s.
private final class FarServer {
  private final class Clock: SessionTimes {
    var time: UInt64 = 0
    override var now: UInt64 { time }
  }

  let session: HTTP2Session
  let stream: HTTP2Stream
  let recorder: SessionTests.Recorder
  private let clock: Clock
  private let tests = SessionTests()
  var answersPings = true
  /// How many bytes the reader takes in a round trip.
  var readsAtMost = Int.max
  private(set) var pings = 0
  /// The window sizes for streams in the client's SETTINGS, without the first SETTINGS.
  private(set) var sizes: [Int] = []
  private static let ping = [UInt8](repeating: 255, count: 8)
  private static let roundTrip: UInt64 = 50_000_000
  private static let frame = 16000
  private static let frameTime: UInt64 = 40_000
  /// The time at which the answer to a PING arrives.
  private var due: UInt64?
  private var initial: Int
  private var ofStream: Int
  private var ofConnection = 65535

  init(mostWindow: Int, window: Int = 65535) throws {
    let clock = Clock()
    self.clock = clock
    var limits = TransportLimits()
    limits.streamWindow = window
    limits.connectionWindow = window
    limits.mostWindow = mostWindow
    initial = window
    ofStream = window
    session = try #require(HTTP2Session.make(limits, clock))
    recorder = SessionTests.Recorder(session, takes: true)
    stream = HTTP2Stream(recorder)
    clock.time = FarServer.roundTrip
    push(.settings())
    push(.settingsAck)
    _ = tests.drain(session)
    session.add(stream)
    for frame in try #require(Frame.all(tests.drain(session))) where frame.type == 8 { hear(frame) }
    push(.head(stream.id))
  }

  deinit {
    session.abandon(bytes("over"))
    session.dispatch()
  }

  func push(_ frame: Frame) { #expect(frame.encoded.withUnsafeBytes { session.receive($0) }) }

  /// Simulates one round trip. Returns the number of bytes that the server has sent.
  func roundTrip() throws -> Int {
    let end = clock.time + FarServer.roundTrip
    var sent = 0
    var read = 0
    var heard: [Frame] = []
    while min(ofStream, ofConnection) > 0 {
      let count = min(FarServer.frame, ofStream, ofConnection)
      recorder.takes = stream.bodyIsEmpty && read + count <= readsAtMost
      if recorder.takes { read += count }
      push(.data(stream.id, [UInt8](repeating: 1, count: count)))
      recorder.body = []
      ofStream -= count
      ofConnection -= count
      sent += count
      clock.time += FarServer.frameTime
      try answer(by: clock.time, &heard)
      try collect(&heard)
    }
    // The reader goes on with what has waited.
    let more = min(readsAtMost - read, stream.body.count)
    stream.take(more)
    session.consumed(stream, more)
    try collect(&heard)
    try answer(by: end, &heard)
    clock.time = max(clock.time, end)
    for frame in heard { hear(frame) }
    return sent
  }

  private func collect(_ heard: inout [Frame]) throws {
    for frame in try #require(Frame.all(tests.drain(session))) {
      if frame.type == 6, frame.flags == 0, frame.payload == FarServer.ping {
        #expect(due == nil)
        pings += 1
        if answersPings { due = clock.time + FarServer.roundTrip }
      } else {
        heard.append(frame)
      }
    }
  }

  private func answer(by time: UInt64, _ heard: inout [Frame]) throws {
    guard let due, due <= time else { return }
    self.due = nil
    clock.time = max(clock.time, due)
    push(Frame(type: 6, flags: 1, stream: 0, payload: FarServer.ping))
    try collect(&heard)
  }

  private func hear(_ frame: Frame) {
    let number = frame.payload.suffix(4).reduce(0) { $0 << 8 | Int($1) }
    switch (frame.type, frame.flags) {
    case (4, 0):
      #expect(frame.payload.count == 6 && frame.payload[1] == 4)
      sizes.append(number)
      ofStream += number - initial
      initial = number
      push(.settingsAck)
    case (8, _) where frame.stream == 0: ofConnection += number
    case (8, _): ofStream += number
    default: break
    }
  }
}

extension SessionTests {
  /// The windows grow, also that of the stream that is already open. Credit comes back in small parts then, so that
  /// most of a window is used in each round trip.
  @Test func windowsGrowOnALongPath() throws {
    let server = try FarServer(mostWindow: 16 << 20, window: 1 << 20)
    var sent: [Int] = []
    for _ in 0..<10 { sent.append(try server.roundTrip()) }
    #expect(sent[0] == 1 << 20)
    // The first PING shows how large the windows have to be. The server hears of it a round trip later.
    #expect(server.sizes == [16 << 20] && server.pings == 1)
    #expect(sent.suffix(6).allSatisfy { (14 << 20...16 << 20).contains($0) }, "\(sent)")
    #expect(server.session.failure == nil)
  }

  /// Small windows grow in several steps, to the most and no further.
  @Test func smallWindowsGrowInSteps() throws {
    let server = try FarServer(mostWindow: 4_000_000)
    for _ in 0..<20 { _ = try server.roundTrip() }
    #expect(server.sizes == [65535 / 4 * 64 * 2, 4_000_000])
    #expect(try (3_500_000...4_000_000).contains(server.roundTrip()))
    #expect(server.pings == 2 && server.session.failure == nil)
  }

  @Test func windowsGrowOnlyIfTheyAreToldTo() throws {
    let server = try FarServer(mostWindow: 0)
    for _ in 0..<5 { #expect(try server.roundTrip() <= 65535) }
    #expect(server.sizes.isEmpty && server.pings == 0)
  }

  /// Windows do not grow for a reader that takes less than they permit. So what waits unread is no more than a window.
  @Test func windowsStayForASlowReader() throws {
    let server = try FarServer(mostWindow: 16 << 20, window: 1 << 20)
    server.readsAtMost = 150_000
    for _ in 0..<100 {
      _ = try server.roundTrip()
      #expect(server.stream.body.count <= 1 << 20)
    }
    // 15 MB were taken.
    #expect(server.sizes.isEmpty && (1...8).contains(server.pings))
    // The reader becomes fast.
    server.readsAtMost = .max
    for _ in 0..<40 { _ = try server.roundTrip() }
    #expect(server.sizes.last == 16 << 20)
  }

  /// Bytes that nobody reads are bounded by the windows' largest size.
  @Test func aReaderThatStopsKeepsOneWindow() throws {
    let server = try FarServer(mostWindow: 4 << 20, window: 1 << 20)
    for _ in 0..<10 { _ = try server.roundTrip() }
    server.readsAtMost = 0
    var sent = 0
    for _ in 0..<10 { sent += try server.roundTrip() }
    #expect(server.stream.body.count == sent && sent <= 4 << 20)
  }

  /// A PING without an answer is not repeated. Keepalive does not wait for its answer.
  @Test func windowsStayWithoutAnAnswer() throws {
    let server = try FarServer(mostWindow: 1_000_000)
    server.answersPings = false
    for _ in 0..<5 { #expect(try server.roundTrip() <= 65535) }
    #expect(server.sizes.isEmpty && server.pings == 1 && server.session.isPingAnswered)
  }
}
