import PenstockCall
import PenstockTestSupport
import PenstockWire
import Testing

@testable import PenstockReady

/// Tests of the headers "traceparent" and "tracestate" (W3C Trace Context, level 1).
@Suite struct TraceTests {
  private static let trace = "0af7651916cd43dd8448eb211c80319c"
  private static let span = "b7ad6b7169203331"

  private func metadata(_ pairs: [(String, String)]) -> Metadata {
    let made = Metadata()
    for (name, value) in pairs {
      let (name, value) = (bytes(name), bytes(value))
      #expect(made.add(name.view, value.view) == .ok)
    }
    return made
  }

  @Test(arguments: [
    ("00-\(trace)-\(span)-01", true), ("00-\(trace)-\(span)-00", true), ("00-\(trace)-\(span)-ff", true),
    ("01-\(trace)-\(span)-01", true), ("fe-\(trace)-\(span)-01", true), ("0f-\(trace)-\(span)-01", true),
    ("f0-\(trace)-\(span)-01", true), ("ff-\(trace)-\(span)-01", false), ("01-\(trace)-\(span)-01-x", true),
    ("10-\(trace)-\(span)-01-x", true), ("01-\(trace)-\(span)-01-", true), ("01-\(trace)-\(span)-01x", false),
    ("00-\(trace)-\(span)-01-x", false), ("00-\(trace)-\(span)-01-", false), ("00-\(trace)-\(span)-0", false),
    ("", false), ("00-\(trace)-\(span)", false), ("00_\(trace)-\(span)-01", false),
    ("00-\(trace)_\(span)-01", false), ("00-\(trace)-\(span)_01", false), ("0g-\(trace)-\(span)-01", false),
    ("0A-\(trace)-\(span)-01", false), ("00-\(trace)-\(span)-0A", false), ("00-\(trace)-\(span)-0/", false),
    ("00-\(trace)-\(span)-:0", false), ("00-\(trace)-\(span)-`0", false), ("00-\(trace)-\(span)-g0", false),
    ("00-00000000000000000000000000000000-\(span)-01", false), ("00-\(trace)-0000000000000000-01", false),
    ("00-00000000000000000000000000000001-0000000000000001-01", true),
    ("00-10000000000000000000000000000000-1000000000000000-01", true),
    ("00-\(trace.uppercased())-\(span)-01", false), ("00-\(trace)-\(span.uppercased())-01", false),
    ("00-\(trace.dropLast())g-\(span)-01", false), ("00-\(trace)-g\(span.dropFirst())-01", false),
  ])
  func traceparents(text: String, isValid: Bool) {
    let given = bytes(text)
    #expect(TraceContext.isValid(given.view) == isValid)
    let read = TraceParent(in: metadata(text.isEmpty ? [] : [("traceparent", text)]))
    #expect((read != nil) == isValid)
    withExtendedLifetime(given) {}
  }

  @Test func aTraceparentIsReadAndWritten() throws {
    for flags in ["00", "01", "02", "03", "fe", "ff"] {
      let isSampled = ["01", "03", "ff"].contains(flags)
      let read = try #require(
        TraceParent(in: metadata([("traceparent", "00-\(Self.trace)-\(Self.span)-\(flags)")])))
      #expect(read.high == 0x0af7_6519_16cd_43dd && read.low == 0x8448_eb21_1c80_319c)
      #expect(read.span == 0xb7ad_6b71_6920_3331 && read.isSampled == isSampled)
      let written = metadata([("traceparent", "x"), ("traceparent", "y")])
      #expect(read.write(to: written) && written.count == 1)
      #expect(text(written.value(at: 0)) == "00-\(Self.trace)-\(Self.span)-\(isSampled ? "01" : "00")")
    }
    let twice = ("traceparent", "00-\(Self.trace)-\(Self.span)-01")
    #expect(TraceParent(in: metadata([twice, twice])) == nil)
    let small = TraceParent(high: 0, low: 0x1234, span: 0xabcdef, isSampled: true)
    let written = metadata([])
    #expect(small.write(to: written))
    #expect(text(written.value(at: 0)) == "00-00000000000000000000000000001234-0000000000abcdef-01")
  }

  private static func members(_ count: Int) -> String {
    (0..<count).map { "k\($0)=v" }.joined(separator: ",")
  }
  private static func letters(_ count: Int) -> String { String(repeating: "a", count: count) }

  @Test(
    arguments: [
      ([], true), ([""], true), ([" , ,"], true), (["a=b"], true), ([" a=b ,\tc=d "], true),
      (["a=b", "c=d"], true), (["a=b", "c"], false), (["a"], false), (["a="], false), (["=b"], false),
      (["a=b=c"], false), (["a=b c"], true), (["a= b"], true), (["a=!~"], true), (["a=\u{7f}"], false),
      (["a=\u{e9}"], false), (["A=b"], false), (["aA=b"], false), (["a{=b"], false), (["a`=b"], false),
      (["z=b"], true), (["a0_-*/=b"], true), (["a.=b"], false), (["a:=b"], false), (["0=b"], false),
      (["9a=b"], false), (["_a=b"], false), (["a@b=c"], true), (["0@b=c"], true), (["9a@b=c"], true),
      (["a@0=c"], false), (["a@b@c=d"], false), (["@b=c"], false), (["a@=c"], false), (["_@b=c"], false),
      ([members(32)], true), ([members(33)], false), ([members(16), members(16)], true),
      ([members(16), members(17)], false), (["\(letters(256))=b"], true), (["\(letters(257))=b"], false),
      (["a=\(letters(256))"], true), (["a=\(letters(257))"], false),
      (["\(letters(241))@\(letters(14))=b"], true),
      (["\(letters(242))@\(letters(13))=b"], false), (["a@\(letters(14))=b"], true),
      (["a@\(letters(15))=b"], false), ([members(32) + ",,"], true),
    ] as [([String], Bool)])
  func tracestates(values: [String], isValid: Bool) {
    let given = Metadata()
    let name = bytes("tracestate")
    for value in values {
      let value = bytes(value)
      #expect(given.add(name.view, value.view) == .ok)
    }
    #expect(TraceState.isValid(given) == isValid)
  }

  // MARK: - Chance

  @Test func aSeedGivesItsSequence() {
    // The first numbers of SplitMix64 with the seed 0.
    let dice = Dice(seed: 0)
    #expect(dice.roll() == 0xe220_a839_7b1d_cdaf)
    #expect(dice.roll() == 0x6e78_9e6a_a1b9_65f4)
    #expect(dice.rollID() == 0x06c4_5d18_8009_454f)
  }

  @Test func chancesOfEachSize() {
    let dice = Dice(seed: 1)
    func times(_ percent: Double) -> Int {
      (0..<10_000).count { _ in dice.happens(Chance(percent: percent)) }
    }
    #expect(times(0) == 0)
    #expect(times(100) == 10_000)
    #expect((2_000...3_000).contains(times(25)))
    #expect(Chance(percent: 50).threshold == 1 << 31)
    #expect(Chance(percent: 100).threshold == 1 << 32)
    #expect(Chance(percent: 0).threshold == 0)
  }

  // MARK: - The attributes of spans

  @Test(
    arguments: [
      ("host:80", "host", 80), ("host", "host", nil), ("", "", nil), ("10.0.0.1:443", "10.0.0.1", 443),
      ("[::1]:443", "::1", 443), ("[::1]", "::1", nil), ("::1", "::1", nil), ("fe80::1:2", "fe80::1:2", nil),
      ("[::1", "[::1", nil), ("::1]", "::1]", nil), ("[::1]:", "::1", 0), ("host:0", "host", 0),
      ("host:65535", "host", 65535), ("host:x", "host:x", nil), ("host:8x", "host:8x", nil),
      ("host:/", "host:/", nil), ("host::", "host::", nil), ("host:99", "host", 99),
      ("host:6553500", "host:6553500", nil), ("a:b:1", "a:b:1", nil), ("[a]b:1", "[a]b", 1),
      ("unix:/run/x:1", "/run/x:1", nil), ("unix:x", "x", nil), ("unix:///run/x", "/run/x", nil),
      ("unix:", "unix", 0), ("unix://", "//", nil), ("unix://x", "x", nil), ("unix:a//b", "a//b", nil),
      ("unix:/x/", "/x/", nil),
    ] as [(String, String, Int64?)])
  func partsOfAnAddress(given: String, host: String, port: Int64?) {
    let given = bytes(given)
    let parts = Span.parts(of: given.view)
    #expect(text(parts.host) == host && parts.port == port)
    withExtendedLifetime(given) {}
  }
}
