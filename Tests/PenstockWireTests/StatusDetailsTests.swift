import PenstockWire
import Testing

/// The encoding of google.rpc.Status (google/rpc/status.proto). The vectors were made with Python's protobuf
/// package.
@Suite struct StatusDetailsTests {
  static let retry = hex("0a1608fdffffffffffffffff011098f8ffffffffffffff01")
  static let help = hex("0a0f0a0164120a68747470733a2f2f782f0a00")
  static let golden = hex(
    """
    08091202c3a91a440a28747970652e676f6f676c65617069732e636f6d2f676f6f676c652e7270632e5265747279496e666f
    12180a1608fdffffffffffffffff011098f8ffffffffffffff011a3a0a23747970652e676f6f676c65617069732e636f6d2f
    676f6f676c652e7270632e48656c7012130a0f0a0164120a68747470733a2f2f782f0a001a030a0178
    """)

  struct Status: Equatable {
    var code: Int32
    var message: [UInt8]
    var details: [[[UInt8]]]
  }

  static func decode(_ input: [UInt8]) -> Status? {
    with(input) { StatusDetails.decode($0) }.map { status in
      Status(
        code: status.code, message: bytes(status.message),
        details: (0..<status.count).map {
          let (url, value) = status.detail(at: $0)
          return [bytes(url), bytes(value)]
        })
    }
  }

  static func encode(_ status: Status) -> [UInt8]? {
    let parts = status.details.map { pair in pair.map { part in with(part) { ByteBuffer(copying: $0)! } } }
    return with(status.message) { message in
      written {
        StatusDetails.encode(
          code: status.code, message: message, detailCount: parts.count,
          detail: { (parts[$0][0].view, parts[$0][1].view) }, into: $0)
      }
    }
  }

  static let expected = Status(
    code: 9, message: bytes("\u{e9}"),
    details: [
      [bytes("type.googleapis.com/google.rpc.RetryInfo"), retry],
      [bytes("type.googleapis.com/google.rpc.Help"), help], [bytes("x"), []],
    ])

  @Test func goldenBothWays() {
    #expect(Self.decode(Self.golden) == Self.expected)
    #expect(Self.encode(Self.expected) == Self.golden)
  }

  @Test func emptyIsOK() {
    #expect(Self.decode([]) == Status(code: 0, message: [], details: []))
    #expect(Self.encode(Status(code: 0, message: [], details: [])) == [])
  }

  @Test func codesOutsideOfGRPC() {
    #expect(Self.decode(hex("08 ffffffffffffffffff01"))?.code == -1)
    #expect(Self.encode(Status(code: -1, message: [], details: [])) == hex("08 ffffffffffffffffff01"))
    #expect(Self.decode(hex("08 ffffffffffffffff7f"))?.code == -1)
  }

  /// The decoder's tolerances: if a field comes twice, the last value counts; unknown fields, groups and
  /// wrong wire types are skipped; the message need not be UTF-8.
  @Test func lenience() {
    #expect(
      Self.decode(hex("08 01 08 02 12 01 61 12 01 62")) == Status(code: 2, message: bytes("b"), details: []))
    #expect(
      Self.decode(hex("22 01 61 0a 01 61 10 05 18 07 2b 08 09 2c"))
        == Status(code: 0, message: [], details: []))
    #expect(Self.decode(hex("12 01 ff"))?.message == [0xFF])
    #expect(Self.decode(hex("1a 00"))?.details == [[[], []]])
    #expect(Self.decode(hex("1a 06 0a 01 61 0a 01 62"))?.details == [[bytes("b"), []]])
  }

  @Test(arguments: ["08", "12 05 61", "1a 02 0a", "1a 02 0a 05", "00", "0b", "1a 01 0c"])
  func malformed(input: String) { #expect(Self.decode(hex(input)) == nil) }

  @Test func detailOutOfRangeIsEmpty() throws {
    let status = try #require(with(Self.golden) { StatusDetails.decode($0) })
    for index in [-1, 3, Int.max, Int.min] {
      let (url, value) = status.detail(at: index)
      #expect(url.isEmpty && value.isEmpty)
    }
  }

  @Test func everyPrefixIsReadOrRefused() {
    for n in 0..<Self.golden.count { _ = Self.decode(Array(Self.golden.prefix(n))) }
  }

  @Test func randomStatusesRoundTrip() {
    var random = Random()
    for _ in 0..<rounds / 2 {
      var status = Status(
        code: Int32(truncatingIfNeeded: random.next()), message: random.bytes(upTo: 200), details: [])
      for _ in 0..<random.below(5) {
        status.details.append([random.bytes(upTo: 40), random.bytes(upTo: 200)])
      }
      #expect(Self.encode(status).flatMap(Self.decode) == status, "PENSTOCK_SEED=\(Seed.value)")
    }
  }

  @Test func randomEditsDoNotTrap() {
    var random = Random()
    for _ in 0..<rounds { _ = Self.decode(random.mutated(Self.golden)) }
  }
}
