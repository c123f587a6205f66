import PenstockWire
import PenstockTestSupport
import Testing

@testable import PenstockFraming

extension Compression {
  static let packing: [Compression] = [.gzip, .deflate, .zstd]

  /// Compresses all bytes in one call.
  func compress(_ bytes: ByteView) -> ByteBuffer? {
    guard let input = ByteBuffer(copying: bytes),
      let deflation = Compressor(self).flatMap({ Deflation.make(input, $0) })
    else { return nil }
    while true {
      switch deflation.step() {
      case .more: continue
      case .bytes(let packed): return packed
      case .noMemory: return nil
      }
    }
  }
}

@Suite struct CompressorTests {
  static let samples: [[UInt8]] = [
    [], [0], Array("penstock".utf8), [UInt8](repeating: 7, count: 1_000_000),
    (0..<300_000).map { UInt8(truncatingIfNeeded: $0 &* 2_654_435_761 >> 13) },
  ]

  /// Decompresses in steps of at most `most` bytes. Returns the result in words, the output, and the number
  /// of steps.
  func inflate(
    _ packed: ByteBuffer, _ limit: Int, _ most: Int, by compression: Compression = .gzip
  ) -> (String, [UInt8], steps: Int) {
    guard let inflation = Compressor(compression).flatMap({ Inflation.make(packed, $0, limit: limit) })
    else { return ("no memory", [], 0) }
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

  func expand(_ packed: ByteBuffer, _ limit: Int, by compression: Compression = .gzip) -> String {
    let words = inflate(packed, limit, Inflation.slice, by: compression).0
    // The size of the steps must not change the result.
    if packed.count < 1000, limit <= 1000 {
      for most in [1, 2, 7] { #expect(inflate(packed, limit, most, by: compression).0 == words) }
    }
    return words
  }

  @Test(arguments: samples, Compression.packing)
  func roundTrip(_ sample: [UInt8], _ compression: Compression) throws {
    let input = buffer(sample)
    let packed = try #require(compression.compress(input.view))
    for most in [Inflation.slice, 1000, 4096] {
      let (words, out, steps) = inflate(packed, sample.count, most, by: compression)
      #expect(words == "\(sample.count)" && out == sample)
      #expect(
        steps >= max(sample.count, packed.count) / most && steps <= (sample.count + packed.count) / most + 2)
    }
    if !sample.isEmpty { #expect(expand(packed, sample.count - 1, by: compression) == "too large") }
  }

  /// Empty members of a gzip file also take time. So a step also ends after a number of input bytes that give
  /// no output.
  @Test func emptyMembersInSlices() throws {
    let nothing = buffer([])
    let member = try #require(Compression.gzip.compress(nothing.view))
    let many = ByteBuffer()
    for _ in 0..<10_000 { #expect(many.append(member.view)) }
    let (words, _, steps) = inflate(many, 10, 2000)
    #expect(words == "0" && steps >= many.count / 2000)
  }

  @Test(arguments: Compression.packing) func bombStopsAtTheLimit(_ compression: Compression) throws {
    let zeros = buffer([UInt8](repeating: 0, count: 64 << 20))
    let packed = try #require(compression.compress(zeros.view))
    #expect(packed.count < 100_000)
    #expect(expand(packed, 4 << 20, by: compression) == "too large")
    #expect(expand(packed, 0, by: compression) == "too large")
  }

  /// RFC 1952 section 2.2: a gzip file is a series of members.
  @Test func members() throws {
    let one = buffer(Array("one".utf8))
    let packed = try #require(Compression.gzip.compress(one.view))
    let twice = try #require(ByteBuffer(copying: packed.view))
    _ = twice.append(packed.view)
    #expect(expand(twice, 6) == "6")
    #expect(expand(twice, 5) == "too large")
  }

  /// RFC 1950 knows no members. The data begin as zlib's own do (0x78), and neither format is taken for the other.
  @Test func deflateIsOnePartInZlibsFormat() throws {
    let one = buffer(Array("one".utf8))
    let packed = try #require(Compression.deflate.compress(one.view))
    #expect(packed.view.first == 0x78)
    #expect(expand(packed, 3, by: .deflate) == "3" && expand(packed, 3, by: .gzip) == "malformed")
    let gzip = try #require(Compression.gzip.compress(one.view))
    #expect(expand(gzip, 3, by: .deflate) == "malformed")
    let twice = try #require(ByteBuffer(copying: packed.view))
    _ = twice.append(packed.view)
    #expect(expand(twice, 6, by: .deflate) == "malformed")
    for count in 0..<packed.count {
      #expect(
        expand(buffer(Array([UInt8](packed.view)[..<count])), 9, by: .deflate) == "malformed", "\(count)")
    }
  }

  @Test func namesAreThoseOfTheFields() {
    let known: [(String, Compression?)] = [
      ("identity", .identity), ("GZip", .gzip), ("x-gzip", .gzip), ("Deflate", .deflate), ("ZSTD", .zstd),
      ("br", nil),
      ("", nil),
      ("gzip,deflate", nil), ("gzi", nil),
    ]
    for (name, compression) in known {
      let name = buffer(Array(name.utf8))
      withExtendedLifetime(name) { #expect(Compression(named: name.view) == compression) }
    }
    for compression in [Compression.identity] + Compression.packing {
      #expect(Compression(named: compression.name) == compression)
    }
    for withZstd in [false, true] {
      let all = "\(Compression.names(withZstd: withZstd))".split(separator: ",").filter { $0 != "identity" }
      #expect(all.joined(separator: ",") == "\(Compression.packedNames(withZstd: withZstd))")
    }
  }

  @Test func malformed() throws {
    let sample = buffer(Array("penstock penstock penstock".utf8))
    let packed = try #require(Compression.gzip.compress(sample.view))
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
