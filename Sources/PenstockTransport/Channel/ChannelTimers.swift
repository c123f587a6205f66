import PenstockLoop

/// A timer of a channel. The balancer has another timer, which is the `ChannelCore` itself.
final class ChannelTimer: Timer {
  /// The work of the timer. The object in it disarms the timer before it is freed, so its reference is not
  /// counted.
  enum Work {
    /// Ends an interval of outlier detection.
    case judge(Unmanaged<ChannelCore>)
    /// Makes a channel IDLE that has had no calls for the idle timeout.
    case rest(Unmanaged<ChannelCore>)
    case ask(Unmanaged<HealthCheck>)
    /// Ends the wait for the first bytes of an answer that belongs to no RPC.
    case page(Unmanaged<Attempt>)
    /// Ends the wait of a message's last bytes for what comes behind them.
    case send(Unmanaged<Attempt>)
  }

  private let work: Work

  init(_ work: Work) { self.work = work }

  override func fire() {
    switch work {
    case .judge(let core): core.takeUnretainedValue().judgeOutliers(self)
    case .rest(let core): core.takeUnretainedValue().mayRest(self)
    case .ask(let check): check.takeUnretainedValue().timeIsUp()
    case .page(let attempt): attempt.takeUnretainedValue().pageIsLate()
    case .send(let attempt): attempt.takeUnretainedValue().sendRest()
    }
  }
}
