import PenstockCall
import PenstockLaws
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP

/// Tests of RFC 9110 and RFC 9112: which answers are well formed, and where each answer ends. Each row is
/// parsed in several ways: as a whole, byte by byte, in two parts split at every position, and cut off at
/// every position.
@Suite struct ResponseParserTests {
  struct Row: CustomTestStringConvertible, Sendable {
    let testDescription: String
    let bytes: String
    let log: [String]
    let flaw: ResponseFlaw?
    /// Whether the connection may be used for another request; nil: the test does not check this.
    let persists: Bool?
    /// Whether the answer ends when the connection ends.
    let untilClose: Bool

    /// An answer that is well formed. `log`: the expected events, with the head, the body, the trailers and
    /// the end.
    init(_ name: String, _ bytes: String, _ log: String..., persists: Bool = true, untilClose: Bool = false) {
      testDescription = name
      self.bytes = bytes
      self.log = log
      flaw = nil
      self.persists = persists
      self.untilClose = untilClose
    }

    /// An answer whose last byte makes the flaw. `log`: the expected events before the flaw. `isField`: the flaw is one
    /// of a field line, whose end only the next byte shows, because the line may be folded.
    init(_ flaw: ResponseFlaw, _ bytes: String, _ log: String..., isField: Bool = false) {
      let ofFields: Set<ResponseFlaw> = [
        .noColon, .blankBeforeColon, .name, .lengthTwice, .length, .framingInTrailers, .codingTwice,
        .codingInOld,
        .coding,
      ]
      let bytes = isField || ofFields.contains(flaw) ? bytes + "X" : bytes
      testDescription = "\(flaw): \(bytes.prefix(80).debugDescription)"
      self.bytes = bytes
      self.log = log
      self.flaw = flaw
      persists = nil
      untilClose = false
    }
  }

  static let limit = 1024

  /// The parser's events for an answer that is passed to it in one or more pieces.
  struct Said: Equatable, CustomStringConvertible {
    var log: [String] = []
    var flaw: ResponseFlaw?
    var isOver = false
    /// The number of bytes that the parser has used.
    var used = 0

    var hasFlaw: Bool { flaw != nil }
    var description: String { "\(log) \(flaw.map { "\($0)" } ?? "no flaw") over \(isOver) used \(used)" }
  }

  /// Checks an expectation. If it fails, only `words` are printed.
  static func expect(_ holds: Bool, _ words: @autoclosure () -> String) {
    if !holds { Issue.record("\(words())") }
  }

  static func fields(_ block: HeaderBlock) -> String {
    let fields = block.fields
    return (0..<fields.count).map { "\(text(fields.name(at: $0))!)=\(latin(fields.value(at: $0)))" }
      .joined(separator: " ")
  }

  static func latin(_ bytes: ByteView) -> String {
    String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
  }

  /// Converts a text to bytes: each character is one byte.
  static func raw(_ text: String) -> [UInt8] { text.unicodeScalars.map { UInt8($0.value) } }

  /// Passes the pieces to the parser, and joins the parts of the body in the log.
  static func parse(_ parser: ResponseParser, _ pieces: [ArraySlice<UInt8>]) -> Said {
    var said = Said()
    var body: [UInt8] = []
    func passBody() {
      if !body.isEmpty { said.log.append("body " + body.withUnsafeBytes { latin($0) }) }
      body = []
    }
    for piece in pieces {
      var rest = piece
      while true {
        // The piece is copied, so that the sanitizers find any read beyond its end.
        let copy = [UInt8](rest)
        var goesOn = true
        copy.withUnsafeBytes { view in
          let (count, event) = parser.push(view)
          rest = rest.dropFirst(count)
          said.used += count
          switch event {
          case .needsMore:
            #expect(rest.isEmpty)
            goesOn = false
          case .head(let endsAnswer):
            said.log.append((endsAnswer ? "only " : "head ") + fields(parser.block))
            if endsAnswer { said.isOver = true }
          case .body(let part):
            #expect(!part.isEmpty)
            body += part
          case .trailers:
            passBody()
            said.log.append("trailers " + fields(parser.block))
            said.isOver = true
            goesOn = false
          case .end:
            passBody()
            if !said.isOver { said.log.append("end") }
            said.isOver = true
            goesOn = false
          case .failed(let flaw):
            passBody()
            said.flaw = flaw
            goesOn = false
          }
        }
        if !goesOn { break }
      }
      if said.flaw != nil || said.isOver { break }
    }
    passBody()
    return said
  }

  static func check(_ row: Row, _ pieces: [ArraySlice<UInt8>], _ how: String) {
    let parser = ResponseParser(maxHeaderList: limit)
    var said = parse(parser, pieces)
    if let flaw = row.flaw {
      expect(said.flaw == flaw && said.log == row.log, "\(how): \(said)")
      #expect(parser.hasBegun)
      #expect(parser.connectionEnded() == false)
      return
    }
    expect(said.isOver != row.untilClose, "\(how): \(said)")
    expect(parser.persists == row.persists, "\(how): persists")
    #expect(parser.connectionEnded() == row.untilClose)
    if row.untilClose { said.log.append("end") }
    expect(!said.hasFlaw && said.log == row.log, "\(how): \(said)")
    #expect(said.used == row.bytes.unicodeScalars.count)
  }

  @Test(arguments: golden + flaws)
  func anywaySplit(_ row: Row) {
    let bytes = Self.raw(row.bytes)
    Self.check(row, [bytes[...]], "whole")
    Self.check(row, bytes.indices.map { bytes[$0...$0] }, "byte by byte")
    if bytes.count < 1000 {
      for cut in bytes.indices.dropFirst() {
        Self.check(row, [bytes[..<cut], bytes[cut...]], "split at \(cut)")
      }
    }
    // Pieces of two bytes, with an empty piece between each two.
    let pairs = stride(from: 0, to: bytes.count, by: 2).flatMap {
      [bytes[$0..<min($0 + 2, bytes.count)], bytes[0..<0]]
    }
    Self.check(row, pairs, "two at a time")
  }

  /// An answer that is cut off anywhere has neither an end nor a flaw. `position` returns the place where it
  /// was cut off.
  @Test(arguments: golden)
  func cutAnywhere(_ row: Row) {
    let bytes = Self.raw(row.bytes)
    if bytes.count > 2000 { return }
    for end in 0..<bytes.count {
      let parser = ResponseParser(maxHeaderList: Self.limit)
      let said = Self.parse(parser, [bytes[..<end]])
      Self.expect(!said.hasFlaw && !said.isOver, "cut at \(end): \(said)")
      #expect(said.used == end)
      #expect(parser.hasBegun == (end > 0))
      let isWhole = row.untilClose && said.log.contains { $0.hasPrefix("head") }
      #expect((parser.position() == nil) == (end == 0 || isWhole), "cut at \(end)")
      #expect(parser.connectionEnded() == isWhole)
    }
  }

  /// A flaw is reported with the byte that makes it, or at the end of its line, and not earlier.
  @Test(arguments: flaws)
  func notBefore(_ row: Row) {
    let bytes = Self.raw(row.bytes)
    let said = Self.parse(ResponseParser(maxHeaderList: Self.limit), [bytes.dropLast()])
    Self.expect(!said.hasFlaw, "\(said)")
  }

  /// Several answers, one after the other, on one connection.
  @Test func severalAnswers() {
    let rows = Self.golden.filter { $0.persists == true && !$0.untilClose }
    let parser = ResponseParser(maxHeaderList: Self.limit)
    for row in rows + rows.reversed() {
      parser.begin()
      #expect(!parser.hasBegun)
      #expect(parser.position() == nil)
      let said = Self.parse(parser, [Self.raw(row.bytes)[...]])
      #expect(said.log == row.log && said.isOver && parser.persists)
    }
  }

  /// An answer is parsed alike whichever answer came before it on the connection.
  @Test(arguments: golden.filter { $0.persists == true && !$0.untilClose })
  func nothingIsLeftOfTheAnswerBefore(_ before: Row) {
    for row in Self.golden {
      let parser = ResponseParser(maxHeaderList: Self.limit)
      _ = Self.parse(parser, [Self.raw(before.bytes)[...]])
      parser.begin()
      let said = Self.parse(parser, [Self.raw(row.bytes)[...]])
      Self.expect(
        parser.persists == row.persists && said.isOver != row.untilClose, "\(row.testDescription): \(said)")
    }
  }

  /// The parser does not use bytes after the end of an answer.
  @Test(arguments: golden.filter { !$0.untilClose })
  func bytesBehind(_ row: Row) {
    let bytes = Self.raw(row.bytes) + [0x48]
    let said = Self.parse(ResponseParser(maxHeaderList: Self.limit), [bytes[...]])
    #expect(said.log == row.log && said.isOver && said.used == bytes.count - 1)
  }

  @Test func everyFlawHasARowAndWords() {
    let shown = Set(Self.flaws.compactMap { $0.flaw })
    for flaw in ResponseFlaw.allCases where flaw != .noMemory { #expect(shown.contains(flaw), "\(flaw)") }
    let parser = ResponseParser(maxHeaderList: Self.limit)
    #expect(Set(ResponseFlaw.allCases.map { text(parser.words($0))! }).count == ResponseFlaw.allCases.count)
  }

  static let rules = "the server broke the rules of HTTP/1.1: "

  @Test(arguments: [
    ("SSH-2.0-x\r\n", "the peer does not speak HTTP/1.1: it answered \"SSH-2.0-x\""),
    ("\0\0\u{12}\u{4}", "the peer does not speak HTTP/1.1: it answered \"....\""),
    (
      "HTTP/3 200 OK\r\n",
      rules + "the version is not HTTP/1.x, in the status line \"HTTP/3 200 OK\""
    ),
    (
      "HTTP/1.1 200 \r\nA : b\r\n\r\n",
      rules + "a space or a tab before the colon of a field, in the header line \"A : b\""
    ),
    (
      "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
      rules + "both content-length and transfer-encoding"
    ),
    (
      chunked + "-1\r\n",
      rules + "the size of a chunk is not a hexadecimal number, in the line with a chunk's size \"-1\""
    ),
    (
      chunked + "1\r\nabc",
      rules + "no CR and LF behind a chunk, in the bytes \"bc\""
    ),
    (
      chunked + "0\r\nA\r\n\r\n",
      rules + "a field has no colon, in the trailer line \"A\""
    ),
  ])
  func words(_ bytes: String, _ words: String) throws {
    let parser = ResponseParser(maxHeaderList: Self.limit)
    let said = Self.parse(parser, [Self.raw(bytes)[...]])
    #expect(text(parser.words(try #require(said.flaw))) == words)
  }

  /// A header list over the limit is not a flaw, up to four times the limit. The parser then still knows its
  /// size.
  @Test func headersOverTheLimit() {
    for count in [1, 30, 31, 60] {
      let parser = ResponseParser(maxHeaderList: 2048)
      let fields = String(repeating: "a: b\r\n", count: count)
      let said = Self.parse(parser, [Self.raw("HTTP/1.1 200 \r\n\(fields)content-length: 0\r\n\r\n")[...]])
      Self.expect(!said.hasFlaw && said.isOver, "\(said)")
      #expect(parser.block.size == 42 + 47 + count * 34)
    }
  }

  /// Random bytes give equal events, however they are split into pieces. The parser never reads beyond a
  /// piece.
  @Test func randomBytes() {
    var random = SplitMix(state: 1)
    let parts = Self.golden.map { Self.raw($0.bytes) }.filter { $0.count < 400 }
    let seeds = [
      "\r\n", "\r", "\n", "0\r\n\r\n", ": ", "chunked", "Content-Length: 5", "a\r\n", "\0", " ",
      "HTTP/1.1 200 \r\n",
    ]
    for _ in 0..<20_000 {
      var bytes = parts[Int(random.next() % UInt64(parts.count))]
      for _ in 0..<Int(random.next() % 4) {
        let at = Int(random.next() % UInt64(bytes.count + 1))
        switch random.next() % 4 {
        case 0: bytes.insert(UInt8(truncatingIfNeeded: random.next()), at: at)
        case 1: if at < bytes.count { bytes.remove(at: at) }
        case 2: bytes.insert(contentsOf: Self.raw(seeds[Int(random.next() % UInt64(seeds.count))]), at: at)
        default: if at < bytes.count { bytes[at] = UInt8(truncatingIfNeeded: random.next()) }
        }
      }
      let whole = Self.parse(ResponseParser(maxHeaderList: Self.limit), [bytes[...]])
      var pieces: [ArraySlice<UInt8>] = []
      var at = 0
      while at < bytes.count {
        let end = min(bytes.count, at + 1 + Int(random.next() % 20))
        pieces.append(bytes[at..<end])
        at = end
      }
      var split = Self.parse(ResponseParser(maxHeaderList: Self.limit), pieces)
      // The parser may have used the first bytes of the line with the flaw in earlier pieces, so `used` is
      // not compared.
      if whole.hasFlaw { split.used = whole.used }
      Self.expect(split == whole, "\(bytes): \(split), whole: \(whole)")
    }
  }
}
