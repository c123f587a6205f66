import PenstockTestSupport

@testable import PenstockTransport

/// A simulation with a resolver for the channels in it.
final class World: Simulation {
  /// The resolver that is used in place of `names`; nil: `names` is used.
  var resolver: Resolver?
}
