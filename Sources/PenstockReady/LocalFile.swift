import CPenstockSystem
import PenstockWire

/// Reads small files of this machine, on the driving thread: those with tokens and keys.
enum LocalFile {
  enum Read {
    case bytes(ByteBuffer)
    case tooLarge
    /// The errno value.
    case failed(Int32)
    case noMemory
  }

  /// The largest file that is read, in bytes.
  private static let limit = 65536

  /// Reads the file. `path`: with a NUL at its end.
  static func read(_ path: ByteBuffer) -> Read {
    let read = ByteBuffer()
    guard let space = read.spare(atLeast: limit + 1) else { return .noMemory }
    let name = path.view.baseAddress?.assumingMemoryBound(to: CChar.self)
    let count = withExtendedLifetime(path) { cs_read_file(name, space.baseAddress, limit + 1) }
    if count < 0 { return .failed(Int32(-count)) }
    if count > Int64(limit) { return .tooLarge }
    read.commit(Int(count))
    return .bytes(read)
  }
}
