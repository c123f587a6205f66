import CPenstockSystem
import PenstockTestSupport
import Testing

@testable import PenstockLoop

extension RuntimeTests {
  @Suite struct LockTests {
    final class Guarded: @unchecked Sendable {
      let lock = Lock()
      var count = 0
    }

    @Test func oneThreadAtATime() {
      let guarded = Guarded()
      threads(8) { _ in
        for _ in 0..<20_000 { guarded.lock.withLock { guarded.count += 1 } }
      }
      #expect(guarded.count == 160_000)
      #expect(guarded.lock.word.load(ordering: .relaxed) == 0)
    }

    /// `unlock` wakes a thread that sleeps on the lock. For this, the thread has to sleep on the address of
    /// the word that `unlock` changes.
    @Test func aSleeperIsWoken() {
      let guarded = Guarded()
      guarded.lock.lock()
      let thread = TestThread {
        guarded.lock.lock()
        guarded.count += 1
        guarded.lock.unlock()
      }
      eventually("somebody waits") { guarded.lock.word.load(ordering: .relaxed) == 2 }
      guarded.lock.unlock()
      thread.join()
      #expect(guarded.count == 1)
    }

    @Test func errorsPassThrough() {
      struct Bad: Error {}
      let lock = Lock()
      #expect(throws: Bad.self) { try lock.withLock { () throws(Bad) -> Int in throw Bad() } }
      #expect(lock.withLock { 7 } == 7)
    }
  }

  @Suite struct ProcessTests {
    @Test func theGenerationStays() {
      let g = Process.generation
      #expect(g != 0 && g == Process.generation)
      #expect(!Process.isForked(g) && Process.isForked(g + 1))
    }

    @Test func numbersAreUnique() {
      let all = (0..<4).map { _ in Box<[UInt64]>([]) }
      threads(4) { i in for _ in 0..<1_000 { all[i].value.append(Process.nextID()) } }
      #expect(Set(all.flatMap(\.value)).count == 4_000)
    }

    @Test func slotsAreWords() {
      let slot = Process.slot(15)
      Process.withLock { slot.pointee += 5 }
      #expect(Process.slot(15).pointee == 5)
      Process.withLock { slot.pointee = 0 }
    }
  }
}
