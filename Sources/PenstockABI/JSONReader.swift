import CJansson
import CMemory
import PenstockCall
import PenstockWire

/// Reads objects of options strictly. An unknown or repeated key, a wrong type, or a value out of range is a
/// failure, which names the JSON path ("$.tls.verify"). No failure quotes the value of a string, because it
/// may be a secret.
struct JSONReader {
  typealias Value = UnsafeMutablePointer<json_t>

  let value: Value
  let path: ByteBuffer

  /// Parses `text`, calls `body` with the outermost value, and then frees that value.
  static func parse(_ text: ByteView, _ body: (JSONReader) -> Failure?) -> Failure? {
    var failure: Failure?
    guard let root = load(text, &failure) else { return failure }
    defer { json_decref(root) }
    guard let path = ByteBuffer(copying: ("$" as StaticString).bytes) else {
      return Failure(.noMemory, "no memory")
    }
    return body(JSONReader(value: root, path: path))
  }

  private static func load(_ text: ByteView, _ failure: inout Failure?) -> Value? {
    if let (position, words) = JSONPath.tooMuch(text) {
      let path = JSONPath.path(in: text, at: position, withOpenKey: false)
      failure = Failure(
        .invalidJSON, ("JSON at " as StaticString).bytes, path.view, words.bytes, path: path)
      return nil
    }
    var error = json_error_t()
    var isShort = false
    let root = penstock_json_load(
      text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count, &error, &isShort)
    if root != nil { return root }
    if isShort {
      failure = Failure(.noMemory, "no memory")
      return nil
    }
    withUnsafeBytes(of: &error.text) { raw in
      guard let start = raw.baseAddress else { return }
      // Some messages of jansson quote the text ("invalid escape near '...'"); the quotation is cut off,
      // because it may be a secret.
      let words = cut(ByteView(start: start, count: strlen(start)), before: " near '")
      let isRepeated = bytesEqual(words, "duplicate object key")
      let path = JSONPath.path(in: text, at: Int(error.position), withOpenKey: isRepeated)
      failure = Failure(
        .invalidJSON, ("JSON at " as StaticString).bytes, path.view, (": " as StaticString).bytes,
        cut(cut(words, before: " escape '"), before: " '\\u"), path: path)
    }
    return nil
  }

  func fail(_ expected: StaticString) -> Failure { fail(expected.bytes, got: typeName.bytes) }

  /// The failure for a value that is not `expected`. `hasType`: it has the right type, but another value.
  func fail(_ expected: StaticString, hasType: Bool) -> Failure {
    fail(expected.bytes, got: (hasType ? anotherOfType : typeName).bytes)
  }

  func fail(_ expected: ByteBuffer, hasType: Bool = false) -> Failure {
    withExtendedLifetime(expected) {
      fail(expected.view, got: (hasType ? anotherOfType : typeName).bytes)
    }
  }

  /// The failure for a value that is not an integer (`number` is nil) or is out of range.
  func fail(_ range: ClosedRange<Int>, got number: Int?) -> Failure {
    let expected = ByteBuffer()
    _ = expected.append("an integer from ")
    append(range.lowerBound, to: expected)
    if range.upperBound < Int.max {
      _ = expected.append(" to ")
      append(range.upperBound, to: expected)
    }
    guard let number else { return fail(expected) }
    return withExtendedLifetime(expected) { fail(expected.view, got: number) }
  }

  private func fail(_ expected: ByteView, got number: Int) -> Failure {
    let got = ByteBuffer()
    append(number, to: got)
    return withExtendedLifetime(got) { fail(expected, got: got.view) }
  }

  private func append(_ number: Int, to text: ByteBuffer) {
    if number < 0 { _ = text.append("-") }
    _ = appendDecimal(UInt64(number.magnitude), to: text)
  }

  private func fail(_ expected: ByteView, got: ByteView) -> Failure {
    Failure(
      .invalidJSON, path.view, (": expected " as StaticString).bytes, expected,
      (", got " as StaticString).bytes, got, path: path)
  }

  func fail(because parts: ByteView...) -> Failure {
    let whole = ByteBuffer()
    for part in parts { _ = whole.append(part) }
    return Failure(.invalidJSON, path.view, (": " as StaticString).bytes, whole.view, path: path)
  }

  private var typeName: StaticString {
    switch value.pointee.type {
    case JSON_OBJECT: "an object"
    case JSON_ARRAY: "an array"
    case JSON_STRING: "a string"
    case JSON_INTEGER: "an integer"
    case JSON_REAL: "a real number"
    case JSON_TRUE, JSON_FALSE: "a boolean"
    default: "null"
    }
  }

  private var anotherOfType: StaticString {
    switch value.pointee.type {
    case JSON_OBJECT: "another object"
    case JSON_ARRAY: "another array"
    case JSON_STRING: "another string"
    case JSON_INTEGER, JSON_REAL: "another number"
    case JSON_TRUE, JSON_FALSE: "another boolean"
    default: "null"
    }
  }

  var isNull: Bool { value.pointee.type == JSON_NULL }
  var isObject: Bool { value.pointee.type == JSON_OBJECT }

  /// Calls `body` for each member of the object. For a key that it does not know, `body` returns
  /// `member.unknown`.
  func members(_ body: (_ key: ByteView, _ member: JSONReader) -> Failure?) -> Failure? {
    guard isObject else { return fail("an object") }
    var cursor = json_object_iter(value)
    while let at = cursor {
      guard let name = json_object_iter_key(at), let member = json_object_iter_value(at) else { break }
      let key = ByteView(start: name, count: json_object_iter_key_len(at))
      guard let longer = ByteBuffer(copying: path.view), longer.append("."), longer.append(key) else {
        return Failure(.noMemory, "no memory")
      }
      if let failure = body(key, JSONReader(value: member, path: longer)) { return failure }
      cursor = json_object_iter_next(value, at)
    }
    return nil
  }

  /// The member called `key`; nil: there is none. If there is no memory for the member's path, the path is
  /// cut short.
  func member(_ key: StaticString) -> JSONReader? {
    guard isObject, let member = json_object_get(value, cString(key)) else { return nil }
    let longer = ByteBuffer()
    _ = longer.append(path.view) && longer.append(".") && longer.append(key)
    return JSONReader(value: member, path: longer)
  }

  var unknown: Failure { fail(because: ("unknown key" as StaticString).bytes) }

  func elements(_ body: (JSONReader) -> Failure?) -> Failure? {
    guard value.pointee.type == JSON_ARRAY else { return fail("an array") }
    for index in 0..<json_array_size(value) {
      guard let element = json_array_get(value, index), let longer = ByteBuffer(copying: path.view),
        longer.append("["), appendDecimal(UInt64(index), to: longer), longer.append("]")
      else { return Failure(.noMemory, "no memory") }
      if let failure = body(JSONReader(value: element, path: longer)) { return failure }
    }
    return nil
  }

  /// The bytes of a string, which are valid as long as the outermost value exists; nil if the value is not a
  /// string.
  var string: ByteView? {
    guard value.pointee.type == JSON_STRING, let text = json_string_value(value) else { return nil }
    return ByteView(start: text, count: json_string_length(value))
  }

  /// Reads true or false. `expected`: all forms that the value may have.
  func bool(_ expected: StaticString = "true or false", _ into: (Bool) -> Void) -> Failure? {
    guard value.pointee.type == JSON_TRUE || value.pointee.type == JSON_FALSE else { return fail(expected) }
    into(value.pointee.type == JSON_TRUE)
    return nil
  }

  func int(_ range: ClosedRange<Int>, _ expected: StaticString, _ into: (Int) -> Void) -> Failure? {
    guard value.pointee.type == JSON_INTEGER else { return fail(expected) }
    let number = Int(json_integer_value(value))
    guard range.contains(number) else { return fail(expected.bytes, got: number) }
    into(number)
    return nil
  }

  func string(_ into: (ByteBuffer) -> Void) -> Failure? {
    guard let string else { return fail("a string") }
    guard let copied = ByteBuffer(copying: string) else { return Failure(.noMemory, "no memory") }
    into(copied)
    return nil
  }
}

func appendDecimal(_ number: UInt64, to buffer: ByteBuffer) -> Bool {
  if number >= 10, !appendDecimal(number / 10, to: buffer) { return false }
  return buffer.append(byte: UInt8(0x30 + number % 10))
}

/// Finds the JSON path of the byte at which the parser has refused a JSON text. A string before a colon is a
/// key. Any other string may be a value, or a key whose colon is missing.
enum JSONPath {
  private struct Level {
    var isArray: Bool
    var index = 0
    var key: (start: Int, end: Int)?
  }

  /// The position of the first bracket that opens too much, and words for that; nil: there is none. The depth is
  /// limited because the parser needs a stack frame for each level, and the number of objects and arrays because it
  /// needs about 280 bytes of memory for each, even for "{}".
  static func tooMuch(_ text: ByteView) -> (position: Int, words: StaticString)? {
    var depth = 0
    var opened = 0
    var index = 0
    while index < text.count {
      switch text[index] {
      case 0x7b, 0x5b:
        depth += 1
        opened += 1
        if depth > 64 { return (index, ": nested more than 64 deep") }
        if opened > 262_144 { return (index, ": more than 262144 objects and arrays") }
      case 0x7d, 0x5d: depth -= 1
      case 0x22: index = endOfString(in: text, from: index + 1)
      default: break
      }
      index += 1
    }
    return nil
  }

  private static func endOfString(in text: ByteView, from start: Int) -> Int {
    var index = start
    while index < text.count, text[index] != 0x22 { index += text[index] == 0x5c ? 2 : 1 }
    return index
  }

  /// The path of the byte at `position`. `withOpenKey`: a string that no colon follows yet counts as a key,
  /// and is in the path.
  static func path(in text: ByteView, at position: Int, withOpenKey: Bool) -> ByteBuffer {
    var levels: [Level] = []
    var index = 0
    var found: (start: Int, end: Int)?
    let end = min(position, text.count)
    while index < end {
      let byte = text[index]
      switch byte {
      case 0x7b, 0x5b:
        levels.append(Level(isArray: byte == 0x5b))
        found = nil
      case 0x7d, 0x5d: if !levels.isEmpty { levels.removeLast() }
      case 0x2c, 0x3a:
        if let last = levels.indices.last {
          levels[last].index += byte == 0x2c ? 1 : 0
          levels[last].key = byte == 0x2c ? nil : levels[last].key ?? found
        }
        found = nil
      case 0x22:
        let start = index + 1
        index = endOfString(in: text, from: start)
        found = (start, min(index, text.count))
      default: break
      }
      index += 1
    }
    if withOpenKey, let last = levels.indices.last { levels[last].key = found }
    let path = ByteBuffer()
    _ = path.append("$")
    // Only the first 32 levels are in the path, because valid options are never nested so deeply.
    for level in levels.prefix(32) {
      if level.isArray {
        _ = path.append("[")
        _ = appendDecimal(UInt64(level.index), to: path)
        _ = path.append("]")
      } else if let key = level.key {
        _ = path.append(".")
        _ = UTF8Repair.repair(ByteView(rebasing: text[key.start..<key.end]), into: path)
      }
    }
    return path
  }
}
