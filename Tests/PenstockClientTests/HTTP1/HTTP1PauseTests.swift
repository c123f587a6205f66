import Glibc
import PenstockTestCertificates
import PenstockTestSupport
import Testing

@testable import PenstockCall
@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// Tests of connections that have stopped reading, because a call does not read its answer.
@Suite(.timeLimit(.minutes(15))) struct HTTP1PauseTests {
  /// If a call does not read its answer, the server can send only a window of bytes and the content of the
  /// kernel's buffers, and the loop has nothing to do.
  @Test(arguments: [false, true])
  func anAnswerThatNobodyReads(tls: Bool) throws {
    let lock = Lock()
    nonisolated(unsafe) var sent = 0
    nonisolated(unsafe) var busy: Peer?
    let server = RawServer(tls: tls ? serverTLS { $0.http = .http1 } : nil) { peer in
      _ = peer.readRequest()
      lock.withLock { busy = peer }
      peer.answerHead()
      let line = LineFraming.line([UInt8](repeating: 1, count: 50_000))
      for _ in 0..<300 {
        peer.sendChunk(line)
        lock.withLock { sent += 1 }
      }
      peer.endAnswer()
    }
    defer { server.stop() }
    let client = try #require(
      http1Client(server.target, mode: .host, tls: tls ? Certificates.shared.client() : nil) {
        $0.initialStreamWindow = 65535
      })
    // 15 MB in hexadecimal digits take long in a build that is not optimized.
    let call = client.make("/a.B/C", .serverStream) { $0.deadline = 240_000_000_000 }
    call.open()
    #expect(call.say([1]) == .ok)
    _ = call.halfClose()
    #expect(call.receive().1?.count == 50_000)
    eventually("the server can send no more") {
      comesToRest(client) && lock.withLock { busy?.isFull == true }
    }
    #expect(comesToRest(client))
    #expect(lock.withLock { sent } < 250)
    for _ in 1..<300 { #expect(call.receive().1?.count == 50_000) }
    #expect(call.receive().1 == nil)
    #expect(Answer(try #require(call.finish().1)).code == .ok)
  }

  /// Whether the loop, which the test drives, has nothing to do after some turns. A loop that runs turn after turn
  /// instead of sleeping never comes to rest.
  private func comesToRest(_ client: TestClient) -> Bool {
    for _ in 0..<1000 {
      client.turn()
      if !isReadable(client.runtime.runtime.pollableFD) { return true }
    }
    return false
  }

  /// If a call does not read its answer, the loop also sleeps after the server has reset the connection,
  /// although epoll reports a reset connection in each turn.
  @Test func anAnswerThatNobodyReadsOnALostConnection() throws {
    let sent = Counter()
    let mayReset = Counter()
    let server = RawServer { peer in
      _ = peer.readRequest()
      peer.answerHead()
      for _ in 0..<4 { peer.sendChunk(LineFraming.line([UInt8](repeating: 1, count: 50_000))) }
      sent.up()
      eventually("the client has stopped reading") { mayReset.now == 1 }
      peer.reset()
    }
    defer { server.stop() }
    let client = try #require(http1Client(server.target, mode: .host) { $0.initialStreamWindow = 65535 })
    let call = client.make("/a.B/C", .serverStream)
    call.open()
    #expect(call.say([1]) == .ok)
    _ = call.halfClose()
    #expect(call.receive().1?.count == 50_000)
    eventually("the server has sent everything") { comesToRest(client) && sent.now == 1 }
    #expect(comesToRest(client))
    mayReset.up()
    #expect(isReadable(client.runtime.runtime.pollableFD, milliseconds: 20_000), "no reset")
    #expect(comesToRest(client))
    while call.receive().1 != nil {}
    #expect(Answer(try #require(call.finish().1)).code == .unavailable)
  }

  /// A write fails while a call does not read its answer. The loop sleeps until the call reads, the call ends, and no other
  /// call gets the connection.
  @Test func aWriteThatFailsWhileNobodyReads() throws {
    let sent = Counter()
    let mayReset = Counter()
    let server = RawServer(
      { peer in
        _ = peer.readHead()
        peer.answerHead()
        for _ in 0..<4 { peer.sendChunk(LineFraming.line([UInt8](repeating: 1, count: 50_000))) }
        sent.up()
        eventually("the client has stopped reading") { mayReset.now == 1 }
        peer.reset()
      }, Peer.echo1)
    defer { server.stop() }
    let client = try #require(http1Client(server.target, mode: .host) { $0.initialStreamWindow = 65535 })
    let call = client.make("/a.B/C", .serverStream)
    call.open()
    // The server does not read this message, so the kernel does not accept all of it.
    #expect(call.say([UInt8](repeating: 1, count: 4_000_000)) == .ok)
    _ = call.halfClose()
    #expect(call.receive().1?.count == 50_000)
    eventually("the server has sent everything") { comesToRest(client) && sent.now == 1 }
    let attempt = try #require(call.call.below as? Attempt)
    let connection = try #require((attempt.stream as? HTTP1Stream)?.connection)
    #expect(connection.life.body != nil && connection.reading == .paused(peerHasEnded: false))
    // The reset comes after the loop has polled, and before the connection writes. So the write is the first to find it.
    let runtime = client.runtime.runtime
    let seen = Box<(HTTP1Life, HTTP1Reading)?>(nil)
    _ = runtime.post(
      Work {
        mayReset.up()
        eventually("the reset has come") { hasHungUp(connection.link.socket.descriptor) }
        connection.wantsWrite()
        runtime.atTurnEnd(TurnEnd { seen.value = (connection.life, connection.reading) })
      })
    client.turn()
    #expect(try #require(seen.value) == (.deaf(wasSent: false), .paused(peerHasEnded: false)))
    #expect(comesToRest(client))
    #expect(connection.life == .deaf(wasSent: false) && connection.reading == .unwatched(isDue: false))
    while call.receive().1 != nil {}
    #expect(Answer(try #require(call.finish().1)).code == .unavailable)
    #expect(connection.life == .closed)
    #expect(client.unary("/a.B/C", [1]).message == [1])
    #expect(server.connections == 2)
  }

  private func hasHungUp(_ descriptor: Int32) -> Bool {
    var one = pollfd(fd: descriptor, events: 0, revents: 0)
    return poll(&one, 1, 0) == 1 && Int32(one.revents) & POLLHUP != 0
  }
}
