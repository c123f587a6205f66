import PenstockTestSupport
import Testing

@testable import PenstockClient
@testable import PenstockLoop
@testable import PenstockTransport

/// Tests of `ClientRuntime`, the runtime that a program creates, with several event loops.
struct LoopTests {
  private func make(_ loops: UInt16) -> (runtime: ClientRuntime, loops: [RuntimeLoop])? {
    var options = Runtime.Options()
    options.loops = loops
    options.callerDrives = false
    guard case .made(let runtime) = ClientRuntime.make(options) else { return nil }
    var all: [RuntimeLoop] = []
    var next: RuntimeLoop? = runtime.loop
    while let loop = next {
      all.append(loop)
      next = loop.next
    }
    return (runtime, all)
  }

  /// A new channel uses the first loop with the fewest channels. A closed loop gets no channel.
  @Test(arguments: [UInt16(1), 2, 3, 64])
  func channelsComeToTheLoopWithTheFewest(_ count: UInt16) throws {
    let (runtime, loops) = try #require(make(count))
    #expect(loops.count == Int(count))
    var state: UInt64 = 1
    var expected = [Int](repeating: 0, count: loops.count)
    var isClosed = [Bool](repeating: false, count: loops.count)
    for step in 0..<1000 {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      let some = Int(state >> 33) % loops.count
      if state >> 32 & 1 == 0, expected[some] > 0 {
        loops[some].hasOneChannelLess()
        expected[some] -= 1
        continue
      }
      if step == 500, count > 1 {
        loops[some].runtime.closed.store(true, ordering: .releasing)
        isClosed[some] = true
      }
      let open = loops.indices.filter { !isClosed[$0] }
      let best = try #require(open.min { (expected[$0], $0) < (expected[$1], $1) })
      #expect(runtime.loopForChannel() === loops[best])
      expected[best] += 1
      #expect(!runtime.isClosed)
    }
    for loop in loops { loop.runtime.closed.store(true, ordering: .releasing) }
    #expect(runtime.isClosed)
    _ = runtime.loopForChannel()
    #expect(runtime.shutdown(timeoutMilliseconds: -1) == .ok)
    runtime.removeUser()
  }

  /// A thread that drives one loop of the runtime must not wait for any loop of the runtime.
  @Test func eachDrivingThreadIsNoticed() throws {
    let (runtime, loops) = try #require(make(3))
    #expect(!runtime.isDriving)
    for loop in loops {
      let seen = Box<(Bool, Runtime.ShutdownResult)?>(nil)
      let cell = WaitCell()
      loop.runtime.post(
        Work {
          seen.value = (runtime.isDriving, runtime.shutdown(timeoutMilliseconds: 10_000))
          cell.set()
        })
      #expect(loop.runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready)
      #expect(seen.value?.0 == true)
      #expect(seen.value?.1 == .wouldDeadlock)
    }
    #expect(runtime.shutdown(timeoutMilliseconds: -1) == .ok)
    runtime.removeUser()
  }

  /// A shutdown begins on all loops before the calling thread waits for any loop. It also works if one loop
  /// has already ended.
  @Test(arguments: 0..<3)
  func shutdownEndsAll(_ first: Int) throws {
    let (runtime, loops) = try #require(make(3))
    #expect(loops[first].runtime.shutdown(timeoutMilliseconds: -1) == .ok)
    // Each of these two hooks waits for the other hook. So the shutdown must begin on both loops before it
    // waits for either.
    let begun = Counter()
    let rest = loops.enumerated().filter { $0.offset != first }.map { $0.element }
    for loop in rest {
      let cell = WaitCell()
      loop.runtime.post(
        Work {
          loop.runtime.onShutdown(
            Hook {
              begun.up()
              eventually("both") { begun.now == 2 }
            })
          cell.set()
        })
      #expect(loop.runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready)
    }
    #expect(runtime.shutdown(timeoutMilliseconds: -1) == .ok)
    #expect(begun.now == 2)
    for loop in loops {
      let hasEnded = loop.runtime.ended.load(ordering: .acquiring)
      #expect(hasEnded)
    }
    #expect(runtime.shutdown(timeoutMilliseconds: -1) == .already)
    runtime.removeUser()
  }
}
