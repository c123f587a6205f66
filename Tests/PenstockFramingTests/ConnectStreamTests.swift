import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockFraming

/// Tests of Connect's streams, ordered by the sections "Streaming-Request", "Streaming-Response" and "Error
/// and EndStreamResponse" of Connect's document.
@Suite struct ConnectStreamTests {
  static let proto = [("content-type", "application/connect+proto")]

  func framing(_ request: Request = aRequest(.bidi)) -> ConnectStreamFraming { ConnectStreamFraming(request) }

  @Test func headers() {
    let request = aRequest(
      .bidi, [("x-a", "1"), ("x-bin", "\u{1}\u{2}"), ("connect-x", "2"), ("accept-encoding", "br")],
      deadline: 5_500_000_000)
    #expect(
      lines(framing(request), request, someDefaults(.connect), now: 500_000_000) == [
        ":method: POST", ":scheme: https", ":path: /a.B/C", ":authority: host:1", "connect-timeout-ms: 5000",
        "connect-protocol-version: 1", "content-type: application/connect+proto",
        "connect-accept-encoding: gzip,deflate", "user-agent: penstock/1", "x-a: 1", "x-bin: AQI",
      ])
    let packed = aRequest(.clientStream, subtype: "json") { $0.compression = .gzip }
    #expect(
      lines(framing(packed), packed, someDefaults(.connect, prefix: "/p")) == [
        ":method: POST", ":scheme: https", ":path: /p/a.B/C", ":authority: host:1",
        "connect-protocol-version: 1", "content-type: application/connect+json",
        "connect-content-encoding: gzip", "connect-accept-encoding: gzip,deflate", "user-agent: penstock/1",
      ])
  }

  /// The timeout is a "Positive integer as ASCII string of at most 10 digits", in milliseconds. It is rounded
  /// down, so that the server never gets more time than is left.
  @Test(
    arguments: [
      (0, "1"), (999_999, "1"), (1_000_000, "1"), (1_999_999, "1"), (2_000_000, "2"), (5_000_999_999, "5000"),
      (9_999_999_999_000_000, "9999999999"), (10_000_000_000_000_000, "9999999999"), (.max - 1, "9999999999"),
    ] as [(UInt64, String)])
  func timeouts(_ left: UInt64, _ value: String) {
    let request = aRequest(.bidi, deadline: left)
    let made = lines(framing(request), request, someDefaults(.connect))
    #expect(made[4] == "connect-timeout-ms: \(value)")
  }

  @Test func messages() {
    #expect(sent([1, 2, 3], by: framing()) == frame(0, [1, 2, 3]))
    let long = [UInt8](repeating: 7, count: 300_000)
    #expect(sent(long, by: framing(aRequest { $0.compression = .gzip })) == frame(1, gzipped(long)))
  }

  /// The examples in Connect's document.
  @Test func examples() {
    let json = [("content-type", "application/connect+json")]
    let request = aRequest(.clientStream, subtype: "json")
    #expect(sent(Array("{\"name\": \"Buf\"}".utf8), by: framing(request)) == frame(0, "{\"name\": \"Buf\"}"))
    let greeting = "{\"greeting\": \"Hello, Buf and Connect!\"}"
    let body = frame(0, greeting) + frame(2, "{}")
    let seen = playAnyhow(WireAnswer(fields: json, body: body)) { framing(request) }
    #expect(seen == Seen(headers: [], messages: [Array(greeting.utf8)]))
    let failed = frame(2, "{\"error\": {\"code\": \"unavailable\", \"message\": \"overloaded\"}}")
    let status = playAnyhow(WireAnswer(fields: ConnectStreamTests.proto, body: failed)) { framing() }
    #expect(status == Seen(headers: [], code: .unavailable, message: "overloaded"))
    let metadata = """
      {
        "error": {
          "code": "unavailable"
        },
        "metadata": {
          "acme-operation-cost": ["237"]
        }
      }
      """
    let costly = play(WireAnswer(fields: ConnectStreamTests.proto, body: frame(2, metadata)), to: framing())
    #expect(costly == Seen(headers: [], code: .unavailable, trailers: ["acme-operation-cost: 237"]))
  }

  @Test func trailersAndCompression() {
    let end = """
      {"metadata": {"X-A": ["1", "2"], "x-bin": ["AQI", "AwQ="], "connect-x": ["3"], "bad name": ["4"],
       "x-b": "no array", "x-c": [5, null, "6"], "grpc-status": ["7"], "x-d": ["a\\nb"], "x-\\u0065": ["\\u00e9"]}}
      """
    let long = [UInt8](repeating: 7, count: 900)
    let body = frame(1, gzipped(long)) + frame(0, [1]) + frame(3, gzipped(Array(end.utf8)))
    let fields = ConnectStreamTests.proto + [("connect-content-encoding", "gzip"), ("x-h", "1")]
    let seen = playAnyhow(WireAnswer(fields: fields, body: body)) { framing() }
    #expect(
      seen
        == Seen(
          headers: ["x-h: 1"], messages: [long, [1]],
          trailers: ["x-a: 1", "x-a: 2", "x-bin: \u{1}\u{2}", "x-bin: \u{3}\u{4}", "x-c: 6", "x-e: \u{e9}"]))
    let plain = play(WireAnswer(fields: ConnectStreamTests.proto, body: body), to: framing())
    #expect(
      plain.code == .internal
        && plain.message
          == "the compressed flag of a received message is set, but there is no connect-content-encoding"
    )
  }

  struct End: Sendable {
    let json: String
    let code: StatusCode
    var message = ""
    var details = 0
  }

  /// These rows include the cases of Connect's conformance suite: null-error, null-code, missing-code,
  /// unrecognized-code, allow-unrecognized-fields.
  @Test(arguments: [
    End(json: "{}", code: .ok), End(json: " { } ", code: .ok), End(json: "{\"error\": null}", code: .ok),
    End(json: "{\"error\": {}}", code: .unknown),
    End(json: "{\"error\": 5}", code: .unknown),
    End(json: "{\"error\": {\"code\": null, \"message\": \"oops\"}}", code: .unknown, message: "oops"),
    End(json: "{\"error\": {\"message\": \"oops\"}}", code: .unknown, message: "oops"),
    End(json: "{\"error\": {\"code\": \"foobar\", \"message\": \"oops\"}}", code: .unknown, message: "oops"),
    End(json: "{\"error\": {\"code\": \"ok\"}}", code: .unknown),
    End(json: "{\"code\": \"out_of_range\", \"message\": \"oops\"}", code: .ok),
    End(
      json: """
        {"error": {"code": "out_of_range", "message": "oops", "foobar": [1, {"a": -0.5e+3}], "details": [
          {"type": "google.protobuf.FileDescriptorProto", "value": "Cgp0ZXN0LnByb3Rv", "frob": "nitz",
           "debug": {"name": "test.proto", "foobar": true}}]}}
        """, code: .outOfRange, message: "oops", details: 1),
    End(json: "{\"error\": {\"code\": \"aborted\"}, \"error\": {\"code\": \"not_found\"}}", code: .notFound),
    End(json: "{\"error\": {\"code\": \"aborted\", \"message\": 5, \"details\": {}}}", code: .aborted),
    End(
      json: "{\"error\": {\"code\": \"data_loss\", \"message\": \"\\ud83d\\ude00\\u00e9\\n\"}}",
      code: .dataLoss, message: "😀é\n"),
  ])
  func ends(_ end: End) {
    let seen = playAnyhow(WireAnswer(fields: ConnectStreamTests.proto, body: frame(2, end.json))) {
      framing()
    }
    #expect(seen.code == end.code && seen.message == end.message)
    #expect(seen.trailers.count == end.details)
  }

  @Test(arguments: [
    "", " ", "null", "5", "[]", "\"x\"", "{", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,}", "{,}", "{a:1}",
    "{\"a\" 1}",
    "{}}", "{} x", "{\"a\": 01}", "{\"a\": 1.}", "{\"a\": .5}", "{\"a\": 1e}", "{\"a\": - 1}", "{\"a\": nul}",
    "{\"a\": tru}",
    "{\"a\": \"\\x\"}", "{\"a\": \"\\u12g4\"}", "{\"a\": \"\u{1}\"}", "{\"a\": \"\\", "{\"a\": [1 2]}",
    "{\"a\": [1,]}",
    "{\"error\": {\"code\": \"aborted\"}", "{\"a\":}", "{\"a\": +1}", "{\u{0}}",
  ])
  func malformedEnds(_ json: String) {
    let seen = playAnyhow(WireAnswer(fields: ConnectStreamTests.proto, body: frame(2, json))) { framing() }
    #expect(seen.code == .internal && seen.message == "the end of the stream is malformed JSON", "\(json)")
  }

  /// Deeply nested JSON is refused. Large JSON is read, in a time that grows only with its size.
  @Test func hostileEnds() {
    func code(_ json: String) -> StatusCode {
      play(WireAnswer(fields: ConnectStreamTests.proto, body: frame(2, json)), to: framing()).code
    }
    func nested(_ depth: Int) -> String {
      "{\"a\": " + String(repeating: "[", count: depth) + String(repeating: "]", count: depth) + "}"
    }
    #expect(code(nested(63)) == .ok)
    #expect(code(nested(64)) == .internal)
    #expect(code(nested(100_000)) == .internal)
    #expect(code(String(repeating: "[{\"a\":", count: 100_000)) == .internal)
    #expect(
      code(
        "{\"a\": " + String(repeating: "9", count: 100_000) + "e" + String(repeating: "9", count: 1000) + "}")
        == .ok)
    let many = "{\"metadata\": {\"x\": [" + String(repeating: "\"\",", count: 5000) + "\"\"]}}"
    #expect(code(many) == .resourceExhausted)
    // The time for ten thousand details must grow with their number, not with its square.
    let detail = "{\"type\": \"a.B\", \"value\": \"AQI\"}"
    let details =
      "{\"error\": {\"code\": \"aborted\", \"details\": [" + String(repeating: detail + ",", count: 10_000)
      + detail + "]}}"
    #expect(code(details) == .resourceExhausted)
    // Message, details and metadata count together.
    func end(_ message: Int, _ details: Int, _ metadata: Int) -> String {
      "{\"error\": {\"code\": \"aborted\", \"message\": \"" + String(repeating: "m", count: message)
        + "\", \"details\": [{\"type\": \"a.B\", \"value\": \""
        + String(repeating: "AQID", count: details / 3)
        + "\"}]}, \"metadata\": {\"x\": [\"" + String(repeating: "v", count: metadata) + "\"]}}"
    }
    #expect(code(end(20_000, 21_000, 20_000)) == .aborted)
    #expect(code(end(64_000, 0, 0)) == .aborted && code(end(0, 63_000, 0)) == .aborted)
    #expect(code(end(0, 0, 64_000)) == .aborted)
    #expect(code(end(22_000, 22_500, 22_000)) == .resourceExhausted)
    #expect(code(end(66_000, 0, 0)) == .resourceExhausted && code(end(0, 66_000, 0)) == .resourceExhausted)
    #expect(code(end(0, 0, 66_000)) == .resourceExhausted)
    // Of two errors one that is none does not hide the other.
    #expect(code("{\"error\": {\"code\": \"aborted\"}, \"error\": null}") == .aborted)
  }

  struct Broken: Sendable {
    let name: String
    var status = "200"
    var type = "application/connect+proto"
    var body: [UInt8] = []
    let code: StatusCode
  }

  @Test(arguments: [
    Broken(name: "nothing", code: .internal),
    Broken(name: "no end", body: frame(0, [1]), code: .internal),
    Broken(name: "a flag", body: frame(4, [1]), code: .internal),
    Broken(name: "gRPC-Web's flag", body: frame(0x80, "grpc-status: 0\r\n"), code: .internal),
    Broken(name: "more behind the end", body: frame(2, "{}") + [0], code: .internal),
    Broken(name: "another end", body: frame(2, "{}") + frame(2, "{}"), code: .internal),
    Broken(name: "type", type: "image/jpeg", code: .unknown),
    Broken(name: "unary type", type: "application/proto", code: .unknown),
    Broken(name: "codec", type: "application/connect+json", body: frame(2, "{}"), code: .internal),
    Broken(name: "404", status: "404", code: .unimplemented),
    Broken(name: "401", status: "401", code: .unauthenticated),
    Broken(name: "403", status: "403", type: "application/json", code: .permissionDenied),
    Broken(name: "429", status: "429", code: .unavailable),
    Broken(name: "502", status: "502", code: .unavailable),
    Broken(name: "503", status: "503", code: .unavailable),
    Broken(name: "504", status: "504", code: .unavailable),
    Broken(name: "431", status: "431", code: .unknown),
    Broken(name: "400", status: "400", code: .internal), Broken(name: "500", status: "500", code: .unknown),
    Broken(name: "204", status: "204", code: .unknown), Broken(name: "307", status: "307", code: .unknown),
    Broken(name: "800", status: "800", code: .unknown),
  ])
  func broken(_ row: Broken) {
    let answer = WireAnswer(status: row.status, fields: [("content-type", row.type)], body: row.body)
    #expect(playAnyhow(answer) { framing() }.code == row.code)
  }

  @Test func headThatEndsTheStream() {
    let answer = WireAnswer(fields: ConnectStreamTests.proto, end: .trailers, endsWithHead: true)
    #expect(
      play(answer, to: framing())
        == Seen(code: .internal, message: "the body ended without its last frame, which has the status"))
    // A "grpc-status" has no meaning in Connect.
    let grpc = WireAnswer(fields: ConnectStreamTests.proto + [("grpc-status", "5")], endsWithHead: true)
    #expect(play(grpc, to: framing()).code == .internal)
  }

  @Test func cutAnywhere() {
    let body = frame(0, [1, 2, 3]) + frame(2, "{\"metadata\": {\"a\": [\"1\"]}}")
    for count in 0..<body.count {
      let part = Array(body.prefix(count))
      let ended = play(WireAnswer(fields: ConnectStreamTests.proto, body: part), to: framing())
      #expect(ended.code == .internal)
      let lost = play(
        WireAnswer(fields: ConnectStreamTests.proto, body: part, end: .lost(bytes("gone"))), to: framing())
      #expect(lost.code == .unavailable && lost.message == "gone")
    }
    let complete = WireAnswer(fields: ConnectStreamTests.proto, body: body, end: .reset(bytes("why")))
    #expect(play(complete, to: framing()).code == .ok)
  }

  @Test func randomBytes() {
    var random = SplitMix(state: 2)
    let parts = [
      "{", "}", "[", "]", "\"", ":", ",", "\\u", "d8", "00", "error", "\"code\"", "1", "e", "-", "null", " ",
    ]
    for _ in 0..<5000 {
      let json = (0..<Int.random(in: 0..<20, using: &random)).map { _ in parts.randomElement(using: &random)!
      }
      let body = frame(2, json.joined())
      _ = play(WireAnswer(fields: ConnectStreamTests.proto, body: body), to: framing())
      let noise = (0..<30).map { _ in [0, 1, 2, 3, 4, 255].randomElement(using: &random)! as UInt8 }
      let fields = ConnectStreamTests.proto + [("connect-content-encoding", "gzip")]
      _ = play(WireAnswer(fields: fields, body: noise), to: framing(), cuts: [7])
    }
  }
}
