internal import CPenstockMemory

public func bytesEqual(_ a: ByteView, _ b: ByteView) -> Bool {
  guard a.count == b.count else { return false }
  guard let left = a.baseAddress, let right = b.baseAddress, !a.isEmpty else { return true }
  return memcmp(left, right, a.count) == 0
}

/// The position of the first byte of this value; nil: there is none.
public func position(of byte: UInt8, in bytes: ByteView) -> Int? {
  guard let start = bytes.baseAddress, let found = memchr(start, Int32(byte), bytes.count) else { return nil }
  return UnsafeRawPointer(found) - start
}

public func bytesEqual(_ a: ByteView, _ b: StaticString) -> Bool { bytesEqual(a, b.bytes) }

/// Whether `a` and `lower` are equal without regard to the case of ASCII letters. `lower` must be in lower
/// case.
public func equalIgnoringCase(_ a: ByteView, _ lower: StaticString) -> Bool {
  let b = lower.bytes
  return a.count == b.count && hasPrefixIgnoringCase(a, b)
}

/// Whether `a` begins with `lower`. Upper and lower case letters of `a` are equal.
public func hasPrefixIgnoringCase(_ a: ByteView, _ lower: ByteView) -> Bool {
  guard a.count >= lower.count else { return false }
  if bytesEqual(slice(a, from: 0, to: lower.count), lower) { return true }
  for i in 0..<lower.count where lowercase(a[i]) != lower[i] { return false }
  return true
}

public func lowercase(_ byte: UInt8) -> UInt8 {
  byte >= 0x41 && byte <= 0x5A ? byte | 0x20 : byte
}

/// The bytes from index `from` to `to`; both are limited to the view's bounds.
func slice(_ bytes: ByteView, from: Int, to: Int) -> ByteView {
  let lower = min(max(from, 0), bytes.count)
  let upper = min(max(to, lower), bytes.count)
  return ByteView(rebasing: bytes[lower..<upper])
}

/// The bytes before the first occurrence of `words`, or all bytes if there is none.
public func cut(_ bytes: ByteView, before words: StaticString) -> ByteView {
  let words = words.bytes
  var at = 0
  while at + words.count <= bytes.count {
    let end = slice(bytes, from: 0, to: at)
    if bytesEqual(slice(bytes, from: at, to: at &+ words.count), words) { return end }
    at &+= 1
  }
  return bytes
}

extension StaticString {
  /// The literal's bytes in UTF-8. The view stays valid for ever.
  public var bytes: ByteView {
    guard hasPointerRepresentation else { return ByteView(start: nil, count: 0) }
    return ByteView(start: utf8Start, count: utf8CodeUnitCount)
  }
}
