import CPenstockSystem
import PenstockWire

typealias Text = ByteBuffer

/// Functions that append to a text. If there is no memory, they append nothing.
extension ByteBuffer {
  convenience init(_ words: StaticString) {
    self.init()
    put(words)
  }

  @discardableResult
  func put(_ words: StaticString) -> ByteBuffer {
    _ = append(words.bytes)
    return self
  }

  @discardableResult
  func put(_ bytes: ByteView) -> ByteBuffer {
    _ = append(bytes)
    return self
  }

  @discardableResult
  func put(_ number: Int) -> ByteBuffer {
    if number < 0 { _ = append(byte: 0x2D) }
    let value = number.magnitude
    var scale: UInt = 1
    while value / scale >= 10 { scale &*= 10 }
    while scale > 0 {
      _ = append(byte: 0x30 &+ UInt8(truncatingIfNeeded: value / scale % 10))
      scale /= 10
    }
    return self
  }

  @discardableResult
  func put(errno code: Int32) -> ByteBuffer {
    withUnsafeTemporaryAllocation(byteCount: 128, alignment: 1) { space in
      guard let base = space.baseAddress?.assumingMemoryBound(to: CChar.self) else { return }
      cs_error_text(code < 0 ? -code : code, base, 128)
      put(ByteView(start: base, count: strlen(base)))
    }
    return self
  }

  /// Appends `bytes` as a JSON string. Bytes that are not ASCII are read as Latin-1, so that the JSON is
  /// always valid.
  @discardableResult
  func put(json bytes: ByteView) -> ByteBuffer {
    _ = append(byte: 0x22)
    for byte in bytes {
      if byte == 0x22 || byte == 0x5C {
        _ = append(byte: 0x5C)
        _ = append(byte: byte)
      } else if byte < 0x20 || byte > 0x7E {
        put("\\u00")
        _ = append(byte: hexDigit(byte >> 4))
        _ = append(byte: hexDigit(byte & 15))
      } else {
        _ = append(byte: byte)
      }
    }
    _ = append(byte: 0x22)
    return self
  }
}

extension ByteBuffer {
  /// Appends `bytes`, a text in UTF-8, as a JSON string. Invalid bytes are replaced by U+FFFD.
  @discardableResult
  func put(jsonText bytes: ByteView) -> ByteBuffer {
    let text = ByteBuffer()
    _ = UTF8Repair.repair(bytes, into: text)
    _ = append(byte: 0x22)
    for byte in text.view {
      if byte == 0x22 || byte == 0x5C {
        _ = append(byte: 0x5C)
        _ = append(byte: byte)
      } else if byte < 0x20 || byte == 0x7F {
        put("\\u00")
        _ = append(byte: hexDigit(byte >> 4))
        _ = append(byte: hexDigit(byte & 15))
      } else {
        _ = append(byte: byte)
      }
    }
    _ = append(byte: 0x22)
    return self
  }
}

func hexDigit(_ value: UInt8) -> UInt8 { value < 10 ? 0x30 &+ value : 0x57 &+ value }

func hexValue(_ byte: UInt8) -> UInt8? {
  switch byte {
  case 0x30...0x39: return byte &- 0x30
  case 0x41...0x46: return byte &- 0x37
  case 0x61...0x66: return byte &- 0x57
  default: return nil
  }
}

/// The bytes of a view from the offset `from` to the offset `to`. Offsets outside the view are moved to its
/// ends.
func part(_ bytes: ByteView, _ from: Int, _ to: Int) -> ByteView {
  let lower = min(max(from, 0), bytes.count)
  let upper = min(max(to, lower), bytes.count)
  return ByteView(rebasing: bytes[lower..<upper])
}

func hasPrefix(_ bytes: ByteView, _ prefix: StaticString) -> Bool {
  bytesEqual(part(bytes, 0, prefix.utf8CodeUnitCount), prefix)
}

/// The value of a decimal number; nil: `bytes` is not a number, or it is over `limit`.
func decimal(_ bytes: ByteView, limit: Int = Int(Int32.max)) -> Int? {
  if bytes.isEmpty || bytes.count > 18 { return nil }
  var value = 0
  for byte in bytes {
    guard byte >= 0x30 && byte <= 0x39 else { return nil }
    value = value &* 10 &+ Int(byte &- 0x30)
  }
  return value <= limit ? value : nil
}

func cString(_ pointer: UnsafePointer<CChar>?) -> ByteView {
  guard let pointer else { return ByteView(start: nil, count: 0) }
  return ByteView(start: pointer, count: strlen(pointer))
}

/// A standard stream. Each write has one whole line.
struct Console {
  nonisolated(unsafe) static let out = Console(descriptor: 1)  // The program has one thread.

  let descriptor: Int32
  private let pending = ByteBuffer()

  @discardableResult
  func put(_ words: StaticString) -> ByteBuffer { pending.put(words) }

  var line: ByteBuffer { pending }
  var isEmpty: Bool { pending.isEmpty }

  func flush() {
    while !pending.isEmpty {
      let n = write(descriptor, pending.view.baseAddress, pending.count)
      if n < 0 && cs_errno() == EINTR { continue }
      if n <= 0 { return pending.removeAll(keepingCapacity: true) }
      pending.consume(n)
    }
  }

  static func complain(_ why: ByteBuffer, exit code: Int32) -> Int32 {
    let err = Console(descriptor: 2)
    err.put("penstock-peer: ")
    err.line.put(why.view).put("\n")
    err.flush()
    return code
  }
}
