import PenstockWire
import Testing

/// The encoding of grpc-message (gRPC over HTTP2, "Responses", Percent-Encoded).
@Suite struct PercentCodingTests {
  static let vectors: [(String, String)] = [
    ("", ""), ("plain text ~", "plain text ~"), ("100%", "100%25"), ("a\nb\tc", "a%0Ab%09c"),
    ("\u{e9}", "%C3%A9"), ("\u{0}\u{7F}", "%00%7F"), ("\u{1F600}", "%F0%9F%98%80"), (" ", " "),
  ]

  @Test(arguments: vectors)
  func golden(plain: String, coded: String) {
    #expect(with(plain) { v in written { PercentCoding.encode(v, into: $0) } } == bytes(coded))
    #expect(with(coded) { v in written { PercentCoding.decode(v, into: $0) } } == bytes(plain))
  }

  /// Malformed escapes stay as they are: "implementations MUST NOT error or throw away the message".
  @Test(arguments: [
    ("%", "%"), ("%4", "%4"), ("%G1", "%G1"), ("%1G", "%1G"), ("%%41", "%A"), ("%4%41", "%4A"), ("a%", "a%"),
    ("%c3%a9", "\u{e9}"), ("%C3%a9", "\u{e9}"), ("%2541", "%41"), ("+", "+"), ("%-1", "%-1"), ("% 1", "% 1"),
  ])
  func broken(coded: String, expected: String) {
    #expect(with(coded) { v in written { PercentCoding.decode(v, into: $0) } } == bytes(expected))
  }

  @Test func randomBytesRoundTrip() {
    var random = Random()
    for _ in 0..<rounds {
      let plain = random.bytes(upTo: 80, of: random.below(2) == 0 ? "" : "%a0Zz \n")
      let coded = with(plain) { v in written { PercentCoding.encode(v, into: $0) } } ?? []
      #expect(coded.allSatisfy { $0 >= 0x20 && $0 <= 0x7E })
      let back = with(coded) { v in written { PercentCoding.decode(v, into: $0) } }
      #expect(back == plain, "PENSTOCK_SEED=\(Seed.value)")
    }
  }

  @Test func randomTextDecodes() {
    var random = Random()
    for _ in 0..<rounds {
      let coded = random.bytes(upTo: 30, of: "%%%09afAFgG")
      let out = with(coded) { v in written { PercentCoding.decode(v, into: $0) } }
      #expect((out?.count ?? .max) <= coded.count)
    }
  }
}

/// The repair of malformed UTF-8 (the Unicode standard, section 3.9).
@Suite struct UTF8RepairTests {
  static func repair(_ input: [UInt8]) -> [UInt8]? {
    with(input) { v in written { UTF8Repair.repair(v, into: $0) } }
  }

  @Test(arguments: [
    "", "abc", "\u{80}", "\u{7FF}", "\u{800}", "\u{D7FF}", "\u{E000}", "\u{FFFF}", "\u{10000}", "\u{10FFFF}",
    "mixed \u{e9}\u{1F600}",
  ])
  func wellFormed(text: String) {
    #expect(with(text) { UTF8Repair.isValid($0) })
    #expect(Self.repair(bytes(text)) == bytes(text))
  }

  /// The examples of tables 3-8 to 3-11 in the Unicode standard, and single broken bytes. In the expected
  /// texts "?" stands for U+FFFD.
  @Test(arguments: [
    ("C0 AF E0 80 BF F0 81 82 41", "????????A"),
    ("ED A0 80 ED BF BF ED AF 41", "????????A"),
    ("F4 91 92 93 FF 41 80 BF 42", "?????A??B"),
    ("E1 80 E2 F0 91 92 F1 BF 41", "????A"),
    ("61 F1 80 80 E1 80 C2 62 80 63 80 BF 64", "a???b?c??d"),
    ("80", "?"), ("C2", "?"), ("E2 82", "?"), ("F0 9F 98", "?"), ("F5 80 80 80", "????"), ("61 FF", "a?"),
    ("C2 41", "?A"), ("E2 82 41", "?A"),
  ])
  func illFormed(input: String, expected: String) {
    #expect(!with(hex(input)) { UTF8Repair.isValid($0) })
    #expect(Self.repair(hex(input)) == bytes(expected.replacing("?", with: "\u{FFFD}")))
  }

  @Test func randomBytesAgreeWithTheStandardLibrary() {
    var random = Random()
    for _ in 0..<rounds {
      var input = random.bytes(upTo: 40, of: "")
      // Most of the bytes are lead and continuation bytes near the limits of table 3-7.
      let borders: [UInt8] = [
        0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5,
      ]
      for i in input.indices where random.below(8) != 0 { input[i] = borders[random.below(borders.count)] }
      let expected = Array(String(decoding: input, as: UTF8.self).utf8)
      #expect(Self.repair(input) == expected, "PENSTOCK_SEED=\(Seed.value) \(input)")
      #expect(
        with(input) { UTF8Repair.isValid($0) } == (expected == input), "PENSTOCK_SEED=\(Seed.value) \(input)")
    }
  }
}

/// The encoding of "-bin" values (gRPC over HTTP2, "Requests", Binary-Header), with the examples of RFC 4648
/// section 10.
@Suite struct Base64Tests {
  static func decode(_ value: String) -> (Base64.Outcome, [UInt8]) {
    let out = ByteBuffer()
    let outcome = with(value) { Base64.decode($0, into: out) }
    return (outcome, bytes(out.view))
  }

  @Test(arguments: [
    ("", "", ""), ("f", "Zg==", "Zg"), ("fo", "Zm8=", "Zm8"), ("foo", "Zm9v", "Zm9v"),
    ("foob", "Zm9vYg==", "Zm9vYg"), ("fooba", "Zm9vYmE=", "Zm9vYmE"), ("foobar", "Zm9vYmFy", "Zm9vYmFy"),
  ])
  func golden(plain: String, padded: String, bare: String) {
    #expect(with(plain) { v in written { Base64.encode(v, padded: true, into: $0) } } == bytes(padded))
    #expect(with(plain) { v in written { Base64.encode(v, padded: false, into: $0) } } == bytes(bare))
    #expect(Self.decode(padded) == (.ok, bytes(plain)))
    #expect(Self.decode(bare) == (.ok, bytes(plain)))
  }

  @Test func everyLetter() {
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    let (outcome, plain) = Self.decode(alphabet)
    #expect(outcome == .ok && plain.count == 48)
    #expect(with(plain) { v in written { Base64.encode(v, padded: true, into: $0) } } == bytes(alphabet))
  }

  /// The decoder accepts values with a part of their padding missing, and values with bits other than 0
  /// behind the last byte.
  @Test func tolerated() {
    #expect(Self.decode("Zg=") == (.ok, bytes("f")))
    #expect(Self.decode("Zh==") == (.ok, bytes("f")))
    #expect(Self.decode("Zm9") == (.ok, bytes("fo")))
  }

  @Test(arguments: [
    "A", "AAAAA", "=", "==", "A=", "A==", "A===", "Zg===", "Zm8==", "Zm9v=", "Zm9v==", "Zg==Zg==", "Z g=",
    "Zm9v\n",
    "_-8=", "Zm9v,Zm9v", "Zm\u{e9}", "Zg=A",
  ])
  func malformed(value: String) { #expect(Self.decode(value) == (.malformed, [])) }

  @Test func malformedLeavesTheBufferAlone() {
    let out = ByteBuffer()
    #expect(out.append("kept"))
    #expect(with("Zm9vYmF!") { Base64.decode($0, into: out) } == .malformed)
    #expect(text(out) == "kept")
  }

  @Test func randomBytesRoundTrip() {
    var random = Random()
    for _ in 0..<rounds {
      let plain = random.bytes(upTo: 70)
      let isPadded = random.below(2) == 0
      let coded = with(plain) { v in written { Base64.encode(v, padded: isPadded, into: $0) } } ?? []
      let out = ByteBuffer()
      #expect(with(coded) { Base64.decode($0, into: out) } == .ok, "PENSTOCK_SEED=\(Seed.value)")
      #expect(bytes(out.view) == plain, "PENSTOCK_SEED=\(Seed.value)")
    }
  }

  @Test func randomTextDecodesOrNot() {
    var random = Random()
    for _ in 0..<rounds {
      let value = random.bytes(upTo: 12, of: "ABz09+/=")
      let (outcome, plain) = Self.decode(String(decoding: value, as: UTF8.self))
      if outcome == .ok {
        let letters = value.filter { $0 != 0x3D }
        #expect(plain.count == letters.count * 6 / 8)
      } else {
        #expect(outcome == .malformed && plain.isEmpty)
      }
    }
  }
}
