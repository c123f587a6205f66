import CPenstockMemory
import CPenstockZlib
import PenstockLoop
import PenstockWire

/// The stream of a compression library for one message: "implementations must create a new context for each message"
/// (gRPC over HTTP2). A further library is a subclass.
class Coder {
  enum State {
    case goesOn
    /// The output is complete.
    case ended
    case malformed
    case noMemory
  }

  struct Moved {
    /// The number of bytes of the input that were used.
    let used: Int
    /// The number of bytes of the output that were made.
    let made: Int
    let state: State
  }

  /// Takes some of `input`, and fills some of `space`. `isLast`: no more input follows.
  func move(_ input: ByteView, into space: UnsafeMutableRawBufferPointer, isLast: Bool) -> Moved {
    mustOverride(Moved(used: 0, made: 0, state: .malformed))
  }

  /// Called when the output is complete and there is more input. False, as by default: the
  /// format has no more.
  func nextPart() -> Bool { false }
}

/// A stream of zlib, in one of its formats.
class ZlibCoder: Coder {
  /// The most bytes that one call gets, because zlib's counts have 32 bits.
  private static let most = 1 << 30

  /// It is allocated separately, because zlib checks that its address does not change.
  fileprivate final let stream: UnsafeMutablePointer<z_stream>

  /// Takes over memory that `newStream` has made.
  fileprivate init(_ stream: UnsafeMutablePointer<z_stream>) { self.stream = stream }

  deinit { cm_free(stream) }

  fileprivate static func newStream() -> UnsafeMutablePointer<z_stream>? {
    let memory = cm_alloc(MemoryLayout<z_stream>.size)?.bindMemory(to: z_stream.self, capacity: 1)
    memory?.initialize(to: z_stream())
    return memory
  }

  fileprivate final func call(
    _ input: ByteView, _ space: UnsafeMutableRawBufferPointer,
    _ function: (UnsafeMutablePointer<z_stream>) -> Int32
  ) -> Moved {
    let (given, room) = (min(input.count, ZlibCoder.most), min(space.count, ZlibCoder.most))
    let start = input.baseAddress?.assumingMemoryBound(to: UInt8.self)
    stream.pointee.next_in = start.map { UnsafeMutablePointer(mutating: $0) }
    stream.pointee.avail_in = UInt32(given)
    stream.pointee.next_out = space.baseAddress?.assumingMemoryBound(to: UInt8.self)
    stream.pointee.avail_out = UInt32(room)
    let code = function(stream)
    let (used, made) = (given - Int(stream.pointee.avail_in), room - Int(stream.pointee.avail_out))
    let state: State =
      switch code {
      case Z_OK: .goesOn
      case Z_STREAM_END: .ended
      case Z_MEM_ERROR: .noMemory
      // Nothing could be done: the output is full, or the input is used up.
      case Z_BUF_ERROR: .goesOn
      default: .malformed
      }
    return Moved(used: used, made: made, state: state)
  }
}

final class ZlibPacker: ZlibCoder {
  /// `windowBits`: zlib's sign for the size of its window and for the format around its data. nil: no memory.
  static func make(windowBits: Int32) -> ZlibPacker? {
    guard let packer = newStream().map({ ZlibPacker($0) }) else { return nil }
    return penstock_deflate_init(packer.stream, windowBits) == Z_OK ? packer : nil
  }

  // If the stream was never begun, zlib does nothing here and returns an error.
  deinit { deflateEnd(stream) }

  override func move(_ input: ByteView, into space: UnsafeMutableRawBufferPointer, isLast: Bool) -> Moved {
    call(input, space) { deflate($0, isLast ? Z_FINISH : Z_NO_FLUSH) }
  }
}

final class ZlibUnpacker: ZlibCoder {
  /// Whether a message may have several parts, one behind the other: "A gzip file consists of a series of members"
  /// (RFC 1952 section 2.2).
  private let hasMembers: Bool

  private init(_ stream: UnsafeMutablePointer<z_stream>, hasMembers: Bool) {
    self.hasMembers = hasMembers
    super.init(stream)
  }

  static func make(windowBits: Int32, hasMembers: Bool) -> ZlibUnpacker? {
    guard let unpacker = newStream().map({ ZlibUnpacker($0, hasMembers: hasMembers) }) else { return nil }
    return penstock_inflate_init(unpacker.stream, windowBits) == Z_OK ? unpacker : nil
  }

  deinit { inflateEnd(stream) }

  override func move(_ input: ByteView, into space: UnsafeMutableRawBufferPointer, isLast: Bool) -> Moved {
    call(input, space) { inflate($0, Z_NO_FLUSH) }
  }

  override func nextPart() -> Bool { hasMembers && inflateReset(stream) == Z_OK }
}
