/// Writes options as the JSON that the library reads.
struct OptionText {
  private(set) var text = "{"

  var finished: String { text + "}" }
  var isEmpty: Bool { text == "{" }

  private mutating func member(_ key: String, _ value: String) {
    if !isEmpty { text += "," }
    text += "\"\(key)\":\(value)"
  }

  mutating func set(_ key: String, _ value: Bool?) {
    if let value { member(key, value ? "true" : "false") }
  }
  mutating func set(_ key: String, _ value: Int?) {
    if let value { member(key, "\(value)") }
  }
  mutating func set(_ key: String, _ value: Double?) {
    // JSON has no numbers that are not finite; 1e999 is one that is out of every range.
    if let value { member(key, value.isFinite ? "\(value)" : "1e999") }
  }
  mutating func set(_ key: String, _ value: String?) {
    if let value { member(key, Self.quoted(value)) }
  }
  mutating func set(_ key: String, _ value: [String]?) {
    if let value { member(key, "[\(value.map(Self.quoted).joined(separator: ","))]") }
  }
  /// A time in milliseconds, rounded up.
  mutating func set(_ key: String, _ value: Duration?) {
    if let value { member(key, "\(value.milliseconds)") }
  }
  /// A time in microseconds, rounded up.
  mutating func set(microseconds key: String, _ value: Duration?) {
    if let value { member(key, "\(value.microseconds)") }
  }
  mutating func set(_ key: String, _ value: OptionText?) {
    if let value { member(key, value.finished) }
  }
  /// A value that is JSON already. Raw JSON that is none makes the library refuse the options.
  mutating func set(json key: String, _ value: String?) {
    if let value { member(key, value) }
  }

  static func quoted(_ text: String) -> String {
    var quoted = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"": quoted += "\\\""
      case "\\": quoted += "\\\\"
      case "\u{0}"..<"\u{20}":
        let digits = String(scalar.value, radix: 16)
        quoted += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
      default: quoted.unicodeScalars.append(scalar)
      }
    }
    return quoted + "\""
  }
}

extension Duration {
  /// Milliseconds, rounded up; as many as fit.
  var milliseconds: Int64 { units(1_000) }
  /// Microseconds, rounded up; as many as fit.
  var microseconds: Int64 { units(1_000_000) }

  private func units(_ perSecond: Int64) -> Int64 {
    let (seconds, fraction) = components
    let (whole, overflow) = seconds.multipliedReportingOverflow(by: perSecond)
    guard !overflow else { return seconds < 0 ? .min : .max }
    let size = 1_000_000_000_000_000_000 / perSecond
    let part = fraction / size + (fraction % size > 0 ? 1 : 0)
    let (sum, carried) = whole.addingReportingOverflow(part)
    return carried ? .max : sum
  }
}
