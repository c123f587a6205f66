import PenstockCall
import PenstockWire
import PenstockTestSupport
import PenstockTestCertificates
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// Tests of channels against scripted peers: connections, limits, retries, flow control.
@Suite(.timeLimit(.minutes(15))) struct ChannelTests {
  let certificates = Certificates.shared

  /// Answers each request with its first message.
  static func echo(_ peer: Peer) {
    peer.begin()
    answer(peer)
  }

  static func answer(_ peer: Peer) {
    while let frame = peer.readFrame() {
      if frame.type == 4, frame.flags == 0 { peer.send(.settingsAck) }
      if frame.type == 0 {
        peer.send(.windowUpdate(0, UInt32(frame.payload.count)))
        peer.send(.head(frame.stream), .data(frame.stream, frame.payload), .trailers(frame.stream))
      }
    }
  }

  @Test func echoes() throws {
    let server = RawServer(ChannelTests.echo)
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    for n in 0..<50 {
      let message = [UInt8](repeating: UInt8(n), count: n)
      let answer = client.unary("/a.B/C", message)
      #expect(answer.code == .ok && answer.message == message)
    }
    #expect(server.connections == 1)
  }

  @Test func statistics() throws {
    let server = RawServer(ChannelTests.echo)
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let stats = client.unary("/a.B/C", [1, 2, 3]).reply.stats
    #expect(stats.received.messages == 1 && stats.received.bytes == 3 && stats.received.wireBytes == 8)
    #expect(stats.sent.messages == 1 && stats.sent.bytes == 3 && stats.sent.wireBytes == 8)
    #expect(stats.createdAt <= stats.firstByteSentAt && stats.firstByteSentAt <= stats.headersAt)
    #expect(stats.headersAt <= stats.firstMessageAt && stats.firstMessageAt > 0)
    #expect(stats.connection.map { text($0.peer) } == server.target)
  }

  // MARK: Retries and GOAWAY

  @Test func refusedStreamIsTriedAgain() throws {
    let server = RawServer { peer in
      peer.begin()
      peer.send(.reset(peer.request(), 7))
      ChannelTests.answer(peer)
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let answer = client.unary("/a.B/C", [1, 2, 3])
    #expect(answer.code == .ok && answer.message == [1, 2, 3])
    // Each of the two attempts has sent the message.
    #expect(answer.reply.stats.sent.messages == 2)
    #expect(answer.reply.stats.attempts == 2)
    #expect(server.connections == 1)
  }

  /// The library keeps the messages of a call for a retry only up to 1 MiB. Over this limit it must not send
  /// the request again, because the kept part would look like a whole body.
  @Test func refusedStreamWithALargeBodyIsNotTriedAgain() throws {
    let server = RawServer { peer in
      peer.begin()
      peer.send(.reset(peer.request(), 7))
      ChannelTests.answer(peer)
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let answer = client.unary("/a.B/C", [UInt8](repeating: 1, count: (1 << 20) + 1))
    #expect(answer.code == .unavailable)
    #expect(
      answer.words
        == "the server refused the stream (REFUSED_STREAM); the request is not sent again, because its messages are "
        + "over replay_bytes or channel_replay_bytes, or more than 4096")
    // The refused request must not disturb the next call on the connection.
    #expect(client.unary("/a.B/C", [1, 2, 3]).message == [1, 2, 3])
  }

  /// The library keeps exactly 1 MiB of messages for a retry. With one more byte it does not send the request
  /// again.
  @Test(arguments: [(1 << 20, true), ((1 << 20) + 1, false)])
  func refusedStreamAtTheLimitOfWhatIsKept(_ size: Int, _ again: Bool) throws {
    let server = RawServer { peer in
      peer.begin()
      peer.send(.reset(peer.request(), 7))
      if again {
        let id = peer.request()
        peer.send(.head(id), .message(id, [9]), .trailers(id))
      }
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let answer = client.unary("/a.B/C", [UInt8](repeating: 1, count: size))
    #expect(answer.code == (again ? .ok : .unavailable))
    #expect(answer.message == (again ? [9] : nil))
  }

  @Test func streamAboveGoAwayGoesToANewConnection() throws {
    let server = RawServer(
      { peer in
        peer.begin()
        _ = peer.request()
        peer.send(.goAway(0))
        peer.waitForEnd()
      }, ChannelTests.echo)
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let answer = client.unary("/a.B/C", [1, 2, 3])
    #expect(answer.code == .ok && answer.message == [1, 2, 3])
    #expect(server.connections == 2)
  }

  @Test func streamAboveGoAwayTwice() throws {
    let server = RawServer { peer in
      peer.begin()
      _ = peer.request()
      peer.send(.goAway(0, 0, "bye"))
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let answer = client.unary("/a.B/C", [1, 2, 3])
    #expect(answer.code == .unavailable)
    #expect(answer.words == "the server sent GOAWAY (NO_ERROR: bye)")
    // The second connection has ended, too, and the channel may already have begun a third connection.
    #expect((2...3).contains(server.connections))
  }

  @Test func goAwayLetsStreamsFinish() throws {
    let server = RawServer(
      { peer in
        peer.begin()
        let id = peer.request()
        peer.send(.goAway(id))
        _ = peer.frame(0)
        peer.send(.head(id), .message(id, [9]), .trailers(id))
        // The client must close the connection, which it no longer uses.
        peer.waitForEnd()
      }, ChannelTests.echo)
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    #expect(client.unary("/a.B/C", [1]).message == [9])
    #expect(client.unary("/a.B/C", [2]).message == [2])
    #expect(server.connections == 2)
  }

  @Test func aDeadConnectionIsMadeAgain() throws {
    let server = RawServer(
      { peer in
        peer.begin()
        _ = peer.request()
      }, ChannelTests.echo)
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    #expect(client.unary("/a.B/C", [1]).code == .unavailable)
    #expect(client.unary("/a.B/C", [2]).message == [2])
  }

  // MARK: Limits

  @Test func manyCallsAtOnce() throws {
    let server = RawServer(ChannelTests.echo)
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let calls = (0..<1000).map { _ in client.make("/a.B/C", .unary) }
    for (n, call) in calls.enumerated() { call.open(buffer(big(UInt32(n)))) }
    for (n, call) in calls.enumerated() {
      let answer = Answer(try #require(call.finish().1))
      #expect(answer.code == .ok && answer.message == big(UInt32(n)))
    }
  }

  @Test func headersOverThePeersLimit() throws {
    let server = RawServer { peer in
      peer.begin([(6, 1000)])
      ChannelTests.answer(peer)
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let answer = client.unary("/a.B/C", [1]) { options in
      let name = bytes("x-a")
      let value = bytes(String(repeating: "v", count: 1000))
      _ = options.metadata.add(name.view, value.view)
    }
    #expect(answer.code == .resourceExhausted)
    #expect(answer.words.hasSuffix("over the limit of 1000 that the server has set"))
    #expect(client.unary("/a.B/C", [1]).code == .ok)
  }

  // MARK: What the peer sees

  @Test func deadlineResetsWithCancel() throws {
    let server = RawServer { peer in
      peer.begin()
      let id = peer.request()
      let reset = peer.frame(3)
      peer.expect(reset == .reset(id, 8), "\(String(describing: reset))")
      peer.send(.head(id), .trailers(id))
      ChannelTests.answer(peer)
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    #expect(client.unary("/a.B/C", [1]) { $0.deadline = 50_000_000 }.code == .deadlineExceeded)
    // Late frames for the call that has ended must not disturb the next call.
    #expect(client.unary("/a.B/C", [2]).message == [2])
    #expect(server.complaints == [])
  }

  /// gRPC over HTTP2, "Early Server Closure": trailers arrive before the client's half-close. The client
  /// answers with RST_STREAM(NO_ERROR).
  @Test func trailersBeforeHalfCloseResetWithNoError() throws {
    let server = RawServer { peer in
      peer.begin()
      let id = peer.request()
      peer.send(.head(id), .trailers(id, "10"))
      let reset = peer.frame(3)
      peer.expect(reset == .reset(id, 0), "\(String(describing: reset))")
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let call = client.make("/a.B/C", .bidi)
    call.open()
    while call.receive().1 != nil {}
    #expect(Answer(try #require(call.finish().1)).code == .aborted)
    // After a further call the RST_STREAM has certainly been sent.
    _ = client.unary("/a.B/C", []) { $0.deadline = 50_000_000 }
    #expect(server.complaints == [])
  }

  @Test func pingsAreAnswered() throws {
    let server = RawServer { peer in
      peer.begin()
      let id = peer.request()
      peer.send(Frame(type: 6, stream: 0, payload: [1, 2, 3, 4, 5, 6, 7, 8]))
      let answer = peer.frame(6)
      peer.expect(answer?.flags == 1 && answer?.payload == [1, 2, 3, 4, 5, 6, 7, 8], "no answer")
      peer.send(.head(id), .message(id, [1]), .trailers(id))
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    #expect(client.unary("/a.B/C", [1]).code == .ok)
    #expect(server.complaints == [])
  }

  @Test func aChannelThatClosesSaysGoodbye() throws {
    let watching = RawServer { peer in
      peer.begin()
      let id = peer.request()
      peer.send(.head(id), .message(id, [1]), .trailers(id))
      peer.expect(peer.frame(7) == .goAway(0), "no GOAWAY")
      peer.waitForEnd()
    }
    defer { watching.stop() }
    do {
      let client = try #require(TestClient(watching.target))
      #expect(client.unary("/a.B/C", [1]).code == .ok)
      #expect(client.channel.close() == .ok)
      // The server receives the GOAWAY although the client is released here: the release shuts the runtime
      // down, and waits until the loop has sent its output.
    }
    #expect(watching.complaints == [])
  }

  @Test func closingEndsCalls() throws {
    let server = RawServer { peer in
      peer.begin()
      _ = peer.request()
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let call = client.make("/a.B/C", .bidi)
    call.open()
    _ = client.channel.close()
    let answer = Answer(try #require(call.finish().1))
    #expect(answer.code == .cancelled && answer.words == "channel closed")
  }

  // MARK: Flow control

  @Test func sendingKeepsToThePeersWindow() throws {
    let size = 200_000
    let server = RawServer { peer in
      peer.begin([(4, 1000)])
      let id = peer.request()
      var got = 0
      while got < size + 5, let frame = peer.readFrame() {
        guard frame.type == 0 else { continue }
        got += frame.payload.count
        peer.expect(frame.payload.count <= 1000, "over the window")
        peer.send(
          .windowUpdate(id, UInt32(frame.payload.count)), .windowUpdate(0, UInt32(frame.payload.count)))
      }
      peer.send(.head(id), .message(id, big(UInt32(got))), .trailers(id))
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let answer = client.unary("/a.B/C", [UInt8](repeating: 1, count: size))
    #expect(answer.message == big(UInt32(size + 5)))
    #expect(server.complaints == [])
  }

  /// A message is larger than the sockets' buffers, and the peer reads late. The client sends the rest of the
  /// message when the peer has read.
  @Test(arguments: [false, true])
  func aFullSocketWaits(_ overTLS: Bool) throws {
    let size = 12 << 20
    var pattern = [UInt8](repeating: 1, count: size)
    for at in stride(from: 0, to: size, by: 4093) { pattern[at] = UInt8(truncatingIfNeeded: at / 4093) }
    let message = pattern
    let server = RawServer(tls: overTLS ? serverTLS() : nil) { peer in
      peer.begin([(4, 0x7FFF_FFFF)])
      peer.send(.windowUpdate(0, 0x7000_0000))
      let id = peer.request()
      peer.waitForUnread(64 << 10)
      let expected = [0] + big(UInt32(size)) + message
      var got = 0
      while got < size + 5, let frame = peer.readFrame() {
        guard frame.type == 0 else { continue }
        let end = min(got + frame.payload.count, expected.count)
        peer.expect(Array(expected[got..<end]) == frame.payload, "other bytes")
        got += frame.payload.count
      }
      peer.send(.head(id), .message(id, big(UInt32(got))), .trailers(id))
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target) { $0.tls = overTLS ? certificates.client() : nil })
    #expect(client.unary("/a.B/C", message).message == big(UInt32(size + 5)))
    #expect(server.complaints == [])
  }

  @Test(arguments: [false, true])
  func anAnswerByteByByte(_ overTLS: Bool) throws {
    let server = RawServer(tls: overTLS ? serverTLS() : nil) { peer in
      peer.begin()
      let id = peer.request()
      let frames: [Frame] = [.head(id), .message(id, [1, 2, 3]), .trailers(id)]
      for byte in frames.flatMap({ $0.encoded }) { peer.send([byte]) }
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try #require(TestClient(server.target) { $0.tls = overTLS ? certificates.client() : nil })
    #expect(client.unary("/a.B/C", [1]).message == [1, 2, 3])
  }

  /// If no thread reads the messages of a stream, only that stream's window is used up, and other streams
  /// continue. A message that is larger than the window still arrives.
  @Test func oneSlowStreamDoesNotStarveOthers() throws {
    let window = 65535
    let server = RawServer { peer in
      peer.begin()
      let slow = peer.request()
      // Sends to the stream `slow` as many bytes as its window allows.
      peer.send(.head(slow))
      var rest = [0] + big(60_000) + [UInt8](repeating: 1, count: 60_000) + [0] + big(5_525)
      while rest.count < window { rest.append(2) }
      for at in stride(from: 0, to: rest.count, by: 16000) {
        peer.send(.data(slow, Array(rest[at..<min(at + 16000, rest.count)])))
      }
      var fast: Int32 = 0
      var credit = window
      var connection = 0
      /// Handles the client's next frame. False: the client has closed the connection.
      func next() -> Bool {
        guard let frame = peer.readFrame() else { return false }
        let n = Int(frame.payload.prefix(4).reduce(UInt32(0)) { $0 << 8 | UInt32($1) })
        if frame.type == 1 { fast = frame.stream }
        if frame.type == 8 {
          peer.expect(frame.stream != slow, "credit for what nobody has read")
          if frame.stream == 0 { connection += n } else { credit += n }
        }
        return true
      }
      while fast == 0 {
        if !next() { return }
      }
      let size = 300_000
      let body = [0] + big(UInt32(size)) + [UInt8](repeating: 3, count: size)
      peer.send(.head(fast))
      var at = 0
      while at < body.count {
        let part = min(16000, body.count - at, credit, connection)
        if part > 0 {
          peer.send(.data(fast, Array(body[at..<(at + part)])))
          at += part
          credit -= part
          connection -= part
        } else if !next() {
          return
        }
      }
      peer.send(.trailers(fast))
      peer.waitForEnd()
    }
    defer { server.stop() }
    let client = try #require(
      TestClient(server.target) {
        $0.initialStreamWindow = window
        $0.initialConnectionWindow = window
      })
    let slow = client.make("/a.B/C", .bidi)
    slow.open()
    _ = slow.waitHeaders()
    #expect(client.unary("/a.B/C", [1]).message?.count == 300_000)
    #expect(server.complaints == [])
    // The test now reads the slow stream. One message is complete.
    #expect(slow.receive().1?.count == 60_000)
  }
}
