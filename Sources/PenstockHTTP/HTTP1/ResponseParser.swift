import PenstockCall
import PenstockWire
import PenstockLoop
import PenstockLink

/// Parses the answers on one connection (RFC 9112), without I/O. The parser is strict. It refuses an answer
/// if two parsers could disagree about its end (section 11.2), and everything that is not in the grammar.
///
/// ```
/// statusLine --1xx--> informational --empty line--> statusLine
/// statusLine ----> headers --empty line--> sized, untilClose, chunkSize, or over (no body)
/// chunkSize ----> chunk ----> chunkEnd ----> chunkSize --size 0--> trailers ----> over
/// sized ----> over          untilClose --end of the connection--> over
/// any but over --flaw--> failed
/// ```
///
/// If the received bytes contain a whole line, the line is parsed in place. Otherwise its parts are collected
/// in `rest`.
final class ResponseParser {
  enum Event {
    /// All bytes are used, and the answer needs more bytes.
    case needsMore
    /// The head of the final (not 1xx) answer was parsed, and is in `block`.
    case head(endsAnswer: Bool)
    case body(ByteView)
    /// The answer is complete, and its trailers are in `block`.
    case trailers
    /// The answer is complete, and has no trailers.
    case end
    case failed(ResponseFlaw)
  }

  private enum Place {
    case statusLine, informational, headers, sized, untilClose, chunkSize, chunk, chunkEnd, trailers, over,
      failed

    /// The name of the line, for an error text.
    var name: StaticString {
      switch self {
      case .statusLine: "status line"
      case .informational, .headers: "header line"
      case .chunkSize: "line with a chunk's size"
      case .trailers: "trailer line"
      case .chunkEnd, .sized, .untilClose, .chunk, .over, .failed: "bytes"
      }
    }
  }

  /// The fields of the present head or trailers.
  let block = HeaderBlock()
  private var place = Place.statusLine
  /// The first bytes of an unfinished line. With `restIsWhole` it is the whole line, until the next line
  /// begins.
  private let rest = ByteBuffer()
  private var restIsWhole = false
  /// The last header line, as long as the next byte has not shown whether the line goes on (obsolete line folding).
  private let held = ByteBuffer()
  /// The name of the present header field, in lower case.
  private let name = ByteBuffer()
  private let maxHeaderList: Int
  /// The number of bytes that are still allowed in the present head or trailers, or in the line with the size
  /// of a chunk.
  private var room: Int
  /// The number of missing bytes of the body or of the present chunk. After a chunk: the number of missing
  /// bytes of its line end.
  private var left = 0
  /// The number of bytes of chunk extensions that were received, minus the number of bytes of chunks; at
  /// least 0.
  private var extensionBytes = 0
  private var informationalCount = 0
  private var isOld = false
  private var isChunked = false
  private var saysClose = false
  private var saysKeepAlive = false
  private var flaw = ResponseFlaw.noMemory
  private var failedAt = Place.statusLine
  /// The first bytes of the line with the flaw, for the error text.
  private let shown = ByteBuffer()

  init(maxHeaderList: Int) {
    self.maxHeaderList = maxHeaderList
    room = Limits.headerBlockLists * maxHeaderList
    confine(self)
  }

  // MARK: State

  /// Prepares the parser for the answer to the next request.
  func begin() {
    block.clear()
    held.removeAll(keepingCapacity: true)
    enter(.statusLine)
    informationalCount = 0
  }

  private func enter(_ next: Place) {
    place = next
    room = next == .chunkSize ? Limits.chunkLineBytes : Limits.headerBlockLists * maxHeaderList
    if restIsWhole {
      rest.removeAll(keepingCapacity: true)
      restIsWhole = false
    }
  }

  /// Whether at least one byte of the answer was received.
  var hasBegun: Bool { place != .statusLine || informationalCount > 0 || !rest.isEmpty }
  /// Whether the connection may be used for another request (RFC 9112 section 9.3). Valid once the head was
  /// parsed.
  var persists: Bool { !saysClose && (!isOld || saysKeepAlive) && place != .untilClose }
  /// The number of the next bytes that are certainly bytes of the body.
  var bodyAhead: Int {
    switch place {
    case .sized, .chunk: left
    case .untilClose: .max
    case .statusLine, .informational, .headers, .chunkSize, .chunkEnd, .trailers, .over, .failed: 0
    }
  }

  /// Called when the connection has ended. True: this is the regular end of the answer.
  func connectionEnded() -> Bool {
    guard place == .untilClose else { return false }
    place = .over
    return true
  }

  /// The position of the last received byte, for an error text: for example "in the middle of the answer's
  /// headers". nil: the answer has not begun, is complete or has failed, or has a body that ends with the
  /// connection.
  func position() -> ByteBuffer? {
    let text = ByteBuffer()
    switch place {
    case .statusLine: return hasBegun ? text.say("in the middle of the answer's status line") : nil
    case .informational, .headers: return text.say("in the middle of the answer's headers")
    case .sized: return text.say(left).say(" bytes before the end of the answer's body")
    case .chunk: return text.say("in the middle of a chunk, ").say(left).say(" bytes before its end")
    case .chunkSize, .chunkEnd: return text.say("before the last chunk of the answer's body")
    case .trailers: return text.say("in the middle of the answer's trailers")
    case .untilClose, .over, .failed: return nil
    }
  }

  // MARK: Bytes

  /// Parses bytes up to the first event. Returns the number of bytes that were used. The caller calls this
  /// function again after each event except `needsMore`, even without further bytes.
  func push(_ bytes: ByteView) -> (count: Int, event: Event) {
    var at = 0
    while at < bytes.count {
      switch place {
      case .sized, .chunk, .untilClose:
        let part = min(bodyAhead, bytes.count - at)
        passBody(part)
        return (at + part, .body(ByteView(rebasing: bytes[at..<(at + part)])))
      case .chunkEnd:
        guard bytes[at] == (left == 2 ? 0x0D : 0x0A) else { return (at, fail(.chunkEnd, bytes, at)) }
        at += 1
        left -= 1
        if left == 0 { enter(.chunkSize) }
      case .statusLine, .informational, .headers, .chunkSize, .trailers:
        let start = at
        if !held.isEmpty, rest.isEmpty || restIsWhole, !isBlank(bytes[at]), let flaw = takeHeld() {
          return (at, fail(flaw, held.view, 0))
        }
        switch nextLine(bytes, &at) {
        case .part: return (at, .needsMore)
        case .flaw(let flaw): return (at, fail(flaw, bytes, start))
        case .whole(let line):
          let mayGoOn = at == bytes.count || isBlank(bytes[at])
          if let event = take(line, mayGoOn: mayGoOn) { return (at, event) }
        }
      case .over: return (at, .end)
      case .failed: return (at, .failed(flaw))
      }
    }
    switch place {
    case .over: return (at, .end)
    case .failed: return (at, .failed(flaw))
    case .statusLine, .informational, .headers, .sized, .untilClose, .chunkSize, .chunk, .chunkEnd, .trailers:
      return (at, .needsMore)
    }
  }

  private func passBody(_ count: Int) {
    if place == .untilClose { return }
    left -= count
    if place == .chunk { extensionBytes = max(extensionBytes - count, 0) }
    guard left == 0 else { return }
    if place == .sized { return place = .over }
    place = .chunkEnd
    left = 2
  }

  // MARK: Lines

  private enum Line {
    case part
    case whole(ByteView)
    case flaw(ResponseFlaw)
  }

  /// Returns the next line, without its end (CR LF). RFC 9112 section 2.2 permits a recipient to accept LF
  /// alone as the end of a line. This parser does not, because other recipients may not accept it.
  private func nextLine(_ bytes: ByteView, _ at: inout Int) -> Line {
    if restIsWhole {
      rest.removeAll(keepingCapacity: true)
      restIsWhole = false
    }
    let ahead = ByteView(rebasing: bytes[at...])
    if place == .statusLine, !isHTTP(ahead) { return .flaw(.notHTTP) }
    let end = PenstockWire.position(of: 0x0A, in: ahead)
    let count = end.map { $0 + 1 } ?? ahead.count
    room -= count
    if room < 0 { return .flaw(place == .chunkSize ? .chunkLineTooLong : .tooLong) }
    at += count
    var line = ByteView(rebasing: ahead[..<count])
    if end == nil || !rest.isEmpty {
      guard rest.append(line) else { return .flaw(.noMemory) }
      if end == nil { return .part }
      restIsWhole = true
      line = rest.view
    }
    guard line.count > 1, line[line.count - 2] == 0x0D else { return .flaw(.lineEnd) }
    return .whole(ByteView(rebasing: line[..<(line.count - 2)]))
  }

  /// Whether the received bytes agree with "HTTP/". A peer with another protocol is recognised by its first
  /// bytes, because it may never send the end of a line.
  private func isHTTP(_ ahead: ByteView) -> Bool {
    let start = ("HTTP/" as StaticString).bytes
    let count = min(start.count - rest.count, ahead.count)
    if count <= 0 { return true }
    return bytesEqual(
      ByteView(rebasing: ahead[..<count]), ByteView(rebasing: start[rest.count..<(rest.count + count)]))
  }

  /// `mayGoOn`: the next line may begin with a blank, and so belong to this line.
  private func take(_ line: ByteView, mayGoOn: Bool) -> Event? {
    switch place {
    case .statusLine: return takeStatus(line)
    case .informational, .headers, .trailers:
      if line.isEmpty { return endFields() }
      if mayGoOn || isBlank(line[0]) { return hold(line) }
      if let flaw = takeField(line) { return fail(flaw, line, 0) }
      return nil
    case .chunkSize: return takeSize(line)
    case .sized, .untilClose, .chunk, .chunkEnd, .over, .failed: return nil
    }
  }

  /// Keeps a header line until its end is known. RFC 9112 section 5.2: a user agent "MUST replace each received
  /// obs-fold with one or more SP octets". A blank before the first field is refused (section 2.2).
  private func hold(_ line: ByteView) -> Event? {
    if !isBlank(line[0]) { return held.append(line) ? nil : fail(.noMemory) }
    if held.isEmpty { return fail(.folded, line, 0) }
    return held.append(byte: 0x20) && held.append(HeaderRules.trimmed(line)) ? nil : fail(.noMemory)
  }

  /// Parses the kept line, which does not go on.
  private func takeHeld() -> ResponseFlaw? {
    let flaw = takeField(held.view)
    if flaw == nil { held.removeAll(keepingCapacity: true) }
    return flaw
  }

  /// Parses the status line. RFC 9112 section 4: "status-line = HTTP-version SP status-code SP [
  /// reason-phrase ]". Some servers that send no reason leave out the blank before it, too.
  private func takeStatus(_ line: ByteView) -> Event? {
    guard line.count > 8, line[5] == 0x31, line[6] == 0x2E, isDigit(line[7]), line[8] == 0x20 else {
      return fail(.version, line, 0)
    }
    guard line.count >= 12, line[9] > 0x30, isDigit(line[9]), isDigit(line[10]), isDigit(line[11]),
      line.count == 12 || line[12] == 0x20
    else { return fail(.status, line, 0) }
    if !HeaderRules.isFieldValue(ByteView(rebasing: line[12...])) { return fail(.control, line, 0) }
    isOld = line[7] == 0x30
    isChunked = false
    saysClose = false
    saysKeepAlive = false
    let digits = ByteView(rebasing: line[9..<12])
    let status = Int(line[9] - 0x30) * 100 + Int(line[10] - 0x30) * 10 + Int(line[11] - 0x30)
    // The client has not asked for another protocol, so status 101 is not allowed (RFC 9110 section 15.2.2).
    if status == 101 { return fail(.switching, line, 0) }
    block.clear()
    let name = (":status" as StaticString).bytes
    if !block.note(name, digits, limit: maxHeaderList) { block.add(name, digits, limit: maxHeaderList) }
    block.status = status
    enter(status < 200 ? .informational : .headers)
    return nil
  }

  // MARK: Fields

  /// Parses a header or trailer line. RFC 9112 section 5: "field-line = field-name ":" OWS field-value OWS".
  private func takeField(_ line: ByteView) -> ResponseFlaw? {
    guard let colon = PenstockWire.position(of: 0x3A, in: line) else { return .noColon }
    if colon > 0, isBlank(line[colon - 1]) { return .blankBeforeColon }
    let value = HeaderRules.trimmed(ByteView(rebasing: line[(colon + 1)...]))
    if let flaw = lower(ByteView(rebasing: line[..<colon])) { return flaw }
    if !HeaderRules.isFieldValue(value) { return .control }
    let name = name.view
    if bytesEqual(name, "content-length") { return takeLength(value) }
    if bytesEqual(name, "transfer-encoding") { return takeCoding(value) }
    if bytesEqual(name, "connection") { takeOptions(value) }
    if !isAboutTheConnection(name) { addField(value) }
    return nil
  }

  /// Whether a field with this name says nothing of the answer, only of the connection (RFC 9110 section 7.6.1).
  private func isAboutTheConnection(_ name: ByteView) -> Bool {
    bytesEqual(name, "connection") || bytesEqual(name, "keep-alive") || bytesEqual(name, "proxy-connection")
      || bytesEqual(name, "te") || bytesEqual(name, "upgrade")
  }

  private func addField(_ value: ByteView) {
    if place == .informational || block.note(name.view, value, limit: maxHeaderList) { return }
    block.add(name.view, value, limit: maxHeaderList)
  }

  /// Copies a field name to `name` in lower case, and checks that it is a token (RFC 9110 section 5.6.2).
  private func lower(_ field: ByteView) -> ResponseFlaw? {
    name.removeAll(keepingCapacity: true)
    guard let from = field.baseAddress, !field.isEmpty else { return .name }
    guard let space = name.spare(atLeast: field.count), let to = space.baseAddress else { return .noMemory }
    var index = 0
    while index < field.count {
      let byte = from.load(fromByteOffset: index, as: UInt8.self)
      guard isToken(byte) else { return .name }
      to.storeBytes(of: byte &- 0x41 < 26 ? byte | 0x20 : byte, toByteOffset: index, as: UInt8.self)
      index &+= 1
    }
    name.commit(field.count)
    return nil
  }

  /// Parses the options in the field "connection", which are separated by commas (RFC 9110 section 7.6.1).
  private func takeOptions(_ value: ByteView) {
    for part in value.split(separator: 0x2C) {
      let option = HeaderRules.trimmed(ByteView(rebasing: part))
      if equalIgnoringCase(option, "close") { saysClose = true }
      if equalIgnoringCase(option, "keep-alive") { saysKeepAlive = true }
    }
  }

  /// Whether the answer ends with its head, whatever the fields say (RFC 9112 section 6.3).
  private var endsWithHead: Bool { place == .informational || (place == .headers && block.hasNoBody) }

  /// Parses the field "content-length" (RFC 9110 section 8.6). Equal lengths, in one field or in several, count as
  /// one, as the RFC permits.
  private func takeLength(_ value: ByteView) -> ResponseFlaw? {
    if place == .trailers { return .framingInTrailers }
    if endsWithHead {
      addField(value)
      return nil
    }
    for part in value.split(separator: 0x2C, omittingEmptySubsequences: false) {
      let digits = HeaderRules.trimmed(ByteView(rebasing: part))
      guard let length = length(digits) else { return .length }
      if block.length >= 0 {
        if length != block.length { return .lengthTwice }
        continue
      }
      block.length = length
      if !block.noteLength(digits, limit: maxHeaderList) { addField(digits) }
    }
    return block.length < 0 ? .length : nil
  }

  private func length(_ digits: ByteView) -> Int? {
    var length = 0
    for byte in digits {
      guard isDigit(byte), length <= (Int.max - 9) / 10 else { return nil }
      length = length * 10 + Int(byte - 0x30)
    }
    return digits.isEmpty ? nil : length
  }

  /// Parses the field "transfer-encoding" (RFC 9112 section 6.1). The client has asked for no coding other
  /// than "chunked". Empty elements of the list are ignored (RFC 9110 section 5.6.1.2).
  private func takeCoding(_ value: ByteView) -> ResponseFlaw? {
    if place == .trailers { return .framingInTrailers }
    if endsWithHead { return nil }
    if isChunked { return .codingTwice }
    if isOld { return .codingInOld }
    for part in value.split(separator: 0x2C) {
      let coding = HeaderRules.trimmed(ByteView(rebasing: part))
      if coding.isEmpty { continue }
      guard !isChunked, equalIgnoringCase(coding, "chunked") else { return .coding }
      isChunked = true
    }
    return isChunked ? nil : .coding
  }

  /// Called at the empty line after the fields. Finds out how the body ends (RFC 9112 section 6.3).
  private func endFields() -> Event? {
    let isInformational = place == .informational
    if place == .trailers {
      place = .over
      if block.noted == [] { return .end }
      return block.finish() ? .trailers : fail(.noMemory)
    }
    if isChunked, block.length >= 0 { return fail(.bothLengths) }
    if isInformational {
      informationalCount += 1
      if informationalCount > Limits.informationalResponses { return fail(.informational) }
      enter(.statusLine)
      return nil
    }
    guard block.finish() else { return fail(.noMemory) }
    if block.hasNoBody || block.length == 0 {
      place = .over
    } else if isChunked {
      extensionBytes = 0
      enter(.chunkSize)
    } else if block.length > 0 {
      place = .sized
      left = block.length
    } else {
      place = .untilClose
    }
    return .head(endsAnswer: place == .over)
  }

  // MARK: Chunks

  /// Parses the line with the size of a chunk. RFC 9112 section 7.1: "chunk-size [ chunk-ext ]".
  private func takeSize(_ line: ByteView) -> Event? {
    var size = 0
    var at = 0
    while at < line.count, let digit = PercentCoding.hexValue(line[at]) {
      if size >> 58 != 0 { return fail(.chunkTooLarge, line, 0) }
      size = size << 4 | Int(digit)
      at += 1
    }
    if at == 0 { return fail(.chunkSize, line, 0) }
    if at < line.count, let flaw = takeExtension(ByteView(rebasing: line[at...])) {
      return fail(flaw, line, 0)
    }
    if size == 0 {
      block.clear()
      enter(.trailers)
    } else {
      place = .chunk
      left = size
    }
    return nil
  }

  /// Checks the length and the characters of a chunk extension, and ignores its content (RFC 9112 section
  /// 7.1.1). Blanks behind the size are ignored, too: some servers pad the size with them.
  private func takeExtension(_ text: ByteView) -> ResponseFlaw? {
    extensionBytes += text.count
    if extensionBytes > Limits.chunkExtensionBytes { return .extensions }
    if let first = HeaderRules.trimmed(text).first, first != 0x3B { return .chunkSize }
    return HeaderRules.isFieldValue(text) ? nil : .control
  }

  // MARK: Bytes of the grammar

  private func isDigit(_ byte: UInt8) -> Bool { byte &- 0x30 < 10 }
  private func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }

  /// Whether a byte may be in a token: a letter, a digit, or one of "!#$%&'*+-.^_`|~". Each byte below 0x80 has a
  /// bit in one of two words.
  private func isToken(_ byte: UInt8) -> Bool {
    let word: UInt64 = byte < 0x40 ? 0x03FF_6CFA_0000_0000 : byte < 0x80 ? 0x57FF_FFFF_C7FF_FFFE : 0
    return word >> UInt64(byte & 63) & 1 != 0
  }

  // MARK: Flaws

  /// Notes the flaw. The error text shows its line: earlier bytes in `rest`, then `bytes` from `at` on.
  private func fail(
    _ flaw: ResponseFlaw, _ bytes: ByteView = ByteView(start: nil, count: 0), _ at: Int = 0
  ) -> Event {
    self.flaw = flaw
    shown.removeAll(keepingCapacity: true)
    if !restIsWhole { shown.say(rest.view) }
    let line = ByteView(rebasing: bytes[min(at, bytes.count)...])
    shown.say(ByteView(rebasing: line[..<(line.firstIndex(of: 0x0A) ?? line.count)]))
    if shown.view.last == 0x0D { shown.truncate(to: shown.count - 1) }
    failedAt = place
    place = .failed
    return .failed(flaw)
  }

  /// Returns the error text for the flaw.
  func words(_ flaw: ResponseFlaw) -> ByteBuffer { flaw.text(in: failedAt.name, shown.view, maxHeaderList) }
}
