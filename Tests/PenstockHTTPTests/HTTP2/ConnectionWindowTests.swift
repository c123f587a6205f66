import CPenstockSystem
import Glibc
import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop

/// Tests of the connection's window, that is, of the number of bytes that the peer may send ahead on the
/// whole connection.
extension SessionTests {
  private static let wide = 4 << 20

  private func newSession() throws -> HTTP2Session {
    let session = try #require(HTTP2Session.make(TransportLimits()))
    #expect(Frame.settings().encoded.withUnsafeBytes { session.receive($0) })
    _ = drain(session)
    return session
  }

  private func open(duplex: Bool, on session: HTTP2Session) -> (HTTP2Stream, Recorder) {
    let recorder = Recorder(session, takes: true, duplex: duplex)
    let stream = HTTP2Stream(recorder)
    session.add(stream)
    return (stream, recorder)
  }

  /// The credit for the connection in the session's output, and whether it is in the first frame.
  private func credit(_ session: HTTP2Session) throws -> (bytes: Int, isFirst: Bool) {
    let all = try #require(Frame.all(drain(session)))
    let updates = all.filter { $0.type == 8 && $0.stream == 0 }
    let bytes = updates.reduce(0) { sum, frame in sum + frame.payload.reduce(0) { $0 << 8 | Int($1) } }
    return (bytes, updates.first == all.first)
  }

  private func end(_ stream: HTTP2Stream, on session: HTTP2Session) {
    stream.endsAfterPieces = true
    _ = drain(session)
    for frame in [Frame.head(stream.id), .trailers(stream.id)] {
      #expect(frame.encoded.withUnsafeBytes { session.receive($0) })
    }
    session.dispatch()
    _ = drain(session)
    #expect(session.open.isEmpty)
  }

  /// While only bidi streams are open, the connection has its initial (narrow) window. Any other stream gives
  /// it the wide window, before the stream's first frame.
  @Test func aStreamOneWayWidensTheWindow() throws {
    let session = try newSession()
    let (duplex, _) = open(duplex: true, on: session)
    #expect(try credit(session).bytes == 0)
    let (other, _) = open(duplex: false, on: session)
    let (given, isFirst) = try credit(session)
    #expect(given == SessionTests.wide - 65535 && isFirst)
    // The window stays wide as long as any stream is open, also a bidi stream.
    let (third, _) = open(duplex: true, on: session)
    #expect(try credit(session).bytes == 0 && session.window.isWide)
    session.letGo(duplex, .cancelled)
    session.letGo(other, .cancelled)
    session.letGo(third, .cancelled)
    _ = drain(session)
    _ = open(duplex: true, on: session)
    // No bytes were received since the last change. The window becomes narrow and wide again, but credit that
    // was given can't be taken back, and is not given twice.
    #expect(try credit(session).bytes == 0 && !session.window.isWide)
    _ = open(duplex: false, on: session)
    #expect(try credit(session).bytes == 0 && session.window.isWide)
    session.abandon(bytes("over"))
    session.dispatch()
    // A session that was given up keeps the reason, and takes no bytes any more.
    #expect(text(session.failure) == "over")
    #expect(!Frame.settings().encoded.withUnsafeBytes { session.receive($0) })
  }

  /// A bidi stream makes a wide window narrow. Credit that was given before can't be taken back. So the
  /// session gives no further credit until the peer has used up all but 65,535 bytes, and then keeps the
  /// window at 65,535 bytes.
  @Test func aWindowNarrowsAsItIsUsed() throws {
    let session = try newSession()
    end(open(duplex: false, on: session).0, on: session)
    var window = SessionTests.wide
    let part = [UInt8](repeating: 1, count: 16000)
    let (stream, recorder) = open(duplex: true, on: session)
    _ = drain(session)
    #expect(Frame.head(stream.id).encoded.withUnsafeBytes { session.receive($0) })
    for _ in 0..<500 {
      try #require(window >= part.count)
      #expect(Frame.data(stream.id, part).encoded.withUnsafeBytes { session.receive($0) })
      session.dispatch()
      recorder.body = []
      let before = window - part.count
      window = try before + credit(session).bytes
      #expect(window == before || window <= 65535)
    }
    #expect(window <= 65535 && session.failure == nil)
    // A stream opens that is not bidi, so the peer gets the credit for the wide window at once.
    let (other, _) = open(duplex: false, on: session)
    window += try credit(session).bytes
    #expect(window > SessionTests.wide - 65535 && window <= SessionTests.wide)
    #expect(other.life.isOpen)
    session.abandon(bytes("over"))
    session.dispatch()
  }

  @Test func aLargeMessageWidensTheWindow() throws {
    let session = try newSession()
    let (stream, recorder) = open(duplex: true, on: session)
    _ = drain(session)
    #expect(Frame.head(stream.id).encoded.withUnsafeBytes { session.receive($0) })
    let start = Array(Frame.data(stream.id, [UInt8](repeating: 0, count: 16000)).encoded.prefix(100))
    #expect(start.withUnsafeBytes { session.receive($0) })
    session.dispatch()
    #expect(session.messageSpace() == nil)
    #expect(try credit(session).bytes == 0)
    recorder.room = UnsafeMutableRawBufferPointer.allocate(byteCount: 15000, alignment: 16)
    defer { recorder.room.deallocate() }
    #expect(session.messageSpace() != nil)
    let given = try credit(session).bytes
    #expect(given == SessionTests.wide - 65535)
    session.abandon(bytes("over"))
    session.dispatch()
  }

  /// The window never exceeds the size in the options.
  @Test func theOptionsWindowIsTheWidest() throws {
    var limits = TransportLimits()
    limits.connectionWindow = 100_000
    let session = try #require(HTTP2Session.make(limits))
    #expect(Frame.settings().encoded.withUnsafeBytes { session.receive($0) })
    _ = drain(session)
    _ = open(duplex: false, on: session)
    #expect(try credit(session).bytes == 100_000 - 65535)
    session.abandon(bytes("over"))
    session.dispatch()
  }
}

@Suite struct ConnectionWindowTests {
  /// Each row: the times in nanoseconds that successive halves of a window take, the round-trip time in
  /// nanoseconds, and the expected result of `isFelt` for the last half. It is true if that half took less
  /// than two round trips.
  @Test(arguments: [
    ([1_000_000, 1_000_000], 100_000, false), ([1_000_000, 201_000], 100_000, false),
    ([1_000_000, 199_000], 100_000, true), ([1_000_000, 10_000_000], 50_000_000, true),
    // If the round-trip time is not known (0), the result is false.
    ([1_000_000, 1], 0, false),
    // The beginning of the first half is not known, so the result for the first half is always false.
    ([1], 1_000_000_000, false),
  ])
  func isFeltWhereARoundTripIsLong(_ times: [UInt64], _ roundTrip: UInt64, _ isFelt: Bool) {
    var window = ConnectionWindow()
    var now: UInt64 = 1_000_000_000
    for (index, time) in times.enumerated() {
      now += time
      // The result is false before half of the window was received.
      let early = window.isFelt(16384, now: { 0 }, roundTrip: { .max })
      let isLast = index == times.count - 1
      let found = window.isFelt(16384, now: { now }, roundTrip: { isLast ? roundTrip : 0 })
      #expect(!early && found == (isFelt && isLast))
    }
  }
}
