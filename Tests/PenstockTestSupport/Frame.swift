/// A frame of HTTP/2 (RFC 9113), as a test server writes it.
public struct Frame: Equatable, Sendable {
  public var type: UInt8
  public var flags: UInt8 = 0
  public var stream: Int32
  public var payload: [UInt8] = []

  public init(type: UInt8, flags: UInt8 = 0, stream: Int32, payload: [UInt8] = []) {
    self.type = type
    self.flags = flags
    self.stream = stream
    self.payload = payload
  }

  public var encoded: [UInt8] {
    let n = payload.count
    let id = UInt32(bitPattern: stream)
    return [UInt8(n >> 16 & 255), UInt8(n >> 8 & 255), UInt8(n & 255), type, flags] + big(id) + payload
  }

  public static func settings(_ pairs: [(UInt16, UInt32)] = []) -> Frame {
    Frame(type: 4, stream: 0, payload: pairs.flatMap { [UInt8($0.0 >> 8), UInt8($0.0 & 255)] + big($0.1) })
  }
  public static let settingsAck = Frame(type: 4, flags: 1, stream: 0)
  public static func headers(_ stream: Int32, _ fields: [(String, String)], end: Bool = false) -> Frame {
    Frame(
      type: 1, flags: end ? 5 : 4, stream: stream,
      payload: fields.flatMap { [0] + literal($0.0) + literal($0.1) })
  }
  public static func data(_ stream: Int32, _ bytes: [UInt8], end: Bool = false) -> Frame {
    Frame(type: 0, flags: end ? 1 : 0, stream: stream, payload: bytes)
  }
  public static func reset(_ stream: Int32, _ code: UInt32) -> Frame {
    Frame(type: 3, stream: stream, payload: big(code))
  }
  public static func goAway(_ last: Int32, _ code: UInt32 = 0, _ debug: String = "") -> Frame {
    Frame(type: 7, stream: 0, payload: big(UInt32(bitPattern: last)) + big(code) + Array(debug.utf8))
  }
  public static func windowUpdate(_ stream: Int32, _ n: UInt32) -> Frame {
    Frame(type: 8, stream: stream, payload: big(n))
  }

  /// This function and the two below make the usual frames of an answer: head, trailers and message.
  public static func head(_ stream: Int32, _ more: [(String, String)] = []) -> Frame {
    .headers(stream, [(":status", "200"), ("content-type", "application/grpc")] + more)
  }
  public static func trailers(_ stream: Int32, _ status: String = "0", _ more: [(String, String)] = [])
    -> Frame
  {
    .headers(stream, [("grpc-status", status)] + more, end: true)
  }
  public static func message(_ stream: Int32, _ bytes: [UInt8], compressed: UInt8 = 0) -> Frame {
    .data(stream, [compressed] + big(UInt32(bytes.count)) + bytes)
  }

  /// The HEADERS and CONTINUATION frames of one header block, `part` bytes in each.
  public static func headers(
    _ stream: Int32, _ fields: [(String, String)], end: Bool = false, part: Int
  ) -> [UInt8] {
    let whole = headers(stream, fields).payload
    return stride(from: 0, to: whole.count, by: part).flatMap { at in
      let last = min(at + part, whole.count)
      let flags: UInt8 = (last == whole.count ? 4 : 0) | (at == 0 && end ? 1 : 0)
      return Frame(type: at == 0 ? 1 : 9, flags: flags, stream: stream, payload: Array(whole[at..<last]))
        .encoded
    }
  }

  /// The frames that `bytes` consist of; nil if the last one is not whole.
  public static func all(_ bytes: [UInt8]) -> [Frame]? {
    var rest = bytes[...]
    var frames: [Frame] = []
    while !rest.isEmpty {
      guard rest.count >= 9 else { return nil }
      let head = Array(rest.prefix(9))
      let size = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
      guard rest.count >= 9 + size else { return nil }
      let id = head[5...].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
      let payload = Array(rest.dropFirst(9).prefix(size))
      frames.append(Frame(type: head[3], flags: head[4], stream: Int32(bitPattern: id), payload: payload))
      rest = rest.dropFirst(9 + size)
    }
    return frames
  }

  private static func literal(_ text: String) -> [UInt8] {
    let utf8 = Array(text.utf8)
    if utf8.count < 127 { return [UInt8(utf8.count)] + utf8 }
    var rest = utf8.count - 127
    var prefix: [UInt8] = [127]
    while rest >= 128 {
      prefix.append(UInt8(rest & 127) | 128)
      rest >>= 7
    }
    return prefix + [UInt8(rest)] + utf8
  }
}

public func big(_ n: UInt32) -> [UInt8] {
  [UInt8(n >> 24), UInt8(n >> 16 & 255), UInt8(n >> 8 & 255), UInt8(n & 255)]
}

/// Makes a frame of gRPC-Web or an envelope of Connect: flags, length, content.
public func frame(_ flags: UInt8, _ content: [UInt8]) -> [UInt8] {
  [flags] + big(UInt32(content.count)) + content
}
public func frame(_ flags: UInt8, _ content: String) -> [UInt8] { frame(flags, Array(content.utf8)) }
