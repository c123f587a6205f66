import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockNames

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// Tests of calls in a simulated world. Hours pass in no time, and each run gives the same result.
@Suite(.timeLimit(.minutes(15))) struct SimulationTests {
  static let second: UInt64 = 1_000_000_000

  /// A server that answers each message with an equal message.
  static func echo(_ said: [UInt8], _ socket: SimulatedSocket) {
    answer(said, socket) { stream, payload in
      Frame.head(stream).encoded + Frame.data(stream, payload).encoded + Frame.trailers(stream).encoded
    }
  }

  /// Answers each message with the bytes that `reply` returns for the stream's id and the message.
  static func answer(
    _ said: [UInt8], _ socket: SimulatedSocket, settings: [(UInt16, UInt32)] = [],
    with reply: (Int32, [UInt8]) -> [UInt8]
  ) {
    var bytes = socket.rest + said
    if !socket.hasBegun {
      guard bytes.count >= 24 else {
        socket.rest = bytes
        return
      }
      socket.hasBegun = true
      bytes.removeFirst(24)
      socket.answer(Frame.settings(settings).encoded)
    }
    while bytes.count >= 9 {
      let size = Int(bytes[0]) << 16 | Int(bytes[1]) << 8 | Int(bytes[2])
      if bytes.count < 9 + size { break }
      let stream =
        Int32(bytes[5] & 127) << 24 | Int32(bytes[6]) << 16 | Int32(bytes[7]) << 8 | Int32(bytes[8])
      if bytes[3] == 0 {
        let payload = Array(bytes[9..<(9 + size)])
        socket.answered += 1
        socket.answer(reply(stream, payload))
      }
      bytes.removeFirst(9 + size)
    }
    socket.rest = bytes
  }

  func client(_ target: String, _ world: World, timeout: UInt64 = 20 * second) throws -> TestClient {
    try #require(
      TestClient(target, mode: .host, platform: world) { runtime in
        var options = ChannelOptions()
        options.tls = nil
        options.connectTimeout = timeout
        let name = bytes(target)
        guard case .made(let made) = Channel.make(runtime: runtime, target: name.view, options: options)
        else { return nil }
        return made
      })
  }

  @Test func theClockIsTheWorlds() throws {
    let world = World()
    world.servers[80] = Self.echo
    world.delay = 3 * Self.second
    let began = Platform.systemClock()
    let client = try client("ipv4:10.0.0.1:80", world)
    let first = client.unary("/a.B/C", [1, 2]) { $0.deadline = 3600 * Self.second }
    #expect(first.code == .ok && first.message == [1, 2])
    // Five delays: one to connect the socket, two for HTTP/2's SETTINGS, and two for the call.
    let stats = first.reply.stats
    #expect(stats.headersAt - stats.createdAt == 15 * Self.second)
    let second = client.unary("/a.B/C", [3]) { $0.deadline = 3600 * Self.second }
    #expect(second.message == [3])
    #expect(second.reply.stats.headersAt - second.reply.stats.createdAt == 6 * Self.second)
    #expect(world.connects == 1)
    #expect(Platform.systemClock() - began < 20 * Self.second)
  }

  @Test func aDeadlineOfAnHour() throws {
    let world = World()
    world.servers[80] = { said, socket in if !socket.hasBegun { Self.echo(said.prefix(24) + [], socket) } }
    let client = try client("ipv4:10.0.0.1:80", world)
    let before = world.time
    let answer = client.unary("/a.B/C", [1]) { $0.deadline = 3600 * Self.second }
    #expect(answer.code == .deadlineExceeded)
    #expect(world.time - before == 3600 * Self.second)
  }

  @Test func namesAreTheWorlds() throws {
    let world = World()
    let host = bytes("10.0.0.7")
    world.names["nowhere.test"] = [try #require(SocketAddress(literal: host.view, port: 9))]
    world.servers[9] = Self.echo
    let client = try client("nowhere.test:1", world)
    #expect(client.unary("/a.B/C", [7]).message == [7])
  }
}
