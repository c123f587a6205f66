/// A timer of a channel, other than the timer of its balancer.
final class ChannelTimer: Timer {
  /// The work of the timer. The object disarms the timer before it is freed, so no reference is counted.
  enum Work {
    /// Ends an interval of outlier detection.
    case judge(Unmanaged<ChannelCore>)
    /// Makes a channel idle that has had no calls.
    case rest(Unmanaged<ChannelCore>)
    case ask(Unmanaged<HealthCheck>)
  }

  private let work: Work

  init(_ work: Work) { self.work = work }

  @inline(never) @_optimize(size)
  override func fire() {
    switch work {
    case .judge(let core): core.takeUnretainedValue().judgeOutliers(self)
    case .rest(let core): core.takeUnretainedValue().mayRest(self)
    case .ask(let check): check.takeUnretainedValue().timeIsUp()
    }
  }
}
