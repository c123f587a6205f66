import PenstockLaws
import Testing

/// Runs random chains against the model: as many as PENSTOCK_SCENARIOS says (20,000 if it is not set), with
/// consecutive seeds from PENSTOCK_SEED (1 if it is not set). A scenario that breaks a law is made smaller as
/// long as it still breaks that law, and is then printed.
@Suite struct LawTests {
  @Test func lawsHoldInRandomScenarios() {
    let shrinks = environmentNumber("PENSTOCK_SHRINK") != 0
    let count = environmentNumber("PENSTOCK_SCENARIOS") ?? 20_000
    let seed = environmentNumber("PENSTOCK_SEED") ?? 1
    var failures = 0
    for number in 0..<count where failures < (shrinks ? 3 : 1) {
      if !Laws.hold(seed &+ number, shrinks: shrinks, report: { Issue.record("\($0)") }) { failures += 1 }
    }
    print("\(count) scenarios from PENSTOCK_SEED=\(seed)")
  }
}
