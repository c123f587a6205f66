import PenstockWire
import Testing

/// The replacements for functions of Array give what those functions give.
@Suite struct ArrayEndsTests {
  @Test(arguments: 0...5) func clears(_ count: Int) {
    var all = Array(0..<count)
    all.reserveCapacity(9)
    let capacity = all.capacity
    all.clear()
    #expect(all.isEmpty && all.capacity == capacity)
  }

  @Test func removesLeading() {
    for size in 0...5 {
      for count in 0...size {
        var all = Array(0..<size)
        all.removeLeading(count)
        #expect(all == Array(count..<size), "\(count) of \(size)")
      }
    }
  }

  @Test func puts() {
    for size in 0...4 {
      for index in 0...size {
        var all = Array(0..<size)
        var expected = all
        expected.insert(9, at: index)
        all.put(9, at: index)
        #expect(all == expected, "at \(index) of \(size)")
      }
    }
  }

  @Test func drops() {
    let objects = (0..<4).map { _ in ByteBuffer() }
    for index in 0...4 {
      var all = objects
      all.drop(index < 4 ? objects[index] : ByteBuffer())
      let expected = objects.enumerated().filter { $0.offset != index }.map(\.element)
      #expect(all.count == expected.count && zip(all, expected).allSatisfy { $0 === $1 }, "\(index)")
    }
    var none: [ByteBuffer] = []
    none.drop(ByteBuffer())
    #expect(none.isEmpty)
  }
}

/// The query of a Connect GET (Connect, "Query-Get").
@Suite struct ConnectQueryTests {
  private func query(
    _ message: [UInt8], _ encoding: String? = nil, _ compression: Compression = .identity, most: Int = 999
  ) -> String {
    let out = ByteBuffer()
    #expect(out.append("/a.B/C"))
    let name = encoding.map { name in with(name) { ByteBuffer(copying: $0)! } }
    let outcome = withExtendedLifetime(name) {
      with(message) {
        ConnectQuery.write($0, encoding: name?.view, compression: compression, most: most, into: out)
      }
    }
    switch outcome {
    case .written(let size): return "\(text(out).dropFirst(6)) \(size)"
    case .tooLong: return "too long"
    case .noMemory: return "no memory"
    }
  }

  @Test func bytesAreInBase64() {
    #expect(query([0xFB, 0xFF]) == "?connect=v1&base64=1&encoding=proto&message=-_8 3")
    #expect(query(bytes("{}"), "proto") == "?connect=v1&base64=1&encoding=proto&message=e30 3")
    #expect(query([0xFF], "json") == "?connect=v1&base64=1&encoding=json&message=_w 2")
    #expect(
      query(bytes("{}"), "json", .gzip)
        == "?connect=v1&base64=1&compression=gzip&encoding=json&message=e30 3")
    #expect(
      query([1], nil, .zstd) == "?connect=v1&base64=1&compression=zstd&encoding=proto&message=AQ 2")
  }

  @Test func textsAreEscaped() {
    #expect(query(bytes("{\"a\": 1}"), "json") == "?connect=v1&encoding=json&message=%7B%22a%22%3A%201%7D 20")
    #expect(query([], "json") == "?connect=v1&encoding=json&message= 0")
    #expect(query(bytes("\u{e9}"), "x") == "?connect=v1&encoding=x&message=%C3%A9 6")
  }

  /// The limit is for the whole query, and no longer message is even encoded.
  @Test func limits() {
    let whole = "?connect=v1&encoding=json&message=abc"
    #expect(query(bytes("abc"), "json", most: whole.utf8.count) == whole + " 3")
    #expect(query(bytes("abc"), "json", most: whole.utf8.count - 1) == "too long")
    #expect(
      query(bytes("abc"), "json", most: 3) == "too long" && query(bytes("abc"), "json", most: 2) == "too long"
    )
  }
}

/// The compressions by their names in fields, options and queries.
@Suite struct CompressionNameTests {
  private static let named: [(String, Compression?)] = [
    ("identity", Compression.identity), ("gzip", .gzip), ("x-gzip", .gzip), ("deflate", .deflate),
    ("zstd", .zstd),
    ("GZip", .gzip), ("X-GZIP", .gzip), ("Identity", .identity), ("DEFLATE", .deflate), ("ZSTD", .zstd),
    ("", nil),
    ("gzi", nil), ("gzipp", nil), ("x-deflate", nil), ("br", nil), ("gzip ", nil),
  ]

  @Test(arguments: named)
  func fromFields(_ name: String, _ expected: Compression?) {
    #expect(with(name) { Compression(named: $0) } == expected)
  }

  @Test func names() {
    func name(_ compression: Compression) -> String { String(decoding: compression.name, as: UTF8.self) }
    #expect(name(.identity) == "identity" && name(.gzip) == "gzip" && name(.deflate) == "deflate")
    #expect(name(.zstd) == "zstd")
    let own: StaticString = "snappy"
    #expect(name(.named(CompressionName(text: own.utf8Start))) == "snappy")
    #expect(Compression.names(withZstd: true).description == "zstd,gzip,deflate,identity")
    #expect(Compression.names(withZstd: false).description == "identity,gzip,deflate")
    #expect(Compression.packedNames(withZstd: true).description == "zstd,gzip,deflate")
    #expect(Compression.packedNames(withZstd: false).description == "gzip,deflate")
  }
}

/// The count of callbacks on this thread, without a suspension in between.
@Suite struct CallbackThreadTests {
  @Test func counts() {
    #expect(CallbackThread.count == 0 && !CallbackThread.isCurrent)
    CallbackThread.begin()
    #expect(CallbackThread.count == 1 && CallbackThread.isCurrent)
    CallbackThread.begin()
    CallbackThread.end()
    #expect(CallbackThread.count == 1 && CallbackThread.isCurrent)
    CallbackThread.end()
    #expect(CallbackThread.count == 0 && !CallbackThread.isCurrent)
  }
}
