import CPenstockSystem
import Glibc
import Synchronization
import PenstockTestSupport
import Testing

@testable import PenstockLoop

extension RuntimeTests {
  @Suite struct InboxTests {
    final class Numbered: InboxItem {
      let producer: Int
      let number: Int
      let log: Box<[(Int, Int)]>
      init(_ producer: Int, _ number: Int, _ log: Box<[(Int, Int)]>) {
        self.producer = producer
        self.number = number
        self.log = log
      }
      override func run() { log.value.append((producer, number)) }
    }

    @Test(arguments: [Runtime.Mode.thread, .host]) func itemsOfEachProducerRunInOrderAndNoneIsLost(
      _ mode: Runtime.Mode
    ) {
      let runtime = makeRuntime(mode)
      let log = Box<[(Int, Int)]>([])
      let producers = 8
      let each = 5_000
      threads(producers) { p in
        for n in 0..<each { runtime.post(Numbered(p, n, log)) }
        runtime.perform {}
      }
      #expect(log.value.count == producers * each)
      var next = Array(repeating: 0, count: producers)
      for (producer, number) in log.value {
        #expect(number == next[producer])
        next[producer] += 1
      }
      runtime.end()
    }

    /// The next item is posted just as the loop goes to sleep. The posting thread spins and does not park, so
    /// that its timing is exact.
    @Test func aPostIsNotMissedByALoopThatGoesToSleep() {
      let runtime = makeRuntime(callerDrives: false)
      let ran = Counter()
      let item = Work { ran.up() }
      for round in 1...100_000 {
        runtime.post(item)
        let end = Platform.systemClock() + 20_000_000_000
        while ran.now < round { must(Platform.systemClock() < end, "missed in round \(round)") }
        // Each post is a little later than the one before, relative to the loop. So over many rounds posts
        // happen at every moment of the loop's way to sleep.
        for _ in 0..<round % 400 { _ = ran.now }
      }
      runtime.end()
    }

    @Test func anItemPostedTwiceRunsOnceAndMayPostItselfAgain() {
      let runtime = makeRuntime(.host)
      let runs = Box(0)
      let again = Box<InboxItem?>(nil)
      let item = Work {
        runs.value += 1
        if runs.value == 1, let item = again.value { runtime.post(item) }
      }
      again.value = item
      runtime.post(item)
      runtime.post(item)
      #expect(runtime.poll(timeoutMilliseconds: 0) == .ok)
      #expect(runtime.poll(timeoutMilliseconds: 0) == .ok)
      #expect(runs.value == 2)
      again.value = nil
      runtime.end()
    }

    @Test func itemsThatComeBackForEverDoNotStarveDescriptors() {
      let runtime = makeRuntime(.host)
      let pair = pipePair()
      let seen = WaitCell()
      let selfish = Box<InboxItem?>(nil)
      let item = Work { if let item = selfish.value { runtime.post(item) } }
      selfish.value = item
      runtime.post(item)
      let handler = Ready { _ in
        selfish.value = nil
        seen.set()
      }
      runtime.perform { must(runtime.watch(pair.read, CS_EPOLLIN, handler), "watch") }
      var byte: UInt8 = 1
      #expect(write(pair.write, &byte, 1) == 1)
      #expect(
        runtime.wait(for: seen, deadline: runtime.after(milliseconds: 20_000), interruptible: false) == .ready
      )
      runtime.perform { runtime.unwatch(pair.read) }
      cs_close(pair.read)
      cs_close(pair.write)
      runtime.end()
    }

    @Test func whatAnItemPostsRunsBeforeDescriptorsAreLookedAt() {
      let runtime = makeRuntime(.host)
      let pair = pipePair()
      let log = Box<[String]>([])
      let handler = Ready { _ in
        log.value.append("ready")
        runtime.unwatch(pair.read)
      }
      let end = TurnEnd { log.value.append("end") }
      runtime.perform { must(runtime.watch(pair.read, CS_EPOLLIN, handler), "watch") }
      var byte: UInt8 = 1
      #expect(write(pair.write, &byte, 1) == 1)
      runtime.post(
        Work {
          log.value.append("first")
          runtime.atTurnEnd(end)
          runtime.post(
            Work {
              log.value.append("second")
              runtime.post(Work { log.value.append("third") })
            })
        })
      while log.value.count < 5 { #expect(runtime.poll(timeoutMilliseconds: 0) == .ok) }
      #expect(log.value == ["first", "second", "third", "end", "ready"])
      cs_close(pair.read)
      cs_close(pair.write)
      runtime.end()
    }

    @Test func whatIsQueuedWhenTheRuntimeEndsIsReleasedAndDoesNotRun() {
      final class Marked: InboxItem {
        let gone: Counter
        let ran: Counter
        init(_ gone: Counter, _ ran: Counter) {
          self.gone = gone
          self.ran = ran
        }
        deinit { gone.up() }
        override func run() { ran.up() }
      }
      let gone = Counter()
      let ran = Counter()
      let runtime = makeRuntime(.host)
      runtime.post(Marked(gone, ran))
      runtime.releaseHandle()
      #expect(gone.now == 1)
      #expect(!runtime.post(Marked(gone, ran)))
      #expect(gone.now == 2)
      #expect(ran.now == 0)
    }

    @Test func turnEndHandlersRunOncePerRegistrationAfterTheItems() {
      let runtime = makeRuntime(.host)
      let log = Box<[String]>([])
      let handler = Box<TurnEnd?>(nil)
      handler.value = TurnEnd {
        log.value.append("end")
        if log.value.count < 4, let me = handler.value { runtime.atTurnEnd(me) }
      }
      runtime.post(
        Work {
          if let end = handler.value { runtime.atTurnEnd(end) }
          log.value.append("a")
        })
      runtime.post(Work { log.value.append("b") })
      for _ in 0..<4 { #expect(runtime.poll(timeoutMilliseconds: 0) == .ok) }
      #expect(log.value == ["a", "b", "end", "end"])
      handler.value = nil
      runtime.end()
    }
  }
}

func pipePair() -> (read: Int32, write: Int32) {
  var ends: (Int32, Int32) = (-1, -1)
  let r = withUnsafeMutablePointer(to: &ends) {
    $0.withMemoryRebound(to: Int32.self, capacity: 2) {
      socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, $0)
    }
  }
  must(r == 0, "socketpair")
  return (ends.0, ends.1)
}
