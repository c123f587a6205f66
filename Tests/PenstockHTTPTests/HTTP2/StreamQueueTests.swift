import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP
@testable import PenstockLoop

/// Tests of which requests open at once, and which wait in the session's queues.
extension SessionTests {
  private func add(_ size: Int, whole: Bool = true, to session: HTTP2Session) -> (HTTP2Stream, Recorder) {
    let stream = HTTP2Stream()
    let recorder = Recorder(session, takes: true)
    stream.owner = recorder
    if size > 0 {
      let message = buffer([UInt8](repeating: 1, count: size))
      stream.append(BodyPiece(compressed: false, message, length: UInt32(size)))
    }
    stream.endsAfterPieces = whole
    session.add(stream)
    return (stream, recorder)
  }

  private func flush(_ session: HTTP2Session) throws -> [Frame] {
    var sent: [UInt8] = []
    repeat { sent += drain(session) } while session.wantsWrite
    return try #require(Frame.all(sent)).filter { $0.type < 2 }
  }

  /// Makes a session with `count` open streams. One of them has used up the connection's window.
  private func fullSession(_ count: Int = HTTP2Session.opensAnyway) throws -> HTTP2Session {
    let session = try #require(HTTP2Session.make(TransportLimits()))
    _ = drain(session)
    _ = Frame.settings([(3, 1000), (4, 1 << 20)]).encoded.withUnsafeBytes { session.receive($0) }
    for _ in 1..<count { _ = add(0, whole: false, to: session) }
    _ = add(65_530, to: session)
    let data = try flush(session).filter { $0.type == 0 }
    #expect(data.reduce(0) { $0 + $1.payload.count } == 65_535)
    return session
  }

  private func receive(_ frame: Frame, _ session: HTTP2Session) {
    #expect(frame.encoded.withUnsafeBytes { session.receive($0) })
    session.dispatch()
  }

  /// A whole request waits for room in the connection's window, because the server could do nothing with its
  /// headers alone. A streaming request, and a request without a body, open at once.
  @Test func aWholeRequestWaitsForTheConnectionsWindow() throws {
    let session = try fullSession()
    let (first, _) = add(10, to: session)
    #expect(try flush(session).isEmpty)
    let (stream, _) = add(0, whole: false, to: session)
    let (second, _) = add(20, to: session)
    let (empty, _) = add(0, to: session)
    let opened = try flush(session)
    #expect(opened.map { $0.type } == [1, 1] && opened.map { $0.stream } == [stream.id, empty.id])
    #expect(first.life == .queued && second.life == .queued && !session.wantsWrite && !session.isIdle)

    receive(.windowUpdate(0, 15), session)
    let sent = try flush(session)
    #expect(sent.filter { $0.stream == first.id }.map { $0.type } == [1, 0])
    #expect(sent.allSatisfy { $0.stream == first.id || $0.stream == empty.id })
    #expect(first.piecesSent == 1 && second.life == .queued)

    receive(.windowUpdate(0, 1), session)
    #expect(try flush(session).map { $0.stream } == [second.id, second.id])
    receive(.windowUpdate(0, 1 << 20), session)
    #expect(try flush(session).map { $0.payload.count } == [24])
    #expect(session.queuedCount == 0 && session.failure == nil)
    session.abandon(bytes("over"))
    session.dispatch()
  }

  /// Up to `opensAnyway` whole requests open although the window has no room for their bodies. A server may
  /// answer after the headers alone, or may read one stream only after it has seen another. Such a server
  /// must not wait.
  @Test func someRequestsOpenWithoutRoom() throws {
    let session = try fullSession(1)
    let streams = (1..<HTTP2Session.opensAnyway).map { _ in add(10, to: session).0 }
    let sent = try flush(session)
    #expect(sent.map { $0.stream } == streams.map { $0.id } && sent.allSatisfy { $0.type == 1 })
    let (next, _) = add(10, to: session)
    #expect(try flush(session).isEmpty && next.life == .queued && !session.wantsWrite)

    receive(.reset(streams[7].id, 8), session)
    #expect(session.wantsWrite)
    let opened = try flush(session)
    #expect(opened.map { $0.stream } == [next.id] && opened.map { $0.type } == [1])
    session.abandon(bytes("over"))
    session.dispatch()
  }

  /// The server has received nothing of a waiting request, so the request ends as `neverSent`, even if the
  /// connection ends.
  @Test func aRequestThatWaitsIsUnprocessed() throws {
    let session = try fullSession()
    let (first, one) = add(10, to: session)
    let (second, other) = add(10, to: session)
    #expect(try flush(session).isEmpty)
    #expect(!session.letGo(first, .cancelled) && first.life == .closed)
    session.abandon(bytes("over"))
    session.dispatch()
    #expect(one.log == [] && other.log == ["never sent: over"] && second.life == .closed)
    #expect(session.isIdle)
  }

  /// A request whose headers wait for room in the output was not sent either, whether a body follows them now, later
  /// or never.
  @Test(arguments: [(10, false), (0, false), (0, true)])
  func aRequestThatWaitsForTheOutputIsUnprocessed(_ size: Int, _ hasNoBody: Bool) throws {
    let session = try #require(HTTP2Session.make(TransportLimits()))
    _ = drain(session)
    #expect(Frame.settings().encoded.withUnsafeBytes { session.receive($0) })
    let (stream, recorder) = add(size, whole: size > 0, to: session)
    recorder.hasNoBody = hasNoBody
    let out = SendQueue(copies: true)
    let filler = [UInt8](repeating: 0, count: session.limits.outputSize)
    #expect(filler.withUnsafeBytes { out.append($0) })
    #expect(session.collect(into: out) == .more && stream.life.isOpening && out.count == filler.count)
    session.abandon(bytes("over"))
    session.dispatch()
    #expect(recorder.log == ["never sent: over"])
  }

  @Test func requestsThatWaitAndEndAreForgotten() throws {
    let session = try fullSession()
    for _ in 0..<10_000 {
      let (stream, _) = add(10, to: session)
      _ = drain(session)
      session.letGo(stream, .cancelled)
    }
    #expect(session.queuedCount < 200)
    let (last, _) = add(10, to: session)
    receive(.windowUpdate(0, 1 << 20), session)
    #expect(try flush(session).contains { $0.type == 1 && $0.stream == last.id })
    #expect(session.queuedCount == 0)
    session.abandon(bytes("over"))
    session.dispatch()
  }

  /// The server permits no stream. The queue must release calls that have ended.
  @Test func queuedCallsThatEndAreForgotten() throws {
    let session = try #require(HTTP2Session.make(TransportLimits()))
    _ = drain(session)
    receive(.settings([(3, 0)]), session)
    for _ in 0..<10_000 {
      let stream = HTTP2Stream()
      session.add(stream)
      _ = drain(session)
      session.letGo(stream, .cancelled)
    }
    #expect(session.queuedCount < 200)
  }

  /// An owner that opens its stream (`opens`) or refuses to, and ignores all other events.
  private final class Idle: StreamOwner {
    let opens: Bool
    init(opens: Bool) { self.opens = opens }

    override func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool {
      opens && fields.add(":method", "POST") && fields.add(":scheme", "http") && fields.add(":path", "/a.B/C")
        && fields.add(":authority", "x")
    }
    override func streamReceives(head: HeaderBlock, endsStream: Bool) {}
    override func streamReceives(trailers: HeaderBlock) {}
    override func streamReceives(_ bytes: ByteView) -> Int { 0 }
    override func streamChanged(_ stream: TransportStream) {}
  }

  private func send(_ size: Int, on stream: HTTP2Stream) {
    let message = buffer([UInt8](repeating: 1, count: size))
    stream.append(BodyPiece(compressed: false, message, length: UInt32(size)))
    stream.endsAfterPieces = true
  }

  /// The owner of a stream refuses to open it. This uses up none of the window, so the same `collect` sends
  /// the next request. It must do so, because no later event may cause another `collect`.
  @Test func whatDoesNotOpenTakesNoRoom() throws {
    let session = try #require(HTTP2Session.make(TransportLimits()))
    receive(.settings(), session)
    _ = drain(session)
    let refused = HTTP2Stream()
    refused.owner = Idle(opens: false)
    send(100_000, on: refused)
    session.add(refused)
    let (stream, _) = add(10, to: session)
    #expect(try #require(Frame.all(drain(session))).map { $0.stream } == [0, stream.id, stream.id])
    #expect(refused.life == .closed && session.queuedCount == 0)
    session.abandon(bytes("over"))
    session.dispatch()
  }

  @Test func aStreamThatEndsInWhatIsSaidLeavesItsPlace() throws {
    let session = try #require(HTTP2Session.make(TransportLimits()))
    receive(.settings([(3, 1)]), session)
    let first = HTTP2Stream()
    first.owner = Idle(opens: true)
    session.add(first)
    _ = drain(session)
    receive(.head(1), session)
    receive(.trailers(1), session)
    let (second, _) = add(10, to: session)
    #expect(drain(session).isEmpty && first.life.isOpen && second.life == .queued)
    send(10, on: first)
    session.resume(first)
    #expect(try #require(Frame.all(drain(session))).map { $0.stream } == [1, 3, 3])
    #expect(first.life == .closed && session.queuedCount == 0)
    session.abandon(bytes("over"))
    session.dispatch()
  }

  private final class Clock: SessionTimes {
    var time: UInt64 = 1_000_000_000
    override var now: UInt64 { time }
  }

  /// After REFUSED_STREAM the session opens no further stream until another one has ended, or until a pause is over; and
  /// fewer at once until the peer has taken streams for a while.
  @Test func slotsAfterARefusal() throws {
    let clock = Clock()
    let session = try #require(HTTP2Session.make(TransportLimits(), clock))
    receive(.settings([(3, 4)]), session)
    func open() -> Int32 {
      let (stream, _) = add(10, to: session)
      _ = drain(session)
      return stream.id
    }
    let first = open()
    let second = open()
    receive(.reset(open(), 7), session)
    #expect(session.slots == 0 && session.hasQuota && session.quota.wakeAt == clock.time + 800_000)
    receive(.head(first), session)
    #expect(session.slots == 0)
    receive(.trailers(first), session)
    #expect(session.slots == 1)
    let third = open()
    receive(.reset(third, 7), session)
    // The second refusal in a row: one stream is open, and there is room for none beside it.
    #expect(session.slots <= 0)
    clock.time = try #require(session.quota.wakeAt)
    session.quotaDue()
    #expect(session.slots == 1)
    let fourth = open()
    receive(.head(fourth), session)
    receive(.trailers(fourth), session)
    receive(.head(second), session)
    receive(.trailers(second), session)
    #expect(session.slots == 1 && session.hasQuota)
    while let time = session.quota.wakeAt {
      clock.time = time
      session.quotaDue()
    }
    #expect(session.slots == 4 && !session.hasQuota)
    receive(.reset(open(), 7), session)
    receive(.goAway(0), session)
    session.quotaDue()
    #expect(session.slots == 0)
    session.abandon(bytes("over"))
    session.dispatch()
  }
}
