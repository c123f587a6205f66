import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockTestSupport
import PenstockTestCertificates
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// Tests with servers that close the connection, answer early, or break the rules. They check the calls'
/// results, and whether the connection is kept.
@Suite(.timeLimit(.minutes(15))) struct HTTP1PeerTests {
  static let rules = "the server broke the rules of HTTP/1.1: "

  struct Story: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let code: StatusCode
    let words: String
    /// Sends the server's answer to the request. The server then closes the connection.
    let script: @Sendable (Peer) -> Void

    /// Only an answer with too large headers leaves the connection usable. All other faults close it.
    var keepsConnection: Bool { words.contains("the received headers are over") }

    init(_ code: StatusCode, _ words: String, _ bytes: String) {
      self.init(code, words) { $0.send(bytes) }
    }
    init(_ code: StatusCode, _ words: String, _ script: @escaping @Sendable (Peer) -> Void) {
      testDescription = words
      self.code = code
      self.words = words
      self.script = script
    }
  }

  static let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
  static let closed = "connection closed by peer before the answer was complete"

  static let stories = [
    Story(.unavailable, closed + ": it has sent no answer", ""),
    Story(.unavailable, closed + ", in the middle of the answer's status line", "HTTP/1.1 2"),
    Story(
      .unavailable, closed + ", in the middle of the answer's status line", "HTTP/1.1 100 Continue\r\n\r\n"),
    Story(.unavailable, closed + ", in the middle of the answer's headers", "HTTP/1.1 200 OK\r\nA: b\r\n"),
    Story(
      .unavailable, closed + ", 2 bytes before the end of the answer's body",
      "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n01\n02"),
    Story(.unavailable, closed + ", before the last chunk of the answer's body", head + "3\r\n01\n\r\n"),
    Story(.unavailable, closed + ", in the middle of a chunk, 1 bytes before its end", head + "3\r\n01"),
    Story(.unavailable, closed + ", in the middle of the answer's trailers", head + "0\r\nA: b\r\n"),
    Story(.internal, "the peer does not speak HTTP/1.1: it answered \"SSH-2.0-x\"", "SSH-2.0-x\r\n"),
    Story(
      .internal,
      rules + "a space or a tab before the first field, in the header line \" A: b\"",
      "HTTP/1.1 200 OK\r\n A: b\r\n\r\n"),
    Story(
      .internal, rules + "both content-length and transfer-encoding",
      "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
    Story(
      .internal,
      rules + "the size of a chunk is not a hexadecimal number, in the line with a chunk's size \"x\"",
      head + "x\r\n"),
    Story(.internal, rules + "too many informational responses (1xx)") { peer in
      for _ in 0...Limits.informationalResponses { peer.send("HTTP/1.1 100 Continue\r\n\r\n") }
      peer.waitForClose()
    },
    // Bytes behind a whole answer close the connection and leave the answer.
    Story(.ok, "", "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n01\n! 0 \nHTT"),
    Story(
      .ok, "",
      head + "8\r\n01\n! 0 \n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    Story(.unknown, "", "HTTP/1.1 204 \r\nContent-Length: 5\r\n\r\nhello"),
    Story(.resourceExhausted, "the received headers are over the limit of 1024 bytes (max_header_list_bytes)")
    {
      $0.answer([[1]], "A: \(String(repeating: "b", count: 1024))\r\n")
    },
    Story(
      .resourceExhausted,
      "the connection ended: received headers are over four times the limit of 1024 bytes (max_header_list_bytes)"
    ) {
      $0.send("HTTP/1.1 200 OK\r\n")
      for _ in 0..<1000 { $0.send("A: \(String(repeating: "b", count: 100))\r\n") }
      $0.waitForClose()
    },
  ]

  /// The faulty answer ends its call with the expected words and closes the connection. The next call
  /// succeeds on another connection.
  @Test(arguments: stories)
  func whatTheCallHears(_ story: Story) throws {
    let server = RawServer(
      { peer in
        while let request = peer.readRequest() {
          if request.messages == [[1]] {
            peer.answer([[1]])
          } else {
            story.script(peer)
            if !story.keepsConnection { return }
          }
        }
      }, Peer.echo1)
    defer { server.stop() }
    let client = try #require(
      http1Client(server.target) {
        $0.maxHeaderListBytes = 1024
        $0.backoff.initial = 1_000_000
      })
    #expect(client.unary("/a.B/C", [1]).code == .ok)
    let answer = client.unary("/a.B/C", [2])
    #expect(answer.code == story.code && answer.words == story.words, "\(answer.code): \(answer.words)")
    let next = client.unary("/a.B/C", [1])
    #expect(next.code == .ok, "\(next.words)")
    #expect(server.complaints == [])
    #expect(server.connections == (story.keepsConnection ? 1 : 2))
  }

  // MARK: Kept connections

  /// If the server has closed an idle connection, the next call does not use it.
  @Test(arguments: [false, true])
  func aKeptConnectionThatTheServerClosed(tls: Bool) throws {
    let closed = Counter()
    let server = RawServer(
      tls: tls ? serverTLS { $0.http = .http1 } : nil,
      { peer in
        if let request = peer.readRequest() { peer.answer(request.messages) }
        peer.shutdown()
        closed.up()
      })
    defer { server.stop() }
    // No thread polls between two calls, so the next call itself has to look at the connection.
    let client = try #require(
      http1Client(server.target, mode: .host, tls: tls ? Certificates.shared.client() : nil))
    for count in 1...5 {
      let answer = client.unary("/a.B/C", [1])
      #expect(answer.code == .ok, "\(answer.words)")
      eventually("the server closes the connection") { closed.now == count }
      // A connection relies on a poll of the loop for this time, although the server may have closed it since then.
      let looked = Platform.systemClock() + HTTP1Connection.lately
      eventually("the last poll is old") { Platform.systemClock() > looked }
      #expect(server.connections == count)
    }
  }

  /// The client closes an idle connection on which the server sends bytes without a request. So the bytes are not taken
  /// for the answer to the next request.
  @Test func bytesOnAKeptConnection() throws {
    let closed = Counter()
    let server = RawServer { peer in
      guard let request = peer.readRequest() else { return }
      peer.answer(request.messages)
      peer.send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
      peer.waitForClose()
      closed.up()
    }
    defer { server.stop() }
    let client = try #require(http1Client(server.target))
    for count in 1...5 {
      let answer = client.unary("/a.B/C", [1])
      // The additional bytes may arrive together with the answer. The call then fails.
      #expect(
        answer.code == .ok || answer.words.contains("bytes behind the end of its answer"), "\(answer.words)")
      eventually("the client closes the connection") { closed.now == count }
    }
    #expect(server.connections == 5)
  }

  /// A request without an answer is sent again only if the method may be called twice.
  @Test(arguments: [Idempotency.unknown, .idempotent, .noSideEffects])
  func aRequestWithoutAnAnswer(_ idempotency: Idempotency) throws {
    let server = RawServer(
      { peer in
        _ = peer.readRequest()
        peer.answer([[1]])
        _ = peer.readRequest()
      }, Peer.echo1)
    defer { server.stop() }
    let client = try #require(http1Client(server.target))
    #expect(client.unary("/a.B/C", [1]).code == .ok)
    let answer = client.unary("/a.B/C", [2]) { $0.idempotency = idempotency }
    if idempotency == .unknown {
      #expect(answer.code == .unavailable && answer.words == Self.closed + ": it has sent no answer")
      #expect(server.connections == 1)
    } else {
      #expect(answer.code == .ok && answer.message == [2], "\(answer.words)")
      #expect(server.connections == 2)
    }
  }

  /// A request whose answer has begun is not sent again.
  @Test func anAnswerThatHasBegun() throws {
    let server = RawServer(
      { peer in
        _ = peer.readRequest()
        peer.send("H")
      }, Peer.echo1)
    defer { server.stop() }
    let client = try #require(http1Client(server.target))
    let answer = client.unary("/a.B/C", [2]) { $0.idempotency = .noSideEffects }
    #expect(answer.code == .unavailable)
    #expect(server.connections == 1)
  }

  // MARK: Early answers

  /// An answer arrives while the request is still being sent. The call gets this answer, and the connection
  /// closes.
  @Test(arguments: [false, true])
  func anEarlyAnswer(whole: Bool) throws {
    let server = RawServer(
      { peer in
        guard let head = peer.readHead() else { return }
        peer.expect((head.value("content-length") != nil) == whole, "\(head.lines)")
        peer.answer([[9]])
        peer.waitForClose()
      }, Peer.echo1)
    defer { server.stop() }
    let client = try #require(http1Client(server.target))
    if whole {
      let answer = client.unary("/a.B/C", [UInt8](repeating: 1, count: 4_000_000))
      #expect(answer.code == .ok && answer.message == [9], "\(answer.words)")
    } else {
      let call = client.make("/a.B/C", .clientStream)
      call.open()
      #expect(call.say([1]) == .ok)
      #expect(call.next() == [9])
      #expect(Answer(try #require(call.finish().1)).code == .ok)
    }
    #expect(client.unary("/a.B/C", [1]).message == [1])
    #expect(server.connections == 2 && server.complaints == [])
  }

  // MARK: Streams, and half duplex

  @Test func aServerStream() throws {
    let server = RawServer { peer in
      while peer.readRequest() != nil {
        peer.answerHead()
        for n in 0..<UInt8(100) { peer.sendChunk(LineFraming.line([n])) }
        peer.endAnswer()
      }
    }
    defer { server.stop() }
    let client = try #require(http1Client(server.target))
    for _ in 0..<3 {
      let call = client.make("/a.B/C", .serverStream)
      call.open()
      #expect(call.say([1]) == .ok)
      _ = call.halfClose()
      for n in 0..<UInt8(100) { #expect(call.next() == [n]) }
      #expect(call.receive().1 == nil)
      #expect(Answer(try #require(call.finish().1)).code == .ok)
    }
    #expect(server.connections == 1)
  }

  /// The messages of a client stream arrive at the server in order. Several messages may be in one chunk.
  @Test func aClientStream() throws {
    let server = RawServer { peer in
      while let request = peer.readRequest() {
        peer.answer([[UInt8(request.messages.count)]])
      }
    }
    defer { server.stop() }
    let client = try #require(http1Client(server.target))
    for _ in 0..<3 {
      let call = client.make("/a.B/C", .clientStream)
      call.open()
      for n in 0..<UInt8(200) { #expect(call.say([n]) == .ok) }
      _ = call.halfClose()
      let answer = Answer(try #require(call.finish().1))
      #expect(answer.code == .ok && answer.message == [200], "\(answer.words)")
    }
    #expect(server.connections == 1 && server.complaints == [])
  }

  /// A bidi call succeeds if the answer begins only after the whole request.
  @Test func halfDuplex() throws {
    let server = RawServer(Peer.echo1)
    defer { server.stop() }
    let client = try #require(http1Client(server.target))
    for _ in 0..<3 {
      let call = client.make("/a.B/C", .bidi)
      call.open()
      for n in 0..<UInt8(10) { #expect(call.say([n]) == .ok) }
      _ = call.halfClose()
      for n in 0..<UInt8(10) { #expect(call.next() == [n]) }
      #expect(call.receive().1 == nil)
      #expect(Answer(try #require(call.finish().1)).code == .ok)
    }
    #expect(server.connections == 1)
  }

  /// If a message arrives before the call's half-close, the call ends with an error, and does not hang.
  @Test func aMessageBeforeTheHalfClose() throws {
    let server = RawServer { peer in
      _ = peer.readHead()
      _ = peer.readChunk()
      peer.answerHead()
      peer.sendChunk(LineFraming.line([7]))
      peer.waitForClose()
    }
    defer { server.stop() }
    let client = try #require(http1Client(server.target))
    let call = client.make("/a.B/C", .bidi)
    call.open()
    #expect(call.say([1]) == .ok)
    #expect(call.receive().1 == nil)
    let answer = Answer(try #require(call.finish().1))
    #expect(answer.code == .unimplemented)
    #expect(
      answer.words
        == "a message was read before the call's half-close, but HTTP/1.1 is half-duplex: half-close the "
        + "call first, or use HTTP/2")
  }

  /// In blocking style, an answer that is complete before the half-close waits until a thread asks for it.
  @Test func anAnswerBeforeTheHalfClose() throws {
    let answered = Counter()
    let server = RawServer { peer in
      _ = peer.readHead()
      _ = peer.readChunk()
      peer.answer([[7]])
      answered.up()
      peer.waitForClose()
    }
    defer { server.stop() }
    let client = try #require(http1Client(server.target, mode: .host))
    let call = client.make("/a.B/C", .bidi)
    call.open()
    #expect(call.say([1]) == .ok)
    eventually("the server answers") {
      client.settle()
      return answered.now == 1
    }
    // The loop reads the answer.
    client.settle()
    _ = call.halfClose()
    #expect(call.next() == [7])
    #expect(call.receive().1 == nil)
    #expect(Answer(try #require(call.finish().1)).code == .ok)
  }

  /// An error status that arrives before the half-close is reported to the call unchanged.
  @Test func anErrorBeforeTheHalfClose() throws {
    let server = RawServer { peer in
      _ = peer.readHead()
      peer.send("HTTP/1.1 403 Forbidden\r\nX-Status: ! 7 \r\nContent-Length: 0\r\n\r\n")
      peer.waitForClose()
    }
    defer { server.stop() }
    let client = try #require(http1Client(server.target, mode: .host))
    let told = Told()
    let call = client.make("/a.B/C", .bidi, told: told)
    call.open()
    #expect(call.demand(1) == .ok)
    while told.code == nil { _ = client.runtime.runtime.poll(timeoutMilliseconds: 1000) }
    #expect(told.code == .permissionDenied && told.messages.isEmpty)
  }

  // MARK: Cancelled calls

  /// A call that ends before its answer closes its connection.
  @Test func aCancelledCall() throws {
    let server = RawServer(
      { peer in
        _ = peer.readRequest()
        peer.answerHead()
        peer.sendChunk(LineFraming.line([1]))
        peer.waitForClose()
      }, Peer.echo1)
    defer { server.stop() }
    let client = try #require(http1Client(server.target))
    let call = client.make("/a.B/C", .serverStream)
    call.open()
    #expect(call.say([1]) == .ok)
    _ = call.halfClose()
    #expect(call.receive().1 != nil)
    call.cancel(bytes("enough").view)
    #expect(Answer(try #require(call.finish().1)).code == .cancelled)
    #expect(client.unary("/a.B/C", [1]).message == [1])
    #expect(server.connections == 2)
  }

  /// If the rest of an answer has already arrived when its call ends, the connection is kept.
  @Test func anErrorWithAPage() throws {
    let server = RawServer { peer in
      while let request = peer.readRequest() {
        if request.messages == [[1]] {
          peer.answer([[1]])
        } else {
          let page = String(repeating: "<p>", count: 5000)
          peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(page.utf8.count + 4)\r\n\r\n! 5\n\(page)")
        }
      }
    }
    defer { server.stop() }
    let client = try #require(http1Client(server.target))
    for _ in 0..<3 {
      #expect(client.unary("/a.B/C", [2]).code != .ok)
      #expect(client.unary("/a.B/C", [1]).code == .ok)
    }
    #expect(server.complaints == [])
  }
}
