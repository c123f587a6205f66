import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockHTTP

/// Messages that wait at the same time are sent together: a DATA frame contains as many as the frame size and
/// the windows permit.
extension SessionTests {
  private func openStream(_ settings: [(UInt16, UInt32)] = []) throws -> (HTTP2Session, HTTP2Stream) {
    let session = try #require(HTTP2Session.make(TransportLimits()))
    _ = drain(session)
    #expect(Frame.settings(settings).encoded.withUnsafeBytes { session.receive($0) })
    let stream = HTTP2Stream(Recorder(session, takes: true))
    session.add(stream)
    _ = drain(session)
    return (session, stream)
  }

  /// Appends a message to the stream, and its encoded form (prefix and bytes) to `wire`.
  private func send(_ message: [UInt8], on stream: HTTP2Stream, _ wire: inout [UInt8]) {
    stream.append(BodyPiece(compressed: false, buffer(message), length: UInt32(message.count)))
    wire += [0] + big(UInt32(message.count)) + message
  }

  private func data(_ session: HTTP2Session) throws -> [Frame] {
    var sent: [UInt8] = []
    repeat { sent += drain(session) } while session.wantsWrite
    return try #require(Frame.all(sent)).filter { $0.type == 0 }
  }

  @Test func whatWaitsTogetherLeavesTogether() throws {
    let (session, stream) = try openStream()
    var wire: [UInt8] = []
    for n in 0..<1000 { send([UInt8](repeating: UInt8(n & 255), count: 16), on: stream, &wire) }
    session.resume(stream)
    let sent = try data(session)
    #expect(sent.map { $0.payload.count } == [16384, 21000 - 16384] && sent.map { $0.flags } == [0, 0])
    #expect(sent.flatMap { $0.payload } == wire && stream.piecesSent == 1000)
    // END_STREAM is in the frame of the last message.
    send([7], on: stream, &wire)
    send([], on: stream, &wire)
    stream.endsAfterPieces = true
    session.resume(stream)
    #expect(try data(session) == [.data(stream.id, [UInt8](wire[21000...]), end: true)])
    #expect(stream.piecesSent == 1002)
    session.abandon(bytes("over"))
    session.dispatch()
  }

  /// Random message sizes, windows and frame sizes. A model predicts the frames, and the number of messages
  /// that count as sent.
  @Test(arguments: 0..<80)
  func boundsOfMessages(_ seed: Int) throws {
    var random = SplitMix(state: UInt64(seed))
    func next(_ bound: Int) -> Int { random.next(below: bound) }
    let largest = [16384, 16385, 65536, 100_000][next(4)]
    var window = [0, 1, 4, 5, 21, 30, 5000, 65535, 1 << 20][next(9)]
    var connection = 65535
    let (session, stream) = try openStream([(4, UInt32(window)), (5, UInt32(largest))])
    var wire: [UInt8] = []
    var bounds: [Int] = []
    var sent = 0
    var hasEnded = false
    for _ in 0..<40 where !hasEnded || sent < wire.count {
      for _ in 0..<(hasEnded ? 0 : next(40)) {
        let size = [0, 1, 16, next(40), next(3000), next(200) == 0 ? 70000 : 16][next(6)]
        send((0..<size).map { _ in UInt8(next(256)) }, on: stream, &wire)
        bounds.append(wire.count)
      }
      let ends = !hasEnded && next(12) == 0
      hasEnded = hasEnded || ends
      stream.endsAfterPieces = hasEnded
      session.resume(stream)
      var expected: [Int] = []
      var left = wire.count - sent
      while left > 0, min(window, connection) > 0 {
        let size = min(left, window, connection, min(largest, 65536))
        expected.append(size)
        left -= size
        window -= size
        connection -= size
      }
      if ends, wire.count == sent { expected = [0] }
      let found = try data(session)
      #expect(found.map { $0.payload.count } == expected)
      let isLast = hasEnded && left == 0
      #expect(found.map { $0.flags } == expected.indices.map { isLast && $0 == expected.count - 1 ? 1 : 0 })
      let payload = found.flatMap { $0.payload }
      #expect(payload == Array(wire[sent..<(sent + payload.count)]))
      sent += payload.count
      #expect(Int(stream.piecesSent) == bounds.count { $0 <= sent })
      for id in [0, stream.id] {
        let more = next(3) * next(60000)
        if more == 0 || stream.life == .ending || stream.life == .ended { continue }
        #expect(Frame.windowUpdate(id, UInt32(more)).encoded.withUnsafeBytes { session.receive($0) })
        if id == 0 { connection += more } else { window += more }
      }
    }
    #expect(session.failure == nil)
    session.abandon(bytes("over"))
    session.dispatch()
  }
}
