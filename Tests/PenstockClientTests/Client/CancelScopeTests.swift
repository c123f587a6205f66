import PenstockCall
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockClient
@testable import PenstockLoop

/// Tests of a scope that cancels many calls. The calls wait for a connection that never comes.
@Suite(.timeLimit(.minutes(15))) struct CancelScopeTests {
  private func waits(_ scope: CancelScope?) -> (CallOptions) -> Void {
    { options in
      options.scope = scope
      options.waitsForReady = true
    }
  }

  private func cancel(_ scope: CancelScope, _ reason: String = "enough") -> Outcome {
    let reason = bytes(reason)
    return withExtendedLifetime(reason) { scope.cancel(reason.view) }
  }

  @Test func cancelsItsCallsAndNoOthers() throws {
    let client = try #require(TestClient("127.0.0.1:1", mode: .host))
    let (scope, other) = (CancelScope(), CancelScope())
    func begin(_ scope: CancelScope?) -> (ClientCall, Told) {
      let told = Told()
      let call = client.make("/a/b", .unary, told: told, waits(scope))
      call.open(buffer([1]))
      return (call, told)
    }
    let mine = (0..<100).map { _ in begin(scope) }
    let others = [begin(other), begin(nil)]
    client.settle()
    #expect(mine.allSatisfy { $0.1.code == nil })
    // A call that ends by itself leaves its place in the list of the scope to another.
    for index in [0, 50, 99] { mine[index].0.call.submit(.endLocally(Status(.aborted, "by itself"))) }
    client.settle()
    #expect(cancel(scope) == .ok)
    client.settle()
    for (index, call) in mine.enumerated() {
      #expect(call.1.code == ([0, 50, 99].contains(index) ? .aborted : .cancelled), "\(index)")
    }
    #expect(others.allSatisfy { $0.1.code == nil })
    #expect(cancel(other) == .ok)
    client.settle()
    #expect(others.map { $0.1.code } == [.cancelled, nil])
  }

  @Test func cancelsCallsThatBeginLater() throws {
    let client = try #require(TestClient("127.0.0.1:1"))
    let scope = CancelScope()
    #expect(cancel(scope) == .ok && cancel(scope, "too late") == .already)
    for _ in 0..<3 {
      let answer = client.unary("/a/b", [1], waits(scope))
      #expect(answer.code == .cancelled && answer.words == "enough")
    }
  }

  /// Four threads make calls one after the other while another thread cancels: no call waits on.
  @Test func racesWithCallsThatBegin() throws {
    for round in 0..<50 {
      let client = try #require(TestClient("127.0.0.1:1"))
      let scope = CancelScope()
      let begun = Counter()
      threads(5) { number in
        if number == 0 {
          eventually("a call begins") { begun.now > round % 4 }
          must(cancel(scope) == .ok, "the first cancel")
          return
        }
        for _ in 0..<3 {
          begun.up()
          let answer = client.unary("/a/b", [1], waits(scope))
          must(answer.code == .cancelled && answer.words == "enough", "\(answer)")
        }
      }
    }
  }
}
