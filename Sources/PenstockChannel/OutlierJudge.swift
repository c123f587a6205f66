/// The record that outlier detection keeps of one endpoint.
public struct OutlierRecord: Equatable, Sendable {
  /// How many calls have ended since the interval began: with OK (`succeeded`), or with another code
  /// (`failed`).
  public var succeeded = 0
  public var failed = 0
  /// When the endpoint was ejected (gets no calls for a time), in monotonic nanoseconds; nil: it is not
  /// ejected.
  public private(set) var ejectedAt: UInt64?
  /// The length of the present or last ejection, as a multiple of `baseEjection`. It rises by one with each
  /// ejection, and falls by one with each interval in which the endpoint is not ejected.
  private var multiplier: UInt64 = 0

  public init() {}

  public var isEjected: Bool { ejectedAt != nil }
  var volume: Int { succeeded + failed }
  var successRate: Double { Double(succeeded) / Double(volume) }

  mutating func eject(_ now: UInt64) {
    ejectedAt = now
    multiplier += 1
  }

  /// Ends an interval: forgets the counted calls, and ends the ejection if it has lasted long enough.
  mutating func age(_ settings: OutlierDetection, _ now: UInt64) {
    succeeded = 0
    failed = 0
    guard let since = ejectedAt else {
      if multiplier > 0 { multiplier -= 1 }
      return
    }
    let (length, overflow) = settings.baseEjection.multipliedReportingOverflow(by: multiplier)
    let most = max(settings.baseEjection, settings.longestEjection ?? 300_000_000_000)
    if now > Time.after(overflow ? most : min(length, most), since) { ejectedAt = nil }
  }

  /// Clears the record, because the settings contain no outlier detection any more.
  public mutating func restore() { self = OutlierRecord() }
}

extension OutlierDetection {
  public var judgesAnything: Bool { successRate != nil || failurePercentage != nil }

  /// The end of an interval that begins now. An interval lasts at least 10 ms, so that judging does not use
  /// all the processor time.
  public func next(_ now: UInt64) -> UInt64 { Time.after(max(interval, 10_000_000), now) }

  /// Judges the endpoints at the end of an interval (gRFC A50, "Interval Timer"): ejects endpoints that fail
  /// much more often than others, and ends ejections that have lasted long enough. `random` makes random
  /// numbers, because an outlier may be ejected only with a certain probability.
  public func judge(_ records: inout [OutlierRecord], now: UInt64, random: () -> UInt64) {
    judgeSuccessRates(&records, now, random)
    judgeFailures(&records, now, random)
    for index in records.indices { records[index].age(self, now) }
  }

  private func judgeSuccessRates(_ records: inout [OutlierRecord], _ now: UInt64, _ random: () -> UInt64) {
    guard let successRate else { return }
    let rates = records.filter { $0.volume > 0 && $0.volume >= successRate.leastCalls }.map { $0.successRate }
    guard !rates.isEmpty, rates.count >= successRate.leastEndpoints else { return }
    let mean = rates.reduce(0, +) / Double(rates.count)
    let variance = rates.reduce(0) { $0 + ($1 - mean) * ($1 - mean) } / Double(rates.count)
    // A rate is too low if it is less than the mean by more than `deviations` / 1000 standard deviations.
    // Both sides are squared, because the library has no square root.
    let factor = Double(successRate.deviations) / 1000
    let bound = variance * factor * factor
    for index in records.indices {
      if isFull(records) { return }
      let record = records[index]
      guard !record.isEjected, record.volume > 0, record.volume >= successRate.leastCalls else { continue }
      let below = mean - record.successRate
      if below > 0, below * below > bound, happens(successRate.enforcement, random) {
        records[index].eject(now)
      }
    }
  }

  private func judgeFailures(_ records: inout [OutlierRecord], _ now: UInt64, _ random: () -> UInt64) {
    guard let failurePercentage else { return }
    let isKnown = { (record: OutlierRecord) -> Bool in
      record.volume > 0 && record.volume >= failurePercentage.leastCalls
    }
    guard records.filter(isKnown).count >= failurePercentage.leastEndpoints else { return }
    for index in records.indices {
      if isFull(records) { return }
      let record = records[index]
      guard !record.isEjected, isKnown(record) else { continue }
      let percentage = 100 * Double(record.failed) / Double(record.volume)
      if percentage > Double(failurePercentage.threshold), happens(failurePercentage.enforcement, random) {
        records[index].eject(now)
      }
    }
  }

  /// Whether the largest allowed part of the endpoints is ejected already.
  private func isFull(_ records: [OutlierRecord]) -> Bool {
    100 * records.filter { $0.isEjected }.count >= mostEjected * records.count
  }

  private func happens(_ percentage: Int, _ random: () -> UInt64) -> Bool {
    random() % 100 < UInt64(percentage)
  }
}
