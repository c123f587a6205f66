import CPenstockNghttp2
import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP
@testable import PenstockLoop

/// Tests of HTTP2Session without I/O. They pass a server's bytes to the session, and check its events and its output.
@Suite struct SessionTests {
  /// An owner that records all events. It takes the bytes of the body at once, or without `takes` later, in
  /// `streamChanged`.
  final class Recorder: StreamOwner {
    let session: HTTP2Session
    var takes: Bool
    private let duplex: Bool
    var hasNoBody = false
    var log: [String] = []
    var body: [UInt8] = []
    /// The output of the session while it received the test's input.
    var sent: [UInt8] = []
    /// The error text for the rule that the peer has broken.
    var words: String?
    /// The space that this owner offers for the next bytes of the body (`streamSpace`).
    var room = UnsafeMutableRawBufferPointer(start: nil, count: 0)

    init(_ session: HTTP2Session, takes: Bool, duplex: Bool = false) {
      self.session = session
      self.takes = takes
      self.duplex = duplex
    }

    override func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool {
      fields.isDuplex = duplex
      fields.hasNoBody = hasNoBody
      return fields.add(":method", "POST") && fields.add(":scheme", "http") && fields.add(":path", "/a.B/C")
        && fields.add(":authority", "x")
    }

    override func streamSends() -> Bool { true }

    override func streamReceives(head block: HeaderBlock, endsStream: Bool) {
      let head = block.fields
      let status = head.index(of: (":status" as StaticString).bytes).map { text(head.value(at: $0))! }
      log.append("head \(status ?? "none")\(endsStream ? " end" : "")")
    }

    override func streamReceives(trailers: HeaderBlock) { log.append("trailers \(trailers.fields.count)") }

    override func streamSpace() -> UnsafeMutableRawBufferPointer? { room.isEmpty ? nil : room }

    override func streamReceives(_ bytes: ByteView) -> Int {
      guard takes else { return 0 }
      body += bytes
      return bytes.count
    }

    override func streamChanged(_ stream: TransportStream) {
      if !stream.body.isEmpty {
        body += stream.body
        let count = stream.body.count
        stream.take(count)
        session.consumed(stream, count)
      }
      guard let end = stream.end else { return }
      switch end {
      case .trailers: break
      case .body: log.append("end of body")
      case .cancelled(let words), .tooMuch(let words), .insecure(let words), .reset(let words):
        log.append("reset: \(text(words)!)")
      case .neverSent(let words): log.append("never sent: \(text(words)!)")
      case .unprocessed(let words): log.append("unprocessed: \(text(words)!)")
      case .refused(let words): log.append("refused: \(text(words)!)")
      case .broken(let words):
        log.append("violation")
        self.words = text(words)
      case .lost(let words), .unanswered(let words): log.append("lost: \(text(words)!)")
      case .answerTooLarge(let words): log.append("too large: \(text(words)!)")
      case .requestTooLarge(let size, let limit): log.append("request too large \(size) \(limit)")
      case .noMemory: log.append("no memory")
      }
      session.letGo(stream, .cancelled)
    }
  }

  func drain(_ session: HTTP2Session) -> [UInt8] {
    let out = SendQueue(copies: true)
    _ = session.collect(into: out)
    return [UInt8](out.bytes.view)
  }

  /// Opens one stream, and passes `input` to the session in parts of `step` bytes. Returns the session, and the
  /// stream's owner, which has recorded the events.
  func run(_ input: [UInt8], step: Int, takes: Bool = true, limits: TransportLimits = TransportLimits()) -> (
    HTTP2Session, Recorder
  ) {
    let session = HTTP2Session.make(limits)!
    _ = drain(session)
    _ = Frame.settings().encoded.withUnsafeBytes { session.receive($0) }
    let recorder = Recorder(session, takes: takes)
    let stream = HTTP2Stream()
    stream.owner = recorder
    stream.endsAfterPieces = true
    session.add(stream)
    _ = drain(session)
    var at = 0
    while at < input.count {
      let part = input[at..<min(at + step, input.count)]
      at += part.count
      let alive = part.withUnsafeBytes { session.receive($0) }
      session.dispatch()
      let out = SendQueue(copies: true)
      let flows = alive && session.collect(into: out) != .failed
      recorder.sent += out.bytes.view
      session.dispatch()
      if !flows {
        session.abandon(session.failure!)
        session.dispatch()
        break
      }
    }
    return (session, recorder)
  }

  static let answer: [UInt8] = [
    Frame.headers(1, [(":status", "103")]), .head(1), .message(1, [1, 2, 3]), .message(1, []),
    Frame(type: 0xbb, stream: 1, payload: [9, 9, 9]), .data(1, [0, 0, 0, 0, 1]), .data(1, [7]), .trailers(1),
  ].flatMap { $0.encoded }

  @Test(arguments: [1, 2, 3, 5, 8, 13, 1000])
  func anyCut(_ step: Int) {
    for takes in [true, false] {
      let (session, recorder) = run(SessionTests.answer, step: step, takes: takes)
      #expect(recorder.log == ["head 200", "trailers 1"])
      #expect(recorder.body == [0, 0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 7])
      #expect(session.isIdle && session.failure == nil && !session.tracker.isMidFrame)
    }
  }

  @Test(arguments: [1, 1000])
  func ends(_ step: Int) {
    func log(_ frames: Frame...) -> [String] { run(frames.flatMap { $0.encoded }, step: step).1.log }
    #expect(log(.headers(1, [(":status", "200")], end: true)) == ["head 200 end"])
    #expect(log(.head(1), .data(1, [1], end: true)) == ["head 200", "end of body"])
    #expect(
      log(.head(1), .reset(1, 2)) == ["head 200", "reset: the server reset the stream: INTERNAL_ERROR (2)"])
    #expect(log(.reset(1, 7)) == ["refused: the server refused the stream (REFUSED_STREAM)"])
    #expect(log(.goAway(0, 2, "x")) == ["unprocessed: the server sent GOAWAY (INTERNAL_ERROR: x)"])
    #expect(log(.goAway(1), .head(1), .trailers(1)) == ["head 200", "trailers 1"])
    #expect(log(.headers(1, [("x", "no status")])) == ["violation"])
    #expect(
      log(.head(1), .headers(1, [("x", "not the end")])) == ["head 200", "trailers 1"].dropLast() + [
        "violation"
      ])
    #expect(log(.head(1), .data(3, [1])).last?.hasPrefix("lost: ") == true)
  }

  /// RFC 9113 section 6.8: a later GOAWAY may have a lower last stream id, and then ends streams that the earlier one
  /// kept. It may not have a higher one.
  @Test func goAwayAgain() {
    func log(_ frames: Frame...) -> [String] { run(frames.flatMap { $0.encoded }, step: 1000).1.log }
    #expect(log(.goAway(Int32.max), .goAway(1), .head(1), .trailers(1)) == ["head 200", "trailers 1"])
    #expect(log(.goAway(1), .goAway(0, 0, "x")) == ["unprocessed: the server sent GOAWAY (NO_ERROR: x)"])
    #expect(log(.goAway(0), .head(1), .trailers(1)) == ["unprocessed: the server sent GOAWAY (NO_ERROR)"])
    let raised = log(.goAway(1), .goAway(3), .head(1), .trailers(1))
    #expect(
      raised.count == 1 && raised[0].hasPrefix("lost: the server broke the rules of HTTP/2: PROTOCOL_ERROR"))
  }

  /// Each GOAWAY ends the streams with an id above its last stream id, and no others.
  @Test func goAwayBetweenStreams() {
    let session = HTTP2Session.make(TransportLimits())!
    _ = Frame.settings().encoded.withUnsafeBytes { session.receive($0) }
    let recorders = (0..<3).map { _ in
      let recorder = Recorder(session, takes: true)
      let stream = HTTP2Stream()
      stream.owner = recorder
      stream.endsAfterPieces = true
      session.add(stream)
      return recorder
    }
    _ = drain(session)
    func receive(_ frames: Frame...) {
      #expect(frames.flatMap { $0.encoded }.withUnsafeBytes { session.receive($0) })
      _ = drain(session)
      session.dispatch()
    }
    let words = "unprocessed: the server sent GOAWAY (NO_ERROR)"
    receive(.goAway(3))
    #expect(recorders.map { $0.log } == [[], [], [words]])
    receive(.goAway(1))
    #expect(recorders.map { $0.log } == [[], [words], [words]])
    receive(.head(1), .trailers(1))
    #expect(recorders[0].log == ["head 200", "trailers 1"] && session.isIdle)
  }

  @Test func pings() {
    let session = HTTP2Session.make(TransportLimits())!
    _ = Frame.settings().encoded.withUnsafeBytes { session.receive($0) }
    _ = drain(session)
    func receive(_ frame: Frame) { #expect(frame.encoded.withUnsafeBytes { session.receive($0) }) }
    func ping(_ number: UInt8, ack: Bool = false) -> Frame {
      Frame(type: 6, flags: ack ? 1 : 0, stream: 0, payload: [0, 0, 0, 0, 0, 0, 0, number])
    }
    #expect(session.isPingAnswered)
    session.ping()
    #expect(drain(session) == ping(1).encoded && !session.isPingAnswered)
    // The server sends a PING, and then an answer to a PING that the client has not sent.
    receive(ping(1))
    #expect(drain(session) == ping(1, ack: true).encoded)
    receive(ping(2, ack: true))
    #expect(!session.isPingAnswered)
    receive(ping(1, ack: true))
    #expect(session.isPingAnswered)
    session.ping()
    #expect(drain(session) == ping(2).encoded && !session.isPingAnswered)
    receive(ping(2, ack: true))
    #expect(session.isPingAnswered)
  }

  @Test(
    arguments: [
      (11, "too_many_pings", true), (11, "too_many_pings!", false), (11, "", false),
      (0, "too_many_pings", false),
    ] as [(UInt32, String, Bool)])
  func tooManyPings(_ code: UInt32, _ words: String, _ complains: Bool) {
    #expect(run(Frame.goAway(1, code, words).encoded, step: 1000).0.hearsTooManyPings == complains)
  }

  /// `space` is only for the payload of a DATA frame without padding, and is never larger than the rest of that frame.
  @Test func spaceIsWithinAFrame() {
    let (session, recorder) = run(Frame.head(1).encoded, step: 1000)
    let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 30_000, alignment: 1)
    defer { room.deallocate() }
    func receive(_ bytes: ArraySlice<UInt8>) { #expect(bytes.withUnsafeBytes { session.receive($0) }) }
    // From here on a frame may have the size that the client has announced (MAX_FRAME_SIZE).
    receive(Frame.settingsAck.encoded[...])
    let bytes = (0..<20_000).map { UInt8(truncatingIfNeeded: $0) }
    let frame = Frame.data(1, bytes).encoded
    #expect(session.space() == nil)
    receive(frame[..<8])
    recorder.room = room
    #expect(session.space() == nil)
    receive(frame[8..<109])
    #expect(session.space()?.count == 19_900)
    recorder.room = UnsafeMutableRawBufferPointer(rebasing: room[..<5000])
    #expect(session.space()?.count == 5000)
    recorder.room = UnsafeMutableRawBufferPointer(rebasing: room[..<100])
    #expect(session.space() == nil)
    recorder.room = room
    receive(frame[109...])
    #expect(session.space() == nil && recorder.body == bytes)
    let padded = Frame(type: 0, flags: 8, stream: 1, payload: [3] + bytes).encoded
    receive(padded[..<20])
    #expect(session.space() == nil)
    receive(padded[20...])
    receive(Frame.data(1, bytes).encoded[..<20])
    #expect(session.space() != nil)
    receive(Frame.data(1, bytes).encoded[20...])
    receive(Frame.reset(1, 8).encoded[...])
    session.dispatch()
    #expect(session.space() == nil)
  }

  /// A stream with the last stream id works like any other. After it, no further stream can be opened.
  @Test func lastStreamOfAConnection() {
    let session = HTTP2Session.make(TransportLimits())!
    _ = drain(session)
    #expect(Frame.settings().encoded.withUnsafeBytes { session.receive($0) })
    #expect(nghttp2_session_set_next_stream_id(session.session, Int32.max) == 0 && session.slots > 0)
    let (recorder, next) = (Recorder(session, takes: true), Recorder(session, takes: true))
    for owner in [recorder, next] {
      let stream = HTTP2Stream()
      stream.owner = owner
      stream.endsAfterPieces = true
      session.add(stream)
    }
    _ = drain(session)
    session.dispatch()
    #expect(session.slots <= 0 && next.log == ["never sent: the connection has no stream ids left"])
    let last = Int32.max
    let answer = [Frame.head(last), .message(last, [1, 2, 3]), .trailers(last)].flatMap { $0.encoded }
    #expect(answer.withUnsafeBytes { session.receive($0) })
    session.dispatch()
    #expect(recorder.log == ["head 200", "trailers 1"] && recorder.body == [0, 0, 0, 0, 3, 1, 2, 3])
    #expect(session.isIdle && session.failure == nil)
  }

  /// After `abandon` nghttp2 still has its streams, but the `HTTP2Stream`s are released. So `isBehind` must not ask
  /// nghttp2 for the stream of the last frame.
  @Test func asksForNoStreamOfAnAbandonedSession() {
    let (session, _) = run(Frame.head(1).encoded, step: 1000, takes: false)
    let stream = session.open[0]
    #expect(Frame.message(1, [1, 2, 3]).encoded.withUnsafeBytes { session.receive($0) })
    #expect(session.isBehind)
    // The peer sends more CONTINUATION frames than allowed, so the session accepts no further bytes.
    let flood = [Frame(type: 1, stream: 1)] + [Frame](repeating: Frame(type: 9, stream: 1), count: 8000)
    #expect(flood.flatMap { $0.encoded }.withUnsafeBytes { !session.receive($0) })
    session.abandon(session.failure!)
    #expect(!stream.bodyIsEmpty && !session.isBehind)
  }

  @Test func announcesItsSettings() {
    let session = HTTP2Session.make(TransportLimits())!
    let bytes = drain(session)
    #expect(Array(bytes[..<24]) == Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8))
    // The client's first SETTINGS: ENABLE_PUSH 0, INITIAL_WINDOW_SIZE 1 MiB, MAX_HEADER_LIST_SIZE 16 KiB,
    // MAX_FRAME_SIZE 64 KiB.
    #expect(
      Array(bytes[24...]) == Frame.settings([(2, 0), (4, 1 << 20), (6, 16384), (5, 65536)]).encoded)
  }

  /// "The first frame MUST be SETTINGS" (RFC 9113 section 3.4).
  @Test(arguments: [
    ("HTTP/1.1 200 OK\r\n", "the peer does not speak HTTP/2: it answered \"HTTP/1.1 200 OK\""),
    ("\u{15}\u{3}\u{1}", "the peer does not speak HTTP/2: it answered in TLS"),
    ("x", "the peer does not speak HTTP/2: it sent \"x\""),
  ])
  func notHTTP2(_ opening: String, _ words: String) {
    let session = HTTP2Session.make(TransportLimits())!
    #expect(!Array(opening.utf8).withUnsafeBytes { session.receive($0) })
    #expect(text(session.failure) == words)
  }

  /// If the owner does not take the bytes of a body, the window limits them. When the owner takes them, their credit is
  /// returned.
  @Test func unreadBodiesHoldBackCredit() {
    var limits = TransportLimits()
    limits.streamWindow = 65535
    limits.connectionWindow = 65535
    let session = HTTP2Session.make(limits)!
    _ = drain(session)
    _ = Frame.settings().encoded.withUnsafeBytes { session.receive($0) }
    final class Holder: StreamOwner {
      override func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool {
        fields.add(":method", "POST")
      }
      override func streamSends() -> Bool { true }
      override func streamReceives(head: HeaderBlock, endsStream: Bool) {}
      override func streamReceives(trailers: HeaderBlock) {}
      override func streamSpace() -> UnsafeMutableRawBufferPointer? { nil }
      override func streamReceives(_ bytes: ByteView) -> Int { 0 }
      override func streamChanged(_ stream: TransportStream) {}
    }
    let stream = HTTP2Stream()
    stream.owner = Holder()
    session.add(stream)
    _ = drain(session)
    let part = Frame.data(1, [UInt8](repeating: 1, count: 16000)).encoded
    _ = Frame.head(1).encoded.withUnsafeBytes { session.receive($0) }
    for _ in 0..<4 { #expect(part.withUnsafeBytes { session.receive($0) }) }
    let credit = drain(session)
    // The output has only WINDOW_UPDATE frames, all for the connection and none for the stream.
    #expect(
      stride(from: 0, to: credit.count, by: 13).allSatisfy { credit[$0 + 3] == 8 && credit[$0 + 8] == 0 })
    #expect(credit.count >= 13 && stream.body.count == 64000)
    session.consumed(stream, 40000)
    #expect(drain(session) == Frame.windowUpdate(1, 40000).encoded)
    // 64,000 more bytes exceed the window, which has 41,535 bytes left. The peer has broken the rules, and the stream
    // keeps at most one frame too many.
    for _ in 0..<4 { _ = part.withUnsafeBytes { session.receive($0) } }
    #expect(stream.body.count <= 64000 + 41535 + 16384)
    session.letGo(stream, .cancelled)
  }

  /// An owner may leave its stream while a DATA frame of the stream waits for room in the output. The session still
  /// sends only whole frames.
  @Test(arguments: [false, true])
  func lettingGoOfAFrameThatWaits(_ letsGo: Bool) throws {
    var limits = TransportLimits()
    limits.outputSize = 64
    let session = try #require(HTTP2Session.make(limits))
    for _ in 0..<4 { _ = drain(session) }
    _ = Frame.settings().encoded.withUnsafeBytes { session.receive($0) }
    var streams: [HTTP2Stream] = []
    for n in 0..<3 {
      let stream = HTTP2Stream()
      stream.owner = Recorder(session, takes: true)
      stream.append(
        BodyPiece(compressed: false, buffer([UInt8](repeating: UInt8(n), count: 1000)), length: 1000))
      stream.endsAfterPieces = true
      streams.append(stream)
      session.add(stream)
    }
    var sent: [UInt8] = []
    while streams[0].piecesSent == 0 { sent += drain(session) }
    #expect(streams[1].piecesSent == 0 && session.wantsWrite)
    if letsGo { session.letGo(streams[1], .cancelled) }
    while session.wantsWrite { sent += drain(session) }
    let parsed = try #require(Frame.all(sent))
    let data = parsed.filter { $0.type == 0 }
    #expect(data.map { $0.stream } == (letsGo ? [1, 5] : [1, 3, 5]))
    #expect(data.allSatisfy { $0.payload.count == 1005 && $0.flags == 1 })
    #expect(parsed.contains { $0.type == 3 && $0.stream == 3 } == letsGo)
    #expect(session.failure == nil)
    session.abandon(bytes("over"))
    session.dispatch()
  }

  /// An owner may leave its stream while the request's HEADERS wait for room in the output. nghttp2 then closes a
  /// stream that was just opened and has no owner.
  @Test(arguments: 0..<10)
  func lettingGoOfARequestThatWaits(_ round: Int) throws {
    let session = try #require(HTTP2Session.make(TransportLimits()))
    _ = drain(session)
    _ = Frame.settings().encoded.withUnsafeBytes { session.receive($0) }
    _ = drain(session)
    let full = SendQueue(copies: true)
    let zeros = buffer([UInt8](repeating: 0, count: session.limits.outputSize))
    #expect(withExtendedLifetime(zeros) { full.append(zeros.view) })
    for _ in 0..<100 {
      let stream = HTTP2Stream()
      stream.owner = Recorder(session, takes: true)
      session.add(stream)
      #expect(session.collect(into: full) != .failed)
      #expect(stream.life == .opening)
      session.letGo(stream, .cancelled)
    }
    #expect(session.open.count == 100)
    // None of these requests is sent. The only frame makes the connection's window wide, which the first stream has
    // caused.
    #expect(drain(session) == Frame.windowUpdate(0, (4 << 20) - 65535).encoded)
    #expect(session.isIdle && session.failure == nil)
  }

  /// `resume` tells nghttp2 that a stream has bytes to send. The test calls it twice for each message, and checks that
  /// nothing is sent between the messages. A further message and the half-close may be added while a part of the
  /// message before them waits for room.
  @Test(arguments: [64, 1 << 18])
  func bodyInParts(_ outputSize: Int) throws {
    var limits = TransportLimits()
    limits.outputSize = outputSize
    let session = try #require(HTTP2Session.make(limits))
    func flush() throws -> [Frame] {
      var sent: [UInt8] = []
      repeat { sent += drain(session) } while session.wantsWrite
      return try #require(Frame.all(sent)).filter { $0.type < 2 }
    }
    for _ in 0..<4 { _ = drain(session) }
    _ = Frame.settings().encoded.withUnsafeBytes { session.receive($0) }
    let stream = HTTP2Stream()
    stream.owner = Recorder(session, takes: true)
    session.add(stream)
    var found = try flush()
    #expect(found.map { $0.type } == [1] && found[0].flags & 1 == 0)
    for size in [0, 1, 100] {
      #expect(stream.life == .idle)
      stream.append(
        BodyPiece(compressed: false, buffer([UInt8](repeating: 7, count: size)), length: UInt32(size)))
      session.resume(stream)
      session.resume(stream)
      found = try flush()
      #expect(found.map { $0.type } == [0] && found[0].flags == 0 && found[0].payload.count == size + 5)
    }
    stream.append(BodyPiece(compressed: false, buffer([UInt8](repeating: 8, count: 100)), length: 100))
    session.resume(stream)
    var sent = drain(session)
    stream.append(BodyPiece(compressed: false, buffer([9]), length: 1))
    session.resume(stream)
    stream.endsAfterPieces = true
    session.resume(stream)
    repeat { sent += drain(session) } while session.wantsWrite
    found = try #require(Frame.all(sent)).filter { $0.type == 0 }
    #expect(found.reduce(0) { $0 + $1.payload.count } == 111)
    #expect(found.dropLast().allSatisfy { $0.flags == 0 } && found.last?.flags == 1)
    #expect(stream.piecesSent == 5 && stream.life == .ended && session.failure == nil)
    session.abandon(bytes("over"))
    session.dispatch()
  }
}

/// Shorter calls for the owners in tests. All streams of a session are `HTTP2Stream`s, so the casts are safe.
extension HTTP2Session {
  func consumed(_ stream: TransportStream, _ count: Int) { consumed(stream as! HTTP2Stream, count) }

  func letGo(_ stream: TransportStream, _ why: Leave) { letGo(stream as! HTTP2Stream, why) }
}
