import Testing

@testable import PenstockWire

/// Dates of HTTP (RFC 9110 section 5.6.7).
@Suite struct HTTPDateTests {
  @Test(arguments: [
    ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777), ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
    ("Sun Nov  6 08:49:37 1994", 784_111_777), ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
    ("Thu, 29 Feb 2024 23:59:60 GMT", 1_709_251_200), ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
    ("Mon, 01 Mar 2100 00:00:00 GMT", 4_107_542_400), ("Tuesday, 30-Nov-69 00:00:00 GMT", 3_152_995_200),
    ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
  ])
  func dates(_ date: String, _ seconds: UInt64) {
    #expect(with(bytes(date)) { HTTPDate.seconds($0) } == seconds)
  }

  @Test(arguments: [
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
