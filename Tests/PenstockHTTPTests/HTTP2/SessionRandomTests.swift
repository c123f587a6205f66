import PenstockTestSupport
import Testing

@testable import PenstockHTTP

extension SessionTests {
  /// Random input from a peer must never trap, hang or use more and more memory.
  @Test(arguments: 0..<200)
  func random(_ seed: Int) {
    var random = SplitMix(state: UInt64(seed))
    func next(_ bound: Int) -> Int { random.next(below: bound) }
    var input: [UInt8] = []
    for _ in 0..<30 {
      switch next(10) {
      case 0: input += Frame.head(1).encoded
      case 1: input += Frame.trailers(1).encoded
      case 2: input += Frame.message(1, [UInt8](repeating: 1, count: next(50))).encoded
      case 3: input += Frame.settings([(UInt16(next(8)), UInt32(next(1 << 31)))]).encoded
      case 4: input += Frame.windowUpdate(Int32(next(3)), UInt32(next(1 << 31))).encoded
      case 5: input += Frame.goAway(Int32(next(4)), UInt32(next(16)), "random").encoded
      case 6: input += Frame.reset(1, UInt32(next(20))).encoded
      default:
        input +=
          Frame(
            type: UInt8(next(12)), flags: UInt8(next(64)), stream: Int32(next(4)),
            payload: (0..<next(40)).map { _ in UInt8(next(256)) }
          ).encoded
      }
      if next(20) == 0, !input.isEmpty { input[next(input.count)] ^= UInt8(1 << next(8)) }
    }
    let (session, recorder) = run(input, step: 1 + next(40), takes: next(2) == 0)
    #expect(recorder.log.count <= 2)
    _ = session.wantsWrite
  }
}
