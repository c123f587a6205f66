import PenstockTransport
import PenstockWire
import PenstockHTTP

/// Parses the sending steps of a script. A step is a verb, and then words such as `end`, `stream=3`,
/// `hex=00ff`.
struct FrameParser {
  /// The content-type for the verb `answer`.
  let answerType: ByteBuffer

  func frame(_ verb: ByteView, _ words: inout Words) -> FrameStep? {
    let frame = FrameStep()
    guard begin(frame, verb, &words) else { return nil }
    while let word = words.next() {
      guard FrameParser.option(frame, word) else { return nil }
    }
    return frame
  }

  private func begin(_ frame: FrameStep, _ verb: ByteView, _ words: inout Words) -> Bool {
    if bytesEqual(verb, "headers") || bytesEqual(verb, "trailers") || bytesEqual(verb, "answer") {
      frame.kind = .headers
      frame.type = 1
      if verb.first == 0x74 { frame.flags = 1 }
      if verb.first == 0x61 {
        frame.fields = [
          FrameStep.Field(name: Text(":status"), value: Text("200")),
          FrameStep.Field(name: Text("content-type"), value: answerType),
        ]
      }
      return true
    }
    if bytesEqual(verb, "push") {
      frame.kind = .pushPromise
      frame.type = 5
      return true
    }
    if bytesEqual(verb, "data") { return true }
    if bytesEqual(verb, "rst") {
      frame.type = 3
      guard let word = words.next(), let code = FrameParser.errorCode(word) else { return false }
      return FrameParser.bigEndian(code, into: frame.payload)
    }
    if bytesEqual(verb, "window") {
      frame.type = 8
      guard let word = words.next(), let increment = decimal(word) else { return false }
      return FrameParser.bigEndian(increment, into: frame.payload)
    }
    if bytesEqual(verb, "raw") {
      frame.kind = .raw
      return true
    }
    if bytesEqual(verb, "frame") { return true }
    if bytesEqual(verb, "response") {
      frame.kind = .response
      guard let status = words.next() else { return false }
      frame.line.put("HTTP/1.1 ").put(status).put(" ").put(HTTPReason.phrase(decimal(status) ?? 0))
      return true
    }
    if bytesEqual(verb, "chunk") || bytesEqual(verb, "last-chunk") {
      frame.kind = verb.first == 0x63 ? .chunk : .lastChunk
      return true
    }
    frame.stream = .number(0)
    if bytesEqual(verb, "settings") {
      frame.type = 4
      return true
    }
    if bytesEqual(verb, "ping") {
      frame.type = 6
      return frame.payload.append("penstock")
    }
    if bytesEqual(verb, "goaway") {
      frame.kind = .goaway
      frame.type = 7
      guard let word = words.next(), let code = FrameParser.errorCode(word) else { return false }
      frame.code = code
      return true
    }
    return false
  }

  private static func option(_ frame: FrameStep, _ word: ByteView) -> Bool {
    if bytesEqual(word, "end") || bytesEqual(word, "ack") {
      frame.flags |= 1
      if frame.type == 4 && frame.flags & 1 != 0 { return frame.payload.isEmpty }
      return true
    }
    if bytesEqual(word, "open") {
      frame.isOpen = true
      return true
    }
    guard let equals = word.firstIndex(of: 0x3D) else { return false }
    let name = part(word, 0, equals)
    let value = part(word, equals + 1, word.count)
    if let isWell = piece(frame, name, value) { return isWell }
    if bytesEqual(name, "last") && bytesEqual(value, "current") {
      frame.lastIsCurrent = true
      return true
    }
    guard let number = decimal(value, limit: Int(UInt32.max)) else { return false }
    if frame.type == 4, let setting = setting(name) {
      return frame.payload.append(byte: UInt8(setting >> 8))
        && frame.payload.append(byte: UInt8(setting & 255))
        && bigEndian(number, into: frame.payload)
    }
    if bytesEqual(name, "stream") {
      frame.stream = .number(number)
    } else if bytesEqual(name, "length") {
      frame.length = number
    } else if bytesEqual(name, "cut") {
      frame.cut = number
    } else if bytesEqual(name, "pad") && number < 256 {
      frame.pad = number
    } else if bytesEqual(name, "split") && number > 0 {
      frame.split = number
    } else if bytesEqual(name, "type") && number < 256 {
      frame.type = number
    } else if bytesEqual(name, "flags") && number < 256 {
      frame.flags = number
    } else if bytesEqual(name, "times") {
      frame.times = number
    } else if bytesEqual(name, "last") {
      frame.last = number
    } else if bytesEqual(name, "promised") {
      frame.promised = number
    } else {
      return false
    }
    return true
  }

  /// If the word `name=value` describes bytes, adds these bytes to the payload. False: the value is
  /// malformed. nil: the word does not describe bytes.
  private static func piece(_ frame: FrameStep, _ name: ByteView, _ value: ByteView) -> Bool? {
    let out = frame.payload
    if bytesEqual(name, "size") && frame.kind == .chunk {
      guard let size = quoted(value) else { return false }
      frame.line.put(size.view)
      return true
    }
    if bytesEqual(name, "envelope") {
      guard let colon = value.firstIndex(of: 0x3A), let flags = decimal(part(value, 0, colon), limit: 255),
        let body = quoted(part(value, colon + 1, value.count))
      else { return false }
      return prefix(flags, body.count, into: out) && out.append(body.view)
    }
    if bytesEqual(name, "text") { return quoted(value).map { out.append($0.view) } ?? false }
    if bytesEqual(name, "hex") {
      guard value.count % 2 == 0 else { return false }
      for i in 0..<value.count / 2 {
        guard let high = hexValue(value[2 * i]), let low = hexValue(value[2 * i + 1]),
          out.append(byte: high << 4 | low)
        else { return false }
      }
      return true
    }
    if bytesEqual(name, "zeros") { return zeros(value, into: out) }
    if bytesEqual(name, "message") {
      let body = ByteBuffer()
      if value.first == 0x22 {
        guard let text = quoted(value), body.append(text.view) else { return false }
      } else if !zeros(value, into: body) {
        return false
      }
      return prefix(0, body.count, into: out) && out.append(body.view)
    }
    if bytesEqual(name, "prefix") {
      guard let colon = value.firstIndex(of: 0x3A), let flag = decimal(part(value, 0, colon), limit: 255),
        let length = decimal(part(value, colon + 1, value.count), limit: Int(UInt32.max))
      else { return false }
      return prefix(flag, length, into: out)
    }
    return nil
  }

  private static func quoted(_ value: ByteView) -> ByteBuffer? {
    guard value.count >= 2, value.first == 0x22, value.last == 0x22 else { return nil }
    return ScriptParser.unescape(part(value, 1, value.count - 1))
  }

  private static func zeros(_ value: ByteView, into out: ByteBuffer) -> Bool {
    guard let count = decimal(value, limit: 64 << 20), let space = out.spare(atLeast: count) else {
      return false
    }
    for i in 0..<count { space[i] = 0 }
    out.commit(count)
    return true
  }

  private static func prefix(_ flag: Int, _ length: Int, into out: ByteBuffer) -> Bool {
    out.append(byte: UInt8(truncatingIfNeeded: flag)) && bigEndian(length, into: out)
  }

  static func bigEndian(_ value: Int, into out: ByteBuffer) -> Bool {
    for shift in [24, 16, 8, 0] {
      if !out.append(byte: UInt8(truncatingIfNeeded: value >> shift)) { return false }
    }
    return true
  }

  /// The error code for a name (RFC 9113 section 7) or a number; nil: the word is neither.
  private static func errorCode(_ word: ByteView) -> Int? {
    if let number = decimal(word, limit: Int(UInt32.max)) { return number }
    for code in 0..<14 where bytesEqual(word, HTTP2Error.name(UInt32(code))) { return code }
    return nil
  }

  /// The identifier of an HTTP/2 setting. The word is its name in RFC 9113 section 6.5.2, without "SETTINGS_"
  /// and in lower case with dashes, or its number; nil: neither.
  private static func setting(_ name: ByteView) -> Int? {
    let names: [StaticString] = [
      "header-table-size", "enable-push", "max-concurrent-streams", "initial-window-size", "max-frame-size",
      "max-header-list-size",
    ]
    for i in 0..<names.count where bytesEqual(name, names[i]) { return i + 1 }
    return decimal(name, limit: 65535)
  }
}
