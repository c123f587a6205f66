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

/// Tests of calls over HTTP/1.1, through real sockets, to servers that play a script.
@Suite(.timeLimit(.minutes(15))) struct HTTP1CallTests {
  // MARK: Requests and answers

  @Test func aUnaryCall() throws {
    let server = RawServer { peer in
      for _ in 0..<3 {
        guard let request = peer.readRequest() else { return peer.expect(false, "no request") }
        peer.expect(
          request.lines == ["POST /? HTTP/1.1", "host: ", "content-length: 5"], "\(request.lines)")
        peer.expect(request.messages == [[1, 0xff]], "\(request.body)")
        peer.answer(request.messages)
      }
    }
    defer { server.stop() }
    let client = try #require(http1Client(server.target))
    for _ in 0..<3 {
      let answer = client.unary("/a.B/C", [1, 0xff])
      #expect(answer.code == .ok, "\(answer.words)")
      #expect(answer.message == [1, 0xff])
    }
    #expect(server.connections == 1 && server.complaints == [])
  }

  @Test func aGETHasNoBody() throws {
    let server = RawServer { peer in
      while let request = peer.readRequest() {
        peer.expect(request.lines == ["GET /?0102%0A HTTP/1.1", "host: "], "\(request.lines)")
        peer.answer([[3]])
      }
    }
    defer { server.stop() }
    // The path has a line end, which makes the head invalid. So nothing is sent.
    let client = try #require(http1Client(server.target, .whole))
    let answer = client.unary("/a.B/C", [1, 2])
    #expect(answer.code == .internal)
    #expect(answer.words == "the path can't be sent over HTTP/1.1: \"/?0102.\"")
    #expect(server.complaints == [])
  }

  struct Form: Sendable, CustomTestStringConvertible {
    let testDescription: String
    /// The number of connections that three calls use.
    let connections: Int
    let script: @Sendable (Peer, [[UInt8]]) -> Void
    init(_ name: String, _ connections: Int = 1, _ script: @escaping @Sendable (Peer, [[UInt8]]) -> Void) {
      testDescription = name
      self.connections = connections
      self.script = script
    }
  }

  static func body(_ messages: [[UInt8]]) -> [UInt8] {
    messages.flatMap { LineFraming.line($0) } + Peer.okLine
  }

  static let forms = [
    Form("content-length") { $0.answer($1) },
    Form("chunked") { peer, messages in
      peer.answerHead()
      for byte in body(messages) { peer.sendChunk([byte]) }
      peer.send("0\r\n\r\n")
    },
    Form("one chunk") { peer, messages in
      let body = body(messages)
      let size = String(body.count, radix: 16)
      peer.send(
        Array("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\(size);a=b\r\n".utf8) + body
          + Array("\r\n0\r\n\r\n".utf8))
    },
    Form("byte by byte") { peer, messages in
      let body = body(messages)
      for byte in Array("HTTP/1.1 200 OK\r\nContent-Length: \(body.count)\r\n\r\n".utf8) + body {
        peer.send([byte])
      }
    },
    Form("informational responses") { peer, messages in
      peer.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
      peer.answer(messages)
    },
    Form("until close", 3) { peer, messages in
      peer.answerHead("")
      peer.send(body(messages))
      peer.shutdown()
    },
    Form("connection: close", 3) { $0.answer($1, "Connection: close\r\n") },
    Form("HTTP/1.0", 3) { peer, messages in
      let body = body(messages)
      peer.send(Array("HTTP/1.0 200 OK\r\nContent-Length: \(body.count)\r\n\r\n".utf8) + body)
    },
    Form("HTTP/1.0, kept") { peer, messages in
      let body = body(messages)
      peer.send(
        Array("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: \(body.count)\r\n\r\n".utf8)
          + body)
    },
    Form("closed after the answer", 3) { peer, messages in
      peer.answer(messages)
      peer.shutdown()
    },
  ]

  @Test(arguments: forms, [false, true])
  func anyFormOfAnAnswer(_ form: Form, tls: Bool) throws {
    let server = RawServer(tls: tls ? serverTLS { $0.http = .http1 } : nil) { peer in
      while let request = peer.readRequest() { form.script(peer, request.messages) }
    }
    defer { server.stop() }
    if tls, form.testDescription == "until close" || form.testDescription == "closed after the answer" {
      return
    }
    let client = try #require(http1Client(server.target, tls: tls ? Certificates.shared.client() : nil))
    for count in 1...3 {
      // A request may cross the end of its connection, and is sent again.
      let answer = client.unary("/a.B/C", [UInt8](repeating: 7, count: count)) {
        $0.idempotency = .idempotent
      }
      #expect(answer.code == .ok, "\(answer.words)")
      #expect(answer.message?.count == count)
      if form.connections == 3 { eventually("connection \(count)") { server.connections == count } }
    }
    #expect(server.connections == form.connections && server.complaints == [])
  }

  /// Without a length, the end of the connection is the end of the answer. With TLS, only a close_notify
  /// shows that the answer is complete.
  @Test(arguments: [false, true])
  func anAnswerThatIsCutOffIsLost(tls: Bool) throws {
    let server = RawServer(tls: tls ? serverTLS { $0.http = .http1 } : nil) { peer in
      guard let request = peer.readRequest() else { return }
      peer.answerHead("")
      peer.send(request.messages.flatMap { LineFraming.line($0) })
      peer.shutdown()
    }
    defer { server.stop() }
    let client = try #require(http1Client(server.target, tls: tls ? Certificates.shared.client() : nil))
    let answer = client.unary("/a.B/C", [1])
    #expect(answer.code == (tls ? .unavailable : .internal))
    #expect(
      answer.words
        == (tls
          ? "connection closed by peer before the answer was complete"
          : "the stream ended without a status"))
  }

  @Test(arguments: [false, true])
  func largeMessages(tls: Bool) throws {
    let server = RawServer(tls: tls ? serverTLS { $0.http = .auto } : nil) { peer in
      while let request = peer.readRequest() {
        if request.messages[0].count % 2 == 0 {
          peer.answer(request.messages)
        } else {
          peer.answerHead()
          var rest = request.body[...]
          while !rest.isEmpty {
            peer.sendChunk(Array(rest.prefix(50_000)))
            rest = rest.dropFirst(50_000)
          }
          peer.endAnswer()
        }
      }
    }
    defer { server.stop() }
    let client = try #require(
      http1Client(server.target, tls: tls ? Certificates.shared.client() : nil) { $0.http = .http1 })
    for size in [200_000, 100_001, 10] {
      let message = [UInt8](repeating: 0x5a, count: size)
      let answer = client.unary("/a.B/C", message) { $0.maxReceiveBytes = 1 << 30 }
      #expect(answer.code == .ok, "\(answer.words)")
      #expect((answer.message == message) == true)
    }
    #expect(server.connections == 1)
  }
}
