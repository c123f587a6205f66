import CPenstockSystem
import Synchronization
import PenstockTestSupport
import Testing

@testable import PenstockLoop

extension RuntimeTests {
  @Suite struct RoleTests {
    @Test func theRoleGoesFromTheOwnThreadToACallerAndBack() {
      let runtime = makeRuntime()
      let me = cs_thread_self()
      // No thread waits in a blocking function, so the runtime's own thread runs the item.
      let first = WaitCell()
      let ran = Atomic<UInt64>(0)
      runtime.post(
        Work {
          ran.store(cs_thread_self(), ordering: .relaxed)
          first.set()
        })
      park(first)
      let own = ran.load(ordering: .relaxed)
      #expect(own != me)
      // A waiting thread becomes the driver, and runs the items that are posted while it waits.
      let drove = Counter()
      let cell = WaitCell()
      let poster = TestThread {
        eventually("the caller drives") { runtime.driverThread.load(ordering: .relaxed) == me }
        runtime.post(
          Work {
            if cs_thread_self() == me && runtime.isDriving { drove.up() }
            cell.set()
          })
      }
      #expect(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready)
      poster.join()
      #expect(drove.now == 1)
      #expect(!runtime.isDriving)
      // After the linger (`lingerMicroseconds`) the runtime's own thread drives again.
      eventually("the own thread drives") { runtime.driverThread.load(ordering: .relaxed) == own }
      runtime.end()
    }

    /// An object for `releaseAtRest`. `gone` counts its release.
    private final class Spent {
      let gone: Counter
      init(_ gone: Counter) { self.gone = gone }
      deinit { gone.up() }
    }

    @Test func whatIsSpentGoesBeforeTheLoopSleeps() {
      let runtime = makeRuntime()
      let gone = Counter()
      let kept = Box<[Bool]>([])
      let before = Box(-1)
      runtime.perform {
        kept.value = [runtime.releaseAtRest(Spent(gone)), runtime.releaseAtRest(Spent(gone))]
        before.value = gone.now
      }
      // The first object is kept until the end of the turn; the second is not kept.
      #expect(kept.value == [true, false])
      #expect(before.value == 1)
      eventually("the loop sleeps") { gone.now == 2 }
      // A runtime that ends releases the kept object. A runtime that has ended, or that is host-driven, keeps
      // no object.
      runtime.perform { kept.value = [runtime.releaseAtRest(Spent(gone))] }
      runtime.end()
      #expect(gone.now == 3)
      #expect(!runtime.releaseAtRest(Spent(gone)))
      let hosted = makeRuntime(.host)
      hosted.perform { kept.value = [hosted.releaseAtRest(Spent(gone))] }
      #expect(kept.value == [false])
      hosted.end()
    }

    @Test func aLoopOfShortWaitsIsDrivenByTheCallerAlone() {
      // The linger is longer than the test. So once the caller has become the driver, it must run all later
      // turns.
      let runtime = makeRuntime(linger: 60_000_000)
      let me = cs_thread_self()
      let first = WaitCell()
      let helper = TestThread {
        eventually("the caller drives") { runtime.driverThread.load(ordering: .relaxed) == me }
        first.set()
      }
      #expect(runtime.wait(for: first, deadline: nil, interruptible: false) == .ready)
      helper.join()
      let woken = runtime.ownWord.load(ordering: .relaxed)
      let drove = Counter()
      for _ in 0..<2_000 { runtime.perform { if cs_thread_self() == me { drove.up() } } }
      #expect(drove.now == 2_000)
      // None of the waits has woken the runtime's own thread.
      #expect(runtime.ownWord.load(ordering: .relaxed) == woken)
      runtime.end()
    }

    @Test func workInTheBackgroundTakesTheLoopBackAtOnce() {
      let runtime = makeRuntime(linger: 60_000_000)
      runtime.perform {}
      runtime.beginBackground()
      let cell = WaitCell()
      runtime.post(Work { cell.set() })
      park(cell)
      runtime.endBackground()
      runtime.end()
    }

    @Test func whoeverStaysLongWakesTheOwnThreadWhenItLeaves() {
      let runtime = makeRuntime()
      let me = cs_thread_self()
      let cell = WaitCell()
      let helper = TestThread {
        eventually("the own thread sleeps without a limit") {
          runtime.lock.withLock { runtime.role.own == .sleeps && runtime.role.holder == .caller }
        }
        cell.set()
      }
      #expect(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready)
      helper.join()
      eventually("the own thread drives") {
        let driver = runtime.driverThread.load(ordering: .relaxed)
        return driver != 0 && driver != me
      }
      runtime.end()
    }

    @Test func aTimerThatIsLeftBehindDoesNotWaitForTheLinger() {
      let runtime = makeRuntime(linger: 60_000_000)
      let me = cs_thread_self()
      let firing = Counter()
      // In the second round the runtime's own thread already sleeps, until a time at which it would check by
      // itself whether any thread drives.
      for round in 1...2 {
        let alarm = Alarm { _ in
          must(cs_thread_self() != me, "nobody waits here")
          firing.up()
        }
        runtime.perform { runtime.arm(alarm, at: runtime.now + 2_000_000) }
        eventually("it fires") { firing.now == round }
        runtime.perform {}
      }
      runtime.end()
    }

    @Test(arguments: [(Runtime.Mode.thread, true), (.thread, false), (.host, true)])
    func sixteenThreadsAreServed(_ mode: Runtime.Mode, _ callerDrives: Bool) {
      let runtime = makeRuntime(mode, callerDrives: callerDrives)
      let served = Counter()
      threads(16) { i in
        for round in 0..<200 {
          let cell = WaitCell()
          let item = Work { cell.set() }
          if (i + round) % 3 == 0 {
            // A timer of the loop sets the cell later.
            runtime.post(
              Work {
                let alarm = Alarm { _ in cell.set() }
                runtime.arm(alarm, at: runtime.now + 50_000)
              })
          } else {
            runtime.post(item)
          }
          must(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready, "served")
          served.up()
        }
      }
      #expect(served.now == 3_200)
      runtime.end()
    }

    @Test func aCrowdIsDrivenByTheOwnThreadAndALoneCallerByItself() {
      // The linger is longer than the test. So the runtime's own thread drives only if it is told to.
      let runtime = makeRuntime(linger: 60_000_000)
      let cells = (0...runtime.role.limits.crowdSize).map { _ in WaitCell() }
      let wait = { (cell: WaitCell) in
        TestThread { must(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready, "woken") }
      }
      // The other callers begin only when the first caller drives. If all callers began while the runtime's
      // own thread still drives, it would keep driving.
      let first = wait(cells[0])
      eventually("a caller drives") {
        runtime.lock.withLock {
          runtime.role.holder == .caller && runtime.driverThread.load(ordering: .relaxed) != 0
        }
      }
      let waiters = [first] + cells.dropFirst().map(wait)
      // One caller drives, and all other callers are parked.
      eventually("a crowd") { runtime.lock.withLock { runtime.role.crowd == runtime.role.limits.crowdLasts } }
      let driving = runtime.driverThread.load(ordering: .relaxed)
      cells[0].set()
      eventually("the own thread drives") {
        runtime.lock.withLock { runtime.role.holder == .own(asked: false) }
      }
      #expect(driving != 0 && runtime.driverThread.load(ordering: .relaxed) != driving)
      // The runtime's own thread keeps driving, so the next caller does not drive.
      let me = cs_thread_self()
      let mine = Counter()
      runtime.perform { if cs_thread_self() == me { mine.up() } }
      #expect(mine.now == 0)
      for cell in cells { cell.set() }
      for waiter in waiters { waiter.join() }
      // After `crowdLasts` waits with few parked threads, a caller may drive again.
      for _ in 0..<runtime.role.limits.crowdLasts {
        must(runtime.wait(for: WaitCell(), deadline: 1, interruptible: false) == .timedOut, "timed out")
      }
      let cell = WaitCell()
      let helper = TestThread {
        eventually("the caller drives") { runtime.driverThread.load(ordering: .relaxed) == me }
        cell.set()
      }
      #expect(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready)
      helper.join()
      runtime.end()
    }

    @Test(arguments: [
      (Runtime.Mode.thread, true, 200), (.thread, true, 0), (.thread, false, 200), (.host, true, 200),
    ])
    func crowdsComeAndGo(_ mode: Runtime.Mode, _ callerDrives: Bool, _ linger: UInt32) {
      let runtime = makeRuntime(mode, callerDrives: callerDrives, linger: linger)
      let ended = Counter()
      // The threads end one after the other, until only one is left.
      threads(16) { i in
        for round in 0..<(20 * (i + 1)) {
          let cell = WaitCell()
          let soon = Platform.systemClock() + UInt64(10_000 * (1 + (i + round) % 16))
          switch (i &* 7 + round) % 5 {
          case 0:
            // The deadline of the wait and a timer of the loop have equal times.
            runtime.post(Work { runtime.arm(Alarm { _ in cell.set() }, at: soon) })
            let result = runtime.wait(for: cell, deadline: soon, interruptible: false)
            must(result == .ready || result == .timedOut, "ready or late")
          case 1:
            must(runtime.wait(for: cell, deadline: soon, interruptible: false) == .timedOut, "late")
          default:
            runtime.post(Work { cell.set() })
            must(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready, "served")
          }
          ended.up()
        }
      }
      #expect(ended.now == 20 * 136)
      runtime.end()
    }

    @Test(arguments: [(Runtime.Mode.thread, true), (.thread, false), (.host, true)])
    func cellsSetByOtherThreadsWakeDriverAndParked(_ mode: Runtime.Mode, _ callerDrives: Bool) {
      let runtime = makeRuntime(mode, callerDrives: callerDrives)
      for _ in 0..<50 {
        let cells = (0..<4).map { _ in WaitCell() }
        let waiters = cells.map { cell in
          TestThread { must(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready, "woken") }
        }
        for cell in cells.reversed() { cell.set() }
        for waiter in waiters { waiter.join() }
      }
      runtime.end()
    }

    @Test func severalThreadsMayWaitForOneCell() {
      let runtime = makeRuntime()
      for _ in 0..<50 {
        let cell = WaitCell()
        let waiters = (0..<4).map { _ in
          TestThread { must(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready, "woken") }
        }
        runtime.post(Work { cell.set() })
        for waiter in waiters { waiter.join() }
      }
      runtime.end()
    }

    @Test(arguments: [(Runtime.Mode.thread, true), (.thread, false), (.host, true)])
    func waitsEndAtTheirDeadline(_ mode: Runtime.Mode, _ callerDrives: Bool) {
      let runtime = makeRuntime(mode, callerDrives: callerDrives)
      let start = Platform.systemClock()
      threads(3) { i in
        let at = start + UInt64(i + 1) * 5_000_000
        must(runtime.wait(for: WaitCell(), deadline: at, interruptible: false) == .timedOut, "timed out")
        must(Platform.systemClock() >= at, "early")
      }
      // A wait whose deadline has passed ends at once.
      #expect(runtime.wait(for: WaitCell(), deadline: 1, interruptible: false) == .timedOut)
      let set = WaitCell()
      set.set()
      #expect(runtime.wait(for: set, deadline: 1, interruptible: false) == .ready)
      set.reset()
      #expect(runtime.wait(for: set, deadline: 1, interruptible: false) == .timedOut)
      runtime.end()
    }

    @Test(arguments: [Runtime.Mode.thread, .host]) func aWaitInACallbackWouldDeadlock(_ mode: Runtime.Mode) {
      let runtime = makeRuntime(mode)
      let got = Box<[Bool]>([])
      runtime.perform {
        got.value.append(runtime.isDriving)
        got.value.append(runtime.wait(for: WaitCell(), deadline: nil, interruptible: false) == .wouldDeadlock)
        got.value.append(runtime.shutdown(timeoutMilliseconds: -1) == .wouldDeadlock)
      }
      #expect(got.value == [true, true, true])
      runtime.end()
    }

    @Test func withoutCallersTheOwnThreadRunsEverything() {
      let runtime = makeRuntime(callerDrives: false)
      let me = cs_thread_self()
      let mine = Counter()
      for _ in 0..<200 { runtime.perform { if cs_thread_self() == me { mine.up() } } }
      #expect(mine.now == 0)
      runtime.end()
    }

    @Test(arguments: [(Runtime.Mode.thread, true), (.thread, false), (.host, true)])
    func aSignalEndsAnInterruptibleWait(_ mode: Runtime.Mode, _ callerDrives: Bool) {
      installQuietHandler()
      let runtime = makeRuntime(mode, callerDrives: callerDrives)
      let done = Counter()
      let waiter = TestThread {
        must(
          runtime.wait(for: WaitCell(), deadline: nil, interruptible: true) == .interrupted, "interrupted")
        done.up()
      }
      // The signal is sent repeatedly until the wait ends, because the first signal may come before the wait
      // begins. (Without a signal the wait would end after 250 ms.)
      eventually("the wait ends") {
        if done.now == 0 { pthread_kill(waiter.handle, SIGUSR1) }
        return done.now == 1
      }
      waiter.join()

      let cell = WaitCell()
      let stubborn = TestThread {
        must(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready, "goes on after a signal")
        done.up()
      }
      for _ in 0..<50 { pthread_kill(stubborn.handle, SIGUSR1) }
      #expect(done.now == 1)
      cell.set()
      stubborn.join()
      runtime.end()
    }

    @Test func anInterruptibleWaitReturnsWithoutASignalToo() {
      let runtime = makeRuntime()
      let start = Platform.systemClock()
      #expect(runtime.wait(for: WaitCell(), deadline: nil, interruptible: true) == .interrupted)
      #expect(Platform.systemClock() - start >= 240_000_000)
      runtime.end()
    }

    @Test func descriptorsAreWatchedAndStaleEventsDropped() {
      let runtime = makeRuntime(.host)
      let a = pipePair()
      let b = pipePair()
      var byte: UInt8 = 1
      let log = Box<[String]>([])
      let unwatchOther = Box<(Int32, Int32)>((a.read, b.read))
      // Both descriptors are ready in one batch of events. The handler that is called first unwatches both,
      // so the other handler must not be called.
      for (name, fd) in [("a", a.read), ("b", b.read)] {
        let handler = Ready { _ in
          log.value.append(name)
          runtime.unwatch(unwatchOther.value.0)
          runtime.unwatch(unwatchOther.value.1)
        }
        runtime.perform { must(runtime.watch(fd, CS_EPOLLIN, handler), "watch") }
      }
      runtime.perform { must(!runtime.watch(a.read, CS_EPOLLIN, Ready { _ in }), "twice") }
      #expect(!isReadable(runtime.pollableFD))
      _ = write(a.write, &byte, 1)
      _ = write(b.write, &byte, 1)
      #expect(runtime.poll(timeoutMilliseconds: -1) == .ok)
      #expect(log.value.count == 1)
      runtime.perform { must(!runtime.watch(-1, CS_EPOLLIN, Ready { _ in }), "no descriptor") }
      for fd in [a.read, a.write, b.read, b.write] { cs_close(fd) }
      runtime.end()
    }
  }
}

func installQuietHandler() {
  signal(SIGUSR1) { _ in }
  var action = sigaction()
  sigaction(SIGUSR1, nil, &action)
  action.sa_flags = 0  // no SA_RESTART
  sigaction(SIGUSR1, &action, nil)
}
