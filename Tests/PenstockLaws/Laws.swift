import PenstockCall

/// Random chains against a reference model: whoever runs them says how many, and from which seed.
public enum Laws {
  /// One scenario after another, each with the next seed. True: none broke a law, else it is cut down to what breaks
  /// the law still, and told.
  public static func hold(_ seed: UInt64, shrinks: Bool, report: (String) -> Void) -> Bool {
    let scenario = Scenario.random(seed)
    // Who does not shrink looks for mistakes that show soon, not for the rarest order.
    let orders = shrinks ? 20_000 : 300
    guard let failure = Play.run(scenario, orders: orders) else { return true }
    var small = shrinks ? scenario.shrunk(failure.law) : scenario
    var shown = Play.run(small, isVerbose: true, orders: orders)
    if shown == nil {
      small = scenario
      shown = Play.run(small, isVerbose: true, orders: orders)
    }
    report(
      """
      PENSTOCK_SEED=\(seed) PENSTOCK_SCENARIOS=1 breaks \(failure.law): \(shown?.what ?? failure.what)
      \(small.words)
      what happened:
      \((shown?.trace ?? []).joined(separator: "\n"))
      """)
    return false
  }
}
