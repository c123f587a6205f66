/// A date of HTTP (RFC 9110 section 5.6.7), in each of its three forms: "Sun, 06 Nov 1994 08:49:37 GMT",
/// "Sunday, 06-Nov-94 08:49:37 GMT" and "Sun Nov  6 08:49:37 1994".
public enum HTTPDate {
  /// The seconds since 1970 at the date; nil: the text is no date after 1970.
  public static func seconds(_ text: ByteView) -> UInt64? {
    var words = Words(text)
    guard words.next() != nil, let second = words.next() else { return nil }
    // The form of asctime has the month before the day, and the year at the end.
    if let month = month(second) {
      guard let day = words.number(most: 31), let time = words.time(), let year = words.number(most: 9999),
        words.next() == nil
      else { return nil }
      return seconds(year, month, day, time)
    }
    guard let day = number(second, most: 31), let month = words.next().flatMap(month),
      var year = words.number(most: 9999), let time = words.time(), let zone = words.next(),
      bytesEqual(zone, "GMT"), words.next() == nil
    else { return nil }
    if year < 100 { year += year < 70 ? 2000 : 1900 }
    return seconds(year, month, day, time)
  }

  private static func seconds(_ year: UInt64, _ month: UInt64, _ day: UInt64, _ time: UInt64) -> UInt64? {
    guard year >= 1970, day >= 1 else { return nil }
    // The year begins with March, so that a leap day is its last one.
    let shifted = month > 2 ? year : year - 1
    let months = month > 2 ? month - 3 : month + 9
    let days = shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + (months * 153 + 2) / 5 + day - 1
    let daysBefore1970: UInt64 = 719_468
    return days < daysBefore1970 ? nil : (days - daysBefore1970) * 86_400 + time
  }

  private static func month(_ word: ByteView) -> UInt64? {
    let names = ("JanFebMarAprMayJunJulAugSepOctNovDec" as StaticString).bytes
    guard word.count == 3 else { return nil }
    for index in 0..<12 where bytesEqual(ByteView(rebasing: names[index * 3..<index * 3 + 3]), word) {
      return UInt64(index) + 1
    }
    return nil
  }

  private static func number(_ word: ByteView, most: UInt64) -> UInt64? {
    guard 1...4 ~= word.count else { return nil }
    var value: UInt64 = 0
    for byte in word {
      guard 0x30...0x39 ~= byte else { return nil }
      value = value * 10 + UInt64(byte - 0x30)
    }
    return value <= most ? value : nil
  }

  /// The runs of letters and digits of a text.
  private struct Words {
    private let text: ByteView
    private var at = 0

    init(_ text: ByteView) { self.text = text }

    mutating func next() -> ByteView? {
      while at < text.count, !isPart(text[at]) { at += 1 }
      let start = at
      while at < text.count, isPart(text[at]) { at += 1 }
      return at > start ? ByteView(rebasing: text[start..<at]) : nil
    }

    mutating func number(most: UInt64) -> UInt64? { next().flatMap { HTTPDate.number($0, most: most) } }

    /// The seconds of a day. The second 60 is a leap second.
    mutating func time() -> UInt64? {
      guard let hours = number(most: 23), let minutes = number(most: 59), let seconds = number(most: 60)
      else {
        return nil
      }
      return hours * 3600 + minutes * 60 + seconds
    }

    private func isPart(_ byte: UInt8) -> Bool {
      0x30...0x39 ~= byte || 0x41...0x5A ~= byte || 0x61...0x7A ~= byte
    }
  }
}
