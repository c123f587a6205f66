import CPenstockSystem
import PenstockTestSupport
import Testing

@testable import PenstockLoop

extension RuntimeTests {
  @Suite struct HostTests {
    @Test func theDescriptorIsReadableWhenThereIsWork() {
      let runtime = makeRuntime(.host)
      let fd = runtime.pollableFD
      #expect(fd >= 0 && !isReadable(fd))
      let ran = Counter()
      runtime.post(Work { ran.up() })
      #expect(isReadable(fd))
      #expect(runtime.poll(timeoutMilliseconds: 0) == .ok)
      #expect(ran.now == 1 && !isReadable(fd))

      // If a turn leaves work (here, an item that a callback has posted), the descriptor stays readable.
      runtime.post(Work { runtime.post(Work { runtime.post(Work { ran.up() }) }) })
      while ran.now < 2 {
        #expect(isReadable(fd))
        #expect(runtime.poll(timeoutMilliseconds: 0) == .ok)
      }
      #expect(!isReadable(fd))
      #expect(ran.now == 2)

      // At the time of a timer the descriptor becomes readable.
      let at = runtime.after(milliseconds: 10)
      runtime.post(
        Work {
          let alarm = Alarm { _ in ran.up() }
          runtime.arm(alarm, at: at)
        })
      #expect(runtime.poll(timeoutMilliseconds: 0) == .ok)
      #expect(isReadable(fd, milliseconds: 20_000))
      #expect(Platform.systemClock() >= at)
      #expect(runtime.poll(timeoutMilliseconds: 0) == .ok)
      #expect(ran.now == 3 && !isReadable(fd))

      // The descriptor becomes readable when a watched socket becomes readable.
      let pair = pipePair()
      var byte: UInt8 = 1
      let handler = Ready { _ in
        runtime.unwatch(pair.read)
        ran.up()
      }
      runtime.perform { must(runtime.watch(pair.read, CS_EPOLLIN, handler), "watch") }
      #expect(!isReadable(fd))
      _ = write(pair.write, &byte, 1)
      #expect(isReadable(fd))
      #expect(runtime.poll(timeoutMilliseconds: 0) == .ok)
      #expect(ran.now == 4 && !isReadable(fd))
      cs_close(pair.read)
      cs_close(pair.write)
      runtime.end()
    }

    /// The serial numbers of watches wrap around. On the way they have values that are a part of the tokens of
    /// the loop's own descriptors. The poller must not confuse the events.
    @Test func serialsOfWatchesGoRound() {
      let runtime = makeRuntime(.host)
      let pair = pipePair()
      let ran = Counter()
      var byte: UInt8 = 1
      _ = write(pair.write, &byte, 1)
      runtime.perform { runtime.poller.serial = .max - 3 }
      for round in 1...6 {
        let old = Ready { _ in must(false, "told of a descriptor that it does not watch any more") }
        runtime.perform {
          must(runtime.watch(pair.read, CS_EPOLLIN, old), "watch")
          runtime.unwatch(pair.read)
          must(runtime.watch(pair.read, CS_EPOLLIN, Ready { _ in ran.up() }), "watch again")
        }
        #expect(runtime.poll(timeoutMilliseconds: 0) == .ok)
        #expect(ran.now >= round)
        runtime.perform { runtime.unwatch(pair.read) }
      }
      runtime.perform { must(runtime.poller.serial == 8, "round") }
      cs_close(pair.read)
      cs_close(pair.write)
      runtime.end()
    }

    @Test func aCallerThatDrivesHidesTheWorkFromTheHost() {
      let runtime = makeRuntime(.host)
      let fd = runtime.pollableFD
      let cell = WaitCell()
      let inside = WaitCell()
      let go = WaitCell()
      let thread = TestThread {
        must(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready, "wait")
      }
      runtime.post(
        Work {
          inside.set()
          park(go)
        })
      park(inside)
      // The other thread is in a callback, so it is the driver.
      let pair = pipePair()
      runtime.post(Work { must(runtime.watch(pair.read, CS_EPOLLIN, Ready { _ in }), "watch") })
      #expect(!isReadable(fd))
      #expect(runtime.poll(timeoutMilliseconds: 0) == .busy)
      #expect(runtime.poll(timeoutMilliseconds: 5) == .timedOut)
      go.set()
      var byte: UInt8 = 1
      _ = write(pair.write, &byte, 1)
      cell.set()
      thread.join()
      // Now no other thread drives, so the host program can poll, and the socket is ready.
      runtime.post(Work {})
      #expect(isReadable(fd))
      #expect(runtime.poll(timeoutMilliseconds: 0) == .ok)
      runtime.perform { runtime.unwatch(pair.read) }
      cs_close(pair.read)
      cs_close(pair.write)
      runtime.end()
    }

    @Test func aPollWithinAPollIsBusy() {
      let runtime = makeRuntime(.host)
      let got = Box<[Runtime.PollResult]>([])
      runtime.post(
        Work {
          got.value.append(runtime.poll(timeoutMilliseconds: 0))
          got.value.append(runtime.poll(timeoutMilliseconds: -1))
        })
      #expect(runtime.poll(timeoutMilliseconds: 0) == .ok)
      #expect(got.value == [.busy, .busy])
      runtime.end()
    }

    @Test func aPollWaitsForWorkOrItsTimeout() {
      let runtime = makeRuntime(.host)
      let start = Platform.systemClock()
      #expect(runtime.poll(timeoutMilliseconds: 10) == .ok)
      #expect(Platform.systemClock() - start >= 10_000_000)
      let ran = Counter()
      let poller = TestThread { must(runtime.poll(timeoutMilliseconds: -1) == .ok, "poll") }
      eventually("it polls") { runtime.driverThread.load(ordering: .relaxed) != 0 }
      runtime.post(Work { ran.up() })
      poller.join()
      #expect(ran.now == 1)
      runtime.end()
    }

    @Test func aPollTakesTheRoleWhenACallerLeavesIt() {
      let runtime = makeRuntime(.host)
      let cell = WaitCell()
      let ran = Counter()
      let caller = TestThread {
        must(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready, "wait")
      }
      eventually("it drives") { runtime.driverThread.load(ordering: .relaxed) != 0 }
      let poller = TestThread { must(runtime.poll(timeoutMilliseconds: -1) == .ok, "poll") }
      eventually("it parks") { runtime.lock.withLock { runtime.waiters.count } == 1 }
      cell.set()
      caller.join()
      runtime.post(Work { ran.up() })
      poller.join()
      #expect(ran.now == 1)
      runtime.end()
    }

    @Test func waitersAreServedByAPollingThread() {
      let runtime = makeRuntime(.host)
      let stop = Counter()
      let poller = TestThread { while stop.now == 0 { _ = runtime.poll(timeoutMilliseconds: -1) } }
      threads(4) { _ in for _ in 0..<200 { runtime.perform {} } }
      stop.up()
      runtime.post(Work {})
      poller.join()
      runtime.end()
    }

    @Test func aSignalEndsAPoll() {
      installQuietHandler()
      let runtime = makeRuntime(.host)
      let done = Counter()
      let poller = TestThread {
        must(runtime.poll(timeoutMilliseconds: -1) == .interrupted, "interrupted")
        done.up()
      }
      eventually("it ends") {
        if done.now == 0 { pthread_kill(poller.handle, SIGUSR1) }
        return done.now == 1
      }
      poller.join()
      runtime.end()
    }

    @Test func onlyTheHostPolls() {
      let runtime = makeRuntime(.thread)
      #expect(runtime.pollableFD == -1)
      #expect(runtime.poll(timeoutMilliseconds: 0) == .notHost)
      runtime.end()
    }
  }
}
