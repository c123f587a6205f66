import PenstockChannel
import Testing

/// Outlier detection as gRFC A50 describes it, with a clock and random numbers that the tests set.
@Suite struct OutlierTests {
  static func record(_ succeeded: Int, _ failed: Int) -> OutlierRecord {
    var record = OutlierRecord()
    record.succeeded = succeeded
    record.failed = failed
    return record
  }

  static func settings(_ change: (inout OutlierDetection) -> Void) -> OutlierDetection {
    var settings = OutlierDetection()
    settings.baseEjection = 100
    settings.mostEjected = 50
    change(&settings)
    return settings
  }

  /// Judges endpoints of which so many calls have succeeded and failed. Returns the indices of the endpoints
  /// that are ejected.
  static func ejected(
    _ counts: [(succeeded: Int, failed: Int)], _ settings: OutlierDetection,
    random: @escaping () -> UInt64 = { 0 }
  ) -> [Int] {
    var records = counts.map { record($0.succeeded, $0.failed) }
    settings.judge(&records, now: 1000, random: random)
    #expect(records.allSatisfy { $0.succeeded == 0 && $0.failed == 0 })
    return records.indices.filter { records[$0].isEjected }
  }

  @Test func failurePercentage() {
    let usual = Self.settings { $0.failurePercentage = .init() }
    let good = (50, 0)
    // An endpoint is ejected if more than 85 % of its calls fail.
    #expect(Self.ejected([good, good, good, good, (7, 43)], usual) == [4])
    #expect(Self.ejected([good, good, good, good, (15, 85)], usual) == [])
    #expect(Self.ejected([good, good, good, good, (14, 86)], usual) == [4])
    // Nobody is ejected: the failing endpoint has fewer than 50 calls, or fewer than 5 endpoints have 50
    // calls.
    #expect(Self.ejected([good, good, good, good, good, (0, 49)], usual) == [])
    #expect(Self.ejected([good, good, good, (0, 50)], usual) == [])
    #expect(Self.ejected([good, good, good, (49, 0), (0, 50)], usual) == [])
    let strict = Self.settings {
      $0.failurePercentage = .init()
      $0.failurePercentage?.threshold = 0
      $0.failurePercentage?.leastEndpoints = 0
      $0.failurePercentage?.leastCalls = 1
    }
    #expect(Self.ejected([(1, 0), (1, 1), (0, 0)], strict) == [1])
    #expect(Self.ejected([(0, 0)], strict) == [])
  }

  /// An endpoint is ejected if its success rate is below the mean minus 1.9 standard deviations. For rates of
  /// 100, 100, 100, 100 and 0 percent the mean is 0.8 and the deviation 0.4, so this bound is 0.04. For 100,
  /// 100, 100, 100 and 50 percent it is 0.9 - 1.9 * 0.2 = 0.52.
  @Test func successRate() {
    let usual = Self.settings { $0.successRate = .init() }
    let good = (100, 0)
    #expect(Self.ejected([good, good, good, good, (0, 100)], usual) == [4])
    #expect(Self.ejected([good, good, good, good, (50, 50)], usual) == [4])
    #expect(Self.ejected([good, good, (90, 10), (80, 20), (70, 30)], usual) == [])
    #expect(Self.ejected([good, good, good, good, good], usual) == [])
    // Nobody is ejected: the failing endpoint has fewer than 100 calls, or fewer than 5 endpoints have 100
    // calls.
    #expect(Self.ejected([good, good, good, good, good, (0, 99)], usual) == [])
    #expect(Self.ejected([good, good, good, (0, 100)], usual) == [])
    // With 2.1 deviations the bound is 0.8 - 2.1 * 0.4, which is less than 0, and no rate is below it.
    let mild = Self.settings {
      $0.successRate = .init()
      $0.successRate?.deviations = 2100
    }
    #expect(Self.ejected([good, good, good, good, (0, 100)], mild) == [])
  }

  /// One endpoint may always be ejected; further ones only as far as the percentage allows.
  @Test(arguments: [(0, 0), (1, 1), (10, 1), (30, 2), (50, 3), (100, 4)])
  func mostEjected(_ percentage: Int, _ count: Int) {
    let settings = Self.settings {
      $0.failurePercentage = .init()
      $0.failurePercentage?.leastEndpoints = 1
      $0.mostEjected = percentage
    }
    #expect(Self.ejected([(0, 50), (0, 50), (50, 0), (0, 50), (50, 0), (0, 50)], settings).count == count)
  }

  @Test(arguments: [(0, 0), (40, 40), (100, 100)])
  func enforcement(_ percentage: Int, _ ejections: Int) {
    var next: UInt64 = 0
    let settings = Self.settings {
      $0.failurePercentage = .init()
      $0.failurePercentage?.leastEndpoints = 1
      $0.failurePercentage?.enforcement = percentage
      $0.mostEjected = 100
    }
    let all = Array(repeating: (succeeded: 0, failed: 50), count: 100)
    let ejected = Self.ejected(all, settings) {
      next += 1
      return next
    }
    #expect(ejected.count == ejections)
  }

  /// The first ejection lasts the base time, and each further one lasts a base time longer. Each interval in
  /// which the endpoint is not ejected makes its next ejection a base time shorter.
  @Test func timesOfEjections() {
    let settings = Self.settings {
      $0.failurePercentage = .init()
      $0.failurePercentage?.leastEndpoints = 1
      $0.longestEjection = 250
    }
    var records = [Self.record(0, 50), Self.record(50, 0)]
    func judge(at time: UInt64) -> Bool {
      settings.judge(&records, now: time) { 0 }
      return records[0].isEjected
    }
    func fail() { records[0].failed = 50 }
    #expect(judge(at: 1000))
    #expect(judge(at: 1100))
    #expect(!judge(at: 1101))
    fail()
    #expect(judge(at: 1200))
    #expect(judge(at: 1400))
    #expect(!judge(at: 1401))
    // The third ejection would last 300, but `longestEjection` limits it to 250.
    fail()
    #expect(judge(at: 2000))
    #expect(judge(at: 2250))
    #expect(!judge(at: 2251))
    // After three intervals without an ejection, the next one is as short as the first.
    for time in [2300, 2310, 2320] as [UInt64] { #expect(!judge(at: time)) }
    fail()
    #expect(judge(at: 3000))
    #expect(!judge(at: 3101))
    records[0].restore()
    #expect(records[0] == OutlierRecord())
  }

  @Test func withoutAlgorithmsNothingIsEjected() {
    #expect(Self.ejected([(0, 100), (100, 0)], Self.settings { _ in }) == [])
  }
}
