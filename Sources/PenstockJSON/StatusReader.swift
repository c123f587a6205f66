import CPenstockJansson
import PenstockCall
import PenstockWire
import PenstockHTTP

/// Reads the JSON of a status, as `json(_: Status)` writes it, with "code", "name", "message", "metadata" and
/// "details". An unknown member is a failure.
public struct StatusReader {
  public let status = Status(.unknown)
  private var code: StatusCode?
  private var name: StatusCode?
  private var given: JSONReader?
  private var isMalformed = false
  /// The value of "grpc-status-details-bin" in the metadata, decoded from base64.
  private var encoded: ByteBuffer?

  public init() {}

  public mutating func read(_ reader: JSONReader) -> Failure? {
    let failure = reader.members { key, member in
      if bytesEqual(key, "code") {
        return member.int(0...16, "a status code from 0 to 16") { code = StatusCode(rawValue: Int32($0)) }
      }
      if bytesEqual(key, "name") { return readName(member) }
      if bytesEqual(key, "message") {
        guard let text = member.string else { return member.fail("a string") }
        return status.setMessage(text) ? nil : noMemory
      }
      if bytesEqual(key, "metadata") { return readMetadata(member) }
      if bytesEqual(key, "details") {
        given = member
        return member.elements { readDetail($0) }
      }
      if bytesEqual(key, "details_error") {
        isMalformed = true
        return member.string == nil ? member.fail("a string") : nil
      }
      if bytesEqual(key, "body") {
        return member.string { if !$0.isEmpty { status.body = $0 } }
      }
      if bytesEqual(key, "retry_pushback_ms") {
        return member.int(-1...2_147_483_647, "a number of milliseconds, or -1") {
          status.pushback = $0 < 0 ? .never : .after(UInt64($0) * 1_000_000)
        }
      }
      return member.unknown
    }
    if let failure { return failure }
    guard let found = code ?? name else {
      return reader.fail(because: ("\"code\" or \"name\" is missing" as StaticString).bytes)
    }
    if let name, found != name {
      return reader.fail(because: ("\"code\" and \"name\" are different codes" as StaticString).bytes)
    }
    status.setCode(found)
    guard let encoded else { return nil }
    if let given, !isMalformed {
      guard let isSame = agrees(given, with: encoded) else { return noMemory }
      if !isSame { return nil }
      status.clearDetails()
    }
    status.takeDetails(encoded.view)
    return nil
  }

  /// Whether "details" and `encoded` have the same contents. If they differ, the caller uses "details". If
  /// they agree, it uses `encoded`, which may have fields that JSON does not show. nil: no memory.
  private func agrees(_ given: JSONReader, with encoded: ByteBuffer) -> Bool? {
    let other = Status(.unknown)
    other.takeDetails(encoded.view)
    guard let whole = given.whole() else { return nil }
    defer { json_decref(whole) }
    guard let shown = details(other) else { return nil }
    let isSame = json_equal(whole, shown) == 1
    json_decref(shown)
    return isSame
  }

  private mutating func readName(_ reader: JSONReader) -> Failure? {
    guard let text = reader.string else { return reader.fail("the name of a status code") }
    for number in Int32(0)...16 {
      if let known = StatusCode(rawValue: number), bytesEqual(text, known.name) { name = known }
    }
    return name == nil ? reader.fail(because: ("not the name of a status code" as StaticString).bytes) : nil
  }

  private mutating func readMetadata(_ reader: JSONReader) -> Failure? {
    reader.members { key, member in
      guard bytesEqual(key, Status.detailsName) else {
        return PenstockJSON.read(member, named: key, into: status.trailers)
      }
      let one = member.firstElement
      guard let text = one.string else { return member.fail("a base64 string") }
      let decoded = ByteBuffer()
      encoded = decoded
      return withExtendedLifetime(one) { decode(text, of: member, into: decoded) }
    }
  }

  /// Reads one detail: {"@type": type URL, "base64": encoded message}, or with the fields of the message
  /// instead of "base64".
  private func readDetail(_ reader: JSONReader) -> Failure? {
    guard reader.isObject else { return reader.fail("an object") }
    guard let type = reader.member("@type"), let url = type.string, !url.isEmpty, !url.contains(0) else {
      return reader.fail(because: ("\"@type\" has to be a type URL" as StaticString).bytes)
    }
    return withExtendedLifetime(type) { readDetail(reader, url) }
  }

  private func readDetail(_ reader: JSONReader, _ url: ByteView) -> Failure? {
    let value = ByteBuffer()
    let failure: Failure?
    if let bytes = reader.member("base64") {
      failure = readBytes(reader, bytes, into: value)
    } else if let schema = DetailSchema(typeURL: url) {
      failure = DetailReader(skipped: "@type").read(reader, schema, into: value)
    } else {
      failure = reader.fail(
        because: ("\"base64\" is missing, and the type is not one of google.rpc" as StaticString).bytes)
    }
    if let failure { return failure }
    return status.addDetail(typeURL: url, value: value.view) ? nil : noMemory
  }

  private func readBytes(_ reader: JSONReader, _ bytes: JSONReader, into value: ByteBuffer) -> Failure? {
    let failure = reader.members { key, member in
      bytesEqual(key, "@type") || bytesEqual(key, "base64") ? nil : member.unknown
    }
    if let failure { return failure }
    guard let text = bytes.string else { return bytes.fail("a base64 string") }
    return decode(text, of: bytes, into: value)
  }

  private func decode(_ text: ByteView, of reader: JSONReader, into value: ByteBuffer) -> Failure? {
    switch Base64.decode(text, into: value) {
    case .ok: nil
    case .malformed: reader.fail(because: ("malformed base64" as StaticString).bytes)
    case .noMemory: noMemory
    }
  }
}

private var noMemory: Failure { Failure(.noMemory, "no memory") }

/// Encodes the fields of a google.rpc error detail from ProtoJSON. The bytes are the same as those of
/// protobuf's own encoders: the fields are in the order of their numbers, and fields with their default value
/// are left out. The recursion is only as deep as the schema, whatever the JSON contains.
private struct DetailReader {
  /// A key that is allowed although the schema has no such field: "@type".
  let skipped: StaticString

  func read(_ reader: JSONReader, _ schema: DetailSchema, into out: ByteBuffer) -> Failure? {
    let failure = reader.members { key, member in
      bytesEqual(key, skipped) || schema.field(named: key) != nil ? nil : member.unknown
    }
    if let failure { return failure }
    var index = 0
    while let field = schema.field(at: index) {
      index += 1
      if let member = reader.member(field.name), let failure = read(member, field, into: out) {
        return failure
      }
    }
    return nil
  }

  private func read(_ reader: JSONReader, _ field: DetailSchema.Field, into out: ByteBuffer) -> Failure? {
    switch field.kind {
    case .string:
      if let text = reader.string, text.isEmpty { return nil }
      return readString(reader, field.number, into: out)
    case .strings: return reader.elements { readString($0, field.number, into: out) }
    case .int, .presentInt:
      guard let number = int64(reader) else {
        return reader.fail("a 64-bit integer, as a string or a number", hasType: reader.string != nil)
      }
      if number == 0, case .int = field.kind { return nil }
      var writer = ProtoWriter(into: out)
      writer.int(field.number, number)
      return writer.isComplete ? nil : noMemory
    case .duration:
      let part = ByteBuffer()
      guard let text = reader.string, writeDuration(text, into: part) else {
        return reader.fail("a duration like \"1.5s\"", hasType: reader.string != nil)
      }
      return put(part, field.number, into: out)
    case .message(let inner): return readMessage(reader, inner, field.number, into: out)
    case .messages(let inner):
      return reader.elements { readMessage($0, inner, field.number, into: out) }
    case .map:
      return reader.members { key, member in
        guard let text = member.string else { return member.fail("a string") }
        let entry = ByteBuffer()
        var writer = ProtoWriter(into: entry)
        writer.bytes(1, key)
        writer.bytes(2, text)
        return writer.isComplete ? put(entry, field.number, into: out) : noMemory
      }
    }
  }

  private func readString(_ reader: JSONReader, _ number: UInt32, into out: ByteBuffer) -> Failure? {
    guard let text = reader.string else { return reader.fail("a string") }
    var writer = ProtoWriter(into: out)
    writer.bytes(number, text)
    return writer.isComplete ? nil : noMemory
  }

  private func readMessage(
    _ reader: JSONReader, _ schema: DetailSchema, _ number: UInt32, into out: ByteBuffer
  ) -> Failure? {
    let part = ByteBuffer()
    if let failure = DetailReader(skipped: "").read(reader, schema, into: part) { return failure }
    return put(part, number, into: out)
  }

  private func put(_ part: ByteBuffer, _ number: UInt32, into out: ByteBuffer) -> Failure? {
    var writer = ProtoWriter(into: out)
    writer.bytes(number, part.view)
    return writer.isComplete ? nil : noMemory
  }

  private func int64(_ reader: JSONReader) -> Int64? {
    if let text = reader.string { return decimal(text) }
    return reader.value.pointee.type == JSON_INTEGER ? Int64(json_integer_value(reader.value)) : nil
  }

  /// The value of a decimal number in text; nil: the text is no such number.
  private func decimal(_ text: ByteView) -> Int64? {
    let isNegative = text.first == 0x2d
    let digits = ByteView(rebasing: text.dropFirst(isNegative ? 1 : 0))
    guard !digits.isEmpty else { return nil }
    var number: Int64 = 0
    for digit in digits {
      guard digit >= 0x30, digit <= 0x39 else { return nil }
      let (tens, tooMany) = number.multipliedReportingOverflow(by: 10)
      let step = Int64(digit - 0x30)
      let (sum, tooMuch) =
        isNegative ? tens.subtractingReportingOverflow(step) : tens.addingReportingOverflow(step)
      if tooMany || tooMuch { return nil }
      number = sum
    }
    return number
  }

  /// Encodes a duration such as "1.5s": seconds, and at most nine digits of a fraction
  /// (google/protobuf/duration.proto: seconds = 1, nanos = 2). Returns false if the text is not a duration,
  /// or if there is no memory.
  private func writeDuration(_ text: ByteView, into out: ByteBuffer) -> Bool {
    guard text.last == 0x73 else { return false }
    let number = ByteView(rebasing: text.dropLast())
    let point = number.firstIndex(of: 0x2e) ?? number.count
    let isNegative = number.first == 0x2d
    guard let seconds = decimal(ByteView(rebasing: number[..<point])), seconds.magnitude <= 315_576_000_000
    else {
      return false
    }
    var nanos: Int64 = 0
    if point < number.count {
      let fraction = ByteView(rebasing: number[(point + 1)...])
      guard fraction.count <= 9, fraction.first != 0x2d, let digits = decimal(fraction) else { return false }
      nanos = digits
      for _ in fraction.count..<9 { nanos *= 10 }
    }
    var writer = ProtoWriter(into: out)
    if seconds != 0 { writer.int(1, seconds) }
    if nanos != 0 { writer.int(2, isNegative ? -nanos : nanos) }
    return writer.isComplete
  }
}
