import Glibc
import PenstockWire

@testable import PenstockCall

func bytes(_ view: ByteView) -> [UInt8] { Array(view) }

func text(_ view: ByteView) -> String { String(decoding: view, as: UTF8.self) }

/// Calls `body` with `bytes` in memory of exactly their size, so that a sanitizer finds a read behind the
/// end.
func with<T>(_ bytes: [UInt8], _ body: (ByteView) -> T) -> T {
  let place = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
  defer { place.deallocate() }
  place.copyBytes(from: bytes)
  return body(ByteView(place))
}

func with<T>(_ text: String, _ body: (ByteView) -> T) -> T { with(Array(text.utf8), body) }

func buffer(_ text: String) -> ByteBuffer { with(text) { ByteBuffer(copying: $0)! } }

func environmentNumber(_ name: String) -> UInt64? { getenv(name).flatMap { UInt64(String(cString: $0)) } }

/// The seed of all random tests of this run. It is printed once; PENSTOCK_SEED sets it.
enum Seed {
  static let value: UInt64 = {
    let seed = environmentNumber("PENSTOCK_SEED") ?? UInt64.random(in: 0..<1_000_000_000)
    print("PENSTOCK_SEED=\(seed)")
    return seed
  }()
}

/// Makes random numbers from a seed (SplitMix64).
struct Random: RandomNumberGenerator {
  private var state: UInt64

  init(_ seed: UInt64) { state = seed }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }

  mutating func below(_ n: Int) -> Int { Int(truncatingIfNeeded: next() >> 33) % n }

  mutating func chance(_ percent: Int) -> Bool { below(100) < percent }

  mutating func pick<T>(_ choices: [T]) -> T { choices[below(choices.count)] }
}
