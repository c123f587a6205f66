/// The five bytes before a message (gRPC over HTTP2, "Length-Prefixed-Message"): one byte Compressed-Flag,
/// then Message-Length as a big-endian 32-bit number.
public enum MessagePrefix {
  public static let size = 5

  /// Writes the five bytes to `to`, which must have room for them.
  public static func write(compressed: Bool, length: UInt32, to: UnsafeMutableRawPointer) {
    to.storeBytes(of: compressed ? 1 : 0, as: UInt8.self)
    to.storeBytes(of: UInt8(truncatingIfNeeded: length >> 24), toByteOffset: 1, as: UInt8.self)
    to.storeBytes(of: UInt8(truncatingIfNeeded: length >> 16), toByteOffset: 2, as: UInt8.self)
    to.storeBytes(of: UInt8(truncatingIfNeeded: length >> 8), toByteOffset: 3, as: UInt8.self)
    to.storeBytes(of: UInt8(truncatingIfNeeded: length), toByteOffset: 4, as: UInt8.self)
  }
}

/// Reads length-prefixed messages, one at a time, from pieces of any size: "DATA frame boundaries have no
/// relation to Length-Prefixed-Message boundaries" (gRPC over HTTP2, "Data Frames").
///
/// ```
/// prefix --5 bytes--> body --all bytes--> prefix ...
///    \-- bad flag, too large, no memory --> failed (for good)
/// ```
/// The flag is checked with the first byte, the length against `limit` with the fifth, before anything is
/// allocated. A failure is final: the stream has lost its framing, so each later push takes nothing and
/// repeats the failure.
///
/// gRPC-Web's frames and Connect's envelopes are the same but for one more flag, which marks the last one: its content
/// is no message. And a message without a prefix can be read (`expect`), whose length is known otherwise.
public struct MessageDecoder {
  public enum Failure: Equatable {
    /// The announced length is over the limit.
    case tooLarge(length: UInt32, limit: Int)
    /// A flag was set that is not defined.
    case badFlag(UInt8)
    case noMemory
  }

  public enum Event {
    case needsMore
    /// The message as it was on the wire: still compressed if `compressed` is true.
    case message(ByteBuffer, compressed: Bool)
    case failed(Failure)
  }

  private struct Prefix {
    var have = 0
    var compressed = false
    var length: UInt32 = 0
  }

  private struct Body {
    var bytes: ByteBuffer
    var length: Int
    var compressed: Bool
  }

  private enum State {
    case prefix(Prefix)
    case body(Body)
    case failed(Failure)
  }

  /// A message up to this size is allocated at once; a larger one grows as its bytes come in, so that a peer that
  /// announces a large message and sends few bytes uses little memory.
  static let eagerSize = 1024 * 1024

  /// The limit on the bytes of one message. A change takes effect with the next prefix.
  public var limit: Int
  private var state = State.prefix(Prefix())
  /// The flag that marks the last frame; 0: there is no such flag.
  private let lastFlag: UInt8
  /// Whether the frame that is being received, or was received last, is marked as the last one.
  public private(set) var isLast = false

  public init(limit: Int, lastFlag: UInt8 = 0) {
    self.limit = limit
    self.lastFlag = lastFlag
  }

  /// Whether bytes of an unfinished message were consumed. If the stream ends now, that message is incomplete.
  public var isMidMessage: Bool {
    switch state {
    case .prefix(let prefix): return prefix.have > 0
    case .body: return true
    case .failed: return false
    }
  }

  /// How many bytes are missing in the prefix or in the content that is being received.
  public var missing: Int {
    switch state {
    case .prefix(let prefix): return MessagePrefix.size &- prefix.have
    case .body(let body): return body.length &- body.bytes.count
    case .failed: return 0
    }
  }

  /// Consumes bytes up to the end of ONE message, and returns how many it consumed. Push the rest again.
  public mutating func push(_ bytes: ByteView) -> (consumed: Int, event: Event) {
    var used = 0
    while true {
      switch state {
      case .failed(let failure):
        return (used, .failed(failure))
      case .prefix(var prefix):
        if prefix.have == 0, bytes.count &- used >= MessagePrefix.size {
          if bytes[used] > 1, !marksLast(bytes[used]) { return fail(.badFlag(bytes[used]), used &+ 1) }
          prefix.compressed = bytes[used] & 1 == 1
          let length = bytes.loadUnaligned(fromByteOffset: used &+ 1, as: UInt32.self)
          prefix.length = UInt32(bigEndian: length)
          prefix.have = MessagePrefix.size
          used &+= MessagePrefix.size
        }
        while prefix.have < MessagePrefix.size && used < bytes.count {
          let byte = bytes[used]
          used &+= 1
          if prefix.have == 0 {
            if byte > 1, !marksLast(byte) { return fail(.badFlag(byte), used) }
            prefix.compressed = byte & 1 == 1
          } else {
            prefix.length = prefix.length << 8 | UInt32(byte)
          }
          prefix.have &+= 1
        }
        if prefix.have < MessagePrefix.size {
          state = .prefix(prefix)
          return (used, .needsMore)
        }
        guard let length = Int(exactly: prefix.length), length <= limit || fitsAsLast(length) else {
          return fail(.tooLarge(length: prefix.length, limit: limit), used)
        }
        let end = used &+ length
        if end <= bytes.count {
          guard let whole = ByteBuffer(copying: slice(bytes, from: used, to: end)) else {
            return fail(.noMemory, used)
          }
          state = .prefix(Prefix())
          return (end, .message(whole, compressed: prefix.compressed))
        }
        guard
          let buffer = ByteBuffer(capacity: min(length, max(MessageDecoder.eagerSize, bytes.count &- used)))
        else { return fail(.noMemory, used) }
        state = .body(Body(bytes: buffer, length: length, compressed: prefix.compressed))
      case .body(let body):
        let wanted = min(body.length &- body.bytes.count, bytes.count &- used)
        if wanted > 0 {
          guard MessageDecoder.makeRoom(body, for: wanted),
            body.bytes.accept(slice(bytes, from: used, to: used &+ wanted))
          else { return fail(.noMemory, used) }
          used &+= wanted
        }
        if body.bytes.count < body.length { return (used, .needsMore) }
        state = .prefix(Prefix())
        return (used, .message(body.bytes, compressed: body.compressed))
      }
    }
  }

  /// The storage for the next bytes of an unfinished message: bytes that are put there before they are pushed need no
  /// copy. nil: no message is unfinished, or no memory.
  public func space() -> UnsafeMutableRawBufferPointer? {
    guard case .body(let body) = state else { return nil }
    let left = body.length &- body.bytes.count
    guard MessageDecoder.makeRoom(body, for: 1), let spare = body.bytes.spare(atLeast: 0) else { return nil }
    return UnsafeMutableRawBufferPointer(rebasing: spare.prefix(left))
  }

  /// Notes that these flags mark the last frame. False: they do not, and are not defined.
  @inline(never) @_optimize(size)
  private mutating func marksLast(_ flags: UInt8) -> Bool {
    if lastFlag == 0 || flags & ~1 != lastFlag { return false }
    isLast = true
    return true
  }

  /// The limit for the content of the last frame is never lower than this: it is no message.
  public static var leastLastLimit: Int { 16384 }

  @inline(never) @_optimize(size)
  private func fitsAsLast(_ length: Int) -> Bool { isLast && length <= MessageDecoder.leastLastLimit }

  // MARK: A message without a prefix

  /// Takes the next `length` bytes as a message. `isCertain`: whether as many bytes will probably come, so that room
  /// is made for them at once.
  @inline(never) @_optimize(size)
  public mutating func expect(_ length: Int, isCertain: Bool) {
    let bytes = isCertain ? ByteBuffer(capacity: min(length, MessageDecoder.eagerSize)) : nil
    state = .body(Body(bytes: bytes ?? ByteBuffer(), length: length, compressed: false))
  }

  /// Ends the message that is being received, and returns the bytes that have come of it.
  @inline(never) @_optimize(size)
  public mutating func cut() -> ByteBuffer {
    guard case .body(let body) = state else { return ByteBuffer() }
    state = .prefix(Prefix())
    return body.bytes
  }

  private mutating func fail(_ failure: Failure, _ used: Int) -> (consumed: Int, event: Event) {
    state = .failed(failure)
    return (used, .failed(failure))
  }

  /// Makes room for `wanted` more bytes. A storage that is too small becomes four times as large, but never larger than
  /// the announced length. Nothing overflows, because storage is never near a quarter of the address space.
  private static func makeRoom(_ body: Body, for wanted: Int) -> Bool {
    let needed = body.bytes.count &+ wanted
    if needed <= body.bytes.reach { return true }
    return body.bytes.reserveExactly(total: max(needed, min(body.length, body.bytes.reach &* 4)))
  }
}
