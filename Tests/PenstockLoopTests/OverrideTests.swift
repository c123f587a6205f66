import Testing

@testable import PenstockLoop

/// An object that the loop calls, and that lacks the function, stops the tests.
@Suite struct OverrideTests {
  /// A call of each function, and the words with which it must stop.
  static let lacking: [(name: String, call: @Sendable () -> Void)] = [
    ("fire()", { Timer().fire() }),
    ("run()", { InboxItem().run() }),
    ("run()", { InboxItem().runInChild() }),
    ("turnEnded()", { TurnEndHandler().turnEnded() }),
  ]

  @Test(arguments: lacking.indices) func stops(_ index: Int) async {
    let ended = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) { [index] in
      OverrideTests.lacking[index].call()
    }
    let words = String(decoding: ended?.standardErrorContent ?? [], as: UTF8.self)
    #expect(words.contains(": \(OverrideTests.lacking[index].name) is not overridden"))
  }
}
