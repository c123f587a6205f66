import Foundation
import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockFraming

/// Tests of gRPC-Web, ordered by the sections of PROTOCOL-WEB.
@Suite struct GRPCWebTests {
  static let web = [("content-type", "application/grpc-web+proto")]
  static let text = [("content-type", "application/grpc-web-text+proto")]

  func framing(
    _ request: Request = aRequest(.serverStream), isText: Bool = false
  ) -> GRPCWebFraming {
    GRPCWebFraming(request, someDefaults(.grpcWeb), isText: isText)
  }

  func base64(_ bytes: [UInt8]) -> [UInt8] { Array(Data(bytes).base64EncodedString().utf8) }

  // MARK: Requests

  @Test func headers() {
    let request = aRequest(
      .unary,
      [("x-a", "1"), ("x-bin", "\u{1}\u{2}"), ("x-grpc-web", "2"), ("accept", "x"), ("x-user-agent", "y")],
      deadline: 1_500_000_000)
    #expect(
      lines(framing(request), request, someDefaults(.grpcWeb), now: 500_000_000) == [
        ":method: POST", ":scheme: https", ":path: /a.B/C", ":authority: host:1", "grpc-timeout: 1S",
        "x-grpc-web: 1", "content-type: application/grpc-web+proto",
        "grpc-accept-encoding: identity,gzip,deflate",
        "user-agent: penstock/1", "x-user-agent: penstock/1", "x-a: 1", "x-bin: AQI",
      ])
    let packed = aRequest(subtype: "json") { $0.compression = .gzip }
    packed.takeLabels(
      of: RequestLabels(authority: nil, contentType: packed.labels?.contentType, userAgent: bytes("me\0")))
    #expect(
      lines(framing(packed, isText: true), packed, someDefaults(.grpcWebText, prefix: "/v1")) == [
        ":method: POST", ":scheme: https", ":path: /v1/a.B/C", ":authority: host:1", "x-grpc-web: 1",
        "content-type: application/grpc-web-text+json", "grpc-encoding: gzip",
        "grpc-accept-encoding: identity,gzip,deflate", "user-agent: me", "x-user-agent: me",
        "accept: application/grpc-web-text",
      ])
  }

  @Test func messages() {
    #expect(sent([1, 2, 3], by: framing()) == [0, 0, 0, 0, 3, 1, 2, 3])
    let long = [UInt8](repeating: 7, count: 1000)
    let gzip = aRequest { $0.compression = .gzip }
    #expect(sent(long, by: framing(gzip)) == frame(1, gzipped(long)))
    #expect(sent(long, by: framing(gzip, isText: true)) == textFrame(1, gzipped(long)))
    for count in 0..<20 {
      let message = (0..<count).map { UInt8($0 * 37 & 0xFF) }
      #expect(sent(message, by: framing(isText: true)) == textFrame(0, message))
    }
  }

  func textFrame(_ flags: UInt8, _ content: [UInt8]) -> [UInt8] { base64(frame(flags, content)) }

  /// The body of a stream is one base64 text. Only its end has padding, because servers such as Envoy
  /// refuse padding in the middle.
  @Test(arguments: [CallKind.clientStream, .bidi]) func aBodyIsOneText(_ kind: CallKind) {
    var random = SplitMix(state: 3)
    for gzips in [false, true] {
      for count in 0..<40 {
        let framing = framing(
          aRequest(kind) { $0.compression = gzips ? .gzip : .identity }, isText: true)
        var expected: [UInt8] = []
        var body: [UInt8] = []
        for _ in 0..<count {
          let size = Int(random.next() % 9) + (random.next() % 8 == 0 ? 100 : 0)
          let message = [UInt8](repeating: UInt8(truncatingIfNeeded: random.next()), count: size)
          let packed = gzipped(message)
          expected += gzips && packed.count < size ? frame(1, packed) : frame(0, message)
          body += sent(message, by: framing) ?? []
          #expect((framing.rest == .bytes) == (expected.count % 3 != 0))
          #expect(body == Array(base64(expected).prefix(expected.count / 3 * 4)))
        }
        if framing.rest == .bytes, case .piece(let piece) = framing.lastPiece() { body += flatten(piece) }
        #expect(framing.rest == .nothing && body == base64(expected), "\(count) messages")
      }
    }
  }

  /// In a bidi call the rest of a message may be sent before the half-close: at once if the server has answered since the
  /// last time, otherwise after a while. A text goes on behind its padding.
  @Test func restsOfABidiCall() {
    let framing = framing(aRequest(.bidi), isText: true)
    #expect(framing.sendsRest && framing.mayWaitWithRest)
    for count in 0..<5 {
      let message = [UInt8](repeating: 9, count: count)
      let whole = frame(0, message)
      var body = sent(message, by: framing) ?? []
      #expect(body == Array(base64(whole).prefix(whole.count / 3 * 4)))
      #expect(framing.rest == (whole.count % 3 == 0 ? .nothing : .bytes))
      if framing.rest == .bytes, case .piece(let piece) = framing.lastPiece() {
        #expect(piece.isRest)
        body += flatten(piece)
      }
      #expect(body == base64(whole) && framing.rest == .nothing)
    }
    _ = framing.decode(buffer(frame(0, [])).view)
    #expect(!framing.mayWaitWithRest)
    _ = framing.lastPiece()
    #expect(framing.mayWaitWithRest)
    for kind in [CallKind.unary, .serverStream, .clientStream] {
      #expect(!self.framing(aRequest(kind), isText: true).sendsRest)
    }
    #expect(!self.framing(aRequest(.bidi)).sendsRest)
  }

  /// Messages that wait behind a large one, which is being compressed, go on with its last bytes.
  @Test func aLargeMessageInAClientStream() {
    let framing = framing(aRequest(.clientStream) { $0.compression = .gzip }, isText: true)
    let large = [7, 8].map { [UInt8](repeating: $0, count: 300_000 + Int($0)) }
    let messages = [[1], large[0], [2, 3], large[1]]
    var body: [UInt8] = []
    for message in messages {
      if case .piece(let piece) = framing.encode(buffer(message)) { body += flatten(piece) }
    }
    #expect(framing.rest == .message)
    while framing.isPacking {
      if case .piece(let piece) = framing.encodeNext() { body += flatten(piece) }
    }
    if framing.rest == .bytes, case .piece(let piece) = framing.lastPiece() { body += flatten(piece) }
    let frames = [frame(0, messages[0]), frame(1, gzipped(messages[1])), frame(0, messages[2])]
    #expect(body == base64(Array(frames.joined()) + frame(1, gzipped(messages[3]))))
  }

  /// A large message becomes base64 in slices, also without compression. Messages behind it wait, and keep
  /// their order.
  @Test(arguments: [CallKind.clientStream, .bidi], [Compression.identity, .gzip])
  func largeMessagesInSlices(_ kind: CallKind, _ compression: Compression) {
    let slice = 384 << 10
    var random = SplitMix(state: 5)
    // Random bytes do not become smaller, so they are sent uncompressed.
    let messages = [2 * slice + 2, 5, 0, slice + 1, slice].map { size in
      (0..<size).map { _ in UInt8(truncatingIfNeeded: random.next()) }
    }
    let framing = framing(aRequest(kind) { $0.compression = compression }, isText: true)
    var pieces: [[UInt8]] = []
    var turns = 0
    for message in messages {
      if case .piece(let piece) = framing.encode(buffer(message)) { pieces.append(flatten(piece)) }
    }
    while framing.isPacking {
      turns += 1
      if case .piece(let piece) = framing.encodeNext() { pieces.append(flatten(piece)) }
    }
    #expect(pieces.count == messages.count && turns >= 3 + 1 + 1 + 2 + 1)
    let frames = messages.map { frame(0, $0) }
    if framing.rest == .bytes, case .piece(let last) = framing.lastPiece() { pieces.append(flatten(last)) }
    #expect(framing.rest == .nothing && Array(pieces.joined()) == base64(Array(frames.joined())))
  }

  // MARK: Answers

  static let trailers = "grpc-status: 9\r\ngrpc-message: er%20ror\r\nx-a: 1\r\nX-A: 2\r\nx-bin: AQI=\r\n"

  @Test func messagesAndTrailers() {
    let body = frame(0, [1, 2]) + frame(0, []) + frame(0x80, GRPCWebTests.trailers)
    let fields = GRPCWebTests.web + [("x-h", "1"), ("grpc-encoding", "identity")]
    let seen = playAnyhow(WireAnswer(fields: fields, body: body)) { framing() }
    #expect(
      seen
        == Seen(
          headers: ["x-h: 1"], messages: [[1, 2], []], code: .failedPrecondition, message: "er ror",
          trailers: ["x-a: 1", "x-a: 2", "x-bin: \u{1}\u{2}"]))
    // The answer in base64 gives equal events: encoded as a whole, with padding after each frame, or with
    // padding after every few bytes.
    let whole = playAnyhow(WireAnswer(fields: GRPCWebTests.text + [("x-h", "1")], body: base64(body))) {
      framing(isText: true)
    }
    var expected = seen
    expected.headers = ["x-h: 1"]
    #expect(whole == expected)
    for size in [1, 2, 3, 4, 5, 7, 11, 100] {
      var parts: [UInt8] = []
      for from in stride(from: 0, to: body.count, by: size) {
        parts += base64(Array(body[from..<min(from + size, body.count)]))
      }
      let seen = playAnyhow(WireAnswer(fields: GRPCWebTests.text + [("x-h", "1")], body: parts)) {
        framing(isText: true)
      }
      #expect(seen == expected, "\(size) bytes")
    }
  }

  /// PROTOCOL-WEB: "10000001b: a compressed trailer".
  @Test func compression() {
    let long = [UInt8](repeating: 7, count: 900)
    let body = frame(1, gzipped(long)) + frame(0x81, gzipped(Array(GRPCWebTests.trailers.utf8)))
    let answer = WireAnswer(fields: GRPCWebTests.web + [("grpc-encoding", "gzip")], body: body)
    let seen = playAnyhow(answer) { framing() }
    #expect(seen.messages == [long] && seen.code == .failedPrecondition && seen.message == "er ror")
    let plain = play(WireAnswer(fields: GRPCWebTests.web, body: body), to: framing())
    #expect(
      plain.code == .internal
        && plain.message == "the compressed flag of a received message is set, but there is no grpc-encoding")
    let other = play(
      WireAnswer(fields: GRPCWebTests.web + [("grpc-encoding", "br")], body: body), to: framing())
    #expect(other.code == .internal)
    // The limit on the size of messages does not apply to trailers.
    let small = aRequest(.serverStream) { $0.maxReceiveBytes = 10 }
    let trailers = frame(0x81, gzipped(Array(GRPCWebTests.trailers.utf8)))
    let limited = WireAnswer(fields: GRPCWebTests.web + [("grpc-encoding", "gzip")], body: trailers)
    #expect(play(limited, to: framing(small)).code == .failedPrecondition)
    #expect(play(answer, to: framing(small)).code == .resourceExhausted)
    let much = frame(0x80, Array(repeating: 0x61, count: 20_000))
    #expect(
      play(WireAnswer(fields: GRPCWebTests.web, body: much), to: framing(small)).code == .resourceExhausted)
  }

  /// PROTOCOL-WEB: "Trailers may be sent together with response headers, with no message in the body."
  @Test func trailersOnly() {
    let fields = GRPCWebTests.web + [("grpc-status", "8"), ("grpc-message", "full"), ("x-t", "1")]
    let expected = Seen(code: .resourceExhausted, message: "full", trailers: ["x-t: 1"])
    #expect(play(WireAnswer(fields: fields, endsWithHead: true), to: framing()) == expected)
    // The head does not end the stream, but the body is empty.
    var later = expected
    later.headers = ["x-t: 1"]
    #expect(play(WireAnswer(fields: fields), to: framing()) == later)
    // A status in the body replaces the status in the head.
    let body = frame(0x80, "grpc-status: 9\r\n")
    #expect(play(WireAnswer(fields: fields, body: body), to: framing()).code == .failedPrecondition)
    let error = WireAnswer(status: "503", fields: fields)
    #expect(play(error, to: framing()).code == .resourceExhausted)
    let none = WireAnswer(fields: GRPCWebTests.web + [("grpc-message", "error")], endsWithHead: true)
    #expect(play(none, to: framing()).code == .unknown)
  }

  struct Foreign: Sendable {
    let status: String
    let type: String?
    let code: StatusCode
  }

  @Test(arguments: [
    Foreign(status: "200", type: "application/grpc", code: .unknown),
    Foreign(status: "200", type: "application/grpc-webx", code: .unknown),
    Foreign(status: "200", type: "image/jpeg", code: .unknown),
    Foreign(status: "200", type: nil, code: .unknown),
    Foreign(status: "200", type: "application/grpc-web+json", code: .internal),
    Foreign(status: "200", type: "application/grpc-web-text+json", code: .internal),
    Foreign(status: "400", type: "text/html", code: .internal),
    Foreign(status: "401", type: nil, code: .unauthenticated),
    Foreign(status: "403", type: nil, code: .permissionDenied),
    Foreign(status: "404", type: nil, code: .unimplemented),
    Foreign(status: "418", type: nil, code: .unknown),
    Foreign(status: "429", type: nil, code: .unavailable),
    Foreign(status: "502", type: nil, code: .unavailable),
    Foreign(status: "503", type: "application/grpc-web", code: .unavailable),
    Foreign(status: "504", type: nil, code: .unavailable),
    Foreign(status: "301", type: nil, code: .unknown),
  ])
  func foreignAnswers(_ row: Foreign) {
    let fields = (row.type.map { [("content-type", $0)] } ?? []) + [("x-h", "1")]
    let seen = play(WireAnswer(status: row.status, fields: fields, body: frame(0, [1])), to: framing())
    #expect(
      seen.code == row.code && seen.headers == nil && seen.messages == [] && seen.trailers == ["x-h: 1"])
    #expect(seen.message.hasPrefix("the answer is not gRPC-Web"))
  }

  @Test(arguments: [
    "application/grpc-web", "Application/GRPC-Web+Proto", "application/grpc-web+proto; charset=utf-8",
    "application/grpc-web-text", "application/grpc-web-text+proto", "Application/gRPC-Web",
    "APPLICATION/GRPC-WEB-text; x",
  ])
  func types(_ type: String) {
    let body = frame(0, [5]) + frame(0x80, "grpc-status: 0\r\n")
    let isText = type.contains("text")
    // The content-type of the answer decides whether it is in base64, whatever the request has asked for.
    for asksText in [false, true] {
      let answer = WireAnswer(fields: [("content-type", type)], body: isText ? base64(body) : body)
      let seen = playAnyhow(answer) { framing(isText: asksText) }
      #expect(seen.messages == [[5]] && seen.code == .ok)
    }
  }

  struct Broken: Sendable {
    let name: String
    let body: [UInt8]
    let code: StatusCode
    let words: String
  }

  @Test(arguments: [
    Broken(
      name: "nothing", body: [], code: .internal,
      words: "the body ended without its last frame, which has the status"),
    Broken(
      name: "no trailers", body: frame(0, [1]), code: .internal,
      words: "the body ended without its last frame, which has the status"),
    Broken(
      name: "a flag", body: frame(2, [1]), code: .internal,
      words: "the compressed flag of a received message is 2, neither 0 nor 1"),
    Broken(
      name: "a flag of trailers", body: frame(0x82, "grpc-status: 0\r\n"), code: .internal,
      words: "the compressed flag of a received message is 130, neither 0 nor 1"),
    Broken(
      name: "more behind the trailers", body: frame(0x80, "grpc-status: 0\r\n") + [0], code: .internal,
      words: "the body goes on behind its last frame"),
    // In base64, the additional byte is in the same group of four characters as the last bytes of the
    // trailers.
    Broken(
      name: "a byte behind the trailers", body: frame(0, [1, 2]) + frame(0x80, "grpc-status: 0\r\n") + [0],
      code: .internal, words: "the body goes on behind its last frame"),
    Broken(
      name: "no status", body: frame(0x80, "x: 1\r\n"), code: .unknown,
      words: "the trailers have no grpc-status: HTTP status 200"),
    Broken(
      name: "empty trailers", body: frame(0x80, ""), code: .unknown,
      words: "the trailers have no grpc-status: HTTP status 200"),
    Broken(
      name: "a wrong status", body: frame(0x80, "grpc-status: 17\r\n"), code: .unknown,
      words: "malformed or undefined grpc-status \"17\""),
  ])
  func broken(_ row: Broken) {
    let seen = playAnyhow(WireAnswer(fields: GRPCWebTests.web, body: row.body)) { framing() }
    #expect(seen.code == row.code && seen.message == row.words)
    let text = playAnyhow(WireAnswer(fields: GRPCWebTests.text, body: base64(row.body))) { framing() }
    #expect(text.code == row.code && text.message == row.words)
  }

  /// A trailer line may end with a line feed alone. Lines that are not valid header fields are left out.
  @Test func linesOfTrailers() {
    let body = frame(
      0x80, "grpc-status:0\nx-a:1\r\nno field\r\nx-b: a\u{0}b\r\nbad name: 1\r\n:x: 1\r\n\r\nX-C:  c \r\nx-d:"
    )
    let seen = playAnyhow(WireAnswer(fields: GRPCWebTests.web, body: body)) { framing() }
    #expect(seen.code == .ok && seen.trailers == ["x-a: 1", "x-c: c", "x-d: "])
  }

  @Test func detailsAndTooManyTrailers() {
    let details = "CAUSAW0aCwoFdC9hLkISAgEC"
    let body = frame(0x80, "grpc-status: 5\r\ngrpc-status-details-bin: \(details)\r\n")
    let seen = play(WireAnswer(fields: GRPCWebTests.web, body: body), to: framing())
    #expect(seen.code == .notFound && seen.trailers.count == 1)
    let lines = String(repeating: "x-a: 1\r\n", count: 4000)
    let many = play(WireAnswer(fields: GRPCWebTests.web, body: frame(0x80, lines)), to: framing())
    #expect(
      many.code == .resourceExhausted
        && many.message
          == "the received status, with its details and trailers, is over the limit of 65536 bytes"
    )
  }

  /// A fault in the bytes before a wrong base64 character is the one that is reported, for any size of the
  /// pieces.
  @Test func faultBeforeBadBase64() {
    let body = base64([0, 0, 0xFF, 0xFF, 0xFF, 1]) + Array("!!!!".utf8)
    let small = aRequest(.serverStream) { $0.maxReceiveBytes = 100 }
    let seen = playAnyhow(WireAnswer(fields: GRPCWebTests.text, body: body)) { framing(small) }
    #expect(seen.code == .resourceExhausted)
  }

  @Test(arguments: ["!!!!", "=AAA", "A===", "AA=A", "AAAAAAA", "AAAA=", "AA=", "AAAAA"])
  func badBase64(_ body: String) {
    let seen = playAnyhow(WireAnswer(fields: GRPCWebTests.text, body: Array(body.utf8))) { framing() }
    #expect(seen.code == .internal)
  }

  /// An answer that is cut off at any byte is an error. If the stream has ended with an error, that error is
  /// reported.
  @Test(arguments: [false, true])
  func cutAnywhere(_ isText: Bool) {
    let plain = frame(0, [1, 2, 3]) + frame(0x80, "grpc-status: 0\r\n")
    let body = isText ? base64(plain) : plain
    let fields = isText ? GRPCWebTests.text : GRPCWebTests.web
    for count in 0..<body.count {
      let part = Array(body.prefix(count))
      let ended = play(WireAnswer(fields: fields, body: part), to: framing())
      #expect(ended.code == .internal, "\(count)")
      let lost = play(WireAnswer(fields: fields, body: part, end: .lost(bytes("gone"))), to: framing())
      #expect(lost.code == .unavailable && lost.message == "gone")
    }
    // After the trailers the answer is complete, even if the stream then ends with an error.
    #expect(
      play(WireAnswer(fields: fields, body: body, end: .lost(bytes("gone"))), to: framing()).code == .ok)
  }

  @Test func randomBytes() {
    var random = SplitMix(state: 1)
    for _ in 0..<3000 {
      let letters = Array("AAAAAgICBQ==".utf8)
      let body = (0..<Int.random(in: 0..<60, using: &random)).map { _ in
        Bool.random(using: &random)
          ? [0, 0, 1, 0x80, 5, 255].randomElement(using: &random)!
          : letters.randomElement(using: &random)!
      }
      for fields in [GRPCWebTests.web, GRPCWebTests.text] {
        let fields = fields + [("grpc-encoding", "gzip")]
        let cuts = [Int.random(in: 0...60, using: &random)]
        let small = aRequest(.bidi) { $0.maxReceiveBytes = 1000 }
        _ = play(
          WireAnswer(fields: fields, body: body), to: framing(small), cuts: cuts.filter { $0 < body.count })
      }
    }
  }

  /// A message is offered ahead of demand only if another message follows it, and not if the trailers follow.
  @Test func readsAheadOnlyMessages() {
    let one = frame(0, [1])
    func begins(_ body: [UInt8]) -> Bool {
      body.withUnsafeBytes { framing().beginsWithTwo($0, limit: 10) }
    }
    #expect(begins(one + one) && begins(one + frame(1, [1])))
    #expect(!begins(one + frame(0x80, "")) && !begins(one))
  }

  /// The last frame is read ahead of demand only as a whole, and not compressed.
  @Test func readsTheLastFrameAhead() {
    let last = frame(0x80, "grpc-status:0\r\n")
    func begins(_ body: [UInt8]) -> Bool { body.withUnsafeBytes { framing().beginsWithLast($0) } }
    #expect(begins(last) && begins(last + [1]) && !begins([]) && !begins(Array(last.dropLast())))
    #expect(!begins(frame(0, [1])) && !begins(frame(0x81, [1])))
    for words in ["grpc-status:0\r\n", "grpc-status: 0\r\n"] {
      let seen = playAnyhow(WireAnswer(fields: GRPCWebTests.web, body: frame(0, [1]) + frame(0x80, words))) {
        framing()
      }
      #expect(seen == Seen(headers: [], messages: [[1]]))
    }
  }
}
