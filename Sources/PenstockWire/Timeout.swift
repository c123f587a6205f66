/// The value of `grpc-timeout` (gRPC over HTTP2, "Requests"): a "positive integer as ASCII string of at most
/// 8 digits" and a unit, one of H M S m u n.
public enum Timeout {
  private static let mostDigits = 8
  private static let overflowing: UInt64 = 100_000_000

  /// Writes a timeout: the shortest exact value if one fits into eight digits, otherwise the most precise one
  /// that fits, rounded down. So the server never gets more time than is left. If no time is left the value
  /// is "1n", because it has to be positive. Returns false if there is no memory.
  public static func write(nanoseconds: UInt64, into out: ByteBuffer) -> Bool {
    var value = max(nanoseconds, 1)
    var unit = 0
    // A value in hours always fits: 2^64 ns are less than 5.2 million hours.
    while unit < 5 {
      let (whole, rest) = value.quotientAndRemainder(dividingBy: ratio(unit))
      if rest != 0 && value < overflowing { break }
      value = whole
      unit &+= 1
    }
    return writeDecimal(value, into: out) && out.append(byte: letter(unit))
  }

  /// Writes the value of `connect-timeout-ms` (Connect, "Unary-Request"): "positive integer as ASCII string
  /// of at most 10 digits". Milliseconds are rounded down, so that the server never gets more time than is
  /// left. Returns false if there is no memory.
  public static func writeMilliseconds(nanoseconds: UInt64, into out: ByteBuffer) -> Bool {
    writeDecimal(min(max(nanoseconds / 1_000_000, 1), 9_999_999_999), into: out)
  }

  /// The nanoseconds of a timeout, at most `UInt64.max`; nil: it is malformed. Zero is accepted, as in other
  /// servers and clients: it means that no time is left.
  public static func parse(_ value: ByteView) -> UInt64? {
    let digits = value.count &- 1
    guard digits >= 1 && digits <= mostDigits else { return nil }
    var number: UInt64 = 0
    for i in 0..<digits {
      guard let digit = decimalDigit(value[i]) else { return nil }
      number = number &* 10 &+ UInt64(digit)
    }
    let scale: UInt64
    switch value[digits] {
    case 0x6E: scale = 1
    case 0x75: scale = 1_000
    case 0x6D: scale = 1_000_000
    case 0x53: scale = 1_000_000_000
    case 0x4D: scale = 60_000_000_000
    case 0x48: scale = 3_600_000_000_000
    default: return nil
    }
    let (product, overflow) = number.multipliedReportingOverflow(by: scale)
    return overflow ? UInt64.max : product
  }

  /// How many of the unit at index `unit` are one of the next larger unit.
  private static func ratio(_ unit: Int) -> UInt64 { unit < 3 ? 1_000 : 60 }

  private static func letter(_ unit: Int) -> UInt8 {
    switch unit {
    case 0: return 0x6E
    case 1: return 0x75
    case 2: return 0x6D
    case 3: return 0x53
    case 4: return 0x4D
    default: return 0x48
    }
  }
}

/// Appends the decimal digits of `value`. Returns false if there is no memory.
public func writeDecimal(_ value: UInt64, into out: ByteBuffer) -> Bool {
  guard let spare = out.spare(atLeast: 20) else { return false }
  out.commit(writeDecimal(value, to: spare))
  return true
}

/// Writes the decimal digits of `value` to `space`, which must have room for 20 digits. Returns the number of
/// digits.
func writeDecimal(_ value: UInt64, to space: UnsafeMutableRawBufferPointer) -> Int {
  var digits = 1
  var rest = value / 10
  while rest > 0 {
    digits &+= 1
    rest /= 10
  }
  rest = value
  var i = digits
  while i > 0 {
    i &-= 1
    space[i] = 0x30 &+ UInt8(truncatingIfNeeded: rest % 10)
    rest /= 10
  }
  return digits
}
