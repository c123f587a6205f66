import Glibc
import PenstockCall
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockClient
@testable import PenstockFraming
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// A message that takes long to decompress must not block other calls on the same loop, and its own call may
/// end during the decompression.
@Suite(.timeLimit(.minutes(15))) struct InflationTests {
  static let size = 64 << 20

  /// Answers the first call with `message`, which is 64 MiB of zeros when decompressed. Then answers the
  /// second call.
  static func server(_ message: [UInt8]) -> RawServer {
    RawServer { peer in
      peer.begin()
      let (first, second) = (peer.request(), peer.request())
      peer.send(.head(first, [("grpc-encoding", "gzip")]))
      for at in stride(from: 0, to: message.count, by: 16384) {
        peer.send(.data(first, Array(message[at..<min(at + 16384, message.count)])))
      }
      peer.send(.trailers(first), .head(second), .message(second, [2]), .trailers(second))
      peer.waitForEnd()
    }
  }

  static func packed() -> [UInt8] {
    let zeros = ByteBuffer(capacity: size)!
    _ = zeros.spare(atLeast: size)!.initializeMemory(as: UInt8.self, repeating: 0)
    zeros.commit(size)
    let deflation = Deflation.make(zeros, Compressor(.gzip)!)!
    while true {
      switch deflation.step() {
      case .more: continue
      case .bytes(let packed): return frame(1, [UInt8](packed.view))
      case .noMemory: fatalError("no memory")
      }
    }
  }

  @Test func othersGoOn() throws {
    let server = InflationTests.server(InflationTests.packed())
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let first = client.make("/a.B/C", .unary) { $0.maxReceiveBytes = InflationTests.size }
    let second = client.make("/a.B/D", .unary)
    first.open(buffer([1]))
    second.open(buffer([1]))
    let answer = Answer(try #require(second.finish().1))
    #expect(answer.code == .ok && answer.message == [2])
    // The server has not sent the whole message, so only the cancel can end the call.
    first.cancel(bytes("enough").view)
    #expect(Answer(try #require(first.finish().1)).code == .cancelled)
  }

  /// The server sends the whole long message, and the status directly after it.
  @Test(arguments: [CallKind.unary, .bidi])
  func allOfItComes(_ kind: CallKind) throws {
    let server = InflationTests.server(InflationTests.packed())
    defer { server.stop() }
    let client = try #require(TestClient(server.target))
    let first = client.make("/a.B/C", kind) { $0.maxReceiveBytes = InflationTests.size }
    let second = client.make("/a.B/D", .unary)
    if kind == .unary {
      first.open(buffer([1]))
    } else {
      first.open()
    }
    second.open(buffer([1]))
    if kind == .bidi {
      #expect(first.receive().1?.count == InflationTests.size)
      #expect(first.receive().1 == nil)
    }
    let answer = Answer(try #require(first.finish().1))
    #expect(answer.code == .ok)
    if kind == .unary { #expect(answer.reply.message?.count == InflationTests.size) }
    #expect(Answer(try #require(second.finish().1)).code == .ok)
  }

  // MARK: Between two slices

  /// Two calls in callback style on a host-driven loop that the test runs turn by turn. The second call has
  /// already been answered, and the first call's message is only partly decompressed.
  final class Halfway {
    let server = InflationTests.server(InflationTests.packed())
    let client: TestClient
    let told = (Told(), Told())
    let first, second: ClientCall

    init(deadline: UInt64 = 30_000_000_000) throws {
      client = try #require(TestClient(server.target, mode: .host))
      first = client.make("/a.B/C", .unary, told: told.0) {
        $0.maxReceiveBytes = InflationTests.size
        $0.deadline = deadline
      }
      second = client.make("/a.B/D", .unary, told: told.1)
      first.open(buffer([1]))
      second.open(buffer([1]))
      while told.1.code == nil { turn() }
      #expect(told.1.code == .ok && told.1.messages == [1])
    }

    func turn() { _ = client.runtime.runtime.poll(timeoutMilliseconds: 1000) }

    /// Runs turns of the loop until the first call ends. Returns the number of turns.
    func finish() -> Int {
      var turns = 0
      while told.0.code == nil {
        turn()
        turns += 1
      }
      return turns
    }

    deinit { server.stop() }
  }

  @Test func callbacksAreToldOfAllOfIt() throws {
    let halfway = try Halfway()
    #expect(halfway.told.0.messages == [] && halfway.told.0.code == nil)
    // Each turn decompresses one slice. 64 MiB are 256 slices, of which some were decompressed before.
    #expect(halfway.finish() > 50)
    #expect(halfway.told.0.messages == [InflationTests.size] && halfway.told.0.code == .ok)
  }

  /// After a cancel the call ends within a few turns, although many slices of its message are left. It gets
  /// no message afterwards.
  @Test func aCancelBetweenTwoSlices() throws {
    let halfway = try Halfway()
    halfway.first.cancel(bytes("enough").view)
    #expect(halfway.finish() < 5)
    #expect(halfway.told.0.code == .cancelled)
    halfway.client.settle()
    #expect(halfway.told.0.messages == [])
  }

  @Test func aDeadlineBetweenTwoSlices() throws {
    let halfway = try Halfway(deadline: 2_000_000_000)
    // No thread drives the loop during these two seconds, so the deadline passes between two slices.
    let passed = Platform.systemClock() + 2_000_000_000
    while Platform.systemClock() < passed { usleep(10_000) }
    #expect(halfway.finish() < 5)
    #expect(halfway.told.0.code == .deadlineExceeded)
    halfway.client.settle()
    #expect(halfway.told.0.messages == [])
  }
}
