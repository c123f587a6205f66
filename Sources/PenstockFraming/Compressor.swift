import PenstockWire

/// Makes the streams of a compression, one for each message.
enum Compressor {
  /// `windowBits`: zlib's sign for the size of its window and for the format around its data.
  case zlib(windowBits: Int32, hasMembers: Bool)
  case zstd(Zstd)
  /// One of the program's own, which gets whole messages and so has no streams.
  case program(ProgramCompressor)

  /// nil: `identity`, which has none, zstd where its library is missing, or a name that `own` does not have.
  init?(_ compression: Compression, _ own: ProgramCompressors? = nil) {
    switch compression {
    case .identity: return nil
    case .gzip: self = .zlib(windowBits: 15 + 16, hasMembers: true)
    case .deflate: self = .zlib(windowBits: 15, hasMembers: false)
    case .zstd:
      guard let zstd = Zstd.library else { return nil }
      self = .zstd(zstd)
    case .named(let name):
      guard let found = own?.find(name.name) else { return nil }
      self = .program(found)
    }
  }

  /// Makes a stream that compresses a message of `size` bytes; nil: no memory.
  func packer(size: Int) -> Coder? {
    switch self {
    case .zlib(let windowBits, _): ZlibPacker.make(windowBits: windowBits)
    case .zstd(let zstd): ZstdPacker.make(zstd, size: size)
    case .program: nil
    }
  }

  /// Makes a stream that decompresses a message; nil: no memory.
  func unpacker() -> Coder? {
    switch self {
    case .zlib(let windowBits, let hasMembers):
      ZlibUnpacker.make(windowBits: windowBits, hasMembers: hasMembers)
    case .zstd(let zstd): ZstdUnpacker.make(zstd)
    case .program: nil
    }
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
  private let coder: Coder
  private let out = ByteBuffer()
  private var at = 0

  /// The size of a slice in bytes. A slice takes some milliseconds.
  static let slice = 128 << 10

  private init(_ input: ByteBuffer, _ compressor: Compressor, _ coder: Coder) {
    self.input = input
    self.compressor = compressor
    self.coder = coder
  }

  /// Begins to compress a message; nil: no memory.
  static func make(_ input: ByteBuffer, _ compressor: Compressor) -> Deflation? {
    guard let coder = compressor.packer(size: input.count) else { return nil }
    let made = Deflation(input, compressor, coder)
    return made.out.reserve(input.count / 4 &+ 64) ? made : nil
  }

  /// Called when this message is done. Begins to compress the next waiting message. nil: no message waits, or
  /// no memory.
  func next() -> Deflation? {
    guard let first = behind.first else { return nil }
    behind.removeLeading(1)
    let next = Deflation.make(first, compressor)
    next?.behind = behind
    return next
  }

  /// Compresses the next slice. Must not be called after it has returned a result other than `more`.
  func step() -> Step {
    if input.staysPlain { return .bytes(input) }
    let end = min(input.count, at + Deflation.slice)
    while true {
      guard let spare = out.spare(atLeast: 256) else { return .noMemory }
      let moved = coder.move(
        ByteView(rebasing: input.view[at..<end]), into: spare, isLast: end == input.count)
      at += moved.used
      out.commit(moved.made)
      switch moved.state {
      case .ended: return .bytes(out)
      case .malformed, .noMemory: return .noMemory
      case .goesOn: if at == end, end < input.count { return .more }
      }
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
  private let limit: Int
  private let coder: Coder
  private let out = ByteBuffer()
  private var room: Int
  private var at = 0

  /// The most bytes that a slice reads or writes. A slice takes about a millisecond.
  static let slice = 256 << 10

  private init(_ input: ByteBuffer, _ coder: Coder, limit: Int) {
    self.input = input
    self.coder = coder
    self.limit = max(limit, 0)
    room = min(self.limit, max(input.count &* 4, 1024))
  }

  /// Begins to decompress a message; nil: no memory.
  static func make(_ input: ByteBuffer, _ compressor: Compressor, limit: Int) -> Inflation? {
    compressor.unpacker().map { Inflation(input, $0, limit: limit) }
  }

  /// Decompresses until `most` more bytes were read or written. Must not be called after it has returned a
  /// result other than `more`.
  func step(_ most: Int = slice) -> Step {
    var (taken, made) = (0, 0)
    while taken < most, made < most {
      if out.count == room && room < limit { room = min(limit, room > limit / 2 ? limit : room * 2) }
      guard out.reserveExactly(total: room) else { return .noMemory }
      let part = ByteView(rebasing: input.view[at..<(at + min(input.count - at, most - taken))])
      let wanted = min(room - out.count, most - made)
      let moved: Coder.Moved
      let isFull: Bool
      if room == out.count {
        // The space is full, perhaps with the last byte of the message. If the stream gives one more byte, the
        // message is too large. If it reports the end of the data, the message fits.
        var extra: UInt8 = 0
        moved = withUnsafeMutableBytes(of: &extra) { coder.move(part, into: $0, isLast: false) }
        if moved.made > 0 { return .tooLarge }
        isFull = false
      } else {
        guard let spare = out.spare(atLeast: wanted) else { return .noMemory }
        let space = UnsafeMutableRawBufferPointer(rebasing: spare.prefix(wanted))
        moved = coder.move(part, into: space, isLast: false)
        out.commit(moved.made)
        made += moved.made
        isFull = moved.made == wanted
      }
      at += moved.used
      taken += moved.used
      switch moved.state {
      case .ended:
        if at == input.count { return .bytes(out) }
        if !coder.nextPart() { return .malformed }
      case .goesOn:
        // All input is used and the space is not full, so the input is cut off.
        if at == input.count && !isFull { return .malformed }
      case .noMemory: return .noMemory
      case .malformed: return .malformed
      }
    }
    return .more
  }
}
