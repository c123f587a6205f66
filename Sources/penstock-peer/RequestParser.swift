import PenstockWire
import PenstockHTTP

/// Parses HTTP/1.1 requests (RFC 9112), without I/O. The parser is strict, because tests use it to find
/// mistakes of the client. It requires CRLF as the line end, allows nothing before a request, and refuses
/// every form that parsers could read in two ways.
///
/// ```
/// requestLine -> fields -> [counted | chunkSize -> chunk -> chunkEnd ... -> trailers] -> requestLine
///        any of them, when it is malformed -> failed (for good)
/// ```
struct RequestParser {
  enum Event {
    case needsMore
    /// A request begins. All views in an event are valid until `next` is called again.
    case request(method: ByteView, target: ByteView, isOld: Bool)
    /// A header field. Its name is in lower case.
    case field(name: ByteView, value: ByteView)
    case headersEnd
    case body(ByteView)
    case end
    /// The request is malformed. The values: the HTTP status for the answer, and the reason.
    case malformed(Int, StaticString)
  }

  private enum State {
    case requestLine, fields, headersEnd
    case counted(Int)
    case chunkSize
    case chunk(Int)
    case chunkEnd, trailers, end, failed
  }

  let input = ByteBuffer()
  /// `expectsContinue`: the client sends the body only after 100 (Continue). `closes`: the connection
  /// has to close after the answer.
  private(set) var expectsContinue = false
  private(set) var closes = false

  private var state = State.requestLine
  private let name = ByteBuffer()
  /// The number of bytes of `input` that the views of the last event cover.
  private var used = 0
  /// The number of bytes of the current line that were searched, and that have no CRLF.
  private var searched = 0
  private var headBytes = 0
  private var hosts = 0
  private var isOld = false
  private var length: Int?
  private var isChunked = false

  /// The size limits, in bytes, of a line and of a head.
  private static let lineLimit = 128 << 10
  private static let headLimit = 1 << 20

  mutating func next() -> Event {
    input.consume(used)
    used = 0
    switch state {
    case .failed: return .needsMore
    case .requestLine: return requestLine()
    case .fields: return field(isTrailer: false)
    case .trailers: return field(isTrailer: true)
    case .headersEnd:
      state = isChunked ? .chunkSize : (length ?? 0) > 0 ? .counted(length ?? 0) : .end
      return next()
    case .counted(let left): return body(left) { $0 > 0 ? .counted($0) : .end }
    case .chunk(let left): return body(left) { $0 > 0 ? .chunk($0) : .chunkEnd }
    case .chunkSize: return chunkSize()
    case .chunkEnd:
      guard input.count >= 2 else { return .needsMore }
      guard input.view[0] == 0x0D && input.view[1] == 0x0A else {
        return fail(400, "no CRLF behind the data of a chunk")
      }
      input.consume(2)
      state = .chunkSize
      return next()
    case .end:
      state = .requestLine
      return .end
    }
  }

  private mutating func fail(_ status: Int, _ words: StaticString) -> Event {
    state = .failed
    return .malformed(status, words)
  }

  // MARK: Lines

  private enum Line {
    case whole(ByteView)
    case needsMore
    case failed(Event)
  }

  /// The next line, without its CRLF.
  private mutating func line() -> Line {
    let bytes = input.view
    while searched < bytes.count {
      let byte = bytes[searched]
      if byte == 0 { return .failed(fail(400, "NUL in a line")) }
      if byte == 0x0A {
        guard searched > 0, bytes[searched - 1] == 0x0D else { return .failed(fail(400, "LF without CR")) }
        used = searched + 1
        headBytes += used
        searched = 0
        if headBytes > RequestParser.headLimit { return .failed(fail(431, "the head is too large")) }
        return .whole(part(bytes, 0, used - 2))
      }
      if searched > 0, bytes[searched - 1] == 0x0D { return .failed(fail(400, "CR without LF")) }
      searched += 1
      if searched > RequestParser.lineLimit { return .failed(fail(431, "a line is too long")) }
    }
    return .needsMore
  }

  private mutating func requestLine() -> Event {
    let text: ByteView
    switch line() {
    case .whole(let line): text = line
    case .needsMore: return .needsMore
    case .failed(let event): return event
    }
    (expectsContinue, closes, isChunked, length, hosts) = (false, false, false, nil, 0)
    headBytes = text.count
    let method = cut(text, before: " ")
    let target = cut(part(text, method.count + 1, text.count), before: " ")
    let version = part(text, method.count + target.count + 2, text.count)
    guard !method.isEmpty && method.allSatisfy(RequestParser.isTokenByte) else {
      return fail(400, "malformed method")
    }
    guard target.first == 0x2F && target.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x23 }) else {
      return fail(400, "the target is not in origin-form")
    }
    isOld = bytesEqual(version, "HTTP/1.0")
    guard isOld || bytesEqual(version, "HTTP/1.1") else {
      return hasPrefix(version, "HTTP/") ? fail(505, "not HTTP/1.1") : fail(400, "malformed request line")
    }
    closes = isOld
    state = .fields
    return .request(method: method, target: target, isOld: isOld)
  }

  private mutating func field(isTrailer: Bool) -> Event {
    let text: ByteView
    switch line() {
    case .whole(let line): text = line
    case .needsMore: return .needsMore
    case .failed(let event): return event
    }
    if text.isEmpty { return isTrailer ? trailersEnd() : fieldsEnd() }
    if text[0] == 0x20 || text[0] == 0x09 { return fail(400, "obsolete line folding") }
    let raw = cut(text, before: ":")
    guard raw.count < text.count, !raw.isEmpty, raw.allSatisfy(RequestParser.isTokenByte) else {
      return fail(400, "malformed field name")
    }
    let value = HeaderRules.trimmed(part(text, raw.count + 1, text.count))
    guard value.allSatisfy({ ($0 >= 0x20 && $0 != 0x7F) || $0 == 0x09 }) else {
      return fail(400, "a control character in a field value")
    }
    name.removeAll(keepingCapacity: true)
    guard HeaderRules.lowercased(raw, into: name) else { return fail(500, "no memory") }
    // The trailers of a request are ignored, because none of the protocols uses them.
    if isTrailer { return next() }
    return note(value) ?? .field(name: name.view, value: value)
  }

  /// Records the fields that HTTP/1.1 itself uses. Returns the failure; nil: no failure.
  private mutating func note(_ value: ByteView) -> Event? {
    if bytesEqual(name.view, "host") {
      hosts += 1
    } else if bytesEqual(name.view, "content-length") {
      guard length == nil else { return fail(400, "two content-lengths") }
      guard let number = decimal(value, limit: 1 << 50) else { return fail(400, "malformed content-length") }
      length = number
    } else if bytesEqual(name.view, "transfer-encoding") {
      guard !isChunked else { return fail(400, "two transfer-encodings") }
      guard equalIgnoringCase(value, "chunked") else { return fail(501, "unknown transfer-encoding") }
      isChunked = true
    } else if bytesEqual(name.view, "connection") {
      HeaderRules.forEachBinaryValue(value) { if equalIgnoringCase($0, "close") { closes = true } }
    } else if bytesEqual(name.view, "expect") {
      guard equalIgnoringCase(value, "100-continue") else { return fail(417, "unknown expectation") }
      expectsContinue = !isOld
    }
    return nil
  }

  private mutating func fieldsEnd() -> Event {
    if length != nil && isChunked { return fail(400, "content-length and transfer-encoding") }
    if isOld && isChunked { return fail(400, "transfer-encoding in HTTP/1.0") }
    if hosts != 1 && (!isOld || hosts > 1) { return fail(400, "not exactly one host") }
    state = .headersEnd
    return .headersEnd
  }

  private mutating func trailersEnd() -> Event {
    state = .requestLine
    return .end
  }

  // MARK: Bodies

  private mutating func body(_ left: Int, _ after: (Int) -> State) -> Event {
    if input.isEmpty { return .needsMore }
    let bytes = part(input.view, 0, left)
    used = bytes.count
    state = after(left - bytes.count)
    return .body(bytes)
  }

  /// Parses the line with the size of a chunk. Chunk extensions are refused, although RFC 9112 section 7.1.1
  /// allows them.
  private mutating func chunkSize() -> Event {
    let text: ByteView
    switch line() {
    case .whole(let line): text = line
    case .needsMore: return .needsMore
    case .failed(let event): return event
    }
    headBytes = 0
    guard !text.isEmpty && text.count <= 12 else { return fail(400, "malformed chunk size") }
    var size = 0
    for byte in text {
      guard let digit = hexValue(byte) else { return fail(400, "malformed chunk size") }
      size = size << 4 | Int(digit)
    }
    state = size > 0 ? .chunk(size) : .trailers
    return next()
  }

  /// Whether a byte may be in a token (RFC 9110 section 5.6.2).
  private static func isTokenByte(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: return true
    case 0x21, 0x23...0x27, 0x2A, 0x2B, 0x2D, 0x2E, 0x5E...0x60, 0x7C, 0x7E: return true
    default: return false
    }
  }
}
