import PenstockCall
import PenstockWire

/// Writes JSON without spaces into one buffer. If memory runs out, `isComplete` becomes false and the text
/// lacks a part.
final class JSONText {
  let buffer = ByteBuffer()
  private(set) var isComplete = true
  private var needsComma = false

  func object(_ fill: () -> Void) { enclose("{", "}", fill) }
  func array(_ fill: () -> Void) { enclose("[", "]", fill) }

  private func enclose(_ opening: StaticString, _ closing: StaticString, _ fill: () -> Void) {
    begin()
    raw(opening.bytes)
    needsComma = false
    fill()
    raw(closing.bytes)
    needsComma = true
  }

  func key(_ name: ByteView) {
    string(name)
    raw((":" as StaticString).bytes)
    needsComma = false
  }

  func key(_ name: StaticString) { key(name.bytes) }

  func member(_ name: StaticString, _ value: UInt64) {
    key(name)
    number(value)
  }

  func member(_ name: StaticString, _ value: ByteView) {
    key(name)
    string(value)
  }

  func member(_ name: StaticString, _ value: StaticString) { member(name, value.bytes) }

  func number(_ value: UInt64) {
    begin()
    if !appendDecimal(value, to: buffer) { isComplete = false }
    needsComma = true
  }

  /// Writes a number as a string: JSON's readers may round 64 bits.
  func quoted(_ value: UInt64) {
    begin()
    if !buffer.append("\"") || !appendDecimal(value, to: buffer) || !buffer.append("\"") {
      isComplete = false
    }
    needsComma = true
  }

  func bool(_ value: Bool) {
    begin()
    raw(value ? ("true" as StaticString).bytes : ("false" as StaticString).bytes)
    needsComma = true
  }

  /// Writes bytes as a string of hexadecimal digits.
  func hex(_ bytes: ByteView) {
    begin()
    raw(("\"" as StaticString).bytes)
    for byte in bytes {
      for digit in [byte >> 4, byte & 15] {
        if !buffer.append(byte: digit < 10 ? 0x30 + digit : 0x57 + digit) { isComplete = false }
      }
    }
    raw(("\"" as StaticString).bytes)
    needsComma = true
  }

  func null() {
    begin()
    raw(("null" as StaticString).bytes)
    needsComma = true
  }

  /// Writes a time in nanoseconds as a number of seconds.
  func seconds(_ nanoseconds: UInt64) {
    begin()
    if !appendSeconds(nanoseconds, to: buffer) { isComplete = false }
    needsComma = true
  }

  /// Writes a string; U+FFFD replaces invalid UTF-8.
  func string(_ text: ByteView) {
    begin()
    var shown = text
    let repaired = ByteBuffer()
    if !UTF8Repair.isValid(text) {
      isComplete = UTF8Repair.repair(text, into: repaired) && isComplete
      shown = repaired.view
    }
    raw(("\"" as StaticString).bytes)
    var start = 0
    for index in 0..<shown.count where shown[index] < 0x20 || shown[index] == 0x22 || shown[index] == 0x5c {
      raw(ByteView(rebasing: shown[start..<index]))
      escape(shown[index])
      start = index + 1
    }
    raw(ByteView(rebasing: shown[start...]))
    raw(("\"" as StaticString).bytes)
    withExtendedLifetime(repaired) {}
    needsComma = true
  }

  private func escape(_ byte: UInt8) {
    guard byte < 0x20 else {
      raw(("\\" as StaticString).bytes)
      if !buffer.append(byte: byte) { isComplete = false }
      return
    }
    raw(byte < 0x10 ? ("\\u000" as StaticString).bytes : ("\\u001" as StaticString).bytes)
    let low = byte & 15
    if !buffer.append(byte: low < 10 ? 0x30 + low : 0x57 + low) { isComplete = false }
  }

  private func begin() { if needsComma { raw(("," as StaticString).bytes) } }

  private func raw(_ bytes: ByteView) { if !buffer.append(bytes) { isComplete = false } }
}

func appendDecimal(_ number: UInt64, to buffer: ByteBuffer) -> Bool {
  if number >= 10, !appendDecimal(number / 10, to: buffer) { return false }
  return buffer.append(byte: UInt8(0x30 + number % 10))
}

/// Appends a time in nanoseconds as a number of seconds, with as many decimals as needed.
func appendSeconds(_ nanoseconds: UInt64, to buffer: ByteBuffer) -> Bool {
  guard appendDecimal(nanoseconds / 1_000_000_000, to: buffer) else { return false }
  var rest = nanoseconds % 1_000_000_000
  guard rest > 0 else { return true }
  guard buffer.append(".") else { return false }
  while rest > 0 {
    guard buffer.append(byte: UInt8(0x30 + rest / 100_000_000)) else { return false }
    rest = rest % 100_000_000 * 10
  }
  return true
}

extension CallKind {
  var name: StaticString {
    switch self {
    case .unary: "unary"
    case .clientStream: "client_stream"
    case .serverStream: "server_stream"
    case .bidi: "bidi"
    }
  }
}
