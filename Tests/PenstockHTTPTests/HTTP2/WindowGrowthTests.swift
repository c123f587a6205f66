import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP

/// Tests of windows that grow with the product of bandwidth and delay.
@Suite struct WindowGrowthTests {
  /// Each row: the window's size, the number of bytes received between a PING and its answer, and the
  /// expected new size.
  @Test(arguments: [
    (65535, 0, 65535), (65535, 21844, 65535), (65535, 21845, 131070), (65535, 65535, 131070),
    // More bytes than one stream's window were received, on several streams.
    (65535, 200_000, 400_000), (1 << 20, 1 << 20, 2 << 20), (3 << 20, 3 << 20, 4 << 20),
    (4 << 20, 4 << 20, 4 << 20),
  ])
  func aRoundTrip(_ size: Int, _ bytes: Int, _ expected: Int) {
    var growth = WindowGrowth(most: 4 << 20)
    let isTimed = growth.came(5000, size: size)
    let isTimedAgain = growth.came(bytes, size: size)
    let (grown, again) = (growth.answered(size: size), growth.answered(size: size))
    #expect(isTimed == (size < 4 << 20) && !isTimedAgain)
    #expect(grown ?? size == expected)
    // The answer to one PING makes the windows grow only once.
    #expect(again == nil)
  }

  /// After a PING that has not led to larger windows, the next PING is sent only after a whole window of
  /// bytes.
  @Test func pingsAreFew() {
    var growth = WindowGrowth(most: 1 << 30)
    var timed = (0..<4).map { round in
      let pieces = (0..<(round == 0 ? 1 : 17)).map { _ in growth.came(4096, size: 65536) }
      let answer = growth.answered(size: 65536)
      #expect(answer == nil)
      return pieces
    }
    #expect(timed.removeFirst() == [true])
    for pieces in timed { #expect(pieces == [Bool](repeating: false, count: 15) + [true, false]) }
    _ = (0..<17).map { _ in growth.came(4096, size: 65536) }
    _ = growth.came(65536, size: 65536)
    let grown = growth.answered(size: 65536)
    #expect(grown == 2 * (65536 + 4096))
    // After the windows have grown, the next PING is sent at once.
    let isTimed = growth.came(1, size: 131072)
    #expect(isTimed)
  }

  @Test func nothingGrowsBeyondTheMost() {
    var growth = WindowGrowth(most: 100_000)
    _ = growth.came(1, size: 65535)
    _ = growth.came(65535, size: 65535)
    let grown = growth.answered(size: 65535)
    #expect(grown == 100_000)
    let isTimed = growth.came(1_000_000, size: 100_000)
    #expect(!isTimed)
  }
}

/// A server with a long round trip. In each round trip it sends as many bytes as the windows permit.
private final class FarServer {
  let session: HTTP2Session
  let stream: HTTP2Stream
  let recorder: SessionTests.Recorder
  private let tests = SessionTests()
  var answersPings = true
  private(set) var pings = 0
  /// The window sizes for streams in the client's SETTINGS, without the first SETTINGS.
  private(set) var sizes: [Int] = []
  private static let ping = [UInt8](repeating: 255, count: 8)
  /// `pinged`: the number of bytes that the server had sent in this round trip when a PING arrived. `due`:
  /// the number of bytes in the next round trip after which the server answers that PING.
  private var pinged: Int?
  private var due: Int?
  private var initial = 65535
  private var ofStream = 65535
  private var ofConnection = 65535

  init(mostWindow: Int) throws {
    var limits = HTTP2Limits()
    limits.streamWindow = 65535
    limits.connectionWindow = 65535
    limits.mostWindow = mostWindow
    session = try #require(HTTP2Session.make(limits))
    recorder = SessionTests.Recorder(session, takes: true)
    stream = HTTP2Stream(recorder)
    push(.settings())
    push(.settingsAck)
    _ = tests.drain(session)
    session.add(stream)
    _ = tests.drain(session)
    push(.head(stream.id))
  }

  func push(_ frame: Frame) { #expect(frame.encoded.withUnsafeBytes { session.receive($0) }) }

  /// Simulates one round trip. Returns the number of bytes that the server has sent.
  func roundTrip() throws -> Int {
    var sent = 0
    var heard: [Frame] = []
    while min(ofStream, ofConnection) > 0 {
      let count = min(16000, ofStream, ofConnection)
      push(.data(stream.id, [UInt8](repeating: 1, count: count)))
      session.dispatch()
      recorder.body = []
      ofStream -= count
      ofConnection -= count
      sent += count
      // The server answers a PING one round trip later.
      if let due, due <= sent { answer() }
      for frame in try #require(Frame.all(tests.drain(session))) {
        if frame.type == 6, frame.flags == 0, frame.payload == FarServer.ping {
          pings += 1
          pinged = sent
        } else {
          heard.append(frame)
        }
      }
    }
    if due != nil { answer() }
    (due, pinged) = (pinged, nil)
    for frame in heard { hear(frame) }
    return sent
  }

  private func answer() {
    due = nil
    if answersPings { push(Frame(type: 6, flags: 1, stream: 0, payload: FarServer.ping)) }
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
  /// The windows grow, also that of the stream that is already open.
  @Test func windowsGrowOnALongPath() throws {
    let server = try FarServer(mostWindow: 1_000_000)
    var sent: [Int] = []
    for _ in 0..<20 { sent.append(try server.roundTrip()) }
    #expect(sent[0] == 65535)
    // nghttp2 returns credit in halves of a window.
    #expect(sent.suffix(10).allSatisfy { (500_000...1_000_000).contains($0) })
    #expect(server.sizes.last == 1_000_000 && server.sizes == server.sizes.sorted())
    // When the windows can't grow any more, no PING is sent.
    #expect(server.pings <= 6 && server.session.failure == nil)
    server.session.abandon(bytes("over"))
    server.session.dispatch()
  }

  @Test func windowsGrowOnlyIfTheyAreToldTo() throws {
    let server = try FarServer(mostWindow: 0)
    for _ in 0..<5 { #expect(try server.roundTrip() <= 65535) }
    #expect(server.sizes.isEmpty && server.pings == 0)
    server.session.abandon(bytes("over"))
    server.session.dispatch()
  }

  /// A PING without an answer is not repeated. Keepalive does not wait for its answer.
  @Test func windowsStayWithoutAnAnswer() throws {
    let server = try FarServer(mostWindow: 1_000_000)
    server.answersPings = false
    for _ in 0..<5 { #expect(try server.roundTrip() <= 65535) }
    #expect(server.sizes.isEmpty && server.pings == 1 && server.session.isPingAnswered)
    server.session.abandon(bytes("over"))
    server.session.dispatch()
  }
}
