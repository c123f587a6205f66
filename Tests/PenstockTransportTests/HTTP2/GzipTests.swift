import PenstockWire
import Testing

@testable import PenstockTransport

@Suite struct GzipTests {
  static let samples: [[UInt8]] = [
    [], [0], Array("penstock".utf8), [UInt8](repeating: 7, count: 1_000_000),
    (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 2_654_435_761 >> 13) },
  ]

  func expand(_ packed: ByteBuffer, _ limit: Int) -> String {
    switch Gzip.decompress(packed.view, limit: limit) {
    case .bytes(let out): return "\(out.count)"
    case .tooLarge: return "too large"
    case .malformed: return "malformed"
    case .noMemory: return "no memory"
    }
  }

  @Test(arguments: samples)
  func roundTrip(_ sample: [UInt8]) throws {
    let input = buffer(sample)
    let packed = try #require(Gzip.compress(input.view))
    guard case .bytes(let out) = Gzip.decompress(packed.view, limit: sample.count) else {
      Issue.record(Comment(rawValue: expand(packed, sample.count)))
      return
    }
    #expect([UInt8](out.view) == sample)
    if !sample.isEmpty { #expect(expand(packed, sample.count - 1) == "too large") }
  }

  @Test func bombStopsAtTheLimit() throws {
    let zeros = buffer([UInt8](repeating: 0, count: 64 << 20))
    let packed = try #require(Gzip.compress(zeros.view))
    #expect(packed.count < 100_000)
    #expect(expand(packed, 4 << 20) == "too large")
    #expect(expand(packed, 0) == "too large")
  }

  /// RFC 1952 section 2.2: a file is a series of members.
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
    // Any damaged byte but those of the header that carry nothing (time, flags of the compressor, system).
    for index in 0..<whole.count where !(4...9).contains(index) {
      var damaged = whole
      damaged[index] ^= 0x41
      #expect(expand(buffer(damaged), 1000) != "26" || index < 10, "\(index)")
    }
  }
}
