import PenstockCall
import PenstockChannel
import PenstockWire
import PenstockLink

/// Reads the JSON texts of Connect that contain a status: "Error" and "EndStreamResponse".
enum ConnectJSON {
  private static var noMemory: StaticString { "no memory to read the status" }

  /// Reads the text of an error into a status. If the code is missing or unknown, the status keeps its code.
  /// False: the text is malformed or not an object, and the status is unchanged; or there was no memory to read
  /// the text, or its message and details are too large, and the status says so.
  static func read(error text: ByteView, into status: Status) -> Bool {
    var scanner = JSONScanner(text)
    var error = ConnectError()
    guard error.read(&scanner), scanner.isAtEnd else {
      if scanner.lacksMemory {
        status.setCode(.resourceExhausted)
        _ = status.setMessage(noMemory.bytes)
      }
      return false
    }
    if error.isTooLarge {
      let fault = Status.tooLarge
      status.setCode(fault.code)
      _ = status.setMessage(fault.message)
      return false
    }
    error.settle(status)
    return true
  }

  /// What the JSON at the end of a stream says.
  enum End {
    case status(Status)
    case malformed
    /// Message, details and metadata are together over the limit of a status in a body.
    case tooLarge
  }

  /// Reads the JSON at the end of a stream, and adds the metadata to `trailers`.
  static func end(_ text: ByteView, _ trailers: Metadata) -> End {
    var scanner = JSONScanner(text)
    var error = ConnectError()
    var isError = false
    guard scanner.opens(JSONScanner.object) else { return .malformed }
    let key = ByteBuffer()
    while scanner.nextMember(key) {
      if bytesEqual(key.view, "error") {
        // The value null is not an error. Other clients read it in this way, too. If there are two members
        // "error", one that is an error counts.
        if scanner.peek() != 0x6E { isError = true }
        _ = error.read(&scanner)
      } else if bytesEqual(key.view, "metadata") {
        read(&scanner, trailers)
      }
    }
    guard scanner.isAtEnd else {
      return scanner.lacksMemory ? .status(Status(.resourceExhausted, noMemory.bytes)) : .malformed
    }
    if error.isTooLarge || error.size + trailers.listSize > Limits.statusInBodyBytes { return .tooLarge }
    let status = Status(isError ? .unknown : .ok)
    if isError { error.settle(status) }
    return .status(status)
  }

  /// Reads {"name": ["value", ...], ...} into `trailers`. Values that are not valid in a header are left out.
  private static func read(_ scanner: inout JSONScanner, _ trailers: Metadata) {
    let key = ByteBuffer()
    let name = ByteBuffer()
    let value = ByteBuffer()
    guard scanner.opens(JSONScanner.object) else { return }
    while scanner.nextMember(key) {
      name.removeAll(keepingCapacity: true)
      _ = HeaderRules.lowercased(key.view, into: name)
      guard scanner.opens(JSONScanner.array) else { continue }
      while scanner.nextElement() {
        guard scanner.string(into: value), HeaderRules.isFieldValue(value.view),
          trailers.listSize <= Limits.statusInBodyBytes
        else { continue }
        _ = trailers.add(name.view, value.view)
      }
    }
  }
}

/// An error of Connect: {"code": "...", "message": "...", "details": [{"type": "...", "value": base64}, ...]}.
private struct ConnectError {
  private var code: StatusCode?
  private let message = ByteBuffer()
  /// The details, encoded as fields of a google.rpc.Status.
  private let details = ByteBuffer()
  /// Whether message and details are over the limit of a status in a body. Nothing more of them is kept then.
  private(set) var isTooLarge = false

  /// The size of message and details in bytes.
  var size: Int { message.count + details.count }

  /// Reads a JSON value as an error. False: the value is not an object.
  mutating func read(_ scanner: inout JSONScanner) -> Bool {
    guard scanner.opens(JSONScanner.object) else { return false }
    let key = ByteBuffer()
    let name = ByteBuffer()
    while scanner.nextMember(key) {
      if bytesEqual(key.view, "code") {
        code = scanner.string(into: name) ? ConnectError.code(name.view) : nil
      } else if bytesEqual(key.view, "message") {
        _ = scanner.string(into: message)
        checkSize()
      } else if bytesEqual(key.view, "details"), scanner.opens(JSONScanner.array) {
        details.removeAll(keepingCapacity: true)
        while scanner.nextElement() {
          if isTooLarge { continue }
          readDetail(&scanner)
          checkSize()
        }
      }
    }
    return true
  }

  private mutating func checkSize(adding more: Int = 0) {
    guard size + more > Limits.statusInBodyBytes else { return }
    isTooLarge = true
    message.removeAll(keepingCapacity: false)
    details.removeAll(keepingCapacity: false)
  }

  /// Copies the error to a status. The trailers get the details in the form that gRPC uses: an encoded
  /// google.rpc.Status.
  func settle(_ status: Status) {
    if let code { status.setCode(code) }
    if code != nil || !message.isEmpty { _ = status.setMessage(message.view) }
    if details.isEmpty { return }
    let encoded = ByteBuffer()
    var writer = ProtoWriter(into: encoded)
    writer.int(1, Int64(status.code.rawValue))
    if !status.message.isEmpty { writer.bytes(2, status.message) }
    if writer.isComplete, encoded.append(details.view) { status.takeDetails(encoded.view) }
  }

  /// Reads one detail. A detail without a type, or whose value is no string or not base64, is left out.
  private mutating func readDetail(_ scanner: inout JSONScanner) {
    guard scanner.opens(JSONScanner.object) else { return }
    let key = ByteBuffer()
    let type = ByteBuffer()
    let text = ByteBuffer()
    var hasOtherValue = false
    while scanner.nextMember(key) {
      if bytesEqual(key.view, "type") {
        _ = scanner.string(into: type)
      } else if bytesEqual(key.view, "value") {
        hasOtherValue = !scanner.string(into: text)
      }
    }
    checkSize(adding: type.count + text.count / 4 * 3)
    if isTooLarge { return }
    let value = ByteBuffer()
    guard !type.isEmpty, !hasOtherValue, Base64.decode(text.view, into: value) == .ok else { return }
    let any = ByteBuffer()
    let url = ByteBuffer()
    if position(of: 0x2F, in: type.view) == nil { url.say("type.googleapis.com/") }
    var writer = ProtoWriter(into: any)
    writer.bytes(1, url.say(type.view).view)
    writer.bytes(2, value.view)
    let before = details.count
    var outer = ProtoWriter(into: details)
    outer.bytes(3, any.view)
    if !writer.isComplete || !outer.isComplete { details.truncate(to: before) }
  }

  /// The code for a name such as "not_found". All names except "canceled" are gRPC's names in lower case.
  private static func code(_ name: ByteView) -> StatusCode? {
    if bytesEqual(name, "canceled") { return .cancelled }
    for number in Int32(1)...16 {
      if let code = StatusCode(rawValue: number), isLowercase(name, of: code.name.bytes) { return code }
    }
    return nil
  }

  /// Whether `name` is `capitals`, which has capital letters and underscores, in lower case. The comparison needs
  /// no memory, for whose lack a code would be taken for an unknown one.
  private static func isLowercase(_ name: ByteView, of capitals: ByteView) -> Bool {
    guard name.count == capitals.count else { return false }
    for at in 0..<name.count where name[at] != (capitals[at] == 0x5F ? 0x5F : capitals[at] | 0x20) {
      return false
    }
    return true
  }
}
