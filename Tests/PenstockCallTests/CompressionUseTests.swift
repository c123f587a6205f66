import Testing

@testable import PenstockCall

/// Tests of which messages are sent compressed.
@Suite struct CompressionUseTests {
  @Test(arguments: [
    (CompressionUse.whereSmaller, 0, 20, false), (.whereSmaller, 10, 9, true), (.whereSmaller, 10, 10, false),
    (.whereSmaller, 10, 11, false), (.from(bytes: 0), 0, 20, true), (.from(bytes: 10), 9, 1, false),
    (.from(bytes: 10), 10, 30, true), (.from(bytes: .max), 1 << 30, 1, false),
  ])
  func sends(_ use: CompressionUse, _ plain: Int, _ packed: Int, _ isCompressed: Bool) {
    #expect(use.sends(packed, of: plain) == isCompressed)
    // A message that goes as it is, whatever its compressed size would be, is not even compressed.
    if use.skips(plain) { #expect(!isCompressed && !use.sends(0, of: plain)) }
  }

  @Test func onlyASizeDecidesBeforehand() {
    #expect(!CompressionUse.whereSmaller.skips(0) && !CompressionUse.from(bytes: 0).skips(0))
    #expect(CompressionUse.from(bytes: 10).skips(9) && !CompressionUse.from(bytes: 10).skips(10))
  }
}
