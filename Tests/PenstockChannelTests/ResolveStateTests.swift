import PenstockChannel
import Testing

/// Every cell of the table in ResolveState.swift.
@Suite struct ResolveStateTests {
  typealias Step = (event: ResolveState.Event, now: UInt64, actions: Actions<ResolveState.Action>)

  /// Look-ups begin at least 30 apart and take at most 20. After failures the waits are 10, then 20.
  static func policy(interval: UInt64 = 0) -> ResolveState.Policy {
    var policy = ResolveState.Policy()
    policy.least = 30
    policy.timeout = 20
    policy.interval = interval
    policy.backoff.initial = 10
    policy.backoff.multiplier = 2
    policy.backoff.jitter = 0
    return policy
  }

  func run(_ steps: [Step], interval: UInt64 = 0) {
    var state = ResolveState()
    for (index, step) in steps.enumerated() {
      let actions = state.handle(step.event, Self.policy(interval: interval), now: step.now, random: 0)
      #expect(actions == step.actions, "step \(index): \(step.event) at \(step.now)")
    }
  }

  @Test func idle() {
    run([
      (.answered, 100, .none), (.failed, 100, .none), (.time, 100, .none), (.rest, 100, .none),
      (.reset, 100, .none),
      (.ask, 100, Actions(.arm(120), .start)),
    ])
  }

  @Test func asking() {
    run([
      (.ask, 100, Actions(.arm(120), .start)), (.ask, 101, .none), (.reset, 101, .none),
      (.time, 110, Actions(.arm(120))),
      (.answered, 115, Actions(.disarm)),
    ])
    run([(.ask, 100, Actions(.arm(120), .start)), (.rest, 101, Actions(.stop, .disarm))])
    // The look-up takes longer than allowed. The back-off allows the next one from 110 on, which has passed,
    // so it begins at once.
    run([
      (.ask, 100, Actions(.arm(120), .start)), (.time, 120, Actions(.arm(120), .giveUp)),
      (.time, 120, Actions(.arm(140), .start)),
    ])
  }

  @Test func notTooOften() {
    run([
      (.ask, 100, Actions(.arm(120), .start)), (.answered, 101, Actions(.disarm)),
      (.ask, 102, Actions(.arm(130))), (.ask, 103, .none), (.reset, 104, .none),
      (.time, 120, Actions(.arm(130))),
      (.time, 130, Actions(.arm(150), .start)), (.answered, 131, Actions(.disarm)),
      (.ask, 170, Actions(.arm(190), .start)),
    ])
    // A look-up that `rest` has stopped does not count for the least time between two look-ups: the next one
    // begins at once.
    run([
      (.ask, 100, Actions(.arm(120), .start)), (.rest, 101, Actions(.stop, .disarm)),
      (.ask, 102, Actions(.arm(122), .start)),
    ])
  }

  @Test func beforeTheIntervalIsOver() {
    run(
      [
        (.ask, 100, Actions(.arm(120), .start)), (.answered, 101, Actions(.arm(1101))),
        // Addresses are wanted again: the next look-up begins at least 30 after the last one, but does not
        // wait for the end of the interval.
        (.ask, 102, Actions(.arm(130))), (.ask, 103, .none), (.time, 130, Actions(.arm(150), .start)),
        (.answered, 131, Actions(.arm(1131))), (.ask, 500, Actions(.arm(520), .start)),
      ], interval: 1000)
  }

  @Test func againAfterAFailure() {
    run([
      (.ask, 100, Actions(.arm(120), .start)), (.failed, 101, Actions(.arm(110))), (.ask, 102, .none),
      (.answered, 102, .none), (.failed, 102, .none),
      (.time, 110, Actions(.arm(130), .start)), (.failed, 111, Actions(.arm(130))),
      (.time, 130, Actions(.arm(150), .start)), (.answered, 131, Actions(.disarm)),
      // The back-off begins with its first wait again, because a look-up has succeeded.
      (.ask, 200, Actions(.arm(220), .start)), (.failed, 201, Actions(.arm(210))),
      (.rest, 202, Actions(.disarm)),
      // `rest` has ended the wait, so this look-up begins at once.
      (.ask, 203, Actions(.arm(223), .start)),
    ])
  }

  @Test func atOnceWhenAsked() {
    run([
      (.ask, 100, Actions(.arm(120), .start)), (.failed, 101, Actions(.arm(110))),
      (.reset, 102, Actions(.arm(122), .start)), (.failed, 103, Actions(.arm(112))),
    ])
  }

  @Test func onAnInterval() {
    run(
      [
        (.ask, 100, Actions(.arm(120), .start)), (.answered, 101, Actions(.arm(151))),
        (.time, 151, Actions(.arm(171), .start)), (.answered, 152, Actions(.arm(202))),
        (.rest, 160, Actions(.disarm)), (.time, 202, .none),
      ], interval: 50)
    // With an interval of 5 the look-ups are still at least 30 apart.
    run([(.ask, 100, Actions(.arm(120), .start)), (.answered, 101, Actions(.arm(130)))], interval: 5)
  }
}
