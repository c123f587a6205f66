import CPenstockMemory
import PenstockWire

/// Requests that a proxy forwards. Each names the server before its path (RFC 9112 section 3.2.2).
public struct ForwardedRequests {
  /// The host and the port of the server.
  let server: ByteBuffer
  /// The value of "proxy-authorization"; nil: the proxy is given none.
  let credentials: ByteBuffer?

  public init(to server: ByteBuffer, credentials: ByteBuffer?) {
    self.server = server
    self.credentials = credentials
  }
}

/// Writes the head of a request (RFC 9112 sections 3 and 5) from the fields that a framing has added.
struct RequestHead {
  private var method = ByteView(start: nil, count: 0)
  private var path = ByteView(start: nil, count: 0)
  private var authority = ByteView(start: nil, count: 0)
  private let fields: FieldList

  init(_ fields: FieldList) {
    self.fields = fields
    for index in 0..<fields.count {
      let name = fields.name(at: index)
      if name.first != 0x3A { break }
      if bytesEqual(name, ":method") { method = fields.value(at: index) }
      if bytesEqual(name, ":path") { path = fields.value(at: index) }
      if bytesEqual(name, ":authority") { authority = fields.value(at: index) }
    }
  }

  /// The form of a request's body on the wire.
  enum Body: Equatable {
    case none
    case length(Int)
    case chunked
  }

  /// The form of the body with `bytes` bytes. `isWhole`: no more bytes follow. A GET without bytes has no
  /// body; other methods then announce the length 0 (RFC 9110 section 8.6).
  func body(_ bytes: Int, isWhole: Bool) -> Body {
    if !isWhole { return .chunked }
    return bytes == 0 && bytesEqual(method, "GET") ? .none : .length(bytes)
  }

  /// Appends the head, in which `flaw` has found no flaw. False: no memory.
  func write(_ body: Body, _ forwarded: ForwardedRequests? = nil, into out: ByteBuffer) -> Bool {
    var size = method.count + path.count + authority.count + 96
    if let forwarded { size += forwarded.server.count + (forwarded.credentials?.count ?? 0) + 32 }
    for index in 0..<fields.count { size += fields.name(at: index).count + fields.value(at: index).count + 4 }
    guard let space = out.spare(atLeast: size) else { return false }
    var at = put(method, in: space, 0)
    at = put(" ", in: space, at)
    if let forwarded {
      at = put("http://", in: space, at)
      at = put(forwarded.server.view, in: space, at)
    }
    at = put(path, in: space, at)
    at = put(" HTTP/1.1\r\nhost: ", in: space, at)
    at = put(forwarded?.server.view ?? authority, in: space, at)
    if let credentials = forwarded?.credentials {
      at = put("\r\nproxy-authorization: ", in: space, at)
      at = put(credentials.view, in: space, at)
    }
    for index in 0..<fields.count {
      let name = fields.name(at: index)
      if name.first == 0x3A || RequestHead.isOurs(name) { continue }
      if forwarded != nil, bytesEqual(name, "proxy-authorization") { continue }
      at = put(0x0D, 0x0A, in: space, at)
      at = put(name, in: space, at)
      at = put(0x3A, 0x20, in: space, at)
      at = put(fields.value(at: index), in: space, at)
    }
    switch body {
    case .none: break
    case .length: at = put("\r\ncontent-length: ", in: space, at)
    case .chunked: at = put("\r\ntransfer-encoding: chunked", in: space, at)
    }
    out.commit(at)
    if case .length(let count) = body { out.say(count) }
    return out.append("\r\n\r\n")
  }

  private func put(_ text: StaticString, in space: UnsafeMutableRawBufferPointer, _ at: Int) -> Int {
    put(text.bytes, in: space, at)
  }

  private func put(_ one: UInt8, _ next: UInt8, in space: UnsafeMutableRawBufferPointer, _ at: Int) -> Int {
    space[at] = one
    space[at + 1] = next
    return at + 2
  }

  /// Copies `bytes` to the offset `at`, and returns the offset after them. The caller has made sure that
  /// there is room.
  private func put(_ bytes: ByteView, in space: UnsafeMutableRawBufferPointer, _ at: Int) -> Int {
    if let start = bytes.baseAddress, let room = space.baseAddress { memcpy(room + at, start, bytes.count) }
    return at + bytes.count
  }

  /// Whether the transport itself writes this field or leaves it out, so that the framing's value is not
  /// sent.
  private static func isOurs(_ name: ByteView) -> Bool {
    bytesEqual(name, "te") || bytesEqual(name, "content-length") || bytesEqual(name, "transfer-encoding")
  }

  /// The reason why the head can't be written; nil: it can. The reason is a byte that would end a part of the
  /// head early, so that the server would see another request.
  func flaw() -> ByteBuffer? {
    if method.isEmpty || hasBytes(method, below: 0x21) { return say("the method", method) }
    if path.first != 0x2F || hasBytes(path, below: 0x21) { return say("the path", path) }
    if hasBytes(authority, below: 0x21) { return say("the authority", authority) }
    for index in 0..<fields.count {
      let name = fields.name(at: index)
      if !fields.hasKnownName(at: index), name.isEmpty || hasBytes(name, below: 0x21) {
        return say("the name of a header", name)
      }
      // The pseudo headers come first, and are checked above.
      if name.first != 0x3A, hasBytes(fields.value(at: index), below: 0x20) {
        return say("the value of a header", name)
      }
    }
    return nil
  }

  /// Whether the bytes contain a DEL character, or a byte below `least`. Eight bytes are checked at a time; the
  /// last eight may overlap those before.
  private func hasBytes(_ bytes: ByteView, below least: UInt8) -> Bool {
    guard let start = bytes.baseAddress else { return false }
    if bytes.count < 8 {
      for byte in bytes where byte < least || byte == 0x7F { return true }
      return false
    }
    let ones: UInt64 = 0x0101_0101_0101_0101
    let (bound, delete) = (ones &* UInt64(least), ones &* 0x7F)
    let last = bytes.count &- 8
    var found: UInt64 = 0
    var at = 0
    while true {
      let word = start.loadUnaligned(fromByteOffset: at, as: UInt64.self)
      let deleted = word ^ delete
      // The subtraction sets the highest bit of a byte that is too small.
      found |= (word &- bound) & ~word | (deleted &- ones) & ~deleted
      if at >= last { return found & (ones &* 0x80) != 0 }
      at = min(at &+ 8, last)
    }
  }

  private func say(_ part: StaticString, _ bytes: ByteView) -> ByteBuffer {
    ByteBuffer().say(part).say(" can't be sent over HTTP/1.1: \"").say(printable: bytes, limit: 60).say("\"")
  }
}
