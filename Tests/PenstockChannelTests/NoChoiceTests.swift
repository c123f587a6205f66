import PenstockChannel
import Testing

@Suite struct NoChoiceTests {
  @Test func everyCase() {
    for (full, refused, mayComeUp, expected) in [
      (false, 0, false, NoChoice.failsUnmet), (false, 2, false, .failsRefused(2)),
      (false, 0, true, .wait), (false, 2, true, .wait),
      (true, 0, false, .wait), (true, 2, false, .wait), (true, 0, true, .wait), (true, 2, true, .wait),
    ] {
      #expect(NoChoice.decide(full: full, refused: refused, mayComeUp: mayComeUp) == expected)
    }
  }

  @Test func endpointsThatMayComeUp() {
    for (state, patient, impatient) in [
      (Connectivity.idle, true, true), (.connecting, true, true), (.ready, false, false),
      (.transientFailure, true, false), (.shutdown, false, false),
    ] {
      #expect(NoChoice.mayComeUp(state, waits: true) == patient)
      #expect(NoChoice.mayComeUp(state, waits: false) == impatient)
    }
  }
}
