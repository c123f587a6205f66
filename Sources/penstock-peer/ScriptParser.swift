import PenstockWire
import PenstockHTTP

/// Parses a script, which has one step on each line. An indented line is a header field of the step before
/// it.
struct ScriptParser {
  let script = Script()
  private let text: ByteBuffer
  private var section: Script.Section?
  private var frame: FrameStep?
  private var depth = 0
  private let frames: FrameParser

  init(_ text: ByteBuffer, answerType: ByteView) {
    self.text = text
    frames = FrameParser(answerType: Text().put(answerType))
  }

  /// Parses the script. Returns nil if it is well formed, otherwise a text that names the first malformed line.
  mutating func parse() -> ByteBuffer? {
    let bytes = text.view
    var at = 0
    var number = 0
    while at < bytes.count {
      var end = at
      while end < bytes.count && bytes[end] != 0x0A { end += 1 }
      number += 1
      let line = HeaderRules.trimmed(part(bytes, at, end))
      let isIndented = bytes[at] == 0x20 || bytes[at] == 0x09
      at = end + 1
      if line.isEmpty || line.first == 0x23 { continue }
      let isWell = isIndented ? field(line) : step(line)
      if !isWell { return Text("line ").put(number).put(": not understood: ").put(line) }
    }
    if depth != 0 { return Text("repeat without again") }
    return script.sections.isEmpty ? Text("no steps") : nil
  }

  // MARK: Lines

  /// Parses `name: value`, and adds the field to the step before it. The name may begin with a colon. Name
  /// and value may contain escapes. The value `\*N` means N times "a".
  private func field(_ line: ByteView) -> Bool {
    guard let frame, frame.kind.hasFields else { return false }
    guard let colon = line.dropFirst().firstIndex(of: 0x3A) else { return false }
    let text = HeaderRules.trimmed(part(line, colon + 1, line.count))
    guard let name = ScriptParser.unescape(part(line, 0, colon)),
      let value = hasPrefix(text, "\\*") ? ScriptParser.filler(text) : ScriptParser.unescape(text)
    else { return false }
    frame.fields.append(FrameStep.Field(name: name, value: value))
    return true
  }

  private mutating func step(_ line: ByteView) -> Bool {
    var words = Words(line)
    guard let verb = words.next() else { return false }
    frame = nil
    if bytesEqual(verb, "connection") {
      guard depth == 0, let word = words.next() else { return false }
      let isOthers = bytesEqual(word, "others")
      guard isOthers || decimal(word) != nil else { return false }
      let made = Script.Section(isOthers ? nil : decimal(word))
      script.sections.append(made)
      section = made
      return words.next() == nil
    }
    let section = self.section ?? Script.Section(nil)
    if self.section == nil {
      script.sections.append(section)
      self.section = section
    }
    if let simple = simple(verb) {
      section.steps.append(simple)
      return words.next() == nil
    }
    if bytesEqual(verb, "serve") {
      section.serves = true
      return section.steps.isEmpty && words.next() == nil
    }
    if bytesEqual(verb, "handshake") {
      section.steps += [.expect(.preface, times: 1), .expect(.settings, times: 1)]
      section.steps += [.send(ScriptParser.settings(ack: false)), .send(ScriptParser.settings(ack: true))]
      return words.next() == nil
    }
    if bytesEqual(verb, "expect") {
      guard let word = words.next(), let event = Script.Event(word) else { return false }
      var times = 1
      if let word = words.next() {
        guard let number = decimal(word) else { return false }
        times = number
      }
      section.steps.append(.expect(event, times: times))
      return words.next() == nil
    }
    if bytesEqual(verb, "key-update") || bytesEqual(verb, "ticket") {
      guard let word = words.next(), let times = decimal(word) else { return false }
      section.steps.append(.sayTLS(bytesEqual(verb, "ticket") ? .ticket : .keyUpdate, times: times))
      return words.next() == nil
    }
    if bytesEqual(verb, "delay") {
      guard let word = words.next(), let milliseconds = decimal(word) else { return false }
      section.steps.append(.delay(UInt64(milliseconds) * 1_000_000))
      return words.next() == nil
    }
    if bytesEqual(verb, "repeat") {
      guard let word = words.next(), let times = decimal(word), times > 0 else { return false }
      depth += 1
      section.steps.append(.repeated(times))
      return words.next() == nil
    }
    if bytesEqual(verb, "again") {
      guard depth > 0 else { return false }
      depth -= 1
      section.steps.append(.again)
      return words.next() == nil
    }
    guard let made = frames.frame(verb, &words) else { return false }
    frame = made
    section.steps.append(.send(made))
    return true
  }

  private func simple(_ verb: ByteView) -> Script.Step? {
    if bytesEqual(verb, "close") { return .close }
    if bytesEqual(verb, "reset") { return .reset }
    if bytesEqual(verb, "half-close") { return .halfClose }
    if bytesEqual(verb, "silence") { return .silence }
    if bytesEqual(verb, "deaf") { return .deaf }
    return nil
  }

  private static func settings(ack: Bool) -> FrameStep {
    let frame = FrameStep()
    frame.type = 4
    frame.flags = ack ? 1 : 0
    frame.stream = .number(0)
    return frame
  }

  // MARK: Text

  private static func filler(_ text: ByteView) -> ByteBuffer? {
    let out = ByteBuffer()
    guard let count = decimal(part(text, 2, text.count), limit: 1 << 20) else { return nil }
    for _ in 0..<count where !out.append(byte: 0x61) { return nil }
    return out
  }

  /// Replaces each of the escapes `\n \r \t \0 \" \\` and `\xNN` by its byte. nil: another character follows
  /// a backslash.
  static func unescape(_ text: ByteView) -> ByteBuffer? {
    let out = ByteBuffer()
    var at = 0
    while at < text.count {
      var byte = text[at]
      at += 1
      if byte == 0x5C {
        guard at < text.count else { return nil }
        let letter = text[at]
        at += 1
        switch letter {
        case 0x6E: byte = 0x0A
        case 0x72: byte = 0x0D
        case 0x74: byte = 0x09
        case 0x30: byte = 0
        case 0x22, 0x5C: byte = letter
        case 0x78:
          guard at + 1 < text.count, let high = hexValue(text[at]), let low = hexValue(text[at + 1]) else {
            return nil
          }
          byte = high << 4 | low
          at += 2
        default: return nil
        }
      }
      if !out.append(byte: byte) { return nil }
    }
    return out
  }
}

/// Splits a line into words. A quoted part of a word may contain spaces.
struct Words {
  private var rest: ByteView

  init(_ line: ByteView) { rest = line }

  mutating func next() -> ByteView? {
    var at = 0
    while at < rest.count && rest[at] == 0x20 { at += 1 }
    let start = at
    var isQuoted = false
    while at < rest.count && (isQuoted || rest[at] != 0x20) {
      if rest[at] == 0x5C && isQuoted { at += 1 } else if rest[at] == 0x22 { isQuoted.toggle() }
      at += 1
    }
    let word = part(rest, start, at)
    rest = part(rest, at, rest.count)
    return word.isEmpty ? nil : word
  }
}
