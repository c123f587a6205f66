import PenstockCall
import PenstockHTTP
import PenstockLoop
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockFraming

/// A framing or a coder that lacks a function stops the tests, and does not do something silently.
@Suite struct OverrideTests {
  /// A call of each function, and the words with which it must stop.
  static let lacking: [(name: String, call: @Sendable () -> Void)] = [
    ("encode(_:)", { _ = Framing().encode(Message()) }),
    ("mayWaitWithRest", { _ = Framing().mayWaitWithRest }),
    ("store(_:)", { Framing().store(Timer()) }),
    ("encodeNext()", { _ = Framing().encodeNext() }),
    ("lastPiece()", { _ = Framing().lastPiece() }),
    ("proceed()", { _ = Framing().proceed() }),
    ("bodyEnds()", { _ = Framing().bodyEnds() }),
    ("decode(_:)", { _ = Framing().decode(ByteView(start: nil, count: 0)) }),
    ("responseHeaders(_:endsStream:)", { _ = Framing().responseHeaders(HeaderBlock(), endsStream: true) }),
    (
      "status(_:trailers:deadlineHasPassed:)",
      { _ = Framing().status(.trailers, trailers: nil, deadlineHasPassed: false) }
    ),
    ("fit(_:)", { _ = common.fit(nil) }),
    ("frame(_:compressed:)", { _ = common.frame(ByteBuffer(), compressed: false) }),
    ("lastFrame(_:)", { _ = common.lastFrame(ByteBuffer()) }),
    (
      "move(_:into:isLast:)",
      {
        let space = UnsafeMutableRawBufferPointer(start: nil, count: 0)
        _ = Coder().move(ByteView(start: nil, count: 0), into: space, isLast: true)
      }
    ),
  ]

  private static var common: CommonFraming { CommonFraming(.identity, maxReceiveBytes: 1) }

  @Test(arguments: lacking.indices) func stops(_ index: Int) async {
    let ended = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) { [index] in
      OverrideTests.lacking[index].call()
    }
    let words = String(decoding: ended?.standardErrorContent ?? [], as: UTF8.self)
    #expect(words.contains(": \(OverrideTests.lacking[index].name) is not overridden"))
  }
}
