import CPenstockSystem
import PenstockTestSupport
import Testing

@testable import PenstockLoop

extension RuntimeTests {
  @Suite struct EndTests {
    @Test(arguments: [(Runtime.Mode.thread, true), (.thread, false), (.host, true)])
    func shutdownRunsTheHooksAndEndsTheWaits(_ mode: Runtime.Mode, _ callerDrives: Bool) {
      let runtime = makeRuntime(mode, callerDrives: callerDrives)
      let log = Box<[String]>([])
      let call = WaitCell()
      let orphan = WaitCell()
      let removed = Hook { log.value.append("removed") }
      runtime.perform {
        runtime.onShutdown(
          Hook {
            log.value.append(runtime.isDriving ? "hook" : "elsewhere")
            // An item that a shutdown hook posts still runs.
            runtime.post(
              Work {
                log.value.append("item")
                call.set()
              })
          })
        runtime.onShutdown(removed)
        runtime.removeShutdownHook(removed)
      }
      let waiters = [
        TestThread { must(runtime.wait(for: call, deadline: nil, interruptible: false) == .ready, "call") },
        TestThread {
          must(runtime.wait(for: orphan, deadline: nil, interruptible: false) == .closed, "orphan")
        },
      ]
      #expect(runtime.shutdown(timeoutMilliseconds: -1) == .ok)
      for waiter in waiters { waiter.join() }
      #expect(log.value == ["hook", "item"])
      #expect(runtime.shutdown(timeoutMilliseconds: -1) == .already)
      #expect(runtime.wait(for: orphan, deadline: nil, interruptible: false) == .closed)
      #expect(!runtime.post(Work {}))
      if mode == .host { #expect(runtime.poll(timeoutMilliseconds: -1) == .closed) }
      runtime.releaseHandle()
    }

    /// A shutdown runs the hooks, and the items that the hooks post, in one turn. So a shutdown with a
    /// timeout of 0 ends an idle host-driven runtime.
    @Test func shutdownWithoutATimeoutEndsAnIdleHostRuntime() {
      let runtime = makeRuntime(.host)
      let ran = Counter()
      runtime.perform {
        runtime.onShutdown(
          Hook {
            runtime.post(Work { ran.up() })
            runtime.atTurnEnd(TurnEnd { ran.up() })
          })
      }
      #expect(runtime.shutdown(timeoutMilliseconds: 0) == .ok)
      #expect(ran.now == 2)
      #expect(runtime.shutdown(timeoutMilliseconds: 0) == .already)
      runtime.releaseHandle()
    }

    /// A thread that spins (polls for events without sleeping) notices a shutdown, even if `spinMicroseconds`
    /// lets it spin for ever.
    @Test(arguments: [Runtime.Mode.thread, .host])
    func shutdownEndsASpin(_ mode: Runtime.Mode) {
      let runtime = makeRuntime(mode, spin: .max)
      let driving = WaitCell()
      runtime.post(Work { driving.set() })
      let waiter = TestThread {
        must(runtime.wait(for: WaitCell(), deadline: nil, interruptible: false) == .closed, "wait")
      }
      park(driving)
      #expect(runtime.shutdown(timeoutMilliseconds: 20_000) == .ok)
      waiter.join()
      runtime.releaseHandle()
    }

    @Test(arguments: [(Runtime.Mode.thread, true), (.thread, false), (.host, true)])
    func shutdownTimesOutOnWhatIsPendingAndMayBeCalledAgain(_ mode: Runtime.Mode, _ callerDrives: Bool) {
      let runtime = makeRuntime(mode, callerDrives: callerDrives)
      runtime.beginPending()
      #expect(runtime.shutdown(timeoutMilliseconds: 0) == .timedOut)
      #expect(runtime.shutdown(timeoutMilliseconds: 5) == .timedOut)
      // The loop still runs.
      let ran = Counter()
      runtime.perform { ran.up() }
      #expect(ran.now == 1)
      let helper = TestThread { runtime.endPending() }
      // The runtime may have ended before this last call of `shutdown`.
      let again = runtime.shutdown(timeoutMilliseconds: -1)
      #expect(again == .ok || again == .already)
      helper.join()
      runtime.releaseHandle()
    }

    @Test(arguments: [Runtime.Mode.thread, .host])
    func shutdownTimesOutOnACallbackThatDoesNotReturn(_ mode: Runtime.Mode) {
      let runtime = makeRuntime(mode)
      let inside = WaitCell()
      let go = WaitCell()
      runtime.post(
        Work {
          inside.set()
          park(go)
        })
      let driver = TestThread {
        if mode == .host {
          while runtime.poll(timeoutMilliseconds: -1) == .ok {}
        }
      }
      park(inside)
      #expect(runtime.shutdown(timeoutMilliseconds: 5) == .timedOut)
      go.set()
      // The runtime may have ended before this last call of `shutdown`.
      let again = runtime.shutdown(timeoutMilliseconds: -1)
      #expect(again == .ok || again == .already)
      driver.join()
      runtime.releaseHandle()
    }

    @Test(arguments: [Runtime.Mode.thread, .host]) func manyMayShutDownAtOnce(_ mode: Runtime.Mode) {
      for _ in 0..<50 {
        let runtime = makeRuntime(mode)
        let ok = Counter()
        threads(4) { _ in
          switch runtime.shutdown(timeoutMilliseconds: -1) {
          case .ok: ok.up()
          case .already: break
          case .timedOut, .wouldDeadlock: must(false, "shutdown")
          }
        }
        #expect(ok.now >= 1)
        runtime.releaseHandle()
      }
    }

    @Test(arguments: [Runtime.Mode.thread, .host]) func theLastHandleAndHoldEndIt(_ mode: Runtime.Mode) {
      let runtime = makeRuntime(mode)
      runtime.beginCall()
      runtime.retainHandle()
      runtime.releaseHandle()
      runtime.releaseHandle()
      let ran = Counter()
      runtime.perform { ran.up() }
      #expect(ran.now == 1)
      runtime.endCall()
      eventually("it ends") { runtime.lock.withLock { runtime.phase == .ended } }
    }

    @Test(arguments: [Runtime.Mode.thread, .host]) func itMayEndInACallback(_ mode: Runtime.Mode) {
      let runtime = makeRuntime(mode)
      let ran = WaitCell()
      runtime.post(
        Work {
          runtime.releaseHandle()
          ran.set()
        })
      if mode == .host { #expect(runtime.poll(timeoutMilliseconds: 0) == .closed) }
      park(ran)
      eventually("it ends") { runtime.lock.withLock { runtime.phase == .ended } }
    }

    @Test func theDefaultRuntimeIsSharedAndMadeAnewAfterItsEnd() {
      guard case .made(let a) = Runtime.shared(), case .made(let b) = Runtime.shared() else {
        Issue.record("no runtime")
        return
      }
      #expect(a === b)
      a.releaseHandle()
      b.perform {}
      #expect(b.shutdown(timeoutMilliseconds: -1) == .ok)
      guard case .made(let c) = Runtime.shared() else {
        Issue.record("no runtime")
        return
      }
      #expect(c !== b)
      b.releaseHandle()
      c.perform {}
      c.releaseHandle()
      eventually("it ends") { c.lock.withLock { c.phase == .ended } }
    }

    @Test func sharingAndReleasingAtOnce() {
      threads(4) { _ in
        for _ in 0..<200 {
          guard case .made(let runtime) = Runtime.shared() else { return must(false, "no runtime") }
          runtime.perform {}
          runtime.releaseHandle()
        }
      }
    }

    @Test(.disabled(if: underThreadSanitizer, noThreads)) func nothingIsLeft() async {
      await #expect(processExitsWith: .success) {
        func rounds(_ check: (Runtime.Mode, () -> Bool) -> Int32) -> Int32 {
          for mode in [Runtime.Mode.thread, .host] {
            for how in 0..<2 {
              weak var seen: Runtime?
              do {
                let runtime = makeRuntime(mode)
                seen = runtime
                threads(4) { _ in for _ in 0..<20 { runtime.perform {} } }
                if how == 0 { runtime.end() } else { runtime.releaseHandle() }
              }
              let left = check(mode) { seen == nil }
              if left != 0 { return left }
            }
          }
          return 0
        }
        // The rounds run in a child process, which has no other threads and no descriptors of other tests.
        // The parent runs `whole` once before, because full Swift's runtime fills its caches under locks that
        // must not be held at a fork.
        func whole() -> Int32 {
          makeRuntime().end()
          let descriptors = openDescriptors()
          return rounds { _, isGone in
            var tries = 0
            while openDescriptors() != descriptors || libraryThreads() != 0 || !isGone() {
              tries += 1
              if tries > 10_000 {
                return openDescriptors() != descriptors ? 2 : libraryThreads() != 0 ? 3 : 4
              }
              var nap = timespec(tv_sec: 0, tv_nsec: 200_000)
              nanosleep(&nap, nil)
            }
            return 0
          }
        }
        _ = rounds { _, isGone in
          eventually("no memory is left") { isGone() }
          return libraryThreads() == 0 && openDescriptors() < 0 ? 1 : 0
        }
        let status = inChild { whole() }
        must(status == 0, "left: \(status) (2 descriptors, 3 threads, 4 memory)")
      }
    }

    @Test func theOwnThreadTakesNoSignals() async {
      await #expect(processExitsWith: .success) {
        TestThread {
          let runtime = makeRuntime(callerDrives: false)
          let mask = Box(sigset_t())
          runtime.perform { pthread_sigmask(SIG_SETMASK, nil, &mask.value) }
          must(sigismember(&mask.value, SIGUSR1) == 1 && sigismember(&mask.value, SIGINT) == 1, "blocked")
          must(sigismember(&mask.value, SIGSEGV) == 0, "faults are not")
          var mine = sigset_t()
          pthread_sigmask(SIG_SETMASK, nil, &mine)
          must(sigismember(&mine, SIGUSR1) == 0, "the caller's mask is as it was")
          runtime.end()
        }.join()
      }
    }

    @Test func refusedDescriptorsAreAResult() async {
      await #expect(processExitsWith: .success) {
        // Makes a runtime with 0, 1, and so on up to `most` free descriptors. It runs in a child process,
        // because other threads of this process open descriptors.
        func outcomes(_ most: Int) -> Int32 {
          let kind = __rlimit_resource_t(7)  // RLIMIT_NOFILE
          var limit = rlimit(rlim_cur: 64, rlim_max: 64)
          if setrlimit(kind, &limit) != 0 { return 2 }
          var fillers: [Int32] = []
          while true {
            let fd = dup(0)
            if fd < 0 { break }
            fillers.append(fd)
          }
          for free in 0...most {
            var options = Runtime.Options()
            options.mode = .host
            switch Runtime.make(options) {
            case .made(let runtime):
              if free != 4 { return 3 }  // inner, wake, timer, outer
              runtime.releaseHandle()
            case .failed(let code, _): if free == 4 || code != EMFILE { return 4 }
            }
            cs_close(fillers.removeLast())
          }
          // Each failed attempt must have closed all descriptors that it had opened, so the number of free
          // descriptors is unchanged.
          for _ in 0...most { if dup(0) < 0 { return 5 } }
          return dup(0) < 0 ? 0 : 6
        }
        makeRuntime(.host).end()
        let status = inChild { outcomes(4) }
        must(status == 0, "the child ended with \(status)")
      }
    }
  }

  @Suite struct ForkTests {
    @Test(.disabled(if: underThreadSanitizer, noThreads)) func aChildSeesThatItIsOneAndGetsAFreshRuntime()
      async
    {
      await #expect(processExitsWith: .success) {
        // The parent first runs all code that runs at the fork and after it. Full Swift's runtime fills its
        // caches under locks of its own, which must not be held at a fork.
        let rehearsal = makeRuntime()
        rehearsal.perform {}
        _ = openDescriptors()
        _ = inChild { 0 }
        rehearsal.end()
        guard case .made(let parents) = Runtime.shared() else { return must(false, "no runtime") }
        parents.perform {}
        let id = Process.nextID()
        let status = inChild {
          let before = openDescriptors()
          if !Process.isForked(parents.generation) { return 2 }
          if Process.generation == parents.generation { return 3 }
          if Process.slot(0).pointee != 0 { return 4 }
          if Process.nextID() != 1 { return 5 }
          if parents.wait(for: WaitCell(), deadline: nil, interruptible: false) != .closed { return 6 }
          guard case .made(let mine) = Runtime.shared() else { return 7 }
          if mine === parents { return 8 }
          let cell = WaitCell()
          mine.post(Work { cell.set() })
          if mine.wait(for: cell, deadline: nil, interruptible: false) != .ready { return 9 }
          if mine.shutdown(timeoutMilliseconds: -1) != .ok { return 10 }
          mine.releaseHandle()
          parents.releaseHandle()
          // `releaseHandle` must have closed the child's copies of the two descriptors of the parent's
          // runtime.
          if openDescriptors() != before - 2 { return 11 }
          // A grandchild must recognise the generations of both the child and the parent as those of other
          // processes.
          let generation = Process.generation
          let grandchild = inChild {
            Process.isForked(generation) && Process.isForked(parents.generation)
              && Process.generation != generation ? 0 : 1
          }
          return grandchild
        }
        must(status == 0, "the child ended with \(status)")
        // The fork has not changed the parent's ids.
        must(Process.nextID() == id + 1, "sequence")
        parents.perform {}
        parents.end()
      }
    }

    @Test(.disabled(if: underThreadSanitizer, noThreads)) func forksInTheMiddleOfWorkAreSurvived() async {
      await #expect(processExitsWith: .success) {
        /// Makes a runtime in this process, and runs one item on it. Returns 0 if this works.
        func works() -> Int32 {
          Process.withLock {}
          var options = Runtime.Options()
          options.mode = .host
          guard case .made(let mine) = Runtime.make(options) else { return 3 }
          let cell = WaitCell()
          mine.post(Work { cell.set() })
          if mine.wait(for: cell, deadline: nil, interruptible: false) != .ready { return 4 }
          mine.releaseHandle()
          return 0
        }
        let runtime = makeRuntime()
        // The parent first does everything that the children will do. Full Swift's runtime fills its caches
        // under locks of its own, which must not be held at a fork. (Embedded Swift has no such locks.)
        runtime.perform {}
        must(works() == 0 && !Process.isForked(runtime.generation), "rehearsal")
        _ = inChild { works() }
        let stop = Counter()
        let busy = (0..<2).map { _ in
          TestThread {
            while stop.now == 0 {
              runtime.perform {}
              Process.withLock {}
            }
          }
        }
        for _ in 0..<30 {
          let status = inChild {
            if !Process.isForked(runtime.generation) { return 2 }
            runtime.releaseHandle()
            return works()
          }
          must(status == 0, "the child ended with \(status)")
        }
        stop.up()
        for thread in busy { thread.join() }
        runtime.end()
      }
    }
  }
}
