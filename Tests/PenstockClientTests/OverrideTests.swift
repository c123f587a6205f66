import PenstockCall
import PenstockTestSupport
import Testing

@testable import PenstockClient

/// An executor or an owner of registrations that lacks a function stops the tests, and does not do something silently.
@Suite struct OverrideTests {
  /// A call of each function, and the words with which it must stop.
  static let lacking: [(name: String, call: @Sendable () -> Void)] = [
    ("submit(_:)", { _ = HostExecutor().submit(ExecutorJob()) }),
    ("make(_:of:)", { _ = RegistrationOwner().make(.removal, of: 1) }),
  ]

  @Test(arguments: lacking.indices) func stops(_ index: Int) async {
    let ended = await #expect(processExitsWith: .failure, observing: [\.standardErrorContent]) { [index] in
      OverrideTests.lacking[index].call()
    }
    let words = String(decoding: ended?.standardErrorContent ?? [], as: UTF8.self)
    #expect(words.contains(": \(OverrideTests.lacking[index].name) is not overridden"))
  }
}
