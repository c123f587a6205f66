import PenstockWire
import Testing

/// The names and values that are allowed in metadata (gRPC over HTTP2, "Requests", Custom-Metadata; RFC 9113
/// section 8.2).
@Suite struct HeaderRulesTests {
  @Test func namesByteByByte() {
    let allowed = Set("0123456789abcdefghijklmnopqrstuvwxyz_-.".utf8)
    for byte in UInt8.min...UInt8.max {
      #expect(with([byte]) { HeaderRules.isValidName($0) } == allowed.contains(byte))
      #expect(with([0x61, byte]) { HeaderRules.isValidName($0) } == allowed.contains(byte))
    }
    #expect(!with("") { HeaderRules.isValidName($0) })
  }

  @Test func lowersASCIIOnly() {
    #expect(
      with("X-Custom_ID.9\u{C9}@[") { v in written { HeaderRules.lowercased(v, into: $0) } }
        == bytes("x-custom_id.9\u{C9}@["))
  }

  @Test func asciiValues() {
    for byte in UInt8.min...UInt8.max {
      let isVisible = byte > 0x20 && byte < 0x7F
      #expect(with([byte]) { HeaderRules.isValidASCIIValue($0) } == isVisible)
      #expect(with([0x61, byte, 0x61]) { HeaderRules.isValidASCIIValue($0) } == (isVisible || byte == 0x20))
    }
    #expect(with("") { HeaderRules.isValidASCIIValue($0) })
    #expect(!with(" a") { HeaderRules.isValidASCIIValue($0) })
    #expect(!with("a ") { HeaderRules.isValidASCIIValue($0) })
  }

  /// A received value may have any byte but control characters other than tabs.
  @Test func receivedValues() {
    for byte in UInt8.min...UInt8.max {
      let isAllowed = byte == 0x09 || byte >= 0x20 && byte != 0x7F
      #expect(with([byte]) { HeaderRules.isFieldValue($0) } == isAllowed, "\(byte)")
      #expect(with([0x61, byte]) { HeaderRules.isFieldValue($0) } == isAllowed, "\(byte)")
    }
    #expect(with("") { HeaderRules.isFieldValue($0) })
  }

  @Test(arguments: [(" \ta b\t ", "a b"), ("", ""), ("  ", ""), ("a", "a")])
  func trims(value: String, expected: String) {
    #expect(with(value) { bytes(HeaderRules.trimmed($0)) } == bytes(expected))
  }

  @Test(arguments: [
    ("a-bin", true), ("A-BIN", true), ("trace-proto-bin", true), ("-bin", false), ("bin", false),
    ("a-bi", false),
    ("a-binx", false), ("", false), ("a-bin ", false),
  ])
  func binary(name: String, expected: Bool) { #expect(with(name) { HeaderRules.isBinary($0) } == expected) }

  @Test(arguments: [
    ":path", ":", "grpc-", "grpc-status", "grpc-timeout", "GRPC-Status", "te", "TE", "content-type",
    "Content-Type",
    "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "host", "content-length",
  ])
  func reserved(name: String) { #expect(with(name) { HeaderRules.isReserved($0) }) }

  @Test(arguments: [
    "", "a", "grpc", "grp", "x-grpc-test", "tea", "t", "content", "content-types", "user-agent",
    "authorization",
    "hosts", "trailer", "up", "c", "g", "h", "k", "p", "u",
  ])
  func free(name: String) { #expect(!with(name) { HeaderRules.isReserved($0) }) }

  static func split(_ wire: [UInt8]) -> [[UInt8]] {
    var values: [[UInt8]] = []
    with(wire) { HeaderRules.forEachBinaryValue($0) { values.append(bytes($0)) } }
    return values
  }

  /// Splits a binary header at its commas: "Implementations must split Binary-Headers on "," before decoding
  /// the Base64-encoded values."
  @Test(arguments: [
    ("", [""]), ("Zg", ["Zg"]), ("Zg==,Zm8=", ["Zg==", "Zm8="]), ("Zg, Zm8 ,\tZm9v", ["Zg", "Zm8", "Zm9v"]),
    (",", ["", ""]), ("Zg,,Zg", ["Zg", "", "Zg"]), ("Zg,", ["Zg", ""]),
  ])
  func commaJoined(wire: String, expected: [String]) {
    #expect(Self.split(bytes(wire)) == expected.map { bytes($0) })
  }

  @Test func randomValuesSurviveJoining() {
    var random = Random()
    for _ in 0..<rounds {
      var values: [[UInt8]] = []
      for _ in 0...random.below(4) { values.append(random.bytes(upTo: 9)) }
      let coded = values.map { value in
        with(value) { v in written { Base64.encode(v, padded: random.below(2) == 0, into: $0) } } ?? []
      }
      let joined = Array(coded.joined(separator: random.below(2) == 0 ? bytes(",") : bytes(", ")))
      let back = Self.split(joined).map { part in
        let out = ByteBuffer()
        #expect(with(part) { Base64.decode($0, into: out) } == .ok)
        return bytes(out.view)
      }
      #expect(back == values, "PENSTOCK_SEED=\(Seed.value)")
    }
  }

  @Test func randomBytesAreClassifiedWithoutTraps() {
    var random = Random()
    for _ in 0..<rounds {
      with(random.bytes(upTo: 20, of: random.below(2) == 0 ? "" : "tecongrp-:binypl/ ,;+")) { view in
        #expect(bytes(HeaderRules.trimmed(HeaderRules.trimmed(view))) == bytes(HeaderRules.trimmed(view)))
        _ = (HeaderRules.isReserved(view), HeaderRules.isBinary(view), HeaderRules.isValidName(view))
        _ = HeaderRules.isValidASCIIValue(view)
        _ = ContentType.classify(view)
      }
    }
  }
}

/// The content types that mean gRPC (gRPC over HTTP2, "Requests", Content-Type).
@Suite struct ContentTypeTests {
  @Test(arguments: [
    "application/grpc", "application/grpc+proto", "application/grpc+json", "application/grpc+x",
    "application/grpc;charset=utf-8", "application/grpc ; a=b", "Application/GRPC+Proto",
    " application/grpc ",
    "application/grpc+proto; a=b", "application/grpc;",
  ])
  func grpc(value: String) { #expect(with(value) { ContentType.classify($0) } == .grpc) }

  @Test(arguments: [
    "", "text/html", "application/grpc-web", "application/grpcx", "application/grp", "application/json",
    "application/grpc web", "xapplication/grpc", "application/grpc-web+proto", "application/grpc,text/html",
  ])
  func other(value: String) { #expect(with(value) { ContentType.classify($0) } == .notGRPC) }

  @Test func missing() { #expect(ContentType.classify(nil) == .notGRPC) }

  private static let fitting: [(String, String)] = [
    ("application/grpc-web+json", "fits"), ("Application/GRPC-Web+JSON", "fits"),
    (" application/grpc-web+json ; a=b", "fits"), ("application/grpc-web+json;charset=utf-8", "fits"),
    ("application/grpc-web+proto", "otherEncoding"), ("application/grpc-web+jsonx", "otherEncoding"),
    ("application/grpc-web+jso", "otherEncoding"), ("application/grpc-web+", "otherEncoding"),
    ("application/grpc-web+xson", "otherEncoding"), ("application/grpc-web", "foreign"),
    ("application/grpc", "foreign"),
    ("application/grpc-web-text", "foreign"), ("", "foreign"), ("text/html", "foreign"),
  ]

  /// The content-type of an answer, after "application/grpc-web+" and with an encoding of messages.
  @Test(arguments: fitting)
  func fits(_ value: String, _ expected: String) {
    func fit(_ isOptional: Bool) -> String {
      with("json") { encoding in
        with(value) { "\(ContentType.fit($0, "application/grpc-web+", encoding, isOptional: isOptional))" }
      }
    }
    #expect(fit(false) == expected)
    #expect(fit(true) == (value == "application/grpc-web" ? "fits" : expected))
  }

  @Test func fitsProto() {
    func fit(_ value: String) -> ContentType.Fit { with(value) { ContentType.fit($0, "application/", nil) } }
    #expect(fit("application/proto") == .fits && fit("application/json") == .otherEncoding)
    #expect(fit("application") == .foreign && ContentType.fit(nil, "application/", nil) == .foreign)
  }
}

@Suite struct UserAgentTests {
  static func compose(_ version: String, _ application: String?) -> String? {
    let product = application.flatMap { a in with(a) { ByteBuffer(copying: $0) } }
    return with(version) { v in
      written { UserAgent.compose(version: v, application: product?.view, into: $0) }
    }.map { String(decoding: $0, as: UTF8.self) }
  }

  @Test func composed() {
    #expect(Self.compose("0.1.0", nil) == "penstock/0.1.0")
    #expect(Self.compose("0.1.0", "app/2 (x)") == "app/2 (x) penstock/0.1.0")
    #expect(Self.compose("0.1.0", "") == "penstock/0.1.0")
    #expect(Self.compose("0.1.0", " \r\n app\u{e9}\u{7F}/1 ") == "app/1 penstock/0.1.0")
    #expect(Self.compose("~", "!a ~") == "!a ~ penstock/~")
    #expect(Self.compose("1", " ") == "penstock/1" && Self.compose("1", "a") == "a penstock/1")
    #expect(Self.compose(" 1 2 ", "a  b") == "a  b penstock/1 2")
  }

  @Test func alwaysAValidValue() {
    var random = Random()
    for _ in 0..<rounds {
      let application = random.bytes(upTo: 12, of: random.below(2) == 0 ? "" : " \ta/1")
      let out = ByteBuffer()
      #expect(
        with(application) {
          UserAgent.compose(version: ("1" as StaticString).bytes, application: $0, into: out)
        })
      #expect(HeaderRules.isValidASCIIValue(out.view), "PENSTOCK_SEED=\(Seed.value) \(application)")
    }
  }
}
