import Testing

@testable import PenstockWire

/// Dates of HTTP (RFC 9110 section 5.6.7).
@Suite struct HTTPDateTests {
  private static let good: [(String, UInt64)] = [
    ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777), ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
    ("Sun Nov  6 08:49:37 1994", 784_111_777), ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ("Thu, 29 Feb 2024 23:59:60 GMT", 1_709_251_200), ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
    ("Mon, 01 Mar 2100 00:00:00 GMT", 4_107_542_400), ("Tuesday, 30-Nov-69 00:00:00 GMT", 3_152_995_200),
    ("Thursday, 01-Jan-70 00:00:01 GMT", 1),
    ("Friday, 31-Dec-99 23:59:59 GMT", 946_684_799),
    ("Saturday, 01-Jan-00 00:00:00 GMT", 946_684_800),
    ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
  ]

  @Test(arguments: good)
  func dates(_ date: String, _ seconds: UInt64) {
    #expect(with(bytes(date)) { HTTPDate.seconds($0) } == seconds)
  }

  private static let lastDays: [(String, String, UInt64)] = [
    ("Jan", "31", 1_675_126_923),
    ("Feb", "28", 1_677_546_123),
    ("Mar", "31", 1_680_224_523),
    ("Apr", "30", 1_682_816_523),
    ("May", "31", 1_685_494_923),
    ("Jun", "30", 1_688_086_923),
    ("Jul", "31", 1_690_765_323),
    ("Aug", "31", 1_693_443_723),
    ("Sep", "30", 1_696_035_723),
    ("Oct", "31", 1_698_714_123),
    ("Nov", "30", 1_701_306_123),
    ("Dec", "31", 1_703_984_523),
  ]

  /// The last day of each month, in each form.
  @Test(arguments: lastDays)
  func months(_ month: String, _ day: String, _ seconds: UInt64) {
    for date in [
      "Sun, \(day) \(month) 2023 01:02:03 GMT", "Sunday, \(day)-\(month)-23 01:02:03 GMT",
      "Sun \(month) \(day) 01:02:03 2023",
    ] {
      #expect(with(bytes(date)) { HTTPDate.seconds($0) } == seconds, "\(date)")
    }
  }

  @Test(arguments: [
    "Sunday, 06-Nov-100 08:49:37 GMT", "Sun Nov  0 08:49:37 1994", "Sun Nov 32 08:49:37 1994",
    "Sun Nov  6 08:49:37 1994 GMT", "Sun Nov  6 08:49:37 94", "Sun, 06 Nov", "Sun, 06 No 1994 08:49:37 GMT",
    "Sun, 06 Novx 1994 08:49:37 GMT", "Sun, 06  1994 08:49:37 GMT", "Sun, : Nov 1994 08:49:37 GMT",
    "Sun, 06 Nov 1969 08:49:37 GMT",
    "", "Sun", "120", "Wed, 31 Dec 1969 23:59:59 GMT", "Sun, 06 Nov 1994 08:49:37",
    "Sun, 06 Nov 1994 08:49:37 CET",
    "Sun, 06 Nov 1994 08:49:37 GMT GMT", "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 Nov 1994 08:60:37 GMT",
    "Sun, 06 Nov 1994 08:49:61 GMT", "Sun, 32 Nov 1994 08:49:37 GMT", "Sun, 00 Nov 1994 08:49:37 GMT",
    "Sun, 06 nov 1994 08:49:37 GMT", "Sun, 06 Nov 11994 08:49:37 GMT", "Sun Nov 6 08:49:37",
    "Sun Nov 6 08:49 1994",
    "Sun, 06 Nov 1994", "Sun, 6x Nov 1994 08:49:37 GMT",
  ])
  func others(_ text: String) {
    #expect(with(bytes(text)) { HTTPDate.seconds($0) } == nil)
  }
}
