import PenstockWire
import Testing

/// The wire format of protobuf (protobuf.dev, "Encoding").
@Suite struct ProtoTests {
  enum Item: Equatable {
    case varint(UInt32, UInt64)
    case fixed64(UInt32, UInt64)
    case fixed32(UInt32, UInt32)
    case bytes(UInt32, [UInt8])
  }

  /// Reads all fields. nil: the bytes are malformed.
  static func read(_ input: [UInt8]) -> [Item]? {
    with(input) { view in
      var items: [Item] = []
      var reader = ProtoReader(view)
      while true {
        switch reader.next() {
        case .end:
          #expect(reader.next() == .end)
          return items
        case .malformed:
          #expect(reader.next() == .malformed)
          return nil
        case .field(let n, .varint(let value)): items.append(.varint(n, value))
        case .field(let n, .fixed64(let value)): items.append(.fixed64(n, value))
        case .field(let n, .fixed32(let value)): items.append(.fixed32(n, value))
        case .field(let n, .bytes(let value)): items.append(.bytes(n, Array(value)))
        }
      }
    }
  }

  @Test(
    arguments: [
      ("", []), ("08 96 01", [.varint(1, 150)]), ("12 07 74657374696e67", [.bytes(2, bytes("testing"))]),
      ("08 00", [.varint(1, 0)]), ("08 ffffffffffffffffff 01", [.varint(1, .max)]),
      ("09 0102030405060708", [.fixed64(1, 0x0807_0605_0403_0201)]),
      ("0d 01020304", [.fixed32(1, 0x0403_0201)]),
      ("12 00", [.bytes(2, [])]), ("f8ffffff0f 01", [.varint(536_870_911, 1)]), ("08 8000", [.varint(1, 0)]),
      // A group is skipped with everything in it.
      ("0b 0c 10 01", [.varint(2, 1)]), ("0b 10 01 1a 01 61 21 0000000000000000 0c 10 02", [.varint(2, 2)]),
      ("0b 13 14 0c 08 01", [.varint(1, 1)]),
    ] as [(String, [Item])])
  func golden(input: String, expected: [Item]) { #expect(Self.read(hex(input)) == expected) }

  @Test(arguments: [
    "08", "08 80", "08 ffffffffffffffffff 02", "08 ffffffffffffffffffff 01", "80", "00", "02 00", "09 01",
    "0d 010203",
    "12 01", "12 05 61", "12 ffffffffffffffffff 01", "12 ffffffff07", "0e", "0f", "0c", "0b", "0b 0c 0c",
    "0b 14",
    "0b 08", "0b 12 05", "ffffffff7f 01", "f8ffffff1f 01",
  ])
  func malformed(input: String) { #expect(Self.read(hex(input)) == nil) }

  @Test func groupsNestALimitedNumberOfTimes() {
    func groups(_ n: Int) -> [UInt8] { Array(repeating: 0x0B, count: n) + Array(repeating: 0x0C, count: n) }
    #expect(Self.read(groups(100)) == [])
    #expect(Self.read(groups(101)) == nil)
    #expect(Self.read(Array(repeating: 0x0B, count: 1_000_000)) == nil)
  }

  @Test func everyPrefixOfAMessageIsReadOrRefused() {
    let message = hex("08 9601 12 0774657374696e67 19 0102030405060708 25 01020304 2b 08 01 2c 30 01")
    for n in 0...message.count { _ = Self.read(Array(message.prefix(n))) }
    #expect(Self.read(message)?.count == 5)
  }

  @Test func writes() {
    let out = ByteBuffer()
    var writer = ProtoWriter(into: out)
    writer.varint(1, 150)
    writer.string(2, "testing")
    writer.int(3, -1)
    writer.bool(4, true)
    writer.messageHeader(536_870_911, length: 0)
    #expect(writer.isComplete)
    #expect(
      bytes(out.view) == hex("08 9601 12 07 74657374696e67 18 ffffffffffffffffff01 20 01 faffffff0f 00"))
  }

  @Test func writesFixedSizesAndNestedMessages() {
    let out = ByteBuffer()
    var writer = ProtoWriter(into: out)
    writer.fixed64(1, 0x0807_0605_0403_0201)
    writer.fixed32(2, 0x0403_0201)
    writer.double(3, 1)
    writer.messageHeader(4, length: 16)
    writer.element(1)
    writer.element(2)
    writer.message(5) { inner in
      inner.varint(1, 150)
      inner.message(2) { $0.string(1, "a") }
    }
    writer.message(6) { _ in }
    with(hex("08 01")) { writer.encoded($0) }
    #expect(writer.isComplete)
    #expect(
      bytes(out.view)
        == hex(
          """
          09 0102030405060708 15 01020304 19 000000000000f03f 22 10 0100000000000000 0200000000000000
          2a 08 08 9601 12 03 0a 01 61 32 00 08 01
          """))
    writer.fail()
    #expect(!writer.isComplete)
  }

  @Test func sizes() throws {
    for bit in 0..<64 {
      for value in [UInt64(1) << UInt64(bit), (UInt64(1) << UInt64(bit)) - 1] {
        let out = ByteBuffer()
        var writer = ProtoWriter(into: out)
        writer.varint(1, value)
        #expect(ProtoWriter.varintSize(value) == out.count - 1)
      }
    }
    let out = ByteBuffer()
    var writer = ProtoWriter(into: out)
    let long = [UInt8](repeating: 1, count: 300)
    with(long) { writer.bytes(1_000, $0) }
    #expect(ProtoWriter.bytesFieldSize(1_000, 300) == out.count)
    #expect(ProtoWriter.bytesFieldSize(1, Int.max) == nil)
  }

  @Test func randomFieldsRoundTrip() {
    var random = Random()
    for _ in 0..<rounds {
      let out = ByteBuffer()
      var writer = ProtoWriter(into: out)
      var items: [Item] = []
      for _ in 0..<random.below(8) {
        let number = UInt32(1 + random.below(random.below(2) == 0 ? 20 : 536_870_911))
        if random.below(2) == 0 {
          let value = random.next() >> UInt64(random.below(64))
          writer.varint(number, value)
          items.append(.varint(number, value))
        } else {
          let value = random.bytes(upTo: 200)
          with(value) { writer.bytes(number, $0) }
          items.append(.bytes(number, value))
        }
      }
      #expect(Self.read(bytes(out.view)) == items, "PENSTOCK_SEED=\(Seed.value)")
    }
  }

  @Test func randomBytesAreReadOrRefused() {
    var random = Random()
    for _ in 0..<rounds {
      _ = Self.read(
        random.bytes(upTo: 60, of: random.below(2) == 0 ? "" : "\u{8}\u{a}\u{b}\u{c}\u{d}\u{9}\u{1}\u{2}"))
    }
  }
}
