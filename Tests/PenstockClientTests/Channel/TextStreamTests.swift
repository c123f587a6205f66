import Foundation
import PenstockCall
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockClient
@testable import PenstockTransport

/// Tests of the DATA frames of a bidi call over grpc-web-text, in a simulated world. A peer such as Envoy decodes each frame
/// by itself, and refuses characters behind padding.
@Suite(.timeLimit(.minutes(15))) struct TextStreamTests {
  static let millisecond = SimulationTests.second / 1000
  let rest = ReconnectTests()
  let world = World()

  /// A message and its frame, whose base64 ends with padding.
  static let message: [UInt8] = [1, 2]
  static let padded = text([0, 0, 0, 0, 2, 1, 2])

  static func text(_ bytes: [UInt8]) -> [UInt8] { Array(Data(bytes).base64EncodedString().utf8) }

  /// The DATA frames that the server has got, and the times at which they came.
  final class Seen {
    var frames: [(payload: [UInt8], time: UInt64)] = []
    var answers = false
    var hasHead = false
  }

  /// A call to a server that notes what comes, and if it is told to, answers each frame that ends with padding.
  private func begin(_ seen: Seen, window: UInt32 = 65_535) throws -> (TestClient, ClientCall) {
    let world = world
    world.servers[1] = { said, socket in
      SimulationTests.answer(said, socket, settings: [(4, window)]) { stream, payload in
        seen.frames.append((payload, world.time))
        guard seen.answers, payload.last == 0x3D else { return [] }
        defer { seen.hasHead = true }
        let head = seen.hasHead ? [] : Self.head(stream).encoded
        return head + Frame.data(stream, Self.text([0, 0, 0, 0, 0])).encoded
      }
    }
    let client = try rest.client("ipv4:10.0.0.1:1", world) {
      $0.rpc = .grpcWebText
      $0.http = .http2
    }
    let call = client.make("/a.B/C", .bidi)
    call.open()
    rest.pass(Self.millisecond, client, world)
    return (client, call)
  }

  private static func head(_ stream: Int32) -> Frame {
    .headers(stream, [(":status", "200"), ("content-type", "application/grpc-web-text+proto")])
  }

  /// A call that half-closes before it waits sends one text.
  @Test func halfDuplexCallsSendOneText() throws {
    let seen = Seen()
    let (client, call) = try begin(seen)
    for _ in 0..<5 {
      #expect(call.send(buffer(Self.message)) == .ok)
      rest.pass(Self.millisecond, client, world)
    }
    #expect(call.halfClose() == .ok)
    rest.pass(Self.millisecond, client, world)
    let body = Array(seen.frames.map { $0.payload }.joined())
    #expect(body == Self.text(Array([[UInt8]](repeating: [0, 0, 0, 0, 2, 1, 2], count: 5).joined())))
    call.cancel(bytes("enough").view)
    rest.pass(Self.millisecond, client, world)
  }

  /// The end of a message waits for 10 ms for the next one, and the frame that it is in ends with it.
  @Test func aMessageWaitsForNoOther() throws {
    let seen = Seen()
    let (client, call) = try begin(seen)
    let begun = world.time
    #expect(call.send(buffer(Self.message)) == .ok)
    rest.pass(Self.millisecond, client, world)
    #expect(seen.frames.map { $0.payload } == [Array(Self.padded.dropLast(4))])
    rest.pass(50 * Self.millisecond, client, world)
    #expect(Array(seen.frames.map { $0.payload }.joined()) == Self.padded)
    let late = try #require(seen.frames.last).time - begun
    #expect(late >= 10 * Self.millisecond && late <= 12 * Self.millisecond)
    call.cancel(bytes("enough").view)
    rest.pass(Self.millisecond, client, world)
  }

  /// While the server answers, each message goes at once, whole and in a frame of its own.
  @Test func aDialogueDoesNotWait() throws {
    let seen = Seen()
    let (client, call) = try begin(seen)
    seen.answers = true
    #expect(call.send(buffer(Self.message)) == .ok)
    rest.pass(20 * Self.millisecond, client, world)
    for _ in 0..<5 {
      seen.frames = []
      let begun = world.time
      #expect(call.receive().1?.count == 0)
      #expect(call.send(buffer(Self.message)) == .ok)
      rest.pass(Self.millisecond, client, world)
      #expect(seen.frames.map { $0.payload } == [Self.padded] && world.time - begun <= Self.millisecond)
    }
    call.cancel(bytes("enough").view)
    rest.pass(Self.millisecond, client, world)
  }

  /// Nothing is behind padding in a frame, also if several messages wait for the stream's window.
  @Test func framesEndWithPadding() throws {
    let seen = Seen()
    let (client, call) = try begin(seen, window: 0)
    for _ in 0..<5 {
      #expect(call.send(buffer(Self.message)) == .ok)
      rest.pass(20 * Self.millisecond, client, world)
    }
    #expect(seen.frames.isEmpty)
    world.sockets.values.forEach { $0.answer(Frame.settings([(4, 65_535)]).encoded) }
    rest.pass(Self.millisecond, client, world)
    let all = seen.frames.map { $0.payload }
    #expect(Array(all.joined()) == Array([[UInt8]](repeating: Self.padded, count: 5).joined()))
    #expect(all.allSatisfy { !$0.dropLast(2).contains(0x3D) })
    call.cancel(bytes("enough").view)
    rest.pass(Self.millisecond, client, world)
  }
}
