import PenstockCall
import PenstockLink
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockHTTP
@testable import PenstockLoop

/// The order of the events of one connection of HTTP/2, its last frames, and the words with which it ends.
@Suite struct CarriedHTTP2Tests {
  /// The owner of a connection to a server that has never answered before.
  final class NewOwner: ConnectionOwner {
    var ended: String?
    func connectionReady(_ connection: TransportConnection) {}
    func connectionHasSlots() {}
    func connectionDraining(_ connection: TransportConnection) {}
    func connectionEnded(_ connection: TransportConnection, _ words: ByteBuffer) { ended = text(words) }
    func connectionSilent(_ time: UInt64) {}
    var hasListeners: Bool { false }
    var hasWorked: Bool { false }
  }

  private func make(_ owner: any ConnectionOwner) throws -> CarriedConnection {
    let one = try #require(
      CarriedConnection.make(
        .http2, to: bytes("peer"), CarriedConnectionTests.settings(), .connect, owner, at: 5))
    _ = CarriedConnectionTests.exchange(one, at: 5)
    return one
  }

  private func receive(_ one: CarriedConnection, _ bytes: [UInt8]) -> [Frame] {
    #expect(bytes.withUnsafeBytes { one.receive($0) })
    return frames(one)
  }

  private func frames(_ one: CarriedConnection) -> [Frame] {
    Frame.all(CarriedConnectionTests.exchange(one, at: 6)) ?? []
  }

  private func open(_ one: CarriedConnection) -> (CarriedConnectionTests.Caller, TransportStream) {
    let caller = CarriedConnectionTests.Caller()
    let stream = one.connection.newStream(caller, sending: PieceQueue())
    stream.endsAfterPieces = true
    stream.open()
    return (caller, stream)
  }

  private static let unused = "the connection is no longer used"

  /// A connection that is closed tells the peer by GOAWAY; its calls are lost, and those that were not sent
  /// yet are not.
  @Test func closesGracefully() throws {
    let owner = HTTP1SingleTests.Owner()
    let one = try make(owner)
    _ = receive(one, CarriedConnectionTests.greeting(.http2))
    let (sent, sentStream) = open(one)
    #expect(frames(one).contains { $0.type == 1 })
    let (unsent, unsentStream) = open(one)
    one.connection.closeGracefully()
    #expect(one.isClosed)
    #expect(Frame.all(Array(one.output))?.contains { $0.type == 7 } == true)
    #expect(HTTP1SingleTests.words(sent.end) == "lost: \(Self.unused)")
    #expect(unsent.end?.isUnprocessed == true || HTTP1SingleTests.words(unsent.end) == "lost: \(Self.unused)")
    #expect(owner.events == ["ready", "ended: \(Self.unused)"])
    withExtendedLifetime((sentStream, unsentStream)) {}
  }

  @Test func drains() throws {
    let owner = HTTP1SingleTests.Owner()
    let one = try make(owner)
    _ = receive(one, CarriedConnectionTests.greeting(.http2))
    let (caller, stream) = open(one)
    _ = frames(one)
    one.connection.drain()
    _ = frames(one)
    #expect(owner.events == ["ready", "draining"] && !one.isClosed && one.connection.drainReason != nil)
    let last = receive(one, CarriedConnectionTests.answer(.http2))
    #expect(HTTP1SingleTests.words(caller.end) == "body" && caller.body == Array("abcd".utf8))
    #expect(one.isClosed && last.contains { $0.type == 7 })
    #expect(owner.events == ["ready", "draining", "ended: \(Self.unused)"])
    withExtendedLifetime(stream) {}
  }

  @Test func timesOut() throws {
    let owner = HTTP1SingleTests.Owner()
    let one = try make(owner)
    one.connection.timedOut()
    #expect(one.isClosed)
    #expect(owner.events == ["ended: connect timeout: the peer does not answer with HTTP/2"])
  }

  /// The end before the first frames, with a guess if the server has never answered and sends nothing.
  @Test func endsBeforeHTTP2Begins() throws {
    let owner = HTTP1SingleTests.Owner()
    let known = try make(owner)
    known.receiveEnd()
    _ = frames(known)
    let words = "connection closed by peer before HTTP/2 began"
    #expect(owner.events == ["ended: \(words)"])
    let newOwner = NewOwner()
    let fresh = try make(newOwner)
    fresh.receiveEnd()
    _ = frames(fresh)
    #expect(newOwner.ended == words + "; it sent nothing, and may want TLS")
    let other = NewOwner()
    let half = try make(other)
    _ = receive(half, Array(Frame.settings().encoded.prefix(3)))
    half.receiveEnd()
    _ = frames(half)
    #expect(other.ended?.hasPrefix(words) == true && other.ended?.contains("may want TLS") == false)
  }

  @Test func tellsOfSlotsWhenAsked() throws {
    let owner = HTTP1SingleTests.Owner()
    let one = try make(owner)
    _ = receive(one, CarriedConnectionTests.greeting(.http2))
    one.connection.isAsked = true
    let (caller, stream) = open(one)
    _ = frames(one)
    #expect(owner.events == ["ready", "slots"] && !one.connection.isAsked)
    #expect(!one.connection.hasAnswered)
    _ = receive(one, CarriedConnectionTests.answer(.http2))
    #expect(one.connection.hasAnswered && caller.end?.isComplete == true && owner.events.count == 2)
    one.connection.forgetAnswer()
    #expect(!one.connection.hasAnswered)
    withExtendedLifetime(stream) {}
  }
}
