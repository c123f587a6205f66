import PenstockTestSupport
import Testing

@testable import PenstockHTTP

/// Tests of RFC 9113 section 8: which responses are well formed. A malformed response is a stream error
/// PROTOCOL_ERROR (section 8.1.1) of its stream only.
@Suite struct ResponseRulesTests {
  struct Row: CustomTestStringConvertible, Sendable {
    let testDescription: String
    let frames: [Frame]
    let log: [String]
    /// The error text for the broken rule; nil: the response is well formed.
    let words: String?

    init(_ name: String, _ frames: Frame..., log: [String], words: String? = nil) {
      testDescription = name
      self.frames = frames
      self.log = log
      self.words = words
    }

    /// A response that begins with a head of the given fields, followed by the frames `rest`. `words`: the
    /// error text for the broken rule; nil: the response is well formed.
    init(head fields: [(String, String)], end: Bool = false, _ rest: Frame..., fails words: String? = field) {
      testDescription = "head \(fields)\(end ? " end" : "")"
      frames = [.headers(1, fields, end: end)] + rest
      log =
        words == nil ? ["head \(fields.first { $0.0 == ":status" }!.1)\(end ? " end" : "")"] : ["violation"]
      self.words = words
    }

    /// A whole response with the given trailers. `count`: the number of their fields that the stream's owner
    /// gets; nil: the trailers are malformed.
    init(trailers fields: [(String, String)], end: Bool = true, _ count: Int?, fails words: String? = field) {
      testDescription = "trailers \(fields)"
      frames = [.head(1), .data(1, [1, 2]), .headers(1, fields, end: end)]
      log = ["head 200", count.map { "trailers \($0)" } ?? "violation"]
      self.words = count == nil ? words : nil
    }
  }

  static let field = "Invalid HTTP header field was received"
  static let message = "Violation in HTTP messaging rule"

  static let ok = (":status", "200")
  static let status = ("grpc-status", "0")

  static let fields: [Row] = [
    // Section 8.2.1: names and values.
    Row(head: [ok, ("X-a", "1")]), Row(trailers: [status, ("x-A", "1")], nil),
    Row(trailers: [status, ("x y", "1")], nil), Row(trailers: [("", "1"), status], nil),
    Row(trailers: [status, ("x-a", "1\u{1}")], nil), Row(trailers: [status, ("x-a", "1\n")], nil),
    // gRPC permits to strip blanks around a value.
    Row(trailers: [status, ("x-a", " 1")], 2), Row(trailers: [status, ("x-a", "1\t"), ("x-b", " ")], 3),
    Row(head: [ok, ("x-a", " 1 ")], fails: nil),
    Row(head: [ok, ("content-length", " 0 ")], end: true, fails: nil),
    Row(
      trailers: [status, ("x-a", "\u{e9}"), ("x-b", "a \t b"), ("x-c", ""), ("host", "a"), ("x!~", "1")], 6),
    // Section 8.3: pseudo header fields.
    Row(head: [("x-a", "1")], fails: message), Row(head: [], fails: message),
    Row(head: [("x-a", "1"), ok]), Row(head: [("content-type", "application/grpc"), ok]),
    Row(head: [ok, ok]),
    Row(head: [(":status", "404"), ok]), Row(head: [ok, (":status", "404")]),
    Row(head: [ok, (":path", "/")]), Row(head: [(":method", "POST"), ok]), Row(head: [ok, (":other", "1")]),
    Row(head: [ok, (":", "1")]), Row(head: [(":sta tus", "200")]), Row(head: [(":Status", "200")]),
    Row(trailers: [(":status", "200"), status], nil), Row(trailers: [status, (":status", "200")], nil),
    Row(trailers: [(":status", "100")], nil),
    Row(trailers: [(":path", "/"), status], nil),
    // Section 8.3.2: the value of :status.
    Row(head: [(":status", "")]), Row(head: [(":status", "20")]), Row(head: [(":status", "2000")]),
    Row(head: [(":status", "0200")]), Row(head: [(":status", "200 ")]),
    Row(head: [(":status", "2x0")]), Row(head: [(":status", "-10")]), Row(head: [(":status", " 20")]),
    Row(head: [(":status", "   ")]), Row(head: [(":status", "20\u{1}")]), Row(head: [(":status", "101")]),
    Row(head: [(":status", "000")], fails: nil), Row(head: [(":status", "999")], fails: nil),
    // Section 8.2.2: connection-specific fields.
    Row(head: [ok, ("connection", "close")]), Row(head: [ok, ("keep-alive", "1")]),
    Row(head: [ok, ("proxy-connection", "close")]), Row(head: [ok, ("transfer-encoding", "chunked")]),
    Row(head: [ok, ("upgrade", "h2c")]), Row(trailers: [("connection", "close"), status], nil),
    Row(trailers: [status, ("te", "trailers")], 2), Row(trailers: [status, ("te", "Trailers")], 2),
    Row(trailers: [status, ("te", "gzip")], nil), Row(trailers: [status, ("te", "")], nil),
    Row(trailers: [status, ("keep-aliv", "1"), ("connectiom", "1")], 3),
  ]

  static let messages: [Row] = [
    // Section 8.1: informational (1xx) responses have no body, and trailers must end the stream.
    Row(
      "informational", .headers(1, [(":status", "100")]), .headers(1, [(":status", "103"), ("link", "x")]),
      .head(1), .trailers(1), log: ["head 200", "trailers 1"]),
    Row(head: [(":status", "103")], end: true, fails: message),
    Row(
      "DATA behind an informational answer", .headers(1, [(":status", "103")]), .data(1, [1]), .head(1),
      log: ["violation"], words: message),
    Row(
      "the end behind an informational answer", .headers(1, [(":status", "103")]), .data(1, [], end: true),
      log: ["violation"], words: message),
    Row(
      "no status behind an informational answer", .headers(1, [(":status", "103")]), .trailers(1),
      log: ["violation"], words: message),
    Row(trailers: [status], end: false, nil, fails: message),
    Row(trailers: [], end: false, nil, fails: message),
    Row(trailers: [], 0),
    Row(
      "two heads", .head(1), .head(1), log: ["head 200", "violation"], words: field),
    // Section 8.1.1: content-length.
    Row(
      "as long as it says", .head(1, [("content-length", "5")]), .data(1, [1, 2]), .data(1, [3, 4, 5]),
      .trailers(1), log: ["head 200", "trailers 1"]),
    Row(
      "padding does not count", .head(1, [("content-length", "2")]),
      Frame(type: 0, flags: 8, stream: 1, payload: [3, 1, 2, 0, 0, 0]), .trailers(1),
      log: ["head 200", "trailers 1"]),
    Row(
      "longer", .head(1, [("content-length", "4")]), .data(1, [1, 2]), .data(1, [3, 4, 5]), .trailers(1),
      log: ["head 200", "violation"], words: message),
    Row(
      "shorter", .head(1, [("content-length", "6")]), .data(1, [1, 2, 3]), .trailers(1),
      log: ["head 200", "violation"], words: message),
    Row(
      "shorter, and no trailers", .head(1, [("content-length", "6")]), .data(1, [1, 2, 3], end: true),
      log: ["head 200", "violation"], words: message),
    Row(
      "in the trailers", .head(1), .data(1, [1, 2]), .trailers(1, "0", [("content-length", "2")]),
      log: ["head 200", "trailers 2"]),
    Row(
      "wrong in the trailers", .head(1), .data(1, [1, 2]), .trailers(1, "0", [("content-length", "3")]),
      log: ["head 200", "violation"], words: message),
    Row(
      "in the trailers, too", .head(1, [("content-length", "2")]), .data(1, [1, 2]),
      .trailers(1, "0", [("content-length", "2")]), log: ["head 200", "violation"], words: field),
    Row(head: [ok, ("content-length", "0")], end: true, fails: nil),
    Row(head: [ok, ("content-length", "1")], end: true, fails: message),
    Row(head: [ok, ("content-length", "1"), ("content-length", "1")]),
    Row(head: [ok, ("content-length", "")]), Row(head: [ok, ("content-length", "-1")]),
    Row(head: [ok, ("content-length", "1,1")]), Row(head: [ok, ("content-length", "9223372036854775808")]),
    Row(head: [ok, ("content-length", "9223372036854775807")], fails: nil),
    Row(head: [(":status", "103"), ("content-length", "0")]),
    Row(head: [(":status", "204"), ("content-length", "0")], end: true, fails: nil),
    Row(head: [(":status", "204"), ("content-length", "00")]),
    Row(head: [(":status", "204"), ("content-length", "0"), ("content-length", "0")]),
    Row(head: [(":status", "304"), ("content-length", "9")], end: true, fails: nil),
    Row(
      "204 with a body", .headers(1, [(":status", "204")]), .data(1, [1]), log: ["head 204", "violation"],
      words: message),
    Row(
      "304 with a body", .headers(1, [(":status", "304"), ("content-length", "1")]), .data(1, [1]),
      log: ["head 304", "violation"], words: message),
  ]

  @Test(arguments: fields + messages) func answers(_ row: Row) throws {
    let tests = SessionTests()
    for step in [1, 7, 1000] {
      let (session, recorder) = tests.run(row.frames.flatMap { $0.encoded }, step: step)
      #expect(recorder.log == row.log)
      #expect(recorder.words == row.words.map { "the server broke the rules of HTTP/2: \($0)" })
      let resets = try #require(Frame.all(recorder.sent)).filter { $0.type == 3 }
      #expect(resets == (row.words == nil ? [] : [.reset(1, 1)]))
      #expect(
        session.failure == nil
          && session.open.isEmpty == (row.words != nil || row.frames.last!.flags & 1 == 1))
    }
  }
}
