import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// A message that takes long to compress must not block other calls on the same loop, and its own call may
/// end during the compression.
@Suite(.timeLimit(.minutes(15))) struct DeflationTests {
  /// A message that takes seconds to compress, because zlib's window never contains a repetition.
  static func long() -> ByteBuffer {
    let (count, block) = (192, 1 << 20)
    let all = ByteBuffer(capacity: count * block)!
    var noise = SystemRandomNumberGenerator()
    let words = (0..<block / 8).map { _ in noise.next() }
    for _ in 0..<count { words.withUnsafeBytes { #expect(all.append($0)) } }
    return all
  }

  /// Answers the second call. The client ends the first call before it sends any byte of that call's message.
  static func server() -> RawServer {
    RawServer { peer in
      peer.begin()
      let first = peer.request()
      while let frame = peer.readFrame() {
        if frame.stream == first { peer.expect(frame.type == 3, "the long message came first") }
        if frame.type == 1 {
          let second = frame.stream
          peer.send(.head(second), .message(second, [2]), .trailers(second))
        }
        if frame.type == 3 { break }
      }
      peer.waitForEnd()
    }
  }

  @Test func othersGoOn() throws {
    let server = DeflationTests.server()
    defer {
      server.stop()
      #expect(server.complaints == [])
    }
    let client = try #require(TestClient(server.target))
    let long = DeflationTests.long()
    let first = client.make("/a.B/C", .unary) { $0.compression = .gzip }
    let second = client.make("/a.B/D", .unary)
    first.open(long)
    second.open(buffer([1]))
    let answer = Answer(try #require(second.finish().1))
    #expect(answer.code == .ok && answer.message == [2])
    first.cancel(bytes("enough").view)
    #expect(Answer(try #require(first.finish().1)).code == .cancelled)
  }

  @Test func deadlinePassesMeanwhile() throws {
    let server = DeflationTests.server()
    defer {
      server.stop()
      #expect(server.complaints == [])
    }
    let client = try #require(TestClient(server.target))
    let long = DeflationTests.long()
    let first = client.make("/a.B/C", .unary) {
      $0.compression = .gzip
      $0.deadline = 1_500_000_000
    }
    let second = client.make("/a.B/D", .unary)
    first.open(long)
    second.open(buffer([1]))
    #expect(Answer(try #require(first.finish().1)).code == .deadlineExceeded)
    #expect(Answer(try #require(second.finish().1)).code == .ok)
  }
}
