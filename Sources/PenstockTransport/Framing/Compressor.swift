import CZlib
import PenstockWire

/// How zlib is called for a compression of whole messages: "implementations must create a new context for each message"
/// (gRPC over HTTP2).
struct Compressor {
  /// zlib's sign for the size of its window and for the format around its data.
  let windowBits: Int32
  /// Whether a message may have several parts, one behind the other: "A gzip file consists of a series of members"
  /// (RFC 1952 section 2.2).
  let hasMembers: Bool

  /// nil: `identity`, which has none.
  init?(_ compression: Compression) {
    switch compression {
    case .identity: return nil
    case .gzip: (windowBits, hasMembers) = (15 + 16, true)
    case .deflate: (windowBits, hasMembers) = (15, false)
    }
  }

  /// The most bytes that one call of zlib gets, because zlib's counts have 32 bits.
  static let most = 1 << 30

  static func give(_ stream: inout z_stream, _ bytes: ByteView, _ at: Int, _ count: Int) {
    let start = bytes.baseAddress.map { ($0 + at).assumingMemoryBound(to: UInt8.self) }
    stream.next_in = start.map { UnsafeMutablePointer(mutating: $0) }
    stream.avail_in = UInt32(count)
  }

  static func take(_ stream: inout z_stream, _ space: UnsafeMutableRawBufferPointer) {
    stream.next_out = space.baseAddress?.assumingMemoryBound(to: UInt8.self)
    stream.avail_out = UInt32(min(space.count, most))
  }
}

/// Compresses one message in slices. To compress 1 GiB takes half a minute, so other calls are served between
/// two slices.
final class Deflation {
  enum Step {
    /// A slice is done, and the message has more slices.
    case more
    case bytes(ByteBuffer)
    case noMemory
  }

  let input: ByteBuffer
  private let compressor: Compressor
  /// The messages that have to be compressed after this message.
  var behind: [ByteBuffer] = []
  /// The stream is allocated separately, because zlib checks that its address does not change.
  private let stream: UnsafeMutablePointer<z_stream>
  private let out = ByteBuffer()
  private var at = 0

  /// The size of a slice in bytes. A slice takes some milliseconds.
  static let slice = 128 << 10

  /// Begins to compress a message; nil: no memory.
  init?(_ input: ByteBuffer, _ compressor: Compressor) {
    self.input = input
    self.compressor = compressor
    stream = UnsafeMutablePointer.allocate(capacity: 1)
    stream.initialize(to: z_stream())
    guard penstock_deflate_init(stream, compressor.windowBits) == Z_OK, out.reserve(input.count / 4 &+ 64)
    else { return nil }
  }

  deinit {
    deflateEnd(stream)
    stream.deallocate()
  }

  /// Called when this message is done. Begins to compress the next waiting message. nil: no message waits, or
  /// no memory.
  func next() -> Deflation? {
    guard let first = behind.first else { return nil }
    behind.removeLeading(1)
    let next = Deflation(first, compressor)
    next?.behind = behind
    return next
  }

  /// Compresses the next slice. Must not be called after it has returned a result other than `more`.
  func step() -> Step {
    if input.staysPlain { return .bytes(input) }
    let end = min(input.count, at + Deflation.slice)
    while true {
      guard let spare = out.spare(atLeast: 256) else { return .noMemory }
      Compressor.give(&stream.pointee, input.view, at, end - at)
      Compressor.take(&stream.pointee, spare)
      let code = deflate(stream, end == input.count ? Z_FINISH : Z_NO_FLUSH)
      at = end - Int(stream.pointee.avail_in)
      out.commit(min(spare.count, Compressor.most) - Int(stream.pointee.avail_out))
      if code == Z_STREAM_END { return .bytes(out) }
      if code != Z_OK && code != Z_BUF_ERROR { return .noMemory }
      if at == end, end < input.count { return .more }
    }
  }
}

/// Decompresses one message in slices. A few KiB may become 1 GiB, so other calls are served between two
/// slices. The output has at most `limit` bytes for any input, and the memory for it does not grow beyond
/// that.
final class Inflation {
  enum Step {
    /// This step has decompressed a slice, and there is more to decompress: `step` has to be called again.
    case more
    case bytes(ByteBuffer)
    /// The output exceeds the limit, and decompression has stopped.
    case tooLarge
    case malformed
    case noMemory
  }

  let input: ByteBuffer
  private let hasMembers: Bool
  private let limit: Int
  /// The stream is allocated separately, because zlib checks that its address does not change.
  private let stream: UnsafeMutablePointer<z_stream>
  private let out = ByteBuffer()
  private var room: Int
  private var at = 0

  /// The most bytes that a slice reads or writes. A slice takes about a millisecond.
  static let slice = 256 << 10

  /// Begins to decompress a message; nil: no memory.
  init?(_ input: ByteBuffer, _ compressor: Compressor, limit: Int) {
    self.input = input
    hasMembers = compressor.hasMembers
    self.limit = max(limit, 0)
    room = min(self.limit, max(input.count &* 4, 1024))
    stream = UnsafeMutablePointer.allocate(capacity: 1)
    stream.initialize(to: z_stream())
    guard penstock_inflate_init(stream, compressor.windowBits) == Z_OK else { return nil }
  }

  deinit {
    // If the stream was never begun, zlib does nothing here and returns an error.
    inflateEnd(stream)
    stream.deallocate()
  }

  /// Decompresses until `most` more bytes were read or written. Must not be called after it has returned a
  /// result other than `more`.
  func step(_ most: Int = slice) -> Step {
    var (taken, made) = (0, 0)
    while taken < most, made < most {
      if out.count == room && room < limit { room = min(limit, room > limit / 2 ? limit : room * 2) }
      guard out.reserveExactly(total: room) else { return .noMemory }
      let part = min(input.count - at, most - taken)
      Compressor.give(&stream.pointee, input.view, at, part)
      let wanted = min(room - out.count, most - made)
      var code: Int32
      if room == out.count {
        // The space is full, perhaps with the last byte of the message. If zlib gives one more byte, the
        // message is too large. If zlib reports the end of the data, the message fits.
        var extra: UInt8 = 0
        code = withUnsafeMutableBytes(of: &extra) { probe in
          Compressor.take(&stream.pointee, probe)
          return inflate(stream, Z_NO_FLUSH)
        }
        if stream.pointee.avail_out == 0 { return .tooLarge }
      } else {
        guard let spare = out.spare(atLeast: wanted) else { return .noMemory }
        Compressor.take(&stream.pointee, UnsafeMutableRawBufferPointer(rebasing: spare.prefix(wanted)))
        code = inflate(stream, Z_NO_FLUSH)
        let count = wanted - Int(stream.pointee.avail_out)
        out.commit(count)
        made += count
      }
      let used = part - Int(stream.pointee.avail_in)
      at += used
      taken += used
      switch code {
      case Z_STREAM_END:
        if at == input.count { return .bytes(out) }
        if !hasMembers || inflateReset(stream) != Z_OK { return .malformed }
      case Z_OK:
        // All input is used and the space is not full, so the input is cut off.
        if at == input.count && stream.pointee.avail_out != 0 { return .malformed }
      case Z_MEM_ERROR: return .noMemory
      default: return .malformed
      }
    }
    return .more
  }
}
