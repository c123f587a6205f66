import PenstockCall
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockClient
@testable import PenstockHTTP
@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// A framing, a step of connecting, a resolver, an executor or an owner of registrations that lacks a function stops the
/// tests, and does not do something silently.
@Suite struct OverrideTests {
  /// A call of each function, and the words with which it must stop.
  static let lacking: [(name: String, call: @Sendable () -> Void)] = [
    ("encode(_:)", { _ = Framing().encode(Message()) }),
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
    ("during", { _ = ConnectStep().during }),
    ("take(_:)", { withLink { _ = ConnectStep().take($0) } }),
    ("take(_:)", { withLink { _ = ConnectStep().begin($0) } }),
    ("start(_:)", { Resolver().start(Deaf()) }),
    ("isAnybody", { _ = NewsListeners().isAnybody }),
    ("submit(_:)", { _ = HostExecutor().submit(ExecutorJob()) }),
    ("make(_:of:)", { _ = RegistrationOwner().make(.removal, of: 1) }),
  ]

  private final class Deaf: ResolverCompletion {
    func resolved(_ outcome: ResolverOutcome) {}
  }

  private static var common: CommonFraming { CommonFraming(.identity, maxReceiveBytes: 1) }

  private static func withLink(_ body: (Link) -> Void) {
    body(Link(Socket(-1), copies: false, makeRuntime(.host)))
  }

  @Test(arguments: lacking.indices) func stops(_ index: Int) async {
    let ended = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) { [index] in
      OverrideTests.lacking[index].call()
    }
    let words = String(decoding: ended?.standardErrorContent ?? [], as: UTF8.self)
    #expect(words.contains(": \(OverrideTests.lacking[index].name) is not overridden"))
  }
}
