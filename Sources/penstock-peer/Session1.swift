import CPenstockSystem
import PenstockTransport
import PenstockWire
import PenstockLoop
import PenstockLink
import PenstockHTTP

/// One HTTP/1.1 connection: a `RequestParser`, a `Link` that moves the bytes, and at most one `Call` at a
/// time. A request that arrives before the previous answer is complete stays unread until then.
///
/// ```
/// idle --request--> answering --answer whole, request whole--> idle
///                       |-- answer whole, request not --> discarding --request whole--> idle
///                       \-- last answer, malformed request, broken off --> closing: written, half-closed, closed
/// ```
final class Session1: ServerConnection {
  /// How the end of the answer is marked (RFC 9112 section 6); nil: no answer has begun.
  private var delimiting: Knobs.Delimiting?
  private var parser = RequestParser()
  private var call: Call?
  private var requests: Int32 = 0
  private var requestIsWhole = true
  /// Whether the connection closes after the current answer, because the request or the answer says so.
  private var isLast = false
  private var isOld = false
  /// Whether the client waits for 100 (Continue), which was not sent yet.
  private var owesContinue = false
  private var isClosing = false
  private var isLingering = false
  private var isClosed = false
  /// The number of received bytes of the body that the call has not taken yet.
  private var unread = 0
  private var hasMoreToRead = true
  private var watched = CS_EPOLLIN

  private static let outputLimit = 512 << 10
  private static let inputLimit = 256 << 10
  private static let readsPerTurn = 16
  /// The time in nanoseconds for which a closing connection waits until the client closes, too.
  private static let lingering: UInt64 = 1_000_000_000

  override var version: StaticString { "1.1" }
  override var isHTTP2: Bool { false }

  /// Takes over the connection. `first`: the bytes that the client has already sent.
  static func start(
    _ loop: Loop, _ link: Link, _ options: Options, _ pool: CallPool, number: Int, first: ByteView
  ) {
    let session = Session1(loop, link, options, pool, number)
    guard loop.watch(session, CS_EPOLLIN), session.parser.input.append(first) else { return session.close() }
    loop.mark(session)
  }

  // MARK: The loop

  override func ready(_ bits: UInt32) {
    if isClosed { return }
    if bits & ~CS_EPOLLOUT != 0 { hasMoreToRead = true }
    loop.mark(self)
  }

  override func turnEnds() {
    if isClosed { return }
    takeRequests()
    if hasMoreToRead { readAll() }
    if !isClosed { send() }
  }

  override func timeIsUp(_ now: UInt64) { close() }
  override func stop() { close() }

  private var isFull: Bool {
    unread > options.streamWindow || parser.input.count > Session1.inputLimit
  }

  private func readAll() {
    for _ in 0..<Session1.readsPerTurn {
      if isClosed || (isFull && !isClosing) { return }
      switch link.receive(loop.receiveBuffer) {
      case .bytes(let bytes):
        if isClosing { continue }
        guard parser.input.append(bytes) else { return close() }
        takeRequests()
      case .wouldBlock:
        hasMoreToRead = false
        return
      case .ended, .failed: return close()
      }
    }
    loop.mark(self)
  }

  // MARK: Requests

  /// Parses the input, as far as the call and the window permit.
  private func takeRequests() {
    while !isClosing && !isClosed && unread <= options.streamWindow && !(requestIsWhole && call != nil) {
      switch parser.next() {
      case .needsMore: return
      case .request(let method, let target, let isOld):
        requests += 1
        requestIsWhole = false
        self.isOld = isOld
        isLast = false
        delimiting = nil
        let call = pool.take()
        call.begin(self, requests, index: 0)
        call.field((":method" as StaticString).bytes, method)
        call.field((":path" as StaticString).bytes, target)
        self.call = call
      case .field(let name, let value):
        call?.field(bytesEqual(name, "host") ? (":authority" as StaticString).bytes : name, value)
      case .headersEnd:
        if parser.closes || call?.knobs.closesConnection == true { isLast = true }
        owesContinue = parser.expectsContinue
        call?.headersEnd()
        if owesContinue && delimiting == nil { invite() }
      case .body(let bytes):
        owesContinue = false
        unread += bytes.count
        if let call { call.receive(bytes) } else { unread = 0 }
      case .end:
        requestIsWhole = true
        call?.inputEnds()
        if call == nil { unread = 0 }
      case .malformed(let status, let words): refuse(status, words)
      }
    }
  }

  /// Sends 100 (Continue), so that the client sends its body.
  private func invite() {
    owesContinue = false
    link.output.bytes.put("HTTP/1.1 100 Continue\r\n\r\n")
  }

  /// Answers a malformed request, and closes the connection. An answer that has begun is cut off. A request
  /// that already had its answer gets no second answer.
  private func refuse(_ status: Int, _ words: StaticString) {
    if delimiting == nil && (call != nil || requestIsWhole) {
      let text = link.output.bytes
      text.put("HTTP/1.1 ").put(status).put(" ").put(HTTPReason.phrase(status)).put("\r\n")
      text.put("Content-Type: text/plain\r\nContent-Length: ").put(words.utf8CodeUnitCount + 1)
      text.put("\r\nConnection: close\r\n\r\n").put(words).put("\n")
    }
    isClosing = true
  }

  // MARK: For the calls

  override func consumed(_ call: Call, _ count: Int) {
    unread -= min(count, unread)
    if hasMoreToRead || !parser.input.isEmpty { loop.mark(self) }
  }

  override func respond(_ call: Call, hasBody: Bool) {
    if owesContinue {
      // A call that has ended needs no body. Since the client may or may not send it, the connection is
      // closed after the answer.
      if call.status == nil { invite() } else { isLast = true }
    }
    let delimiting = delimiting(call, hasBody)
    self.delimiting = delimiting
    if delimiting == .close { isLast = true }
    let text = link.output.bytes
    fields.forEach { name, value in
      if bytesEqual(name, ":status") {
        text.put("HTTP/1.1 ").put(value).put(" ").put(HTTPReason.phrase(decimal(value) ?? 0))
      } else {
        HTTPReason.put(name: name, into: text)
        text.put(": ").put(value)
      }
      text.put("\r\n")
    }
    switch delimiting {
    case .length: text.put("Content-Length: ").put(call.output.bytes).put("\r\n")
    case .chunked: text.put("Transfer-Encoding: chunked\r\n")
    case .close: break
    }
    text.put(isLast ? "Connection: close\r\n\r\n" : "\r\n")
    loop.mark(self)
  }

  /// How the end of the answer is marked: in the way that the client asks for, otherwise by the length if it
  /// is known.
  private func delimiting(_ call: Call, _ hasBody: Bool) -> Knobs.Delimiting {
    let asked = call.knobs.delimiting ?? (call.status == nil ? .chunked : .length)
    if asked == .chunked && isOld { return .close }
    return asked == .length && call.status == nil ? .chunked : asked
  }

  override func resume(_ call: Call) { loop.mark(self) }

  /// Closes the connection before the answer is complete.
  override func abort(_ call: Call) {
    isClosing = true
    loop.mark(self)
  }

  // MARK: Output

  private func send() {
    if isLingering || isClosed { return }
    var flushed = Link.Flushed.done
    repeat {
      let isMore = makeOutput()
      flushed = link.flush()
      if !isMore { break }
    } while flushed == .done
    if flushed == .failed { return close() }
    if flushed == .done && isClosing { return linger() }
    watch(flushed == .blocked)
  }

  /// Moves output of the call to the link. Returns whether the call may have more output.
  private func makeOutput() -> Bool {
    while let call, let delimiting, !isClosing {
      if link.output.count >= Session1.outputLimit { return true }
      guard case .bytes(let count, let follows) = call.provide(64 << 10) else { return false }
      let text = link.output.bytes
      let isChunk = delimiting == .chunked && count > 0
      if isChunk { HTTPReason.put(hex: count, into: text).put("\r\n") }
      guard call.output.move(count, into: link.output) != nil else {
        isClosing = true
        return false
      }
      if isChunk { text.put("\r\n") }
      if follows == .more { continue }
      if delimiting == .chunked { text.put("0\r\n\r\n") }
      answerEnds(call)
    }
    return false
  }

  private func answerEnds(_ call: Call) {
    self.call = nil
    delimiting = nil
    unread = 0
    isClosing = isLast
    release(call)
    // The input may already contain the next request.
    loop.mark(self)
  }

  private func watch(_ isBlocked: Bool) {
    let wanted = (isFull && !isClosing ? 0 : CS_EPOLLIN) | (isBlocked ? CS_EPOLLOUT : 0)
    if wanted == watched { return }
    watched = wanted
    loop.rewatch(self, wanted)
  }

  // MARK: The end

  /// Half-closes the connection. The descriptor stays open until the client has closed, too: if bytes arrived
  /// at a closed descriptor, the kernel would reset the connection, and the client could lose the answer.
  private func linger() {
    isLingering = true
    drop()
    link.halfClose()
    hasMoreToRead = true
    watch(false)
    loop.arm(self, at: cs_monotonic() &+ Session1.lingering)
    loop.mark(self)
  }

  private func drop() {
    guard let call else { return }
    self.call = nil
    release(call)
  }

  private func close() {
    if isClosed { return }
    isClosed = true
    loop.forget(self)
    drop()
    link.close()
  }
}

/// The reason phrases of HTTP/1.1, and the spelling of its field names.
enum HTTPReason {
  static func phrase(_ status: Int) -> StaticString {
    switch status {
    case 200: return "OK"
    case 400: return "Bad Request"
    case 401: return "Unauthorized"
    case 403: return "Forbidden"
    case 404: return "Not Found"
    case 405: return "Method Not Allowed"
    case 409: return "Conflict"
    case 415: return "Unsupported Media Type"
    case 417: return "Expectation Failed"
    case 429: return "Too Many Requests"
    case 431: return "Request Header Fields Too Large"
    case 499: return "Client Closed Request"
    case 500: return "Internal Server Error"
    case 501: return "Not Implemented"
    case 503: return "Service Unavailable"
    case 504: return "Gateway Timeout"
    case 505: return "HTTP Version Not Supported"
    default: return ""
    }
  }

  /// Appends a field name with capital letters, as most servers write it. Clients have to accept any case.
  static func put(name: ByteView, into text: ByteBuffer) {
    var isFirst = true
    for byte in name {
      let isLetter = byte >= 0x61 && byte <= 0x7A
      _ = text.append(byte: isFirst && isLetter ? byte - 0x20 : byte)
      isFirst = byte == 0x2D
    }
  }

  @discardableResult
  static func put(hex number: Int, into text: ByteBuffer) -> ByteBuffer {
    var shift = 60
    while shift > 0 && number >> shift == 0 { shift -= 4 }
    while shift >= 0 {
      _ = text.append(byte: hexDigit(UInt8(truncatingIfNeeded: number >> shift & 15)))
      shift -= 4
    }
    return text
  }
}
