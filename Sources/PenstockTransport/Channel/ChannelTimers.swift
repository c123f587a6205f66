/// The timer of outlier detection.
final class OutlierTimer: Timer {
  /// The core, which disarms this timer before it is freed.
  private unowned(unsafe) let core: ChannelCore

  init(_ core: ChannelCore) { self.core = core }

  override func fire() { core.judgeOutliers(self) }
}

/// The timer of a health check.
final class HealthTimer: Timer {
  /// The check, which disarms this timer before it is freed.
  private unowned(unsafe) let check: HealthCheck

  init(_ check: HealthCheck) { self.check = check }

  override func fire() { check.timeIsUp() }
}

/// The timer after which a channel without calls rests.
final class IdleTimer: Timer {
  /// The core, which disarms this timer before it is freed.
  private unowned(unsafe) let core: ChannelCore

  init(_ core: ChannelCore) { self.core = core }

  override func fire() { core.mayRest(self) }
}
