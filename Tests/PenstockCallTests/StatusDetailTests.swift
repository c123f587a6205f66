import PenstockWire
import Testing

@testable import PenstockCall

/// The details of a status: added, replaced, removed, copied.
@Suite struct StatusDetailTests {
  private func details(_ status: Status) -> [String] {
    (0..<status.detailCount).map { index in
      guard let detail = status.detail(at: index) else { return "none" }
      // The type URL is a C string, too.
      let end = UnsafeRawBufferPointer(start: detail.typeURL.baseAddress, count: detail.typeURL.count + 1)
        .last
      return "\(text(detail.typeURL)) \(text(detail.value)) \(end == 0 ? "" : "no NUL")".trimmed
    }
  }

  private func text(_ bytes: ByteView) -> String { String(decoding: bytes, as: UTF8.self) }

  private func add(_ type: String, _ value: String, to status: Status) -> Bool {
    let (type, value) = (Array(type.utf8), Array(value.utf8))
    return type.withUnsafeBytes { type in value.withUnsafeBytes { status.addDetail(typeURL: type, value: $0) }
    }
  }

  private func filled(_ count: Int = 4) -> Status {
    let status = Status(.notFound)
    for index in 0..<count { #expect(add("x.org/t\(index % 2)", "v\(index)", to: status)) }
    return status
  }

  @Test func changes() {
    let status = filled()
    #expect(details(status) == ["x.org/t0 v0", "x.org/t1 v1", "x.org/t0 v2", "x.org/t1 v3"])
    #expect(status.detail(at: 4) == nil && status.detail(at: -1) == nil)
    let (bare, whole, value) = (Array("t1".utf8), Array("x.org/t0".utf8), Array("a longer value".utf8))
    #expect(
      bare.withUnsafeBytes { type in value.withUnsafeBytes { status.setDetail(typeURL: type, value: $0) } })
    #expect(details(status) == ["x.org/t0 v0", "x.org/t1 a longer value", "x.org/t0 v2", "x.org/t1 v3"])
    #expect(whole.withUnsafeBytes { status.removeDetails($0) })
    #expect(details(status) == ["x.org/t1 a longer value", "x.org/t1 v3"])
    #expect(!whole.withUnsafeBytes { status.removeDetails($0) })
    status.clearDetails()
    #expect(details(status) == [] && status.detail(at: 0) == nil)
    #expect(add("", "", to: status) && status.detailCount == 1)
  }

  /// The offsets in the list have 32 bits. What would go beyond is refused before it is read: the views here are
  /// longer than their bytes.
  @Test func refusesMoreThanOffsetsCanSay() {
    let status = filled(2)
    let type = Array("t1".utf8)
    withUnsafeBytes(of: UInt64(0)) { bytes in
      let huge = ByteView(start: bytes.baseAddress, count: 1 << 32)
      #expect(!status.addDetail(typeURL: bytes, value: huge))
      #expect(!status.addDetail(typeURL: huge, value: bytes))
      #expect(!type.withUnsafeBytes { status.setDetail(typeURL: $0, value: huge) })
    }
    #expect(details(status) == ["x.org/t0 v0", "x.org/t1 v1"])
  }

  /// The arguments may be parts of a detail of the same status.
  @Test func ownParts() throws {
    for count in 1...20 {
      let status = filled(count)
      let last = try #require(status.detail(at: count - 1))
      #expect(status.addDetail(typeURL: last.typeURL, value: last.value))
      #expect(details(status).last == "x.org/t\((count - 1) % 2) v\(count - 1)")
      let first = try #require(status.detail(at: 0))
      #expect(status.setDetail(typeURL: first.typeURL, value: first.typeURL))
      #expect(details(status).first == "x.org/t0 x.org/t0")
      let again = try #require(status.detail(at: 0))
      #expect(status.removeDetails(again.typeURL))
      #expect(details(status).allSatisfy { $0.hasPrefix("x.org/t1") })
    }
  }

  @Test func copies() {
    let status = filled()
    let copy = status.copy()
    #expect(add("x.org/t9", "v9", to: status))
    #expect(details(copy) == ["x.org/t0 v0", "x.org/t1 v1", "x.org/t0 v2", "x.org/t1 v3"])
    copy.clearDetails()
    #expect(status.detailCount == 5)
    #expect(Status(.ok).copy().detailCount == 0)
  }

  /// The encoded form has the same details, and a malformed detail leaves none.
  @Test func decoding() {
    let status = filled()
    let encoded = ByteBuffer()
    #expect(status.encodeDetails(into: encoded))
    let again = Status(.notFound)
    again.takeDetails(encoded.view)
    #expect(details(again) == details(status) && !again.detailsAreMalformed)
    #expect(encoded.append(byte: 0x1A) && encoded.append(byte: 1) && encoded.append(byte: 0x0A))
    let malformed = Status(.notFound)
    malformed.takeDetails(encoded.view)
    #expect(malformed.detailCount == 0 && malformed.detailsAreMalformed)
  }
}

extension String {
  fileprivate var trimmed: String { hasSuffix(" ") ? String(dropLast()) : self }
}
