import CPenstockSystem
import PenstockCall
import Synchronization
import PenstockTestSupport
import Testing

@testable import PenstockClient

/// The numbers of the jobs that have run. `@unchecked`: only one thread at a time changes the object; the
/// tests check this.
private final class Note: @unchecked Sendable {
  var numbers: [Int] = []
  let count = Atomic<Int>(0)
}

private final class Append: ExecutorJob {
  let note: Note
  let number: Int
  /// A reference to the executor that the job holds, perhaps the last one; nil: none.
  var kept: SerialExecutor?

  init(_ note: Note, _ number: Int, _ kept: SerialExecutor? = nil) {
    self.note = note
    self.number = number
    self.kept = kept
  }

  override func run() {
    if let kept, !kept.isOnThisThread { note.numbers.append(-1) }
    note.numbers.append(number)
    kept = nil
    note.count.add(1, ordering: .releasing)
  }
}

extension RuntimeTests {
  @Suite struct ExecutorTests {
    @Test func serialRunsEachProducersJobsInOrder() throws {
      let executor = try #require(SerialExecutor.make().0)
      let note = Note()
      let producers = 4
      let each = 2000
      threads(producers) { thread in
        for n in 0..<each { must(executor.submit(Append(note, thread * each + n, executor)), "taken") }
      }
      eventually("every job has run") { note.count.load(ordering: .acquiring) == producers * each }
      for thread in 0..<producers {
        let its = note.numbers.filter { $0 / each == thread && $0 >= 0 }
        #expect(its == Array(thread * each..<(thread + 1) * each))
      }
      #expect(!note.numbers.contains(-1))
      #expect(!executor.isOnThisThread)
    }

    /// A serial executor's counter of jobs wraps around after 2,147,483,648 jobs.
    @Test func serialCountsRound() throws {
      let executor = try #require(SerialExecutor.make(after: UInt32.max - 9).0)
      let note = Note()
      for n in 0..<20 {
        must(executor.submit(Append(note, n)), "taken")
        eventually("it has run") { note.count.load(ordering: .acquiring) == n + 1 }
      }
      #expect(note.numbers == Array(0..<20))
    }

    @Test func serialMayGoOnItsOwnThreadAndFinishesItsJobs() throws {
      let note = Note()
      do {
        let executor = try #require(SerialExecutor.make().0)
        for n in 0..<100 { _ = executor.submit(Append(note, n, n == 50 ? executor : nil)) }
      }
      eventually("every job has run") { note.count.load(ordering: .acquiring) == 100 }
      #expect(note.numbers == Array(0..<100))
    }

    @Test func userExecutorRunsOnceOrGivesBack() {
      let note = Note()
      let immediate = UserExecutor(
        { job, argument, _ in
          job?(argument)
          return 0
        }, UserData(nil, nil))
      #expect(immediate.submit(Append(note, 1)))
      let refusing = UserExecutor({ _, _, _ in 7 }, UserData(nil, nil))
      #expect(!refusing.submit(Append(note, 2)))
      #expect(note.numbers == [1])
      #expect(!immediate.isOnThisThread)
    }
  }
}
