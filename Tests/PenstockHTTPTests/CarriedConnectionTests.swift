import PenstockCall
import PenstockChannel
import PenstockLink
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockHTTP
@testable import PenstockLoop

/// Drives a connection of each version of HTTP by bytes and times alone, without a socket, a descriptor or a thread.
@Suite struct CarriedConnectionTests {
  final class Owner: ConnectionOwner {
    var events: [String] = []
    func connectionReady(_ connection: TransportConnection) { events.append("ready") }
    func connectionHasSlots() { events.append("slots") }
    func connectionDraining(_ connection: TransportConnection) { events.append("draining") }
    func connectionEnded(_ connection: TransportConnection, _ words: ByteBuffer) { events.append("ended") }
    func connectionSilent(_ time: UInt64) {}
    var hasListeners: Bool { false }
    var hasWorked: Bool { true }
  }

  final class Caller: StreamOwner {
    var body: [UInt8] = []
    var status = 0
    var end: StreamEnd?
    override func streamOpens(_ stream: TransportStream, _ fields: FieldList) -> Bool {
      fields.add(":method", "POST") && fields.add(":scheme", "http") && fields.add(":path", "/a.B/C")
        && fields.add(":authority", "x")
    }
    override func streamSends() -> Bool { true }
    override func streamReceives(head: HeaderBlock, endsStream: Bool) { status = Int(head.status) }
    override func streamReceives(trailers: HeaderBlock) {}
    override func streamReceives(_ bytes: ByteView) -> Int {
      body += bytes
      return bytes.count
    }
    override func streamChanged(_ stream: TransportStream) { end = stream.end }
  }

  static func settings(_ keepalive: Keepalive? = nil) -> ConnectionSettings {
    ConnectionSettings(TransportLimits(), silence: 0, Backoff.Policy(), keepalive)
  }

  /// The bytes of a server that answers one call with "abcd".
  static func answer(_ version: HTTPVersion) -> [UInt8] {
    switch version {
    case .http1: Array("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabcd".utf8)
    case .http2:
      Frame.head(1).encoded + Frame.data(1, Array("abcd".utf8), end: true).encoded
    }
  }

  /// The bytes that a server sends before the first request.
  static func greeting(_ version: HTTPVersion) -> [UInt8] {
    switch version {
    case .http1: []
    case .http2: Frame.settings().encoded + Frame.settingsAck.encoded
    }
  }

  /// Runs the connection, and takes its output.
  static func exchange(_ one: CarriedConnection, at now: UInt64) -> [UInt8] {
    var said: [UInt8] = []
    var goesOn = true
    while goesOn {
      goesOn = one.run(at: now)
      if !one.output.isEmpty {
        said += one.output
        one.consumeOutput(one.output.count)
        goesOn = true
      }
    }
    return said
  }

  @Test(arguments: [HTTPVersion.http1, .http2], [1, 7, 10_000])
  func aCall(_ version: HTTPVersion, pieces: Int) throws {
    let owner = Owner()
    let pings = Keepalive(interval: 1000, timeout: 100, withoutCalls: true)
    let one = try #require(
      CarriedConnection.make(version, to: bytes("peer"), Self.settings(pings), .connect, owner, at: 5))
    #expect(Self.greeting(version).withUnsafeBytes { one.receive($0) })
    _ = Self.exchange(one, at: 5)
    #expect(owner.events == ["ready"] && one.connection.slots > 0)
    let caller = Caller()
    let stream = one.connection.newStream(caller, sending: PieceQueue())
    // The body is larger than what waits for the host at a time. The window of HTTP/2 is smaller.
    let size = version == .http1 ? 1_000_000 : 40_000
    stream.append(BodyPiece(buffer([UInt8](repeating: 0x7A, count: size))))
    stream.endsAfterPieces = true
    stream.open()
    _ = one.run(at: 6)
    #expect(one.output.count <= MemorySocket.room)
    let said = Self.exchange(one, at: 6)
    #expect(said.count > size && said.count { $0 == 0x7A } >= size)
    var rest = Self.answer(version)[...]
    while !rest.isEmpty {
      let part = Array(rest.prefix(pieces))
      rest = rest.dropFirst(pieces)
      #expect(part.withUnsafeBytes { one.receive($0) })
      _ = Self.exchange(one, at: 7)
    }
    #expect(caller.status == 200 && caller.body == Array("abcd".utf8))
    // HTTP/1.1 has no pings, even if they are asked for, so its host never needs to wake up for it.
    #expect(version == .http2 || one.nextTimer == nil)
    #expect(caller.end?.isComplete == true)
    #expect(one.connection.slots > 0 && !one.isClosed)
    one.receiveEnd()
    _ = Self.exchange(one, at: 8)
    #expect(one.isClosed && owner.events.last == "ended")
  }

  /// The peer ends in the middle of its answer.
  @Test(arguments: [HTTPVersion.http1, .http2])
  func anEnd(_ version: HTTPVersion) throws {
    let owner = Owner()
    let one = try #require(
      CarriedConnection.make(version, to: bytes("peer"), Self.settings(), .connect, owner, at: 5))
    #expect(Self.greeting(version).withUnsafeBytes { one.receive($0) })
    _ = Self.exchange(one, at: 5)
    #expect(owner.events == ["ready"] && one.connection.slots > 0)
    let caller = Caller()
    let stream = one.connection.newStream(caller, sending: PieceQueue())
    stream.endsAfterPieces = true
    stream.open()
    _ = Self.exchange(one, at: 6)
    #expect(Self.answer(version).dropLast(1).withUnsafeBytes { one.receive($0) })
    one.receiveEnd()
    _ = Self.exchange(one, at: 7)
    guard case .lost = caller.end else {
      Issue.record("\(String(describing: caller.end))")
      return
    }
    #expect(one.isClosed && owner.events.last == "ended")
  }

  /// The host's clock alone drives keepalive.
  @Test func timers() throws {
    let owner = Owner()
    let keepalive = Keepalive(interval: 1000, timeout: 100, withoutCalls: true)
    let one = try #require(
      CarriedConnection.make(.http2, to: bytes("peer"), Self.settings(keepalive), .grpc, owner, at: 5))
    #expect(Self.greeting(.http2).withUnsafeBytes { one.receive($0) })
    _ = Self.exchange(one, at: 10)
    let pings = try #require(one.nextTimer)
    #expect(pings == 1010)
    #expect(Self.exchange(one, at: pings - 1).isEmpty)
    #expect(Self.exchange(one, at: pings)[3] == 6)
    let ends = try #require(one.nextTimer)
    _ = Self.exchange(one, at: ends)
    #expect(one.isClosed && owner.events.last == "ended")
  }
}
