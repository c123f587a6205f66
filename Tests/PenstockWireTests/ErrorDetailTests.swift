import PenstockWire
import Testing

/// A visitor that writes the visited fields as JSON text, with 64-bit integers as strings (ProtoJSON).
private struct JSONText: ErrorDetailVisitor {
  var text = ""
  private var isFirst = true

  private mutating func separate() {
    if !isFirst { text += "," }
    isFirst = false
  }

  mutating func beginObject() {
    separate()
    text += "{"
    isFirst = true
  }

  mutating func endObject() {
    text += "}"
    isFirst = false
  }

  mutating func beginArray() {
    separate()
    text += "["
    isFirst = true
  }

  mutating func endArray() {
    text += "]"
    isFirst = false
  }

  mutating func key(_ name: ByteView) {
    separate()
    text += "\"" + String(decoding: name, as: UTF8.self) + "\":"
    isFirst = true
  }

  mutating func string(_ value: ByteView) {
    separate()
    #expect(UTF8Repair.isValid(value))
    text += "\"" + String(decoding: value, as: UTF8.self) + "\""
  }

  mutating func int(_ value: Int64) {
    separate()
    text += "\"\(value)\""
  }
}

/// The error details of google/rpc/error_details.proto. The vectors (bytes and JSON) were made with
/// googleapis-common-protos.
@Suite struct ErrorDetailTests {
  static func json(_ type: String, _ value: [UInt8]) -> String? {
    var visitor = JSONText()
    let isDecoded = with(type) { url in
      with(value) { ErrorDetail.visit(typeURL: url, value: $0, visitor: &visitor) }
    }
    #expect(isDecoded || visitor.text.isEmpty)
    return isDecoded ? visitor.text : nil
  }

  static func json(of name: String, _ value: String) -> String? {
    json("type.googleapis.com/google.rpc." + name, hex(value))
  }

  static let vectors: [(String, String, String)] = [
    (
      "ErrorInfo",
      """
      0a0c4150495f44495341424c4544120e676f6f676c65617069732e636f6d1a110a07736572766963651206707562737562
      1a070a016b1202c3a9
      """,
      #"{"reason":"API_DISABLED","domain":"googleapis.com","metadata":{"service":"pubsub","k":"é"}}"#
    ),
    ("RetryInfo", "0a1608fdffffffffffffffff011098f8ffffffffffffff01", #"{"retryDelay":"-3.000001s"}"#),
    ("DebugInfo", "0a03613a310a000a03623a32120164", #"{"stackEntries":["a:1","","b:2"],"detail":"d"}"#),
    (
      "QuotaFailure",
      """
      0a290a01731201641a016122016d2a0169320b0a06726567696f6e12017238f9ffffffffffffffff0140000a0a3880808080808080
      8040
      """,
      #"{"violations":[{"subject":"s","description":"d","apiService":"a","quotaMetric":"m","quotaId":"i","#
        + #""quotaDimensions":{"region":"r"},"quotaValue":"-7","futureQuotaValue":"0"},"#
        + #"{"quotaValue":"4611686018427387904"}]}"#
    ),
    (
      "PreconditionFailure", "0a0b0a03544f531201781a0164",
      #"{"violations":[{"type":"TOS","subject":"x","description":"d"}]}"#
    ),
    (
      "BadRequest", "0a180a03612e621201641a0152220b0a0566722d43481202c3a90a022200",
      #"{"fieldViolations":[{"field":"a.b","description":"d","reason":"R","#
        + #""localizedMessage":{"locale":"fr-CH","message":"é"}},{"localizedMessage":{}}]}"#
    ),
    ("RequestInfo", "0a0172120173", #"{"requestId":"r","servingData":"s"}"#),
    (
      "ResourceInfo", "0a017412016e1a016f220164",
      #"{"resourceType":"t","resourceName":"n","owner":"o","description":"d"}"#
    ),
    (
      "Help", "0a0f0a0164120a68747470733a2f2f782f0a00",
      #"{"links":[{"description":"d","url":"https://x/"},{}]}"#
    ),
    ("LocalizedMessage", "0a05656e2d555312016d", #"{"locale":"en-US","message":"m"}"#),
  ]

  @Test(arguments: vectors)
  func golden(name: String, value: String, expected: String) {
    #expect(Self.json(of: name, value) == expected)
    #expect(Self.json(of: name, "") == "{}")
  }

  /// The part of a type URL behind its last slash is the type's name (google/protobuf/any.proto).
  @Test func typeURLs() {
    for url in ["type.googleapis.com/google.rpc.Help", "/google.rpc.Help", "https://a/b/google.rpc.Help"] {
      #expect(Self.json(url, []) == "{}")
      #expect(with(url) { ErrorDetail.isKnown(typeURL: $0) })
    }
    for url in [
      "", "/", "google.rpc.Help", "x/google.rpc.", "x/google.rpc.Helper", "x/google.rpc.hel", "x/Help",
      "x/google.rpc.Help/", "x/google.rpc.Status", "x/google.rpc.Violation",
    ] {
      #expect(Self.json(url, []) == nil)
      #expect(!with(url) { ErrorDetail.isKnown(typeURL: $0) })
    }
  }

  /// The valid range and signs of a Duration, by google/protobuf/duration.proto, and its text in ProtoJSON.
  @Test(
    arguments: [
      (0, 0, "0s"), (3, 0, "3s"), (-3, 0, "-3s"), (1, 500_000_000, "1.5s"), (0, 1, "0.000000001s"),
      (0, 999_999_999, "0.999999999s"), (0, -500_000_000, "-0.5s"), (-1, -10_000_000, "-1.01s"),
      (315_576_000_000, 999_999_999, "315576000000.999999999s"),
      (-315_576_000_000, -999_999_999, "-315576000000.999999999s"),
      (315_576_000_001, 0, nil), (-315_576_000_001, 0, nil), (.max, 0, nil), (.min, 0, nil),
      (0, 1_000_000_000, nil), (0, -1_000_000_000, nil), (0, Int64(Int32.min), nil), (1, -1, nil),
      (-1, 1, nil),
    ] as [(Int64, Int64, String?)])
  func durations(seconds: Int64, nanos: Int64, expected: String?) {
    let out = ByteBuffer()
    var writer = ProtoWriter(into: out)
    writer.int(1, seconds)
    writer.int(2, nanos)
    let text = Self.json("x/google.rpc.RetryInfo", [0x0A, UInt8(out.count)] + bytes(out.view))
    #expect(text == expected.map { #"{"retryDelay":"\#($0)"}"# })
  }

  /// protobuf.dev, "Encoding": if a field that is not repeated comes twice, the last value counts, or the two
  /// messages are merged. A field with the wrong wire type is an unknown field.
  @Test func repeatedAndForeignFields() {
    #expect(Self.json(of: "RequestInfo", "0a0161 0a0162 0807 2b082c") == nil)
    #expect(Self.json(of: "RequestInfo", "0a0161 0a0162 0807 2b08012c") == #"{"requestId":"b"}"#)
    #expect(Self.json(of: "RequestInfo", "0a0161 0a00") == "{}")
    #expect(Self.json(of: "RetryInfo", "0a020801 0a061080cab5ee01") == #"{"retryDelay":"1.5s"}"#)
    #expect(
      Self.json(of: "BadRequest", "0a0a 22030a0161 2203120162")
        == #"{"fieldViolations":[{"localizedMessage":{"locale":"a","message":"b"}}]}"#)
    #expect(Self.json(of: "ErrorInfo", "1a00") == #"{"metadata":{"":""}}"#)
    #expect(Self.json(of: "ErrorInfo", "1a03120161") == #"{"metadata":{"":"a"}}"#)
  }

  @Test(arguments: [
    ("RequestInfo", "0a"), ("RequestInfo", "0a02 61"), ("RequestInfo", "0a01ff"), ("DebugInfo", "0a02c328"),
    ("ErrorInfo", "1a03 0a01ff"), ("ErrorInfo", "1a03 1201ff"), ("ErrorInfo", "1a01 0a"),
    ("Help", "0a03 1201ff"),
    ("BadRequest", "0a05 2203 0a01ff"), ("BadRequest", "0a03 2201 0a"), ("QuotaFailure", "0a01 38"),
    ("RetryInfo", "0a01 08"), ("RetryInfo", "0a020801 0b"),
  ])
  func malformed(name: String, value: String) { #expect(Self.json(of: name, value) == nil) }

  @Test func randomEditsDoNotTrap() {
    var random = Random()
    for round in 0..<rounds * 3 {
      let (name, value, _) = Self.vectors[round % Self.vectors.count]
      if let text = Self.json("x/google.rpc." + name, random.mutated(hex(value))) {
        #expect(text.hasPrefix("{") && text.hasSuffix("}"), "PENSTOCK_SEED=\(Seed.value)")
      }
    }
  }

  @Test func randomBytesDoNotTrap() {
    var random = Random()
    for round in 0..<rounds {
      let (name, _, _) = Self.vectors[round % Self.vectors.count]
      _ = Self.json(
        "x/google.rpc." + name, random.bytes(upTo: 30, of: "\n\u{12}\u{1a}\"\u{8}\u{0}\u{1}\u{2}a"))
    }
  }
}
