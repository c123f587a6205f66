import PenstockWire
import Testing

@testable import PenstockHTTP

/// A connection, a stream or the owner of a stream that lacks a function stops the tests.
@Suite struct OverrideTests {
  /// A call of each function, and the words with which it must stop.
  static let lacking: [(name: String, call: @Sendable () -> Void)] = [
    ("facts", { _ = TransportConnection().facts }),
    ("hasAnswered", { _ = TransportConnection().hasAnswered }),
    ("slots", { _ = TransportConnection().slots }),
    ("newStream(_:sending:)", { _ = TransportConnection().newStream(StreamOwner(), sending: PieceQueue()) }),
    ("forgetAnswer()", { TransportConnection().forgetAnswer() }),
    ("begin()", { TransportConnection().begin() }),
    ("drainReason", { _ = TransportConnection().drainReason }),
    ("timedOut()", { TransportConnection().timedOut() }),
    ("drain()", { TransportConnection().drain() }),
    ("closeGracefully()", { TransportConnection().closeGracefully() }),
    ("closeInChild()", { TransportConnection().closeInChild() }),
    ("open()", { stream.open() }),
    ("send(_:)", { stream.send(BodyPiece(ByteBuffer())) }),
    ("endBody()", { stream.endBody() }),
    ("consume(_:)", { stream.consume(1) }),
    ("leave(_:)", { stream.leave(.done) }),
    ("streamOpens(_:_:)", { _ = StreamOwner().streamOpens(stream, FieldList()) }),
    (
      "streamReceives(head:endsStream:)",
      { StreamOwner().streamReceives(head: HeaderBlock(), endsStream: true) }
    ),
    ("streamReceives(trailers:)", { StreamOwner().streamReceives(trailers: HeaderBlock()) }),
    ("streamReceives(_:)", { _ = StreamOwner().streamReceives(ByteView(start: nil, count: 0)) }),
    ("streamChanged(_:)", { StreamOwner().streamChanged(stream) }),
  ]

  private static var stream: TransportStream { TransportStream(nil, sending: PieceQueue()) }

  @Test(arguments: lacking.indices) func stops(_ index: Int) async {
    let ended = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) { [index] in
      OverrideTests.lacking[index].call()
    }
    let words = String(decoding: ended?.standardErrorContent ?? [], as: UTF8.self)
    #expect(words.contains(": \(OverrideTests.lacking[index].name) is not overridden"))
  }
}
