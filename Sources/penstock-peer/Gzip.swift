import CPenstockZlib
import PenstockWire
import PenstockLink

/// The compression of messages, as the protocol's header field names it.
enum Coding: Equatable {
  case identity, gzip, unknown

  init(_ name: ByteView) {
    if bytesEqual(name, "identity") {
      self = .identity
    } else {
      self = bytesEqual(name, "gzip") ? .gzip : .unknown
    }
  }
}

/// Compresses and decompresses single messages: "Compression contexts are NOT maintained over message boundaries" (gRPC
/// over HTTP2).
enum Gzip {
  enum Outcome: Equatable { case done, tooLarge, malformed, noMemory }

  /// zlib's sign for its largest window and for gzip's format.
  private static let windowBits: Int32 = 15 + 16

  static func compress(_ bytes: ByteView, into out: ByteBuffer) -> Bool {
    var stream = z_stream()
    guard penstock_deflate_init(&stream, windowBits) == Z_OK else { return false }
    defer { deflateEnd(&stream) }
    guard let count = UInt32(exactly: bytes.count) else { return false }
    stream.next_in = UnsafeMutablePointer(mutating: bytes.baseAddress?.assumingMemoryBound(to: UInt8.self))
    stream.avail_in = count
    while true {
      guard let space = out.spare(atLeast: 16 << 10) else { return false }
      let room = min(space.count, 1 << 30)
      stream.next_out = space.baseAddress?.assumingMemoryBound(to: UInt8.self)
      stream.avail_out = UInt32(room)
      let result = deflate(&stream, Z_FINISH)
      out.commit(room - Int(stream.avail_out))
      if result == Z_STREAM_END { return true }
      if result != Z_OK { return false }
    }
  }

  static func decompress(_ bytes: ByteView, into out: ByteBuffer, limit: Int) -> Outcome {
    var stream = z_stream()
    guard penstock_inflate_init(&stream, windowBits) == Z_OK else { return .noMemory }
    defer { inflateEnd(&stream) }
    guard let count = UInt32(exactly: bytes.count) else { return .tooLarge }
    stream.next_in = UnsafeMutablePointer(mutating: bytes.baseAddress?.assumingMemoryBound(to: UInt8.self))
    stream.avail_in = count
    while true {
      guard let space = out.spare(atLeast: 16 << 10) else { return .noMemory }
      let room = min(space.count, 1 << 30)
      stream.next_out = space.baseAddress?.assumingMemoryBound(to: UInt8.self)
      stream.avail_out = UInt32(room)
      let result = inflate(&stream, Z_NO_FLUSH)
      out.commit(room - Int(stream.avail_out))
      if out.count > limit { return .tooLarge }
      if result == Z_STREAM_END { return stream.avail_in == 0 ? .done : .malformed }
      if result == Z_MEM_ERROR { return .noMemory }
      if result != Z_OK || (stream.avail_in == 0 && stream.avail_out > 0) { return .malformed }
    }
  }
}
