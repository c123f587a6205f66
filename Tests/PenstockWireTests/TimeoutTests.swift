import PenstockWire
import Testing

/// The values of grpc-timeout (gRPC over HTTP2, "Requests", Timeout).
@Suite struct TimeoutTests {
  static func write(_ nanoseconds: UInt64) -> String? {
    written { Timeout.write(nanoseconds: nanoseconds, into: $0) }.map { String(decoding: $0, as: UTF8.self) }
  }

  @Test(
    arguments: [
      (0, "1n"), (1, "1n"), (999, "999n"), (1_000, "1u"), (1_001, "1001n"), (99_999_999, "99999999n"),
      (100_000_000, "100m"), (100_000_001, "100m"), (100_001_001, "100001u"), (1_000_000_000, "1S"),
      (1_500_000_000, "1500m"),
      (99_999_999_000, "99999999u"), (99_999_999_001, "99999999u"), (99_999_999_999, "99999999u"),
      (60_000_000_000, "1M"), (3_600_000_000_000, "1H"), (86_400_000_000_000, "24H"),
      (100_000_000_000_000_000, "1666666M"), (99_999_999_000_000_000, "99999999S"),
      (123_456_789_012, "123456m"), (.max, "5124095H"),
    ] as [(UInt64, String)])
  func goldenWrites(nanoseconds: UInt64, expected: String) { #expect(Self.write(nanoseconds) == expected) }

  @Test(
    arguments: [
      ("1n", 1), ("1u", 1_000), ("1m", 1_000_000), ("1S", 1_000_000_000), ("1M", 60_000_000_000),
      ("1H", 3_600_000_000_000), ("0n", 0), ("00000001S", 1_000_000_000), ("99999999n", 99_999_999),
      ("99999999M", 5_999_999_940_000_000_000), ("5124095H", 18_446_742_000_000_000_000),
      ("5124096H", .max), ("99999999H", .max),
    ] as [(String, UInt64)])
  func goldenParses(value: String, expected: UInt64) {
    #expect(with(value) { Timeout.parse($0) } == expected)
  }

  @Test(arguments: [
    "", "S", "1", "123456789S", "000000001S", "-1S", "+1S", "1s", "1 S", " 1S", "1S ", "1.5S", "1SS", "x1S",
    "1\u{0}",
  ])
  func malformed(value: String) { #expect(with(value) { Timeout.parse($0) } == nil) }

  /// The value of connect-timeout-ms is rounded down, positive, and has at most ten digits.
  @Test(
    arguments: [
      (0, "1"), (1, "1"), (999_999, "1"), (1_000_000, "1"), (1_999_999, "1"), (2_000_000, "2"),
      (9_999_999_998_999_999, "9999999998"), (9_999_999_999_000_000, "9999999999"),
      (10_000_000_000_000_000, "9999999999"), (.max, "9999999999"),
    ] as [(UInt64, String)])
  func milliseconds(nanoseconds: UInt64, expected: String) {
    let value = written { Timeout.writeMilliseconds(nanoseconds: nanoseconds, into: $0) }
    #expect(value == bytes(expected))
  }

  /// A value has at most eight digits. It is never more than the time that was asked for (or 1 ns if that is
  /// 0), and is less than one unit below it.
  @Test func randomValuesAreRoundedDownByLessThanOneUnit() throws {
    var random = Random()
    for _ in 0..<rounds {
      let asked = random.next() >> UInt64(random.below(64))
      let value = try #require(Self.write(asked))
      #expect(value.count >= 2 && value.count <= 9)
      let got = try #require(
        with(value) { Timeout.parse($0) }, "PENSTOCK_SEED=\(Seed.value) \(asked) \(value)")
      let unit = try #require(with("1" + String(value.last!)) { Timeout.parse($0) })
      let least = max(asked, 1)
      try #require(got <= least, "PENSTOCK_SEED=\(Seed.value) \(asked)")
      #expect(least - got < unit, "PENSTOCK_SEED=\(Seed.value) \(asked)")
      // The unit is the finest for which eight digits suffice, so at most 1/100,000 of the time is lost.
      #expect(least - got <= asked / 100_000, "PENSTOCK_SEED=\(Seed.value) \(asked)")
    }
  }

  @Test func randomBytesParseOrNot() {
    var random = Random()
    for _ in 0..<rounds {
      let value = random.bytes(upTo: 10, of: "0123456789HMSmun ")
      let text = String(decoding: value, as: UTF8.self)
      let digits = text.dropLast()
      let isValid =
        (1...8).contains(digits.count) && digits.allSatisfy(\.isNumber) && "HMSmun".contains(text.last ?? " ")
      #expect(with(value) { Timeout.parse($0) != nil } == isValid, "PENSTOCK_SEED=\(Seed.value) \(text)")
    }
  }
}
