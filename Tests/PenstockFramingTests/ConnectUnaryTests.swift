import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP
@testable import PenstockFraming

/// Tests of Connect's unary calls, ordered by the sections "Unary-Request", "Unary-Get-Request" and
/// "Unary-Response" of Connect's document.
@Suite struct ConnectUnaryTests {
  static let proto = [("content-type", "application/proto")]
  static let json = [("content-type", "application/json")]
  let defaults = someDefaults(.connect)

  func framing(_ request: Request = aRequest(), _ defaults: RequestDefaults? = nil) -> ConnectUnaryFraming {
    ConnectUnaryFraming(request, defaults ?? self.defaults)
  }

  /// Makes a request for a method without side effects, so that the request may be sent as a GET.
  func reading(
    _ fields: [(String, String)] = [], subtype: String? = nil, deadline: UInt64? = nil,
    _ change: (inout CallSettings) -> Void = { _ in }
  ) -> Request {
    aRequest(.unary, fields, subtype: subtype, deadline: deadline) {
      $0.idempotency = .noSideEffects
      change(&$0)
    }
  }

  // MARK: POST

  @Test func post() {
    let request = aRequest(
      .unary, [("x-a", "1"), ("x-bin", "\u{1}\u{2}"), ("connect-x", "2"), ("content-encoding", "br")],
      deadline: 5_500_000_000)
    let framing = framing(request)
    #expect(framing.opening == .whole)
    #expect(sent([1, 2, 3], by: framing) == [1, 2, 3] && framing.messagesInHeaders == 0)
    #expect(
      lines(framing, request, defaults, now: 500_000_000) == [
        ":method: POST", ":scheme: https", ":path: /a.B/C", ":authority: host:1", "connect-timeout-ms: 5000",
        "content-length: 3", "connect-protocol-version: 1", "content-type: application/proto",
        "accept-encoding: gzip,deflate", "user-agent: penstock/1", "x-a: 1", "x-bin: AQI",
      ])
  }

  @Test func emptyMessage() {
    let framing = framing()
    #expect(sent([], by: framing) == nil && framing.messagesInHeaders == 1)
    #expect(lines(framing, aRequest(), defaults)[4] == "content-length: 0")
    // A unary call has only one message, so a second message must be refused.
    guard case .failed = framing.encode(buffer([1])) else {
      Issue.record("two messages")
      return
    }
  }

  @Test func compression() {
    let request = aRequest(subtype: "json") { $0.compression = .gzip }
    let long = [UInt8](repeating: 7, count: 300_000)
    let packs = framing(request)
    let packed = gzipped(long)
    #expect(sent(long, by: packs) == packed)
    #expect(
      lines(packs, request, someDefaults(.connect, prefix: "/v1")) == [
        ":method: POST", ":scheme: https", ":path: /v1/a.B/C", ":authority: host:1",
        "content-length: \(packed.count)", "connect-protocol-version: 1", "content-type: application/json",
        "content-encoding: gzip", "accept-encoding: gzip,deflate", "user-agent: penstock/1",
      ])
    // A message that compression does not make smaller, and a message with `staysPlain`, are sent
    // uncompressed.
    let small = framing(request)
    #expect(sent([1], by: small) == [1])
    #expect(!lines(small, request, defaults).contains("content-encoding: gzip"))
    let plain = buffer(long)
    plain.staysPlain = true
    let stays = framing(request)
    guard case .piece(let piece) = stays.encode(plain) else {
      Issue.record("packed")
      return
    }
    #expect(flatten(piece) == long && !lines(stays, request, defaults).contains("content-encoding: gzip"))
  }

  // MARK: GET

  func path(_ request: Request, _ message: [UInt8], _ defaults: RequestDefaults? = nil) -> String {
    let defaults = defaults ?? self.defaults
    let framing = framing(request, defaults)
    _ = sent(message, by: framing)
    return String(lines(framing, request, defaults)[2].dropFirst(7))
  }

  /// "Clients should order parameters as shown in the Query-Get rule".
  @Test func get() {
    let request = reading([("x-a", "1")], deadline: 2_000_000)
    let framing = framing(request)
    guard case .inHeaders(let size, let wireSize) = framing.encode(buffer([0xFB, 0xFF, 1, 2])) else {
      Issue.record("a POST")
      return
    }
    #expect(size == 4 && wireSize == 6 && framing.messagesInHeaders == 1)
    #expect(
      lines(framing, request, defaults) == [
        ":method: GET", ":scheme: https",
        ":path: /a.B/C?connect=v1&base64=1&encoding=proto&message=-_8BAg", ":authority: host:1",
        "connect-timeout-ms: 2", "accept-encoding: gzip,deflate", "user-agent: penstock/1", "x-a: 1",
      ])
    let list = FieldList()
    #expect(framing.requestHeaders(request, defaults, now: 0, into: list) && list.hasNoBody)
    request.labels = RequestLabels(authority: bytes("other\0"), contentType: nil, userAgent: bytes("me\0"))
    let labelled = lines(framing, request, defaults)
    #expect(labelled[3] == ":authority: other" && labelled[6] == "user-agent: me")
  }

  @Test func parameters() {
    #expect(path(reading(), []) == "/a.B/C?connect=v1&base64=1&encoding=proto&message=")
    // The message of the example in Connect's document.
    #expect(
      path(reading(subtype: "json"), Array("{\"name\":\"Buf\"}".utf8))
        == "/a.B/C?connect=v1&encoding=json&message=%7B%22name%22%3A%22Buf%22%7D")
    #expect(
      path(reading(subtype: "x"), Array("aZ09-._~ /?&=%+é".utf8))
        == "/a.B/C?connect=v1&encoding=x&message=aZ09-._~%20%2F%3F%26%3D%25%2B%C3%A9")
    // A text that is not valid UTF-8 is sent in base64.
    #expect(path(reading(subtype: "x"), [0xFF, 1]) == "/a.B/C?connect=v1&base64=1&encoding=x&message=_wE")
    #expect(path(reading(), [1], someDefaults(.connect, prefix: "/p/q")).hasPrefix("/p/q/a.B/C?connect=v1&"))
  }

  @Test func whenItIsAGET() {
    func isGET(_ request: Request, _ defaults: RequestDefaults? = nil) -> Bool {
      path(request, [1], defaults).contains("?")
    }
    #expect(isGET(reading()))
    #expect(!isGET(aRequest()) && !isGET(aRequest { $0.idempotency = .idempotent }))
    #expect(!isGET(reading { $0.allowsGET = false }))
    #expect(!isGET(reading(), someDefaults(.connect, mostURLBytes: 0)))
    for rpc in [RPCProtocol.grpc, .grpcWeb, .grpcWebText] { #expect(!rpc.wantsGET(reading())) }
    for kind in [CallKind.bidi, .clientStream, .serverStream] {
      #expect(!RPCProtocol.connect.wantsGET(aRequest(kind) { $0.idempotency = .noSideEffects }))
    }
    #expect(RPCProtocol.connect.wantsGET(reading()))
  }

  /// The limit on the URL applies to the target's prefix, the method's path and the query together.
  @Test func mostURLBytes() {
    let message = [UInt8](repeating: 7, count: 100)
    for prefix in [nil, "/v1"] {
      let whole = path(reading(), message, someDefaults(.connect, prefix: prefix)).utf8.count
      for (most, isGET) in [(whole, true), (whole - 1, false), (whole + 1, true), (99, false)] {
        let defaults = someDefaults(.connect, prefix: prefix, mostURLBytes: most)
        let request = reading()
        let framing = framing(request, defaults)
        #expect((sent(message, by: framing) == nil) == isGET)
        #expect(lines(framing, request, defaults)[0] == (isGET ? ":method: GET" : ":method: POST"))
        #expect(request.settings.getUse == (isGET ? .sent : .passedOver))
        #expect(lines(framing, request, defaults).contains("content-length: 100") == !isGET)
      }
    }
  }

  /// A message that fits into the URL is not compressed, so that caches see only one URL for it. A larger
  /// message is compressed, and may fit then.
  @Test func compressedGET() {
    let long = [UInt8](repeating: 7, count: 10_000)
    let request = reading { $0.compression = .gzip }
    #expect(!path(request, [1, 2, 3]).contains("compression"))
    let made = path(request, long)
    #expect(made.hasPrefix("/a.B/C?connect=v1&base64=1&compression=gzip&encoding=proto&message="))
    // If the compressed message is still too long for the URL, the request is a POST with the compressed
    // message.
    let framing = framing(request, someDefaults(.connect, mostURLBytes: 80))
    #expect(sent(long, by: framing) == gzipped(long))
    #expect(lines(framing, request, defaults).contains("content-encoding: gzip"))
  }

  // MARK: Answers

  @Test func answers() {
    let fields =
      ConnectUnaryTests.proto + [
        ("x-h", "1"), ("trailer-x-t", "2"), ("trailer-x-bin", "AQI"), ("x-bin", "AwQ="), ("connect-x", "3"),
        ("trailer-connect-y", "4"), ("accept-encoding", "gzip"), ("trailer-", "5"),
        // A malformed trailer is left out, as in the other protocols. A malformed header ends the call.
        ("trailer-y-bin", "A*"),
      ]
    let expected = Seen(
      headers: ["x-h: 1", "x-bin: \u{3}\u{4}", "trailer-: 5"], messages: [[1, 2, 3]],
      trailers: ["x-t: 2", "x-bin: \u{1}\u{2}"])
    #expect(playAnyhow(WireAnswer(fields: fields, body: [1, 2, 3])) { framing() } == expected)
    let measured = WireAnswer(fields: fields + [("content-length", "3")], body: [1, 2, 3], end: .trailers)
    #expect(playAnyhow(measured) { framing() } == expected)
    let broken = play(WireAnswer(fields: fields + [("x-bin", "A*")], body: [1, 2, 3]), to: framing())
    #expect(broken.code == .internal && broken.message == "the response header \"x-bin\" is not base64")
  }

  @Test func emptyAnswers() {
    let expected = Seen(headers: [], messages: [[]])
    // "Clients must not attempt to decompress zero-length HTTP response content."
    for more in [[], [("content-length", "0")], [("content-encoding", "gzip")]] {
      let fields = ConnectUnaryTests.proto + more
      #expect(play(WireAnswer(fields: fields), to: framing()) == expected)
      #expect(play(WireAnswer(fields: fields, end: .trailers, endsWithHead: true), to: framing()) == expected)
    }
  }

  @Test func compressedAnswers() {
    let long = [UInt8](repeating: 7, count: 900)
    let fields = ConnectUnaryTests.proto + [("content-encoding", "gzip")]
    let answer = WireAnswer(fields: fields, body: gzipped(long))
    #expect(playAnyhow(answer) { framing() } == Seen(headers: [], messages: [long]))
    // RFC 9110 section 8.4.1: "All content codings are case-insensitive", and "x-gzip" is "gzip".
    for (name, body) in [
      ("GZip", gzipped(long)), ("x-gzip", gzipped(long)), ("", long), ("Identity", long),
    ] {
      let other = WireAnswer(fields: ConnectUnaryTests.proto + [("content-encoding", name)], body: body)
      #expect(play(other, to: framing()) == Seen(headers: [], messages: [long]), "\(name)")
    }
    let broken = play(WireAnswer(fields: fields, body: [1, 2, 3]), to: framing())
    #expect(broken.code == .internal && broken.message == "a received message is not valid gzip")
    let small = aRequest { $0.maxReceiveBytes = 899 }
    #expect(play(answer, to: framing(small)).code == .resourceExhausted)
    let other = play(
      WireAnswer(fields: ConnectUnaryTests.proto + [("content-encoding", "br")], body: [1]), to: framing())
    #expect(other.code == .internal && other.headers == nil)
  }

  @Test func tooLarge() {
    let request = aRequest { $0.maxReceiveBytes = 10 }
    let body = [UInt8](repeating: 1, count: 11)
    for end in [10, 11] {
      let part = Array(body.prefix(end))
      for fields in [[], [("content-length", "\(end)")]] {
        let answer = WireAnswer(fields: ConnectUnaryTests.proto + fields, body: part)
        #expect(playAnyhow(answer) { framing(request) }.code == (end == 10 ? .ok : .resourceExhausted))
      }
    }
    let boundless = aRequest { $0.maxReceiveBytes = .max }
    #expect(
      play(WireAnswer(fields: ConnectUnaryTests.proto, body: body), to: framing(boundless)).messages == [body]
    )
  }

  struct Failed: Sendable {
    var status = "401"
    let json: String
    let code: StatusCode
    var message: String?
  }

  /// These rows include the cases of Connect's conformance suite: null, null-code, missing-code,
  /// unrecognized-code, allow-unrecognized-fields.
  @Test(arguments: [
    Failed(json: "null", code: .unauthenticated), Failed(json: "", code: .unauthenticated),
    Failed(json: "{", code: .unauthenticated), Failed(json: "<html>", code: .unauthenticated),
    Failed(json: "{\"code\": \"aborted\"} x", code: .unauthenticated),
    Failed(json: "{\"code\": null, \"message\": \"oops\"}", code: .unauthenticated, message: "oops"),
    Failed(json: "{\"message\": \"oops\"}", code: .unauthenticated, message: "oops"),
    Failed(
      status: "429", json: "{\"code\": \"foobar\", \"message\": \"oops\"}", code: .unavailable,
      message: "oops"),
    Failed(
      status: "422", json: "{\"code\": \"out_of_range\", \"message\": \"oops\", \"foobar\": \"baz\"}",
      code: .outOfRange, message: "oops"),
    // The code in the JSON is used, and not the HTTP status.
    Failed(status: "500", json: "{\"code\": \"not_found\"}", code: .notFound, message: ""),
    Failed(status: "204", json: "{\"code\": \"not_found\"}", code: .notFound, message: ""),
    Failed(
      status: "501", json: "{\"code\": \"unimplemented\", \"message\": \"é\"}", code: .unimplemented,
      message: "é"),
  ])
  func errors(_ row: Failed) {
    let fields = [("content-type", "application/json; charset=utf-8"), ("x-h", "1"), ("trailer-x-t", "2")]
    let seen = playAnyhow(WireAnswer(status: row.status, fields: fields, body: Array(row.json.utf8))) {
      framing()
    }
    let words = row.message ?? "the answer has no error that can be read: HTTP status \(row.status)"
    #expect(seen == Seen(code: row.code, message: words, trailers: ["x-h: 1", "x-t: 2"]))
    // Compressed as a whole.
    let packed = WireAnswer(
      status: row.status, fields: fields + [("content-encoding", "gzip")],
      body: row.json.isEmpty ? [] : gzipped(Array(row.json.utf8)))
    #expect(playAnyhow(packed) { framing() } == seen)
  }

  @Test(
    arguments: [
      ("canceled", .cancelled), ("unknown", .unknown), ("invalid_argument", .invalidArgument),
      ("deadline_exceeded", .deadlineExceeded), ("not_found", .notFound), ("already_exists", .alreadyExists),
      ("permission_denied", .permissionDenied), ("resource_exhausted", .resourceExhausted),
      ("failed_precondition", .failedPrecondition), ("aborted", .aborted), ("out_of_range", .outOfRange),
      ("unimplemented", .unimplemented), ("internal", .internal), ("unavailable", .unavailable),
      ("data_loss", .dataLoss), ("unauthenticated", .unauthenticated),
      // These are not codes of Connect, so the HTTP status is used.
      ("ok", .unavailable), ("OK", .unavailable), ("NOT_FOUND", .unavailable), ("", .unavailable),
      ("5", .unavailable),
    ] as [(String, StatusCode)])
  func codes(_ name: String, _ code: StatusCode) {
    let body = Array("{\"code\": \"\(name)\"}".utf8)
    #expect(
      play(WireAnswer(status: "503", fields: ConnectUnaryTests.json, body: body), to: framing()).code == code)
  }

  /// The details of an error are in the trailers in the form that gRPC uses: a google.rpc.Status in
  /// "grpc-status-details-bin".
  @Test func details() throws {
    let json = """
      {"details": [
        {"type": "google.rpc.RetryInfo", "value": "CgIIPA", "debug": {"retryDelay": "30s"}},
        {"type": "example.com/t/a.B", "value": "AQI="}, {"type": "x", "value": "!"}, {"value": "AQI"}, 5, {"type": "y"},
        {"type": "z", "value": 5}, {"type": "z", "value": null}, {"type": "z", "value": ["AQI="]}, {"type": 5, "value": "AQI="}
      ], "code": "unavailable", "message": "overloaded: back off and retry"}
      """
    let seen = playAnyhow(WireAnswer(status: "503", fields: ConnectUnaryTests.json, body: Array(json.utf8))) {
      framing()
    }
    let expected = Status(.unavailable, "overloaded: back off and retry")
    for (url, value) in [
      ("type.googleapis.com/google.rpc.RetryInfo", [0x0A, 2, 8, 60] as [UInt8]),
      ("example.com/t/a.B", [1, 2]),
      ("type.googleapis.com/y", []),
    ] {
      let (url, value) = (bytes(url), buffer(value))
      #expect(expected.addDetail(typeURL: url.view, value: value.view))
    }
    let encoded = ByteBuffer()
    #expect(expected.encodeDetails(into: encoded))
    let status = Status(.unavailable)
    let raw = Array(json.utf8)
    #expect(raw.withUnsafeBytes { ConnectJSON.read(error: $0, into: status) })
    #expect(status.detailCount == 3 && !status.detailsAreMalformed)
    let first = try #require(status.detail(at: 0))
    #expect(
      text(first.typeURL) == "type.googleapis.com/google.rpc.RetryInfo"
        && [UInt8](first.value) == [0x0A, 2, 8, 60])
    let field = try #require(value(status.trailers, "grpc-status-details-bin"))
    // An encoder may write an empty value as a field, or leave the field out.
    #expect(field == [UInt8](encoded.view) || field.count == encoded.count + 2)
    #expect(seen.code == .unavailable && seen.message == "overloaded: back off and retry")
  }

  @Test(
    arguments: [
      ("200", "image/jpeg", .unknown), ("200", "application/json", .internal),
      ("200", "application/grpc", .internal),
      ("200", "text/html", .unknown), ("200", nil, .unknown), ("200", "application/connect+proto", .internal),
      ("400", "text/html", .internal), ("401", nil, .unauthenticated),
      ("403", "application/proto", .permissionDenied),
      ("404", "text/plain", .unimplemented), ("408", nil, .unknown), ("412", nil, .unknown),
      ("413", nil, .unknown),
      ("429", nil, .unavailable), ("431", nil, .unknown), ("500", nil, .unknown), ("502", nil, .unavailable),
      ("503", nil, .unavailable), ("504", nil, .unavailable), ("301", nil, .unknown), ("304", nil, .unknown),
      ("206", "application/proto", .unknown),
    ] as [(String, String?, StatusCode)])
  func foreignAnswers(_ status: String, _ type: String?, _ code: StatusCode) {
    let fields = (type.map { [("content-type", $0)] } ?? []) + [("x-h", "1")]
    let seen = playAnyhow(WireAnswer(status: status, fields: fields, body: [1, 2])) { framing() }
    #expect(seen.code == code && seen.headers == nil && seen.messages == [] && seen.trailers == ["x-h: 1"])
    #expect(
      seen.message.hasPrefix("the answer is not Connect") && seen.message.contains("HTTP status \(status)"))
    // If the encoding is wrong, the text names the expected one.
    #expect(seen.message.contains("encoding \"proto\"") == (code == .internal && status == "200"))
  }

  @Test(arguments: [
    "application/json", "Application/JSON", "application/json; charset=utf-8", "application/json;x",
  ])
  func typesThatFit(_ type: String) {
    let request = aRequest(subtype: "json")
    let seen = play(WireAnswer(fields: [("content-type", type)], body: [1]), to: framing(request))
    #expect(seen.messages == [[1]] && seen.code == .ok)
  }

  @Test func errorWithoutBody() {
    let fields = ConnectUnaryTests.json + [("trailer-x-t", "2")]
    let seen = play(
      WireAnswer(status: "503", fields: fields, end: .trailers, endsWithHead: true), to: framing())
    #expect(
      seen
        == Seen(
          code: .unavailable, message: "the answer has no error that can be read: HTTP status 503",
          trailers: ["x-t: 2"]))
    let other = WireAnswer(
      status: "403", fields: ConnectUnaryTests.json + [("content-encoding", "br")], body: [1])
    #expect(play(other, to: framing()).code == .permissionDenied)
  }

  /// A body that is cut off is recognised by the announced length, or by the end of the stream. If the HTTP
  /// status is an error, the status for it stays, unless the body was lost for lack of memory.
  @Test func cutAnywhere() {
    let body: [UInt8] = [1, 2, 3, 4, 5]
    for count in 0..<body.count {
      let fields = ConnectUnaryTests.proto + [("content-length", "5")]
      let part = Array(body.prefix(count))
      #expect(play(WireAnswer(fields: fields, body: part), to: framing()).code != .ok)
      let lost = WireAnswer(fields: ConnectUnaryTests.proto, body: part, end: .lost(bytes("gone")))
      let seen = play(lost, to: framing())
      #expect(seen.code == .unavailable && seen.message == "gone" && seen.messages == [])
    }
    let json = Array("{\"code\": \"aborted\"}".utf8)
    for count in 0..<json.count {
      for end in [StreamEnd.body, .lost(bytes("gone"))] {
        let answer = WireAnswer(
          status: "403", fields: ConnectUnaryTests.json, body: Array(json.prefix(count)), end: end)
        #expect(play(answer, to: framing()).code == .permissionDenied)
      }
      let dropped = WireAnswer(
        status: "403", fields: ConnectUnaryTests.json, body: Array(json.prefix(count)), end: .noMemory)
      #expect(play(dropped, to: framing()).code == .resourceExhausted)
    }
  }

  /// An error whose body exceeds the limit, as it was sent or decompressed, ends the call with RESOURCE_EXHAUSTED. If
  /// it does not decompress, the HTTP status is used.
  @Test func hostileErrors() {
    let request = aRequest { $0.maxReceiveBytes = 10 }
    func code(_ json: String, _ more: [(String, String)] = [], packed: Bool = false) -> StatusCode {
      let body = packed ? gzipped(Array(json.utf8)) : Array(json.utf8)
      let answer = WireAnswer(status: "403", fields: ConnectUnaryTests.json + more, body: body)
      return play(answer, to: framing(request), cuts: Array(stride(from: 0, to: body.count, by: 1000))).code
    }
    let long = "{\"code\": \"aborted\", \"message\": \"" + String(repeating: "x", count: 20_000) + "\"}"
    #expect(code("{\"code\": \"aborted\"}") == .aborted)
    #expect(code(long) == .resourceExhausted)
    #expect(code(long, [("content-length", "\(long.utf8.count)")]) == .resourceExhausted)
    #expect(code(long, [("content-encoding", "gzip")], packed: true) == .resourceExhausted)
    #expect(code("{\"code\": \"aborted\"}", [("content-encoding", "gzip")]) == .permissionDenied)
  }

  /// A body is taken before the call has asked for it if it is there as a whole. Without a length its first part counts as the
  /// whole, if it is short; what comes later does not.
  @Test(arguments: [3, -1]) func readsAhead(_ length: Int) {
    let framing = framing()
    let block = HeaderBlock()
    for (name, value) in [(":status", "200"), ("content-type", "application/proto")] {
      let (name, value) = (bytes(name), bytes(value))
      block.add(name.view, value.view, limit: .max)
    }
    block.length = length
    guard case .headers = framing.responseHeaders(block, endsStream: false) else {
      Issue.record("no headers")
      return
    }
    func begins(_ count: Int) -> Bool {
      [UInt8](repeating: 7, count: count).withUnsafeBytes { framing.beginsWithMessage($0) }
    }
    if length == 3 {
      #expect(!begins(2) && begins(3) && framing.space()?.count == 3)
    } else {
      #expect(begins(1) && begins(4096) && !begins(4097) && framing.space() == nil)
      _ = [UInt8]([1, 2]).withUnsafeBytes { framing.decode($0) }
      #expect(!begins(1))
    }
  }
}
