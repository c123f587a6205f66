import Glibc
import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// The results that a user gets when a peer breaks the rules. Each `Story` has one script: the peer's actions
/// after it has accepted the connection.
@Suite(.timeLimit(.minutes(15))) struct FaultTests {
  struct Story: CustomTestStringConvertible, Sendable {
    let testDescription: String
    let code: StatusCode
    /// The whole status message that the test expects, with "%" in place of the target.
    let words: String
    let script: RawServer.Script

    init(_ name: String, _ code: StatusCode, _ words: String, _ script: @escaping RawServer.Script) {
      testDescription = name
      self.code = code
      self.words = words
      self.script = script
    }

    /// A story whose script begins when the peer has received the request. `words`: the expected status
    /// message.
    init(
      _ name: String, _ code: StatusCode, answer words: String,
      _ script: @escaping @Sendable (Peer, Int32) -> Void
    ) {
      self.init(name, code, words) { peer in
        peer.begin()
        script(peer, peer.request())
        peer.waitForEnd()
      }
    }
  }

  static let beforeHTTP2: [Story] = [
    Story(
      "closes at once", .unavailable,
      "could not connect to %: connection closed by peer before HTTP/2 began; it sent nothing, and may want TLS"
    ) {
      _ = $0.read(24)
    },
    Story(
      "HTTP/1.1", .unavailable,
      "could not connect to %: the peer does not speak HTTP/2: it answered \"HTTP/1.1 400 Bad Request\""
    ) {
      $0.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
      $0.waitForEnd()
    },
    Story(
      "another protocol", .unavailable,
      "could not connect to %: the peer does not speak HTTP/2: it sent \"SSH-2.0-OpenSSH_9.9..\""
    ) {
      $0.send("SSH-2.0-OpenSSH_9.9\r\n")
      $0.waitForEnd()
    },
    Story(
      "TLS where cleartext is expected", .unavailable,
      "could not connect to %: the peer does not speak HTTP/2: it answered in TLS"
    ) {
      $0.send([0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46])
      $0.waitForEnd()
    },
    Story(
      "half a SETTINGS frame", .unavailable,
      "could not connect to %: connection closed by peer before HTTP/2 began in the middle of a SETTINGS frame"
    ) {
      _ = $0.read(24)
      $0.send([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3])
    },
    Story(
      "a first frame that is not SETTINGS", .unavailable,
      "could not connect to %: the peer does not speak HTTP/2: it sent \".................\""
    ) {
      $0.send([0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])
      $0.waitForEnd()
    },
  ]

  static let onTheStream: [Story] = [
    Story("closes in the middle of a call", .unavailable, "connection closed by peer") {
      $0.begin()
      _ = $0.request()
    },
    Story(
      "closes in the middle of a DATA frame", .unavailable,
      "connection closed by peer in the middle of a DATA frame"
    ) {
      $0.begin()
      let id = $0.request()
      $0.send(.head(id))
      $0.send(Array(Frame.message(id, [1, 2, 3]).encoded.dropLast(2)))
    },
    Story(
      "closes in the middle of a frame header", .unavailable,
      "connection closed by peer in the middle of a frame header"
    ) {
      $0.begin()
      let id = $0.request()
      $0.send(Frame.head(id).encoded + [0, 0])
    },
    Story(
      "GOAWAY, then closes", .unavailable,
      "connection closed by peer, after the server sent GOAWAY (ENHANCE_YOUR_CALM: too_many_pings)"
    ) {
      $0.begin()
      let id = $0.request()
      $0.send(.goAway(id, 11, "too_many_pings"))
    },
    Story(
      "refuses each time", .unavailable,
      answer:
        "the server refused the stream (REFUSED_STREAM), and ten times more when the request was sent again"
    ) { peer, id in
      peer.send(.reset(id, 7))
      for _ in 0..<10 { peer.send(.reset(peer.request(), 7)) }
    },
    Story("nothing but a reset with NO_ERROR", .internal, answer: "the server reset the stream: NO_ERROR (0)")
    { $0.send(.reset($1, 0)) },
    Story("PROTOCOL_ERROR", .internal, answer: "the server reset the stream: PROTOCOL_ERROR (1)") {
      $0.send(.reset($1, 1))
    },
    Story("CANCEL", .cancelled, answer: "the server reset the stream: CANCEL (8)") { $0.send(.reset($1, 8)) },
    Story(
      "ENHANCE_YOUR_CALM", .resourceExhausted,
      answer: "the server reset the stream: ENHANCE_YOUR_CALM (11): too much traffic"
    ) { $0.send(.reset($1, 11)) },
    Story(
      "INADEQUATE_SECURITY", .permissionDenied,
      answer:
        "the server reset the stream: INADEQUATE_SECURITY (12): the protocol is not secure enough for the call"
    ) { $0.send(.reset($1, 12)) },
    Story(
      "reset after headers and a message", .internal,
      answer: "the server reset the stream: INTERNAL_ERROR (2)"
    ) {
      $0.send(.head($1), .message($1, [1]), .reset($1, 2))
    },
    Story("trailers-only", .notFound, answer: "no such thing") {
      $0.send(
        .headers(
          $1,
          [
            (":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "5"),
            ("grpc-message", "no such%20thing"),
          ], end: true))
    },
    Story("an informational answer first", .aborted, answer: "") {
      $0.send(.headers($1, [(":status", "103")]), .head($1), .trailers($1, "10"))
    },
    Story(
      "END_STREAM without trailers", .internal,
      answer: "the server closed the stream without sending trailers"
    ) {
      $0.send(.head($1), .message($1, [1]), .data($1, [], end: true))
    },
    Story(
      "DATA before headers", .internal,
      answer: "the server broke the rules of HTTP/2: PROTOCOL_ERROR (DATA: stream not opened)"
    ) {
      $0.send(.message($1, [1]))
    },
    Story("half a message", .internal, answer: "the stream ended in the middle of a message") {
      $0.send(.head($1), .data($1, [0, 0, 0, 0, 9, 1, 2]), .trailers($1))
    },
    Story("half a message, and a status that explains it", .dataLoss, answer: "disk") {
      $0.send(.head($1), .data($1, [0, 0, 0, 0, 9, 1, 2]), .trailers($1, "15", [("grpc-message", "disk")]))
    },
    Story(
      "a message over the limit", .resourceExhausted,
      answer: "a received message of 5000000 bytes is over the limit of 4194304 (max_receive_message_bytes)"
    ) {
      $0.send(.head($1), .data($1, [0] + big(5_000_000)))
    },
    Story(
      "compressed flag without an encoding", .internal,
      answer: "the compressed flag of a received message is set, but there is no grpc-encoding"
    ) {
      $0.send(.head($1), .message($1, [1], compressed: 1), .trailers($1))
    },
    Story(
      "an unknown encoding", .internal,
      answer: "a received message has the unsupported grpc-encoding \"snappy\" (supported: "
    ) {
      $0.send(.head($1, [("grpc-encoding", "snappy")]), .message($1, [1], compressed: 1), .trailers($1))
    },
    Story("broken gzip", .internal, answer: "a received message is not valid gzip") {
      $0.send(.head($1, [("grpc-encoding", "gzip")]), .message($1, [1], compressed: 1), .trailers($1))
    },
    Story(
      "a flag that is neither 0 nor 1", .internal,
      answer: "the compressed flag of a received message is 2, neither 0 nor 1"
    ) {
      $0.send(.head($1), .message($1, [1], compressed: 2), .trailers($1))
    },
    Story("no message in a unary answer", .unimplemented, answer: "") { $0.send(.head($1), .trailers($1)) },
    Story("two messages in a unary answer", .unimplemented, answer: "") {
      $0.send(.head($1), .message($1, [1]), .message($1, [2]), .trailers($1))
    },
    Story(
      "headers over the limit", .resourceExhausted,
      answer: "the received headers are over the limit of 16384 bytes (max_header_list_bytes)"
    ) {
      $0.send(.head($1, (0..<38).map { ("x-\($0)", String(repeating: "v", count: 400)) }))
    },
    Story(
      "trailers over the limit", .resourceExhausted,
      answer: "the received headers are over the limit of 16384 bytes (max_header_list_bytes)"
    ) {
      $0.send(.head($1), .trailers($1, "0", (0..<38).map { ("x-\($0)", String(repeating: "v", count: 400)) }))
    },
    Story(
      "a header's value that is malformed, and not told", .internal,
      answer: "the server broke the rules of HTTP/2: Invalid HTTP header field was received"
    ) {
      $0.send(.head($1, [("set-cookie", "secret\u{1}")]))
    },
    Story("a header that is not base64", .internal, answer: "the response header \"x-bin\" is not base64") {
      $0.send(.head($1, [("x-bin", "!")]), .message($1, [1]), .trailers($1))
    },
    Story(
      "a proxy's page", .unavailable,
      answer: "the answer is not gRPC: HTTP status 503, content-type \"text/html\""
    ) {
      $0.send(
        .headers($1, [(":status", "503"), ("content-type", "text/html")]),
        .data($1, Array("<html>".utf8), end: true))
    },
    Story("PUSH_PROMISE", .internal, answer: "the server broke the rules of HTTP/2: PROTOCOL_ERROR") {
      $0.send(Frame(type: 5, flags: 4, stream: $1, payload: big(2) + [0x88]))
    },
    Story(
      "WINDOW_UPDATE of 0 on the connection", .unavailable,
      answer: "the server broke the rules of HTTP/2: PROTOCOL_ERROR"
    ) { peer, _ in
      peer.send(.windowUpdate(0, 0))
    },
    Story(
      "a frame on stream 0 that may not be there", .unavailable,
      answer: "the server broke the rules of HTTP/2: PROTOCOL_ERROR"
    ) { peer, _ in
      peer.send(.data(0, [1]))
    },
    Story(
      "a frame over the size limit", .internal,
      answer: "the server broke the rules of HTTP/2: FRAME_SIZE_ERROR"
    ) { peer, id in
      peer.send(.head(id), Frame(type: 0, stream: id, payload: [UInt8](repeating: 0, count: 70000)))
    },
    Story("broken HPACK", .internal, answer: "the server broke the rules of HTTP/2: COMPRESSION_ERROR") {
      peer, id in
      peer.send(Frame(type: 1, flags: 4, stream: id, payload: [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]))
    },
  ]

  @Test(arguments: beforeHTTP2 + onTheStream)
  func unary(_ story: Story) throws {
    let server = RawServer(story.script)
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let answer = client.unary("/a.B/C", [1, 2, 3])
    #expect(answer.code == story.code)
    let words = story.words.replacing("%", with: server.target)
    if !words.isEmpty { #expect(answer.words.hasPrefix(words), "\(answer.words)") }
    #expect(!answer.words.contains("secret"))
    #expect(server.complaints == [])
  }

  @Test(arguments: beforeHTTP2 + onTheStream)
  func bidi(_ story: Story) throws {
    let server = RawServer(story.script)
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let call = client.make("/a.B/C", .bidi)
    call.open()
    let message = buffer([1])
    _ = call.send(message.view)
    while call.receive().1 != nil {}
    let answer = Answer(try #require(call.finish().1))
    // A bidi call may have any number of messages, so a number that is wrong for a unary call is OK here.
    #expect(answer.code == (story.code == .unimplemented ? .ok : story.code))
  }
}
