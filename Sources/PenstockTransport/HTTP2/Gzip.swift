import CZlib
import PenstockWire

/// gzip (RFC 1952) of whole messages: "implementations must create a new context for each message" (gRPC over HTTP2).
enum Gzip {
  enum Outcome {
    case bytes(ByteBuffer)
    /// More than the limit came out: where it stopped.
    case tooLarge
    case malformed
    case noMemory
  }

  /// What one call of zlib is given at most; its counts are 32 bits wide.
  private static let most = 1 << 30

  /// nil: no memory.
  @inline(never) @_optimize(size)
  static func compress(_ bytes: ByteView) -> ByteBuffer? {
    var stream = z_stream()
    guard penstock_deflate_init(&stream) == Z_OK else { return nil }
    defer { deflateEnd(&stream) }
    guard let out = ByteBuffer(capacity: bytes.count / 4 &+ 64) else { return nil }
    var at = 0
    while true {
      let part = min(bytes.count - at, most)
      guard let spare = out.spare(atLeast: 256) else { return nil }
      give(&stream, bytes, at, part)
      take(&stream, spare)
      let code = deflate(&stream, at + part == bytes.count ? Z_FINISH : Z_NO_FLUSH)
      at += part - Int(stream.avail_in)
      out.commit(min(spare.count, most) - Int(stream.avail_out))
      if code == Z_STREAM_END { return out }
      if code != Z_OK && code != Z_BUF_ERROR { return nil }
    }
  }

  /// At most `limit` bytes: storage never grows past that, whatever the input claims.
  @inline(never) @_optimize(size)
  static func decompress(_ bytes: ByteView, limit: Int) -> Outcome {
    var stream = z_stream()
    guard penstock_inflate_init(&stream) == Z_OK else { return .noMemory }
    defer { inflateEnd(&stream) }
    var room = min(max(limit, 0), max(bytes.count &* 4, 1024))
    guard var out = ByteBuffer(capacity: room) else { return .noMemory }
    var at = 0
    var extra: UInt8 = 0
    while true {
      if out.count == room && room < limit {
        room = min(limit, room > limit / 2 ? limit : room * 2)
        guard let larger = ByteBuffer(capacity: room), larger.append(out.view) else { return .noMemory }
        out = larger
      }
      let part = min(bytes.count - at, most)
      give(&stream, bytes, at, part)
      let wanted = room - out.count
      var code: Int32
      if wanted == 0 {
        // Full, perhaps exactly: one byte more would be too much, the end of the data is fine.
        code = withUnsafeMutableBytes(of: &extra) { probe in
          take(&stream, probe)
          return inflate(&stream, Z_NO_FLUSH)
        }
        if stream.avail_out == 0 { return .tooLarge }
      } else {
        guard let spare = out.spare(atLeast: wanted) else { return .noMemory }
        let place = UnsafeMutableRawBufferPointer(rebasing: spare.prefix(wanted))
        take(&stream, place)
        code = inflate(&stream, Z_NO_FLUSH)
        out.commit(min(wanted, most) - Int(stream.avail_out))
      }
      let used = part - Int(stream.avail_in)
      at += used
      switch code {
      case Z_STREAM_END:
        if at == bytes.count { return .bytes(out) }
        // "A gzip file consists of a series of members" (RFC 1952 section 2.2).
        if inflateReset(&stream) != Z_OK { return .malformed }
      case Z_OK:
        // All input is used, and there was room left: it is cut off.
        if at == bytes.count && stream.avail_out != 0 { return .malformed }
      case Z_MEM_ERROR: return .noMemory
      default: return .malformed
      }
    }
  }

  private static func give(_ stream: inout z_stream, _ bytes: ByteView, _ at: Int, _ count: Int) {
    let start = bytes.baseAddress.map { ($0 + at).assumingMemoryBound(to: UInt8.self) }
    stream.next_in = start.map { UnsafeMutablePointer(mutating: $0) }
    stream.avail_in = UInt32(count)
  }

  private static func take(_ stream: inout z_stream, _ place: UnsafeMutableRawBufferPointer) {
    stream.next_out = place.baseAddress?.assumingMemoryBound(to: UInt8.self)
    stream.avail_out = UInt32(min(place.count, most))
  }
}
