import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockTransport

extension Gzip {
  /// Compresses all bytes in one call.
  static func compress(_ bytes: ByteView) -> ByteBuffer? {
    guard let input = ByteBuffer(copying: bytes), let deflation = Deflation(input) else { return nil }
    while true {
      switch deflation.step() {
      case .more: continue
      case .bytes(let packed): return packed
      case .noMemory: return nil
      }
    }
  }
}

@Suite struct GzipTests {
  static let samples: [[UInt8]] = [
    [], [0], Array("penstock".utf8), [UInt8](repeating: 7, count: 1_000_000),
    (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 2_654_435_761 >> 13) },
  ]

  /// Decompresses in steps of at most `most` bytes. Returns the result in words, the output, and the number
  /// of steps.
  func inflate(_ packed: ByteBuffer, _ limit: Int, _ most: Int) -> (String, [UInt8], steps: Int) {
    guard let inflation = Inflation(packed, limit: limit) else { return ("no memory", [], 0) }
    var steps = 0
    while true {
      steps += 1
      switch inflation.step(most) {
      case .more: continue
      case .bytes(let out): return ("\(out.count)", [UInt8](out.view), steps)
      case .tooLarge: return ("too large", [], steps)
      case .malformed: return ("malformed", [], steps)
      case .noMemory: return ("no memory", [], steps)
      }
    }
  }

  func expand(_ packed: ByteBuffer, _ limit: Int) -> String {
    let words = inflate(packed, limit, Inflation.slice).0
    // The size of the steps must not change the result.
    if packed.count < 1000, limit <= 1000 {
      for most in [1, 2, 7] { #expect(inflate(packed, limit, most).0 == words) }
    }
    return words
  }

  @Test(arguments: samples)
  func roundTrip(_ sample: [UInt8]) throws {
    let input = buffer(sample)
    let packed = try #require(Gzip.compress(input.view))
    for most in [Inflation.slice, 1000, 4096] {
      let (words, out, steps) = inflate(packed, sample.count, most)
      #expect(words == "\(sample.count)" && out == sample)
      #expect(
        steps >= max(sample.count, packed.count) / most && steps <= (sample.count + packed.count) / most + 2)
    }
    if !sample.isEmpty { #expect(expand(packed, sample.count - 1) == "too large") }
  }

  /// Empty members of a gzip file also take time. So a step also ends after a number of input bytes that give
  /// no output.
  @Test func emptyMembersInSlices() throws {
    let nothing = buffer([])
    let member = try #require(Gzip.compress(nothing.view))
    let many = ByteBuffer()
    for _ in 0..<10_000 { #expect(many.append(member.view)) }
    let (words, _, steps) = inflate(many, 10, 2000)
    #expect(words == "0" && steps >= many.count / 2000)
  }

  @Test func bombStopsAtTheLimit() throws {
    let zeros = buffer([UInt8](repeating: 0, count: 64 << 20))
    let packed = try #require(Gzip.compress(zeros.view))
    #expect(packed.count < 100_000)
    #expect(expand(packed, 4 << 20) == "too large")
    #expect(expand(packed, 0) == "too large")
  }

  /// RFC 1952 section 2.2: a gzip file is a series of members.
  @Test func members() throws {
    let one = buffer(Array("one".utf8))
    let packed = try #require(Gzip.compress(one.view))
    let twice = try #require(ByteBuffer(copying: packed.view))
    _ = twice.append(packed.view)
    #expect(expand(twice, 6) == "6")
    #expect(expand(twice, 5) == "too large")
  }

  @Test func malformed() throws {
    let sample = buffer(Array("penstock penstock penstock".utf8))
    let packed = try #require(Gzip.compress(sample.view))
    let whole = [UInt8](packed.view)
    for count in 0..<whole.count {
      #expect(expand(buffer(Array(whole[..<count])), 1000) == "malformed", "\(count)")
    }
    #expect(expand(buffer(whole + [1, 2, 3]), 1000) == "malformed")
    // A file with one damaged byte from byte 10 on must not decompress to the original 26 bytes. Bytes 4 to 9
    // (time, flags of the compressor, system) are not damaged, because their values do not matter. Bytes 0 to
    // 3 are damaged too, but any result is accepted then.
    for index in 0..<whole.count where !(4...9).contains(index) {
      var damaged = whole
      damaged[index] ^= 0x41
      #expect(expand(buffer(damaged), 1000) != "26" || index < 10, "\(index)")
    }
  }
}
