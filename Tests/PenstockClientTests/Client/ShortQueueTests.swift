import PenstockTestSupport
import Testing

@testable import PenstockClient

struct ShortQueueTests {
  /// `popFirst` returns every element once, in order. The queue's length goes from zero to thousands.
  @Test(arguments: 0..<50)
  func order(_ seed: UInt64) {
    var random = SplitMix(state: seed)
    var queue = ShortQueue<Int>()
    var put = 0
    var taken = 0
    for _ in 0..<200 {
      let most = random.next(below: 4) == 0 ? 3000 : 4
      for _ in 0..<random.next(below: most) {
        queue.append(put)
        put += 1
      }
      for _ in 0..<random.next(below: most) {
        #expect(queue.popFirst() == (taken < put ? taken : nil))
        taken = min(taken + 1, put)
      }
    }
    while let next = queue.popFirst() {
      #expect(next == taken)
      taken += 1
    }
    #expect(taken == put)
  }
}
