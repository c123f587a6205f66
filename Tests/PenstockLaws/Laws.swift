import PenstockCall

/// Plays random chains and compares them with a model of the laws. The caller chooses how many, and the
/// seeds.
public enum Laws {
  /// Plays the scenario of this seed. One seed in sixteen gives a scenario with several calls and a registry.
  /// Returns true if no law was broken. A scenario that breaks a law is reported; with `shrinks` it is first
  /// made smaller, as long as it still breaks the same law.
  public static func hold(_ seed: UInt64, shrinks: Bool, report: (String) -> Void) -> Bool {
    // The largest number of orders of events that the model tries. A caller that does not shrink looks for
    // mistakes that show soon, so a few orders are enough for it.
    let orders = shrinks ? 20_000 : 300
    if seed & 15 == 15 { return holdLive(seed, orders, shrinks, report) }
    let scenario = Scenario.random(seed)
    guard let failure = Play.run(scenario, orders: orders) else { return true }
    var small = shrinks ? scenario.shrunk(failure.law) : scenario
    var shown = Play.run(small, isVerbose: true, orders: orders)
    if shown == nil {
      small = scenario
      shown = Play.run(small, isVerbose: true, orders: orders)
    }
    tell(seed, failure.law, shown?.what ?? failure.what, small.words, shown?.trace ?? [], report)
    return false
  }

  private static func holdLive(_ seed: UInt64, _ orders: Int, _ shrinks: Bool, _ report: (String) -> Void)
    -> Bool
  {
    let scenario = LiveScenario.random(seed)
    guard let failure = LivePlay.run(scenario, orders: orders) else { return true }
    let small = shrinks ? scenario.shrunk(failure.law) : scenario
    let shown = LivePlay.run(small, isVerbose: true, orders: orders)
    tell(seed, failure.law, shown?.what ?? failure.what, small.words, shown?.trace ?? [], report)
    return false
  }

  private static func tell(
    _ seed: UInt64, _ law: String, _ what: String, _ words: String, _ trace: [String],
    _ report: (String) -> Void
  ) {
    report(
      """
      PENSTOCK_SEED=\(seed) PENSTOCK_SCENARIOS=1 breaks \(law): \(what)
      \(words)
      what happened:
      \(trace.joined(separator: "\n"))
      """)
  }
}
