import PenstockWire
import Testing

/// Tests of the scanner for JSON from a peer (RFC 8259).
@Suite struct JSONScannerTests {
  /// All strings of a text in their order; a key gets a colon at its end. nil: the text is malformed.
  func strings(_ text: [UInt8]) -> [String]? {
    text.withUnsafeBytes { view in
      var scanner = JSONScanner(view)
      var found: [String] = []
      func read(_ scanner: inout JSONScanner) {
        let out = ByteBuffer()
        switch scanner.peek() {
        case JSONScanner.object:
          guard scanner.opens(JSONScanner.object) else { return }
          while scanner.nextMember(out) {
            found.append(String(decoding: out.view, as: UTF8.self) + ":")
            read(&scanner)
          }
        case JSONScanner.array:
          guard scanner.opens(JSONScanner.array) else { return }
          while scanner.nextElement() { read(&scanner) }
        case 0x22: if scanner.string(into: out) { found.append(String(decoding: out.view, as: UTF8.self)) }
        default: scanner.skip()
        }
      }
      read(&scanner)
      return scanner.isAtEnd ? found : nil
    }
  }

  func strings(_ text: String) -> [String]? { strings(Array(text.utf8)) }

  @Test(
    arguments: [
      ("{}", []), ("[]", []), (" [ ] ", []), ("\u{feff}{\"a\":\"b\"}", ["a:", "b"]),
      ("\u{feff} [\"\u{feff}\"]", ["\u{feff}"]), ("\"a\"", ["a"]),
      ("{\"a\":\"b\",\"c\":[\"d\",{\"e\":\"f\"}]}", ["a:", "b", "c:", "d", "e:", "f"]),
      ("{\"a\":[],\"b\":{},\"c\":[[],{},\"d\"],\"e\":\"f\"}", ["a:", "b:", "c:", "d", "e:", "f"]),
      ("[[],[],{}]", []),
      ("[1,-0.5e+3,0,true,false,null,\"x\"]", ["x"]), ("[0.1E9,1e5,-1]", []),
      ("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", ["\"\\/\u{8}\u{c}\n\r\t"]),
      ("\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"", ["Aé€😀"]),
      ("\"a b\\n c \\u0041 d\"", ["a b\n c A d"]), ("[\"\\n!\", \" \"]", ["\n!", " "]),
      ("\"\\u007f\\u0080\\u07ff\\u0800\\uffff\"", ["\u{7f}\u{80}\u{7ff}\u{800}\u{ffff}"]),
      ("\"\\ud800\\udc00\\udbff\\udfff\"", ["\u{10000}\u{10ffff}"]),
      ("\"\\ud7ff\\ue000\"", ["\u{d7ff}\u{e000}"]), ("\t\r\n [\t\"a\"\r\n]", ["a"]),
      ("[1.0e-7,2E+8,-0,10.25]", []),
      ("\"\\ud83d\"", ["\u{fffd}"]), ("\"\\ude00\\ud83dx\"", ["\u{fffd}\u{fffd}x"]),
      ("\"\\ud83d\\u0041\"", ["\u{fffd}A"]),
      ("\"\\uD83D\\uDE00\"", ["😀"]), ("\"\\u0000\"", ["\u{0}"]), ("\"\u{7f}é\"", ["\u{7f}é"]),
    ] as [(String, [String])])
  func reads(_ text: String, _ expected: [String]) { #expect(strings(text) == expected) }

  @Test(arguments: [
    "", " ", "{", "}", "[", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}",
    "{1:2}", "{\"a\":1 \"b\":2}", "[[] 1]", "[{}[]]", "{\"a\":[] \"b\":2}", "{\"a\":{}\"b\":2}",
    "{\"a\":1]", "[1}", "01", "-", "+1", "1.", ".1", "1e", "1e+", "- 1", "0x1", "1_0", "tru", "nul", "True",
    "NaN", "'a'", "\"a",
    "\"\\", "\"\\u12\"", "\"\\u12g4\"", "\"\\x41\"", "\"\\ud83d\\u12\"", "\"\n\"", "\"\t\"", "[] []", "1 2",
    "{} x", "\u{feff}", "\u{feff}\u{feff}{}", "{}\u{feff}", "\u{fefe}{}", "[\u{0}]",
    "1\u{0}",
  ])
  func refuses(_ text: String) { #expect(strings(text) == nil) }

  /// Every prefix of a text is malformed. A value that was not read is skipped, and its form is checked.
  @Test func prefixesAndSkips() {
    let text = Array("{\"a\": [1.5e3, {\"b\": \"\\u00e9\"}, null], \"c\": \"d\"}".utf8)
    for count in 0..<text.count { #expect(strings(Array(text[..<count])) == nil) }
    text.withUnsafeBytes { view in
      var scanner = JSONScanner(view)
      let key = ByteBuffer()
      var keys: [String] = []
      let opens = scanner.opens(JSONScanner.object)
      while scanner.nextMember(key) { keys.append(String(decoding: key.view, as: UTF8.self)) }
      let isAtEnd = scanner.isAtEnd
      #expect(opens && keys == ["a", "c"] && isAtEnd)
    }
    // A value of another kind than the wanted one is skipped as a whole.
    text.withUnsafeBytes { view in
      var scanner = JSONScanner(view)
      let out = ByteBuffer()
      let isString = scanner.string(into: out)
      let isArray = scanner.opens(JSONScanner.array)
      let isAtEnd = scanner.isAtEnd
      #expect(!isString && !isArray && isAtEnd)
    }
  }

  @Test func wholeNumbers() {
    for (text, number) in [
      ("0", 0), ("3600", 3600), ("3600.5", 3600), ("1e3", 1), ("1000000", 5000),
      ("99999999999999999999999", 5000), ("5000", 5000), ("5001", 5000), ("4999", 4999),
      ("18446744073709551615", 5000), ("18446744073709551616", 5000), ("18446744073709551620", 5000),
      ("184467440737095516160", 5000), (" 7 ", 7), ("0.9", 0), ("-0", nil), ("{}", nil), ("true", nil),
      ("-1", nil), ("\"1\"", nil), ("null", nil), ("[1]", nil),
    ] as [(String, UInt64?)] {
      Array(text.utf8).withUnsafeBytes { view in
        var scanner = JSONScanner(view)
        let found = scanner.wholeNumber(most: 5000)
        let isAtEnd = scanner.isAtEnd
        #expect(found == number && isAtEnd, "\(text)")
      }
    }
  }

  @Test func depth() {
    func nested(_ depth: Int) -> String {
      String(repeating: "[", count: depth) + String(repeating: "]", count: depth)
    }
    #expect(strings(nested(64)) == [] && strings(nested(65)) == nil && strings(nested(1_000_000)) == nil)
    #expect(strings(String(repeating: "{\"a\":", count: 1_000_000)) == nil)
    // Values beside each other are not within each other.
    #expect(strings("[" + String(repeating: "[],{},", count: 100) + "[]]") == [])
    #expect(strings("[" + String(repeating: nested(63) + ",", count: 3) + nested(63) + "]") == [])
    #expect(strings("[" + String(repeating: nested(63) + ",", count: 3) + nested(64) + "]") == nil)
  }
}

/// Tests of base64 that arrives in pieces.
@Suite struct Base64StreamTests {
  func decode(_ text: String, room: Int = 100, cuts: [Int] = []) -> [UInt8]? {
    let letters = Array(text.utf8)
    var stream = Base64Stream()
    var out: [UInt8] = []
    var from = 0
    for to in cuts + [letters.count] {
      let isGood = letters[from..<to].withUnsafeBytes { view in
        var at = 0
        return withUnsafeTemporaryAllocation(byteCount: room, alignment: 1) { space in
          while at < view.count {
            let count = stream.decode(ByteView(rebasing: view[...]), from: &at, into: space)
            if stream.isBroken { return false }
            out += space[..<count]
          }
          return true
        }
      }
      guard isGood else { return nil }
      from = to
    }
    return stream.isAtGroup ? out : nil
  }

  @Test(
    arguments: [
      ("", []), ("AQID", [1, 2, 3]), ("AQ==", [1]), ("AQI=", [1, 2]), ("AQ==AQI=AQID", [1, 1, 2, 1, 2, 3]),
      ("+/+/", [251, 255, 191]),
    ] as [(String, [UInt8])])
  func decodes(_ text: String, _ expected: [UInt8]) {
    for room in [3, 4, 5, 100] {
      #expect(decode(text, room: room) == expected)
      #expect(decode(text, room: room, cuts: Array(0..<text.utf8.count)) == expected)
    }
  }

  @Test(arguments: [
    "A", "AQ", "AQI", "AQ=", "=", "A=", "AQ=A", "AQ=I", "A===", "AQID=", "-_-_", "AQ ID", "AQID\n", "AQ===",
  ])
  func refuses(_ text: String) {
    #expect(decode(text) == nil)
    #expect(decode(text, cuts: Array(0..<text.utf8.count)) == nil)
  }
}

/// Tests of the encodings in a URL's query.
@Suite struct QueryTests {
  @Test func percentCoding() {
    let all = (0...255).map { UInt8($0) }
    let out = ByteBuffer()
    #expect(all.withUnsafeBytes { PercentCoding.encodeForURL($0, into: out) })
    let text = String(decoding: out.view, as: UTF8.self)
    #expect(text.filter { $0 == "%" }.count == 256 - 66 && !text.contains(" ") && text.contains("%FF"))
    let back = ByteBuffer()
    #expect(PercentCoding.decode(out.view, into: back) && [UInt8](back.view) == all)
  }

  @Test func base64() {
    let out = ByteBuffer()
    _ = out.append("+/")
    #expect(([0xFB, 0xFF, 0xBF, 0x01] as [UInt8]).withUnsafeBytes { Base64.encodeForURL($0, into: out) })
    #expect(String(decoding: out.view, as: UTF8.self) == "+/-_-_AQ")
  }
}
