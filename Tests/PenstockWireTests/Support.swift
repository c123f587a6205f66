import Glibc
import PenstockWire

/// The bytes of a view as an array, which tests can compare and print.
func bytes(_ view: ByteView) -> [UInt8] { Array(view) }

func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

func text(_ buffer: ByteBuffer) -> String { String(decoding: buffer.view, as: UTF8.self) }

/// Calls `body` with `bytes` in memory of exactly their size, so that a sanitizer finds a read behind the
/// end.
func with<T>(_ bytes: [UInt8], _ body: (ByteView) -> T) -> T {
  let place = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
  defer { place.deallocate() }
  place.copyBytes(from: bytes)
  return body(ByteView(place))
}

func with<T>(_ text: String, _ body: (ByteView) -> T) -> T { with(bytes(text), body) }

/// The bytes that `write` appends to a buffer that already has contents. nil: `write` has returned false, and
/// has appended nothing.
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

/// The seed of all random tests of this run. It is printed once; PENSTOCK_SEED sets it.
enum Seed {
  static let value: UInt64 = {
    let set = getenv("PENSTOCK_SEED").flatMap { UInt64(String(cString: $0)) }
    let seed = set ?? UInt64.random(in: 0..<1_000_000_000)
    print("PENSTOCK_SEED=\(seed)")
    return seed
  }()
}

/// Makes random numbers (SplitMix64).
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

  /// At most `most` random bytes; if `alphabet` is not empty, only bytes from it.
  mutating func bytes(upTo most: Int, of alphabet: String = "") -> [UInt8] {
    let letters = Array(alphabet.utf8)
    let n = below(most + 1)
    var result: [UInt8] = []
    for _ in 0..<n {
      result.append(letters.isEmpty ? UInt8(truncatingIfNeeded: next()) : letters[below(letters.count)])
    }
    return result
  }

  /// A copy of `bytes` with a few random edits: bytes are changed, removed, inserted or repeated.
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

  /// Splits `count` bytes into pieces of random sizes, as ranges.
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

/// The number of random inputs in each property test.
let rounds = 4_000
