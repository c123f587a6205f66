import CJansson
import PenstockCall
import PenstockWire

/// Reading option objects strictly: an unknown or repeated key, a wrong type or a value out of range is a
/// failure that names its JSON path ("$.tls.verify").
struct JSONReader {
  typealias Value = UnsafeMutablePointer<json_t>

  let value: Value
  let path: ByteBuffer

  /// Parses `text`, hands its root to `body`, and frees it.
  static func parse(_ text: ByteView, _ body: (JSONReader) -> Failure?) -> Failure? {
    var error = json_error_t()
    // JSON_REJECT_DUPLICATES | JSON_DECODE_ANY
    let root = json_loadb(
      text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count, 0x1 | 0x4, &error)
    guard let root else {
      let path = JSONPlace.path(in: text, at: Int(error.position))
      let what = withUnsafeBytes(of: &error.text) { raw in
        ByteBuffer(copying: ByteView(rebasing: raw.prefix { $0 != 0 }))
      }
      return Failure(
        .invalidJSON, ("JSON at " as StaticString).bytes, path.view, (": " as StaticString).bytes,
        what?.view ?? ("malformed" as StaticString).bytes, path: path)
    }
    defer { json_decref(root) }
    guard let path = ByteBuffer(copying: ("$" as StaticString).bytes) else {
      return Failure(.noMemory, "no memory")
    }
    return body(JSONReader(value: root, path: path))
  }

  func fail(_ expected: StaticString) -> Failure {
    let got = ByteBuffer()
    if value.pointee.type == JSON_INTEGER {
      let number = json_integer_value(value)
      if number < 0 { _ = got.append("-") }
      _ = appendDecimal(UInt64(number.magnitude), to: got)
    } else {
      _ = got.append(typeName)
    }
    return Failure(
      .invalidJSON, path.view, (": expected " as StaticString).bytes, expected.bytes,
      (", got " as StaticString).bytes, got.view, path: path)
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

  var isNull: Bool { value.pointee.type == JSON_NULL }
  var isObject: Bool { value.pointee.type == JSON_OBJECT }

  /// Calls `body` for each member; it returns `unknown` for a key that it does not know.
  func members(_ body: (_ key: ByteView, _ member: JSONReader) -> Failure?) -> Failure? {
    guard isObject else { return fail("an object") }
    var cursor = json_object_iter(value)
    while let at = cursor {
      guard let name = json_object_iter_key(at), let member = json_object_iter_value(at) else { break }
      let key = ByteView(start: name, count: json_object_iter_key_len(at))
      guard let place = ByteBuffer(copying: path.view), place.append("."), place.append(key) else {
        return Failure(.noMemory, "no memory")
      }
      if let failure = body(key, JSONReader(value: member, path: place)) { return failure }
      cursor = json_object_iter_next(value, at)
    }
    return nil
  }

  /// The member called `key`, if there is one.
  func member(_ key: StaticString) -> JSONReader? {
    guard isObject, let member = json_object_get(value, cString(key)),
      let place = ByteBuffer(copying: path.view), place.append("."), place.append(key)
    else { return nil }
    return JSONReader(value: member, path: place)
  }

  var unknown: Failure { fail(because: ("unknown key" as StaticString).bytes) }

  func elements(_ body: (JSONReader) -> Failure?) -> Failure? {
    guard value.pointee.type == JSON_ARRAY else { return fail("an array") }
    for index in 0..<json_array_size(value) {
      guard let element = json_array_get(value, index), let place = ByteBuffer(copying: path.view),
        place.append("["), appendDecimal(UInt64(index), to: place), place.append("]")
      else { return Failure(.noMemory, "no memory") }
      if let failure = body(JSONReader(value: element, path: place)) { return failure }
    }
    return nil
  }

  /// The string's bytes, as long as the root lives; nil if it is none.
  var string: ByteView? {
    guard value.pointee.type == JSON_STRING, let text = json_string_value(value) else { return nil }
    return ByteView(start: text, count: json_string_length(value))
  }

  func bool(_ into: (Bool) -> Void) -> Failure? {
    guard value.pointee.type == JSON_TRUE || value.pointee.type == JSON_FALSE else {
      return fail("true or false")
    }
    into(value.pointee.type == JSON_TRUE)
    return nil
  }

  func int(_ range: ClosedRange<Int>, _ expected: StaticString, _ into: (Int) -> Void) -> Failure? {
    guard value.pointee.type == JSON_INTEGER else { return fail(expected) }
    let number = Int(json_integer_value(value))
    guard range.contains(number) else { return fail(expected) }
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

/// Where in a JSON text a byte stands, as a path: for what the parser refuses.
enum JSONPlace {
  private struct Level {
    var isArray: Bool
    var index = 0
    var key: (start: Int, end: Int)?
  }

  static func path(in text: ByteView, at position: Int) -> ByteBuffer {
    var levels: [Level] = []
    var index = 0
    var isKey = false
    let end = min(position, text.count)
    while index < end {
      switch text[index] {
      case 0x7b:
        levels.append(Level(isArray: false))
        isKey = true
      case 0x5b: levels.append(Level(isArray: true))
      case 0x7d, 0x5d: if !levels.isEmpty { levels.removeLast() }
      case 0x2c:
        if let last = levels.indices.last {
          levels[last].index += 1
          isKey = !levels[last].isArray
        }
      case 0x3a: isKey = false
      case 0x22:
        let start = index + 1
        index = start
        while index < text.count, text[index] != 0x22 { index += text[index] == 0x5c ? 2 : 1 }
        if isKey, let last = levels.indices.last, !levels[last].isArray {
          levels[last].key = (start, min(index, text.count))
        }
      default: break
      }
      index += 1
    }
    let path = ByteBuffer()
    _ = path.append("$")
    // A depth that only an attack has is not worth its path.
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
