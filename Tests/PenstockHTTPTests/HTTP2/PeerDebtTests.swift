import CPenstockNghttp2
import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop

/// Tests of frames without use for any call: the number of each kind that the session accepts before it ends
/// the connection, and a check that ordinary servers never reach the limit. The tests count frames and
/// measure no time.
@Suite struct PeerDebtTests {
  /// A session with open calls.
  final class Client {
    let session: HTTP2Session
    var owners: [SessionTests.Recorder] = []
    var streams: [HTTP2Stream] = []

    init(_ limits: TransportLimits = TransportLimits()) {
      session = HTTP2Session.make(limits)!
      drain()
      #expect(receive(Frame.settings().encoded + Frame.settingsAck.encoded))
    }

    func drain() {
      let out = SendQueue(copies: true)
      repeat {
        out.removeAll()
        _ = session.collect(into: out)
      } while !out.isEmpty
    }

    /// Opens the stream of one more call, and returns its id.
    func open() -> Int32 {
      let owner = SessionTests.Recorder(session, takes: true)
      let stream = HTTP2Stream()
      stream.owner = owner
      owners.append(owner)
      streams.append(stream)
      session.add(stream)
      drain()
      return stream.id
    }

    func upload(_ count: Int) {
      let bytes = buffer([UInt8](repeating: 0, count: count))
      streams.last!.append(BodyPiece(compressed: false, bytes, length: UInt32(count)))
      session.resume(streams.last!)
      drain()
    }

    func receive(_ bytes: [UInt8]) -> Bool {
      let alive = bytes.withUnsafeBytes { session.receive($0) }
      session.dispatch()
      drain()
      return alive && session.failure == nil
    }

    func end() {
      session.abandon(session.failure ?? bytes("over"))
      session.dispatch()
    }
  }

  struct Attack: CustomTestStringConvertible, Sendable {
    let testDescription: String
    /// The expected number of frames that the session accepts before it ends the connection.
    let frames: ClosedRange<Int>
    /// One frame of the attack. It is on stream 1, which is open, on stream 3, which the client has ended, or
    /// on stream 0.
    let bytes: @Sendable () -> [UInt8]

    init(
      _ name: String, _ frames: ClosedRange<Int> = 9_000...11_000, _ frame: @escaping @Sendable () -> Frame
    ) {
      testDescription = name
      self.frames = frames
      bytes = { frame().encoded }
    }
  }

  static func zeros(_ count: Int) -> [UInt8] { [UInt8](repeating: 0, count: count) }

  static let attacks: [Attack] = [
    Attack("PING") { Frame(type: 6, stream: 0, payload: zeros(8)) },
    Attack("PING acknowledged") { Frame(type: 6, flags: 1, stream: 0, payload: zeros(8)) },
    Attack("SETTINGS") { .settings() },
    Attack("SETTINGS with entries") { .settings([(3, 100), (6, 65536)]) },
    Attack("PRIORITY") { Frame(type: 2, stream: 1, payload: zeros(4) + [1]) },
    Attack("ALTSVC") { Frame(type: 10, stream: 0, payload: [0, 1, 0x61, 0x62]) },
    Attack("ORIGIN") { Frame(type: 12, stream: 0) },
    Attack("an unknown frame") { Frame(type: 0xBB, stream: 1) },
    Attack("an unknown frame of 16 KiB", 1_500...2_500) {
      Frame(type: 0xBB, stream: 1, payload: zeros(16384))
    },
    Attack("an unknown frame of 64 KiB", 400...700) { Frame(type: 0xBB, stream: 0, payload: zeros(65536)) },
    Attack("WINDOW_UPDATE of the connection") { .windowUpdate(0, 1) },
    Attack("WINDOW_UPDATE of a stream") { .windowUpdate(1, 1) },
    Attack("GOAWAY") { .goAway(99) },
    Attack("RST_STREAM of a stream that is gone") { .reset(3, 8) },
    Attack("empty DATA") { .data(1, []) },
    Attack("DATA of nothing but padding") {
      Frame(type: 0, flags: 8, stream: 1, payload: [255] + zeros(255))
    },
    Attack("DATA on a stream that is gone", 900_000...1_300_000) { .data(3, [1]) },
    Attack("empty DATA on a stream that is gone", 900_000...1_300_000) { .data(3, []) },
    Attack("HEADERS on a stream that is gone", 10_000...60_000) { .head(3) },
    Attack("informational answers") { .headers(1, [(":status", "103")]) },
    Attack("informational answers of 10,000 bytes", 100...150) {
      .headers(1, [(":status", "103"), ("x", String(repeating: "x", count: 10_000))])
    },
  ]

  @Test(arguments: attacks)
  func ends(_ attack: Attack) {
    let client = Client()
    let first = client.open()
    let second = client.open()
    #expect(first == 1 && second == 3)
    client.session.letGo(client.streams[1], .cancelled)
    client.drain()
    let frame = attack.bytes()
    // The frames of one read of 16 KiB, but at most 500: nghttp2 fails if 1,000 acknowledgements wait to be
    // sent.
    let atOnce = min(max(1, 16384 / frame.count), 500)
    let batch = [[UInt8]](repeating: frame, count: atOnce).flatMap { $0 }
    if frame[3] == 0 { #expect(client.receive(Frame.head(1).encoded)) }
    var through = 0
    while through < 2 * attack.frames.upperBound, client.receive(batch) { through += atOnce }
    #expect(attack.frames.contains(through), "\(through)")
    client.end()
    let words =
      "lost: the connection ended: over 10000 frames or TLS messages without use for any call (ENHANCE_YOUR_CALM)"
    #expect(client.owners[0].log.last == words)
  }

  /// A frame of 64 KiB is received byte by byte. Each read counts as one frame without use.
  @Test func aFrameInBytes() {
    let client = Client()
    var bytes = Frame(type: 0xBB, stream: 0, payload: PeerDebtTests.zeros(65536)).encoded[...]
    var reads = 0
    while let byte = bytes.popFirst(), client.receive([byte]) { reads += 1 }
    #expect((9_000...11_000).contains(reads))
    client.end()
  }

  /// One useful frame after each hundred useless ones reduces the debt (PeerDebt.swift) only a little, so the
  /// connection still ends.
  @Test func aUsefulFrameNowAndThen() {
    let client = Client()
    _ = client.open()
    #expect(client.receive(Frame.head(1).encoded))
    let ping = Frame(type: 6, flags: 1, stream: 0, payload: PeerDebtTests.zeros(8)).encoded
    let batch = Frame.data(1, [0]).encoded + [[UInt8]](repeating: ping, count: 100).flatMap { $0 }
    var pings = 0
    while pings < 100_000, client.receive(batch) { pings += 100 }
    #expect((10_000...11_000).contains(pings))
    client.end()
  }

  /// A gRPC server sends a PING, to measure the connection, and WINDOW_UPDATE frames with each message of an
  /// answer. After 20,000 messages the connection must still be open.
  @Test func pingsWithEachMessage() throws {
    let client = Client()
    _ = client.open()
    #expect(client.receive(Frame.head(1).encoded))
    let batch = [
      Frame(type: 6, stream: 0, payload: PeerDebtTests.zeros(8)), .message(1, [1, 2, 3]), .windowUpdate(0, 8),
      .windowUpdate(1, 8),
    ].flatMap { $0.encoded }
    for _ in 0..<20_000 { try #require(client.receive(batch), "the connection ended") }
    #expect(client.session.tracker.owed < 100)
    client.end()
  }

  /// Many calls end at once. With each call the server sends a PING, SETTINGS and a WINDOW_UPDATE.
  @Test func manySmallCalls() throws {
    let client = Client()
    for _ in 0..<5_000 {
      let id = client.open()
      let batch = [
        Frame(type: 6, stream: 0, payload: PeerDebtTests.zeros(8)), .settings(), .windowUpdate(0, 8),
        .head(id),
        .message(id, [1]), .trailers(id),
      ].flatMap { $0.encoded }
      try #require(client.receive(batch), "the connection ended")
    }
    #expect(client.session.tracker.owed < 100 && client.session.isIdle)
    client.end()
  }

  /// During an upload the server sends only WINDOW_UPDATE frames: for each KiB that it has read, one for the
  /// stream and one for the connection.
  @Test func anUpload() throws {
    let client = Client()
    let id = client.open()
    #expect(client.receive(Frame.windowUpdate(0, 1 << 20).encoded + Frame.windowUpdate(id, 1 << 20).encoded))
    let batch = (0..<64).flatMap { _ in
      Frame.windowUpdate(0, 1024).encoded + Frame.windowUpdate(id, 1024).encoded
    }
    for _ in 0..<1_000 {
      client.upload(65536 - 5)
      try #require(client.receive(batch), "the connection ended")
    }
    #expect(client.session.tracker.owed < 1_000)
    client.end()
  }

  /// A server sends a PING every ten seconds for a year, without any call.
  @Test func aYearOfPings() throws {
    let client = Client()
    let ping = Frame(type: 6, stream: 0, payload: PeerDebtTests.zeros(8)).encoded
    for _ in 0..<(365 * 8640) / 100 {
      // The clock of the debt is moved by 1,000 seconds, and then the hundred PINGs of these 1,000 seconds
      // arrive at once.
      client.session.forgivenAt &-= 1_000_000_000_000
      try #require(
        client.receive([[UInt8]](repeating: ping, count: 100).flatMap({ $0 })), "the connection ended")
    }
    client.end()
  }

  /// The client ends calls while bytes for them are still on the network, as many as their windows permit, in
  /// frames of any size.
  @Test(arguments: [1, 100, 16384])
  func whatComesLate(_ size: Int) throws {
    let client = Client()
    for _ in 0..<(size == 1 ? 3 : 100) {
      let id = client.open()
      #expect(client.receive(Frame.head(id).encoded))
      client.session.letGo(client.streams.last!, .cancelled)
      client.drain()
      let frame = Frame.data(id, PeerDebtTests.zeros(size)).encoded
      let atOnce = max(1, 16384 / frame.count)
      let batch = [[UInt8]](repeating: frame, count: atOnce).flatMap { $0 }
      var late = 0
      while late + atOnce * size <= client.session.limits.streamWindow {
        try #require(client.receive(batch), "the connection ended")
        late += atOnce * size
      }
      #expect(client.receive(Frame.trailers(id).encoded))
    }
    #expect(client.session.tracker.owed < 100)
    client.end()
  }

  /// Each call's response headers exceed `max_header_list_bytes`.
  @Test func headersOverTheLimitOfEachCall() throws {
    let client = Client()
    let value = String(repeating: "v", count: 10_000)
    let fields =
      [(":status", "200"), ("content-type", "application/grpc")] + (0..<5).map { ("x-\($0)", value) }
    for _ in 0..<300 {
      let id = client.open()
      try #require(client.receive(Frame.headers(id, fields, part: 4096)), "the connection ended")
    }
    #expect(client.session.tracker.owed < 1_000)
    client.end()
  }
}

extension SessionTests {
  /// The GOAWAY of a session that has failed has the code for too many frames only if the peer has sent too many.
  @Test func theGOAWAYOfAFailure() throws {
    let failures: [(HTTP2Session) -> Void] = [
      { $0.charge(2 * Limits.framesWithoutUse) }, { $0.flood(0) },
      { $0.credited(NGHTTP2_ERR_NOMEM.rawValue) }, { $0.fail(bytes("no memory to send")) },
    ]
    let codes = try failures.map { fails in
      let session = try #require(HTTP2Session.make(TransportLimits()))
      _ = drain(session)
      _ = Frame.settings().encoded.withUnsafeBytes { session.receive($0) }
      fails(session)
      session.sayFailure()
      let goAway = try #require(Frame.all(drain(session))?.first { $0.type == 7 })
      session.abandon(bytes("over"))
      return Array(goAway.payload[4..<8])
    }
    #expect(codes == [[0, 0, 0, 11], [0, 0, 0, 11], [0, 0, 0, 2], [0, 0, 0, 2]])
  }
}
