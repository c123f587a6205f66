internal import CPenstockMemory

/// The five bytes before each message (gRPC over HTTP2, "Length-Prefixed-Message"): the Compressed-Flag in
/// one byte, then the Message-Length as a big-endian number of 32 bits.
public enum MessagePrefix {
  public static let size = 5

  /// Writes the five bytes to the memory at `to`.
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
/// The flag is checked when the first byte has come, and the length, against `limit`, when the fifth has
/// come: before anything is allocated. A failure is final, because nobody knows where the next message
/// begins: each later push consumes nothing and returns the same failure.
///
/// The frames of gRPC-Web and the envelopes of Connect have the same form, but one more flag, which marks the
/// last frame: its content is not a message. The decoder can also read a message that has no prefix, if its
/// length is known in another way (`expect`).
public struct MessageDecoder {
  public enum Failure: Equatable {
    /// The length in the prefix is larger than the limit.
    case tooLarge(length: UInt32, limit: Int)
    /// The first byte of the prefix has a flag that is not defined.
    case badFlag(UInt8)
    case noMemory
  }

  public enum Event {
    case needsMore
    /// A complete message, still compressed if `compressed` is true.
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

  /// A message of at most this size is allocated at once. The storage of a larger one grows as its bytes
  /// come. So a peer that announces a large message and sends only a few bytes uses little memory.
  static let eagerSize = 1024 * 1024

  /// The largest allowed size of one message, in bytes. A change takes effect with the next prefix.
  public var limit: Int
  private var state = State.prefix(Prefix())
  /// The flag that marks the last frame; 0: there is no such flag.
  public let lastFlag: UInt8
  /// Whether the frame that is being received, or was received last, is marked as the last one.
  public private(set) var isLast = false

  public init(limit: Int, lastFlag: UInt8 = 0) {
    self.limit = limit
    self.lastFlag = lastFlag
  }

  /// Whether a part of a message was consumed, but not yet all of it. If the stream ends now, that message is
  /// incomplete.
  public var isMidMessage: Bool {
    switch state {
    case .prefix(let prefix): return prefix.have > 0
    case .body: return true
    case .failed: return false
    }
  }

  /// How many bytes are still missing from the prefix or the content that is being received.
  public var missing: Int {
    switch state {
    case .prefix(let prefix): return MessagePrefix.size &- prefix.have
    case .body(let body): return body.length &- body.bytes.count
    case .failed: return 0
    }
  }

  /// Consumes bytes up to the end of ONE message, and returns how many it has consumed. The caller has to
  /// push the remaining bytes again.
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
        // While memory is low no further message is begun: small ones would use up the memory for objects.
        if cm_is_low() != 0 { return fail(.noMemory, used) }
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

  /// The storage for the next bytes of a message that is not complete. Bytes that are read straight into it,
  /// and then pushed, need not be copied. nil: no message is incomplete, or there is no memory.
  public func space() -> UnsafeMutableRawBufferPointer? {
    guard case .body(let body) = state else { return nil }
    let left = body.length &- body.bytes.count
    guard MessageDecoder.makeRoom(body, for: 1), let spare = body.bytes.spare(atLeast: 0) else { return nil }
    return UnsafeMutableRawBufferPointer(rebasing: spare.prefix(left))
  }

  /// Sets `isLast` if these flags mark the last frame. Otherwise returns false: the flags are not defined.
  private mutating func marksLast(_ flags: UInt8) -> Bool {
    if lastFlag == 0 || flags & ~1 != lastFlag { return false }
    isLast = true
    return true
  }

  /// The content of the last frame may always have this many bytes, even if `limit` is lower, because `limit`
  /// is for messages.
  public static var leastLastLimit: Int { 16384 }

  private func fitsAsLast(_ length: Int) -> Bool { isLast && length <= MessageDecoder.leastLastLimit }

  // MARK: A message without a prefix

  /// Begins a message without a prefix: the next `length` bytes. `isCertain`: the peer has announced this
  /// length, so storage for it is allocated at once (at most `eagerSize` bytes). Otherwise `length` is only
  /// the greatest possible length.
  public mutating func expect(_ length: Int, isCertain: Bool) {
    let bytes = isCertain ? ByteBuffer(capacity: min(length, MessageDecoder.eagerSize)) : nil
    state = .body(Body(bytes: bytes ?? ByteBuffer(), length: length, compressed: false))
  }

  /// Ends the message that is being received, and returns those of its bytes that have come.
  public mutating func cut() -> ByteBuffer {
    guard case .body(let body) = state else { return ByteBuffer() }
    state = .prefix(Prefix())
    return body.bytes
  }

  private mutating func fail(_ failure: Failure, _ used: Int) -> (consumed: Int, event: Event) {
    state = .failed(failure)
    return (used, .failed(failure))
  }

  /// Makes room for `wanted` more bytes of a message. Storage that is too small becomes four times as large,
  /// but never larger than the announced length. Nothing overflows, because no storage is nearly as large as
  /// a quarter of the address space.
  private static func makeRoom(_ body: Body, for wanted: Int) -> Bool {
    let needed = body.bytes.count &+ wanted
    if needed <= body.bytes.reach { return true }
    return body.bytes.reserveExactly(total: max(needed, min(body.length, body.bytes.reach &* 4)))
  }
}
