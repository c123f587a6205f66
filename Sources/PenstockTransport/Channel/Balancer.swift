/// Chooses where an attempt goes. One per channel; driving thread only.
protocol Balancer: AnyObject {
  /// Gives `attempt` to a subchannel.
  func attach(_ attempt: Attempt)
  /// Ends all connections; they end what is on them.
  func close()
  func closeInChild()
}

/// One subchannel for everything.
final class PickFirst: Balancer {
  private let subchannel: Subchannel

  init(_ subchannel: Subchannel) { self.subchannel = subchannel }

  func attach(_ attempt: Attempt) { subchannel.attach(attempt) }
  func close() { subchannel.close() }
  func closeInChild() { subchannel.closeInChild() }
}
