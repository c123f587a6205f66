import PenstockTransport
import PenstockWire
import PenstockHTTP

/// Connect's streams. Messages are in envelopes. The last envelope has the status and the trailers as JSON.
final class ConnectStreamFraming: ServerFraming {
  override var name: StaticString { "connect" }

  override func begin(_ call: Call, limit: Int) {
    super.begin(call, limit: limit)
    call.readConnectHeaders(coding: "connect-content-encoding", accepted: "connect-accept-encoding")
  }

  override func addHeaders(_ call: Call, to list: FieldList, isAlone: Bool) -> Bool {
    list.add(":status", "200")
    list.add("content-type", Text("application/connect+").put(call.subtype))
    call.addCodings(to: list, "connect-content-encoding", "connect-accept-encoding")
    call.addHeaders(to: list)
    return true
  }

  override func lastPiece(_ call: Call) -> BodyPiece? {
    var end = Text("{")
    let isError = call.status != 0
    if isError {
      end.put("\"error\":")
      ConnectError.write(call, into: end)
    }
    let list = FieldList()
    call.addTrailingMetadata(to: list)
    if list.count > 0 {
      if isError { end.put(",") }
      end.put("\"metadata\":")
      ConnectError.write(metadata: list, into: end)
    }
    end.put("}")
    var flags: UInt8 = 2
    if call.compressesAnswer {
      let packed = ByteBuffer()
      guard Gzip.compress(end.view, into: packed) else { return nil }
      end = packed
      flags = 3
    }
    return Envelope.make(flags: flags, end.view).map { BodyPiece($0) }
  }
}

/// Connect's unary calls. The body is the message. An error is an HTTP status with a JSON body. The message
/// of a GET is in its query.
final class ConnectUnaryFraming: ServerFraming {
  private var body = ByteBuffer()
  private var limit = 0
  private var isTaken = false
  private var isGet = false
  private var isCompressed = false
  private var answerIsCompressed = false

  override var name: StaticString { "connect" }
  override var isWhole: Bool { true }
  override var isMidMessage: Bool { false }

  override func begin(_ call: Call, limit: Int) {
    body = ByteBuffer()
    self.limit = limit
    isTaken = false
    isGet = call.wire == .connectGet
    answerIsCompressed = false
    if isGet {
      call.readConnectHeaders(coding: nil, accepted: "accept-encoding")
      call.readQuery(into: body)
    } else {
      call.readConnectHeaders(coding: "content-encoding", accepted: "accept-encoding")
    }
    isCompressed = call.requestCoding == .gzip
  }

  override func push(_ bytes: ByteView) -> (consumed: Int, event: MessageDecoder.Event) {
    if isGet { return (bytes.count, .needsMore) }
    if body.count + bytes.count > limit {
      let length = UInt32(clamping: body.count + bytes.count)
      return (0, .failed(.tooLarge(length: length, limit: limit)))
    }
    return body.append(bytes) ? (bytes.count, .needsMore) : (0, .failed(.noMemory))
  }

  /// "Servers must not attempt to decompress zero-length HTTP request content."
  override func lastMessage() -> (ByteBuffer, isCompressed: Bool)? {
    if isTaken { return nil }
    isTaken = true
    return (body, isCompressed && !body.isEmpty)
  }

  override func piece(_ message: ByteBuffer, compressed: Bool) -> BodyPiece? {
    answerIsCompressed = compressed
    return BodyPiece(message)
  }

  override func addHeaders(_ call: Call, to list: FieldList, isAlone: Bool) -> Bool {
    let status = call.status ?? 2
    if status == 0 {
      list.add(":status", "200")
      list.add("content-type", Text("application/").put(call.subtype))
    } else {
      list.add(":status", Text().put(ConnectError.httpStatus(status)))
      list.add("content-type", "application/json")
      replaceOutput(call)
    }
    if answerIsCompressed { list.add("content-encoding", "gzip") }
    if call.requestCoding != .identity || answerIsCompressed { list.add("accept-encoding", "gzip") }
    call.addHeaders(to: list)
    let trailers = FieldList()
    call.addTrailingMetadata(to: trailers)
    trailers.forEach { list.add(prefix: "trailer-", $0, $1) }
    return true
  }

  /// Replaces the output by an error, even if it already has a message.
  private func replaceOutput(_ call: Call) {
    var text = Text()
    ConnectError.write(call, into: text)
    answerIsCompressed = call.compressesAnswer
    if answerIsCompressed {
      let packed = ByteBuffer()
      answerIsCompressed = Gzip.compress(text.view, into: packed)
      if answerIsCompressed { text = packed }
    }
    call.output.removeAll()
    call.output.append(BodyPiece(text))
  }
}

/// Errors of the Connect protocol.
enum ConnectError {
  private static let names: [StaticString] = [
    "ok", "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists",
    "permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range",
    "unimplemented", "internal", "unavailable", "data_loss", "unauthenticated",
  ]
  private static let statuses = [
    200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401,
  ]

  /// The HTTP status for a status code, by the table "Error Codes" of Connect.
  static func httpStatus(_ code: Int) -> Int { code > 0 && code < statuses.count ? statuses[code] : 500 }

  /// Appends the JSON of an error with the call's status. A code N that is not defined gets the name
  /// "code_N".
  static func write(_ call: Call, into text: ByteBuffer) {
    let code = call.status ?? 2
    text.put("{\"code\":\"")
    if code > 0 && code < names.count { text.put(names[code]) } else { text.put("code_").put(code) }
    text.put("\"")
    if !call.statusMessage.isEmpty { text.put(",\"message\":").put(jsonText: call.statusMessage.view) }
    if let encoded = call.details() {
      let bytes = ByteBuffer()
      if Base64.decode(encoded, into: bytes) == .ok, let status = StatusDetails.decode(bytes.view),
        status.count > 0
      {
        write(status, into: text.put(",\"details\":"))
      }
    }
    text.put("}")
  }

  /// Appends the details of a status. "type" is the type URL without its prefix.
  private static func write(_ status: StatusDetails, into text: ByteBuffer) {
    for i in 0..<status.count {
      let (url, value) = status.detail(at: i)
      let start = url.lastIndex(of: 0x2F).map { $0 + 1 } ?? 0
      text.put(i == 0 ? "[" : ",").put("{\"type\":").put(jsonText: part(url, start, url.count))
      text.put(",\"value\":\"")
      _ = Base64.encode(value, padded: false, into: text)
      text.put("\"}")
    }
    text.put("]")
  }

  /// Appends a JSON object: for each name, an array of the values.
  static func write(metadata list: FieldList, into text: ByteBuffer) {
    var at = 0
    var isFirst = true
    text.put("{")
    list.forEach { name, _ in
      defer { at += 1 }
      var earlier = 0
      var isNew = true
      list.forEach { other, _ in
        if earlier < at && bytesEqual(other, name) { isNew = false }
        earlier += 1
      }
      guard isNew else { return }
      text.put(isFirst ? "" : ",").put(jsonText: name).put(":")
      isFirst = false
      var separator: StaticString = "["
      list.forEach { other, value in
        guard bytesEqual(other, name) else { return }
        text.put(separator).put(jsonText: value)
        separator = ","
      }
      text.put("]")
    }
    text.put("}")
  }
}
