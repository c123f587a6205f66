import PenstockChannel
import Testing

@Suite struct ConnectPassTests {
  @Test func oneAfterTheOther() {
    var pass = ConnectPass([.idle, .idle, .idle])
    #expect(pass.count == 3)
    #expect([pass.next(), pass.next(), pass.next(), pass.next()] == [0, 1, 2, nil])
    for (index, isLast) in [(2, false), (0, false), (0, false), (7, false), (1, true)] {
      pass.failed(index)
      #expect(pass.isExhausted == isLast)
    }
  }

  @Test func addressesThatWaitHaveFailed() {
    var pass = ConnectPass([.transientFailure, .idle, .connecting, .transientFailure])
    #expect(pass.hasMore)
    #expect([pass.next(), pass.next()] == [1, nil])
    #expect(!pass.hasMore)
    pass.failed(1)
    #expect(!pass.isExhausted)
    pass.failed(2)
    #expect(pass.isExhausted)
    #expect(ConnectPass([.transientFailure]).isExhausted)
  }
}
