import PenstockCall
import PenstockWire
import Testing

@testable import PenstockHTTP
@testable import PenstockTransport

/// A framing or a stream that lacks a function stops the tests, and does not do something silently.
struct OverrideTests {
  @Test func framings() async {
    await #expect(processExitsWith: .failure) { _ = Framing().encodeNext() }
    await #expect(processExitsWith: .failure) { _ = Framing().lastPiece() }
    await #expect(processExitsWith: .failure) { _ = Framing().proceed() }
    await #expect(processExitsWith: .failure) { _ = Framing().bodyEnds() }
    await #expect(processExitsWith: .failure) { _ = Framing().decode(ByteView(start: nil, count: 0)) }
    await #expect(processExitsWith: .failure) {
      _ = Framing().responseHeaders(HeaderBlock(), endsStream: true)
    }
    await #expect(processExitsWith: .failure) {
      _ = Framing().status(.trailers, trailers: nil, deadlineHasPassed: false)
    }
  }

  @Test func commonFramings() async {
    await #expect(processExitsWith: .failure) { _ = CommonFraming(.identity, maxReceiveBytes: 1).fit(nil) }
    await #expect(processExitsWith: .failure) {
      _ = CommonFraming(.identity, maxReceiveBytes: 1).frame(ByteBuffer(), compressed: false)
    }
    await #expect(processExitsWith: .failure) {
      _ = CommonFraming(.identity, maxReceiveBytes: 1).lastFrame(ByteBuffer())
    }
  }

  @Test func streams() async {
    await #expect(processExitsWith: .failure) { TransportStream(nil, sending: PieceQueue()).open() }
    await #expect(processExitsWith: .failure) { TransportStream(nil, sending: PieceQueue()).endBody() }
    await #expect(processExitsWith: .failure) { TransportStream(nil, sending: PieceQueue()).consume(1) }
    await #expect(processExitsWith: .failure) { TransportStream(nil, sending: PieceQueue()).leave(.done) }
  }
}
