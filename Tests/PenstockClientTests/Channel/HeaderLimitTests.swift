import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// Tests of `max_header_list_bytes`: the result of a call whose response headers exceed it, and the effect on
/// other calls of the connection. Up to 1 MiB no other limit applies to a whole header block; one field may
/// have at most 64 KiB. By default the server sends a block in frames of 4 KiB; nghttp2 without our options
/// would accept only nine such frames.
@Suite(.timeLimit(.minutes(15))) struct HeaderLimitTests {
  static let part = 4096

  enum Place: CaseIterable { case head, trailers, informational }

  /// The HEADERS and CONTINUATION frames of a header block with `count` fields of `size` bytes. `place`: the
  /// position of the block in the response.
  static func block(_ stream: Int32, _ place: Place, count: Int, size: Int, part: Int = part) -> [UInt8] {
    let first: [(String, String)]
    switch place {
    case .head: first = [(":status", "200"), ("content-type", "application/grpc")]
    case .trailers: first = [("grpc-status", "0")]
    case .informational: first = [(":status", "103")]
    }
    let value = String(repeating: "v", count: size)
    let fields = first + (0..<count).map { ("x-\($0)", value) }
    return Frame.headers(stream, fields, end: place == .trailers, part: part)
  }

  /// Runs two calls on one connection. The server sends `bytes` for the first call, and then answers both
  /// calls. With `isOpen`, `bytes` leave a header block unfinished, and the server answers neither call.
  func both(
    _ place: Place, limit: Int = 16384, isOpen: Bool = false, _ bytes: @escaping @Sendable (Int32) -> [UInt8]
  ) throws -> [Answer] {
    let server = RawServer { peer in
      peer.begin()
      let (first, second) = (peer.request(), peer.request())
      peer.send(.head(second))
      if place == .trailers { peer.send(.head(first), .message(first, [1])) }
      peer.send(bytes(first))
      if !isOpen {
        if place == .informational { peer.send(.head(first)) }
        if place != .trailers { peer.send(.message(first, [1]), .trailers(first)) }
        peer.send(.message(second, [2]), .trailers(second))
      }
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target) { $0.maxHeaderListBytes = limit })
    let calls = [client.make("/a.B/C", .unary), client.make("/a.B/D", .unary)]
    for call in calls { call.open(buffer([1])) }
    let answers = try calls.map { Answer(try #require($0.finish().1)) }
    // If the connection has ended, the channel may already have made another connection.
    #expect((1...2).contains(server.connections))
    return answers
  }

  @Test(arguments: Place.allCases)
  func overTheLimitOneCallEnds(_ place: Place) throws {
    let answers = try both(place) { HeaderLimitTests.block($0, place, count: 6, size: 10_000) }
    #expect(answers[0].code == .resourceExhausted)
    #expect(
      answers[0].words == "the received headers are over the limit of 16384 bytes (max_header_list_bytes)")
    #expect(answers[1].code == .ok && answers[1].message == [2])
  }

  @Test(arguments: Place.allCases)
  func upToTheLargestLimitAllIsTaken(_ place: Place) throws {
    let answers = try both(place, limit: 1 << 20) {
      HeaderLimitTests.block($0, place, count: 17, size: 60_000)
    }
    #expect(answers[0].code == .ok && answers[0].message == [1], "\(answers[0].words)")
    switch place {
    case .head: #expect(answers[0].header("x-16")?.count == 60_000)
    case .trailers: #expect(answers[0].trailer("x-16")?.count == 60_000)
    case .informational: #expect(answers[0].header("x-16") == nil)
    }
    #expect(answers[1].code == .ok && answers[1].message == [2])
  }

  /// Fields of 64 KiB in encoded form, the largest size that is allowed.
  @Test func theLargestField() throws {
    let answers = try both(.head, limit: 1 << 20) {
      HeaderLimitTests.block($0, .head, count: 2, size: 65_536)
    }
    #expect(answers[0].code == .ok && answers[0].header("x-1")?.count == 65_536, "\(answers[0].words)")
  }

  @Test(arguments: Place.allCases, [part, 16384])
  func aLargerFieldEndsTheConnection(_ place: Place, _ part: Int) throws {
    let answers = try both(place, limit: 1 << 20) {
      HeaderLimitTests.block($0, place, count: 1, size: 65_537, part: part)
    }
    let words = "the connection ended: received headers with a field of more than 65536 bytes, or malformed"
    #expect(answers[0].code == .resourceExhausted && answers[0].words == words)
    #expect(answers[1].code == .unavailable && answers[1].words == words)
  }

  static let flood =
    "the connection ended: received headers are over four times the limit of 1024 bytes (max_header_list_bytes)"

  @Test(arguments: Place.allCases, [part, 100])
  func aFloodEndsTheConnection(_ place: Place, _ part: Int) throws {
    let answers = try both(place, limit: 1024) {
      HeaderLimitTests.block($0, place, count: 5, size: 1000, part: part)
    }
    #expect(answers[0].code == .resourceExhausted && answers[0].words == HeaderLimitTests.flood)
    #expect(answers[1].code == .unavailable && answers[1].words == HeaderLimitTests.flood)
  }

  /// The server never ends a header block, and sends frames for it without any content.
  @Test func framesThatAddNothingAreAFlood() throws {
    let answers = try both(.head, limit: 1024, isOpen: true) { stream in
      Frame(type: 1, stream: stream).encoded
        + (0..<1000).flatMap { _ in Frame(type: 9, stream: stream).encoded }
    }
    #expect(answers.map { $0.code } == [.resourceExhausted, .unavailable])
    #expect(answers.map { $0.words } == [HeaderLimitTests.flood, HeaderLimitTests.flood])
  }

  /// The server defines a long field once in HPACK's table. Then it refers to the field a thousand times,
  /// with one byte each.
  @Test func aFieldNamedAThousandTimesIsAFlood() throws {
    let field: [UInt8] = [0x40, 1, 0x61, 100] + [UInt8](repeating: 0x62, count: 100)
    let answers = try both(.head, limit: 1024) {
      Frame(type: 1, flags: 4, stream: $0, payload: [0x88] + field + [UInt8](repeating: 0xBE, count: 1000))
        .encoded
    }
    #expect(answers.map { $0.code } == [.resourceExhausted, .unavailable])
    #expect(answers.map { $0.words } == [HeaderLimitTests.flood, HeaderLimitTests.flood])
  }

  /// Bytes of a body before the header block must not count towards the block's size.
  @Test func aBodyBeforeTheBlockDoesNotCount() throws {
    let answers = try both(.trailers, limit: 1024) {
      Frame.data($0, [0] + big(20_000) + [UInt8](repeating: 1, count: 20_000)).encoded
        + HeaderLimitTests.block($0, .trailers, count: 3, size: 100, part: 100)
    }
    // The first call gets two messages, but a unary call may have only one.
    #expect(answers.map { $0.code } == [.unimplemented, .ok])
  }
}
