import CPenstockJansson
import CPenstockMemory
import PenstockCall
import PenstockWire

/// Reads objects of options strictly. An unknown or repeated key, a wrong type, or a value out of range is a
/// failure, which names the JSON path ("$.tls.verify"). No failure quotes the value of a string, because it
/// may be a secret.
public struct JSONReader {
  typealias Value = UnsafeMutablePointer<json_t>

  let value: Value
  let path: ByteBuffer
  /// Keeps `value`.
  private let piece: JSONPiece
  /// The text of a large object or array, whose members are parsed part by part; `value` is then an empty one. nil: `value`
  /// has all members.
  private let large: Large?

  /// A text of which parts are parsed when they are asked for. A look-up in it may lack memory, and then finds nothing:
  /// the parse as a whole fails for that.
  private final class Large {
    let text: ByteView
    let shortage: Shortage

    init(_ text: ByteView, _ shortage: Shortage) {
      self.text = text
      self.shortage = shortage
    }
  }

  /// Whether a look-up in a large text has lacked memory.
  private final class Shortage {
    var isMet = false
  }

  private init(_ value: Value, _ path: ByteBuffer, _ piece: JSONPiece, _ large: Large? = nil) {
    self.value = value
    self.path = path
    self.piece = piece
    self.large = large
  }

  /// Makes the reader of a large object or array; nil: no memory.
  private init?(large text: ByteView, _ path: ByteBuffer, _ shortage: Shortage) {
    guard let root = text.first == 0x5b ? json_array() : json_object() else { return nil }
    self.init(root, path, JSONPiece(root), Large(text, shortage))
  }

  /// Parses `text`, and calls `body` with the outermost value, which is valid during the call.
  public static func parse(_ text: ByteView, _ body: (JSONReader) -> Failure?) -> Failure? {
    guard let path = ByteBuffer(copying: ("$" as StaticString).bytes) else {
      return Failure(.noMemory, "no memory")
    }
    var failure: Failure?
    if let (position, words) = JSONPath.tooMuch(text) { return refusal(text, position, words) }
    // A malformed text is parsed as a whole, because only that finds the words for the fault.
    if text.count > JSONPieces.largeText, let whole = JSONPieces.container(text),
      JSONPieces.areWellFormed(whole)
    {
      let shortage = Shortage()
      guard let reader = JSONReader(large: whole, path, shortage) else {
        return Failure(.noMemory, "no memory")
      }
      let failure = body(reader)
      return shortage.isMet ? Failure(.noMemory, "no memory") : failure
    }
    guard let root = load(text, &failure) else { return failure }
    return body(JSONReader(root, path, JSONPiece(root)))
  }

  private static func refusal(_ text: ByteView, _ position: Int, _ words: StaticString) -> Failure {
    let path = JSONPath.path(in: text, at: position, withOpenKey: false)
    return Failure(.invalidJSON, ("JSON at " as StaticString).bytes, path.view, words.bytes, path: path)
  }

  private static func load(_ text: ByteView, _ failure: inout Failure?) -> Value? {
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

  public func fail(_ expected: StaticString) -> Failure { fail(expected.bytes, got: typeName.bytes) }

  /// The failure for a value that is not `expected`. `hasType`: it has the right type, but another value.
  public func fail(_ expected: StaticString, hasType: Bool) -> Failure {
    fail(expected.bytes, got: (hasType ? anotherOfType : typeName).bytes)
  }

  public func fail(_ expected: ByteBuffer, hasType: Bool = false) -> Failure {
    withExtendedLifetime(expected) {
      fail(expected.view, got: (hasType ? anotherOfType : typeName).bytes)
    }
  }

  /// The failure for a value that is not an integer (`number` is nil) or is out of range.
  public func fail(_ range: ClosedRange<Int>, got number: Int?) -> Failure {
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

  public func fail(because parts: ByteView...) -> Failure {
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
  var isArray: Bool { value.pointee.type == JSON_ARRAY }

  /// Calls `body` for each member of the object. For a key that it does not know, `body` returns
  /// `member.unknown`. The bytes of a string are valid as long as the reader of it.
  public func members(_ body: (_ key: ByteView, _ member: JSONReader) -> Failure?) -> Failure? {
    guard isObject else { return fail("an object") }
    guard let large else { return members(of: piece, value, body) }
    return parts(of: large.text) { part in
      switch part {
      case .few(let piece): return members(of: piece, piece.root, body)
      case .large(let key, let text):
        guard let key, let longer = path(to: key.text),
          let member = JSONReader(large: text, longer, large.shortage)
        else {
          return Failure(.noMemory, "no memory")
        }
        return withExtendedLifetime(key) { body(key.text, member) }
      }
    }
  }

  private func members(
    of piece: JSONPiece, _ object: Value, _ body: (_ key: ByteView, _ member: JSONReader) -> Failure?
  ) -> Failure? {
    withExtendedLifetime(piece) {
      var cursor = json_object_iter(object)
      while let at = cursor {
        guard let name = json_object_iter_key(at), let member = json_object_iter_value(at) else { break }
        let key = ByteView(start: name, count: json_object_iter_key_len(at))
        guard let longer = path(to: key) else { return Failure(.noMemory, "no memory") }
        if let failure = body(key, JSONReader(member, longer, piece)) { return failure }
        cursor = json_object_iter_next(object, at)
      }
      return nil
    }
  }

  /// Calls `body` for each part of the text of an object or array.
  private func parts(of text: ByteView, _ body: (JSONPieces.Part) -> Failure?) -> Failure? {
    var pieces = JSONPieces(text)
    while let part = pieces.next() {
      if let failure = body(part) { return failure }
    }
    // The text is known to be well formed.
    return pieces.isBroken ? Failure(.noMemory, "no memory") : nil
  }

  private func path(to key: ByteView) -> ByteBuffer? {
    let longer = ByteBuffer(copying: path.view)
    return longer.flatMap { $0.append(".") && $0.append(key) ? $0 : nil }
  }

  /// The member called `key`; nil: there is none. If there is no memory for the member's path, the path is
  /// cut short.
  func member(_ key: StaticString) -> JSONReader? {
    guard isObject else { return nil }
    if let large {
      var found: JSONReader?
      let shortage = members { name, member in
        if bytesEqual(name, key) { found = member }
        return nil
      }
      if shortage != nil { large.shortage.isMet = true }
      return found
    }
    guard let member = json_object_get(value, cString(key)) else { return nil }
    let longer = ByteBuffer()
    _ = longer.append(path.view) && longer.append(".") && longer.append(key)
    return JSONReader(member, longer, piece)
  }

  /// The number of members of an object or array; 0: it is neither.
  public var count: Int {
    guard let large else { return isObject ? json_object_size(value) : json_array_size(value) }
    var count = 0
    let shortage = parts(of: large.text) { part in
      switch part {
      case .few(let piece):
        count += withExtendedLifetime(piece) {
          isObject ? json_object_size(piece.root) : json_array_size(piece.root)
        }
      case .large: count += 1
      }
      return nil
    }
    if shortage != nil { large.shortage.isMet = true }
    return count
  }

  /// The value with all its members; nil: no memory. The caller owns the reference to it.
  func whole() -> Value? {
    guard let large else { return json_incref(value) }
    var failure: Failure?
    return JSONReader.load(large.text, &failure)
  }

  public var unknown: Failure { fail(because: ("unknown key" as StaticString).bytes) }

  public func elements(_ body: (JSONReader) -> Failure?) -> Failure? {
    guard isArray else { return fail("an array") }
    guard let large else { return elements(of: piece, value, from: 0, body) }
    var index = 0
    return parts(of: large.text) { part in
      switch part {
      case .few(let piece):
        defer { index += json_array_size(piece.root) }
        return elements(of: piece, piece.root, from: index, body)
      case .large(_, let text):
        defer { index += 1 }
        guard let longer = path(toElement: index),
          let element = JSONReader(large: text, longer, large.shortage)
        else {
          return Failure(.noMemory, "no memory")
        }
        return body(element)
      }
    }
  }

  private func elements(
    of piece: JSONPiece, _ array: Value, from first: Int, _ body: (JSONReader) -> Failure?
  ) -> Failure? {
    for index in 0..<json_array_size(array) {
      guard let element = json_array_get(array, index), let longer = path(toElement: first + index) else {
        return Failure(.noMemory, "no memory")
      }
      if let failure = body(JSONReader(element, longer, piece)) { return failure }
    }
    return nil
  }

  private func path(toElement index: Int) -> ByteBuffer? {
    guard let longer = ByteBuffer(copying: path.view), longer.append("["),
      appendDecimal(UInt64(index), to: longer), longer.append("]")
    else { return nil }
    return longer
  }

  /// The first element of an array that has one; otherwise this reader itself.
  var firstElement: JSONReader {
    var first: JSONReader?
    if isArray {
      let shortage = elements {
        first = first ?? $0
        return nil
      }
      if shortage != nil { large?.shortage.isMet = true }
    }
    return first ?? self
  }

  /// The bytes of a string, which are valid as long as this reader; nil if the value is not a string.
  public var string: ByteView? {
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

  public func string(_ into: (ByteBuffer) -> Void) -> Failure? {
    guard let string else { return fail("a string") }
    guard let copied = ByteBuffer(copying: string) else { return Failure(.noMemory, "no memory") }
    into(copied)
    return nil
  }
}

public func appendDecimal(_ number: UInt64, to buffer: ByteBuffer) -> Bool {
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
  /// needs about 280 bytes of memory for each, even for "{}", where a malformed text is parsed as a whole.
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
