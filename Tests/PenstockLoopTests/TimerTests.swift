import CPenstockSystem
import PenstockTestSupport
import Testing

@testable import PenstockLoop

extension RuntimeTests {
  @Suite struct TimerTests {
    /// Arms, moves and disarms timers at random, and compares the heap with a plain list.
    @Test(arguments: 0..<50) func theHeapGivesWhatAListWouldGive(_ seed: Int) {
      var random = SplitMix(state: UInt64(seed))
      var heap = TimerHeap()
      let timers = (0..<60).map { _ in Timer() }
      var armed: [ObjectIdentifier: UInt64] = [:]
      for _ in 0..<2_000 {
        let timer = timers.randomElement(using: &random)!
        switch Int.random(in: 0..<4, using: &random) {
        case 0, 1:
          let at = UInt64.random(in: 0..<100, using: &random)
          heap.arm(timer, at: at)
          armed[ObjectIdentifier(timer)] = at
        case 2:
          let was = armed.removeValue(forKey: ObjectIdentifier(timer)) != nil
          #expect((heap.disarm(timer) != nil) == was)
        default:
          let time = UInt64.random(in: 0..<40, using: &random)
          while let due = heap.popDue(time) {
            let at = armed.removeValue(forKey: ObjectIdentifier(due))
            #expect(at == due.deadline && at! <= time)
            #expect(armed.values.allSatisfy { $0 >= at! })
          }
          #expect(armed.values.allSatisfy { $0 > time })
        }
        #expect(heap.count == armed.count && heap.earliest == armed.values.min())
        for timer in timers where timer.isArmed != (armed[ObjectIdentifier(timer)] != nil) {
          Issue.record("seed \(seed): isArmed is wrong")
        }
      }
      while heap.popAny() != nil {}
    }

    @Test(arguments: [Runtime.Mode.thread, .host]) func timersFireInOrderNeverEarly(_ mode: Runtime.Mode) {
      let runtime = makeRuntime(mode)
      let cell = WaitCell()
      let log = Box<[Int]>([])
      let early = Counter()
      let start = Platform.systemClock()
      runtime.perform {
        for i in [3, 1, 2, 5, 4] {
          let at = start + UInt64(i) * 2_000_000
          let alarm = Alarm { _ in
            if Platform.systemClock() < at { early.up() }
            log.value.append(i)
            if i == 5 { cell.set() }
          }
          runtime.arm(alarm, at: at)
        }
      }
      #expect(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready)
      #expect(log.value == [1, 2, 3, 4, 5])
      #expect(early.now == 0)
      runtime.end()
    }

    @Test func aTimerThatArmsItselfForThePastDoesNotHoldTheLoop() {
      let runtime = makeRuntime()
      let cell = WaitCell()
      let fired = Counter()
      let stop = Box(false)
      let alarm = Alarm { me in
        fired.up()
        if !stop.value { runtime.arm(me, at: 0) }
      }
      runtime.perform { runtime.arm(alarm, at: 0) }
      eventually("it fires again and again") { fired.now > 100 }
      runtime.post(Work { cell.set() })
      #expect(runtime.wait(for: cell, deadline: nil, interruptible: false) == .ready)
      runtime.perform { stop.value = true }
      runtime.end()
    }

    @Test func waitsThatNeedNoEventDoNotStarveTimers() {
      let runtime = makeRuntime(linger: 60_000_000)
      let fired = Counter()
      let alarm = Alarm { _ in fired.up() }
      runtime.perform { runtime.arm(alarm, at: runtime.now) }
      eventually("it fires") {
        runtime.perform {}
        return fired.now == 1
      }
      runtime.end()
    }

    @Test func disarmedTimersDoNotFireAndAreLetGo() {
      let runtime = makeRuntime(.host)
      weak var seen: Alarm?
      do {
        let alarm = Alarm { _ in must(false, "fired") }
        seen = alarm
        runtime.perform {
          runtime.arm(alarm, at: runtime.now + 1_000_000)
          runtime.arm(alarm, at: runtime.now + 2_000_000)
          runtime.disarm(alarm)
          runtime.disarm(alarm)
          must(!alarm.isArmed, "still armed")
        }
      }
      #expect(seen == nil)
      runtime.end()
    }
  }
}
