import CPenstockJansson
import CPenstockMemory
import PenstockWire

/// A part of a JSON text, parsed. It is freed with the last reader of one of its values.
final class JSONPiece {
  let root: JSON.Value

  /// Takes over the reference to `root`.
  init(_ root: JSON.Value) { self.root = root }

  deinit { json_decref(root) }

  /// Parses a text; nil: it is malformed, or there is no memory.
  static func load(_ text: ByteView) -> JSONPiece? {
    var error = json_error_t()
    var isShort = false
    return penstock_json_load(
      text.baseAddress?.assumingMemoryBound(to: CChar.self), text.count, &error, &isShort
    ).map { JSONPiece($0) }
  }
}

/// Splits the text of an object or array into parts, which are parsed one after the other: the parser needs 20 to 140 times
/// the memory of a text of many small values. Small members that follow each other are one part, an object or array itself.
struct JSONPieces {
  enum Part {
    /// An object or array of some of the members.
    case few(JSONPiece)
    /// A member that is a large object or array. `key`: its key as a string; nil in an array.
    case large(key: JSONPiece?, ByteView)
  }

  /// The size in bytes above which a text is split, and the usual size of a part.
  static let size = 16 << 10
  /// The size in bytes of a text above which it is read in parts.
  static let largeText = 64 << 10

  let isArray: Bool
  private let text: ByteView
  private var at = 1
  private var isOver = false
  /// Whether a part could not be parsed. No part follows.
  private(set) var isBroken = false

  /// `text`: as `container` returns it.
  init(_ text: ByteView) {
    self.text = text
    isArray = text.first == 0x5b
  }

  /// The next part; nil: there is none.
  mutating func next() -> Part? {
    if isOver { return nil }
    let start = at
    var end = start
    while let stop = endOfMember(from: at) {
      let member = JSONPieces.trimmed(ByteView(rebasing: text[at..<stop]))
      let isLast = stop == text.count - 1
      // An empty object or array has one member that is blank.
      if member.isEmpty, at > 1 || !isLast { break }
      if !member.isEmpty, stop - at > JSONPieces.size, let large = large(member) {
        if end > start { return few(start..<end) }
        at = stop + 1
        isOver = isLast
        return large
      }
      if end > start, stop - start > JSONPieces.size { return few(start..<end) }
      end = stop
      at = stop + 1
      if isLast {
        isOver = true
        return few(start..<end)
      }
    }
    return broken()
  }

  private mutating func broken() -> Part? {
    isBroken = true
    isOver = true
    return nil
  }

  /// Parses the members in `range` as an object or array of their own.
  private mutating func few(_ range: Range<Int>) -> Part? {
    guard let whole = ByteBuffer(capacity: range.count + 2), whole.append(isArray ? "[" : "{"),
      whole.append(ByteView(rebasing: text[range])), whole.append(isArray ? "]" : "}"),
      let piece = JSONPiece.load(whole.view)
    else { return broken() }
    return .few(piece)
  }

  /// The part for a member that is an object or array; nil: it is something else, or malformed.
  private func large(_ member: ByteView) -> Part? {
    if isArray { return JSONPieces.container(member).map { .large(key: nil, $0) } }
    let end = JSONPieces.endOfString(in: member, from: 1)
    guard member[0] == 0x22, end < member.count else { return nil }
    let rest = JSONPieces.trimmed(ByteView(rebasing: member[(end + 1)...]))
    guard rest.first == 0x3a, let value = JSONPieces.container(ByteView(rebasing: rest[1...])),
      let key = JSONPiece.load(ByteView(rebasing: member[...end]))
    else { return nil }
    return .large(key: key, value)
  }

  /// The position of the comma or bracket that ends the member at `start`; nil: brackets or quotes don't match.
  private func endOfMember(from start: Int) -> Int? {
    var depth = 0
    var index = start
    while index < text.count {
      switch text[index] {
      case 0x7b, 0x5b: depth += 1
      case 0x7d, 0x5d:
        if depth == 0 { return index == text.count - 1 ? index : nil }
        depth -= 1
      case 0x2c: if depth == 0 { return index }
      case 0x22: index = JSONPieces.endOfString(in: text, from: index + 1)
      default: break
      }
      index += 1
    }
    return nil
  }

  /// The position of the quote that ends the string whose characters begin at `start`; at least the text's length: there
  /// is none.
  static func endOfString(in text: ByteView, from start: Int) -> Int {
    var index = start
    while index < text.count, text[index] != 0x22 { index += text[index] == 0x5c ? 2 : 1 }
    return index
  }

  /// The text without blanks around it, if it begins and ends as one object or array; otherwise nil.
  static func container(_ text: ByteView) -> ByteView? {
    let text = trimmed(text)
    guard let first = text.first, first == 0x7b || first == 0x5b, text.last == first + 2 else { return nil }
    let only = JSONPieces(text)
    // The first bracket is closed by the last one: so no other closes it.
    var at = 1
    while let stop = only.endOfMember(from: at) {
      if stop == text.count - 1 { return text }
      at = stop + 1
    }
    return nil
  }

  private static func trimmed(_ text: ByteView) -> ByteView {
    var (start, end) = (0, text.count)
    while start < end, isBlank(text[start]) { start += 1 }
    while end > start, isBlank(text[end - 1]) { end -= 1 }
    return ByteView(rebasing: text[start..<end])
  }

  private static func isBlank(_ byte: UInt8) -> Bool {
    byte == 0x20 || byte == 0x0a || byte == 0x0d || byte == 0x09
  }

  /// Whether the text of an object or array is well formed, and no object has a key twice. False also without memory.
  static func areWellFormed(_ text: ByteView) -> Bool {
    var pieces = JSONPieces(text)
    let keys = NameTable()
    while let part = pieces.next() {
      switch part {
      case .few(let piece):
        if pieces.isArray { continue }
        guard piece.allKeys({ keys.add($0) == .added }) else { return false }
      case .large(let key, let value):
        if let key, keys.add(key.text) != .added { return false }
        if !areWellFormed(value) { return false }
      }
    }
    return !pieces.isBroken
  }
}

extension JSONPiece {
  /// The bytes of a string.
  var text: ByteView {
    guard let start = json_string_value(root) else { return ByteView(start: nil, count: 0) }
    return ByteView(start: start, count: json_string_length(root))
  }

  /// Whether `body` returns true for each key of an object.
  fileprivate func allKeys(_ body: (ByteView) -> Bool) -> Bool {
    var cursor = json_object_iter(root)
    while let at = cursor {
      guard let name = json_object_iter_key(at),
        body(ByteView(start: name, count: json_object_iter_key_len(at)))
      else { return false }
      cursor = json_object_iter_next(root, at)
    }
    return true
  }
}
