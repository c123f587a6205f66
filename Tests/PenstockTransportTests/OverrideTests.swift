import PenstockCall
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockLink
@testable import PenstockLoop
@testable import PenstockTransport

/// A step of connecting, a resolver or a listener that lacks a function stops the tests, and does not do something silently.
@Suite struct OverrideTests {
  /// A call of each function, and the words with which it must stop.
  static let lacking: [(name: String, call: @Sendable () -> Void)] = [
    ("during", { _ = ConnectStep().during }),
    ("take(_:)", { withLink { _ = ConnectStep().take($0) } }),
    ("take(_:)", { withLink { _ = ConnectStep().begin($0) } }),
    ("start(_:)", { Resolver().start(Deaf()) }),
    ("isAnybody", { _ = NewsListeners().isAnybody }),
  ]

  private final class Deaf: ResolverCompletion {
    func resolved(_ outcome: ResolverOutcome) {}
  }

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
