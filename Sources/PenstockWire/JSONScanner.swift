/// Reads a JSON text (RFC 8259) that a peer has sent, once from its beginning to its end. It builds no tree
/// of values, so the memory that it needs does not grow with the number of values. The form of numbers is
/// checked, but they are not converted. If an object has a key twice, both members are read.
///
/// ```
/// if scanner.opens(JSONScanner.object) {
///   while scanner.nextMember(key) {
///     // A value that is not read is skipped.
///     if bytesEqual(key.view, "code") { _ = scanner.string(into: code) }
///   }
/// }
/// ```
public struct JSONScanner {
  private let text: ByteView
  private var at = 0
  private var depth = 0
  /// `isAtValue`: the next value has been neither read nor skipped yet. `isFresh`: nothing of the innermost
  /// object or array has been read yet.
  private var isAtValue = true
  private var isFresh = false
  /// Whether reading has failed: the text is malformed or nested too deep, or there was no memory for a
  /// string. Nothing more is read then.
  public private(set) var isBroken = false
  /// Whether reading has failed because there was no memory for a string.
  public private(set) var lacksMemory = false

  private static let mostDepth = 64
  /// The characters with which objects and arrays begin.
  public static let object: UInt8 = 0x7B
  public static let array: UInt8 = 0x5B

  /// A byte order mark at the beginning is skipped, as RFC 8259 (8.1) allows.
  public init(_ text: ByteView) {
    self.text = text
    if text.count >= 3, text[0] == 0xEF, text[1] == 0xBB, text[2] == 0xBF { at = 3 }
  }

  /// Whether the text was well formed and has ended: nothing comes after the value that was read.
  public var isAtEnd: Bool { mutating get { peek() == 0 && !isBroken && at >= text.count } }

  /// The next byte that is not white space; 0: the text has ended.
  public mutating func peek() -> UInt8 {
    while at < text.count {
      switch text[at] {
      case 0x20, 0x09, 0x0A, 0x0D: at &+= 1
      default: return text[at]
      }
    }
    return 0
  }

  /// Opens an object or array, depending on `bracket`. The caller has to read its contents to their end.
  /// Returns false if the next value is not one; the value is then skipped.
  public mutating func opens(_ bracket: UInt8) -> Bool {
    guard peek() == bracket else {
      skip()
      return false
    }
    at &+= 1
    depth &+= 1
    if depth > JSONScanner.mostDepth { fail() }
    isAtValue = false
    isFresh = true
    return true
  }

  /// Moves to the next member of an object, and stores the member's key in `key`. False: the object has
  /// ended, or reading has failed.
  public mutating func nextMember(_ key: ByteBuffer) -> Bool {
    guard next(0x7D) else { return false }
    key.removeAll(keepingCapacity: true)
    if !string(into: key) || !take(0x3A) { fail() }
    isAtValue = true
    return !isBroken
  }

  /// Moves to the next element of an array. False: the array has ended, or reading has failed.
  public mutating func nextElement() -> Bool { next(0x5D) }

  private mutating func next(_ end: UInt8) -> Bool {
    if isAtValue { skip() }
    if isBroken { return false }
    if take(end) {
      depth &-= 1
      isFresh = false
      return false
    }
    if !isFresh, !take(0x2C) { fail() }
    isFresh = false
    isAtValue = true
    return !isBroken
  }

  /// Reads a string into `out`, with its escape sequences replaced. It is not checked that the other bytes
  /// are UTF-8. False: the next value is not a string, and nothing is read.
  public mutating func string(into out: ByteBuffer) -> Bool {
    guard take(0x22) else { return false }
    isAtValue = false
    out.removeAll(keepingCapacity: true)
    while at < text.count {
      let start = at
      while at < text.count, text[at] >= 0x20, text[at] != 0x22, text[at] != 0x5C { at &+= 1 }
      lacksMemory = !out.append(slice(text, from: start, to: at))
      guard !lacksMemory, at < text.count, text[at] >= 0x20 else { break }
      at &+= 1
      if text[at &- 1] == 0x22 { return true }
      guard let code = unescape() else { break }
      lacksMemory = !append(code, to: out)
      if lacksMemory { break }
    }
    fail()
    return true
  }

  /// Reads the rest of an escape sequence after its backslash, and returns the character. nil: the sequence
  /// is malformed.
  private mutating func unescape() -> UInt32? {
    guard at < text.count else { return nil }
    let letter = text[at]
    at &+= 1
    switch letter {
    case 0x22, 0x5C, 0x2F: return UInt32(letter)
    case 0x62: return 8
    case 0x66: return 12
    case 0x6E: return 10
    case 0x72: return 13
    case 0x74: return 9
    case 0x75: break
    default: return nil
    }
    guard let code = hex() else { return nil }
    if code >> 10 != 0x36 { return code }
    // `code` is the first half of a surrogate pair. The second half should follow.
    let before = at
    if eat(0x5C), eat(0x75), let low = hex(), low >> 10 == 0x37 {
      return 0x10000 &+ ((code & 0x3FF) << 10 | low & 0x3FF)
    }
    at = before
    return code
  }

  private mutating func hex() -> UInt32? {
    guard text.count &- at >= 4 else { return nil }
    var code: UInt32 = 0
    for _ in 0..<4 {
      guard let digit = PercentCoding.hexValue(text[at]) else { return nil }
      code = code << 4 | UInt32(digit)
      at &+= 1
    }
    return code
  }

  /// Appends the character `code` to `out` in UTF-8. A half of a surrogate pair becomes U+FFFD.
  private func append(_ code: UInt32, to out: ByteBuffer) -> Bool {
    var rest = code >> 11 == 0x1B ? 0xFFFD : code
    // Builds the UTF-8 bytes from the last byte to the first, in one number. Each round moves the bytes up,
    // and puts another byte below them.
    var bytes: UInt32 = 0
    var count = 1
    var most: UInt32 = 0x7F
    while rest > most {
      bytes = (bytes | 0x80 | rest & 0x3F) << 8
      rest >>= 6
      most = count == 1 ? 0x1F : most >> 1
      count &+= 1
    }
    if count > 1 { rest |= 0xF00 >> UInt32(count) & 0xFF }
    bytes |= rest
    return withUnsafeBytes(of: bytes.littleEndian) { out.append(ByteView(rebasing: $0[..<count])) }
  }

  /// Reads a number that is not negative, up to its point or exponent; a larger one than `most` counts as `most`. nil: the
  /// next value is something else, and is skipped.
  public mutating func wholeNumber(most: UInt64) -> UInt64? {
    let isNumber = decimalDigit(peek()) != nil
    let start = at
    skip()
    guard isNumber, !isBroken else { return nil }
    var number: UInt64 = 0
    for byte in slice(text, from: start, to: at) {
      guard let digit = decimalDigit(byte) else { break }
      let (product, isLarge) = number.multipliedReportingOverflow(by: 10)
      let (sum, isLarger) = product.addingReportingOverflow(UInt64(digit))
      number = isLarge || isLarger ? most : min(sum, most)
    }
    return number
  }

  /// Skips any value.
  public mutating func skip() {
    isAtValue = false
    switch peek() {
    case JSONScanner.object:
      let key = ByteBuffer()
      if opens(JSONScanner.object) { while nextMember(key) {} }
    case JSONScanner.array: if opens(JSONScanner.array) { while nextElement() {} }
    case 0x22: _ = string(into: ByteBuffer())
    case 0x74: word("true")
    case 0x66: word("false")
    case 0x6E: word("null")
    default: number()
    }
  }

  private mutating func word(_ word: StaticString) {
    let end = at &+ word.utf8CodeUnitCount
    guard bytesEqual(slice(text, from: at, to: end), word) else { return fail() }
    at = end
  }

  private mutating func number() {
    _ = eat(0x2D)
    if !eat(0x30), !digits() { return fail() }
    if eat(0x2E), !digits() { return fail() }
    guard eat(0x65) || eat(0x45) else { return }
    if !eat(0x2B) { _ = eat(0x2D) }
    if !digits() { fail() }
  }

  private mutating func digits() -> Bool {
    let start = at
    while at < text.count, decimalDigit(text[at]) != nil { at &+= 1 }
    return at > start
  }

  /// Consumes white space, and then `sign` if it comes next. Returns false if it does not.
  private mutating func take(_ sign: UInt8) -> Bool { peek() == sign && eat(sign) }

  private mutating func eat(_ byte: UInt8) -> Bool {
    guard at < text.count, text[at] == byte else { return false }
    at &+= 1
    return true
  }

  private mutating func fail() {
    isBroken = true
    at = text.count
  }
}
