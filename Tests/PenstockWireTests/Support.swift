import Glibc
import PenstockWire

/// The whole of a view, as an array that can be compared and printed.
func bytes(_ view: ByteView) -> [UInt8] { Array(view) }

func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

func text(_ buffer: ByteBuffer) -> String { String(decoding: buffer.view, as: UTF8.self) }

/// Runs `body` on `bytes` in storage of exactly their size, so that a sanitizer sees a read past the end.
func with<T>(_ bytes: [UInt8], _ body: (ByteView) -> T) -> T {
  let place = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
  defer { place.deallocate() }
  place.copyBytes(from: bytes)
  return body(ByteView(place))
}

func with<T>(_ text: String, _ body: (ByteView) -> T) -> T { with(bytes(text), body) }

/// The bytes that `write` appends to a buffer that is not empty; nil: `write` has returned false and appended nothing.
func written(_ write: (ByteBuffer) -> Bool) -> [UInt8]? {
  let out = ByteBuffer()
  precondition(out.append("before"))
  let isWritten = write(out)
  precondition(bytesEqual(ByteView(rebasing: out.view[..<6]), "before"))
  precondition(isWritten || out.count == 6)
  return isWritten ? Array(out.view[6...]) : nil
}

func hex(_ digits: String) -> [UInt8] {
  var result: [UInt8] = []
  var rest = Substring(digits.filter { !$0.isWhitespace })
  while !rest.isEmpty {
    result.append(UInt8(rest.prefix(2), radix: 16)!)
    rest = rest.dropFirst(2)
  }
  return result
}

/// The seed of every random test of this run: printed once, set by PENSTOCK_SEED.
enum Seed {
  static let value: UInt64 = {
    let set = getenv("PENSTOCK_SEED").flatMap { UInt64(String(cString: $0)) }
    let seed = set ?? UInt64.random(in: 0..<1_000_000_000)
    print("PENSTOCK_SEED=\(seed)")
    return seed
  }()
}

/// Random numbers, by SplitMix64.
struct Random: RandomNumberGenerator {
  private var state: UInt64

  init() { state = Seed.value }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }

  mutating func below(_ n: Int) -> Int { Int.random(in: 0..<n, using: &self) }

  /// Up to `most` bytes, of those in `alphabet` if there is one.
  mutating func bytes(upTo most: Int, of alphabet: String = "") -> [UInt8] {
    let letters = Array(alphabet.utf8)
    let n = below(most + 1)
    var result: [UInt8] = []
    for _ in 0..<n {
      result.append(letters.isEmpty ? UInt8(truncatingIfNeeded: next()) : letters[below(letters.count)])
    }
    return result
  }

  /// A copy of `bytes` with a few random edits: bytes changed, removed, inserted or repeated.
  mutating func mutated(_ bytes: [UInt8]) -> [UInt8] {
    var result = bytes
    for _ in 0...below(4) {
      let at = below(result.count + 1)
      switch below(4) {
      case 0 where at < result.count: result[at] = UInt8(truncatingIfNeeded: next())
      case 1: result.removeSubrange(at..<min(result.count, at + below(4)))
      case 2: result.insert(UInt8(truncatingIfNeeded: next()), at: at)
      default: result.insert(contentsOf: result[at..<min(result.count, at + below(16))], at: at)
      }
    }
    return result
  }

  /// Ranges that split `count` bytes into pieces of random sizes.
  mutating func pieces(of count: Int) -> [Range<Int>] {
    var result: [Range<Int>] = []
    var from = 0
    while from < count {
      let to = min(count, from + 1 + below(below(2) == 0 ? 3 : 40))
      result.append(from..<to)
      from = to
    }
    return result
  }
}

/// How many random inputs each property test takes.
let rounds = 4_000
