import CPenstockNghttp2
import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP
@testable import PenstockLoop
@testable import PenstockFraming

/// Tests of the status that each header list gives, ordered by the sections of "gRPC over HTTP2", of the
/// document "HTTP to gRPC Status Code Mapping", and of RFC 9113.
@Suite struct FramingTests {
  func framing(compression: Compression = .identity, limit: Int = 1000) -> GRPCFraming {
    GRPCFraming(compression: compression, maxReceiveBytes: limit)
  }

  func fields(_ pairs: [(String, String)]) -> Metadata {
    let metadata = Metadata()
    for (name, value) in pairs {
      let name = bytes(name)
      let value = bytes(value)
      _ = metadata.add(name.view, value.view)
    }
    return metadata
  }

  func block(_ pairs: [(String, String)]) -> HeaderBlock {
    let block = HeaderBlock()
    for (name, value) in pairs {
      let name = bytes(name)
      let value = bytes(value)
      if !block.note(name.view, value.view, limit: .max) { block.add(name.view, value.view, limit: .max) }
    }
    #expect(block.finish())
    return block
  }

  func pairs(_ metadata: Metadata) -> [String] {
    (0..<metadata.count).map { "\(text(metadata.name(at: $0))!): \(text(metadata.value(at: $0))!)" }
  }

  func request(_ metadata: Metadata = Metadata(), deadline: UInt64? = nil) throws -> Request {
    let path = bytes("/a.B/C")
    return try #require(Request(kind: .unary, path: path.view, metadata: metadata, deadline: deadline))
  }

  // MARK: Requests

  @Test func requestHeaders() throws {
    let metadata = fields([
      ("x-a", "1"), ("x-bin", "\u{1}\u{2}"), ("x-a", "2"), ("user-agent", "mine"), ("grpc-x", "no"),
    ])
    let made = try #require(
      framing().requestHeaders(request(metadata, deadline: 1_500_000_000), now: 500_000_000))
    #expect(
      pairs(made) == [
        ":method: POST", ":scheme: http", ":path: /a.B/C", ":authority: host:1", "grpc-timeout: 1S",
        "te: trailers",
        "content-type: application/grpc", "grpc-accept-encoding: identity,gzip,deflate",
        "user-agent: penstock/1",
        "x-a: 1",
        "x-bin: AQI", "x-a: 2",
      ])
    let request = try request(deadline: 1)
    let authority = bytes("other")
    _ = request.setAuthority(authority.view)
    let late = try #require(framing(compression: .gzip).requestHeaders(request, now: 2, secure: true))
    #expect(
      pairs(late) == [
        ":method: POST", ":scheme: https", ":path: /a.B/C", ":authority: other", "grpc-timeout: 1n",
        "te: trailers",
        "content-type: application/grpc", "grpc-encoding: gzip",
        "grpc-accept-encoding: identity,gzip,deflate",
        "user-agent: penstock/1",
      ])
  }

  func flat(_ piece: BodyPiece) -> [UInt8] {
    let out = SendQueue(copies: true)
    #expect(piece.move(from: 0, count: piece.count, into: out))
    return [UInt8](out.bytes.view)
  }

  /// A piece is released when its bytes are sent, even while later pieces wait.
  @Test func piecesKeepTheirOrderAndNoMore() {
    final class Kept { weak var buffer: ByteBuffer? }
    var queue = PieceQueue()
    var kept: [Kept] = []
    var sent = 0
    for count in [5, 100, 200] {
      for _ in 0..<count {
        let bytes = buffer([UInt8(kept.count % 251)])
        kept.append(Kept())
        kept[kept.count - 1].buffer = bytes
        queue.append(BodyPiece(compressed: false, bytes, length: 1))
      }
      var order: [UInt8] = []
      queue.forEach { order.append($0.bytes.view[0]) }
      #expect(order == (sent..<kept.count).map { UInt8($0 % 251) })
      while sent < kept.count - 2 {
        let out = SendQueue(copies: true)
        #expect(queue.move(6, into: out) == 1 && out.bytes.view[5] == UInt8(sent % 251))
        sent += 1
        #expect(kept[sent - 1].buffer == nil && kept[sent].buffer != nil)
      }
    }
    #expect(queue.move(12, into: SendQueue(copies: true)) == 2)
    #expect(queue.bytes == 0 && kept.allSatisfy { $0.buffer == nil })
  }

  /// A `Field` has the memory layout of `nghttp2_nv`, so nghttp2 gets a list of fields without a conversion.
  @Test func fieldsHaveTheLayoutOfNghttp2() {
    typealias Theirs = nghttp2_nv
    #expect(MemoryLayout<Field>.stride == MemoryLayout<Theirs>.stride)
    #expect(MemoryLayout<Field>.offset(of: \.name) == MemoryLayout<Theirs>.offset(of: \.name))
    #expect(MemoryLayout<Field>.offset(of: \.value) == MemoryLayout<Theirs>.offset(of: \.value))
    #expect(MemoryLayout<Field>.offset(of: \.nameCount) == MemoryLayout<Theirs>.offset(of: \.namelen))
    #expect(MemoryLayout<Field>.offset(of: \.valueCount) == MemoryLayout<Theirs>.offset(of: \.valuelen))
    #expect(MemoryLayout<Field>.offset(of: \.hints) == MemoryLayout<Theirs>.offset(of: \.flags))
    #expect(UInt32(Field.Hints.comesOnce.rawValue) == NGHTTP2_NV_FLAG_NO_INDEX.rawValue)
    #expect(UInt32(Field.Hints.nameLasts.rawValue) == NGHTTP2_NV_FLAG_NO_COPY_NAME.rawValue)
    #expect(UInt32(Field.Hints.valueLasts.rawValue) == NGHTTP2_NV_FLAG_NO_COPY_VALUE.rawValue)
  }

  /// A framing may give a piece any prefix, or none.
  @Test func prefixesOfPieces() {
    let body = buffer([7, 8, 9])
    #expect(flat(BodyPiece(body)) == [7, 8, 9])
    #expect(flat(BodyPiece(prefix: 0x0201, size: 2, body)) == [1, 2, 7, 8, 9])
    let long = BodyPiece(prefix: 0x07_06_05_04_03_02_01, size: 7, body)
    #expect(long.count == 10 && flat(long) == [1, 2, 3, 4, 5, 6, 7, 7, 8, 9])
    for cut in 0...10 {
      let out = SendQueue(copies: true)
      #expect(long.move(from: 0, count: cut, into: out) && long.move(from: cut, count: 10 - cut, into: out))
      #expect([UInt8](out.bytes.view) == flat(long))
    }
  }

  @Test func messages() throws {
    guard case .piece(let plain) = framing().encode(buffer([1, 2, 3])) else { throw Unexpected() }
    #expect(flat(plain) == [0, 0, 0, 0, 3, 1, 2, 3])
    // "DATA frame boundaries have no relation to message boundaries": the bytes are equal wherever a frame
    // ends.
    for cut in 0...8 {
      let out = SendQueue(copies: true)
      #expect(plain.move(from: 0, count: cut, into: out) && plain.move(from: cut, count: 8 - cut, into: out))
      #expect([UInt8](out.bytes.view) == [0, 0, 0, 0, 3, 1, 2, 3])
    }
    guard
      case .piece(let packed) = framing(compression: .gzip).encode(buffer([UInt8](repeating: 1, count: 500)))
    else { throw Unexpected() }
    #expect(flat(packed)[0] == 1)
    #expect(packed.count < 100)
    // A message that compression does not make smaller is sent uncompressed.
    guard case .piece(let small) = framing(compression: .gzip).encode(buffer([1])) else { throw Unexpected() }
    #expect(flat(small) == [0, 0, 0, 0, 1, 1])
  }

  /// A message with `staysPlain` is not compressed, and is sent after an earlier message that takes long to
  /// compress.
  @Test func oneMessageStaysPlain() throws {
    func message(_ count: Int, isPlain: Bool) -> Message {
      let made = buffer([UInt8](repeating: 1, count: count))
      made.staysPlain = isPlain
      return made
    }
    let framing = framing(compression: .gzip)
    guard case .piece(let first) = framing.encode(message(500, isPlain: true)) else { throw Unexpected() }
    #expect(flat(first).prefix(5) == [0, 0, 0, 1, 244] && first.count == 505)
    let sent = [(200_000, false), (500, true), (600, true), (700, false)]
    for (count, isPlain) in sent {
      guard case .later = framing.encode(message(count, isPlain: isPlain)) else { throw Unexpected() }
    }
    var flags: [UInt8] = []
    while framing.isPacking {
      if case .piece(let piece) = framing.encodeNext() { flags.append(flat(piece)[0]) }
    }
    #expect(flags == [1, 0, 0, 1])
  }

  struct Unexpected: Error {}

  // MARK: Responses

  struct Row: CustomTestStringConvertible, Sendable {
    let fields: [(String, String)]
    let ends: Bool
    let code: StatusCode
    let words: String
    var testDescription: String { "\(fields)" }

    init(_ fields: [(String, String)], ends: Bool = true, _ code: StatusCode, _ words: String) {
      self.fields = fields
      self.ends = ends
      self.code = code
      self.words = words
    }
  }

  static let grpc = [(":status", "200"), ("content-type", "application/grpc")]

  @Test(arguments: [
    // The section "Responses": Trailers-Only.
    Row(grpc + [("grpc-status", "0")], .ok, ""),
    Row(grpc + [("grpc-status", "16"), ("grpc-message", "who%3F")], .unauthenticated, "who?"),
    Row(
      grpc + [("grpc-status", "5"), ("grpc-message", "bad %zz %E4 end%")], .notFound, "bad %zz \u{FFFD} end%"),
    Row(grpc + [("grpc-status", "17")], .unknown, "malformed or undefined grpc-status \"17\""),
    Row(grpc + [("grpc-status", "x")], .unknown, "malformed or undefined grpc-status \"x\""),
    Row(grpc + [("grpc-status", "")], .unknown, "malformed or undefined grpc-status \"\""),
    Row(grpc + [("grpc-status", "-1")], .unknown, "malformed or undefined grpc-status \"-1\""),
    Row(grpc + [("grpc-status", "2")], .unknown, ""),
    Row(grpc + [("grpc-status", "99999999999999999999"), ("grpc-message", "m")], .unknown, "m"),
    Row(grpc, .unknown, "the trailers have no grpc-status: HTTP status 200"),
    // The document "HTTP to gRPC Status Code Mapping": "If grpc-status was provided, it must be used".
    Row([(":status", "503"), ("grpc-status", "7")], .permissionDenied, ""),
    Row([(":status", "503"), ("grpc-status", "7")], ends: false, .permissionDenied, ""),
    Row([(":status", "400")], .internal, "the answer is not gRPC: HTTP status 400, no content-type"),
    Row(
      [(":status", "401"), ("content-type", "text/plain")], ends: false, .unauthenticated,
      "the answer is not gRPC: HTTP status 401, content-type \"text/plain\""),
    Row([(":status", "403")], .permissionDenied, "the answer is not gRPC: HTTP status 403, no content-type"),
    Row([(":status", "404")], .unimplemented, "the answer is not gRPC: HTTP status 404, no content-type"),
    Row([(":status", "429")], .unavailable, "the answer is not gRPC: HTTP status 429, no content-type"),
    Row([(":status", "431")], .internal, "the answer is not gRPC: HTTP status 431, no content-type"),
    Row([(":status", "502")], .unavailable, "the answer is not gRPC: HTTP status 502, no content-type"),
    Row([(":status", "504")], .unavailable, "the answer is not gRPC: HTTP status 504, no content-type"),
    Row([(":status", "500")], .unknown, "the answer is not gRPC: HTTP status 500, no content-type"),
    Row([(":status", "301")], .unknown, "the answer is not gRPC: HTTP status 301, no content-type"),
    Row([(":status", "2x0")], .unknown, "the answer is not gRPC: HTTP status 0, no content-type"),
    // PROTOCOL-HTTP2 mentions servers with "a variety of non-GRPC content-types".
    Row(
      [(":status", "200")], ends: false, .unknown, "the answer is not gRPC: HTTP status 200, no content-type"),
    Row(
      [(":status", "200"), ("content-type", "text/html\u{1}")], ends: false, .unknown,
      "the answer is not gRPC: HTTP status 200, content-type \"text/html.\""),
    Row(
      [(":status", "200"), ("content-type", "application/grpc-web")], ends: false, .unknown,
      "the answer is not gRPC: HTTP status 200, content-type \"application/grpc-web\""),
    Row(grpc + [("x-bin", "%")], ends: false, .internal, "the response header \"x-bin\" is not base64"),
  ])
  func ends(_ row: Row) throws {
    let status: Status
    switch framing().responseHeaders(block(row.fields), endsStream: row.ends) {
    case .ended(let ended), .foreign(let ended): status = ended
    case .informational, .headers, .statusInBody: throw Unexpected()
    }
    #expect(status.code == row.code)
    #expect(text(status.message) == row.words)
  }

  /// A header block stores the three usual fields only as bits (`Noted`). The test compares them with the
  /// fields of a list.
  @Test func headerBlocks() {
    let head = [(":status", "200"), ("content-type", "application/grpc")]
    let rows: [(fields: [(String, String)], head: Bool, trailers: Bool)] = [
      (head, true, false), (head.reversed(), false, false), ([("grpc-status", "0")], false, true),
      (head + [("x-a", "1")], false, false), (head + [head[1]], false, false), ([head[0]], false, false),
      (head + [("grpc-status", "0")], false, false), ([("grpc-status", "1")], false, false),
      ([("grpc-status", "0"), ("x-a", "1"), ("grpc-status", "0")], false, false), ([], false, false),
    ]
    let others = ["application/grpc-web+proto", "application/proto"].map { [head[0], ("content-type", $0)] }
    let further = others.flatMap { fields in
      [fields, fields.reversed(), fields + [head[1]], fields + [fields[1]], fields + [("grpc-status", "0")]]
    }
    for row in rows + further.map({ (fields: $0, head: false, trailers: false) }) {
      let block = block(row.fields)
      #expect(block.isPlainHead == row.head && block.isPlainTrailers == row.trailers)
      #expect(block.size == row.fields.reduce(0) { $0 + $1.0.utf8.count + $1.1.utf8.count + 32 })
      #expect(pairs(block.fields).sorted() == row.fields.map { "\($0.0): \($0.1)" }.sorted())
    }
    #expect(block(others[0]).isPlainHead(with: .web) && !block(others[0]).isPlainHead(with: .proto))
    #expect(block(others[1]).isPlainHead(with: .proto) && !block(others[1]).isPlainHead(with: .web))
    #expect(
      further.filter { block($0).isPlainHead(with: .web) || block($0).isPlainHead(with: .proto) }.count == 2)
  }

  /// The length of a body is noted behind a usual content-type, if its digits are the usual form of the number.
  @Test(arguments: [("7", true), ("0", true), ("10", true), ("07", false), ("00", false)])
  func lengths(_ digits: String, _ isNoted: Bool) {
    let fields = [(":status", "200"), ("content-type", "application/proto")]
    let value = bytes(digits)
    let block = block(fields)
    block.length = Int(digits)!
    #expect(!block.noteLength(value.view, limit: block.size + 45 + digits.utf8.count))
    #expect(block.noteLength(value.view, limit: .max) == isNoted)
    #expect(block.isPlainHead(with: .proto))
    if isNoted {
      #expect(pairs(block.fields) == fields.map { "\($0.0): \($0.1)" } + ["content-length: \(digits)"])
    }
    #expect(!self.block([fields[0]]).noteLength(value.view, limit: .max))
  }

  @Test func goodHeaders() throws {
    let framing = framing()
    guard case .informational = framing.responseHeaders(block([(":status", "100")]), endsStream: false)
    else {
      throw Unexpected()
    }
    // The section "Binary-Header": values may be padded or not, and may be joined by commas. Also: characters
    // of names that are not allowed are left out, and blanks around values are removed.
    let list = block(
      [
        (":status", "200"), ("content-type", "application/grpc+proto;charset=x"),
        ("grpc-encoding", "identity"),
        ("x-a", " 1 "), ("x-bin", "AQI,Aw==, BA"), ("x-a", "2"), ("odd!name", "x"), ("x-high", "\u{e9}"),
        ("grpc-later", "x"),
      ])
    guard case .headers(let metadata) = framing.responseHeaders(list, endsStream: false) else {
      throw Unexpected()
    }
    #expect(
      pairs(metadata) == [
        // The content-type is in the metadata only if it is not exactly "application/grpc".
        "content-type: application/grpc+proto;charset=x", "x-a: 1", "x-bin: \u{1}\u{2}", "x-bin: \u{3}",
        "x-bin: \u{4}", "x-a: 2", "x-high: \u{e9}",
      ])
  }

  func ended(_ framing: GRPCFraming, _ trailers: [(String, String)]) -> Status {
    _ = framing.responseHeaders(block(FramingTests.grpc), endsStream: false)
    return framing.status(
      .trailers, trailers: framing.status(ofTrailers: block(trailers)), deadlineHasPassed: false)
  }

  @Test func trailers() {
    let status = ended(framing(), [("grpc-status", "0"), ("x-t", "1"), ("x-bin", "AQ"), ("bad-bin", "!")])
    #expect(status.code == .ok)
    #expect(pairs(status.trailers) == ["x-t: 1", "x-bin: \u{1}"])
    let none = ended(framing(), [("x-t", "1")])
    #expect(none.code == .unknown)
    #expect(text(none.message) == "the trailers have no grpc-status: HTTP status 200")
  }

  @Test func details() throws {
    // The encoded google.rpc.Status {code: 5, message: "m", details: [{type_url: "t/a.B", value: 01 02}]}.
    let encoded: [UInt8] =
      [0x08, 5, 0x12, 1, 0x6d, 0x1a, 11, 0x0a, 5] + Array("t/a.B".utf8) + [0x12, 2, 1, 2]
    let base64 = ByteBuffer()
    let raw = buffer(encoded)
    _ = Base64.encode(raw.view, padded: false, into: base64)
    let good = ended(framing(), [("grpc-status", "5"), ("grpc-status-details-bin", text(base64)!)])
    #expect(good.code == .notFound && !good.detailsAreMalformed)
    let detail = try #require(good.detail(at: 0))
    #expect(good.detailCount == 1 && text(detail.typeURL) == "t/a.B" && [UInt8](detail.value) == [1, 2])
    #expect(value(good.trailers, "grpc-status-details-bin") == encoded)
    // These details are valid base64, but not a google.rpc.Status. The raw bytes stay in the trailers.
    let bad = ended(framing(), [("grpc-status", "5"), ("grpc-status-details-bin", "/////w")])
    #expect(bad.code == .notFound && bad.detailsAreMalformed && bad.detailCount == 0)
    #expect(value(bad.trailers, "grpc-status-details-bin") == [255, 255, 255, 255])
    let worse = ended(framing(), [("grpc-status", "5"), ("grpc-status-details-bin", "!!")])
    #expect(worse.code == .notFound && worse.detailsAreMalformed)
    #expect(value(worse.trailers, "grpc-status-details-bin") == Array("!!".utf8))
  }

  /// The section "Errors": the table of RST_STREAM codes, and codes that are not in the table. The names are
  /// from RFC 9113 section 7.
  @Test(
    arguments: [
      (0x0, .internal, "NO_ERROR"), (0x1, .internal, "PROTOCOL_ERROR"), (0x2, .internal, "INTERNAL_ERROR"),
      (0x3, .internal, "FLOW_CONTROL_ERROR"), (0x4, .internal, "SETTINGS_TIMEOUT"),
      (0x5, .internal, "STREAM_CLOSED"), (0x6, .internal, "FRAME_SIZE_ERROR"),
      (0x7, .unavailable, "REFUSED_STREAM"), (0x8, .cancelled, "CANCEL"),
      (0x9, .internal, "COMPRESSION_ERROR"),
      (0xa, .internal, "CONNECT_ERROR"), (0xb, .resourceExhausted, "ENHANCE_YOUR_CALM"),
      (0xc, .permissionDenied, "INADEQUATE_SECURITY"), (0xd, .internal, "HTTP_1_1_REQUIRED"),
      (0xe, .internal, "UNKNOWN_ERROR"), (.max, .internal, "UNKNOWN_ERROR"),
    ] as [(UInt32, StatusCode, String)])
  func resets(_ code: UInt32, _ expected: StatusCode, _ name: String) {
    #expect(HTTP2Error.name(code).description == name)
    let end = HTTP2Error.end(ofReset: code)
    let status = framing().status(end, trailers: nil, deadlineHasPassed: false)
    #expect(status.code == expected)
    let more = [11: ": too much traffic", 12: ": the protocol is not secure enough for the call"][code] ?? ""
    #expect(
      text(status.message)
        == (code == 7
          ? "the server refused the stream (REFUSED_STREAM)"
          : "the server reset the stream: \(name) (\(code))\(more)"))
  }

  @Test func cancelAfterTheDeadlineIsTheDeadline() {
    func code(_ reset: UInt32) -> StatusCode {
      framing().status(HTTP2Error.end(ofReset: reset), trailers: nil, deadlineHasPassed: true).code
    }
    #expect(code(8) == .deadlineExceeded)
    #expect(code(2) == .internal)
  }

  // MARK: Bodies

  /// Decodes a body in parts of `step` bytes: byte by byte, in small parts, and as a whole.
  @Test(arguments: [1, 2, 7, 1000])
  func decodes(_ step: Int) throws {
    let framing = framing()
    let head = block(FramingTests.grpc + [("grpc-encoding", "gzip")])
    guard case .headers = framing.responseHeaders(head, endsStream: false) else { throw Unexpected() }
    let long = buffer([UInt8](repeating: 9, count: 900))
    let packed = try #require(Compression.gzip.compress(long.view))
    let stream: [UInt8] =
      [0, 0, 0, 0, 2, 1, 2] + [0, 0, 0, 0, 0] + [1] + big(UInt32(packed.count)) + [UInt8](packed.view)
    var messages: [[UInt8]] = []
    var at = 0
    while at < stream.count {
      var part = ArraySlice(stream[at..<min(at + step, stream.count)])
      at += part.count
      while !part.isEmpty {
        let (consumed, event) = part.withUnsafeBytes { framing.decode($0) }
        part = part.dropFirst(consumed)
        if case .message(let message, _) = event { messages.append([UInt8](message.view)) }
        if case .failed = event { throw Unexpected() }
      }
    }
    #expect(messages == [[1, 2], [], [UInt8](long.view)])
    #expect(framing.status(.body, trailers: nil, deadlineHasPassed: false).code == .internal)
  }

  /// A message is offered ahead of demand only if it is small and not compressed, and another whole message
  /// follows it.
  @Test func readsAheadWhatIsSmall() {
    let framing = framing()
    func begins(_ body: [UInt8], limit: Int = 2) -> Bool {
      body.withUnsafeBytes { framing.beginsWithTwo($0, limit: limit) }
    }
    let small: [UInt8] = [0, 0, 0, 0, 2, 1, 2]
    #expect(begins(small + small))
    #expect(begins(small + [1, 0, 0, 0, 0]))
    #expect(!begins(small) && !begins(small + small.dropLast()))
    #expect(!begins(small + small, limit: 1))
    #expect(!begins([1] + small.dropFirst() + small))
  }

  @Test func decompressedOverTheLimit() throws {
    let framing = framing(limit: 899)
    _ = framing.responseHeaders(block(FramingTests.grpc + [("grpc-encoding", "gzip")]), endsStream: false)
    let long = buffer([UInt8](repeating: 9, count: 900))
    let packed = try #require(Compression.gzip.compress(long.view))
    let body = [1] + big(UInt32(packed.count)) + [UInt8](packed.view)
    guard case .failed(let status) = body.withUnsafeBytes({ framing.decode($0) }).step else {
      throw Unexpected()
    }
    #expect(status.code == .resourceExhausted)
    #expect(
      text(status.message)
        == "a received message, decompressed, is over the limit of 899 bytes (max_receive_message_bytes)")
  }
}

extension GRPCFraming {
  /// Makes the header list of a request, and returns it as metadata.
  fileprivate func requestHeaders(_ request: Request, now: UInt64, secure: Bool = false) -> Metadata? {
    let list = FieldList()
    let defaults = RequestDefaults(
      privacy: secure ? .tls : .cleartext, authority: bytes("host:1"), userAgent: bytes("penstock/1"))
    guard requestHeaders(request, defaults, now: now, into: list) else { return nil }
    let fields = Metadata()
    for index in 0..<list.count { _ = fields.add(list.name(at: index), list.value(at: index)) }
    #expect(list.size == fields.listSize)
    return fields
  }
}
