import CZlib
import PenstockWire

/// gzip (RFC 1952) of whole messages: "implementations must create a new context for each message" (gRPC over HTTP2).
enum Gzip {
  /// The most bytes that one call of zlib is given; its counts are 32 bits wide.
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

/// Compresses one message in slices. A GiB takes half a minute; other calls are served between the slices.
final class Deflation {
  enum Step {
    /// A slice is done, and more follows.
    case more
    case bytes(ByteBuffer)
    case noMemory
  }

  let input: ByteBuffer
  /// Messages that have to be compressed after this one.
  var behind: [ByteBuffer] = []
  /// The stream has memory of its own, because zlib checks that its address stays the same.
  private let stream: UnsafeMutablePointer<z_stream>
  private let out = ByteBuffer()
  private var at = 0

  /// The size of a slice, which takes some milliseconds.
  static let slice = 128 << 10

  /// Begins to compress a message; nil: no memory.
  init?(_ input: ByteBuffer) {
    self.input = input
    stream = UnsafeMutablePointer.allocate(capacity: 1)
    stream.initialize(to: z_stream())
    guard penstock_deflate_init(stream) == Z_OK, out.reserve(input.count / 4 &+ 64) else { return nil }
  }

  deinit {
    deflateEnd(stream)
    stream.deallocate()
  }

  /// Begins to compress the next waiting message, when this one is done. nil: no message waits, or no memory.
  func next() -> Deflation? {
    guard let first = behind.first else { return nil }
    behind.removeLeading(1)
    let next = Deflation(first)
    next?.behind = behind
    return next
  }

  /// Compresses the next slice. Must not be called again after it has returned anything but `more`.
  @inline(never) @_optimize(size)
  func step() -> Step {
    if input.staysPlain { return .bytes(input) }
    let end = min(input.count, at + Deflation.slice)
    while true {
      guard let spare = out.spare(atLeast: 256) else { return .noMemory }
      Gzip.give(&stream.pointee, input.view, at, end - at)
      Gzip.take(&stream.pointee, spare)
      let code = deflate(stream, end == input.count ? Z_FINISH : Z_NO_FLUSH)
      at = end - Int(stream.pointee.avail_in)
      out.commit(min(spare.count, Gzip.most) - Int(stream.pointee.avail_out))
      if code == Z_STREAM_END { return .bytes(out) }
      if code != Z_OK && code != Z_BUF_ERROR { return .noMemory }
      if at == end, end < input.count { return .more }
    }
  }
}

/// Decompresses one message in slices. A few KiB may become a GiB; other calls are served between the slices.
/// For any input, at most `limit` bytes come out, and the storage does not grow beyond that.
final class Inflation {
  enum Step {
    /// A slice is done, and more follows.
    case more
    case bytes(ByteBuffer)
    /// The output is over the limit; decompression has stopped there.
    case tooLarge
    case malformed
    case noMemory
  }

  let input: ByteBuffer
  private let limit: Int
  /// The stream has memory of its own, because zlib checks that its address stays the same.
  private let stream: UnsafeMutablePointer<z_stream>
  private let out = ByteBuffer()
  private var room: Int
  private var at = 0

  /// The most bytes that a slice takes in or gives out. A slice takes about a millisecond.
  static let slice = 256 << 10

  /// Begins to decompress a message; nil: no memory.
  init?(_ input: ByteBuffer, limit: Int) {
    self.input = input
    self.limit = max(limit, 0)
    room = min(self.limit, max(input.count &* 4, 1024))
    stream = UnsafeMutablePointer.allocate(capacity: 1)
    stream.initialize(to: z_stream())
    guard penstock_inflate_init(stream) == Z_OK else { return nil }
  }

  deinit {
    // For a stream that was never begun zlib does nothing and returns an error.
    inflateEnd(stream)
    stream.deallocate()
  }

  /// Decompresses until `most` more bytes have gone in or come out. Must not be called again after it has returned
  /// anything but `more`.
  @inline(never) @_optimize(size)
  func step(_ most: Int = slice) -> Step {
    var (taken, made) = (0, 0)
    while taken < most, made < most {
      if out.count == room && room < limit { room = min(limit, room > limit / 2 ? limit : room * 2) }
      guard out.reserveExactly(total: room) else { return .noMemory }
      let part = min(input.count - at, most - taken)
      Gzip.give(&stream.pointee, input.view, at, part)
      let wanted = min(room - out.count, most - made)
      var code: Int32
      if room == out.count {
        // The space is full, perhaps with the last byte of the message. If one more byte comes out, the message is
        // too large; if the end of the data comes, all is well.
        var extra: UInt8 = 0
        code = withUnsafeMutableBytes(of: &extra) { probe in
          Gzip.take(&stream.pointee, probe)
          return inflate(stream, Z_NO_FLUSH)
        }
        if stream.pointee.avail_out == 0 { return .tooLarge }
      } else {
        guard let spare = out.spare(atLeast: wanted) else { return .noMemory }
        Gzip.take(&stream.pointee, UnsafeMutableRawBufferPointer(rebasing: spare.prefix(wanted)))
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
        // "A gzip file consists of a series of members" (RFC 1952 section 2.2).
        if inflateReset(stream) != Z_OK { return .malformed }
      case Z_OK:
        // All input is used, and there was still room: the input is cut off.
        if at == input.count && stream.pointee.avail_out != 0 { return .malformed }
      case Z_MEM_ERROR: return .noMemory
      default: return .malformed
      }
    }
    return .more
  }
}
