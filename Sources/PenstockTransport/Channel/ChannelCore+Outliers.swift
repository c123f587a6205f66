import PenstockChannel
import PenstockLoop

/// The channel's part of outlier detection. It counts the attempts, and calls `OutlierDetection` at the end
/// of each interval.
extension ChannelCore {
  /// Counts the attempts of each endpoint if the service config has outlier detection. With pick_first, which
  /// uses only one endpoint, attempts are not counted (gRFC A61).
  func watchOutliers() {
    let settings = outliers
    for subchannel in endpoints { subchannel.countsAttempts(settings != nil) }
    if let settings, balancer.connectivity != .idle {
      let timer = outlierTimer ?? ChannelTimer(.judge(.passUnretained(self)))
      outlierTimer = timer
      let next = settings.next(runtime.now)
      if !timer.isArmed || next < timer.deadline { runtime.arm(timer, at: next) }
    } else {
      outlierTimer.map { runtime.disarm($0) }
    }
  }

  private var outliers: OutlierDetection? {
    guard usesAllEndpoints, let settings = destination.service.balancing.outliers, settings.judgesAnything
    else {
      return nil
    }
    return settings
  }

  var usesAllEndpoints: Bool {
    if picker != nil { return true }
    if case .pickFirst = destination.service.balancing.policy { return false }
    return true
  }

  /// Called at the end of an interval of outlier detection. Judges each endpoint by its attempts in this
  /// interval.
  func judgeOutliers(_ timer: ChannelTimer) {
    guard let settings = outliers else { return }
    var records = endpoints.map { $0.takeRecord() }
    settings.judge(&records, now: runtime.now, random: runtime.platform.random)
    runtime.arm(timer, at: settings.next(runtime.now))
    // The list is copied, because `hears` may change the channel's list of endpoints.
    let judged = endpoints
    for (subchannel, record) in zip(judged, records) {
      if let news = subchannel.judged(record) { hears(news, subchannel) }
    }
  }
}
